//! What a thread of the generator costs, and what the machine was not given.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::record::Tally;

/// Processor time of the calling thread, and how long it was kept from running.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadCost {
    /// Of the clock. The time that it was to be asked for is another: a thread without a processor asks later.
    time: Duration,
    busy: Duration,
    kept_waiting: Option<Duration>,
}

impl ThreadCost {
    /// Since the thread began; its time since the machine did.
    pub(super) fn now() -> Self {
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        let (time, busy) = (read(ClockId::Monotonic), read(ClockId::ThreadCPUTime));
        // Nanoseconds on a processor, nanoseconds ready and waiting for one, turns.
        let waited = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let waited = waited.and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
        Self { time, busy, kept_waiting: waited.map(Duration::from_nanos) }
    }

    /// What was spent since.
    pub(super) fn until_now(self) -> Self {
        let now = Self::now();
        let waited = now.kept_waiting.zip(self.kept_waiting);
        Self {
            time: now.time.saturating_sub(self.time),
            busy: now.busy.saturating_sub(self.busy),
            kept_waiting: waited.map(|(now, then)| now.saturating_sub(then)),
        }
    }

    pub(super) fn store(self, tally: &mut Tally) {
        tally.thread_time = self.time;
        tally.busy = self.busy;
        tally.kept_waiting = self.kept_waiting;
    }
}

/// What the processors of this machine have done since it started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MachineTicks {
    all: u64,
    /// In which a virtual machine was ready to run and its host let others.
    stolen: u64,
}

impl MachineTicks {
    /// None where the system does not show it.
    pub(super) fn now() -> Option<Self> {
        Self::of(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// User, nice, system, idle, waiting for disks, two kinds of interrupts, stolen; guests, which are in user, follow.
    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|ticks| ticks.parse().ok()).collect();
        Some(Self { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }

    /// The stolen part of the time since, 1 for all of it.
    pub(super) fn stolen_until_now(self) -> Option<f64> {
        Self::now().map(|now| now.stolen_since(self))
    }

    /// The stolen part of the time since `then`, 1 for all of it.
    pub(super) fn stolen_since(self, then: Self) -> f64 {
        let of = |now: u64, then: u64| crate::numbers::float(now.saturating_sub(then));
        of(self.stolen, then.stolen) / of(self.all, then.all).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_part_of_all_processors_time() {
        let then = MachineTicks::of("cpu  100 5 50 800 10 0 5 30 7 0\ncpu0 1 2 3").unwrap();
        assert_eq!(then, MachineTicks { all: 1000, stolen: 30 });
        let now = MachineTicks::of("cpu  130 5 50 840 10 0 5 60 7 0\n").unwrap();
        assert!((now.stolen_since(then) - 0.3).abs() < 1e-9);
        assert_eq!(MachineTicks::of("cpu  1 2 3 4 5 6 7"), None, "a system that does not count it");
        assert!(MachineTicks::now().is_none_or(|ticks| ticks.stolen <= ticks.all));
    }
}
