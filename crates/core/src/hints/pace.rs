//! How fast bulk traffic goes to one node: so many bytes a second, half as many where its answers take longer than
//! they did, and slowly more again.

use std::time::Duration;

/// The rate is changed at most so often.
const STEP: Duration = Duration::from_millis(100);
/// Each step without trouble adds this part of the greatest rate.
const STEPS_TO_FULL: u64 = 32;
/// The rate never falls below this part of the greatest.
const SLOWEST: u64 = 64;
/// An answer is late if it takes more than `LATE` times the usual latency and `ALWAYS`, which a slow disk may always
/// take.
const LATE: u32 = 4;
const ALWAYS: Duration = Duration::from_millis(25);
/// The usual latency follows a smaller one at once, and a greater one by this part each time.
const FOLLOW: u32 = 64;
/// As much as this may go at once, after a pause.
const BURST: Duration = Duration::from_millis(100);

/// The rate to one node. Times are readings of a clock that never goes back.
#[derive(Clone, Debug)]
pub struct SendPace {
    rate_max: u64,
    rate: u64,
    /// When what was sent so far will have gone, at the rate.
    next: Duration,
    changed: Duration,
    usual: Option<Duration>,
}

impl SendPace {
    /// At most `rate_max` bytes a second, one at least.
    #[must_use]
    pub fn new(rate_max: u64) -> Self {
        let rate_max = rate_max.max(1);
        Self { rate_max, rate: rate_max, next: Duration::ZERO, changed: Duration::ZERO, usual: None }
    }

    /// Bytes a second now.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Takes the room for `bytes`; how long to wait before they are sent.
    pub fn take(&mut self, now: Duration, bytes: usize) -> Duration {
        let begin = self.next.max(now.saturating_sub(BURST));
        let micros = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(1_000_000) / self.rate;
        self.next = begin.saturating_add(Duration::from_micros(micros));
        begin.saturating_sub(now)
    }

    /// Takes the room for `bytes` if there is some now.
    pub fn try_take(&mut self, now: Duration, bytes: usize) -> bool {
        let has_room = self.next <= now;
        if has_room {
            self.take(now, bytes);
        }
        has_room
    }

    /// An answer took `latency`: of a page of hints, from when the last was sent to the last answer.
    pub fn note(&mut self, now: Duration, latency: Duration) {
        let usual = *self.usual.get_or_insert(latency);
        self.usual = Some(latency.min(usual + usual / FOLLOW));
        if latency > usual * LATE + ALWAYS {
            self.slow_down(now);
        } else if now.saturating_sub(self.changed) >= STEP {
            self.changed = now;
            self.rate = (self.rate + self.rate_max.div_ceil(STEPS_TO_FULL)).min(self.rate_max);
        }
    }

    /// The node is late, or refuses: half the rate.
    pub fn slow_down(&mut self, now: Duration) {
        if now.saturating_sub(self.changed) >= STEP {
            self.changed = now;
            self.rate = (self.rate / 2).max(self.rate_max / SLOWEST).max(1);
        }
    }
}
