//! The keys that are asked for most, in constant memory: Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005, section 3).
//!
//! A key that has no counter takes the one with the lowest count, and that count as its error. So a key's true count
//! lies between `count - error` and `count`, and every key above a 256th of all has a counter.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use kvorum_core::Key;
use kvorum_core::key::KeyHash;

/// Counters of one shard.
pub(super) const COUNTERS: usize = 256;

/// A key and how often it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// The key; it keeps its bytes alive.
    pub key: Key,
    /// Of it.
    pub hash: KeyHash,
    /// At most so often it came.
    pub count: u32,
    /// By so much `count` may be too high.
    pub error: u32,
}

impl HotKey {
    /// It came so often on another shard, too.
    pub(super) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.error = self.error.saturating_add(other.error);
    }
}

/// Counts keys. Two keys with the same hash are one.
#[derive(Default)]
pub(super) struct SpaceSaving {
    /// The counts, apart from what is counted: the lowest is looked for each time that another key comes.
    counts: Vec<u32>,
    counted: Vec<CountedKey>,
    /// Where a hash has its counter.
    places: HashMap<KeyHash, usize, BuildHasherDefault<HashOfHash>>,
    /// No count is lower.
    lowest: u32,
    /// Before here none is that low.
    cursor: usize,
}

struct CountedKey {
    key: Key,
    hash: KeyHash,
    error: u32,
}

/// Takes the hash of a key as it is. Clients can make keys collide: then a lookup compares up to 256 of them.
#[derive(Default)]
struct HashOfHash(u64);

impl Hasher for HashOfHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a hash of a key is one number")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl SpaceSaving {
    /// A key came once more.
    pub(super) fn note(&mut self, key: &Key, hash: KeyHash) {
        if let Some(count) = self.places.get(&hash).and_then(|place| self.counts.get_mut(*place)) {
            *count = count.saturating_add(1);
            return;
        }
        if self.counts.len() < COUNTERS {
            self.places.insert(hash, self.counts.len());
            self.counts.push(1);
            self.counted.push(CountedKey { key: key.clone(), hash, error: 0 });
            return;
        }
        let place = self.lowest_place();
        let (Some(count), Some(counted)) = (self.counts.get_mut(place), self.counted.get_mut(place)) else { return };
        self.places.remove(&counted.hash);
        self.places.insert(hash, place);
        *counted = CountedKey { key: key.clone(), hash, error: *count };
        *count = count.saturating_add(1);
    }

    /// A counter with the lowest count. Goes on where the last one was: that is a few steps for each, taken together.
    fn lowest_place(&mut self) -> usize {
        let rest = self.counts.get(self.cursor..).unwrap_or_default();
        match rest.iter().position(|count| *count <= self.lowest) {
            Some(steps) => self.cursor += steps,
            None => {
                self.lowest = self.counts.iter().copied().min().expect("there are counters");
                let found = self.counts.iter().position(|count| *count == self.lowest);
                self.cursor = found.expect("it is one of them");
            }
        }
        self.cursor
    }

    /// All counters; then there are none.
    pub(super) fn take(&mut self) -> Vec<HotKey> {
        self.places.clear();
        (self.lowest, self.cursor) = (0, 0);
        let counts = self.counts.drain(..);
        let hot = |(CountedKey { key, hash, error }, count)| HotKey { key, hash, count, error };
        self.counted.drain(..).zip(counts).map(hot).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_precision_loss)]
    use std::collections::HashMap;

    use bytes::Bytes;
    use kvorum_core::Key;

    use super::{COUNTERS, SpaceSaving};

    /// Marsaglia, "Xorshift RNGs", 2003.
    pub(in crate::coordinator) struct Random(u64);

    impl Random {
        /// From 0 to below 1.
        pub(in crate::coordinator) fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Keys by Zipf's law.
    pub(in crate::coordinator) struct Zipfian {
        pub(in crate::coordinator) random: Random,
        /// Up to each rank.
        sums: Vec<f64>,
    }

    impl Zipfian {
        pub(in crate::coordinator) fn new(seed: u64, keys: usize) -> Self {
            let mut sums = vec![0.0];
            (1..=keys).for_each(|rank| sums.push(sums.last().unwrap() + 1.0 / (rank as f64).powf(0.99)));
            Self { random: Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)), sums }
        }

        pub(in crate::coordinator) fn key(rank: usize) -> Key {
            Key::new(Bytes::from(format!("key-{rank}"))).unwrap()
        }

        fn rank(&mut self) -> usize {
            let drawn = self.random.next() * self.sums.last().unwrap();
            self.sums.partition_point(|sum| *sum <= drawn) - 1
        }

        pub(in crate::coordinator) fn next(&mut self) -> Key {
            Self::key(self.rank())
        }
    }

    #[test]
    fn a_count_is_never_too_low_and_too_high_by_its_error_at_most() {
        let (mut keys, mut truth, mut counted) = (Zipfian::new(7, 1_000), HashMap::new(), SpaceSaving::default());
        for _ in 0..20_000 {
            let key = keys.next();
            counted.note(&key, key.hash());
            *truth.entry(key).or_insert(0) += 1;
        }
        let hot = counted.take();
        assert_eq!(hot.len(), COUNTERS);
        for hot in hot {
            let true_count = truth[&hot.key];
            assert!(hot.count >= true_count && hot.count - hot.error <= true_count, "{hot:?}: {true_count}");
        }
        assert!(counted.take().is_empty());
    }
}
