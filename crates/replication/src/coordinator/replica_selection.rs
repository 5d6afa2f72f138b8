//! Which replicas a read asks first.

use std::time::Duration;

use kvorum_core::PartitionId;
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::quorum::{Quorum, Rank, ReplicaSet};

use super::fan_out::FanOut;
use super::operations::Operations;
use super::slow_start::ReplicaHealth;

impl Operations {
    /// The `ack` replicas that are asked first, and the one of them that is asked for the record: this node before
    /// those that stand as it does, and of the others those that answer fastest.
    pub(super) fn choose(
        &self,
        layout: &Layout,
        partition: PartitionId,
        now: Duration,
        quorum: Quorum,
    ) -> (ReplicaSet, Rank) {
        let replicas = layout.preference_list(partition);
        let own = self.membership.own();
        let delay = self.hedging.delay();
        let cost = |node: &NodeId| match self.peers.get(*node) {
            None if *node != own => (ReplicaHealth::Out, true, 0),
            None if self.membership.abstains().is_some() => (ReplicaHealth::Out, false, 0),
            None => {
                let is_overdue = |after| self.own_disk.is_overdue(now, after);
                (self.behind.health(*node, now, delay, is_overdue), false, 0)
            }
            Some(peer) if !peer.is_up() || !peer.votes() => (ReplicaHealth::Out, true, 0),
            Some(peer) => {
                let is_overdue = |after| peer.is_suspect(now, after);
                (self.behind.health(*node, now, delay, is_overdue), true, peer.cost())
            }
        };
        let mut costs = self.costs.take();
        costs.extend((0..quorum.replicas()).map(Rank).zip(replicas).map(|(rank, node)| (cost(node), rank)));
        costs.sort_unstable();
        let record_from = costs.first().map_or(Rank(0), |(_, best)| *best);
        let mut first = ReplicaSet::EMPTY;
        let all = self.fan_out == FanOut::All || quorum.required() == quorum.replicas();
        let wanted = if all { quorum.replicas() } else { quorum.required() };
        for (_, rank) in costs.drain(..).take(usize::from(wanted)) {
            first.insert(rank);
            if let Some(node) = replicas.get(usize::from(rank.0)) {
                self.behind.note_asked(*node, now);
            }
        }
        self.costs.replace(costs);
        (first, record_from)
    }
}
