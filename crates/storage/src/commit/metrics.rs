//! What the commit thread counts. Written by it alone, read to export it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_base::histogram::Histogram;
use kvorum_core::quorum::{Failure, StoreAnswer};

/// Counters since the start, and a few gauges.
#[derive(Debug, Default)]
pub struct CommitMetrics {
    /// Batches decided; not all of them had something to write.
    pub batches: AtomicU64,
    /// Commits of the store that succeeded.
    pub commits: AtomicU64,
    /// Records written.
    pub records: AtomicU64,
    /// Bytes of keys and records written.
    pub bytes: AtomicU64,
    /// Works per batch.
    pub batch_works: Histogram,
    /// Microseconds from the begin of a batch to its answers: lookups, commit and sync.
    pub batch_micros: Histogram,
    /// `Accepted` answers.
    pub accepted: AtomicU64,
    /// `Stale` answers.
    pub stale: AtomicU64,
    /// `StaleUnknown` answers.
    pub stale_unknown: AtomicU64,
    /// Lookups of the exact version, from memory or disk.
    pub point_reads: AtomicU64,
    /// Of these, handed to the read pool.
    pub cold_reads: AtomicU64,
    /// Damaged records replaced by repair.
    pub mended: AtomicU64,
    /// Raises of the clock bound.
    pub bound_raises: AtomicU64,
    /// Versions in the recent set.
    pub recent_entries: AtomicU64,
    /// Whether stale answers promise nothing at present.
    pub unsure: AtomicBool,
    failed: [AtomicU64; Failure::ALL.len()],
}

impl CommitMetrics {
    /// How many `Failed` answers gave this reason.
    #[must_use]
    pub fn failed(&self, failure: Failure) -> u64 {
        self.failed_counter(failure).load(Ordering::Relaxed)
    }

    /// Counts one answer.
    pub(super) fn count(&self, answer: StoreAnswer) {
        let counter = match answer {
            StoreAnswer::Accepted => &self.accepted,
            StoreAnswer::Stale(_) => &self.stale,
            StoreAnswer::StaleUnknown(_) => &self.stale_unknown,
            StoreAnswer::Failed(failure) => self.failed_counter(failure),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn failed_counter(&self, failure: Failure) -> &AtomicU64 {
        self.failed.get(usize::from(failure.code())).expect("one counter for each failure")
    }
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).expect("usize is at most 64 bits"), Ordering::Relaxed);
}
