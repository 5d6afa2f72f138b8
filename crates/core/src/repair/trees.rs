//! Sums over what a node holds, by partition, by stored `from` and by leaf, in which replicas find what they
//! do not share.
//!
//! A record that asks for `f` replicas is in the tree of its partition's *class* f, which the first f nodes of the
//! preference list share. A node further down the list that holds it all the same (it held something older once,
//! or an older layout) has an *extra*, which no tree of others has: its leaf is marked and always listed. So is a
//! leaf for which there was no room for a tree.
//!
//! Invariant: two nodes with the same sums hold the same keys and versions in that leaf, but for hash collisions
//! (sums of 64 bits: one in 10^19 per leaf and round).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::key::{KeyHash, PARTITIONS, PartitionId};
use crate::quorum::Rank;
use crate::version::Version;

/// Leaves of a tree: one for each value of the six bits of the hash below the partition's.
pub const LEAVES: usize = 64;
/// Bytes of one tree.
pub const TREE_BYTES: usize = LEAVES * 8;
/// Classes that get trees of their own.
pub const CLASSES_MAX: usize = 8;

/// The sums of one tree.
pub type Leaves = [u64; LEAVES];

/// A set of leaves of one partition: one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafSet(pub u64);

impl LeafSet {
    /// All of them.
    pub const ALL: Self = Self(u64::MAX);

    /// Whether the key with this hash lies in one of them.
    #[must_use]
    pub fn contains(self, hash: KeyHash) -> bool {
        self.0 >> leaf(hash) & 1 == 1
    }
}

fn leaf(hash: KeyHash) -> usize {
    usize::try_from(hash.get() >> 46 & 0x3f).expect("six bits")
}

/// What a node has summed up.
#[derive(Debug)]
pub struct Trees {
    /// By class and partition.
    classes: BTreeMap<u8, Box<[Option<Box<Leaves>>]>>,
    trees: usize,
    trees_max: usize,
    marked: Box<[LeafSet]>,
}

impl Trees {
    /// Nothing yet, and room for at most `bytes_max` of trees.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let marked = vec![LeafSet::default(); PARTITIONS].into_boxed_slice();
        Self { classes: BTreeMap::new(), trees: 0, trees_max: bytes_max / TREE_BYTES, marked }
    }

    /// Adds a record that this node, of place `rank` in the preference list, holds.
    pub fn add(&mut self, hash: KeyHash, version: Version, from: u8, rank: Rank) {
        let partition = hash.partition();
        let sums = if rank.0 < from { self.tree(partition, from) } else { None };
        if let Some(sum) = sums.and_then(|sums| sums.get_mut(leaf(hash))) {
            *sum = sum.wrapping_add(digest(hash, version));
        } else {
            self.mark(hash);
        }
    }

    /// Has the leaf of a key listed, whatever its sums: what is there cannot be summed up.
    pub fn mark(&mut self, hash: KeyHash) {
        if let Some(marked) = self.marked.get_mut(hash.partition().index()) {
            marked.0 |= 1 << leaf(hash);
        }
    }

    /// The tree of a class, made if there is room.
    fn tree(&mut self, partition: PartitionId, class: u8) -> Option<&mut Leaves> {
        let has_room = self.trees < self.trees_max;
        if !self.classes.contains_key(&class) {
            if !has_room || self.classes.len() >= CLASSES_MAX {
                return None;
            }
            self.classes.insert(class, vec![None; PARTITIONS].into_boxed_slice());
        }
        let tree = self.classes.get_mut(&class)?.get_mut(partition.index())?;
        if tree.is_none() && has_room {
            *tree = Some(Box::new([0; LEAVES]));
            self.trees += 1;
        }
        tree.as_deref_mut()
    }

    /// One sum for each partition over the tree of the class, zero where there is none.
    #[must_use]
    pub fn roots(&self, class: u8) -> Vec<u64> {
        let root = |partition| self.leaves_of(class, partition).map_or(0, root);
        PartitionId::all().map(root).collect()
    }

    /// The classes that have a tree, in their order.
    pub fn classes(&self) -> impl Iterator<Item = u8> {
        self.classes.keys().copied()
    }

    /// The trees of a partition by their classes.
    pub fn leaves(&self, partition: PartitionId) -> impl Iterator<Item = (u8, &Leaves)> {
        self.classes().filter_map(move |class| Some((class, self.leaves_of(class, partition)?)))
    }

    fn leaves_of(&self, class: u8, partition: PartitionId) -> Option<&Leaves> {
        self.classes.get(&class)?.get(partition.index())?.as_deref()
    }

    /// The leaves to be listed whatever the others have.
    pub fn marked(&self) -> impl Iterator<Item = (PartitionId, LeafSet)> {
        PartitionId::all().zip(self.marked.iter().copied()).filter(|(_, marked)| marked.0 != 0)
    }

    /// Bytes of the trees.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.trees * TREE_BYTES
    }
}

fn digest(hash: KeyHash, version: Version) -> u64 {
    let mut bytes = [0; 8 + Version::BYTES];
    let (key, rest) = bytes.split_at_mut(8);
    key.copy_from_slice(&hash.get().to_be_bytes());
    rest.copy_from_slice(&version.encode());
    xxh3_64(&bytes)
}

fn root(leaves: &Leaves) -> u64 {
    let bytes: Vec<u8> = leaves.iter().flat_map(|sum| sum.to_be_bytes()).collect();
    xxh3_64(&bytes)
}
