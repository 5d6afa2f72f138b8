//! The search for the rate that is sustained for long, from the burst knee downward: pure, fed with how runs went.
//!
//! Halves the rate until one passes, bisects between the highest that passed and the lowest that failed to 10 %, and
//! confirms. A confirmation is longer than a probe and may find what that could not: then the next is 10 % lower.

use super::search::{LEAST, SearchStep, middle, rounded};
use crate::numbers::float;

/// How close the highest good and the lowest bad rate must be.
const PRECISION: f64 = 1.1;
/// What is confirmed after a confirmation that failed is this part of it.
const LOWER: f64 = 0.9;
/// Confirmations at most.
const CONFIRMATIONS_MAX: u32 = 4;

/// What is known so far.
#[derive(Clone, Debug)]
pub(super) struct Descent {
    first: u64,
    good: Option<u64>,
    bad: Option<u64>,
    refuted: u32,
    is_confirmed: bool,
}

impl Descent {
    /// From a rate that is sustained for seconds.
    pub(super) fn new(burst_knee: u64) -> Self {
        Self { first: burst_knee, good: None, bad: None, refuted: 0, is_confirmed: false }
    }

    /// What to do next; the same until the next result.
    pub(super) fn next(&self) -> SearchStep {
        match (self.good, self.bad) {
            (Some(good), _) if self.is_confirmed => SearchStep::Done(Some(good)),
            _ if self.refuted >= CONFIRMATIONS_MAX => SearchStep::Done(None),
            (Some(good), _) if self.refuted > 0 => SearchStep::Confirm(good),
            (Some(good), Some(bad)) if bad > rounded(float(good) * PRECISION).max(good + 1) => {
                SearchStep::Probe(middle(good, bad))
            }
            (Some(good), _) => SearchStep::Confirm(good),
            (None, None) => SearchStep::Probe(self.first),
            (None, Some(bad)) if bad <= LEAST => SearchStep::Done(None),
            (None, Some(bad)) => SearchStep::Probe((bad / 2).max(LEAST)),
        }
    }

    /// How the step that [`Descent::next`] gave went.
    pub(super) fn tell(&mut self, passed: bool) {
        match self.next() {
            SearchStep::Probe(rate) if passed => self.good = Some(rate),
            SearchStep::Probe(rate) => self.bad = Some(rate),
            SearchStep::Confirm(_) if passed => self.is_confirmed = true,
            SearchStep::Confirm(rate) => {
                self.refuted += 1;
                let lower = rounded(float(rate) * LOWER).min(rate.saturating_sub(1));
                (self.good, self.bad) = ((lower >= LEAST).then_some(lower), Some(LEAST));
            }
            SearchStep::Done(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Descent, SearchStep};
    use crate::numbers::float;

    /// Descends where probes pass up to one rate and confirmations up to another; what was found, and what was tried.
    fn descend(burst: u64, probes_to: u64, confirmed_to: u64) -> (Option<u64>, Vec<SearchStep>) {
        let mut descent = Descent::new(burst);
        let mut tried = Vec::new();
        for _ in 0..50 {
            let step = descent.next();
            match step {
                SearchStep::Done(found) => return (found, tried),
                SearchStep::Probe(rate) => descent.tell(rate <= probes_to),
                SearchStep::Confirm(rate) => descent.tell(rate <= confirmed_to),
            }
            tried.push(step);
        }
        panic!("it does not end: {tried:?}");
    }

    #[test]
    fn a_burst_knee_that_lasts_is_the_sustained_one() {
        assert_eq!(
            descend(8_000, 8_000, 8_000),
            (Some(8_000), vec![SearchStep::Probe(8_000), SearchStep::Confirm(8_000)])
        );
    }

    #[test]
    fn the_sustained_knee_is_found_within_ten_percent_in_few_probes() {
        for knee in [7_900, 6_000, 4_100, 4_000, 3_900, 2_500, 1_100, 90, 11] {
            let (found, tried) = descend(8_000, knee, knee);
            let found = found.unwrap();
            assert!(found <= knee && float(knee) <= float(found) * 1.12 + 1.0, "{found} for {knee}");
            let halvings = usize::try_from((8_000 / knee).ilog2()).unwrap();
            assert!(tried.len() <= 6 + halvings + 1, "{tried:?}");
            assert!(
                tried.iter().all(|step| !matches!(step, SearchStep::Probe(rate) if *rate > 8_000)),
                "never above: {tried:?}"
            );
        }
    }

    #[test]
    fn a_rate_that_a_confirmation_refutes_is_lowered_by_a_tenth_and_confirmed_at_once() {
        let (found, tried) = descend(8_000, 8_000, 7_000);
        assert_eq!(found, Some(6_480));
        let rates = [
            SearchStep::Probe(8_000),
            SearchStep::Confirm(8_000),
            SearchStep::Confirm(7_200),
            SearchStep::Confirm(6_480),
        ];
        assert_eq!(tried, rates);
    }

    #[test]
    fn a_search_whose_confirmations_all_fail_ends_without_a_knee() {
        let (found, tried) = descend(8_000, 8_000, 0);
        assert_eq!((found, tried.len()), (None, 5), "{tried:?}");
        assert_eq!(descend(8_000, 0, 0).0, None);
        assert_eq!(descend(11, 11, 0).0, None);
    }
}
