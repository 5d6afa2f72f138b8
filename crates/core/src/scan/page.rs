//! Pages of a scan, and the questions for them, as bytes.
//!
//! ```text
//! question: flags u8 | bytes_max u32 | start u16 + key | end u16 + key | [work u32 + bytes] | provides 512 B
//!           | witnesses 512 B
//! page:     flags u8 | gc_watermark 12 B | frontier u16 + key | entry ×
//! entry:    key u16 + key | kind u8 | record u32 + bytes
//!                                   | version 12 B, from u8, expires_ms u64 | [derived u32 + bytes]
//! ```
//!
//! Big-endian. An entry of a provider has the record, or what the question's work has derived of it, or neither where no
//! values are wanted; a deletion, and what a witness holds, are versions alone. All keys ascend, and none between a
//! page's begin and its frontier is left out.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::key::{Key, PARTITIONS};
use crate::partitions::PartitionSet;
use crate::scan::plan::NodePart;
use crate::version::Version;

/// Bytes of keys and records that a node looks at for one page, more only where a single record is longer.
pub const PAGE_BYTES_MAX: usize = 256 * 1024;

/// What the longest page adds to the record that it ends with.
pub const PAGE_OVERHEAD_MAX: usize = 3 * PAGE_BYTES_MAX;

/// The longest description of work.
pub const WORK_BYTES_MAX: usize = 68 * 1024;

/// What may be derived of one record.
pub const DERIVED_BYTES_MAX: usize = 64 * 1024;

const KEYS_ONLY: u8 = 1;
const HAS_END: u8 = 1 << 1;
const HAS_WORK: u8 = 1 << 2;
/// Of a page: the range goes on behind it.
const MORE: u8 = 1;

/// The kinds of entries.
mod kind {
    pub(super) const RECORD: u8 = 0;
    pub(super) const VALUE: u8 = 1;
    pub(super) const DELETION: u8 = 2;
    pub(super) const DAMAGED: u8 = 3;
    pub(super) const DERIVED: u8 = 4;
}

/// Bytes that are no question or no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no page of a scan, and no question for one")]
pub struct NotAPage;

/// What is wanted of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanValues {
    /// Providers give whole records.
    Wanted,
    /// Versions will do.
    LeftOut,
    /// What this work derives of them, at most [`DERIVED_BYTES_MAX`] of each record. What work is, is its user's.
    Derived(Bytes),
}

/// What a node is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuestion {
    /// The first key; empty for the first of all.
    pub start: Bytes,
    /// The first key that is left out.
    pub end: Option<Bytes>,
    /// Whether values are wanted.
    pub values: ScanValues,
    /// About how many bytes of keys and records to look at.
    pub bytes_max: usize,
    /// Of which partitions.
    pub part: NodePart,
}

/// What a node holds for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanHolding {
    /// A record, with its bytes, unchecked.
    Record(Bytes),
    /// A value of this version.
    Value {
        /// Which.
        version: Version,
        /// How many replicas shall hold it.
        from: u8,
        /// When it ends, in milliseconds since 1970.
        expires_ms: Option<u64>,
    },
    /// The same, of which work has derived something.
    Derived {
        /// Which.
        version: Version,
        /// How many replicas shall hold it.
        from: u8,
        /// When it ends, in milliseconds since 1970.
        expires_ms: Option<u64>,
        /// What was derived.
        derived: Bytes,
    },
    /// A deletion of this version.
    Deletion {
        /// Which.
        version: Version,
        /// How many replicas shall hold it.
        from: u8,
    },
    /// Something that is damaged.
    Damaged,
}

/// A key of a page, and what is held for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanEntry {
    /// The key.
    pub key: Key,
    /// What the node holds.
    pub holding: ScanHolding,
}

/// One page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// The keys that the node holds of what it was asked for, ascending.
    pub entries: Vec<ScanEntry>,
    /// A deletion of what the node does not hold, in whatever partition it was asked for: the lowest of its watermarks.
    pub gc_watermark: Version,
    /// The last key that was looked at; nothing where the page is the last: it has looked at all to the range's end.
    pub frontier: Option<Key>,
}

impl PageQuestion {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(16 + 2 * PARTITIONS / 8 + self.start.len());
        let values = match self.values {
            ScanValues::Wanted => 0,
            ScanValues::LeftOut => KEYS_ONLY,
            ScanValues::Derived(_) => HAS_WORK,
        };
        out.put_u8(values | if self.end.is_some() { HAS_END } else { 0 });
        out.put_u32(u32::try_from(self.bytes_max).unwrap_or(u32::MAX));
        put_key(&mut out, &self.start);
        put_key(&mut out, self.end.as_deref().unwrap_or_default());
        if let ScanValues::Derived(work) = &self.values {
            put_bytes(&mut out, work);
        }
        for partitions in [&self.part.provides, &self.part.witnesses] {
            partitions.words().iter().for_each(|word| out.put_u64(*word));
        }
        out.freeze()
    }

    /// The question in bytes.
    ///
    /// # Errors
    /// [`NotAPage`].
    pub fn decode(mut bytes: Bytes) -> Result<Self, NotAPage> {
        let flags = bytes.try_get_u8().map_err(|_| NotAPage)?;
        if flags & !(KEYS_ONLY | HAS_END | HAS_WORK) != 0 {
            return Err(NotAPage);
        }
        let bytes_max = usize::try_from(bytes.try_get_u32().map_err(|_| NotAPage)?).map_err(|_| NotAPage)?;
        let (start, end) = (take_key(&mut bytes)?, take_key(&mut bytes)?);
        if (flags & HAS_END == 0) != end.is_empty() {
            return Err(NotAPage);
        }
        let values = match flags & (KEYS_ONLY | HAS_WORK) {
            0 => ScanValues::Wanted,
            KEYS_ONLY => ScanValues::LeftOut,
            HAS_WORK => ScanValues::Derived(take_bytes(&mut bytes)?),
            _ => return Err(NotAPage),
        };
        let part = NodePart { provides: take_partitions(&mut bytes)?, witnesses: take_partitions(&mut bytes)? };
        if !bytes.is_empty() {
            return Err(NotAPage);
        }
        Ok(Self { start, end: Some(end).filter(|end| !end.is_empty()), values, bytes_max, part })
    }
}

impl ScanPage {
    /// Bytes of its keys, and of its records or what was derived of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let holding = |holding: &ScanHolding| match holding {
            ScanHolding::Record(bytes) | ScanHolding::Derived { derived: bytes, .. } => bytes.len(),
            ScanHolding::Value { .. } | ScanHolding::Deletion { .. } | ScanHolding::Damaged => 0,
        };
        self.entries.iter().map(|entry| entry.key.as_bytes().len() + holding(&entry.holding)).sum()
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64 + self.bytes() + self.entries.len() * 40);
        out.put_u8(if self.frontier.is_some() { MORE } else { 0 });
        out.put_slice(&self.gc_watermark.encode());
        put_key(&mut out, self.frontier.as_ref().map_or(&[], Key::as_bytes));
        for ScanEntry { key, holding } in &self.entries {
            put_key(&mut out, key.as_bytes());
            match holding {
                ScanHolding::Record(record) => {
                    out.put_u8(kind::RECORD);
                    put_bytes(&mut out, record);
                }
                ScanHolding::Value { version, from, expires_ms } => {
                    put_version(&mut out, kind::VALUE, *version, *from, *expires_ms);
                }
                ScanHolding::Derived { version, from, expires_ms, derived } => {
                    put_version(&mut out, kind::DERIVED, *version, *from, *expires_ms);
                    put_bytes(&mut out, derived);
                }
                ScanHolding::Deletion { version, from } => put_version(&mut out, kind::DELETION, *version, *from, None),
                ScanHolding::Damaged => out.put_u8(kind::DAMAGED),
            }
        }
        out.freeze()
    }

    /// The page in bytes, which its records share.
    ///
    /// # Errors
    /// [`NotAPage`]: also where keys do not ascend, or lie behind the frontier.
    pub fn decode(mut bytes: Bytes) -> Result<Self, NotAPage> {
        let flags = bytes.try_get_u8().map_err(|_| NotAPage)?;
        if flags & !MORE != 0 || bytes.len() < Version::BYTES {
            return Err(NotAPage);
        }
        let gc_watermark = take_version(&mut bytes)?;
        let frontier = take_key(&mut bytes)?;
        let frontier = if flags & MORE == 0 {
            if !frontier.is_empty() {
                return Err(NotAPage);
            }
            None
        } else {
            Some(Key::new(frontier).map_err(|_| NotAPage)?)
        };
        let mut entries: Vec<ScanEntry> = Vec::new();
        while bytes.has_remaining() {
            let key = Key::new(take_key(&mut bytes)?).map_err(|_| NotAPage)?;
            let is_behind = entries.last().is_none_or(|last| last.key < key);
            if !is_behind || frontier.as_ref().is_some_and(|frontier| key > *frontier) {
                return Err(NotAPage);
            }
            entries.push(ScanEntry { key, holding: take_holding(&mut bytes)? });
        }
        Ok(Self { entries, gc_watermark, frontier })
    }
}

fn put_key(out: &mut BytesMut, key: &[u8]) {
    out.put_u16(u16::try_from(key.len()).expect("a key's length fits"));
    out.put_slice(key);
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).expect("a record is at most some hundred MiB"));
    out.put_slice(bytes);
}

fn put_version(out: &mut BytesMut, kind: u8, version: Version, from: u8, expires_ms: Option<u64>) {
    out.put_u8(kind);
    out.put_slice(&version.encode());
    out.put_u8(from);
    out.put_u64(expires_ms.unwrap_or(0));
}

fn take_bytes(bytes: &mut Bytes) -> Result<Bytes, NotAPage> {
    let length = usize::try_from(bytes.try_get_u32().map_err(|_| NotAPage)?).map_err(|_| NotAPage)?;
    take(bytes, length)
}

fn take_key(bytes: &mut Bytes) -> Result<Bytes, NotAPage> {
    let length = usize::from(bytes.try_get_u16().map_err(|_| NotAPage)?);
    take(bytes, length)
}

fn take(bytes: &mut Bytes, length: usize) -> Result<Bytes, NotAPage> {
    if length <= bytes.len() { Ok(bytes.split_to(length)) } else { Err(NotAPage) }
}

fn take_version(bytes: &mut Bytes) -> Result<Version, NotAPage> {
    let version = take(bytes, Version::BYTES)?;
    let version: [u8; Version::BYTES] = (*version).try_into().map_err(|_| NotAPage)?;
    Ok(Version::decode(version))
}

fn take_partitions(bytes: &mut Bytes) -> Result<PartitionSet, NotAPage> {
    let mut words = take(bytes, PARTITIONS / 8)?;
    let words: Vec<u64> = (0..PARTITIONS / 64).map(|_| words.get_u64()).collect();
    PartitionSet::from_words(&words).ok_or(NotAPage)
}

fn take_holding(bytes: &mut Bytes) -> Result<ScanHolding, NotAPage> {
    match bytes.try_get_u8().map_err(|_| NotAPage)? {
        kind::RECORD => take_bytes(bytes).map(ScanHolding::Record),
        kind::DAMAGED => Ok(ScanHolding::Damaged),
        kind @ (kind::VALUE | kind::DERIVED | kind::DELETION) => {
            let version = take_version(bytes)?;
            let from = bytes.try_get_u8().ok().filter(|from| *from > 0).ok_or(NotAPage)?;
            let expires_ms = Some(bytes.try_get_u64().map_err(|_| NotAPage)?).filter(|expires_ms| *expires_ms > 0);
            match (kind, expires_ms) {
                (kind::VALUE, _) => Ok(ScanHolding::Value { version, from, expires_ms }),
                (kind::DERIVED, _) => {
                    let derived = take_bytes(bytes)?;
                    Ok(ScanHolding::Derived { version, from, expires_ms, derived })
                }
                (_, None) => Ok(ScanHolding::Deletion { version, from }),
                (_, Some(_)) => Err(NotAPage),
            }
        }
        _ => Err(NotAPage),
    }
}
