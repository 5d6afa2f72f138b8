//! One probe.

use serde::{Deserialize, Serialize};

use super::objective::Objective;
use crate::numbers::whole;
use crate::report::{Document, Percentiles, told_ms};

/// One probe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// Requests a second.
    pub rate_asked: u64,
    /// Successes a second.
    pub rate_achieved: f64,
    /// From when they were due.
    pub latency_ms: Percentiles,
    /// Measured time.
    pub duration_s: f64,
    /// Errors and timeouts.
    pub errors: u64,
    /// Whether it met the objective.
    pub passed: bool,
    /// Why it did not.
    pub missed: Option<String>,
    /// Why the generator was the limit, or so late that it missed for that, if it was.
    pub generator_limit: Option<String>,
    /// How much of the processors the machine's host took, if it was much.
    pub stolen: Option<String>,
    /// In how many seconds a node's commits took long, if these were slower than the others.
    #[serde(default)]
    pub slow_commits: Option<String>,
    /// Whether the stores' debt stayed bounded; none if that is not known.
    #[serde(default)]
    pub debt_bounded: Option<bool>,
}

impl Probe {
    /// Of a run at a rate.
    #[must_use]
    pub fn of(rate_asked: u64, run: &Document, objective: &Objective) -> Self {
        Self::judged(rate_asked, run, objective.missed(run))
    }

    pub(super) fn judged(rate_asked: u64, run: &Document, missed: Option<String>) -> Self {
        // Lateness of its own is why it missed something if it is at least half of the latency. No error is its own.
        let (lag, latency) = (run.generator.lag_ms.p99, run.latency_ms.p99);
        let is_cause = missed.is_some() && run.failures() == 0 && lag * 2.0 >= latency;
        let late = run.generator.late.clone().filter(|_| is_cause);
        Self {
            rate_asked,
            rate_achieved: run.rate_achieved,
            latency_ms: run.latency_ms,
            duration_s: run.duration_s,
            errors: run.failures(),
            passed: missed.is_none(),
            missed,
            generator_limit: run.generator.limit.clone().or(late),
            stolen: run.generator.stolen(),
            slow_commits: run.slow_commits(),
            debt_bounded: run.debt_bounded,
        }
    }

    /// Whether this confirmation is the one to report, where `best` is the latencies of the best before it at its rate.
    pub(super) fn is_better_than(&self, best: Option<Percentiles>) -> bool {
        self.passed && best.is_none_or(|best| self.latency_ms.p99 < best.p99)
    }

    /// One line for it.
    #[must_use]
    pub fn line(&self) -> String {
        let result = self.missed.as_ref().map_or_else(|| "ok".to_owned(), |why| format!("no: {why}"));
        let limit = self.generator_limit.as_ref().map(|_| "the generator is the limit".to_owned());
        let debt = (self.debt_bounded == Some(false)).then(|| "debt grew".to_owned());
        let whose: Vec<String> =
            [limit, self.stolen.clone(), self.slow_commits.clone(), debt].into_iter().flatten().collect();
        let whose = if whose.is_empty() { String::new() } else { format!(" ({})", whose.join("; ")) };
        format!(
            "{:>9}/s: {:>9}/s achieved, p50 {}, p99 {}: {result}{whose}",
            self.rate_asked,
            whole(self.rate_achieved.round()),
            told_ms(self.latency_ms.p50),
            told_ms(self.latency_ms.p99),
        )
    }
}
