//! Hellos of one peer, whichever shard took them: they show every shard at once that the peer is there again.
//!
//! Two nodes whose dials fail behind the handshake would call each other without a pause. So a hello counts once for
//! each run of the peer, and again only after an interval.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_base::sync::Mutex;
use kvorum_storage::data_dir::RunId;
use tokio::sync::Notify;

/// The hellos of a peer so far, to compare with later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloSeen {
    /// Hellos that counted.
    pub count: u64,
    /// The run of the last of them.
    pub run: Option<RunId>,
}

/// The hellos of one peer.
#[derive(Default)]
pub struct Hellos {
    /// Written under the lock of `last`.
    count: AtomicU64,
    /// The run of the last one that counted, and when, since boot.
    last: Mutex<Option<(RunId, Duration)>>,
    said: Notify,
}

impl Hellos {
    /// A hello of the peer's run `run` has come at `now`. It does not count within `interval` of another of the same
    /// run.
    pub fn note(&self, run: RunId, now: Duration, interval: Duration) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|(known, at)| known == run && now < at + interval) {
            return;
        }
        *last = Some((run, now));
        self.count.fetch_add(1, Ordering::Release);
        drop(last);
        self.said.notify_waiters();
    }

    /// How many have counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// How many have counted, and the run of the last of these.
    #[must_use]
    pub fn heard(&self) -> HelloSeen {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        HelloSeen { count: self.count(), run: last.map(|(run, _)| run) }
    }

    /// Waits until not just `count` have counted. Cancel safe.
    pub async fn until_more_than(&self, count: u64) {
        loop {
            let said = self.said.notified();
            if self.count() != count {
                return;
            }
            said.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::hellos::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_run_counts_at_once_and_again_only_after_the_interval() {
        let hellos = Hellos::default();
        let counts = [(1, 0), (1, 500), (2, 501), (2, 1500), (2, 1501), (1, 1502)].map(|(run, at_ms)| {
            hellos.note(RunId(run), Duration::from_millis(at_ms), SECOND);
            hellos.count()
        });
        assert_eq!(counts, [1, 1, 2, 2, 3, 4]);
        assert_eq!(hellos.heard(), HelloSeen { count: 4, run: Some(RunId(1)) });
    }
}
