//! Latency over rate: the curve that turns up at the knee.

use super::svg::{Drawing, TextAnchor, WIDTH};
use crate::numbers::{float, whole};
use crate::scenario::result::SearchPoint;

const LEFT: f64 = 64.0;
/// For the names of curves.
const RIGHT: f64 = 200.0;
const PANEL_HEIGHT: f64 = 210.0;
/// What a search sees of a cluster that is far over its knee is a matter of how long it looks.
const SHOWN_MS_MAX: f64 = 1_000.0;

/// Curves on the same axes.
#[derive(Debug)]
pub(super) struct CurvePanel<'a> {
    pub(super) title: String,
    pub(super) curves: Vec<KneeCurve<'a>>,
}

/// A search, with the knee that it found.
#[derive(Debug)]
pub(super) struct KneeCurve<'a> {
    pub(super) name: String,
    pub(super) points: &'a [SearchPoint],
    pub(super) knee: Option<u64>,
}

/// The axes of a panel.
struct CurveAxes {
    rate_max: f64,
    /// Powers of ten.
    decades: (i32, i32),
    top: f64,
}

impl CurveAxes {
    fn of(panel: &CurvePanel<'_>, top: f64) -> Self {
        let points = || panel.curves.iter().flat_map(|curve| curve.points);
        let rate_max = points().map(|point| float(point.rate)).fold(1.0, f64::max);
        let least = points().map(|point| point.p99_ms).fold(10.0, f64::min).max(0.01);
        let floor = (-2..=0).rev().find(|power| 10_f64.powi(*power) <= least).unwrap_or(-2);
        Self { rate_max, decades: (floor, 3), top }
    }

    fn x(&self, rate: f64) -> f64 {
        LEFT + rate / self.rate_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ms: f64) -> f64 {
        let (low, high) = (f64::from(self.decades.0), f64::from(self.decades.1));
        // A run without a success has no latency, and is as slow as can be shown.
        let ms = if ms.is_nan() { SHOWN_MS_MAX } else { ms };
        let share = (ms.clamp(10_f64.powf(low), SHOWN_MS_MAX).log10() - low) / (high - low);
        self.top + PANEL_HEIGHT * (1.0 - share)
    }
}

/// Draws panels below each other, all with a line at this p99.
pub(super) fn curve_chart(title: &str, note: &str, limit_ms: f64, panels: &[CurvePanel<'_>]) -> String {
    let mut out = Drawing::default();
    out.text((16.0, 26.0), TextAnchor::Start, "title", title);
    out.text((16.0, 46.0), TextAnchor::Start, "small", note);
    let mut y = 80.0;
    for panel in panels {
        out.text((16.0, y), TextAnchor::Start, "panel", &panel.title);
        let scale = CurveAxes::of(panel, y + 16.0);
        draw_axes(&mut out, &scale, limit_ms);
        draw_curves(&mut out, &scale, panel);
        y += PANEL_HEIGHT + 84.0;
    }
    out.finish(y - 20.0, title)
}

fn draw_axes(out: &mut Drawing, scale: &CurveAxes, limit_ms: f64) {
    let (right, bottom) = (WIDTH - RIGHT, scale.top + PANEL_HEIGHT);
    for power in scale.decades.0..=scale.decades.1 {
        let ms = 10_f64.powi(power);
        let y = scale.y(ms);
        out.line((LEFT, y), (right, y), "grid");
        out.text((LEFT - 6.0, y + 4.0), TextAnchor::End, "small", &format!("{ms} ms"));
    }
    let step = tick_step(scale.rate_max);
    let mut rate = 0.0;
    while rate <= scale.rate_max {
        let x = scale.x(rate);
        out.line((x, bottom), (x, bottom + 5.0), "axis");
        out.text((x, bottom + 19.0), TextAnchor::Middle, "small", &thousands(whole(rate)));
        rate += step;
    }
    out.line((LEFT, bottom), (right, bottom), "axis");
    out.text((right, bottom + 36.0), TextAnchor::End, "small", "requests a second");
    let y = scale.y(limit_ms);
    out.line((LEFT, y), (right, y), "limit");
}

fn draw_curves(out: &mut Drawing, scale: &CurveAxes, panel: &CurvePanel<'_>) {
    let mut legend = scale.top + 10.0;
    for (series, curve) in panel.curves.iter().enumerate() {
        let at = |point: &SearchPoint| (scale.x(float(point.rate)), scale.y(point.p99_ms));
        let line: Vec<(f64, f64)> = up_to_the_knee(curve).into_iter().map(at).collect();
        out.begin_series(series);
        out.curve(&line);
        let (met, missed): (Vec<_>, Vec<_>) = curve.points.iter().partition(|point| point.met);
        out.rings(&missed.into_iter().map(at).collect::<Vec<_>>());
        out.dots(&met.into_iter().map(at).collect::<Vec<_>>());
        if let Some(point) = best(curve.points).into_iter().find(|point| Some(point.rate) == curve.knee) {
            out.dot(at(point), 6.5);
        }
        let x = WIDTH - RIGHT + 16.0;
        out.dot((x, legend - 4.0), 5.0);
        out.end_series();
        let knee = curve.knee.map_or_else(|| "no knee".to_owned(), |rate| format!("{}/s", thousands(rate)));
        out.text((x + 12.0, legend), TextAnchor::Start, "", &format!("{}: {knee}", curve.name));
        legend += 20.0;
    }
}

/// At each rate the run with the least p99, as the search takes the better one of two: by rates.
fn best(points: &[SearchPoint]) -> Vec<&SearchPoint> {
    let mut sorted: Vec<&SearchPoint> = points.iter().collect();
    sorted.sort_by(|a, b| a.rate.cmp(&b.rate).then(a.p99_ms.total_cmp(&b.p99_ms)));
    sorted.dedup_by_key(|point| point.rate);
    sorted
}

/// The curve up to its knee, and one step farther, where it turns up. What a search sees beyond that has no order.
fn up_to_the_knee<'a>(curve: &KneeCurve<'a>) -> Vec<&'a SearchPoint> {
    let mut points = best(curve.points);
    let beyond = points.iter().position(|point| curve.knee.is_some_and(|knee| point.rate > knee));
    points.truncate(beyond.map_or(points.len(), |first| first + 1));
    points
}

/// So that there are three to eight of them.
fn tick_step(most: f64) -> f64 {
    let steps = (0..9).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
    steps.into_iter().find(|step| most / step <= 8.0).unwrap_or(most)
}

/// With commas.
pub(super) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{KneeCurve, thousands, tick_step, up_to_the_knee};
    use crate::scenario::result::SearchPoint;

    #[test]
    fn the_curve_goes_through_the_better_of_two_runs_to_one_beyond_the_knee() {
        let point = |rate, p99_ms| SearchPoint { rate, p99_ms, met: true };
        let points = [point(20, 3.0), point(10, 1.0), point(40, 9.0), point(20, 2.0), point(30, 8.0)];
        let told = |knee| {
            let curve = KneeCurve { name: String::new(), points: &points, knee };
            up_to_the_knee(&curve).iter().map(|point| (point.rate, point.p99_ms)).collect::<Vec<_>>()
        };
        assert_eq!(told(Some(20)), [(10, 1.0), (20, 2.0), (30, 8.0)]);
        assert_eq!((told(Some(40)).len(), told(None).len()), (4, 4));
    }

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!([95_200.0, 42_800.0, 100.0].map(tick_step), [20_000.0, 10_000.0, 20.0]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
