//! Keys, their hash, and what the hash decides: partition and stripe.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Longest key, in bytes after decoding.
pub const KEY_BYTES_MAX: usize = 2048;
/// Partitions of the hash space; fixed when a cluster is created.
pub const PARTITIONS: usize = 4096;
/// Stripes of the replica's in-memory marks.
pub const STRIPES: usize = 1 << 16;

/// Client-chosen bytes that name one entity: 1 to [`KEY_BYTES_MAX`] of any value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Key(Bytes);

/// Why bytes are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No bytes at all.
    #[error("a key must not be empty")]
    Empty,
    /// More than [`KEY_BYTES_MAX`].
    #[error("a key has at most {KEY_BYTES_MAX} bytes")]
    TooLong,
}

impl TryFrom<Vec<u8>> for Key {
    type Error = KeyError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, KeyError> {
        Self::new(bytes.into())
    }
}

impl From<Key> for Vec<u8> {
    fn from(key: Key) -> Self {
        key.0.into()
    }
}

impl Key {
    /// Checks the length and takes the bytes without copying them.
    ///
    /// # Errors
    /// [`KeyError`] if the length is out of bounds.
    pub fn new(bytes: Bytes) -> Result<Self, KeyError> {
        match bytes.len() {
            0 => Err(KeyError::Empty),
            length if length > KEY_BYTES_MAX => Err(KeyError::TooLong),
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes as the client gave them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// XXH3-64 of the bytes: the one hash that placement and stripes use.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        KeyHash(xxh3_64(&self.0))
    }
}

/// The least bytes behind this key: where a range goes on that has passed it. They are a bound and not always a key,
/// because the longest key has longer ones behind it.
#[must_use]
pub fn least_behind(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// XXH3-64 of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(u64);

impl KeyHash {
    /// The hash as a number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The partition: the top 12 bits.
    #[must_use]
    pub fn partition(self) -> PartitionId {
        PartitionId(u16::try_from(self.0 >> 52).expect("12 bits fit in 16"))
    }

    /// The stripe, below [`STRIPES`]: the low 16 bits, independent of the partition's.
    #[must_use]
    pub fn stripe(self) -> usize {
        usize::try_from(self.0 & 0xffff).expect("16 bits fit")
    }
}

/// One of [`PARTITIONS`]: the unit of placement, comparison and movement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct PartitionId(u16);

impl TryFrom<u16> for PartitionId {
    type Error = &'static str;

    fn try_from(number: u16) -> Result<Self, &'static str> {
        Self::new(number).ok_or("no such partition")
    }
}

impl From<PartitionId> for u16 {
    fn from(partition: PartitionId) -> Self {
        partition.0
    }
}

impl PartitionId {
    /// The partition with this number, if there is one.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        (usize::from(number) < PARTITIONS).then_some(Self(number))
    }

    /// Every partition, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u16::MAX).map_while(Self::new)
    }

    /// Its number, below [`PARTITIONS`].
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
