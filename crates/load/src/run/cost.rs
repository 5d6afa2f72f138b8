//! What a thread of the generator costs.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::record::Tally;

/// Processor time of the calling thread, and how long it was kept from running.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadCost {
    busy: Duration,
    kept_waiting: Option<Duration>,
}

impl ThreadCost {
    /// Since the thread began.
    pub(super) fn now() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let busy = Duration::try_from(time).unwrap_or_default();
        // Nanoseconds on a processor, nanoseconds ready and waiting for one, turns.
        let waited = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let waited = waited.and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
        Self { busy, kept_waiting: waited.map(Duration::from_nanos) }
    }

    /// What was spent since.
    pub(super) fn until_now(self) -> Self {
        let now = Self::now();
        let waited = now.kept_waiting.zip(self.kept_waiting);
        Self {
            busy: now.busy.saturating_sub(self.busy),
            kept_waiting: waited.map(|(now, then)| now.saturating_sub(then)),
        }
    }

    pub(super) fn store(self, tally: &mut Tally) {
        tally.busy = self.busy;
        tally.kept_waiting = self.kept_waiting;
    }
}
