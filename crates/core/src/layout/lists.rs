//! The preference lists of a layout, and what they may become in one step.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::{PARTITIONS, PartitionId};
use crate::node::NodeId;

/// For each partition all nodes, in the order in which they are its replicas.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Vec<NodeId>>", into = "Vec<Vec<NodeId>>")]
pub struct PreferenceLists {
    nodes: usize,
    /// The lists of all partitions, one after another.
    lists: Vec<NodeId>,
}

impl TryFrom<Vec<Vec<NodeId>>> for PreferenceLists {
    type Error = &'static str;

    /// One list for each partition, each with the same nodes, none twice.
    fn try_from(lists: Vec<Vec<NodeId>>) -> Result<Self, Self::Error> {
        let nodes = lists.first().map(|list| sorted(list)).unwrap_or_default();
        let is_whole = nodes.windows(2).all(|pair| pair.first() < pair.get(1));
        let are_same = lists.len() == PARTITIONS && lists.iter().all(|list| sorted(list) == nodes);
        if nodes.is_empty() || !is_whole || !are_same {
            return Err("its lists are not whole");
        }
        Ok(Self { nodes: nodes.len(), lists: lists.into_iter().flatten().collect() })
    }
}

impl From<PreferenceLists> for Vec<Vec<NodeId>> {
    fn from(lists: PreferenceLists) -> Self {
        lists.iter().map(<[NodeId]>::to_vec).collect()
    }
}

impl fmt::Debug for PreferenceLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All of it would be a line of 100 KB.
        write!(f, "lists of {:?}", self.nodes())
    }
}

impl PreferenceLists {
    /// One partition's.
    #[must_use]
    pub fn of(&self, partition: PartitionId) -> &[NodeId] {
        let begin = partition.index() * self.nodes;
        self.lists.get(begin..begin + self.nodes).expect("every partition has a list")
    }

    /// By partition.
    pub fn iter(&self) -> impl Iterator<Item = &[NodeId]> {
        self.lists.chunks(self.nodes)
    }

    /// The nodes that each list has.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.lists.iter().take(self.nodes).copied().collect()
    }

    /// Where keys belong after one step from here towards `target`. Nodes that are here alone come last, until the target
    /// is reached.
    #[must_use]
    pub(super) fn step_towards(&self, target: &Self, copies: u8) -> Self {
        let leaving: Vec<_> = self.nodes().difference(&target.nodes()).copied().collect();
        let steps = self.iter().zip(target.iter()).map(|(now, target)| list_towards(now, target, usize::from(copies)));
        let lists: Vec<_> = steps.collect();
        if lists.iter().zip(target.iter()).all(|(list, target)| list == target) {
            return target.clone();
        }
        let whole = |mut list: Vec<NodeId>| {
            let missing: Vec<_> = leaving.iter().filter(|node| !list.contains(node)).copied().collect();
            list.extend(missing);
            list
        };
        let lists: Vec<_> = lists.into_iter().map(whole).collect();
        Self::try_from(lists).expect("each has the nodes of the target, and those that leave")
    }
}

fn sorted(list: &[NodeId]) -> Vec<NodeId> {
    let mut nodes = list.to_vec();
    nodes.sort_unstable();
    nodes
}

/// Most replicas that a set of so many may lose in one step: a minority, or one where there is none.
#[must_use]
pub fn lost_in_a_step(copies: usize) -> usize {
    (copies.saturating_sub(1) / 2).max(1)
}

/// The list itself if its set loses no more than it may. Else as many of the old set are replaced, in their places.
fn list_towards(now: &[NodeId], target: &[NodeId], copies: usize) -> Vec<NodeId> {
    let set = |list: &[NodeId]| list.iter().take(copies).copied().collect::<Vec<_>>();
    let (mut replicas, wanted) = (set(now), set(target));
    let lost: Vec<_> = replicas.iter().filter(|node| !wanted.contains(node)).copied().collect();
    let gained: Vec<_> = wanted.iter().filter(|node| !replicas.contains(node)).copied().collect();
    let most = lost_in_a_step(replicas.len());
    if lost.len() <= most {
        return target.to_vec();
    }
    for (old, new) in lost.iter().zip(&gained).take(most) {
        let place = replicas.iter_mut().find(|node| *node == old).expect("one of the set");
        *place = *new;
    }
    let rest: Vec<_> = target.iter().filter(|node| !replicas.contains(node)).copied().collect();
    replicas.extend(rest);
    replicas
}
