//! Which keys and partitions a shard is asked for most, in windows of ten seconds.
//!
//! Owned by its shard, so that counting is plain additions: each request for its partition, one in 16 for its key. A
//! window that has ended is published whole.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvorum_core::key::{KeyHash, PARTITIONS};
use kvorum_core::{Key, PartitionId};

use super::space_saving::{HotKey, SpaceSaving};

/// How long a window is. Windows of all shards begin together.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Of so many requests one is looked at for its key, at random: a pattern in the load is not the sample's.
pub const SAMPLE: u32 = 16;

/// What was counted in a window.
#[derive(Debug)]
pub struct HotWindow {
    /// When it ended, on the boot clock.
    pub end: Duration,
    /// Keys of the sample.
    pub keys: Vec<HotKey>,
    /// Requests of each partition: all of them.
    pub partitions: Box<[u32]>,
}

impl HotWindow {
    /// Those of several shards that end when the last one does, as one. Its keys are in the order of what is certain of
    /// their counts: many keys that came once share one high count.
    #[must_use]
    pub fn merged(windows: &[Arc<Self>]) -> Option<Self> {
        let end = windows.iter().map(|window| window.end).max()?;
        let (mut keys, mut partitions) = (HashMap::<KeyHash, HotKey>::new(), vec![0_u32; PARTITIONS]);
        for window in windows.iter().filter(|window| window.end == end) {
            partitions.iter_mut().zip(&window.partitions).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
            for hot in &window.keys {
                keys.entry(hot.hash).and_modify(|known| known.add(hot)).or_insert_with(|| hot.clone());
            }
        }
        let mut keys: Vec<HotKey> = keys.into_values().collect();
        keys.sort_by_key(|hot| (Reverse(hot.count - hot.error), hot.hash.get()));
        Some(Self { end, keys, partitions: partitions.into() })
    }
}

/// The last window that has ended, of one shard.
#[derive(Default)]
pub struct LastWindow(Mutex<Option<Arc<HotWindow>>>);

impl LastWindow {
    /// It, if there has been one. Shared, not copied: the shard waits for the lock.
    #[must_use]
    pub fn get(&self) -> Option<Arc<HotWindow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, window: HotWindow) {
        let window = Some(Arc::new(window));
        // Dropped behind the lock.
        let _last = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), window);
    }
}

/// The window that has not ended.
pub(super) struct HotCounts {
    keys: SpaceSaving,
    partitions: Box<[u32]>,
    /// When it ends, in seconds of the boot clock; zero before the first request in it.
    end_s: u64,
    /// Requests to pass over.
    skip: u32,
    random: u32,
}

impl Default for HotCounts {
    fn default() -> Self {
        let partitions = vec![0; PARTITIONS].into();
        Self { keys: SpaceSaving::default(), partitions, end_s: 0, skip: 0, random: 0x9e37_79b9 }
    }
}

impl HotCounts {
    /// A request for a key.
    #[inline]
    pub(super) fn note(&mut self, key: &Key, partition: PartitionId, now: Duration, last: &LastWindow) {
        if now.as_secs() >= self.end_s {
            self.begin(now, last);
        }
        if let Some(count) = self.partitions.get_mut(partition.index()) {
            *count = count.saturating_add(1);
        }
        match self.skip.checked_sub(1) {
            Some(skip) => self.skip = skip,
            None => self.sample(key),
        }
    }

    fn sample(&mut self, key: &Key) {
        self.keys.note(key, key.hash());
        // Marsaglia, "Xorshift RNGs", 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        // From 0 to 30, in the mean 15.
        self.skip = self.random % (2 * SAMPLE - 1);
    }

    fn begin(&mut self, now: Duration, last: &LastWindow) {
        self.publish(now, last);
        self.end_s = (now.as_secs() / WINDOW.as_secs() + 1) * WINDOW.as_secs();
    }

    /// Publishes the window if it has ended. The next begins with its first request.
    pub(super) fn publish(&mut self, now: Duration, last: &LastWindow) {
        let end = Duration::from_secs(self.end_s);
        if end.is_zero() || now < end {
            return;
        }
        self.end_s = 0;
        let partitions = std::mem::replace(&mut self.partitions, vec![0; PARTITIONS].into());
        last.set(HotWindow { end, keys: self.keys.take(), partitions });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use std::time::Duration;

    use bytes::Bytes;
    use kvorum_core::Key;

    use super::{HotCounts, HotWindow, LastWindow, SAMPLE};
    use crate::coordinator::space_saving::tests::Zipfian;

    /// A window of two shards, in which so many requests came to either in turn by chance.
    fn window_of_two(keys: &mut Zipfian, requests: usize) -> HotWindow {
        let mut shards = [(); 2].map(|()| (HotCounts::default(), LastWindow::default()));
        for _ in 0..requests {
            let (counts, last) = &mut shards[usize::from(keys.random.next() < 0.5)];
            let key = keys.next();
            counts.note(&key, key.hash().partition(), Duration::from_secs(20), last);
        }
        let windows = shards.map(|(mut counts, last)| {
            counts.publish(Duration::from_secs(30), &last);
            last.get().unwrap()
        });
        HotWindow::merged(&windows).unwrap()
    }

    #[test]
    fn of_a_zipfian_load_the_true_top_ten_are_among_the_first_twenty_in_every_window() {
        for seed in 1..=20 {
            let mut keys = Zipfian::new(seed, 100_000);
            let window = window_of_two(&mut keys, 200_000);
            let shown: Vec<&Key> = window.keys.iter().take(20).map(|hot| &hot.key).collect();
            assert!((0..10).all(|rank| shown.contains(&&Zipfian::key(rank))), "seed {seed}: {shown:?}");
            assert_eq!(window.partitions.iter().sum::<u32>(), 200_000);
        }
    }

    #[test]
    fn a_window_is_published_whole_with_every_request_of_a_partition_and_a_sixteenth_of_its_key() {
        let (mut counts, last) = (HotCounts::default(), LastWindow::default());
        let key = Key::new(Bytes::from_static(b"hot")).unwrap();
        let partition = key.hash().partition();
        for millis in 0..9_999 {
            counts.note(&key, partition, Duration::from_secs(20) + Duration::from_millis(millis), &last);
        }
        assert!(last.get().is_none());
        counts.note(&key, partition, Duration::from_secs(30), &last);
        let window = last.get().unwrap();
        assert_eq!((window.end, window.partitions[partition.index()]), (Duration::from_secs(30), 9_999));
        assert_eq!(window.partitions.iter().sum::<u32>(), 9_999);
        let estimated = window.keys[0].count * SAMPLE;
        assert!(window.keys.len() == 1 && (8_000..12_000).contains(&estimated), "{:?}", window.keys);
    }

    #[test]
    fn a_window_without_a_request_after_it_is_published_when_it_has_ended() {
        let (mut counts, last) = (HotCounts::default(), LastWindow::default());
        let key = Key::new(Bytes::from_static(b"once")).unwrap();
        counts.note(&key, key.hash().partition(), Duration::from_secs(21), &last);
        assert_eq!(counts.end_s, 30);
        counts.publish(Duration::from_secs(29), &last);
        assert!(last.get().is_none());
        counts.publish(Duration::from_secs(31), &last);
        assert_eq!((last.get().unwrap().end, counts.end_s), (Duration::from_secs(30), 0));
    }
}
