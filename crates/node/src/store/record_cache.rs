//! Whole records in memory, in front of the engine: a point read of the engine costs 4.5 µs even when all
//! its blocks are cached, more than all else that a replica does for a read; a hit here costs 0.2 µs.
//!
//! Promises that a hit is what the engine would have answered. Every stripe of keys has a count of
//! *changes*: odd while a commit that touches the stripe is being written, even otherwise. A record is
//! kept with the count that was read *before* the engine was asked, and is a hit only while the count
//! is still the same: so a commit makes all its keys misses before any of it becomes visible, and what
//! was read on either side of it is never taken for the present. (A sequence lock: Lameter, "Effective
//! synchronization on Linux/NUMA systems", 2005, with the cached record as the optimistic reader.)
//!
//! What a hit costs is mostly misses of the processor's caches: so an entry is one piece of memory, its key and record
//! behind each other, and a hit is a copy of it (decision 0057). By the key's hash: of two keys with the same, one is here.

use bytes::{Buf, Bytes};
use kvorum_core::key::{Key, KeyHash, STRIPES};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Larger records stay with the engine: copying them costs more than finding them.
const RECORD_BYTES_MAX: usize = 4096;
/// What an entry costs beside its bytes: its slot, its place in the table, and its part of what is remembered of others.
const ENTRY_BYTES: usize = 112;
/// Counts of changes: one for each stripe, but few where each costs a checker something.
const COUNTS: usize = if cfg!(feature = "interleavings") { 16 } else { STRIPES };
/// The size of entry that the number of slots is estimated by.
const ENTRY_BYTES_USUAL: usize = ENTRY_BYTES + 160;

#[derive(Clone)]
struct Entry {
    /// The key, and the record behind it.
    bytes: Box<[u8]>,
    key_len: usize,
    changes: u64,
}

impl Entry {
    /// The record, if it is the key's.
    fn into_record(self, key: &Key) -> Option<Bytes> {
        let Self { bytes, key_len, .. } = self;
        if bytes.get(..key_len) != Some(key.as_bytes()) {
            return None;
        }
        let mut record = Bytes::from(bytes);
        record.advance(key_len);
        Some(record)
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<u64, Entry> for ByBytes {
    fn weight(&self, _: &u64, entry: &Entry) -> u64 {
        // What jemalloc gives for it: its classes are a quarter of a power of two apart.
        let step = (entry.bytes.len().next_power_of_two() / 8).max(16);
        u64::try_from(entry.bytes.len().next_multiple_of(step) + ENTRY_BYTES).unwrap_or(u64::MAX)
    }
}

/// The cache of one store.
pub(crate) struct RecordCache {
    records: Cache<u64, Entry, ByBytes>,
    changes: Box<[AtomicU64]>,
}

/// What a lookup found.
pub(crate) enum Lookup {
    /// The record's encoded bytes.
    Hit(Bytes),
    /// Nothing; what the engine answers to a read that begins now may be kept with this.
    Miss(Moment),
}

/// A stripe's count of changes at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Moment(u64);

impl RecordCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let weight = u64::try_from(bytes_max).unwrap_or(u64::MAX);
        Self {
            records: Cache::with_weighter(bytes_max / ENTRY_BYTES_USUAL, weight, ByBytes),
            changes: (0..COUNTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn changes(&self, hash: KeyHash) -> &AtomicU64 {
        self.changes.get(hash.stripe() % COUNTS).expect("a remainder is below the divisor")
    }

    pub(crate) fn get(&self, key: &Key) -> Lookup {
        let hash = key.hash();
        let changes = self.changes(hash).load(Ordering::SeqCst);
        let entry = self.records.get(&hash.get()).filter(|entry| entry.changes == changes);
        entry.and_then(|entry| entry.into_record(key)).map_or(Lookup::Miss(Moment(changes)), Lookup::Hit)
    }

    /// Keeps what the engine answered to a read that began after `moment`.
    pub(crate) fn keep(&self, key: &Key, record: &Bytes, Moment(changes): Moment) {
        if record.len() > RECORD_BYTES_MAX || changes % 2 == 1 {
            return;
        }
        let bytes = [key.as_bytes(), record].concat().into_boxed_slice();
        self.records.insert(key.hash().get(), Entry { bytes, key_len: key.as_bytes().len(), changes });
    }

    /// A commit of these keys is about to be written. For the one thread that commits.
    pub(crate) fn begin_changes<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        self.step(keys, 0);
    }

    /// It has been written, or has failed.
    pub(crate) fn end_changes<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        self.step(keys, 1);
    }

    /// Steps each stripe once, however many of its keys there are: those that are at `parity` still.
    fn step<'a>(&self, keys: impl Iterator<Item = &'a Key>, parity: u64) {
        for key in keys {
            let changes = self.changes(key.hash());
            if changes.load(Ordering::Relaxed) % 2 == parity {
                changes.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Forgets the record.
    pub(crate) fn forget(&self, key: &Key) {
        self.records.remove(&key.hash().get());
    }

    /// Bytes held.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.records.weight()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(name: &'static str) -> Key {
        Key::new(Bytes::from_static(name.as_bytes())).unwrap()
    }

    fn miss(cache: &RecordCache, key: &Key) -> Moment {
        match cache.get(key) {
            Lookup::Miss(moment) => moment,
            Lookup::Hit(_) => panic!("a hit where a miss was due"),
        }
    }

    #[test]
    fn a_record_is_found_until_its_key_changes() {
        let (cache, a) = (RecordCache::new(1 << 20), key("a"));
        let moment = miss(&cache, &a);
        cache.keep(&a, &Bytes::from_static(b"1"), moment);
        assert!(matches!(cache.get(&a), Lookup::Hit(record) if record == "1"));
        cache.begin_changes([&a, &a].into_iter());
        miss(&cache, &a);
        cache.end_changes([&a, &a].into_iter());
        miss(&cache, &a);
    }

    #[test]
    fn what_was_read_during_or_before_a_change_is_not_kept_for_after() {
        let (cache, a) = (RecordCache::new(1 << 20), key("a"));
        let before = miss(&cache, &a);
        cache.begin_changes([&a].into_iter());
        let during = miss(&cache, &a);
        cache.keep(&a, &Bytes::from_static(b"old"), before);
        miss(&cache, &a);
        cache.keep(&a, &Bytes::from_static(b"old"), during);
        miss(&cache, &a);
        cache.end_changes([&a].into_iter());
        miss(&cache, &a);
        cache.keep(&a, &Bytes::from_static(b"old"), before);
        cache.keep(&a, &Bytes::from_static(b"old"), during);
        let after = miss(&cache, &a);
        cache.keep(&a, &Bytes::from_static(b"new"), after);
        assert!(matches!(cache.get(&a), Lookup::Hit(record) if record == "new"));
    }

    #[test]
    fn another_key_of_the_same_hash_is_no_hit() {
        let (cache, a, b) = (RecordCache::new(1 << 20), key("a"), key("ab"));
        let moment = miss(&cache, &a);
        cache.keep(&a, &Bytes::from_static(b"bc"), moment);
        let moment = miss(&cache, &b);
        // As if both had the one hash.
        let entry = cache.records.get(&a.hash().get()).unwrap();
        cache.records.insert(b.hash().get(), Entry { changes: moment.0, ..entry });
        miss(&cache, &b);
        cache.keep(&b, &Bytes::from_static(b"2"), moment);
        assert!(matches!(cache.get(&b), Lookup::Hit(record) if record == "2"));
    }

    #[test]
    fn the_bytes_held_stay_bounded() {
        let cache = RecordCache::new(64 << 10);
        let record = Bytes::from(vec![0; 1000]);
        for i in 0..10_000_u32 {
            let key = Key::new(Bytes::from(i.to_be_bytes().to_vec())).unwrap();
            let moment = miss(&cache, &key);
            cache.keep(&key, &record, moment);
        }
        assert!(cache.used_bytes() <= 64 << 10, "{}", cache.used_bytes());
    }
}
