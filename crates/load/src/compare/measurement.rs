//! What is compared.

use crate::Error;
use crate::report::{Document, Percentiles};

/// What is compared of one run, or of one block of one, and what puts that in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measurement {
    /// Successes per second.
    pub rate: f64,
    /// In ms, of successes.
    pub latency_ms: Percentiles,
    /// Processor time of all nodes for a request, in µs; none if it is not known of one of them, and of a block.
    pub cpu_us: Option<f64>,
    /// Errors, timeouts, and what an interrupt left without an answer.
    pub errors: u64,
    /// Requests that were due.
    pub due: u64,
    /// Those of them that were never sent.
    pub unsent: u64,
    /// Whether the generator was the limit.
    pub is_limited: bool,
    /// Whether it sent everything, but so late that the latencies are partly its own.
    pub is_late: bool,
    /// Whether the run was stopped before its end.
    pub is_interrupted: bool,
}

impl Measurement {
    /// Of a run with this name.
    ///
    /// # Errors
    /// [`Error::Refused`] if nothing succeeded before its end: there is nothing to compare.
    pub fn of(document: &Document, name: &str) -> Result<Self, Error> {
        let errors = document.errors.values().sum::<u64>() + document.timeouts + document.unanswered;
        if document.operations.is_empty() || document.rate_achieved <= 0.0 {
            return Err(Error::Refused(format!("nothing succeeded in the run {name}: {errors} errors and timeouts")));
        }
        Ok(Self {
            rate: document.rate_achieved,
            latency_ms: document.latency_ms,
            // Less than a tick of the system's clock is not known.
            cpu_us: document.cpu_us_per_request().filter(|cost| *cost > 0.0),
            errors,
            due: document.requests + document.unanswered + document.unsent,
            unsent: document.unsent,
            is_limited: document.generator.limit.is_some(),
            is_late: document.generator.late.is_some(),
            is_interrupted: document.interrupted,
        })
    }

    /// The figures that are tested. The others are extremes, or follow from these.
    pub(super) fn figures(&self) -> [(&'static str, Option<f64>); 6] {
        let latency = &self.latency_ms;
        [
            ("rate", Some(self.rate)),
            ("p50", Some(latency.p50)),
            ("p90", Some(latency.p90)),
            ("p99", Some(latency.p99)),
            ("p999", Some(latency.p999)),
            ("cpu", self.cpu_us),
        ]
    }
}
