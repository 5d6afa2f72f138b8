//! Faults that a node is given while it runs, for the failure lab of `kvorum dev`: it answers late, its clock is wrong.
//! A node that is no part of one has no [`Faults`], and pays nothing for them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{SystemTime, TimeSource};

/// The longest delay, in milliseconds: a client gives up, or a connection is closed, for less than a half more.
pub const SLOW_MS_MAX: u64 = 10_000;
/// The most that a clock is wrong, in seconds, either way.
pub const SKEW_S_MAX: i64 = 3_600;

/// What is wrong with a node at present.
#[derive(Debug, Default)]
pub struct Faults {
    slow_ms: AtomicU64,
    skew_s: AtomicI64,
}

/// An order was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoOrder;

impl fmt::Display for NoOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "orders are `slow MS`, 0 to {SLOW_MS_MAX}, and `skew SECONDS`, -{SKEW_S_MAX} to {SKEW_S_MAX}")
    }
}

impl std::error::Error for NoOrder {}

impl Faults {
    /// Takes an order: `slow MS` or `skew SECONDS`, of which 0 undoes.
    ///
    /// # Errors
    /// [`NoOrder`]; then nothing has changed.
    pub fn obey(&self, line: &str) -> Result<(), NoOrder> {
        match line.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
            ["slow", ms] => {
                let ms = ms.parse().ok().filter(|ms| *ms <= SLOW_MS_MAX).ok_or(NoOrder)?;
                self.slow_ms.store(ms, Ordering::Relaxed);
            }
            ["skew", seconds] => {
                let allowed = |seconds: &i64| (-SKEW_S_MAX..=SKEW_S_MAX).contains(seconds);
                let seconds = seconds.parse().ok().filter(allowed).ok_or(NoOrder)?;
                self.skew_s.store(seconds, Ordering::Relaxed);
            }
            _ => return Err(NoOrder),
        }
        Ok(())
    }

    /// By how much what leaves the node is late, if it is.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        let ms = self.slow_ms.load(Ordering::Relaxed);
        (ms > 0).then(|| Duration::from_millis(ms))
    }
}

/// The operating system's clocks, with the wall clock as wrong as it was ordered.
#[derive(Clone, Debug)]
pub struct SkewedTime(pub Arc<Faults>);

impl TimeSource for SkewedTime {
    fn wall_ms(&self) -> u64 {
        SystemTime.wall_ms().saturating_add_signed(self.0.skew_s.load(Ordering::Relaxed) * 1000)
    }

    fn boot(&self) -> Duration {
        SystemTime.boot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_obeyed_within_their_bounds_and_others_change_nothing() {
        let faults = Faults::default();
        assert_eq!((faults.obey("slow 200"), faults.delay()), (Ok(()), Some(Duration::from_millis(200))));
        for bad in
            ["", "slow", "slow -1", "slow 10001", "slow 1 2", "slow x", "skew", "skew 3601", "skew -3601", "stop"]
        {
            assert_eq!(faults.obey(bad), Err(NoOrder), "{bad}");
        }
        assert_eq!(faults.delay(), Some(Duration::from_millis(200)));
        assert_eq!((faults.obey("slow 0"), faults.delay()), (Ok(()), None));
    }

    #[test]
    fn the_wall_clock_is_as_wrong_as_it_was_ordered_and_deadlines_are_not() {
        let faults = Arc::new(Faults::default());
        let time = SkewedTime(faults.clone());
        let off = || i64::try_from(time.wall_ms()).unwrap() - i64::try_from(SystemTime.wall_ms()).unwrap();
        for (order, ms) in [("skew -3600", -3_600_000), ("skew 30", 30_000), ("skew 0", 0)] {
            faults.obey(order).unwrap();
            assert!((off() - ms).abs() < 1000, "{order}: {}", off());
        }
        assert!(time.boot().abs_diff(SystemTime.boot()) < Duration::from_secs(1));
    }
}
