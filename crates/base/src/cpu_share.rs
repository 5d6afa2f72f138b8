//! What work in the background takes of a core while requests come.
//!
//! A thread works, and then rests for so long that both together are its share. It does so while requests come and for
//! a second after the last: an idle node repairs as fast as it can. Time is real, so nothing of this is deterministic:
//! a simulation has [`CpuShare::whole`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::sync::Mutex;

/// How long after the last request there is still room for the next.
const QUIET: Duration = Duration::from_secs(1);
const WHOLE_PERCENT: u32 = 100;
/// Shorter rests of a task are saved up.
const TASK_REST_MIN: Duration = Duration::from_millis(5);

/// The share that each thread in the background has, of one core.
#[derive(Clone)]
pub struct CpuShare(Arc<ShareState>);

struct ShareState {
    /// Nothing where no thread rests.
    percent: Option<u32>,
    /// A request came since the last look.
    has_requests: AtomicBool,
    quiet_from: Mutex<Option<Instant>>,
}

/// What one thread works, and rests for it. Not for another thread: each has a clock of its own.
pub struct ThreadShare {
    share: CpuShare,
    /// Into how many equal parts the share is divided; this work has one.
    parts: u32,
    /// What the thread has had of the processor, up to where it has rested for it; nothing where it never rests.
    rested_for: Option<Duration>,
    saved_up: Duration,
}

impl CpuShare {
    /// `percent` of a core, from 1 to 100.
    #[must_use]
    pub fn new(percent: u32) -> Self {
        Self::of(Some(percent.clamp(1, WHOLE_PERCENT)))
    }

    /// All of it: no thread rests, and no clock is read.
    #[must_use]
    pub fn whole() -> Self {
        Self::of(None)
    }

    fn of(percent: Option<u32>) -> Self {
        Self(Arc::new(ShareState { percent, has_requests: AtomicBool::new(false), quiet_from: Mutex::default() }))
    }

    /// Notes that a request came, for others to make room for.
    pub fn note_request(&self) {
        // Many threads come here, and as good as always only read.
        if !self.0.has_requests.load(Ordering::Relaxed) {
            self.0.has_requests.store(true, Ordering::Relaxed);
        }
    }

    /// The calling thread begins to work.
    #[must_use]
    pub fn begin(&self) -> ThreadShare {
        self.begin_part(1)
    }

    /// The calling thread begins to work with one of so many equal parts of the share: for scans, or for the copies
    /// that a round of anti-entropy makes beside them. Nothing piles up behind these, as it does behind a flush.
    #[must_use]
    pub fn begin_part(&self, parts: u32) -> ThreadShare {
        let rested_for = self.0.percent.map(|_| cpu_time());
        ThreadShare { share: self.clone(), parts, rested_for, saved_up: Duration::ZERO }
    }

    /// What work that is paced by its cost is charged now, for what costs so much: while requests come as many times
    /// more as the share is smaller than a core.
    #[must_use]
    pub fn charge(&self, cost: usize) -> usize {
        match self.0.percent {
            Some(percent) if !self.is_quiet() => cost.saturating_mul(WHOLE_PERCENT as usize) / percent as usize,
            _ => cost,
        }
    }

    /// Whether no request came for a while.
    pub fn is_quiet(&self) -> bool {
        let now = Instant::now();
        let mut quiet_from = self.0.quiet_from.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.has_requests.swap(false, Ordering::Relaxed) {
            *quiet_from = Some(now + QUIET);
        }
        quiet_from.is_none_or(|from| from <= now)
    }
}

impl ThreadShare {
    /// For how long the thread is to rest for what it did since it was last asked; zero while no requests come.
    #[must_use]
    pub fn rest(&mut self) -> Duration {
        self.rest_with(0)
    }

    /// The same for work that has at least `least_percent` of a core, whatever its share is.
    #[must_use]
    pub fn rest_with(&mut self, least_percent: u32) -> Duration {
        let (Some(percent), Some(before)) = (self.share.0.percent, self.rested_for) else { return Duration::ZERO };
        let now = cpu_time();
        self.rested_for = Some(now);
        if self.share.is_quiet() {
            return Duration::ZERO;
        }
        let percent = percent.max(least_percent.saturating_mul(self.parts)).min(WHOLE_PERCENT * self.parts);
        now.saturating_sub(before) * (WHOLE_PERCENT * self.parts - percent) / percent
    }

    /// Rests, on a thread that may block.
    pub fn pause(&mut self) {
        let rest = self.rest();
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }

    /// Rests, in a task, whose thread may not block: what else runs on that thread counts as this work. Dropped, the
    /// rest is not made up for.
    pub async fn pause_task(&mut self) {
        let rest = self.rest();
        self.saved_up += rest;
        if self.saved_up >= TASK_REST_MIN {
            tokio::time::sleep(std::mem::take(&mut self.saved_up)).await;
        }
    }
}

/// Processor time that the calling thread has had.
#[must_use]
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::cpu_share::*;

    /// Has the calling thread work, and gives the moment at which it has.
    fn work_for(time: Duration) -> Instant {
        let begin = cpu_time();
        while cpu_time().saturating_sub(begin) < time {
            std::hint::spin_loop();
        }
        Instant::now()
    }

    const WORK: Duration = Duration::from_millis(10);

    #[test]
    fn while_requests_come_a_thread_rests_for_what_is_not_its_share() {
        let share = CpuShare::new(10);
        let mut work = share.begin();
        work_for(WORK);
        assert_eq!(work.rest(), Duration::ZERO, "nobody has asked");
        share.note_request();
        for _ in 0..2 {
            work_for(WORK);
            assert!(work.rest() >= 9 * WORK, "nor right after the last request");
        }
    }

    #[test]
    fn who_has_a_part_of_the_share_rests_for_the_other_parts_too() {
        for (percent, parts, least) in [(10, 2, 19 * WORK), (10, 4, 39 * WORK), (100, 2, WORK)] {
            let share = CpuShare::new(percent);
            let mut work = share.begin_part(parts);
            share.note_request();
            work_for(WORK);
            let rest = work.rest();
            assert!(rest >= least, "{rest:?} for one of {parts} parts of {percent} %");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn short_rests_of_a_task_are_saved_up() {
        let share = CpuShare::new(50);
        let mut work = share.begin();
        let (begin, mut worked) = (tokio::time::Instant::now(), Duration::ZERO);
        while begin.elapsed() == Duration::ZERO {
            share.note_request();
            worked += TASK_REST_MIN / 4;
            work_for(TASK_REST_MIN / 4);
            work.pause_task().await;
        }
        assert!(begin.elapsed() >= TASK_REST_MIN, "none is shorter");
        assert!(begin.elapsed() >= worked, "and none is lost: {:?} for {worked:?}", begin.elapsed());
    }

    #[test]
    fn who_has_the_whole_core_never_rests() {
        let (whole, all) = (CpuShare::whole(), CpuShare::new(100));
        for (share, mut work) in [(&whole, whole.begin()), (&whole, whole.begin_part(2)), (&all, all.begin())] {
            share.note_request();
            work_for(WORK);
            assert_eq!(work.rest(), Duration::ZERO);
        }
    }

    #[test]
    fn while_requests_come_what_is_paced_is_charged_as_much_more_as_the_share_is_smaller() {
        let share = CpuShare::new(10);
        assert_eq!(share.charge(7), 7, "nobody has asked");
        share.note_request();
        assert_eq!(share.charge(7), 70);
        let whole = CpuShare::whole();
        whole.note_request();
        assert_eq!(whole.charge(7), 7);
    }
}
