//! Where a layout places the partitions: the preference lists.
//!
//! A [`Placement`] is made in integers alone, so that every node of a cluster computes the same table. Each
//! partition has a list of *all* nodes, of which any `from` takes a prefix. The first placement of a cluster
//! ([`Placement::new`]) is a pure function of its nodes (URL, weight, zone). Every later one
//! ([`Placement::succeed`]) is a pure function of the one before and the nodes, and moves only what it must.
//!
//! # The first placement
//!
//! The primaries are a *stable matching* of partitions with nodes of limited capacity:
//! - A node's liking for a partition is a weighted rendezvous score (Thaler and Ravishankar, "Using
//!   name-based mappings to increase hit rates", 1998; weights as in Schindelhauer and Schomaker,
//!   "Weighted distributed hash tables", 2005), which depends on these two alone. The scores
//!   of one node are not independent draws but one draw from each of [`PARTITIONS`] equal strata, in an
//!   order that its URL decides (Latin hypercube sampling), which halves the variance of loads.
//! - No node takes more than its share by a headroom of 5 to 10 % (Mirrokni, Thorup, Zadimoghaddam,
//!   "Consistent hashing with bounded loads", 2018). What a full node turns away goes to its next
//!   choice, by deferred acceptance (Gale and Shapley, "College admissions and the stability of
//!   marriage", 1962). Its result does not depend on the order of proposals, and so on no history.
//!
//! The further replicas follow by score: first one of each zone not yet in the list, then the rest.
//!
//! By construction no node is the primary of more than 1.05 times its share in clusters of up to 16
//! nodes, and 1.10 times in larger ones, whatever the URLs; nor does it become so by succession. A node
//! has at most 1.06 of its share in three copies up to 16 nodes, 1.12 up to 50 and 1.20 beyond.
//!
//! # What moves when a node comes or goes
//!
//! Over the ideal of 4096/n (n the larger number of nodes), with equal weights, mean and worst found
//! (`tests/placement.rs`):
//!
//! | | nodes | primaries | the first three as a set |
//! |---|---|---|---|
//! | successor of a successor, one more | to 100 | 0.99, 1.00 | 0.99, 1.00 |
//! | successor of a successor, one less | to 100 | 1.00, 1.05 | 1.00, 1.01 |
//! | successor of a first layout, one more | to 100 | 1.00, 1.00 | 0.99, 1.00 |
//! | successor of a first layout, one less | to 16 | 1.00, 1.05 | 1.00, 1.04 |
//! | | to 100 | 1.00, 1.10 | 0.98, 1.06 |
//! | two first layouts | to 14 | 1.02, 1.10 | 1.01, 1.05 |
//! | | to 24 | 1.04, 1.15 | 1.01, 1.07 |
//! | | to 50 | 1.07, 1.25 | 1.01, 1.10 |
//! | | to 100 | 1.30, 1.75 | 1.03, 1.15 |
//!
//! Two first layouts differ by more because a function of the nodes alone has no memory of what it gave to which: with
//! 41 partitions a node, independent choices stray by 15 % (11 % with strata), and holding a hundred nodes within 10 %
//! moves more than the ideal. A successor has it. It gives a node that comes exactly its share, and passes on exactly
//! what one that goes had, so its loads come out more even than those of a first layout: after chains of successors a
//! node is the primary of at most 1.06 of its share (1.02 while nodes come), and has at most 1.01 of it in three
//! copies. Deeper ranks follow the order of the old lists, and weights there only as far as the old lists did.

use std::collections::{BTreeSet, BinaryHeap};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::key::{PARTITIONS, PartitionId};
use crate::quorum::NODES_MAX;

mod succession;

/// A node by its place in its placement: [`Placement::nodes`] in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePlace(pub u8);

impl NodePlace {
    /// Its place.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A node to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedNode {
    /// What alone decides, with its weight and zone, what it is given.
    pub name: String,
    /// Its share of the partitions is `weight` over the sum of all weights; at least 1.
    pub weight: u16,
    /// What it may fail together with. A node without is a zone of its own.
    pub zone: Option<String>,
}

/// Why nodes make no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No nodes.
    #[error("a cluster has at least one node")]
    Empty,
    /// More than [`NODES_MAX`].
    #[error("a cluster has at most {NODES_MAX} nodes, not {0}")]
    TooMany(usize),
    /// Two nodes with one name.
    #[error("the node {0} is named twice")]
    Duplicate(String),
    /// A weight of 0.
    #[error("the node {0} has the weight 0: leave it out, or give it at least 1")]
    Weightless(String),
}

/// Nodes, and the preference list of every partition.
#[derive(Clone, Debug)]
pub struct Placement {
    nodes: Vec<PlacedNode>,
    /// The lists of all partitions, one after another.
    lists: Vec<NodePlace>,
}

impl Placement {
    /// The placement of these nodes, in whatever order they are given. Takes some tens of milliseconds for 100 nodes.
    ///
    /// # Errors
    /// [`PlacementError`] if there are none, too many, two with one name or one without weight.
    pub fn new(nodes: Vec<PlacedNode>) -> Result<Self, PlacementError> {
        let nodes = checked(nodes)?;
        let lists = preference_lists(&nodes);
        Ok(Self::with_lists(nodes, lists))
    }

    /// With lists that were made before: each with all nodes, by their places in the order of their names.
    pub(crate) fn with_lists(nodes: Vec<PlacedNode>, lists: Vec<NodePlace>) -> Self {
        assert_eq!(lists.len(), PARTITIONS * nodes.len(), "every list has every node");
        Self { nodes, lists }
    }

    /// Its nodes by [`NodePlace`], sorted by name.
    #[must_use]
    pub fn nodes(&self) -> &[PlacedNode] {
        &self.nodes
    }

    /// The node with this name.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<NodePlace> {
        let index = self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()?;
        u8::try_from(index).ok().map(NodePlace)
    }

    /// All nodes in the order in which they are replicas of the partition: the first is its primary.
    #[must_use]
    pub fn preference_list(&self, partition: PartitionId) -> &[NodePlace] {
        let begin = partition.index() * self.nodes.len();
        self.lists.get(begin..begin + self.nodes.len()).expect("every partition has a list")
    }
}

/// The nodes in the order of their names, if they make a placement.
fn checked(mut nodes: Vec<PlacedNode>) -> Result<Vec<PlacedNode>, PlacementError> {
    if nodes.is_empty() {
        return Err(PlacementError::Empty);
    }
    if nodes.len() > NODES_MAX {
        return Err(PlacementError::TooMany(nodes.len()));
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    for pair in nodes.windows(2) {
        if let [a, b] = pair
            && a.name == b.name
        {
            return Err(PlacementError::Duplicate(a.name.clone()));
        }
    }
    if let Some(node) = nodes.iter().find(|node| node.weight == 0) {
        return Err(PlacementError::Weightless(node.name.clone()));
    }
    Ok(nodes)
}

/// How well a node and a partition suit each other: less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacementCost(u64);

/// One node's costs by partition: exponentially distributed with the mean 1 / weight, so that the
/// chance of being the least is the weight's share.
fn costs(node: &PlacedNode, strata: &[u64]) -> Vec<PlacementCost> {
    let name = xxh3_64(node.name.as_bytes());
    let mut order: Vec<(u64, u16)> = (0..)
        .take(PARTITIONS)
        .map(|partition: u16| (xxh3_64_with_seed(&partition.to_be_bytes(), name), partition))
        .collect();
    order.sort_unstable();
    let mut costs = vec![PlacementCost(0); PARTITIONS];
    for (&(hash, partition), logarithm) in order.iter().zip(strata) {
        let cost = (logarithm << 16) / u64::from(node.weight);
        // Two nodes of one weight are in one stratum now and then: the low bits of the hash decide.
        *costs.get_mut(usize::from(partition)).expect("one of the partitions") =
            PlacementCost((cost << 20) | (hash & 0xf_ffff));
    }
    costs
}

/// The negative binary logarithms of the middles of [`PARTITIONS`] equal parts of 0..1, as multiples
/// of 2^-24. In integers, because the last bit of a float's logarithm differs between machines.
fn strata() -> Vec<u64> {
    let ends_at = 2 * u64::try_from(PARTITIONS).expect("a small number");
    (0..).map(|part| log2(ends_at) - log2(2 * part + 1)).take(PARTITIONS).collect()
}

/// The binary logarithm of 1 ≤ `number` < 2^31 as a multiple of 2^-24, by repeated squaring.
fn log2(number: u64) -> u64 {
    let whole = number.ilog2();
    let mut rest = number << (31 - whole);
    (0..24).fold(u64::from(whole), |digits, _| {
        rest = (rest * rest) >> 31;
        let digit = rest >> 32;
        rest >>= digit;
        (digits << 1) | digit
    })
}

/// Most partitions that a node may be the primary of, in thousandths of its share: the tighter, the
/// more moves when a node comes or goes. It rises in steps, because a leap would move much at once.
fn headroom_permille(nodes: usize) -> u64 {
    let nodes = u64::try_from(nodes).expect("a small number");
    1050 + 50 * (nodes.clamp(16, 24) - 16) / 8
}

/// So many thousandths of each node's share of all partitions, rounded down.
fn shares(nodes: &[PlacedNode], permille: u64) -> Vec<usize> {
    let sum: u64 = nodes.iter().map(|node| u64::from(node.weight)).sum();
    let all = permille * u64::try_from(PARTITIONS).expect("a small number");
    nodes
        .iter()
        .map(|node| usize::try_from(all * u64::from(node.weight) / sum / 1000).expect("a small number"))
        .collect()
}

fn capacities(nodes: &[PlacedNode]) -> Vec<usize> {
    // Rounding down loses less than one per node, which is less than the headroom: all find a place.
    shares(nodes, headroom_permille(nodes.len()))
}

/// The nodes from the best to the worst, for each partition.
fn by_cost(costs: &[Vec<PlacementCost>]) -> Vec<Vec<(PlacementCost, NodePlace)>> {
    let mut columns: Vec<_> = costs.iter().map(|costs| costs.iter()).collect();
    (0..PARTITIONS)
        .map(|_| {
            let mut row: Vec<_> = columns
                .iter_mut()
                .zip(0..)
                .map(|(column, node)| (*column.next().expect("a cost for every partition"), NodePlace(node)))
                .collect();
            row.sort_unstable();
            row
        })
        .collect()
}

/// Deferred acceptance: each partition asks one node after another, and a full node lets go of what
/// suits it least.
fn primaries(wishes: &[Vec<(PlacementCost, NodePlace)>], capacities: &[usize]) -> Vec<NodePlace> {
    let mut held: Vec<BinaryHeap<(PlacementCost, usize)>> = vec![BinaryHeap::new(); capacities.len()];
    let mut wishes: Vec<_> = wishes.iter().map(|row| row.iter()).collect();
    for first in 0..PARTITIONS {
        let mut asking = Some(first);
        while let Some(partition) = asking {
            let wish = wishes.get_mut(partition).and_then(Iterator::next);
            let &(cost, node) = wish.expect("the capacities add up to more than all partitions");
            let holds = held.get_mut(node.index()).expect("one of the nodes");
            holds.push((cost, partition));
            let full = holds.len() > *capacities.get(node.index()).expect("one of the nodes");
            asking = full.then(|| holds.pop().expect("it has just been given one").1);
        }
    }
    let mut primaries = vec![NodePlace(0); PARTITIONS];
    for (holds, node) in held.into_iter().zip(0..) {
        for (_, partition) in holds {
            *primaries.get_mut(partition).expect("one of the partitions") = NodePlace(node);
        }
    }
    primaries
}

/// The first node of each zone, and the others.
fn by_zone(nodes: &[PlacedNode], list: impl Iterator<Item = NodePlace>) -> (Vec<NodePlace>, Vec<NodePlace>) {
    let mut zones = BTreeSet::new();
    list.partition(|node| {
        let node = nodes.get(node.index()).expect("one of the nodes");
        node.zone.as_ref().is_none_or(|zone| zones.insert(zone))
    })
}

fn preference_lists(nodes: &[PlacedNode]) -> Vec<NodePlace> {
    let strata = strata();
    let costs: Vec<_> = nodes.iter().map(|node| costs(node, &strata)).collect();
    let wishes = by_cost(&costs);
    let primaries = primaries(&wishes, &capacities(nodes));
    let mut lists = Vec::with_capacity(PARTITIONS * nodes.len());
    for (wishes, primary) in wishes.iter().zip(primaries) {
        let others = wishes.iter().map(|&(_, node)| node).filter(|&node| node != primary);
        let (apart, together) = by_zone(nodes, std::iter::once(primary).chain(others));
        lists.extend(apart);
        lists.extend(together);
    }
    lists
}
