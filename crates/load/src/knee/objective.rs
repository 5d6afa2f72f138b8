//! What a rate must meet.

use std::str::FromStr;
use std::time::Duration;

use crate::numbers::float;
use crate::report::{Document, Percentiles, RateAsked, told_ms};

/// The least share of the asked rate that counts as sustained.
pub(crate) const ACHIEVED_SHARE: f64 = 0.99;
/// The grace of a run is at most one part in so many of its time, so that what is too fast for the target by more than
/// 3 % never passes.
const GRACE_PART: u32 = 50;

/// What a rate must meet to be sustained, besides 99 % of it, without an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective(Vec<(String, f64)>);

impl FromStr for Objective {
    type Err = String;

    /// `p99=50ms`, several joined by commas.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not p99=50ms, or several like it: p50, p90, p99, p999, p9999, max, mean");
        let term = |part: &str| {
            let (name, limit) = part.split_once('=').ok_or_else(wrong)?;
            let (limit, unit) = match (limit.strip_suffix("us"), limit.strip_suffix("ms"), limit.strip_suffix('s')) {
                (Some(limit), _, _) => (limit, 1e-3),
                (_, Some(limit), _) => (limit, 1.0),
                (_, _, Some(limit)) => (limit, 1e3),
                _ => return Err(wrong()),
            };
            let limit = limit.parse::<f64>().ok().filter(|limit| *limit > 0.0).ok_or_else(wrong)?;
            let known = Percentiles::default().named().iter().any(|(known, _)| *known == name);
            if known { Ok((name.to_owned(), limit * unit)) } else { Err(wrong()) }
        };
        text.split(',').map(term).collect::<Result<_, _>>().map(Self)
    }
}

impl std::fmt::Display for Objective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let terms: Vec<String> = self.0.iter().map(|(name, limit)| format!("{name}={limit}ms")).collect();
        f.write_str(&terms.join(","))
    }
}

impl Objective {
    /// How long after its end a run's answers still count: a target that may let them wait so long may do so at the
    /// end too.
    pub(super) fn grace(&self, duration: Duration) -> Duration {
        let longest = self.0.iter().map(|(_, limit)| limit / 1e3).fold(0.0, f64::max);
        Duration::try_from_secs_f64(longest).unwrap_or(duration).min(duration / GRACE_PART)
    }

    /// Why a run does not meet it; none if it does.
    #[must_use]
    pub fn missed(&self, run: &Document) -> Option<String> {
        let mut missed = Vec::new();
        if let RateAsked::PerSecond(asked) = run.rate_asked
            && run.rate_achieved < float(asked) * ACHIEVED_SHARE
        {
            // Rounded down: 98.97 % are not the 99 % that are asked for.
            let tenths = (run.rate_achieved / float(asked) * 1000.0).floor();
            missed.push(format!("only {:.1} % of the rate", tenths / 10.0));
        }
        missed.extend(run.said_of_failures());
        if !missed.is_empty() {
            return Some(missed.join(", "));
        }
        self.missed_by(&run.latency_ms)
    }

    /// Which of its limits these latencies are over; none if they are not.
    pub(crate) fn missed_by(&self, latency: &Percentiles) -> Option<String> {
        let of = |name: &str| latency.named().into_iter().find(|(known, _)| *known == name);
        self.0.iter().find_map(|(name, limit)| {
            let (_, measured) = of(name)?;
            (measured.is_nan() || measured > *limit).then(|| format!("{name} is {}", told_ms(measured)))
        })
    }
}
