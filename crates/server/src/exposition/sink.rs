//! What metrics are written to.

use std::fmt;

use kvorum_base::histogram::Snapshot;

/// Names and values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// What a histogram's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistogramUnit {
    /// Microseconds, in a metric of seconds.
    Micros,
    /// Numbers of things.
    Count,
}

/// Takes metrics of the shapes that the node has. Names have neither `kvorum_` nor `_total`.
pub(super) trait MetricSink {
    /// A number that only grows.
    fn counter(&mut self, name: &'static str, help: &str, value: u64) -> fmt::Result;

    /// A time that only grows.
    fn seconds(&mut self, name: &'static str, help: &str, value: f64) -> fmt::Result;

    /// Numbers that only grow, by labels.
    fn counters(
        &mut self,
        name: &'static str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result;

    /// A number.
    fn gauge(&mut self, name: &'static str, help: &str, value: f64) -> fmt::Result;

    /// Numbers, by labels.
    fn gauges(
        &mut self,
        name: &'static str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result;

    /// Counts of values, by labels.
    fn histograms(
        &mut self,
        name: &'static str,
        help: &str,
        unit: HistogramUnit,
        values: impl IntoIterator<Item = (Labels, Snapshot)>,
    ) -> fmt::Result;
}

#[expect(clippy::cast_precision_loss, reason = "a metric may be off by one in 2^53")]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

/// Of microseconds. Divided, so that the ends of buckets are the decimal numbers that one expects.
pub(super) fn seconds(micros: u64) -> f64 {
    float(micros) / 1e6
}
