//! The keys under which hints lie in the store:
//!
//! ```text
//! target u64 | bucket u64 | 0                the size of the bucket: hints u64 | bytes u64
//! target u64 | bucket u64 | 1 | entity key   a hint: the record's bytes
//! ```
//!
//! Big-endian, so that a bucket is a range and the buckets of a target lie in their order. `target` is the number that
//! layouts give the node. Data directories of a format below 4 have the hash of its URL.

use std::ops::Range;

use bytes::Bytes;
use kvorum_core::Key;
use kvorum_core::hints::{BucketId, Size};
use kvorum_core::node::NodeId;

const SIZE: u8 = 0;
const HINT: u8 = 1;
pub(super) const HEAD: usize = 17;

/// A node, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TargetId(u64);

impl TargetId {
    /// The last that there can be.
    #[cfg(test)]
    pub(super) const LAST: Self = Self(u64::MAX);

    pub(super) fn of(node: NodeId) -> Self {
        Self(node.0.into())
    }

    /// In data directories of a format below 4.
    pub(super) fn of_url(url: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(url.as_bytes()))
    }

    /// The range of everything that is kept for it, if it is not the last that there can be.
    pub(super) fn range(self) -> Range<Bytes> {
        let end = self.0.checked_add(1).map_or_else(|| vec![0xff; HEAD + 1], |next| next.to_be_bytes().to_vec());
        Bytes::copy_from_slice(&self.0.to_be_bytes())..end.into()
    }
}

/// What a key of the family names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Size(TargetId, BucketId),
    Hint(TargetId, BucketId, Key),
}

fn head(target: TargetId, bucket: BucketId, kind: u8) -> [u8; HEAD] {
    let mut head = [kind; HEAD];
    for (to, from) in head.iter_mut().zip(target.0.to_be_bytes().into_iter().chain(bucket.0.to_be_bytes())) {
        *to = from;
    }
    head
}

/// Where the size of a bucket lies.
pub(super) fn size(target: TargetId, bucket: BucketId) -> Bytes {
    Bytes::copy_from_slice(&head(target, bucket, SIZE))
}

/// Where a hint lies.
pub(super) fn hint(target: TargetId, bucket: BucketId, key: &Key) -> Bytes {
    [&head(target, bucket, HINT), key.as_bytes()].concat().into()
}

/// The range of a bucket's hints.
pub(super) fn hints(target: TargetId, bucket: BucketId) -> Range<Bytes> {
    Bytes::copy_from_slice(&head(target, bucket, HINT))..Bytes::copy_from_slice(&head(target, bucket, HINT + 1))
}

/// The range of a whole bucket.
pub(super) fn bucket(target: TargetId, bucket: BucketId) -> Range<Bytes> {
    size(target, bucket)..hints(target, bucket).end
}

/// What a key names; nothing if it is none of ours.
pub(super) fn parse(name: &Bytes) -> Option<Name> {
    let (target, rest) = name.split_first_chunk::<8>()?;
    let (bucket, rest) = rest.split_first_chunk::<8>()?;
    let (kind, rest) = rest.split_first()?;
    let (target, bucket) = (TargetId(u64::from_be_bytes(*target)), BucketId(u64::from_be_bytes(*bucket)));
    match *kind {
        SIZE if rest.is_empty() => Some(Name::Size(target, bucket)),
        HINT => Some(Name::Hint(target, bucket, Key::new(name.slice_ref(rest)).ok()?)),
        _ => None,
    }
}

/// A size as it is stored.
pub(super) fn encode_size(size: Size) -> Bytes {
    [size.hints.to_be_bytes(), size.bytes.to_be_bytes()].concat().into()
}

/// The inverse; nothing if these bytes are none.
pub(super) fn decode_size(bytes: &[u8]) -> Option<Size> {
    let (hints, rest) = bytes.split_first_chunk::<8>()?;
    let bytes = rest.first_chunk::<8>().filter(|_| rest.len() == 8)?;
    Some(Size { hints: u64::from_be_bytes(*hints), bytes: u64::from_be_bytes(*bytes) })
}
