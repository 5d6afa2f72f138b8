//! Which key comes next.
//!
//! Zipfian numbers are those of Gray and others ("Quickly generating billion-record synthetic databases", SIGMOD
//! 1994), as YCSB uses them: exponent 0.99, scattered over the keys by a hash, so that popular keys are not
//! neighbours. `Latest` counts ranks back from the newest key that was acknowledged.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::distinct::KeySet;
use crate::numbers::{count, float, index, whole};
use crate::random::{Random, mix};

/// Keys have eight digits, so that their order is that of their numbers.
pub const KEYS_MAX: u64 = 100_000_000;
/// How often a key of a batch is drawn, before one that is in it already gives way to one that is not.
const DRAWS_MAX: usize = 16;
const EXPONENT: f64 = 0.99;
/// The sum behind a zipfian distribution is exact up to here and integrated beyond.
const SUMMED_MAX: u64 = 1_000_000;

/// How keys follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// One after the other, and again from the first.
    Sequential,
    /// All equally often.
    Uniform,
    /// A few much more often than others, scattered.
    Zipfian,
    /// The newest most often.
    Latest,
}

impl FromStr for KeyOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "sequential" => Ok(Self::Sequential),
            "uniform" => Ok(Self::Uniform),
            "zipfian" => Ok(Self::Zipfian),
            "latest" => Ok(Self::Latest),
            _ => Err(format!("`{text}` is not sequential, uniform, zipfian or latest")),
        }
    }
}

impl fmt::Display for KeyOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sequential => "sequential",
            Self::Uniform => "uniform",
            Self::Zipfian => "zipfian",
            Self::Latest => "latest",
        })
    }
}

/// The keys of a run, shared by its threads.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    order: KeyOrder,
    first: u64,
    count: u64,
    zipf: Option<Arc<Zipf>>,
    inserts: Arc<Inserts>,
    /// Instead of all of them, these, in turn.
    only: Option<Arc<[u64]>>,
}

impl Keys {
    /// `count` keys from `first` on; at least one.
    pub(crate) fn new(order: KeyOrder, first: u64, count: u64) -> Self {
        assert!(count > 0, "a workload has keys");
        let zipf = matches!(order, KeyOrder::Zipfian | KeyOrder::Latest).then(|| Arc::new(Zipf::new(count)));
        Self { order, first, count, zipf, inserts: Arc::new(Inserts::new(first + count)), only: None }
    }

    /// These keys, one after the other; at least one.
    pub(crate) fn listed(only: Arc<[u64]>) -> Self {
        Self { only: Some(only.clone()), ..Self::new(KeyOrder::Sequential, 0, count(only.len())) }
    }

    /// One of those that there are from the first.
    fn at(&self, place: u64) -> u64 {
        match &self.only {
            Some(only) => only.get(index(place)).copied().expect("as many as are counted"),
            None => self.first + place,
        }
    }

    /// The keys that one of `threads` threads uses.
    pub(crate) fn source(&self, thread: u64, threads: u64, seed: u64) -> KeySource {
        let random = Random::new(mix(seed ^ thread.wrapping_mul(0x5851_f42d_4c95_7f2d)));
        KeySource { keys: self.clone(), next: thread, step: threads, random }
    }
}

/// Where one thread gets its keys from.
#[derive(Debug)]
pub(crate) struct KeySource {
    keys: Keys,
    next: u64,
    step: u64,
    pub(crate) random: Random,
}

impl KeySource {
    /// A key that was filled, or acknowledged since.
    pub(crate) fn existing(&mut self) -> u64 {
        let keys = &self.keys;
        let zipf = || keys.zipf.as_ref().expect("made for these orders");
        match keys.order {
            KeyOrder::Sequential => {
                let number = self.next;
                self.next = self.next.wrapping_add(self.step);
                keys.at(number % keys.count)
            }
            KeyOrder::Uniform => keys.first + self.random.below(keys.count),
            KeyOrder::Zipfian => keys.first + mix(zipf().rank(&mut self.random)) % keys.count,
            KeyOrder::Latest => keys.inserts.acknowledged() - 1 - zipf().rank(&mut self.random),
        }
    }

    /// As [`KeySource::existing`], and not one of `taken`, which has fewer than there are; it is one of them now.
    pub(crate) fn existing_beside(&mut self, taken: &mut KeySet) -> u64 {
        for _ in 0..DRAWS_MAX {
            let key = self.existing();
            if taken.insert(key) {
                return key;
            }
        }
        // Few are left, or they are seldom drawn.
        let (from, count) = (self.random.below(self.keys.count), self.keys.count);
        let mut left = (from..count).chain(0..from).map(|place| self.keys.at(place));
        left.find(|key| taken.insert(*key)).expect("a batch has at most as many operations as there are keys")
    }

    /// As [`KeySource::fresh`], and not one of `taken`; it is one of them now.
    pub(crate) fn fresh_beside(&self, taken: &mut KeySet) -> u64 {
        let key = self.fresh();
        if taken.insert(key) {
            return key;
        }
        // Keys have begun anew behind the last that there can be. At most as often as there are keys in `taken`.
        let other = self.fresh_beside(taken);
        self.inserted(key, false);
        other
    }

    /// A key that is not there yet; call [`KeySource::inserted`] when its write has ended.
    pub(crate) fn fresh(&self) -> u64 {
        self.keys.inserts.fresh()
    }

    /// The write of a fresh key has ended; if badly, it is the next fresh one again.
    pub(crate) fn inserted(&self, key: u64, well: bool) {
        self.keys.inserts.ended(key, well);
    }
}

/// Keys that are being added behind the others. Readers see only those before the first that is not acknowledged.
#[derive(Debug)]
pub(crate) struct Inserts {
    next: AtomicU64,
    acknowledged: AtomicU64,
    /// Those that ended out of turn, and those that failed: about as many as requests are under way.
    ended: Mutex<KeysExhausted>,
}

#[derive(Debug, Default)]
struct KeysExhausted {
    ahead: BTreeSet<u64>,
    failed: Vec<u64>,
}

impl Inserts {
    fn new(first: u64) -> Self {
        Self { next: first.into(), acknowledged: first.into(), ended: Mutex::default() }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    fn fresh(&self) -> u64 {
        let failed = self.ended.lock().expect("nobody panics with it").failed.pop();
        failed.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed) % KEYS_MAX)
    }

    fn ended(&self, key: u64, well: bool) {
        let mut ended = self.ended.lock().expect("nobody panics with it");
        if !well {
            return ended.failed.push(key);
        }
        let mut upto = self.acknowledged();
        // Those below it are where keys have begun anew, behind the last that there can be.
        if key >= upto {
            ended.ahead.insert(key);
        }
        while ended.ahead.remove(&upto) {
            upto += 1;
        }
        self.acknowledged.store(upto, Ordering::Relaxed);
    }
}

/// Ranks below a count, the n-th as often as 1/n^0.99.
#[derive(Debug)]
struct Zipf {
    count: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64) -> Self {
        let (zeta, first_two) = (zeta(count), zeta(2));
        let eta = (1.0 - (2.0 / float(count)).powf(1.0 - EXPONENT)) / (1.0 - first_two / zeta);
        Self { count: float(count), zeta, eta }
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(EXPONENT) {
            return 1.min(whole(self.count) - 1);
        }
        let rank = self.count * (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - EXPONENT));
        whole(rank).min(whole(self.count) - 1)
    }
}

/// The sum of 1/n^0.99 for n up to `count`.
fn zeta(count: u64) -> f64 {
    let term = |n: u64| float(n).powf(-EXPONENT);
    let summed = count.min(SUMMED_MAX);
    let head: f64 = (1..=summed).map(term).sum();
    if count == summed {
        return head;
    }
    // Euler and Maclaurin: the integral from the last summed term on, and half of the ends.
    let integral = |n: u64| float(n).powf(1.0 - EXPONENT) / (1.0 - EXPONENT);
    head + integral(count) - integral(summed) + (term(count) - term(summed)) / 2.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{KeyOrder, KeySet, KeySource, Keys, SUMMED_MAX, Zipf, zeta};
    use crate::numbers::float;
    use crate::random::Random;

    fn source(order: KeyOrder, count: u64) -> KeySource {
        Keys::new(order, 0, count).source(0, 1, 7)
    }

    #[test]
    fn sequential_keys_of_all_threads_are_each_key_once() {
        let keys = Keys::new(KeyOrder::Sequential, 10, 9);
        let mut seen: Vec<u64> = (0..3)
            .flat_map(|thread| {
                let mut source = keys.source(thread, 3, 1);
                (0..3).map(move |_| source.existing())
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (10..19).collect::<Vec<_>>());
    }

    #[test]
    fn uniform_keys_are_even() {
        let mut keys = source(KeyOrder::Uniform, 10);
        let mut counts = [0_u32; 10];
        (0..100_000).for_each(|_| counts[usize::try_from(keys.existing()).unwrap()] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
    }

    #[test]
    fn zipfian_ranks_are_as_frequent_as_they_should_be() {
        let zipf = Zipf::new(1000);
        let mut random = Random::new(3);
        let mut counts = BTreeMap::new();
        (0..1_000_000).for_each(|_| *counts.entry(zipf.rank(&mut random)).or_insert(0_u64) += 1);
        assert!(counts.keys().all(|rank| *rank < 1000));
        // The first two are exact; Gray's method approximates the others.
        for (rank, tolerance) in [(0, 0.02), (1, 0.02), (9, 0.15), (99, 0.15)] {
            let expected = 1e6 * float(rank + 1).powf(-0.99) / zeta(1000);
            let off = (float(counts[&rank]) / expected - 1.0).abs();
            assert!(off < tolerance, "rank {rank}: {} instead of {expected}", counts[&rank]);
        }
    }

    #[test]
    fn zipfian_keys_are_scattered() {
        let mut keys = source(KeyOrder::Zipfian, 1000);
        let mut counts = BTreeMap::new();
        (0..100_000).for_each(|_| *counts.entry(keys.existing()).or_insert(0_u64) += 1);
        let mut popular: Vec<(u64, u64)> = counts.into_iter().map(|(key, count)| (count, key)).collect();
        popular.sort_unstable_by(|a, b| b.cmp(a));
        assert!(popular[0].1.abs_diff(popular[1].1) > 1, "{:?}", &popular[..3]);
    }

    #[test]
    fn the_integrated_part_of_the_sum_is_as_good_as_the_sum() {
        let exact: f64 = (1..=2 * SUMMED_MAX).map(|n| float(n).powf(-0.99)).sum();
        assert!((zeta(2 * SUMMED_MAX) - exact).abs() < 1e-6);
    }

    #[test]
    fn the_latest_keys_are_those_that_were_acknowledged_last() {
        let mut keys = source(KeyOrder::Latest, 100);
        let (first, second) = (keys.fresh(), keys.fresh());
        assert_eq!((first, second), (100, 101));
        let newest = |keys: &mut KeySource| (0..1000).map(|_| keys.existing()).max().unwrap();
        keys.inserted(second, true);
        assert_eq!(newest(&mut keys), 99, "the one before is still under way");
        keys.inserted(first, false);
        assert_eq!(newest(&mut keys), 99, "it was not written");
        assert_eq!(keys.fresh(), first, "so it is written now");
        keys.inserted(first, true);
        assert_eq!(newest(&mut keys), 101);
    }

    #[test]
    fn the_keys_of_a_batch_differ_also_where_it_takes_all_that_there_are() {
        for order in [KeyOrder::Sequential, KeyOrder::Uniform, KeyOrder::Zipfian, KeyOrder::Latest] {
            // Of two threads, each of which would come to every second key.
            let mut keys = Keys::new(order, 10, 100).source(0, 2, 7);
            let mut taken = KeySet::new(100);
            for _ in 0..3 {
                let mut batch: Vec<u64> = (0..100).map(|_| keys.existing_beside(&mut taken)).collect();
                batch.sort_unstable();
                assert_eq!(batch, (10..110).collect::<Vec<_>>(), "{order}");
                taken.clear();
            }
        }
    }

    #[test]
    fn a_fresh_key_that_a_batch_has_already_is_left_for_later() {
        let keys = source(KeyOrder::Uniform, 100);
        let mut taken = KeySet::new(3);
        assert!(taken.insert(100) && taken.insert(101));
        assert_eq!(keys.fresh_beside(&mut taken), 102);
        let mut later = [keys.fresh(), keys.fresh()];
        later.sort_unstable();
        assert_eq!(later, [100, 101]);
    }

    #[test]
    fn one_key_is_enough_for_every_order() {
        for order in [KeyOrder::Sequential, KeyOrder::Uniform, KeyOrder::Zipfian, KeyOrder::Latest] {
            let mut keys = source(order, 1);
            assert!((0..100).all(|_| keys.existing() == 0), "{order}");
        }
    }
}
