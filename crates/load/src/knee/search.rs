//! The search for the highest rate that is sustained: pure, fed with how probes went.
//!
//! Doubles from a first rate until one fails, then bisects to 5 %, then confirms at full length. One failure proves
//! nothing on a busy machine: a probe fails if it fails twice in a row, and the knee holds if two of at most three
//! full-length probes pass; else it is looked for 5 % lower.

use crate::numbers::{float, whole};

/// Where the search begins.
const FIRST: u64 = 1_000;
/// The lowest rate that is tried.
const LEAST: u64 = 10;
/// How close the highest good and the lowest bad rate must be.
const PRECISION: f64 = 1.05;
const CONFIRMATIONS: u32 = 2;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A short probe at this rate.
    Probe(u64),
    /// One of full length.
    Confirm(u64),
    /// The knee; none if not even the lowest rate is sustained.
    Done(Option<u64>),
}

/// What is known so far.
#[derive(Clone, Debug, Default)]
pub struct Search {
    good: Option<u64>,
    bad: Option<u64>,
    /// Failures in a row at the rate that is probed.
    failures: u32,
    confirmed: u32,
    refuted: u32,
}

impl Search {
    /// What to do next; the same until something is told.
    #[must_use]
    pub fn next(&self) -> Step {
        match (self.good, self.bad) {
            (None, None) => Step::Probe(FIRST),
            (Some(good), None) => Step::Probe(good.saturating_mul(2)),
            (None, Some(bad)) if bad <= LEAST => Step::Done(None),
            (None, Some(bad)) => Step::Probe((bad / 2).max(LEAST)),
            (Some(good), Some(_)) if self.confirmed >= CONFIRMATIONS => Step::Done(Some(good)),
            (Some(good), Some(bad)) if float(bad) <= float(good) * PRECISION || bad <= good + 1 => Step::Confirm(good),
            (Some(good), Some(bad)) => Step::Probe(middle(good, bad)),
        }
    }

    /// How the step that [`Search::next`] gave went.
    pub fn tell(&mut self, passed: bool) {
        match self.next() {
            Step::Probe(rate) if passed => {
                self.good = Some(rate);
                self.failures = 0;
            }
            Step::Probe(rate) => {
                self.failures += 1;
                if self.failures == 2 {
                    self.bad = Some(rate);
                    self.failures = 0;
                }
            }
            Step::Confirm(_) if passed => self.confirmed += 1,
            Step::Confirm(rate) => {
                self.refuted += 1;
                if self.refuted == 2 {
                    self.step_down(rate);
                }
            }
            Step::Done(_) => {}
        }
    }

    /// The highest rate that passed so far.
    #[must_use]
    pub fn best(&self) -> Option<u64> {
        self.good
    }

    /// The rate did not hold: 5 % lower, which is confirmed at once.
    fn step_down(&mut self, rate: u64) {
        let lower = rounded(float(rate) / PRECISION).min(rate.saturating_sub(1));
        self.bad = Some(rate);
        self.good = (lower >= LEAST).then_some(lower);
        (self.confirmed, self.refuted) = (0, 0);
    }
}

/// Between the two, on a logarithmic scale.
fn middle(good: u64, bad: u64) -> u64 {
    rounded((float(good) * float(bad)).sqrt()).clamp(good + 1, bad - 1)
}

/// Three digits are enough.
fn rounded(rate: f64) -> u64 {
    let unit = 10_f64.powf((rate.log10().floor() - 2.0).max(0.0));
    whole((rate / unit).round() * unit)
}

#[cfg(test)]
mod tests {
    use super::{Search, Step};
    use crate::numbers::float;
    use crate::random::Random;

    /// Searches a server that sustains `knee`, where some probes fail by chance; the knee and the number of probes.
    fn search(knee: u64, chance: f64, random: &mut Random) -> (Option<u64>, u32) {
        let mut search = Search::default();
        for probes in 0..200 {
            match search.next() {
                Step::Done(found) => return (found, probes),
                Step::Probe(rate) | Step::Confirm(rate) => search.tell(rate <= knee && random.unit() >= chance),
            }
        }
        panic!("the search for {knee} does not end");
    }

    #[test]
    fn the_knee_is_found_within_five_percent() {
        let mut random = Random::new(1);
        for knee in [11, 100, 999, 1_000, 31_500, 70_000, 1_000_000, 12_345_678] {
            let (found, probes) = search(knee, 0.0, &mut random);
            let found = found.unwrap();
            assert!(found <= knee && float(knee) <= float(found) * 1.06 + 1.0, "{found} for {knee}");
            assert!(probes < 35, "{probes} probes for {knee}");
        }
    }

    #[test]
    fn a_probe_that_fails_by_chance_does_not_end_the_search() {
        let mut random = Random::new(2);
        let near =
            (0..200).filter(|_| search(20_000, 0.05, &mut random).0.is_some_and(|found| found >= 17_000)).count();
        assert!(near >= 185, "{near} of 200");
    }

    #[test]
    fn what_sustains_nothing_has_no_knee() {
        assert_eq!(search(0, 0.0, &mut Random::new(3)).0, None);
    }

    #[test]
    fn a_rate_that_does_not_hold_at_full_length_is_lowered() {
        let mut search = Search::default();
        // Short probes pass up to 10,000/s, long ones up to 8,000/s.
        loop {
            match search.next() {
                Step::Probe(rate) => search.tell(rate <= 10_000),
                Step::Confirm(rate) => search.tell(rate <= 8_000),
                Step::Done(found) => {
                    assert!((7_200..=8_000).contains(&found.unwrap()), "{found:?}");
                    return;
                }
            }
        }
    }
}
