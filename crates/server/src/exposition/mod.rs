//! Everything that the node counts, in two forms: `/metrics`, the OpenMetrics text format, which Prometheus reads; and
//! `/v0/stats`, JSON that is small enough to be asked for once a second.

mod metrics;
mod open_metrics;
mod sink;
mod stats;

pub(crate) use open_metrics::text;
pub(crate) use stats::stats;
