//! What a thread of the generator costs, and what the machine was not given.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::record::Tally;

/// How often a reading is taken that the system interrupts.
const READS_MAX: usize = 16;

/// How long the calling thread was ready and had no processor.
fn kept_waiting() -> Option<Duration> {
    // Nanoseconds on a processor, nanoseconds ready and waiting for one, turns.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

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
        let mut now = Self { kept_waiting: kept_waiting(), ..Self::default() };
        for _ in 0..READS_MAX {
            (now.time, now.busy) = (read(ClockId::Monotonic), read(ClockId::ThreadCPUTime));
            let before = std::mem::replace(&mut now.kept_waiting, kept_waiting());
            if before == now.kept_waiting {
                break;
            }
            // It lost its processor in the middle: the clock would not have that wait, and the other number would.
        }
        now
    }

    /// What was spent since.
    pub(super) fn until_now(self) -> Self {
        Self::now().since(self)
    }

    fn since(self, then: Self) -> Self {
        let waited = self.kept_waiting.zip(then.kept_waiting);
        Self {
            time: self.time.saturating_sub(then.time),
            busy: self.busy.saturating_sub(then.busy),
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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// A thread that only takes readings, and loses its processor in the middle of nearly all of them.
    #[test]
    fn a_wait_in_the_middle_of_a_reading_is_in_all_of_it_or_in_nothing() {
        if kept_waiting().is_none() {
            return eprintln!("SKIPPED: this system does not show how long a thread waits for a processor");
        }
        let is_over = &AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 * thread::available_parallelism().unwrap().get() {
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let (begin, mut last) = (Instant::now(), ThreadCost::now());
            let (mut waited, mut torn) = (Duration::ZERO, Duration::ZERO);
            while waited < Duration::from_millis(300) && begin.elapsed() < Duration::from_secs(20) {
                let now = ThreadCost::now();
                let cost = now.since(last);
                waited += cost.kept_waiting.unwrap();
                torn += cost.time.abs_diff(cost.busy + cost.kept_waiting.unwrap());
                last = now;
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(waited > Duration::ZERO && torn < waited / 2, "{torn:?} of {waited:?}");
        });
    }

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
