//! The knee: the highest constant rate that is sustained under an objective, and what bends the curve.
//!
//! Every probe is an open-loop run with its own warm-up. When it is interrupted, the runs that were whole are kept.
//! Probes of seconds end before a store's debt has to be paid: `sustained` is whether it grew, and the sustained knee
//! is looked for with probes of minutes.

mod bench;
mod descent;
mod objective;
pub(crate) mod page;
mod probe;
mod result;
mod scalability;
mod search;
mod sustained;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::{fs, io};

pub use bench::{SearchInput, SearchObserver};
pub(crate) use objective::ACHIEVED_SHARE;
pub use objective::Objective;
pub use probe::Probe;
pub use result::{Knee, NodeDebt, ShareOfKnee, SustainedKnee};
pub use scalability::{Over, Point, Scalability, fit};
pub use search::{Effort, KneeSearch, SearchStep};

use bench::Bench;
use page::knee_page;

use crate::Error;
use crate::report::{Document, save, write_json};
use crate::run::{RunOutcome, allow_open_files, reach};

const KNEE_FILE: &str = "knee.json";
/// Searches. Blocks: minutes. With `dir`, the runs at the knee and at half of it, and `knee.json`, are written there at
/// its end, also of a search that is interrupted or fails; but without a knee it does not replace one that has one.
///
/// # Errors
/// Beside what was found until then, those of [`run()`](crate::run::run()), else the first of writing. A target that
/// dies on the way ends the search with [`Error::Unreachable`]; what cannot be written does not, but for `dir` itself.
pub fn knee(hunt: &SearchInput<'_>, watch: &mut dyn SearchObserver) -> (Knee, Result<(), Error>) {
    let SearchInput { plan, objective, dir, stop, .. } = hunt;
    let knee = Knee {
        workload: plan.workload.to_string(),
        targets: plan.targets.iter().map(ToString::to_string).collect(),
        objective: objective.to_string(),
        knee_rate: None,
        latency_ms: None,
        sustained: None,
        half: None,
        sustained_knee: None,
        probes: Vec::new(),
        scalability: None,
        generator_limit: None,
        hint: None,
        interrupted: false,
        earlier_stays: false,
    };
    let mut bench = Bench { hunt, runs: 0, knee, kept: BTreeMap::new() };
    // An earlier search is worth more than one that does not begin.
    let reached = || plan.targets.iter().try_for_each(|target| reach(target).map(drop));
    if let Err(error) = plan.check().and_then(|()| allow_open_files(plan.connections)).and_then(|()| reached()) {
        return (bench.knee, Err(error));
    }
    let made = dir.map_or(Ok(()), |dir| fs::create_dir_all(dir).map_err(Error::system(dir.display().to_string())));
    let searched = made.and_then(|()| bench.search(watch));
    let (mut knee, kept) = (bench.knee, bench.kept);
    knee.interrupted = stop.load(Ordering::Relaxed);
    if !knee.interrupted {
        knee.generator_limit = what_ended(&knee.probes, knee.knee_rate.unwrap_or(0));
    }
    let is_broken = (knee.interrupted || searched.is_err()) && knee.knee_rate.is_none();
    knee.earlier_stays = is_broken && dir.is_some_and(has_knee);
    let written = dir.filter(|_| !knee.earlier_stays).map_or(Ok(()), |dir| write(dir, &knee, &kept));
    (knee, searched.and(written))
}

/// Whether there is a search with a knee.
fn has_knee(dir: &Path) -> bool {
    let saved = fs::read(dir.join(KNEE_FILE)).ok().and_then(|bytes| serde_json::from_slice::<Knee>(&bytes).ok());
    saved.is_some_and(|knee| knee.knee_rate.is_some())
}

/// Writes a search in the place of an earlier one, of whose runs it may have none. Without room for `knee.json` the
/// earlier one stays; what else cannot be written does not keep the rest from it.
fn write(dir: &Path, knee: &Knee, kept: &BTreeMap<&str, (RunOutcome, Document)>) -> Result<(), Error> {
    let file = dir.join(KNEE_FILE);
    let is_there = file.is_file();
    write_json(&file, knee)?;
    let mut written = if is_there { clear(dir) } else { Ok(()) };
    // A confirmation whose knee was not found before an interrupt is of none.
    for (name, (outcome, document)) in kept.iter().filter(|_| knee.knee_rate.is_some()) {
        written = written.and(save(&dir.join(name), outcome, document));
    }
    written.and(knee_page(&dir.join("report.html"), knee))
}

fn clear(dir: &Path) -> Result<(), Error> {
    ["knee", "half", "sustained"]
        .iter()
        .try_for_each(|name| remove(&dir.join(name)))
        .map_err(Error::system(dir.display().to_string()))
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Why the generator was the limit each time that the lowest rate above the knee failed; none if once it was not.
fn what_ended(probes: &[Probe], knee: u64) -> Option<String> {
    let failed = || probes.iter().filter(|probe| !probe.passed && probe.rate_asked > knee);
    let lowest = failed().map(|probe| probe.rate_asked).min()?;
    let limits = failed().filter(|probe| probe.rate_asked == lowest).map(|probe| probe.generator_limit.clone());
    limits.reduce(|limit, other| limit.and(other)).flatten()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Objective, Probe, what_ended};
    use crate::report::Percentiles;

    fn probe(rate_asked: u64, passed: bool, limit: bool) -> Probe {
        Probe {
            rate_asked,
            rate_achieved: 0.0,
            latency_ms: Percentiles::default(),
            duration_s: 1.0,
            errors: 0,
            passed,
            missed: None,
            generator_limit: limit.then(|| "busy".to_owned()),
            stolen: None,
            slow_commits: None,
            debt_bounded: None,
        }
    }

    #[test]
    fn of_the_confirmations_that_passed_the_better_is_told() {
        let of = |p99| Percentiles { p99, ..Percentiles::default() };
        let confirmation = |passed, p99| Probe { latency_ms: of(p99), ..probe(100, passed, false) };
        assert!(
            confirmation(true, 40.0).is_better_than(None) && confirmation(true, 32.0).is_better_than(Some(of(33.0)))
        );
        assert!(!confirmation(true, 40.0).is_better_than(Some(of(33.0))));
        // Fast, but it missed the rate.
        assert!(
            !confirmation(false, 12.0).is_better_than(Some(of(33.0)))
                && !confirmation(false, 12.0).is_better_than(None)
        );
    }

    #[test]
    fn the_generator_ended_a_search_if_it_was_the_limit_each_time() {
        let both = [probe(90, true, true), probe(100, false, true), probe(100, false, true), probe(200, false, false)];
        assert_eq!(what_ended(&both, 90).as_deref(), Some("busy"));
        for once in [[true, false], [false, true]] {
            assert_eq!(what_ended(&once.map(|limit| probe(100, false, limit)), 90), None);
        }
        assert_eq!(what_ended(&[probe(80, false, true), probe(100, true, false)], 100), None);
    }

    #[test]
    fn an_objective_is_percentiles_with_limits() {
        let objective: Objective = "p99=50ms,p999=0.2s,max=900us".parse().unwrap();
        assert_eq!(objective.to_string(), "p99=50ms,p999=200ms,max=0.9ms");
        for bad in ["", "p99", "p99=50", "p98=5ms", "p99=-1ms", "p99=5ms,", "p99=xs"] {
            assert!(bad.parse::<Objective>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_grace_is_the_greatest_limit_and_never_more_than_a_fiftieth_of_the_run() {
        let grace = |objective: &str, seconds| {
            objective.parse::<Objective>().unwrap().grace(Duration::from_secs(seconds)).as_millis()
        };
        assert_eq!((grace("p50=5ms,p99=50ms", 30), grace("p50=5ms,p99=50ms", 2)), (50, 40));
        assert_eq!((grace("p99=500ms", 10), grace("max=infs", 10), grace("p99=1us", 10)), (200, 200, 0));
    }
}
