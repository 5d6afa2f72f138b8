//! A machine's clocks, on virtual time.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use kvorum_base::clock::TimeSource;
use tokio::time::Instant;

/// When every run begins.
const BEGIN_MS: u64 = 1_700_000_000_000;

/// Milliseconds since 1970, so long after the begin of a run.
#[must_use]
pub fn true_ms(since_begin: Duration) -> u64 {
    BEGIN_MS + u64::try_from(since_begin.as_millis()).expect("runs are short")
}

/// The wall clock may be wrong and jump, the boot clock run a little fast or slow.
#[derive(Debug)]
pub struct MachineTime {
    begin: Instant,
    wall_offset_ms: AtomicI64,
    boot_permille: AtomicU64,
}

impl MachineTime {
    /// Clocks that are right.
    #[must_use]
    pub fn new(begin: Instant) -> Self {
        Self { begin, wall_offset_ms: AtomicI64::new(0), boot_permille: AtomicU64::new(1000) }
    }

    /// Sets the wall clock so far ahead of the true time.
    pub fn set_wall(&self, offset_ms: i64) {
        self.wall_offset_ms.store(offset_ms, Ordering::Relaxed);
    }

    /// Has the boot clock run at this rate from the beginning. To be set before anything reads it.
    pub fn set_rate(&self, permille: u64) {
        self.boot_permille.store(permille, Ordering::Relaxed);
    }
}

impl TimeSource for MachineTime {
    fn wall_ms(&self) -> u64 {
        true_ms(self.begin.elapsed()).saturating_add_signed(self.wall_offset_ms.load(Ordering::Relaxed))
    }

    fn boot(&self) -> Duration {
        let permille = u32::try_from(self.boot_permille.load(Ordering::Relaxed)).expect("near a thousand");
        self.begin.elapsed() * permille / 1000
    }
}
