//! What the node counts of its own work. `http` and `commit` have metrics of their own; `exposition`
//! puts them all into one page.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kvorum_core::node::NodeId;

use super::hot::LastWindow;
use super::slow::SlowLog;

/// Counters of one shard's coordinator. Written by that shard alone, read by anyone.
#[derive(Default)]
pub struct CoordinatorMetrics {
    /// Requests under way, answered or not.
    pub operations: AtomicU64,
    /// How long a read waits for its first replicas, in microseconds.
    pub hedge_delay_us: AtomicU64,
    /// Reads that asked more replicas because the first were slow or silent.
    pub hedges: AtomicU64,
    /// Hedges that the budget refused.
    pub hedges_denied: AtomicU64,
    /// Stores by reads, to bring the newest version to a majority.
    pub write_backs: AtomicU64,
    /// Stores that replace a damaged record.
    pub damage_repairs: AtomicU64,
    /// Stores by reads below a quorum, to replicas that were seen to be behind.
    pub read_repairs: AtomicU64,
    /// Such stores that the budget refused.
    pub read_repairs_denied: AtomicU64,
    /// Writes that started over with a newer version.
    pub timestamp_retries: AtomicU64,
    /// Stores refused because the replica held something newer.
    pub stale_answers: AtomicU64,
    /// Replicas that answered a read with a damaged record.
    pub corrupt_answers: AtomicU64,
    /// Answers that came after their request was dropped.
    pub late_answers: AtomicU64,
    /// Stores that no answer confirmed.
    pub unconfirmed_stores: AtomicU64,
    /// Writes that waited because of the debt of the replicas' stores.
    pub delayed_behind: AtomicU64,
    /// Writes refused because of the debt of the replicas' stores.
    pub refused_behind: AtomicU64,
    /// Answers that requests lacked which too few replicas answered.
    missing: Mutex<BTreeMap<MissingAnswer, u64>>,
    /// Requests that took long.
    pub slow: SlowLog,
    /// Keys and partitions that were asked for most.
    pub hot: LastWindow,
}

/// An answer that a request lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingAnswer {
    /// `read` or `write`.
    pub operation: &'static str,
    /// What the replica did instead, as in a receipt.
    pub cause: &'static str,
    /// Whose answer it was.
    pub replica: NodeId,
}

impl CoordinatorMetrics {
    /// With a threshold of its own for what is slow.
    #[must_use]
    pub fn new(slow: SlowLog) -> Self {
        Self { slow, ..Self::default() }
    }

    /// A request lacked this answer.
    pub(super) fn note_missing(&self, answer: MissingAnswer) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner).entry(answer).or_default() += 1;
    }

    /// Answers that requests lacked, and how many: at most one entry for each operation, cause and replica.
    #[must_use]
    pub fn missing(&self) -> BTreeMap<MissingAnswer, u64> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the gauges.
    pub fn note_state(&self, operations: usize, hedge_delay: Duration) {
        self.operations.store(u64::try_from(operations).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.hedge_delay_us.store(u64::try_from(hedge_delay.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
