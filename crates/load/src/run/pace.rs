//! When requests are due: arithmetic over an origin, so that no queue of due requests is ever held.

use std::time::{Duration, Instant};

use crate::numbers::index;

const SECOND: u128 = 1_000_000_000;

/// How many requests a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Open loop: due at constant intervals, over all threads.
    PerSecond(u64),
    /// Closed loop: each connection sends its next request when an answer came.
    Max,
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<u64>() {
            _ if text == "max" => Ok(Self::Max),
            Ok(rate @ 1..=100_000_000) => Ok(Self::PerSecond(rate)),
            _ => Err(format!("`{text}` is not a number of requests a second from 1 to 100000000, or `max`")),
        }
    }
}

/// The due times of one thread: every `threads`-th of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DueTimes {
    origin: Instant,
    per_second: u64,
    thread: u64,
    threads: u64,
    next: u64,
}

impl DueTimes {
    pub(crate) fn new(origin: Instant, per_second: u64, thread: u64, threads: u64) -> Self {
        assert!(per_second > 0 && thread < threads, "a rate over 0 and one of the threads");
        Self { origin, per_second, thread, threads, next: 0 }
    }

    /// When the next request is due.
    pub(crate) fn due(&self) -> Instant {
        let number = u128::from(self.next) * u128::from(self.threads) + u128::from(self.thread);
        let nanos = number * SECOND / u128::from(self.per_second);
        self.origin + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The next request has been sent.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// How many of this thread's requests are due before `end` and have not been sent.
    pub(crate) fn unsent(&self, end: Instant) -> u64 {
        let nanos = end.saturating_duration_since(self.origin).as_nanos();
        // All numbers whose due time, rounded down, is before the end.
        let due = (nanos * u128::from(self.per_second)).div_ceil(SECOND);
        let mine = due.saturating_sub(u128::from(self.thread)).div_ceil(u128::from(self.threads));
        u64::try_from(mine).unwrap_or(u64::MAX).saturating_sub(self.next)
    }
}

/// Between two wake-ups of a thread by its timer. Each costs it a few microseconds, and 20 to 30 where a hypervisor
/// keeps the time (decision 0052).
const ALARM_INTERVAL: Duration = Duration::from_micros(200);

/// When a thread may have its timer wake it: rates of up to 1/[`ALARM_INTERVAL`] keep to the nanosecond, and what is
/// due sooner than that after an alarm goes out with the next one, or with whatever else wakes the thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alarm {
    earliest: Instant,
}

impl Alarm {
    pub(crate) fn new(now: Instant) -> Self {
        Self { earliest: now }
    }

    /// When to sleep until for something that is to be done at `due`: then, within an interval of the `end`, after
    /// which nothing is sent.
    pub(crate) fn at(&self, due: Instant, end: Instant) -> Instant {
        if due + ALARM_INTERVAL < end { due.max(self.earliest) } else { due }
    }

    /// The timer that was set to `at` has woken the thread, then or later.
    pub(crate) fn note(&mut self, at: Instant) {
        self.earliest = at + ALARM_INTERVAL;
    }
}

/// The span of whole seconds since `begin`.
pub(crate) fn second(begin: Instant, now: Instant) -> usize {
    index(now.saturating_duration_since(begin).as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{ALARM_INTERVAL, Alarm, DueTimes, Rate};

    #[test]
    fn requests_are_due_at_constant_intervals() {
        let origin = Instant::now();
        let mut pace = DueTimes::new(origin, 3, 0, 1);
        let mut dues = Vec::new();
        for _ in 0..7 {
            dues.push(pace.due().duration_since(origin).as_millis());
            pace.advance();
        }
        assert_eq!(dues, [0, 333, 666, 1000, 1333, 1666, 2000]);
    }

    #[test]
    fn threads_take_turns_and_together_send_all() {
        let origin = Instant::now();
        for (rate, threads, millis) in [(1000, 1, 1000), (1000, 3, 1000), (7, 4, 1500), (1, 2, 10), (150_000, 2, 3000)]
        {
            let end = origin + Duration::from_millis(millis);
            let mut dues = Vec::new();
            for thread in 0..threads {
                let mut pace = DueTimes::new(origin, rate, thread, threads);
                let unsent = pace.unsent(end);
                while pace.due() < end {
                    dues.push(pace.due());
                    pace.advance();
                }
                assert_eq!(unsent, pace.next, "{rate}/s, thread {thread} of {threads}");
                assert_eq!(pace.unsent(end), 0);
            }
            dues.sort_unstable();
            assert_eq!(u64::try_from(dues.len()).unwrap(), (rate * millis).div_ceil(1000));
            assert!(dues.windows(2).all(|two| two[1] > two[0]));
        }
    }

    /// Sleeps from one request to the next, sends what is due, and gives how late each of a thousand was.
    fn lateness(rate: u64) -> Vec<Duration> {
        let origin = Instant::now();
        let end = origin + Duration::from_nanos(1_000_000_000_000 / rate);
        let mut pace = DueTimes::new(origin, rate, 0, 1);
        let mut alarm = Alarm::new(origin);
        let mut late = Vec::new();
        while pace.due() < end {
            let now = alarm.at(pace.due(), end);
            assert!(now < end, "{} would never be sent at {rate}/s", pace.unsent(end));
            alarm.note(now);
            while pace.due() <= now {
                late.push(now - pace.due());
                pace.advance();
            }
        }
        late
    }

    #[test]
    fn a_rate_that_the_timer_can_follow_has_every_request_sent_when_it_is_due() {
        assert!([1, 100, 5000].into_iter().flat_map(lateness).all(|late| late.is_zero()));
    }

    #[test]
    fn a_higher_rate_has_requests_sent_together_and_none_later_than_an_interval() {
        for rate in [5001, 23_000, 150_000] {
            let late = lateness(rate);
            // Those of the last interval are exact.
            let late = late.get(..late.len() - 2 - usize::try_from(rate / 5000).unwrap()).unwrap();
            let alarms = late.iter().filter(|late| late.as_nanos() * u128::from(rate) < 1_000_000_000).count();
            assert!(alarms <= 1001 * 5000 / usize::try_from(rate).unwrap() + 2, "{alarms} alarms at {rate}/s");
            assert!(late.iter().all(|late| *late < ALARM_INTERVAL));
        }
    }

    #[test]
    fn a_rate_is_a_number_or_max() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("5000".parse(), Ok(Rate::PerSecond(5000)));
        assert!(["0", "-1", "many", "", "1e9", "1000000000"].iter().all(|bad| bad.parse::<Rate>().is_err()));
    }
}
