//! What the nodes' stores have yet to do, and whether that stays bounded under a load.
//!
//! Debt has several faces, and an engine may show it in one of them only: one that merges files by their number has no
//! bytes pending, and many files in level 0. A store's debt is bounded if all its faces are.

use std::time::Duration;

use super::debt_row::{Debt, DebtRow, FACES, Face};
use super::sample::{NodeSecond, Sample, Series};
use crate::numbers::{count, float, index};

/// A shorter run shows nothing of debt, unless it clearly grows.
const TELLING_SECONDS: f64 = 30.0;
/// Of a run between its first and last sample, at least. It cannot be all of it: a sample is taken when it is due and
/// comes a little later, the first one under load the latest.
const SAMPLED_SHARE: f64 = 0.9;
/// Debt grows if the last third of a run has more than the middle one, by more than this part of what that has.
const GROWTH_SHARE: f64 = 0.1;
/// Of the samples of a third, the part at either end that may be chance.
const ODD_SHARE: f64 = 0.05;

/// Whether nothing grows in what was sampled at these seconds of a run of `run_s`: none if that is not clear. A saw
/// tooth is bounded if its teeth do not grow, and so is what stays below what is `usual`.
///
/// The last third of the time is held against the middle one: what the first one brings is how a load begins. Growing
/// is what has risen in its troughs, its mean and its peaks. A short time shows only what rises from third to third so
/// that the least of one is more than the most of the one before.
fn is_bounded(points: &[(f64, f64)], run_s: f64, usual: f64) -> Option<bool> {
    let span = points.last()?.0 - points.first()?.0;
    // By their number: one that comes late is of another second, and not of another third.
    let third = points.len() / 3;
    let bounds = [(0, third), (third, points.len() - third), (points.len() - third, points.len())];
    let [early, middle, late] = bounds.map(|(from, to)| {
        Third::of(points.get(from..to).unwrap_or_default().iter().map(|(_, value)| *value).collect())
    });
    let (early, middle, late) = (early?, middle?, late?);
    if run_s < TELLING_SECONDS || span < TELLING_SECONDS * SAMPLED_SHARE {
        let rises = late.trough > middle.peak && middle.trough > early.peak;
        return (rises && late.peak > usual).then_some(false);
    }
    let least = middle.mean * GROWTH_SHARE;
    let rises = [late.trough - middle.trough, late.mean - middle.mean, late.peak - middle.peak];
    let grows = rises.iter().all(|rise| *rise > least);
    match grows && late.peak > usual {
        true => Some(false),
        false => (span >= run_s * SAMPLED_SHARE).then_some(true),
    }
}

/// Of the samples of a third of the time.
struct Third {
    trough: f64,
    mean: f64,
    peak: f64,
}

impl Third {
    /// None of a single sample.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let number = float(count(values.len()));
        let odd = index(crate::numbers::whole(number * ODD_SHARE));
        let (trough, peak) = (values.get(odd)?, values.get(values.len().checked_sub(odd + 1)?)?);
        (values.len() > 1).then(|| Self { trough: *trough, peak: *peak, mean: values.iter().sum::<f64>() / number })
    }
}

/// Of several, of which some are not known: no if one is no, and yes if all are.
pub(crate) fn all_bounded(each: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let each: Vec<_> = each.into_iter().collect();
    match each.contains(&Some(false)) {
        true => Some(false),
        false => (!each.is_empty() && each.iter().all(Option::is_some)).then_some(true),
    }
}

impl Series {
    /// The first sample that shows how much the engine was given, or the first.
    pub(super) fn first_written(&self) -> Option<&Sample> {
        let samples = || self.samples.iter().map(|(_, sample)| sample);
        samples().find(|sample| sample.written_bytes.is_some()).or_else(|| samples().next())
    }

    /// None if the node showed no debt.
    pub(super) fn debt(&self) -> Option<DebtRow> {
        let told = || self.samples.iter().filter(|(_, sample)| !sample.debt.is_unknown());
        let (_, last) = told().next_back()?;
        let most = told().fold(Debt::default(), |most, (_, sample)| most.max(sample.debt));
        let run_s = self.time.as_secs_f64();
        let of = |face: &Face| {
            let point = |(at, sample): &(Duration, Sample)| Some((at.as_secs_f64(), float((face.of)(&sample.debt)?)));
            let points: Vec<_> = told().filter_map(point).collect();
            // What an engine does not have shows nothing.
            (!points.is_empty()).then(|| (is_bounded(&points, run_s, float(face.usual)), grew(face.name, &points)))
        };
        let faces: Vec<_> = FACES.iter().filter_map(of).collect();
        let grew = faces.iter().filter(|(bounded, _)| *bounded == Some(false)).map(|(_, words)| words.clone());
        Some(DebtRow {
            last: last.debt,
            most,
            stall_seconds: self.spent(|sample| sample.stall_seconds),
            write_amplification: write_amplification(self.first_written()?, last),
            bounded: all_bounded(faces.iter().map(|(bounded, _)| *bounded)),
            grew: grew.collect(),
        })
    }
}

fn grew(name: &str, points: &[(f64, f64)]) -> String {
    let at = |point: Option<&(f64, f64)>| crate::numbers::whole(point.map_or(0.0, |(_, value)| *value));
    format!("{name} {} to {}", at(points.first()), at(points.last()))
}

/// Bytes that were written for each that the engine was given between two samples; none if that is not known, or
/// nothing was given.
fn write_amplification(then: &Sample, now: &Sample) -> Option<f64> {
    let since = |of: fn(&Sample) -> Option<u64>| of(now)?.checked_sub(of(then)?).map(float);
    let given = since(|sample| sample.written_bytes).filter(|bytes| *bytes > 0.0)?;
    Some((since(|sample| sample.flushed_bytes)? + since(|sample| sample.compacted_bytes)?) / given)
}

/// What a node's store did between two samples, where `first` was the run's first.
pub(super) fn of_second(first: &Sample, then: &Sample, now: &Sample) -> NodeSecond {
    let slow = |sample: &Sample| Some(sample.commits?.saturating_sub(sample.quick_commits?));
    let stalled = now.stall_seconds.zip(then.stall_seconds).map(|(now, then)| (now - then).max(0.0));
    NodeSecond {
        debt: now.debt,
        stall_seconds: stalled,
        slow_commits: slow(now).zip(slow(then)).map(|(now, then)| now.saturating_sub(then)),
        write_amplification: write_amplification(first, now),
        ..NodeSecond::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{all_bounded, is_bounded};

    const USUAL: f64 = 16.0;

    /// A sample each second.
    fn of(seconds: u32, value: impl Fn(f64) -> f64) -> Option<bool> {
        let points: Vec<_> = (0..=seconds).map(|at| (f64::from(at), value(f64::from(at)))).collect();
        is_bounded(&points, f64::from(seconds), USUAL)
    }

    #[test]
    fn debt_that_grows_all_the_time_is_not_bounded() {
        assert_eq!(of(120, |at| at), Some(false));
        assert_eq!(of(600, |at| 100.0 + at / 5.0), Some(false), "on top of what was there");
        assert_eq!(of(600, |at| 20.0 * at.sqrt()), Some(false), "more and more slowly");
        assert_eq!(of(600, |at| at + 40.0 * (at % 50.0) / 50.0), Some(false), "with teeth");
    }

    #[test]
    fn debt_that_has_a_level_is_bounded() {
        assert_eq!(of(120, |_| 0.0), Some(true));
        assert_eq!(of(120, |_| 500.0), Some(true), "whatever it is");
        assert_eq!(of(600, |at| 500.0 * (1.0 - (-at / 60.0).exp())), Some(true), "once it has risen to it");
        assert_eq!(of(600, |at| 500.0 - at / 2.0), Some(true), "it is paid off");
    }

    #[test]
    fn a_saw_tooth_is_bounded_wherever_the_run_cuts_it() {
        for period in 5_u8..=40 {
            for phase in 0..period {
                let tooth = |at: f64| 30.0 + 500.0 * ((at + f64::from(phase)) % f64::from(period)) / f64::from(period);
                assert_eq!(of(120, tooth), Some(true), "{phase} of {period}");
            }
        }
        // Nothing, and then a compaction that takes until shortly before the end.
        assert_eq!(of(120, |at| if (85.0..115.0).contains(&at) { 800.0 } else { 0.0 }), Some(true));
    }

    #[test]
    fn what_is_usual_between_two_compactions_is_bounded_whatever_its_slope() {
        assert_eq!(of(120, |at| at * USUAL / 120.0), Some(true));
        assert_eq!(of(120, |at| at * USUAL / 100.0), Some(false));
    }

    #[test]
    fn one_odd_sample_decides_nothing() {
        assert_eq!(of(120, |at| if at > 100.0 && at < 101.5 { 0.0 } else { at }), Some(false));
        assert_eq!(of(120, |at| if at > 100.0 && at < 101.5 { 900.0 } else { 30.0 }), Some(true));
    }

    #[test]
    fn a_short_time_tells_only_of_what_clearly_grows() {
        assert_eq!(of(20, |_| 500.0), None);
        assert_eq!(of(20, |at| 500.0 * (at % 7.0)), None);
        assert_eq!(of(20, |at| at / 2.0), None, "still below what is usual");
        assert_eq!(of(20, |at| at * 2.0), Some(false));
        assert_eq!(of(5, |at| at * 10.0), Some(false));
        assert_eq!(of(2, |at| at * 100.0), None, "a third of one sample");
        assert_eq!(is_bounded(&[], 600.0, USUAL), None);
    }

    #[test]
    fn a_run_that_is_just_long_enough_tells_though_its_samples_come_late() {
        let late = |first: u32, value: fn(f64) -> f64| {
            let at = |second: u32| if second == first { f64::from(second) + 0.4 } else { f64::from(second) + 0.01 };
            let points: Vec<_> = (first..=30).map(|second| (at(second), value(at(second)))).collect();
            is_bounded(&points, 30.0, USUAL)
        };
        assert_eq!((late(0, |_| 500.0), late(0, |at| 100.0 + at * at)), (Some(true), Some(false)));
        assert_eq!(late(1, |_| 500.0), Some(true), "without the first one, too");
        assert_eq!(late(9, |_| 500.0), None, "but not without a third");
    }

    #[test]
    fn a_node_that_was_silent_for_a_part_tells_nothing_but_that_it_grows() {
        let told = |value: fn(f64) -> f64| {
            let points: Vec<_> = (0..=300).map(|at| (f64::from(at), value(f64::from(at)))).collect();
            is_bounded(&points, 600.0, USUAL)
        };
        assert_eq!((told(|_| 3.0), told(|at| at)), (None, Some(false)));
    }

    #[test]
    fn all_are_bounded_if_each_is() {
        assert_eq!(all_bounded([Some(true), Some(true)]), Some(true));
        assert_eq!(all_bounded([Some(true), None]), None);
        assert_eq!(all_bounded([None, Some(false)]), Some(false));
        assert_eq!(all_bounded([]), None);
    }
}
