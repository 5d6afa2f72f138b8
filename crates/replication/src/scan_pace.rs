//! A rate of bytes, kept by waiting after them.

use std::sync::PoisonError;
use std::time::Duration;

use kvorum_base::sync::Mutex;
use tokio::time::Instant;

/// What was not used is not saved up for longer than this.
const SLACK: Duration = Duration::from_millis(100);

/// Bytes per second of one scan, of one driver's copies, or of all pages that a node gives to scans over the cluster.
#[derive(Debug)]
pub(crate) struct ScanPace {
    rate: u64,
    /// When everything so far is paid for.
    free_at: Mutex<Instant>,
}

impl ScanPace {
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate, free_at: Mutex::new(Instant::now()) }
    }

    /// Charges bytes, and waits until they are paid for. Cancel safe: they stay charged.
    pub(crate) async fn spend(&self, bytes: usize) {
        self.charge(bytes, Duration::MAX);
        self.settle().await;
    }

    /// Waits until what was charged before is paid for.
    pub(crate) async fn settle(&self) {
        let free_at = *self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        if free_at > Instant::now() {
            tokio::time::sleep_until(free_at).await;
        }
    }

    /// Charges bytes; of what all have cost, no more than `debt_max` is left to be paid for.
    pub(crate) fn charge(&self, bytes: usize, debt_max: Duration) {
        let nanos =
            u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000) / u128::from(self.rate.max(1));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let now = Instant::now();
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let charged = (*free_at).max(now.checked_sub(SLACK).unwrap_or(now)) + cost;
        *free_at = now.checked_add(debt_max).map_or(charged, |most| charged.min(most));
    }
}
