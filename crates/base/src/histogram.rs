//! A histogram of relaxed atomics: four buckets per power of two of microseconds (or of anything else that
//! is counted), so a quantile is exact to a fifth. Recording is two additions without a lock.
//!
//! A bucket holds what is above the one before and up to its own end, that included: so the ends are 1 to 8, 10, 12, 14,
//! 16, 20 and so on, and Prometheus' `le` means what it says.
//!
//! It has its own buckets, not those of a metrics crate, because commit thread, shards and exporter share it
//! without one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Values below this have a bucket each.
const LINEAR: u64 = 4;
/// Powers of two beyond the linear part: up to 2^32 microseconds, more than an hour.
const POWERS: usize = 30;
const BUCKETS: usize = 4 + 4 * POWERS;

/// Counts of recorded values.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    counts: Vec<u64>,
    /// The sum of all values.
    pub sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one value: microseconds, where it is a time.
    pub fn record(&self, value: u64) {
        let bucket = self.buckets.get(bucket(value)).expect("every value has a bucket");
        bucket.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What has been counted. Values recorded meanwhile may be in the counts and not in the sum.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            counts: self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

impl Snapshot {
    /// How many values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds what another histogram has counted.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }

    /// How many values each bucket holds, in the order of [`bounds`].
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The least value that the fraction `quantile` (0 to 1) of all values does not exceed, rounded up to
    /// its bucket's end; 0 if there are none.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let count = self.count();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank is at most the count")]
        #[expect(clippy::cast_precision_loss, reason = "a rank may be off by one in 2^53")]
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count.max(1));
        let mut total = 0;
        for (index, bucket) in self.counts.iter().enumerate() {
            total += bucket;
            if total >= rank {
                return upper(index);
            }
        }
        0
    }
}

/// The ends of all buckets: a bucket holds at most this value. The last one also holds what is greater.
pub fn bounds() -> impl Iterator<Item = u64> {
    (0..BUCKETS).map(upper)
}

/// The bucket of a value: of the number before it, the power of two, and the two bits after the leading one.
fn bucket(value: u64) -> usize {
    let value = value.saturating_sub(1);
    if value < LINEAR {
        return usize::try_from(value).expect("below 4");
    }
    let power = value.ilog2();
    let fraction = usize::try_from(value >> (power - 2) & 3).expect("two bits");
    let power = usize::try_from(power).expect("below 64");
    (LINEAR_BUCKETS + (power - 2) * 4 + fraction).min(BUCKETS - 1)
}

const LINEAR_BUCKETS: usize = 4;

/// The greatest value of a bucket.
fn upper(index: usize) -> u64 {
    let index = u64::try_from(index).expect("few buckets");
    if index < LINEAR {
        return index + 1;
    }
    let (power, fraction) = ((index - LINEAR) / 4, (index - LINEAR) % 4);
    (LINEAR + fraction + 1) << power
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use crate::histogram::*;

    #[test]
    fn every_value_lies_in_a_bucket_that_ends_at_most_a_quarter_above_it() {
        let mut before = 0;
        for value in (1..100_000).chain((17..32).map(|power| (1 << power) - 1)).chain((17..32).map(|power| 1 << power))
        {
            let end = upper(bucket(value));
            assert!(end >= value && end <= value + value / 4, "{value} ends at {end}");
        }
        for index in 0..BUCKETS {
            let end = upper(index);
            assert_eq!(bucket(end), index);
            assert!(index == 0 || end > before);
            before = end;
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn counts_sum_and_quantiles_are_those_of_the_values() {
        let histogram = Histogram::default();
        for value in 1..=1000 {
            histogram.record(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.sum), (1000, 500_500));
        assert!((500..=640).contains(&snapshot.quantile(0.5)));
        assert!((990..=1024).contains(&snapshot.quantile(0.99)));
        let up_to_80: u64 = bounds().zip(snapshot.counts()).filter(|(end, _)| *end <= 80).map(|(_, count)| count).sum();
        assert_eq!(up_to_80, 80);
        assert_eq!(Histogram::default().snapshot().quantile(0.99), 0);
    }
}
