//! Latencies in percentiles.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::numbers::{milliseconds, number_or_nan};

/// Latencies in milliseconds. Where nothing was measured each is not a number, in JSON `null`: 0 would look fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half of all are at most this.
    #[serde(deserialize_with = "number_or_nan")]
    pub p50: f64,
    /// 90 of 100.
    #[serde(deserialize_with = "number_or_nan")]
    pub p90: f64,
    /// 99 of 100.
    #[serde(deserialize_with = "number_or_nan")]
    pub p99: f64,
    /// 999 of 1,000.
    #[serde(deserialize_with = "number_or_nan")]
    pub p999: f64,
    /// 9,999 of 10,000.
    #[serde(deserialize_with = "number_or_nan")]
    pub p9999: f64,
    /// The longest.
    #[serde(deserialize_with = "number_or_nan")]
    pub max: f64,
    /// Their mean.
    #[serde(deserialize_with = "number_or_nan")]
    pub mean: f64,
}

impl Percentiles {
    /// Of nothing.
    pub const NONE: Self = {
        let none = f64::NAN;
        Self { p50: none, p90: none, p99: none, p999: none, p9999: none, max: none, mean: none }
    };

    /// Of a histogram of microseconds.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::NONE;
        }
        let at = |quantile| milliseconds(histogram.value_at_quantile(quantile));
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: milliseconds(histogram.max()),
            mean: histogram.mean() / 1e3,
        }
    }

    /// Each with its name, in the order of reports.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p999", self.p999),
            ("p9999", self.p9999),
            ("max", self.max),
            ("mean", self.mean),
        ]
    }
}
