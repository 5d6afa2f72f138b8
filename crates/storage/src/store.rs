//! The trait that stores implement, and what goes through it.
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_core::backpressure::Backpressure;
use kvorum_core::key::Key;
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::quorum::Held;
use kvorum_core::version::Version;

use crate::error::StoreError;
use crate::gc_watermarks::GcWatermarks;
use crate::health::{HealthState, Stall};

/// How far a read may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Memory only: never blocks on the disk, may answer [`StoreError::NeedsDisk`].
    Cache,
    /// To the disk: blocks. Not for a shard.
    Disk,
}

/// How much one page of a scan may hold. It holds at least one record, whatever that one's size.
#[derive(Clone, Copy, Debug)]
pub struct PageLimit {
    /// Records at most.
    pub records: usize,
    /// Bytes of keys and records at which the page ends.
    pub bytes: usize,
}

/// A part of a scan, in the order of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Key bytes and record bytes, unchecked.
    pub records: Vec<(Bytes, Bytes)>,
    /// Whether the range may go on: continue at the last key followed by a zero byte.
    pub more: bool,
}

/// What is committed at once: later puts win over earlier ones of the same key.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    records: Vec<(Key, Bytes)>,
    metadata: Vec<(&'static str, Vec<u8>)>,
    bytes: usize,
}

impl Batch {
    /// Adds a record's encoded bytes.
    pub fn put(&mut self, key: Key, record: Bytes) {
        self.bytes += key.as_bytes().len() + record.len();
        self.records.push((key, record));
    }

    /// Adds a named value of the node's own.
    pub fn put_metadata(&mut self, name: &'static str, value: Vec<u8>) {
        self.bytes += name.len() + value.len();
        self.metadata.push((name, value));
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.metadata.clear();
        self.bytes = 0;
    }

    /// Whether there is nothing to commit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.metadata.is_empty()
    }

    /// Bytes of keys, records and metadata.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The records, in the order in which they were put.
    #[must_use]
    pub fn records(&self) -> &[(Key, Bytes)] {
        &self.records
    }

    /// The named values.
    #[must_use]
    pub fn metadata(&self) -> &[(&'static str, Vec<u8>)] {
        &self.metadata
    }
}

/// A change of the hints, which lie in a keyspace of their own, beside the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintChange {
    /// Keeps an encoded record under a name, unless a newer version of it is there.
    Keep(Bytes, Bytes),
    /// Puts other bytes under a name.
    Put(Bytes, Bytes),
    /// Drops a range of names.
    Drop(Range<Bytes>),
}

impl HintChange {
    /// What it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Keep(name, bytes) | Self::Put(name, bytes) => name.len() + bytes.len(),
            Self::Drop(range) => range.start.len() + range.end.len(),
        }
    }
}

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When `fdatasync` has returned: survives the machine.
    #[default]
    Fsync,
    /// When the operating system has the bytes: survives the process.
    Os,
}

/// One node's records. Reads from any thread, commits from one; changes of hints from any one.
pub trait Store: Send + Sync + 'static {
    /// The record's encoded bytes, unchecked.
    ///
    /// # Errors
    /// [`StoreError::NeedsDisk`] with [`Tier::Cache`] only; [`StoreError::Corrupt`]; [`StoreError::Io`].
    fn get(&self, key: &Key, tier: Tier) -> Result<Option<Bytes>, StoreError>;

    /// Whatever bytes can still be read of a record that [`Store::get`] calls corrupt, not checked: good for nothing
    /// but the version that they claim. Blocks on the disk.
    fn salvage(&self, key: &Key) -> Option<Bytes>;

    /// One page of the keys in `start..end`. It opens and closes its iterator, so no snapshot outlives the
    /// call. Blocks on the disk, and leaves the cache as it was.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::Io`].
    fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: PageLimit) -> Result<Page, StoreError>;

    /// The same of what can be read at all, damaged blocks included: good for nothing but the keys.
    ///
    /// # Errors
    /// As [`Store::scan`].
    fn scan_unchecked(&self, start: &[u8], limit: PageLimit) -> Result<Page, StoreError>;

    /// Drops what is kept of the record in memory in front of the engine: the next read asks that.
    fn forget(&self, key: &Key);

    /// Applies all of `batch` or nothing of it. Blocks.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] or [`StoreError::Poisoned`]. The batch may still be found after a restart.
    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError>;

    /// Applies all of `changes` to the hints, in their order, or nothing: without a sync of its own, so that it
    /// survives the process. Gives way to commits, of writes and of space. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Busy`] where writes are held back; [`StoreError::DiskFull`], which the store's health does not
    /// show if it was a lack of space for hints alone; [`StoreError::Poisoned`].
    fn change_hints(&self, changes: &[HintChange]) -> Result<(), StoreError>;

    /// One page of what is kept under the names in `start..end`; otherwise as [`Store::scan`].
    ///
    /// # Errors
    /// As [`Store::scan`].
    fn scan_hints(&self, start: &[u8], end: &[u8], limit: PageLimit) -> Result<Page, StoreError>;

    /// The named value of the node's own. Blocks on the disk.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::Io`].
    fn metadata(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Up to where each partition is proven converged: what compactions drop deletions by.
    fn gc_watermarks(&self) -> &Arc<GcWatermarks>;

    /// Rewrites everything, and drops what [`GcWatermarks::may_drop`] allows. Blocks, for as long as it takes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::DiskFull`], [`StoreError::Io`].
    fn compact(&self) -> Result<(), StoreError>;

    /// Grows with every commit, and shows after a restart how much of the log was recovered: at least as much as
    /// before, unless a commit was lost. Hints, which are not synced, do not count.
    fn sequence(&self) -> u64;

    /// Writes everything out, for a quick start after a clean stop. Blocks.
    ///
    /// # Errors
    /// As [`Store::commit`].
    fn flush(&self) -> Result<(), StoreError>;

    /// Whether it takes writes. Cheap: for every request.
    fn health(&self) -> HealthState;

    /// Looks at the debt to the disk, has background work keep up with it, and returns what to ask of coordinators.
    /// Takes a lock of the engine: for a few times a second.
    fn backpressure(&self) -> Backpressure {
        Backpressure::NONE
    }

    /// Figures for metrics. Takes a lock of the engine: for every scrape, not for every request.
    fn stats(&self) -> StoreStats;
}

/// The record, or the GC watermark of its partition. A GC watermark that rises between two looks is no answer about the
/// first: what the key lacked then may have come since.
///
/// # Errors
/// As [`Store::get`].
pub fn find(store: &(impl Store + ?Sized), key: &Key, tier: Tier) -> Result<Held<Bytes>, StoreError> {
    let gc_watermark = || match is_on(Mutant::AbsentWithoutGcWatermark) {
        true => Version::ZERO,
        false => store.gc_watermarks().get(key.hash().partition()),
    };
    let mut before = gc_watermark();
    loop {
        if let Some(bytes) = store.get(key, tier)? {
            return Ok(Held::Record(bytes));
        }
        let after = gc_watermark();
        if after == before {
            return Ok(Held::Absent { gc_watermark: after });
        }
        before = after;
    }
}

/// Figures of one store. What an implementation does not have is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes that compaction has yet to rewrite.
    pub compaction_pending_bytes: u64,
    /// Files not yet merged into the levels.
    pub level0_files: u64,
    /// Bytes in write buffers.
    pub memtable_bytes: u64,
    /// Write buffers that are full and not yet in a file.
    pub memtables_waiting: u64,
    /// Bytes that flushes have written.
    pub flushed_bytes: u64,
    /// Bytes that compactions have written.
    pub compacted_bytes: u64,
    /// Bytes that the engine was given to write: what the other two are measured by.
    pub written_bytes: u64,
    /// Bytes of live table files.
    pub table_bytes: u64,
    /// Records, by the engine's estimate.
    pub records: u64,
    /// Bytes that the cache may hold, write buffers included.
    pub cache_capacity_bytes: u64,
    /// Bytes that it holds.
    pub cache_used_bytes: u64,
    /// Bytes of whole records kept in front of it.
    pub record_cache_used_bytes: u64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks that were not; a read that then goes to the disk misses there again.
    pub cache_misses: u64,
    /// Blocks that came into the cache: fetched from files by reads, or of a new table. What compactions and scans
    /// fetch does not go there.
    pub block_reads: u64,
    /// Whether the engine holds writes back at this moment.
    pub stall: Stall,
    /// How often it began to.
    pub stalls: u64,
    /// Microseconds for which commits were held back.
    pub stall_micros: u64,
    /// Failures of the engine's background work.
    pub background_errors: u64,
    /// Of these, damaged files found by compaction.
    pub damaged_compactions: u64,
    /// Recoveries from a full disk.
    pub recoveries: u64,
    /// Reads that found damage.
    pub corrupt_reads: u64,
    /// Deletions and expired records that compactions have dropped.
    pub dropped: u64,
}
