//! The search for the highest rate that is sustained: pure, fed with how probes went.
//!
//! Grows from a first rate until one fails, then bisects, then confirms at full length. It doubles while that is far
//! from what a closed loop achieved, and takes small steps from there: what is asked too much leaves a store with work
//! that the next probe is measured beside. One failure proves nothing on a busy machine: a probe fails if it fails
//! twice in a row, and the knee holds if two of at most three full-length probes pass; else it is looked for a step
//! lower. Nor do two where the next rate is still far from the closed loop's: that one is tried, too, and if it passes
//! it was the machine. How far a step is and where it begins is its [`Effort`].

use crate::numbers::{float, whole};

/// Where a search begins that draws a curve from low rates on.
const FIRST: u64 = 1_000;
/// The lowest rate that is tried.
pub(super) const LEAST: u64 = 10;
/// From what part of a closed loop's rate on the steps are small.
const NEAR_SHARE: f64 = 0.6;
/// Confirmations that refute a rate.
const REFUTATIONS: u32 = 2;

/// How thoroughly to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// From the plan's rate or 1,000/s on, to 5 %, two confirmations, and then the curve over connections.
    Whole,
    /// The same from near what a closed loop achieves, with shorter probes, without the curve.
    Brief,
    /// To 25 %, and one confirmation: shows that it works, and roughly where the knee is.
    Rough,
}

impl Effort {
    /// By how much the rate grows in small steps, and how close the highest good and the lowest bad rate must be.
    fn steps(self) -> (f64, f64) {
        match self {
            Self::Whole | Self::Brief => (1.25, 1.05),
            Self::Rough => (1.5, 1.25),
        }
    }

    fn confirmations(self) -> u32 {
        if self == Self::Rough { 1 } else { 2 }
    }
}

/// Whether a rate holds what is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// It does.
    Passed,
    /// It does not.
    Failed,
}

impl From<bool> for ProbeVerdict {
    fn from(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStep {
    /// A short probe at this rate.
    Probe(u64),
    /// One of full length.
    Confirm(u64),
    /// The knee; none if not even the lowest rate is sustained.
    Done(Option<u64>),
}

/// What is known so far.
#[derive(Clone, Debug)]
pub struct KneeSearch {
    effort: Effort,
    first: u64,
    /// From here on the steps are small.
    near: u64,
    good: Option<u64>,
    bad: Option<u64>,
    /// A rate that failed, and twice of which is still far from the closed loop's: whether that passes decides.
    doubted: Option<u64>,
    /// Failures in a row at the rate that is probed.
    failures: u32,
    confirmed: u32,
    refuted: u32,
}

impl KneeSearch {
    /// Of what achieves `closed_loop_rate` in a closed loop. A [`Effort::Whole`] one begins at `first`.
    #[must_use]
    pub fn new(effort: Effort, first: Option<u64>, closed_loop_rate: f64) -> Self {
        let near = rounded(closed_loop_rate * NEAR_SHARE);
        let first = if effort == Effort::Whole { first.unwrap_or(FIRST) } else { near };
        let first = first.max(LEAST);
        Self { effort, first, near, good: None, bad: None, doubted: None, failures: 0, confirmed: 0, refuted: 0 }
    }

    /// What to do next; the same until the next result.
    #[must_use]
    pub fn next(&self) -> SearchStep {
        let (growth, precision) = self.effort.steps();
        if let Some(doubted) = self.doubted {
            return SearchStep::Probe(doubted * 2);
        }
        match (self.good, self.bad) {
            (None, None) => SearchStep::Probe(self.first),
            (Some(good), None) if good <= self.near / 2 => SearchStep::Probe(good * 2),
            (Some(good), None) => SearchStep::Probe(rounded(float(good) * growth).max(good.saturating_add(1))),
            (None, Some(bad)) if bad <= LEAST => SearchStep::Done(None),
            (None, Some(bad)) => SearchStep::Probe((bad / 2).max(LEAST)),
            (Some(good), Some(_)) if self.confirmed >= self.effort.confirmations() => SearchStep::Done(Some(good)),
            (Some(good), Some(bad)) if bad <= rounded(float(good) * precision).max(good + 1) => {
                SearchStep::Confirm(good)
            }
            (Some(good), Some(bad)) => SearchStep::Probe(middle(good, bad)),
        }
    }

    /// How the step that [`KneeSearch::next`] gave went.
    pub fn tell(&mut self, verdict: ProbeVerdict) {
        let passed = verdict == ProbeVerdict::Passed;
        match self.next() {
            SearchStep::Probe(rate) if passed => {
                (self.good, self.doubted) = (Some(rate), None);
                self.failures = 0;
            }
            SearchStep::Probe(rate) => {
                self.failures += 1;
                if self.failures < 2 {
                    return;
                }
                self.failures = 0;
                match self.doubted.take() {
                    None if self.bad.is_none() && rate <= self.near / 2 => self.doubted = Some(rate),
                    doubted => self.bad = doubted.or(Some(rate)),
                }
            }
            SearchStep::Confirm(_) if passed => self.confirmed += 1,
            SearchStep::Confirm(rate) => {
                self.refuted += 1;
                if self.refuted == REFUTATIONS {
                    self.step_down(rate);
                }
            }
            SearchStep::Done(_) => {}
        }
    }

    /// The highest rate that passed so far.
    #[must_use]
    pub fn best(&self) -> Option<u64> {
        self.good
    }

    /// The rate did not hold: a step lower, which is confirmed at once.
    fn step_down(&mut self, rate: u64) {
        let lower = rounded(float(rate) / self.effort.steps().1).min(rate.saturating_sub(1));
        self.bad = Some(rate);
        self.good = (lower >= LEAST).then_some(lower);
        (self.confirmed, self.refuted) = (0, 0);
    }
}

/// Between the two, on a logarithmic scale.
pub(super) fn middle(good: u64, bad: u64) -> u64 {
    rounded((float(good) * float(bad)).sqrt()).clamp(good + 1, bad - 1)
}

/// Three digits are enough.
pub(super) fn rounded(rate: f64) -> u64 {
    let unit = 10_f64.powf((rate.log10().floor() - 2.0).max(0.0));
    whole((rate / unit).round() * unit)
}

#[cfg(test)]
mod tests {
    use super::{Effort, KneeSearch, SearchStep};
    use crate::numbers::float;
    use crate::random::Random;

    /// Searches a server that sustains `knee`, where some probes fail by chance; the knee and the number of probes.
    fn search(knee: u64, chance: f64, random: &mut Random) -> (Option<u64>, u32) {
        drive(KneeSearch::new(Effort::Whole, None, float(knee)), knee, chance, random)
    }

    fn drive(mut search: KneeSearch, knee: u64, chance: f64, random: &mut Random) -> (Option<u64>, u32) {
        for probes in 0..200 {
            match search.next() {
                SearchStep::Done(found) => return (found, probes),
                SearchStep::Probe(rate) | SearchStep::Confirm(rate) => {
                    search.tell((rate <= knee && random.unit() >= chance).into())
                }
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
    fn a_rate_far_below_the_closed_loop_that_fails_is_no_knee_if_twice_of_it_passes() {
        for (bad_moment, knee) in [(1_000, 20_000), (2_000, 20_000), (4_000, 20_000), (4_000, 5_000)] {
            let mut search = KneeSearch::new(Effort::Whole, None, 25_000.0);
            let mut failures = 0;
            let found = loop {
                match search.next() {
                    SearchStep::Done(found) => break found.unwrap(),
                    SearchStep::Probe(rate) | SearchStep::Confirm(rate) => {
                        let is_bad = rate == bad_moment && failures < 2;
                        failures += u32::from(is_bad);
                        search.tell((!is_bad && rate <= knee).into());
                    }
                }
            };
            // Where twice of it fails as well, it counts.
            let expected = if bad_moment * 2 <= knee { knee * 95 / 100..=knee } else { 3_500..=bad_moment };
            assert!(expected.contains(&found), "{found} after {bad_moment}");
        }
    }

    #[test]
    fn what_a_closed_loop_achieved_makes_the_search_short_wherever_the_knee_is() {
        let mut random = Random::new(4);
        for (effort, error, probes_max) in [(Effort::Brief, 1.06, 16), (Effort::Rough, 1.26, 9)] {
            for share in [0.2, 0.5, 0.65, 0.9, 1.0, 1.1] {
                let knee = crate::numbers::whole(20_000.0 * share);
                let (found, probes) = drive(KneeSearch::new(effort, None, 20_000.0), knee, 0.0, &mut random);
                let found = found.unwrap();
                assert!(found <= knee && float(knee) <= float(found) * error + 1.0, "{found} for {knee}");
                assert!(probes <= probes_max, "{probes} probes for {knee}, {effort:?}");
            }
        }
        assert_eq!(drive(KneeSearch::new(Effort::Brief, None, 0.0), 0, 0.0, &mut random).0, None);
    }

    #[test]
    fn no_rate_is_tried_that_is_far_above_what_was_sustained() {
        for first in [None, Some(20_000), Some(45_000)] {
            let mut search = KneeSearch::new(Effort::Whole, first, 52_000.0);
            let mut tried = Vec::new();
            while let SearchStep::Probe(rate) | SearchStep::Confirm(rate) = search.next() {
                tried.push(rate);
                search.tell((rate <= 46_000).into());
            }
            assert_eq!(tried[0], first.unwrap_or(1_000));
            assert!(*tried.iter().max().unwrap() <= 57_500, "{tried:?}");
            assert!(tried.len() <= 20, "{tried:?}");
        }
    }

    #[test]
    fn what_sustains_nothing_has_no_knee() {
        assert_eq!(search(0, 0.0, &mut Random::new(3)).0, None);
    }

    #[test]
    fn a_rate_that_does_not_hold_at_full_length_is_lowered() {
        let mut search = KneeSearch::new(Effort::Whole, None, 10_000.0);
        // Short probes pass up to 10,000/s, long ones up to 8,000/s.
        loop {
            match search.next() {
                SearchStep::Probe(rate) => search.tell((rate <= 10_000).into()),
                SearchStep::Confirm(rate) => search.tell((rate <= 8_000).into()),
                SearchStep::Done(found) => {
                    assert!((7_200..=8_000).contains(&found.unwrap()), "{found:?}");
                    return;
                }
            }
        }
    }
}
