//! What series were: an hour by the second and a day by the minute, in memory that is given once.

use std::fmt::Write as _;

/// An hour.
pub(crate) const SECONDS: usize = 3600;
/// A day.
pub(crate) const MINUTES: usize = 1440;

/// Rows of numbers, one for each moment; the oldest ones are overwritten. What was not recorded is NaN.
#[derive(Debug)]
struct Ring {
    columns: usize,
    rows: usize,
    values: Vec<f32>,
    /// The newest moment, counted from the console's start; none before the first.
    newest: Option<u64>,
}

impl Ring {
    fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, values: vec![f32::NAN; columns * rows], newest: None }
    }

    fn row(&mut self, moment: u64) -> &mut [f32] {
        let rows = u64::try_from(self.rows).unwrap_or(u64::MAX);
        let at = usize::try_from(moment % rows).unwrap_or(0) * self.columns;
        self.values.get_mut(at..at + self.columns).unwrap_or_default()
    }

    /// Records a row. A moment that is not newer than the newest is left out.
    fn push(&mut self, moment: u64, row: &[f32]) {
        if self.newest.is_some_and(|newest| moment <= newest) {
            return;
        }
        let rows = u64::try_from(self.rows).unwrap_or(u64::MAX);
        let first = self.newest.map_or(moment, |newest| (newest + 1).max(moment.saturating_sub(rows - 1)));
        for missed in first..moment {
            self.row(missed).fill(f32::NAN);
        }
        self.row(moment).copy_from_slice(row);
        self.newest = Some(moment);
    }

    /// A column at the moments up to `end`, oldest first.
    fn column(&self, column: usize, end: u64, count: usize) -> impl Iterator<Item = f32> {
        let rows = u64::try_from(self.rows).unwrap_or(u64::MAX);
        let oldest_kept = self.newest.map_or(u64::MAX, |newest| newest.saturating_sub(rows - 1));
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let moments = (0..count).map(move |index| (end + 1).checked_sub(count - index));
        moments.map(move |moment| {
            let moment = moment.filter(|moment| *moment >= oldest_kept && Some(*moment) <= self.newest);
            let at = moment.and_then(|moment| usize::try_from(moment % rows).ok());
            at.and_then(|at| self.values.get(at * self.columns + column)).copied().unwrap_or(f32::NAN)
        })
    }
}

/// How the seconds of a minute become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MinuteOf {
    /// Their mean.
    Mean,
    /// The largest.
    Worst,
}

/// What one node's series were.
#[derive(Debug)]
pub(crate) struct NodeHistory {
    seconds: Ring,
    minutes: Ring,
    minute_of: Vec<MinuteOf>,
    /// The minute that is not over: for each series a sum or the largest, and of how many.
    gathered: Vec<(f32, u16)>,
    minute: Option<u64>,
}

/// Which part of a history is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistorySpan {
    /// The newest second, counted from the console's start.
    pub(crate) end_s: u64,
    /// How many seconds back.
    pub(crate) seconds: u64,
}

impl HistorySpan {
    /// How far points are apart.
    pub(crate) fn step_s(self) -> u64 {
        if self.seconds <= u64::try_from(SECONDS).unwrap_or(0) { 1 } else { 60 }
    }
}

impl NodeHistory {
    pub(crate) fn new(minute_of: Vec<MinuteOf>) -> Self {
        let columns = minute_of.len();
        Self {
            seconds: Ring::new(columns, SECONDS),
            minutes: Ring::new(columns, MINUTES),
            gathered: vec![(0.0, 0); columns],
            minute_of,
            minute: None,
        }
    }

    /// Records what the series were in a second, counted from the console's start.
    pub(crate) fn push(&mut self, second: u64, row: &[f32]) {
        debug_assert_eq!(row.len(), self.minute_of.len());
        self.seconds.push(second, row);
        let minute = second / 60;
        if let Some(over) = self.minute.filter(|over| *over < minute) {
            let means = self.gathered.iter().zip(&self.minute_of).map(|((value, count), of)| match (of, count) {
                (_, 0) => f32::NAN,
                (MinuteOf::Mean, count) => value / f32::from(*count),
                (MinuteOf::Worst, _) => *value,
            });
            self.minutes.push(over, &means.collect::<Vec<f32>>());
            self.gathered.fill((0.0, 0));
        }
        self.minute = Some(minute);
        for ((gathered, of), value) in self.gathered.iter_mut().zip(&self.minute_of).zip(row) {
            if !value.is_nan() {
                gathered.0 = match of {
                    MinuteOf::Mean => gathered.0 + value,
                    MinuteOf::Worst => gathered.0.max(*value),
                };
                gathered.1 = gathered.1.saturating_add(1);
            }
        }
    }

    /// Writes a series as an array of JSON, oldest first; what is not known is null.
    pub(crate) fn write(&self, out: &mut String, series: usize, span: HistorySpan) {
        let step = span.step_s();
        let count = usize::try_from(span.seconds / step).unwrap_or(0);
        out.push('[');
        if step == 1 {
            write_all(out, self.seconds.column(series, span.end_s, count.min(SECONDS)));
        } else if let Some(last) = (span.end_s / 60).checked_sub(1) {
            // The last minute that is over.
            write_all(out, self.minutes.column(series, last, count.min(MINUTES)));
        }
        out.push(']');
    }

    /// The memory of it.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        (self.seconds.values.capacity() + self.minutes.values.capacity()) * size_of::<f32>()
            + self.gathered.capacity() * size_of::<(f32, u16)>()
            + self.minute_of.capacity()
    }
}

fn write_all(out: &mut String, values: impl Iterator<Item = f32>) {
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_number(out, value);
    }
}

/// A number of JSON, or null.
pub(crate) fn write_number(out: &mut String, value: f32) {
    if value.is_finite() {
        write!(out, "{value}").expect("a string takes all text");
    } else {
        out.push_str("null");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::SERIES;

    fn written(history: &NodeHistory, end_s: u64, seconds: u64) -> Vec<Option<f64>> {
        let mut text = String::new();
        history.write(&mut text, 0, HistorySpan { end_s, seconds });
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_node_takes_less_than_five_megabytes_however_long_it_is_watched() {
        let mut history = NodeHistory::new(vec![MinuteOf::Mean; SERIES.len()]);
        let before = history.bytes();
        for second in 0..100_000 {
            history.push(second, &vec![1.0; SERIES.len()]);
        }
        assert_eq!(history.bytes(), before);
        assert!(before < 5_000_000, "{before}");
    }

    #[test]
    fn seconds_come_back_oldest_first_and_gaps_as_null() {
        let mut history = NodeHistory::new(vec![MinuteOf::Mean]);
        for (second, value) in [(1, 0.5), (2, 2.0), (5, 5.0)] {
            history.push(second, &[value]);
        }
        assert_eq!(written(&history, 5, 7), [None, None, Some(0.5), Some(2.0), None, None, Some(5.0)]);
        assert_eq!(written(&history, 6, 2), [Some(5.0), None], "a second that is not recorded yet");
        history.push(5, &[9.0]);
        assert_eq!(written(&history, 5, 1), [Some(5.0)], "what was is not changed");
    }

    #[test]
    fn a_ring_forgets_the_oldest_and_what_was_there_before_a_gap() {
        let mut history = NodeHistory::new(vec![MinuteOf::Mean]);
        let hour = SECONDS as u64;
        for second in 0..hour {
            history.push(second, &[1.0]);
        }
        history.push(hour + 10, &[2.0]);
        let values = written(&history, hour + 10, hour);
        assert_eq!(values.len(), SECONDS);
        assert_eq!(values[SECONDS - 1], Some(2.0));
        assert!(values[SECONDS - 11..SECONDS - 1].iter().all(Option::is_none), "the gap is not an hour-old value");
        assert_eq!(values[0], Some(1.0));
        history.push(5 * hour, &[3.0]);
        assert_eq!(written(&history, 5 * hour, hour).iter().flatten().count(), 1, "all else is too old");
    }

    #[test]
    fn a_minute_is_the_mean_of_its_seconds_or_the_worst_of_them() {
        for (of, expected) in [(MinuteOf::Mean, 29.5), (MinuteOf::Worst, 59.0)] {
            let mut history = NodeHistory::new(vec![of]);
            for second in 0..121_u16 {
                history.push(second.into(), &[if second < 60 { f32::from(second) } else { f32::NAN }]);
            }
            let values = written(&history, 120, 7200);
            assert_eq!(values.len(), 120);
            assert_eq!(values[118..], [Some(expected), None], "of a minute without values there is none");
        }
    }

    #[test]
    fn numbers_are_json() {
        let mut text = String::new();
        for value in [0.1, 1e20, -3.0, f32::NAN, f32::INFINITY, 1e-9] {
            write_number(&mut text, value);
            text.push(' ');
        }
        assert_eq!(text, "0.1 100000000000000000000 -3 null null 0.000000001 ");
    }
}
