//! Requests without an answer yet. They show that a peer, or this node's own disk, has stopped answering.

use std::cell::Cell;
use std::time::Duration;

/// Those of one shard to one replica.
#[derive(Debug, Default)]
pub struct Outstanding {
    count: Cell<u32>,
    /// When the oldest was sent, or the last was answered, whichever is later.
    since: Cell<Duration>,
}

impl Outstanding {
    /// One more is sent, `now` since boot: the clock is read where no other is unanswered.
    pub fn asked(&self, now: impl FnOnce() -> Duration) {
        if self.count.get() == 0 {
            self.since.set(now());
        }
        self.count.set(self.count.get() + 1);
    }

    /// One of them is answered.
    pub fn answered(&self, now: Duration) {
        self.count.set(self.count.get().saturating_sub(1));
        self.since.set(now);
    }

    /// None will be answered.
    pub fn forget(&self) {
        self.count.set(0);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.get()
    }

    /// Whether one has gone unanswered for longer than `delay`, and no other was answered meanwhile.
    #[must_use]
    pub fn is_overdue(&self, now: Duration, delay: Duration) -> bool {
        self.count.get() > 0 && now.saturating_sub(self.since.get()) > delay
    }
}
