//! One round at its driver: the nodes in it, what differs, what each needs, and what is proven.
//!
//! Owns no connection and no clock. Nodes are *present* until [`Round::lose`]. Promises: a partition is in
//! [`Round::proven`] only if every node of the layout stayed present, nothing of it was left unsettled, and every leaf
//! in which two nodes differed, or that a node marked, was listed by all.

use std::collections::{BTreeMap, BTreeSet};

use super::trees::{LEAVES, LeafSet, Leaves};
use super::{Holding, RecordKind, RoundId};
use crate::key::{PARTITIONS, PartitionId};
use crate::layout::Layout;
use crate::mutant::{Mutant, is_on};
use crate::node::NodeId;
use crate::partitions::PartitionSet;
use crate::quorum::{Current, StoreAnswer};
use crate::version::Version;

/// What is to be copied to which nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// The newest record.
    pub newest: Holding,
    /// Which have it, in the order of preference.
    pub holders: Vec<NodeId>,
    /// Which need it.
    pub targets: Vec<NodeId>,
    /// Only nodes without a vote have anything of the key. What they have may have been deleted long ago: then a
    /// GC watermark of those that vote refuses it, and what is left of it is to be deleted too.
    pub is_doubtful: bool,
}

/// Whether a member of a round has a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberVote {
    /// It has.
    Counts,
    /// It is rebuilding.
    Abstains,
}

/// A round under way.
#[derive(Debug)]
pub struct Round<'a> {
    id: RoundId,
    layout: &'a Layout,
    present: BTreeSet<NodeId>,
    voting: BTreeSet<NodeId>,
    /// By class, then by node.
    roots: BTreeMap<u8, BTreeMap<NodeId, Vec<u64>>>,
    selected: Vec<LeafSet>,
    unsettled: PartitionSet,
}

impl<'a> Round<'a> {
    /// A round among all nodes of the layout.
    #[must_use]
    pub fn new(id: RoundId, layout: &'a Layout) -> Self {
        Self {
            id,
            layout,
            present: layout.ids().collect(),
            voting: BTreeSet::new(),
            roots: BTreeMap::new(),
            selected: vec![LeafSet::default(); PARTITIONS],
            unsettled: PartitionSet::default(),
        }
    }

    /// A node has failed, or never answered: the round goes on without it, and proves nothing.
    pub fn lose(&mut self, node: NodeId) {
        self.present.remove(&node);
    }

    /// A node has begun, with or without a vote.
    pub fn on_begun(&mut self, node: NodeId, vote: MemberVote) {
        match vote {
            MemberVote::Counts => self.voting.insert(node),
            MemberVote::Abstains => self.voting.remove(&node),
        };
    }

    /// Whether a node began with a vote.
    #[must_use]
    pub fn is_voting(&self, node: NodeId) -> bool {
        self.voting.contains(&node)
    }

    /// The nodes that take part.
    pub fn present(&self) -> impl Iterator<Item = NodeId> {
        self.present.iter().copied()
    }

    /// Whether a node takes part.
    #[must_use]
    pub fn is_present(&self, node: NodeId) -> bool {
        self.present.contains(&node)
    }

    /// Whether all nodes of the layout do.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.present.len() == self.layout.nodes().len()
    }

    /// The roots of a node's trees of one class. A class that is not given has none.
    pub fn on_roots(&mut self, node: NodeId, class: u8, roots: Vec<u64>) {
        self.roots.entry(class).or_default().insert(node, roots);
    }

    /// The leaves that a node has marked to be listed whatever the others have.
    pub fn on_marked(&mut self, marked: impl IntoIterator<Item = (PartitionId, LeafSet)>) {
        marked.into_iter().for_each(|(partition, leaves)| self.select(partition, leaves));
    }

    /// The partitions in which some class has different roots among the nodes that share it.
    #[must_use]
    pub fn differing(&self) -> PartitionSet {
        let differs = |partition: &PartitionId| {
            self.roots.iter().any(|(class, by_node)| {
                let root = |node: NodeId| {
                    by_node.get(&node).and_then(|roots| roots.get(partition.index())).copied().unwrap_or(0)
                };
                let mut roots = self.members(*partition, *class).map(root);
                let first = roots.next();
                roots.any(|other| Some(other) != first)
            })
        };
        PartitionId::all().filter(differs).collect()
    }

    /// The leaves of a partition, of every present node: selects those that differ.
    pub fn on_leaves(&mut self, partition: PartitionId, trees: &BTreeMap<(u8, NodeId), Leaves>) {
        let mut classes: Vec<u8> = trees.keys().map(|(class, _)| *class).collect();
        classes.dedup();
        let mut differing = LeafSet::default();
        for class in classes {
            for leaf in 0..LEAVES {
                let sum =
                    |node| trees.get(&(class, node)).and_then(|leaves| leaves.get(leaf)).copied().unwrap_or_default();
                let mut sums = self.members(partition, class).map(sum);
                let first = sums.next();
                if sums.any(|other| Some(other) != first) {
                    differing.0 |= 1 << leaf;
                }
            }
        }
        self.select(partition, differing);
    }

    /// Whether a node takes part that has to get back what it lost. Then everything is listed and copied, what is newer
    /// than W as well: of what that node had acknowledged, another may have nothing left but the write that replaced
    /// it, and that may be as new as can be, and on no other node.
    fn is_restoring(&self) -> bool {
        self.present().any(|node| !self.is_voting(node)) && !is_on(Mutant::RestoredUpToW)
    }

    /// What is to be listed.
    #[must_use]
    pub fn selection(&self) -> Vec<(PartitionId, LeafSet)> {
        if self.is_restoring() {
            return PartitionId::all().map(|partition| (partition, LeafSet::ALL)).collect();
        }
        let all = PartitionId::all().zip(self.selected.iter().copied());
        all.filter(|(_, leaves)| leaves.0 != 0).collect()
    }

    /// Which nodes need what of a key, if any does. `held` is what the present nodes have listed for it.
    ///
    /// The rule for the stored `from`: a node with something older gets the newest; one with nothing gets it only if it
    /// is among the record's first `from`. A deletion that a holder may drop is proven to have been everywhere: no node
    /// without a record needs it.
    pub fn plan(&mut self, partition: PartitionId, held: &[(NodeId, Holding)]) -> Option<CopyPlan> {
        let (limit, is_restoring) = (self.id.version(), self.is_restoring());
        let whole =
            |holding: &Holding| holding.kind != RecordKind::Damaged && (is_restoring || holding.version <= limit);
        let newest = held.iter().map(|(_, holding)| *holding).filter(whole).max_by_key(|holding| holding.version);
        let Some(newest) = newest else {
            // Newer than the round, or damaged everywhere: then it is unknown.
            if held.iter().any(|(_, holding)| holding.kind == RecordKind::Damaged) {
                self.unsettled.insert(partition);
            }
            return None;
        };
        let find = |node: NodeId| held.iter().find(|(other, _)| *other == node).map(|(_, holding)| *holding);
        let (mut holders, mut targets) = (Vec::new(), Vec::new());
        let is_droppable =
            held.iter().any(|(_, holding)| holding.version == newest.version && holding.kind == RecordKind::Droppable);
        for (rank, node) in self.layout.preference_list(partition).iter().enumerate() {
            if !self.is_present(*node) {
                continue;
            }
            match find(*node) {
                Some(holding) if holding.version == newest.version => holders.push(*node),
                Some(holding) if holding.version > newest.version => {}
                Some(_) => targets.push(*node),
                None if is_on(Mutant::RepairIgnoresFrom) => targets.push(*node),
                None if rank < usize::from(newest.from) && !is_droppable => targets.push(*node),
                None => {}
            }
        }
        let is_doubtful = self.is_whole() && !held.iter().any(|(node, _)| self.is_voting(*node));
        (!targets.is_empty()).then_some(CopyPlan { newest, holders, targets, is_doubtful })
    }

    /// Whether a target that answered this to the newest record need not be thought of again: it has that, or
    /// something newer.
    #[must_use]
    pub fn settles(newest: &Holding, answer: StoreAnswer) -> bool {
        match answer {
            StoreAnswer::Accepted => true,
            StoreAnswer::Stale(Current::Record(version)) | StoreAnswer::StaleUnknown(Current::Record(version)) => {
                version >= newest.version
            }
            // A GC watermark is as good as a deletion, and as a value that has ended before it; no other value.
            StoreAnswer::Stale(Current::GcWatermark(gc_watermark))
            | StoreAnswer::StaleUnknown(Current::GcWatermark(gc_watermark)) => {
                let is_gone = match newest.kind {
                    RecordKind::Value => false,
                    RecordKind::ValueUntil(expires_ms) => expires_ms <= gc_watermark.hlc.millis(),
                    RecordKind::Deletion | RecordKind::Droppable | RecordKind::Damaged => true,
                };
                is_gone && gc_watermark >= newest.version
            }
            StoreAnswer::Failed(_) => false,
        }
    }

    /// Something of the partition still differs, or may.
    pub fn unsettle(&mut self, partition: PartitionId) {
        self.unsettled.insert(partition);
    }

    /// Partitions of which something was left to differ.
    #[must_use]
    pub fn unsettled(&self) -> &PartitionSet {
        &self.unsettled
    }

    /// At the end: the partitions that are proven converged up to W.
    #[must_use]
    pub fn proven(&self) -> PartitionSet {
        if !self.is_whole() && !is_on(Mutant::ProvenWithoutAll) {
            return PartitionSet::default();
        }
        PartitionId::all().filter(|partition| !self.unsettled.contains(*partition)).collect()
    }

    /// At the end: the partitions in which a node that has no vote has got back whatever it may have acknowledged.
    /// They are proven, and for every stored `from` that counts the node in, a majority of the *others* among the first
    /// `from` votes: so every quorum that it once was in had a node among those that it was compared with. A node alone
    /// has none to get anything back from.
    #[must_use]
    pub fn restored(&self, node: NodeId) -> PartitionSet {
        let has_majorities = |partition: &PartitionId| {
            let list = self.layout.preference_list(*partition);
            let Some(rank) = list.iter().position(|other| *other == node) else { return false };
            let (mut others, mut voting) = (0_usize, 0_usize);
            let is_alone = list.len() == 1;
            !is_alone
                && list.iter().enumerate().all(|(place, other)| {
                    others += usize::from(*other != node);
                    voting += usize::from(*other != node && self.is_voting(*other));
                    place < rank || others == 0 || voting > others / 2
                })
        };
        self.proven().iter().filter(has_majorities).collect()
    }

    /// W.
    #[must_use]
    pub fn version(&self) -> Version {
        self.id.version()
    }

    /// The present nodes that share the trees of a class.
    fn members(&self, partition: PartitionId, class: u8) -> impl Iterator<Item = NodeId> {
        let list = self.layout.preference_list(partition);
        list.iter().take(usize::from(class)).copied().filter(|node| self.is_present(*node))
    }

    fn select(&mut self, partition: PartitionId, leaves: LeafSet) {
        if let Some(selected) = self.selected.get_mut(partition.index()) {
            selected.0 |= leaves.0;
        }
    }
}
