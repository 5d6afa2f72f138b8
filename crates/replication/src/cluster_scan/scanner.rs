//! What a shard scans the cluster with, and what it is asked to scan.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_base::clock::Clock;
use kvorum_core::Key;
use kvorum_core::key::PartitionId;
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::Quorum;
use kvorum_core::scan::page::ScanValues;
use kvorum_core::scan::plan::ScanPlan;
use kvorum_peer::membership::Membership;
use kvorum_peer::peers::Peers;

use super::budget::ScanBudget;
use super::page_reader::PageReader;
use crate::background_rpc::BackgroundRpc;
use crate::coordinator::Coordinator;
use crate::pinned_layout::{PinnedLayout, ShardLayout};

/// What a shard scans the cluster with.
pub struct Scanner {
    pub(crate) clock: Arc<Clock>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) layout: Rc<ShardLayout>,
    pub(crate) peers: Rc<Peers>,
    pub(crate) rpc: Rc<BackgroundRpc>,
    pub(crate) reader: Rc<PageReader>,
    pub(crate) coordinator: Coordinator,
    pub(crate) budget: Arc<ScanBudget>,
}

/// What to scan.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    /// The first key; empty for the first of all.
    pub start: Bytes,
    /// The first key that is left out.
    pub end: Option<Bytes>,
    /// By how many replicas each key is judged.
    pub quorum: Quorum,
    /// Whether values are wanted.
    pub values: ScanValues,
    /// What to do without enough replicas of a partition.
    pub on_missing: OnMissing,
}

/// What a scan does without enough replicas of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// It ends.
    End,
    /// It leaves the partition out, and says so.
    LeaveOut,
}

/// Why a scan is not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanRefused {
    /// There is no memory for another.
    NoRoom,
    /// Too few replicas are there.
    Missing(MissingReplicas),
}

/// What a scan cannot be answered for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingReplicas {
    /// Too few of their replicas answer.
    pub partitions: PartitionSet,
    /// Those of their replicas that do not, as far as is known.
    pub nodes: BTreeSet<NodeId>,
    /// A node was left out because it had no room, however often it was asked.
    pub is_busy: bool,
}

impl Scanner {
    /// Which cluster it scans.
    #[must_use]
    pub fn cluster_id(&self) -> u64 {
        self.membership.layout().cluster()
    }

    /// The node's clock, in milliseconds since 1970.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.clock.present().millis()
    }

    /// The nodes, and where they keep what.
    #[must_use]
    pub fn layout(&self) -> PinnedLayout {
        self.layout.pin()
    }

    /// Which nodes answer for which partitions, without those that have failed.
    pub(super) fn plan(&self, layout: &Layout, spec: &ScanSpec, failed: &BTreeSet<NodeId>) -> ScanPlan {
        ScanPlan::new(layout, spec.quorum, |node, partition| self.answers(node, partition, failed))
    }

    /// What a plan lacks.
    pub(super) fn missing(
        &self,
        layout: &Layout,
        plan: &ScanPlan,
        spec: &ScanSpec,
        failed: &BTreeSet<NodeId>,
    ) -> MissingReplicas {
        let partitions = plan.missing().clone();
        let replicas = partitions.iter().flat_map(|partition| {
            let replicas = layout.preference_list(partition);
            replicas.iter().take(usize::from(spec.quorum.replicas())).map(move |node| (*node, partition))
        });
        let absent = replicas.filter(|(node, partition)| !self.answers(*node, *partition, failed));
        MissingReplicas { nodes: absent.map(|(node, _)| node).collect(), partitions, is_busy: false }
    }

    fn answers(&self, node: NodeId, partition: PartitionId, failed: &BTreeSet<NodeId>) -> bool {
        let answers = match self.peers.get(node) {
            Some(peer) => peer.is_up() && peer.votes(),
            None => node == self.membership.own() && self.membership.abstains_for(partition).is_none(),
        };
        answers && !failed.contains(&node)
    }
}

pub(super) fn key_bytes(key: &Key) -> Bytes {
    Bytes::copy_from_slice(key.as_bytes())
}
