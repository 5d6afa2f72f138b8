//! Sets of partitions.

use serde::{Deserialize, Serialize};

use crate::key::{PARTITIONS, PartitionId};

const WORDS: usize = PARTITIONS / 64;

/// A set of partitions: one bit for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct PartitionSet(Box<[u64; WORDS]>);

impl Default for PartitionSet {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

impl PartitionSet {
    /// Every partition.
    #[must_use]
    pub fn all() -> Self {
        Self(Box::new([u64::MAX; WORDS]))
    }

    /// Adds a partition.
    pub fn insert(&mut self, partition: PartitionId) {
        *self.word(partition) |= 1 << (partition.index() % 64);
    }

    /// Takes a partition out.
    pub fn remove(&mut self, partition: PartitionId) {
        *self.word(partition) &= !(1 << (partition.index() % 64));
    }

    /// Whether it is a member.
    #[must_use]
    pub fn contains(&self, partition: PartitionId) -> bool {
        let word = self.0.get(partition.index() / 64).expect("a partition has its word");
        word >> (partition.index() % 64) & 1 == 1
    }

    /// How many members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| usize::try_from(word.count_ones()).expect("at most 64")).sum()
    }

    /// Whether it has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Its members, in their order.
    pub fn iter(&self) -> impl Iterator<Item = PartitionId> {
        PartitionId::all().filter(|partition| self.contains(*partition))
    }

    /// As numbers, for the wire and the disk.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &*self.0
    }

    /// The inverse of [`PartitionSet::words`]; nothing if these are not all words.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Option<Self> {
        words.try_into().ok().map(|words| Self(Box::new(words)))
    }

    fn word(&mut self, partition: PartitionId) -> &mut u64 {
        self.0.get_mut(partition.index() / 64).expect("a partition has its word")
    }
}

impl TryFrom<Vec<u64>> for PartitionSet {
    type Error = &'static str;

    fn try_from(words: Vec<u64>) -> Result<Self, &'static str> {
        Self::from_words(&words).ok_or("not one bit for each partition")
    }
}

impl From<PartitionSet> for Vec<u64> {
    fn from(set: PartitionSet) -> Self {
        set.words().to_vec()
    }
}

impl Extend<PartitionId> for PartitionSet {
    fn extend<I: IntoIterator<Item = PartitionId>>(&mut self, partitions: I) {
        partitions.into_iter().for_each(|partition| self.insert(partition));
    }
}

impl FromIterator<PartitionId> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = PartitionId>>(partitions: I) -> Self {
        let mut set = Self::default();
        partitions.into_iter().for_each(|partition| set.insert(partition));
        set
    }
}
