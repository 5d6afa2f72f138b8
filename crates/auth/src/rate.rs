//! A rate limit in one atomic: the generic cell rate algorithm (ITU-T I.371, the virtual scheduling algorithm).
//!
//! The atomic holds the theoretical arrival time: when all that was taken is paid for at the limit's rate. A request
//! passes while that time is at most a second ahead. What passes is added whatever its size, so a value larger than a
//! second's worth passes as well, and those after it wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What may be saved up: a second's worth.
const BURST: Duration = Duration::from_secs(1);
const SECOND_NS: u128 = 1_000_000_000;

/// Units a second, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRate(u64);

impl LimitRate {
    /// `None` for zero, which would never let anything pass.
    #[must_use]
    pub fn per_second(units: u64) -> Option<Self> {
        (units > 0).then_some(Self(units))
    }

    /// Units a second.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// How much of a [`LimitRate`] is used.
#[derive(Debug, Default)]
pub struct Meter {
    /// Nanoseconds on the caller's clock.
    paid_until: AtomicU64,
}

impl Meter {
    /// Takes `units`, at `now` on a clock that never steps back.
    ///
    /// # Errors
    /// How long until something passes again, if more than a second's worth is taken already. Nothing is taken then.
    pub fn take(&self, rate: LimitRate, now: Duration, units: u64) -> Result<(), Duration> {
        let now = nanoseconds(now);
        let limit = now.saturating_add(nanoseconds(BURST));
        let next =
            |paid_until: u64| (paid_until <= limit).then(|| paid_until.max(now).saturating_add(cost(rate, units)));
        match self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(()),
            Err(paid_until) => Err(Duration::from_nanos(paid_until - limit)),
        }
    }

    /// Takes `units` that were used already: what a request turned out to need.
    pub fn charge(&self, rate: LimitRate, now: Duration, units: u64) {
        let now = nanoseconds(now);
        let next = |paid_until: u64| Some(paid_until.max(now).saturating_add(cost(rate, units)));
        let _previous = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The time that `units` last at the rate.
fn cost(rate: LimitRate, units: u64) -> u64 {
    u64::try_from(u128::from(units) * SECOND_NS / u128::from(rate.0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{LimitRate, Meter};

    const MS: Duration = Duration::from_millis(1);

    fn rate(units: u64) -> LimitRate {
        LimitRate::per_second(units).unwrap()
    }

    #[test]
    fn a_second_s_worth_passes_at_once_and_then_the_rate() {
        let meter = Meter::default();
        let now = Duration::from_secs(100);
        // The first finds nothing taken, and the last finds exactly a second's worth.
        assert_eq!((0..20).filter(|_| meter.take(rate(10), now, 1).is_ok()).count(), 11);
        assert_eq!(meter.take(rate(10), now, 1), Err(100 * MS));
        assert_eq!(meter.take(rate(10), now + 100 * MS, 1), Ok(()));
        assert!(meter.take(rate(10), now + 100 * MS, 1).is_err());
    }

    #[test]
    fn what_is_larger_than_a_second_s_worth_passes_and_is_paid_for_after() {
        let meter = Meter::default();
        assert_eq!(meter.take(rate(1000), Duration::ZERO, 8000), Ok(()));
        assert_eq!(meter.take(rate(1000), Duration::ZERO, 1), Err(Duration::from_secs(7)));
        assert_eq!(meter.take(rate(1000), Duration::from_secs(7), 1), Ok(()));
        meter.charge(rate(1000), Duration::from_secs(7), 4000);
        assert_eq!(meter.take(rate(1000), Duration::from_secs(7), 1), Err(4000 * MS + MS));
    }

    proptest! {
        /// Whatever the requests, no more passes than the rate, a second's worth, and the largest request.
        #[test]
        fn no_more_passes_than_the_rate(
            per_second in 1_u64..1000, requests in proptest::collection::vec((0_u64..300, 1_u64..500), 1..100)
        ) {
            let (meter, mut now, mut passed, mut largest) = (Meter::default(), Duration::ZERO, 0, 0);
            for (pause, units) in requests {
                now += Duration::from_millis(pause);
                if meter.take(rate(per_second), now, units).is_ok() {
                    passed += units;
                    largest = largest.max(units);
                }
                let bound = (u64::try_from(now.as_millis()).unwrap() + 1000) * per_second / 1000 + 1;
                prop_assert!(passed <= largest + bound);
            }
        }
    }
}
