//! Whole records in memory, in front of the engine: a point read of the engine costs 4.5 µs even when all
//! its blocks are cached, more than all else that a replica does for a read.
//!
//! Promises that a hit is what the engine would have answered. A commit makes what is kept of its keys worthless before
//! any of it becomes visible, so whatever is found is the present. And each set counts its *changes*: odd while a
//! commit that touches it is being written, even otherwise. What the engine answered is kept only if the count is even
//! and what it was *before* the engine was asked: so what was read on either side of a commit is never taken for the
//! present. (A sequence lock: Lameter, "Effective synchronization on Linux/NUMA systems", 2005, with the cache as the
//! optimistic reader.)
//!
//! What a hit costs is mostly misses of the processor's caches that wait for each other, so there are two (decision
//! 0059): the sets are a table, of one cache line each, found by the key's hash; an entry is one allocation, with the
//! key and the record behind each other, and a hit is a copy of the record. A full set gives up what is worth least,
//! the oldest of several, and what is over the bytes allowed goes by the clock (Corbató, "A Paging Experiment with the
//! Multics System", 1968), with counts of uses for its bits.

use std::sync::PoisonError;

use bytes::Bytes;
use kvorum_base::sync::atomic::{AtomicUsize, Ordering};
use kvorum_base::sync::{Mutex, MutexGuard};
use kvorum_core::key::{Key, KeyHash};
use triomphe::ThinArc;

/// Larger records stay with the engine: copying them costs more than finding them.
const RECORD_BYTES_MAX: usize = 4096;
/// Entries of one set at most.
const WAYS: usize = 5;
/// Entries of a set, on average, that the number of sets is chosen for: then one key of ninety finds no room.
const WAYS_USUAL: usize = 2;
/// The size of entry that the number of sets is chosen for: a little more than a key of 16 bytes with a value of 100.
const ENTRY_BYTES_USUAL: usize = 192;
/// What is used more often is not worth more.
const WORTH_MAX: u8 = 4;
/// Sets at which the clock's hand finds too little to take before it takes what is worth one more.
const PATIENCE: usize = 64;

/// The key's length, the key, and its record, in one piece of memory. Its handle is one pointer, not shared.
#[derive(Default)]
struct CacheEntry(Option<ThinArc<(), u8>>);

impl CacheEntry {
    fn new(key: &Key, record: &[u8]) -> Self {
        let key = key.as_bytes();
        let length = u16::try_from(key.len()).expect("a key is no longer than KEY_BYTES_MAX");
        Self(Some(ThinArc::from_header_and_slice((), &[&length.to_be_bytes(), key, record].concat())))
    }

    /// The record, if it is the key's.
    fn record(&self, key: &Key) -> Option<&[u8]> {
        let (length, rest) = self.0.as_ref()?.slice.split_first_chunk::<2>()?;
        let (of, record) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        (of == key.as_bytes()).then_some(record)
    }

    /// What jemalloc gives for it, with the count of its users and its length: its classes are a quarter of a power of
    /// two apart.
    fn cost(&self) -> usize {
        let Some(piece) = &self.0 else { return 0 };
        let bytes = 2 * size_of::<usize>() + piece.slice.len();
        bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
    }
}

/// Entries of keys that share a lock and a count of changes, the oldest first.
#[derive(Default)]
struct CacheSet {
    entries: [CacheEntry; WAYS],
    changes: u32,
    /// Of each entry's key, a part of the hash by which no set is chosen: an entry that differs in it is not looked at.
    tags: [u8; WAYS],
    /// One for an entry, and one for each use of late, up to [`WORTH_MAX`]. What has changed has none.
    worth: [u8; WAYS],
}

impl CacheSet {
    /// Where the key's record is, and the record, if it is here and the present.
    fn find(&self, key: &Key, hash: KeyHash) -> Option<(usize, &[u8])> {
        let tag = tag(hash);
        let ways = self.tags.iter().zip(&self.worth).zip(&self.entries).enumerate();
        let mut tagged = ways.filter(|(_, ((of, worth), _))| **of == tag && **worth > 0);
        tagged.find_map(|(way, (_, entry))| Some((way, entry.record(key)?)))
    }

    fn note_use(&mut self, way: usize) {
        if let Some(worth) = self.worth.get_mut(way) {
            *worth = (*worth + 1).min(WORTH_MAX);
        }
    }

    /// What is here of the key is worth nothing from now on; nor, rarely, what is here of another with its tag.
    fn devalue(&mut self, hash: KeyHash) {
        for (of, worth) in self.tags.iter().zip(&mut self.worth) {
            if *of == tag(hash) {
                *worth = 0;
            }
        }
    }

    /// Puts an entry in the place of the one that is worth least, and gives that.
    fn put(&mut self, hash: KeyHash, entry: CacheEntry) -> CacheEntry {
        let (worth, way) = self.worth.iter().copied().zip(0..).min().unwrap_or_default();
        if worth > 0 {
            self.age();
        }
        append(&mut self.tags, way, tag(hash));
        append(&mut self.worth, way, 1);
        append(&mut self.entries, way, entry)
    }

    /// Every entry is worth less, but not nothing.
    fn age(&mut self) {
        for worth in self.worth.iter_mut().filter(|worth| **worth > 1) {
            *worth -= 1;
        }
    }

    /// Takes out what is not worth more than `least`, for the clock's hand, which passes; its bytes.
    fn pass(&mut self, least: u8) -> usize {
        let mut freed = 0;
        for (entry, worth) in self.entries.iter_mut().zip(&mut self.worth).filter(|(_, worth)| **worth <= least) {
            freed += std::mem::take(entry).cost();
            *worth = 0;
        }
        self.age();
        freed
    }
}

/// Takes out the place `way`, moves up what is behind it, and puts `new` at the end.
fn append<T>(of: &mut [T; WAYS], way: usize, new: T) -> T {
    of.get_mut(way..).expect("a place of the set").rotate_left(1);
    let [.., last] = of;
    std::mem::replace(last, new)
}

/// Eight bits of the hash that choose neither a set nor the partition.
fn tag(hash: KeyHash) -> u8 {
    let [_, _, _, tag, ..] = hash.get().to_be_bytes();
    tag
}

/// One set in one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Line(Mutex<CacheSet>);

impl Line {
    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, CacheSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cache of one store.
pub struct RecordCache {
    lines: Box<[Line]>,
    /// Bytes of entries, and how many there may be.
    used: AtomicUsize,
    bytes_max: usize,
    /// Lines that the clock's hand has passed.
    hand: AtomicUsize,
}

/// What a lookup found.
pub enum Lookup {
    /// The record's encoded bytes.
    Hit(Bytes),
    /// Nothing; what the engine answers to a read that begins now may be kept with this.
    Miss(Moment),
}

/// A set's count of changes at one moment.
#[derive(Clone, Copy)]
pub struct Moment(u32);

impl RecordCache {
    /// `bytes_max`: of all entries and the table, which is made at once, a seventh of it.
    pub fn new(bytes_max: usize) -> Self {
        let count = (bytes_max / (size_of::<Line>() + WAYS_USUAL * ENTRY_BYTES_USUAL)).max(1);
        Self {
            lines: (0..count).map(|_| Line::default()).collect(),
            used: AtomicUsize::new(0),
            bytes_max: bytes_max.saturating_sub(count * size_of::<Line>()),
            hand: AtomicUsize::new(0),
        }
    }

    #[track_caller]
    fn set(&self, hash: KeyHash) -> MutexGuard<'_, CacheSet> {
        // The low half as a fraction: the high bits are those of the partition, of which a node has some only.
        let lines = u64::try_from(self.lines.len()).expect("usize is at most 64 bits");
        let index = usize::try_from(((hash.get() & 0xffff_ffff) * lines) >> 32).expect("below their number");
        self.lines.get(index).expect("a fraction of their number is below it").lock()
    }

    /// What is cached of the key.
    pub fn get(&self, key: &Key) -> Lookup {
        let hash = key.hash();
        let mut set = self.set(hash);
        let Some((way, record)) = set.find(key, hash) else { return Lookup::Miss(Moment(set.changes)) };
        let record = Bytes::copy_from_slice(record);
        set.note_use(way);
        Lookup::Hit(record)
    }

    /// Keeps what the engine answered to a read that began after `moment`.
    pub fn keep(&self, key: &Key, record: &Bytes, Moment(changes): Moment) {
        if record.len() > RECORD_BYTES_MAX || !changes.is_multiple_of(2) {
            return;
        }
        let (hash, entry) = (key.hash(), CacheEntry::new(key, record));
        let mut set = self.set(hash);
        // Another reader may have been as quick.
        if set.changes != changes || set.find(key, hash).is_some() {
            return;
        }
        // Before the hand can find it, or what is left could be less than nothing.
        self.used.fetch_add(entry.cost(), Ordering::Relaxed);
        let before = set.put(hash, entry);
        drop(set);
        self.used.fetch_sub(before.cost(), Ordering::Relaxed);
        self.make_room();
    }

    /// Lets the clock's hand go on until no more is held than may be: over [`PATIENCE`] sets it takes what is worth
    /// least, over as many what is worth one more, and then everything.
    fn make_room(&self) {
        let severity = (1..WORTH_MAX).flat_map(|least| [least; PATIENCE]);
        for least in severity.chain(self.lines.iter().map(|_| WORTH_MAX)) {
            if self.used.load(Ordering::Relaxed) <= self.bytes_max {
                return;
            }
            let line = self.hand.fetch_add(1, Ordering::Relaxed) % self.lines.len();
            if let Some(line) = self.lines.get(line) {
                self.used.fetch_sub(line.lock().pass(least), Ordering::Relaxed);
            }
        }
    }

    /// A commit of these keys is about to be written. For the one thread that commits.
    pub fn begin_changes<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        for hash in keys.map(Key::hash) {
            let mut set = self.set(hash);
            set.devalue(hash);
            if set.changes.is_multiple_of(2) {
                set.changes = set.changes.wrapping_add(1);
            }
        }
    }

    /// It has been written, or has failed.
    pub fn end_changes<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        for hash in keys.map(Key::hash) {
            let mut set = self.set(hash);
            if !set.changes.is_multiple_of(2) {
                set.changes = set.changes.wrapping_add(1);
            }
        }
    }

    /// Evicts the record.
    pub fn forget(&self, key: &Key) {
        let hash = key.hash();
        self.set(hash).devalue(hash);
    }

    /// Bytes of entries, worthless ones included.
    pub fn used_bytes(&self) -> u64 {
        u64::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(u64::MAX)
    }

    /// Bytes of entries, counted.
    #[cfg(test)]
    pub fn counted_bytes(&self) -> u64 {
        let costs = self.lines.iter().map(|line| line.lock().entries.iter().map(CacheEntry::cost).sum::<usize>());
        u64::try_from(costs.sum::<usize>()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::record_cache::*;

    fn key(name: &'static str) -> Key {
        Key::new(Bytes::from_static(name.as_bytes())).unwrap()
    }

    fn numbered(number: u32) -> Key {
        Key::new(Bytes::from(number.to_be_bytes().to_vec())).unwrap()
    }

    fn one_set() -> RecordCache {
        let cache = RecordCache::new(700);
        assert_eq!(cache.lines.len(), 1);
        cache
    }

    fn miss(cache: &RecordCache, key: &Key) -> Moment {
        match cache.get(key) {
            Lookup::Miss(moment) => moment,
            Lookup::Hit(_) => panic!("a hit where a miss was due"),
        }
    }

    fn has(cache: &RecordCache, key: &Key, expected: &str) -> bool {
        matches!(cache.get(key), Lookup::Hit(record) if record == expected)
    }

    #[test]
    fn a_record_is_found_until_its_key_changes() {
        let (cache, a) = (RecordCache::new(1 << 20), key("a"));
        let moment = miss(&cache, &a);
        cache.keep(&a, &Bytes::from_static(b"1"), moment);
        assert!(has(&cache, &a, "1"));
        cache.begin_changes([&a, &a].into_iter());
        miss(&cache, &a);
        cache.end_changes([&a, &a].into_iter());
        miss(&cache, &a);
    }

    #[test]
    fn a_change_of_another_key_of_its_set_leaves_a_record_where_it_is() {
        let (cache, a, b) = (one_set(), key("a"), key("b"));
        let moment = miss(&cache, &a);
        cache.keep(&a, &Bytes::from_static(b"1"), moment);
        let moment = miss(&cache, &b);
        cache.begin_changes([&b].into_iter());
        assert!(has(&cache, &a, "1"));
        cache.end_changes([&b].into_iter());
        assert!(has(&cache, &a, "1"));
        cache.keep(&b, &Bytes::from_static(b"old"), moment);
        miss(&cache, &b);
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
        assert!(has(&cache, &a, "new"));
    }

    #[test]
    fn another_key_of_the_same_tag_is_no_hit() {
        let (cache, first) = (one_set(), numbered(0));
        let other = (1..).map(numbered).find(|key| tag(key.hash()) == tag(first.hash())).unwrap();
        let moment = miss(&cache, &first);
        cache.keep(&first, &Bytes::from_static(b"1"), moment);
        let moment = miss(&cache, &other);
        cache.keep(&other, &Bytes::from_static(b"2"), moment);
        assert!(has(&cache, &first, "1") && has(&cache, &other, "2"));
    }

    #[test]
    fn a_record_kept_twice_is_there_once() {
        let (cache, a) = (one_set(), key("a"));
        let moment = miss(&cache, &a);
        cache.keep(&a, &Bytes::from_static(b"1"), moment);
        let once = cache.used_bytes();
        cache.keep(&a, &Bytes::from_static(b"1"), moment);
        assert_eq!(cache.used_bytes(), once);
        assert!(has(&cache, &a, "1"));
    }

    #[test]
    fn what_is_used_stays_while_others_come_and_go() {
        let (cache, used) = (one_set(), numbered(0));
        let moment = miss(&cache, &used);
        cache.keep(&used, &Bytes::from_static(b"1"), moment);
        for number in 1..1000 {
            assert!(has(&cache, &used, "1"), "gone before {number}");
            cache.keep(&numbered(number), &Bytes::from_static(b"2"), moment);
        }
        let kept = (1..1000).filter(|number| has(&cache, &numbered(*number), "2")).count();
        assert!((1..WAYS).contains(&kept), "{kept}");
    }

    #[test]
    fn what_is_not_used_any_more_gives_way() {
        let (cache, once) = (one_set(), numbered(0));
        let moment = miss(&cache, &once);
        cache.keep(&once, &Bytes::from_static(b"1"), moment);
        for _ in 0..100 {
            assert!(has(&cache, &once, "1"));
        }
        for number in 1..100 {
            cache.keep(&numbered(number), &Bytes::from_static(b"2"), moment);
        }
        miss(&cache, &once);
        assert!(has(&cache, &numbered(99), "2"), "the newest is there");
    }

    #[test]
    fn no_key_is_another_with_a_part_of_the_record() {
        let (a, ab) = (key("a"), key("ab"));
        assert_eq!(CacheEntry::new(&a, b"bc").record(&ab), None);
        assert_eq!(CacheEntry::new(&ab, b"c").record(&a), None);
        assert_eq!(CacheEntry::new(&ab, b"c").record(&ab), Some(b"c".as_slice()));
    }

    #[test]
    fn the_clock_spares_what_is_used() {
        let (cache, used) = (RecordCache::new(64 << 10), numbered(0));
        let moment = miss(&cache, &used);
        let record = Bytes::from(vec![0; 1000]);
        cache.keep(&used, &record, moment);
        for number in 1..10_000 {
            assert!(matches!(cache.get(&used), Lookup::Hit(_)), "gone before {number}");
            cache.keep(&numbered(number), &record, moment);
        }
    }

    #[test]
    fn room_is_made_where_everything_was_used() {
        let cache = RecordCache::new(64 << 10);
        let record = Bytes::from(vec![0; 1000]);
        // Once it is there, it is used as much as matters.
        let used = |number| {
            let (key, moment) = (numbered(number), Moment(0));
            cache.keep(&key, &record, moment);
            (0..WORTH_MAX).all(|_| matches!(cache.get(&key), Lookup::Hit(_)))
        };
        let stayed = (0..1000).filter(|number| used(*number)).count();
        assert!(stayed > 500, "{stayed}: what is new finds room");
        assert!(cache.used_bytes() <= 64 << 10);
    }

    #[test]
    fn the_bytes_held_stay_bounded() {
        let cache = RecordCache::new(64 << 10);
        let record = Bytes::from(vec![0; 1000]);
        for number in 0..10_000 {
            let key = numbered(number);
            let moment = miss(&cache, &key);
            cache.keep(&key, &record, moment);
            assert_eq!(cache.used_bytes(), cache.counted_bytes());
            let used = usize::try_from(cache.used_bytes()).unwrap();
            assert!(used + size_of_val(&*cache.lines) <= 64 << 10, "{used}");
        }
        assert!(cache.used_bytes() > 40_000, "{}", cache.used_bytes());
    }

    #[test]
    fn a_set_is_one_cache_line() {
        assert_eq!(size_of::<Line>(), 64);
    }
}
