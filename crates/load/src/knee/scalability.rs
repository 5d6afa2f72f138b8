//! The Universal Scalability Law: what bends throughput as connections are added, or nodes.
//!
//! X(N) = λN / (1 + σ(N−1) + κN(N−1)): λ is the rate of one, σ the part that is serial (contention), κ what every one
//! costs every other (crosstalk). Source: Gunther, "Guerrilla Capacity Planning" (2007), chapter 4.

use serde::{Deserialize, Serialize};

use crate::numbers::float;

/// What more and more of is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// Closed loops.
    Connections,
    /// Clusters of that size, each at its knee.
    Nodes,
}

impl Over {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Connections => ("connection", "connections"),
            Self::Nodes => ("node", "nodes"),
        }
    }
}

/// Throughput with so many of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// How many.
    pub n: u64,
    /// Successes per second.
    pub rate: f64,
}

/// The law's parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scalability {
    /// What there is more and more of.
    pub over: Over,
    /// λ: requests a second of one.
    pub lambda: f64,
    /// σ: contention, the part that is serial.
    pub sigma: f64,
    /// κ: crosstalk.
    pub kappa: f64,
    /// How much of the variance the curve explains, at most 1.
    pub r_squared: f64,
    /// How many have the highest throughput, if it falls again.
    pub peak: Option<f64>,
    /// What bends it, in words.
    pub verdict: String,
    /// What it was fitted to.
    pub points: Vec<Point>,
}

/// Fits the law to at least three points; none if there are fewer, or without throughput.
///
/// N/X is linear in 1/λ, σ/λ and κ/λ, none of which is negative; residuals are weighted so that all points count by
/// their relative error.
#[must_use]
pub fn fit(over: Over, points: &[Point]) -> Option<Scalability> {
    if points.len() < 3 || points.iter().any(|point| point.rate <= 0.0 || point.n == 0) {
        return None;
    }
    // At most three parameters: all sets of those that are not held at 0 can be tried.
    let sets: [&[usize]; 4] = [&[0], &[0, 1], &[0, 2], &[0, 1, 2]];
    let fits = sets.iter().filter_map(|set| least_squares(points, set));
    let valid = fits.filter(|fit| fit[0] > 0.0 && fit[1] >= 0.0 && fit[2] >= 0.0);
    let [first, second, third] = valid.min_by(|a, b| error(points, a).total_cmp(&error(points, b)))?;
    let (lambda, sigma, kappa) = (1.0 / first, second / first, third / first);
    let peak = (kappa > 1e-9).then(|| ((1.0 - sigma).max(0.0) / kappa).sqrt().max(1.0));
    let farthest = points.iter().map(|point| float(point.n)).fold(1.0, f64::max);
    Some(Scalability {
        over,
        lambda,
        sigma,
        kappa,
        r_squared: r_squared(points, [first, second, third]),
        peak,
        verdict: verdict(over, [lambda, sigma, kappa], farthest, peak),
        points: points.to_vec(),
    })
}

impl Scalability {
    /// Notes that the generator bends the curve, where it was the limit (and why) of the last of the points at least.
    pub(super) fn with_generator(mut self, limits: &[Option<String>]) -> Self {
        let free = limits.iter().rposition(Option::is_none).map_or(0, |last| last + 1);
        if let Some((point, why)) = self.points.get(free).zip(limits.last().and_then(Option::as_ref)) {
            let many = if point.n == 1 { self.over.words().0 } else { self.over.words().1 };
            self.verdict =
                format!("the GENERATOR, from {} {many} on: {why}. If it were the target: {}", point.n, self.verdict);
        }
        self
    }
}

/// What 1/λ, σ/λ and κ/λ are multiplied with.
fn terms(point: &Point) -> [f64; 3] {
    let n = float(point.n);
    [1.0, n - 1.0, n * (n - 1.0)]
}

fn predicted(point: &Point, parameters: &[f64; 3]) -> f64 {
    let sum: f64 = terms(point).iter().zip(parameters).map(|(term, parameter)| term * parameter).sum();
    float(point.n) / sum
}

fn error(points: &[Point], parameters: &[f64; 3]) -> f64 {
    points.iter().map(|point| (predicted(point, parameters) / point.rate - 1.0).powi(2)).sum()
}

fn r_squared(points: &[Point], parameters: [f64; 3]) -> f64 {
    let mean = points.iter().map(|point| point.rate).sum::<f64>() / float(crate::numbers::count(points.len()));
    let residual: f64 = points.iter().map(|point| (point.rate - predicted(point, &parameters)).powi(2)).sum();
    let total: f64 = points.iter().map(|point| (point.rate - mean).powi(2)).sum();
    if total > 0.0 { 1.0 - residual / total } else { 1.0 }
}

/// Weighted least squares over the parameters of a set, the others 0; none if the points do not separate them.
#[expect(clippy::indexing_slicing, reason = "a matrix of three by four, indexed below three and four")]
fn least_squares(points: &[Point], set: &[usize]) -> Option<[f64; 3]> {
    let size = set.len();
    let mut matrix = [[0.0; 4]; 3];
    for point in points {
        let terms = terms(point);
        let measured = float(point.n) / point.rate;
        let weight = 1.0 / (measured * measured);
        for (row, term) in set.iter().enumerate() {
            for (column, other) in set.iter().enumerate() {
                matrix[row][column] += weight * terms[*term] * terms[*other];
            }
            matrix[row][size] += weight * terms[*term] * measured;
        }
    }
    // Gauss and Jordan, with the largest pivot.
    for column in 0..size {
        let pivot = (column..size).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        matrix.swap(column, pivot);
        let scale = matrix[column][column];
        if scale.abs() < 1e-300 {
            return None;
        }
        matrix[column].iter_mut().for_each(|value| *value /= scale);
        for row in (0..size).filter(|row| *row != column) {
            let factor = matrix[row][column];
            let pivot_row = matrix[column];
            matrix[row].iter_mut().zip(pivot_row).for_each(|(cell, pivot)| *cell -= factor * pivot);
        }
    }
    let mut parameters = [0.0; 3];
    set.iter().enumerate().for_each(|(row, term)| parameters[*term] = matrix[row][size]);
    Some(parameters)
}

fn verdict(over: Over, [lambda, sigma, kappa]: [f64; 3], farthest: f64, peak: Option<f64>) -> String {
    let (one, many) = over.words();
    // What each of the two adds to the denominator where there were most.
    let (contention, crosstalk) = (sigma * (farthest - 1.0), kappa * farthest * (farthest - 1.0));
    if contention + crosstalk < 0.1 {
        return format!("nothing bends it up to {farthest} {many}: {lambda:.0}/s for each");
    }
    let falls = peak.filter(|peak| *peak < farthest).map_or_else(String::new, |peak| {
        format!("; beyond {peak:.0} {} it falls", if peak < 1.5 { one } else { many })
    });
    if contention >= crosstalk {
        let ceiling = lambda / sigma;
        return format!(
            "contention: {:.2} % of the work is serial, so more {many} approach {ceiling:.0}/s and no more{falls}",
            sigma * 100.0
        );
    }
    format!("crosstalk: each {one} makes every other slower (κ = {kappa:.2e}){falls}")
}

#[cfg(test)]
mod tests {
    use super::{Over, Point, Scalability};
    use crate::numbers::float;
    use crate::random::Random;

    fn fit(points: &[Point]) -> Option<Scalability> {
        super::fit(Over::Connections, points)
    }

    fn law(lambda: f64, sigma: f64, kappa: f64, noise: f64) -> Vec<Point> {
        let mut random = Random::new(5);
        let rate = |n: f64| lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0));
        [1, 2, 4, 8, 16, 32, 64]
            .map(|n| Point { n, rate: rate(float(n)) * (1.0 + noise * (random.unit() - 0.5)) })
            .to_vec()
    }

    #[test]
    fn parameters_that_made_the_points_are_found() {
        for (sigma, kappa) in [(0.05, 0.0002), (0.2, 0.0), (0.0, 0.001), (0.0, 0.0)] {
            let found = fit(&law(1000.0, sigma, kappa, 0.0)).unwrap();
            assert!((found.lambda - 1000.0).abs() < 1.0, "{found:?}");
            assert!((found.sigma - sigma).abs() < 1e-3 && (found.kappa - kappa).abs() < 1e-5, "{found:?}");
            assert!(found.r_squared > 0.999);
        }
    }

    #[test]
    fn it_says_what_bends_the_curve() {
        let verdict = |sigma, kappa| fit(&law(1000.0, sigma, kappa, 0.05)).unwrap().verdict;
        assert!(verdict(0.2, 0.0).starts_with("contention"), "{}", verdict(0.2, 0.0));
        assert!(verdict(0.0, 0.01).starts_with("crosstalk"), "{}", verdict(0.0, 0.01));
        assert!(verdict(0.0, 0.0).starts_with("nothing"), "{}", verdict(0.0, 0.0));
    }

    #[test]
    fn where_each_does_all_the_work_more_only_cost() {
        let points = [(1, 41_000.0), (2, 29_100.0), (3, 22_900.0), (10, 8_300.0)].map(|(n, rate)| Point { n, rate });
        let found = super::fit(Over::Nodes, &points).unwrap();
        assert!(found.verdict.starts_with("crosstalk: each node"), "{}", found.verdict);
        assert!(found.verdict.ends_with("beyond 1 node it falls") && found.peak == Some(1.0), "{}", found.verdict);
    }

    #[test]
    fn where_the_generator_was_the_limit_to_the_end_it_bends_the_curve() {
        let verdict = |limits: [bool; 7]| {
            let limits = limits.map(|is_limit| is_limit.then(|| "busy".to_owned()));
            fit(&law(1000.0, 0.2, 0.0, 0.0)).unwrap().with_generator(&limits).verdict
        };
        let plain = fit(&law(1000.0, 0.2, 0.0, 0.0)).unwrap().verdict;
        assert_eq!(verdict([false; 7]), plain);
        assert_eq!(verdict([false, true, true, false, false, true, false]), plain, "it was not at the end");
        let blamed = verdict([false, true, false, true, true, true, true]);
        assert_eq!(blamed, format!("the GENERATOR, from 8 connections on: busy. If it were the target: {plain}"));
        assert!(verdict([true; 7]).starts_with("the GENERATOR, from 1 connection on"));
    }

    #[test]
    fn too_little_is_not_fitted() {
        let points = law(1000.0, 0.1, 0.0, 0.0);
        assert!(fit(&points[..2]).is_none());
        assert!(fit(&[Point { n: 1, rate: 0.0 }; 3]).is_none());
        assert!(fit(&[points[0]; 3]).is_some_and(|fit| fit.lambda > 0.0), "one place only: a line through it");
    }
}
