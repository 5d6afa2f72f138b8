//! What a run counted.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::processes::Usage;

/// The longest latency that is distinguished.
const LATENCY_MAX_US: u64 = 60_000_000;

/// Counts of the measured time.
#[derive(Debug)]
pub(crate) struct RunCounts {
    /// From the sending of a request to the end of its answer, in µs. Successes only.
    latency: Histogram<u64>,
    pub(crate) refused: u64,
}

/// What is printed.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Successes a second.
    pub(crate) rate: f64,
    pub(crate) requests: u64,
    /// Answers that are no success: an error, a `WAIT` that fewer than one replica confirmed, a value that is missing.
    pub(crate) refused: u64,
    /// Under way for more than a second when the time was over. Their latencies are in no percentile.
    pub(crate) stalled: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Processor time of all servers for each success, user and system.
    pub(crate) server_cpu_us: f64,
    pub(crate) driver_cpu_us: f64,
    /// Of one processor: near 1, the driver was what limited the rate.
    pub(crate) driver_share: f64,
}

impl RunCounts {
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("these bounds are valid");
        Self { latency, refused: 0 }
    }

    pub(crate) fn succeed(&mut self, latency: Duration) {
        self.latency.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(LATENCY_MAX_US));
    }

    pub(crate) fn successes(&self) -> u64 {
        self.latency.len()
    }

    pub(crate) fn report(&self, time: Duration, spent: Usage, stalled: u64) -> Report {
        let seconds = time.as_secs_f64().max(1e-9);
        let ms = |quantile: f64| self.latency.value_at_quantile(quantile) as f64 / 1e3;
        let per_request = |seconds: f64| seconds * 1e6 / self.successes().max(1) as f64;
        Report {
            rate: self.successes() as f64 / seconds,
            requests: self.successes(),
            refused: self.refused,
            stalled,
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            max_ms: ms(1.0),
            server_cpu_us: per_request(spent.servers_seconds),
            driver_cpu_us: per_request(spent.driver.as_secs_f64()),
            driver_share: spent.driver.as_secs_f64() / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RunCounts;
    use crate::processes::Usage;

    #[test]
    fn rates_and_costs_are_of_successes() {
        let mut counts = RunCounts::new();
        (1..=100).for_each(|ms| counts.succeed(Duration::from_millis(ms)));
        counts.refused = 7;
        let spent = Usage { servers_seconds: 0.5, driver: Duration::from_secs(1) };
        let report = counts.report(Duration::from_secs(2), spent, 3);
        assert_eq!((report.rate, report.requests, report.refused, report.stalled), (50.0, 100, 7, 3));
        assert_eq!((report.server_cpu_us, report.driver_cpu_us, report.driver_share), (5000.0, 10_000.0, 0.5));
        assert!((report.p50_ms - 50.0).abs() < 0.1 && (report.p99_ms - 99.0).abs() < 0.1, "{report:?}");
    }
}
