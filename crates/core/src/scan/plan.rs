//! Which nodes answer for which partitions.

use crate::key::{PARTITIONS, PartitionId};
use crate::layout::Layout;
use crate::node::NodeId;
use crate::partitions::PartitionSet;
use crate::quorum::{Quorum, Rank};

/// What one node is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePart {
    /// Partitions whose records it gives.
    pub provides: PartitionSet,
    /// Partitions of which it gives versions.
    pub witnesses: PartitionSet,
}

impl NodePart {
    /// Whether it is asked for anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.provides.is_empty() && self.witnesses.is_empty()
    }
}

/// A replica of a partition's cover: the provider comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoverMember {
    /// Which node.
    pub node: NodeId,
    /// Its place in the partition's preference list.
    pub rank: Rank,
}

/// An assignment of all partitions to nodes that are there.
#[derive(Clone, Debug)]
pub struct ScanPlan {
    quorum: Quorum,
    /// For each partition `quorum.required()` members, or none where too few are there.
    covers: Vec<CoverMember>,
    /// Where each partition's members begin in `covers`, and behind the last of all.
    begins: Vec<usize>,
    missing: PartitionSet,
}

impl ScanPlan {
    /// Assigns each partition the first `ack` of its first `from` replicas that are there. So its provider is the
    /// primary, if that is: only the primary is sure to have records of every stored `from`.
    #[must_use]
    pub fn new(layout: &Layout, quorum: Quorum, is_there: impl Fn(NodeId, PartitionId) -> bool) -> Self {
        let mut plan = Self {
            quorum,
            covers: Vec::with_capacity(PARTITIONS * usize::from(quorum.required())),
            begins: Vec::with_capacity(PARTITIONS + 1),
            missing: PartitionSet::default(),
        };
        for partition in PartitionId::all() {
            let begin = plan.covers.len();
            plan.begins.push(begin);
            let replicas = (0..quorum.replicas()).map(Rank).zip(layout.preference_list(partition));
            let there = replicas.filter(|(_, node)| is_there(**node, partition));
            let members = there.take(usize::from(quorum.required()));
            plan.covers.extend(members.map(|(rank, node)| CoverMember { node: *node, rank }));
            if plan.covers.len() - begin < usize::from(quorum.required()) {
                plan.covers.truncate(begin);
                plan.missing.insert(partition);
            }
        }
        plan.begins.push(plan.covers.len());
        plan
    }

    /// How many replicas each key is judged by.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// The replicas that answer for a partition, its provider first; none where too few are there.
    #[must_use]
    pub fn cover(&self, partition: PartitionId) -> &[CoverMember] {
        let begin = self.begins.get(partition.index()).copied().unwrap_or_default();
        let end = self.begins.get(partition.index() + 1).copied().unwrap_or_default();
        self.covers.get(begin..end).unwrap_or_default()
    }

    /// Partitions of which too few replicas are there.
    #[must_use]
    pub fn missing(&self) -> &PartitionSet {
        &self.missing
    }

    /// What a node is asked for.
    #[must_use]
    pub fn part(&self, node: NodeId) -> NodePart {
        let mut part = NodePart::default();
        for partition in PartitionId::all() {
            match self.cover(partition).iter().position(|member| member.node == node) {
                None => {}
                Some(0) => part.provides.insert(partition),
                Some(_) => part.witnesses.insert(partition),
            }
        }
        part
    }
}
