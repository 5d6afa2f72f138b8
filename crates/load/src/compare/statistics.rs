//! Whether two sides of repeated measurements differ: rank tests and bootstrapped intervals.
//!
//! Source: Mann and Whitney (1947), exact where it can be enumerated; Wilcoxon (1945) for pairs, exact; Holm (1979) for
//! several tests at once; Efron's percentile bootstrap for intervals of a ratio.

use crate::numbers::{count, float, index, median, whole};
use crate::random::Random;

/// Splits that are enumerated at most; beyond, the normal approximation is as good.
const SPLITS_MAX: f64 = 200_000.0;
const RESAMPLES: usize = 1_000;

/// The probability, two-sided, of ranks as far apart as these if both sets are of one kind.
pub(super) fn rank_test(a: &[f64], b: &[f64]) -> f64 {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let ranks = ranks(&all);
    let observed: f64 = ranks.iter().take(a.len()).sum();
    let expected = float(count(a.len())) * (float(count(all.len())) + 1.0) / 2.0;
    let distance = (observed - expected).abs() - 1e-9;
    if splits(all.len(), a.len()) > SPLITS_MAX {
        return approximate(distance, &ranks, a.len());
    }
    let mut tried = (0_u64, 0_u64);
    enumerate(&ranks, a.len(), 0.0, &mut |sum| {
        tried.0 += u64::from((sum - expected).abs() >= distance);
        tried.1 += 1;
    });
    float(tried.0) / float(tried.1)
}

/// The probability, two-sided, that the ratios of pairs are as far to one side of 1, by their ranks, if the sides are
/// alike. Pairs without a difference are left out.
pub(super) fn signed_rank_test(ratios: &[f64]) -> f64 {
    let changes: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).filter(|change| *change != 0.0).collect();
    let ranks = ranks(&changes.iter().map(|change| change.abs()).collect::<Vec<_>>());
    let observed: f64 = ranks.iter().zip(&changes).filter(|(_, change)| **change > 0.0).map(|(rank, _)| rank).sum();
    let expected = ranks.iter().sum::<f64>() / 2.0;
    let distance = (observed - expected).abs() - 1e-9;
    // Each change is as likely up as down. By twice the sum of those that are up, which is whole where ranks are
    // shared.
    let mut chances = vec![1.0];
    for rank in &ranks {
        let up = index(whole(rank * 2.0));
        let mut with = vec![0.0; chances.len() + up];
        for (sum, chance) in chances.iter().enumerate() {
            for sum in [sum, sum + up] {
                with.get_mut(sum).into_iter().for_each(|slot| *slot += chance / 2.0);
            }
        }
        chances = with;
    }
    let far = (0_u64..).zip(&chances).filter(|(sum, _)| (float(*sum) / 2.0 - expected).abs() >= distance);
    far.map(|(_, chance)| chance).sum()
}

/// Ranks from 1; those that are equal share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count();
    let equal = |value: f64| values.iter().filter(|other| **other == value).count();
    values.iter().map(|value| float(count(below(*value))) + (float(count(equal(*value))) + 1.0) / 2.0).collect()
}

/// How many ways there are to choose so many of so many.
fn splits(all: usize, chosen: usize) -> f64 {
    (0..chosen).fold(1.0, |product, place| product * float(count(all - place)) / float(count(place + 1)))
}

/// Calls with the sum of every choice of `left` of the ranks.
fn enumerate(ranks: &[f64], left: usize, sum: f64, call: &mut dyn FnMut(f64)) {
    if left == 0 {
        return call(sum);
    }
    let Some((first, rest)) = ranks.split_first() else { return };
    if rest.len() >= left {
        enumerate(rest, left, sum, call);
    }
    enumerate(rest, left - 1, sum + first, call);
}

/// The normal approximation, corrected for ties by using the ranks' own variance.
fn approximate(distance: f64, ranks: &[f64], first: usize) -> f64 {
    let (all, first) = (float(count(ranks.len())), float(count(first)));
    let mean = (all + 1.0) / 2.0;
    let variance = ranks.iter().map(|rank| (rank - mean).powi(2)).sum::<f64>() / (all - 1.0);
    let deviation = (first * (all - first) / all * variance).sqrt();
    if deviation <= 0.0 { 1.0 } else { two_sided((distance - 0.5).max(0.0) / deviation) }
}

/// Both tails of the normal distribution; Abramowitz and Stegun 7.1.26, to 1.5e-7.
fn two_sided(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = series.iter().rev().fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    sum * (-x * x).exp()
}

/// Makes probabilities of several tests comparable with one limit: the chance of any false alarm stays below it.
pub(super) fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    let of = |place: usize| probabilities.get(place).copied().unwrap_or(1.0);
    order.sort_unstable_by(|a, b| of(*a).total_cmp(&of(*b)));
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut least = 0.0_f64;
    for (rank, place) in order.iter().enumerate() {
        least = least.max((of(*place) * float(count(probabilities.len() - rank))).min(1.0));
        if let Some(slot) = adjusted.get_mut(*place) {
            *slot = least;
        }
    }
    adjusted
}

/// b as a part of a: 1 if both are 0, infinite if only a is.
pub(super) fn ratio(a: f64, b: f64) -> f64 {
    match (a > 0.0, b > 0.0) {
        (true, _) => b / a,
        (false, true) => f64::INFINITY,
        (false, false) => 1.0,
    }
}

/// The interval in which the ratio of the medians, b to a, lies with 95 %.
pub(super) fn ratio_interval(a: &[f64], b: &[f64], random: &mut Random) -> (f64, f64) {
    interval(|| {
        let (a, b) = (draw(a, random), draw(b, random));
        ratio(a, b)
    })
}

/// The interval in which the median lies with 95 %.
pub(super) fn median_interval(values: &[f64], random: &mut Random) -> (f64, f64) {
    interval(|| draw(values, random))
}

/// The median of as many values, drawn from these.
fn draw(values: &[f64], random: &mut Random) -> f64 {
    let length = count(values.len());
    let drawn: Vec<f64> = (0..length).filter_map(|_| values.get(index(random.below(length))).copied()).collect();
    median(&drawn)
}

fn interval(mut draw: impl FnMut() -> f64) -> (f64, f64) {
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| draw()).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |quantile: f64| {
        let place = index(whole(quantile * float(count(RESAMPLES - 1))));
        ratios.get(place).copied().unwrap_or(1.0)
    };
    (at(0.025), at(0.975))
}

#[cfg(test)]
mod tests {
    use super::{holm, median_interval, rank_test, ratio_interval, signed_rank_test, two_sided};
    use crate::numbers::median;
    use crate::random::Random;

    #[test]
    fn known_probabilities_are_found() {
        // Of all 252 splits of ten into halves, two are as far apart.
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((rank_test(&low, &high) - 2.0 / 252.0).abs() < 1e-12);
        assert!((rank_test(&low, &low) - 1.0).abs() < 1e-12);
        assert_eq!(rank_test(&[], &low), 1.0);
        assert!((two_sided(1.959_964) - 0.05).abs() < 1e-6);
        let many: Vec<f64> = (0..100).map(f64::from).collect();
        let shifted: Vec<f64> = many.iter().map(|value| value + 60.0).collect();
        assert!(rank_test(&many, &shifted) < 1e-9 && rank_test(&many, &many) > 0.9);
    }

    #[test]
    fn known_probabilities_of_pairs_are_found() {
        // Of all 256 signs of eight pairs, two are as far apart.
        let higher: Vec<f64> = (1..=8).map(|pair| 1.0 + f64::from(pair) / 100.0).collect();
        assert!((signed_rank_test(&higher) - 2.0 / 256.0).abs() < 1e-12);
        // Of the sums of 1, 2 and 3, those of 0, 1, 5 and 6 are as far from the middle as 5.
        assert!((signed_rank_test(&[0.9, 1.2, 1.4]) - 0.5).abs() < 1e-12);
        // Two that are equal and opposite, and one without a change.
        assert_eq!(signed_rank_test(&[0.5, 2.0, 1.0]), 1.0);
        assert_eq!((signed_rank_test(&[]), signed_rank_test(&[1.0])), (1.0, 1.0));
        let never: Vec<f64> = [f64::INFINITY, 0.0].repeat(4);
        assert_eq!(signed_rank_test(&never), 1.0);
        let many: Vec<f64> = (0..100).map(|pair| 1.0 + f64::from(pair - 30) / 1000.0).collect();
        assert!(signed_rank_test(&many) < 1e-4 && signed_rank_test(&[0.5, 2.0].repeat(50)) > 0.9);
        // Exact for any number: of 2^20 signs, two.
        let twenty: Vec<f64> = (1..=20).map(|pair| 1.0 + f64::from(pair) / 100.0).collect();
        assert!((signed_rank_test(&twenty) * f64::from(1 << 19) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn several_tests_are_judged_together() {
        let expected = [0.03, 0.06, 0.06];
        assert!(holm(&[0.01, 0.04, 0.03]).iter().zip(expected).all(|(got, want)| (got - want).abs() < 1e-12));
    }

    #[test]
    fn medians_and_their_ratio() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0]), median(&[])), (2.0, 2.5, 0.0));
        let (low, high) = ratio_interval(&[10.0, 10.1, 9.9, 10.0], &[20.0, 20.2, 19.8, 20.0], &mut Random::new(1));
        assert!((1.95..2.0).contains(&low) && (2.0..2.05).contains(&high), "{low} {high}");
        assert_eq!(median_interval(&[1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.2], &mut Random::new(1)), (1.1, 1.1));
    }
}
