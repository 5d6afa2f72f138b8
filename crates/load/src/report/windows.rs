//! A run in windows of some seconds: what percentiles of a whole run hide, and those of single seconds exaggerate.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde::{Deserialize, Serialize};

use super::percentiles::Percentiles;
use crate::numbers::{count, float, index};
use crate::record::histogram;
use crate::run::{RunOutcome, Second};

/// Of the windows that reports have.
pub(crate) const WINDOW_SECONDS: usize = 10;

/// Some seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WindowRow {
    /// When it began, since the measured time did.
    pub from_s: f64,
    /// When it ended, since the measured time began.
    pub to_s: f64,
    /// Requests that were sent.
    pub sent: u64,
    /// Successes.
    pub requests: u64,
    /// Errors and timeouts.
    pub errors: u64,
    /// Of the errors, those that were answered 503.
    pub shed: u64,
    /// Requests that were due by its end, and not sent by then; none in a closed loop.
    pub unsent: Option<u64>,
    /// From when requests were due; successes only.
    pub latency_ms: Percentiles,
    /// As `latency_ms`, of what was answered 503.
    pub shed_ms: Percentiles,
    /// The mean of its seconds, of those of which it is known.
    pub stolen_share: Option<f64>,
    /// As in seconds.
    pub slow_commits: Option<u64>,
}

impl WindowRow {
    /// Its length.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to_s - self.from_s
    }
}

/// The windows of a run, of `each` seconds; the last one is longer, by what is left, and has what came after the end.
/// `slow`: the slow commits of each second. A second of which nothing is known is there, and empty.
pub(crate) fn windows(outcome: &RunOutcome, each: usize, slow: &[Option<u64>], is_open: bool) -> Vec<WindowRow> {
    let measured = outcome.measured.as_secs_f64();
    let number = (index(outcome.measured.as_secs()) / each).max(1);
    let of = |window: usize| {
        let is_last = window + 1 == number;
        let (from, to) = (window * each, if is_last { usize::MAX } else { (window + 1) * each });
        let inside = |second: &usize| (from..to).contains(second);
        let seconds: Vec<&Second> =
            outcome.seconds.iter().enumerate().filter(|(at, _)| inside(at)).map(|(_, of)| of).collect();
        let slow: Vec<_> = slow.iter().enumerate().filter(|(at, _)| inside(at)).map(|(_, slow)| *slow).collect();
        let bounds = [float(count(from)), if is_last { measured } else { float(count(to)) }];
        window_of(bounds, &seconds, &slow, is_open)
    };
    if measured > 0.0 { (0..number).map(of).collect() } else { Vec::new() }
}

fn window_of([from_s, to_s]: [f64; 2], seconds: &[&Second], slow: &[Option<u64>], is_open: bool) -> WindowRow {
    let sum = |of: fn(&Second) -> u64| seconds.iter().map(|second| of(second)).sum();
    let stolen: Vec<f64> = seconds.iter().filter_map(|second| second.stolen_share).collect();
    let last_unsent = seconds.last().map_or(0, |second| second.unsent);
    WindowRow {
        from_s,
        to_s,
        sent: sum(|second| second.sent),
        requests: sum(|second| second.requests),
        errors: sum(|second| second.errors),
        shed: sum(|second| second.shed),
        unsent: is_open.then_some(last_unsent),
        latency_ms: Percentiles::of(&merged(seconds, |second| &second.histogram)),
        shed_ms: Percentiles::of(&merged(seconds, |second| &second.shed_histogram)),
        stolen_share: (!stolen.is_empty()).then(|| stolen.iter().sum::<f64>() / float(count(stolen.len()))),
        slow_commits: slow.iter().copied().sum::<Option<u64>>().filter(|_| !slow.is_empty()),
    }
}

fn merged(seconds: &[&Second], of: fn(&Second) -> &[u8]) -> Histogram<u64> {
    let mut all = histogram();
    for second in seconds {
        let one: Histogram<u64> = Deserializer::new().deserialize(&mut of(second)).expect("serialized by this run");
        all.add(one).expect("all histograms have the same bounds");
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::windows;
    use crate::record::Interval;
    use crate::run::{RunOutcome, summary};

    /// Each second has one answer that took as many ms as its number, from 1 on, and one 503 in the seventh.
    fn outcome(seconds: u64, measured: f64) -> RunOutcome {
        let second = |number: u64| {
            let mut interval = Interval { sent: 2, unsent: number, ..Interval::default() };
            interval.latency.record(number * 1000).unwrap();
            if number == 7 {
                interval.errors = 1;
                interval.shed.record(2000).unwrap();
            }
            summary(&interval, Some(0.5))
        };
        let seconds = (1..=seconds).map(second).collect();
        RunOutcome { seconds, measured: Duration::from_secs_f64(measured), ..RunOutcome::nothing() }
    }

    #[test]
    fn windows_have_what_happened_in_their_seconds() {
        let two = windows(&outcome(20, 20.0), 10, &[Some(1); 20], true);
        let [first, second] = two.as_slice() else { panic!("{two:?}") };
        assert_eq!((first.from_s, first.to_s, second.from_s, second.to_s), (0.0, 10.0, 10.0, 20.0));
        assert_eq!((first.sent, first.requests, first.errors, first.shed, first.unsent), (20, 10, 1, 1, Some(10)));
        assert_eq!((second.shed, second.unsent, second.slow_commits), (0, Some(20), Some(10)));
        assert!((second.latency_ms.max - 20.0).abs() < 0.1 && (first.latency_ms.max - 10.0).abs() < 0.1, "{two:?}");
        assert!((first.shed_ms.p99 - 2.0).abs() < 0.1 && second.shed_ms.p99.is_nan(), "{two:?}");
        assert_eq!(first.stolen_share, Some(0.5));
    }

    #[test]
    fn the_last_window_has_what_is_left_and_what_came_late() {
        let of = |seconds, measured| {
            let all = windows(&outcome(seconds, measured), 10, &[], false);
            all.iter().map(|window| (window.from_s, window.to_s, window.requests)).collect::<Vec<_>>()
        };
        assert_eq!(of(26, 25.0), [(0.0, 10.0, 10), (10.0, 25.0, 16)]);
        assert_eq!(of(2, 1.5), [(0.0, 1.5, 2)], "a short run is one window");
        assert_eq!(of(12, 30.0), [(0.0, 10.0, 10), (10.0, 20.0, 2), (20.0, 30.0, 0)], "of a target that fell silent");
        assert_eq!(of(0, 0.0), []);
    }
}
