//! When to ask the replicas that were not asked first, and how often that may happen.
//!
//! Dean and Barroso, "The Tail at Scale" (2013): the second request goes out after about the 95th
//! percentile of recent answers, so that it adds a twentieth of the load at most; a budget makes that
//! hold when everything is slow at once. A peer that has stopped answering is another matter: what it
//! makes necessary is not limited.

use std::cell::Cell;
use std::time::Duration;

/// The share of answers that come before the delay, in thousandths.
const PERCENTILE: u32 = 950;
/// The delay before anything was measured.
const DELAY_FIRST_US: u32 = 20_000;
/// Never less: the timer's grain.
const DELAY_MIN_US: u32 = 1_000;
/// Hedges that may be saved up for a burst.
const BURST: u32 = 100;
/// What one hedge costs, so that a percent is a whole number.
const COST: u32 = 100;

/// Delay and budget of one shard.
pub struct Hedging {
    /// A running estimate of the percentile, in microseconds.
    delay_us: Cell<u32>,
    tokens: Cell<u32>,
    budget_percent: u32,
    delay_max_us: u32,
}

impl Hedging {
    /// `budget_percent` of all reads may be hedged; the delay stays under `delay_max`.
    #[must_use]
    pub fn new(budget_percent: u32, delay_max: Duration) -> Self {
        let delay_max_us = u32::try_from(delay_max.as_micros()).unwrap_or(u32::MAX).max(DELAY_MIN_US);
        Self {
            delay_us: Cell::new(DELAY_FIRST_US.min(delay_max_us)),
            tokens: Cell::new(BURST * COST),
            budget_percent,
            delay_max_us,
        }
    }

    /// How long to wait for the replicas that were asked first.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_micros(u64::from(self.delay_us.get()))
    }

    /// Takes the time of one answer: the estimate moves up by much or down by little, in the proportion
    /// that balances at the percentile (Robbins and Monro, 1951).
    pub fn note(&self, took: Duration) {
        let took_us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let delay = self.delay_us.get();
        let step = delay / 64 + 1;
        let moved = if took_us > delay {
            delay.saturating_add((step * PERCENTILE).div_ceil(1000))
        } else {
            delay.saturating_sub(((step * (1000 - PERCENTILE) + 500) / 1000).max(1))
        };
        self.delay_us.set(moved.clamp(DELAY_MIN_US, self.delay_max_us));
    }

    /// Every read earns its share of a hedge.
    pub fn earn(&self) {
        self.tokens.set((self.tokens.get() + self.budget_percent).min(BURST * COST));
    }

    /// Whether the budget has a hedge left.
    #[must_use]
    pub fn can_spend(&self) -> bool {
        self.tokens.get() >= COST
    }

    /// Takes one hedge out of the budget.
    pub fn spend(&self) {
        self.tokens.set(self.tokens.get().saturating_sub(COST));
    }
}

#[cfg(test)]
mod tests {
    use crate::coordinator::hedge::*;

    #[test]
    fn the_delay_settles_near_the_95th_percentile() {
        let hedging = Hedging::new(5, Duration::from_secs(1));
        // 0 to 100 ms, evenly, in a scrambled order.
        for i in 0..200_000_u64 {
            hedging.note(Duration::from_micros(i * 7919 % 100_000));
        }
        let delay = hedging.delay();
        assert!((Duration::from_millis(85)..Duration::from_millis(105)).contains(&delay), "{delay:?}");
    }

    #[test]
    fn the_delay_stays_within_its_bounds() {
        let hedging = Hedging::new(5, Duration::from_millis(50));
        (0..10_000).for_each(|_| hedging.note(Duration::from_secs(9)));
        assert_eq!(hedging.delay(), Duration::from_millis(50));
        (0..100_000).for_each(|_| hedging.note(Duration::ZERO));
        assert_eq!(hedging.delay(), Duration::from_millis(1));
    }

    #[test]
    fn the_budget_is_a_share_of_the_reads() {
        let hedging = Hedging::new(5, Duration::from_secs(1));
        while hedging.can_spend() {
            hedging.spend();
        }
        let mut spent = 0;
        for _ in 0..10_000 {
            hedging.earn();
            if hedging.can_spend() {
                hedging.spend();
                spent += 1;
            }
        }
        assert_eq!(spent, 500);
    }
}
