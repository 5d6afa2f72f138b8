//! A rate of bytes, kept by waiting after them.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// What was not used is not saved up for longer than this.
const SLACK: Duration = Duration::from_millis(100);

/// Bytes per second of one scan, or of one driver's copies.
pub(super) struct ScanPace {
    rate: u64,
    /// When everything so far is paid for.
    free_at: Cell<Instant>,
}

impl ScanPace {
    pub(super) fn new(rate: u64) -> Self {
        Self { rate, free_at: Cell::new(Instant::now()) }
    }

    /// Charges bytes, and waits until they are paid for. Cancel safe: they stay charged.
    pub(super) async fn spend(&self, bytes: usize) {
        let nanos =
            u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000) / u128::from(self.rate.max(1));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let now = Instant::now();
        let from = self.free_at.get().max(now.checked_sub(SLACK).unwrap_or(now));
        let free_at = from + cost;
        self.free_at.set(free_at);
        if free_at > now {
            tokio::time::sleep_until(free_at).await;
        }
    }
}
