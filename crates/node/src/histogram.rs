//! A histogram of microseconds in powers of two.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts by power of two.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; 32],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&self, micros: u64) {
        let index = usize::try_from(64 - micros.leading_zeros()).expect("at most 64").min(31);
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
}
