//! The knee: the highest constant rate that is sustained under an objective, and what bends the curve.
//!
//! Every probe is an open-loop run with its own warm-up. When it is interrupted, the runs that were whole are kept. Probes
//! of seconds end before a store's debt has to be paid: `sustained` says whether it grew, and the sustained knee is looked
//! for with probes of minutes.

mod descent;
mod scalability;
mod search;
mod sustained;

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};

pub use scalability::{Over, Point, Scalability, fit};
pub use search::{Effort, Search, Step};
pub use sustained::{NodeDebt, SustainedKnee};

use crate::Error;
use crate::numbers::{count, float, whole};
use crate::report::{Document, Percentiles, RateAsked, knee_page, save, told_ms, write_json};
use crate::run::{Outcome, Plan, Rate, allow_open_files, reach, run};

const KNEE_FILE: &str = "knee.json";
/// The least share of the asked rate that counts as sustained.
pub(crate) const ACHIEVED_SHARE: f64 = 0.99;
/// The grace of a run is at most one part in so many of its time, so that what is too fast for the target by more than
/// 3 % never passes.
const GRACE_PART: u32 = 50;
/// How much shorter a probe of the search is than one that confirms, within bounds.
const PROBE_SHARE: u32 = 3;
const PROBE_MIN: Duration = Duration::from_secs(3);
const BRIEF_PROBE_MIN: Duration = Duration::from_secs(2);
const PROBE_WARMUP_MAX: Duration = Duration::from_secs(2);
/// The run at half the knee has a warm-up of so long at least, or twice its own time: the rates that were too high have
/// left a store work, which belongs to the search and not to that rate.
const HALF_WARMUP_MIN: Duration = Duration::from_secs(5);
/// Connections of the last point of the scalability curve at most.
const SCALE_CONNECTIONS_MAX: usize = 256;

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
    fn grace(&self, duration: Duration) -> Duration {
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

/// A run at a share of the knee.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct At {
    /// Requests a second.
    pub rate: u64,
    /// At that rate.
    pub latency_ms: Percentiles,
    /// What it missed of the objective, if it did.
    #[serde(default)]
    pub missed: Option<String>,
}

/// The whole of `knee.json`. Scripts rely on its names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Knee {
    /// As on the command line.
    pub workload: String,
    /// URLs.
    pub targets: Vec<String>,
    /// As on the command line.
    pub objective: String,
    /// The highest rate that was sustained; none if there is none, or it was not found before an interrupt.
    pub knee_rate: Option<u64>,
    /// At the knee: the better confirmation.
    pub latency_ms: Option<Percentiles>,
    /// Whether debt was bounded in the confirmation, and, where a sustained knee was searched for, whether it is this one;
    /// none if the run was too short to tell, or nobody told.
    #[serde(default)]
    pub sustained: Option<bool>,
    /// At half of it.
    pub half: Option<At>,
    /// What is sustained for long, if that was searched for.
    #[serde(default)]
    pub sustained_knee: Option<SustainedKnee>,
    /// Every probe, in order.
    pub probes: Vec<Probe>,
    /// Throughput of closed loops, and what bends it.
    pub scalability: Option<Scalability>,
    /// Why the generator, and not the target, ended the search; none if it did not.
    pub generator_limit: Option<String>,
    /// What to do about errors that were not the target's fault; none if there were none such.
    #[serde(default)]
    pub hint: Option<String>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Interrupted or failed without a knee, it was not written in the place of one that has one.
    #[serde(skip)]
    pub earlier_stays: bool,
}

/// What the search tells while it goes on.
pub trait Watch {
    /// A probe has ended, or with a name a run at full length: `knee` if it was to confirm one, `half` at half of it,
    /// `sustain` if it was a probe for the sustained knee, and `sustained` if it was to confirm that.
    fn probed(&mut self, probe: &Probe, name: Option<&str>);
    /// A closed loop has ended.
    fn scaled(&mut self, point: Point);
}

/// What is searched for, and how.
#[derive(Debug)]
pub struct Hunt<'a> {
    /// What each probe does; the search decides its rate, and may begin with the plan's.
    pub plan: &'a Plan,
    /// What a rate must meet.
    pub objective: &'a Objective,
    /// How thoroughly.
    pub effort: Effort,
    /// For how long the sustained knee must hold, which is then searched for, too.
    pub sustained: Option<Duration>,
    /// Where to write what is found.
    pub dir: Option<&'a Path>,
    /// Ends the search with what is known.
    pub stop: &'a Arc<AtomicBool>,
}

/// Searches. Blocks: minutes. With `dir`, the runs at the knee and at half of it, and `knee.json`, are written there at
/// its end, also of a search that is interrupted or fails; but without a knee it does not replace one that has one.
///
/// # Errors
/// Beside what was found until then, those of [`run()`], else the first of writing. A target that dies on the way ends
/// the search with [`Error::Unreachable`]; what cannot be written does not, but for `dir` itself.
pub fn knee(hunt: &Hunt<'_>, watch: &mut dyn Watch) -> (Knee, Result<(), Error>) {
    let Hunt { plan, objective, dir, stop, .. } = hunt;
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
fn write(dir: &Path, knee: &Knee, kept: &BTreeMap<&str, (Outcome, Document)>) -> Result<(), Error> {
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

struct Bench<'a> {
    hunt: &'a Hunt<'a>,
    /// So far: each has another seed, so that none asks for what the one before brought into caches.
    runs: u64,
    /// What is known so far.
    knee: Knee,
    /// The runs to save, by their name: the better confirmation of the knee, and half of it.
    kept: BTreeMap<&'static str, (Outcome, Document)>,
}

impl Bench<'_> {
    /// The knee, half of it, and the scalability curve.
    fn search(&mut self, watch: &mut dyn Watch) -> Result<(), Error> {
        let effort = self.hunt.effort;
        let Some((point, document)) = self.closed_loop(self.hunt.plan.connections, watch)? else { return Ok(()) };
        if point.rate <= 0.0
            && let Some(why) = document.said_of_failures()
        {
            let hint = document.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            let connections = self.hunt.plan.connections;
            let text = format!("nothing succeeded in a closed loop over {connections} connections: {why}{hint}");
            return Err(Error::Refused(text));
        }
        let first = if let Rate::PerSecond(first) = self.hunt.plan.rate { Some(first) } else { None };
        let mut search = Search::new(effort, first, point.rate);
        let rate = loop {
            let step = search.next();
            let probe = match step {
                Step::Done(rate) => break rate,
                Step::Probe(rate) => self.probe(rate, None, watch)?,
                Step::Confirm(rate) => self.probe(rate, Some("knee"), watch)?,
            };
            let Some(probe) = probe else { return Ok(()) };
            search.tell(probe.passed);
            if probe.passed && matches!(step, Step::Confirm(_)) {
                if probe.is_better_than(self.knee.latency_ms) {
                    self.knee.latency_ms = Some(probe.latency_ms);
                    self.knee.sustained = probe.debt_bounded;
                }
            } else if matches!(step, Step::Confirm(_)) && search.best() != Some(probe.rate_asked) {
                // It did not hold: what was measured there is not of the knee.
                (self.knee.latency_ms, self.knee.sustained) = (None, None);
                self.kept.remove("knee");
            }
        };
        self.knee.knee_rate = rate;
        if let Some(rate) = rate {
            let rate = (rate / 2).max(1);
            let Some(probe) = self.probe(rate, Some("half"), watch)? else { return Ok(()) };
            self.knee.half = Some(At { rate, latency_ms: probe.latency_ms, missed: probe.missed });
        }
        if let Some((rate, time)) = rate.zip(self.hunt.sustained) {
            self.descend(rate, time, watch)?;
        }
        if effort == Effort::Whole {
            self.knee.scalability = self.scale(watch)?;
        }
        Ok(())
    }

    fn next_seed(&mut self) -> u64 {
        self.runs += 1;
        self.hunt.plan.seed.wrapping_add(self.runs)
    }

    fn short(&self) -> Duration {
        let duration = self.hunt.plan.duration;
        let least = if self.hunt.effort == Effort::Whole { PROBE_MIN } else { BRIEF_PROBE_MIN };
        (duration / PROBE_SHARE).max(least).min(duration)
    }

    /// Runs at a rate, and notes and tells how it went: at full length if it is saved under a name. None if it was
    /// interrupted: what there was of it is not of that rate.
    fn probe(&mut self, rate: u64, name: Option<&'static str>, watch: &mut dyn Watch) -> Result<Option<Probe>, Error> {
        let mut plan = Plan { rate: Rate::PerSecond(rate), seed: self.next_seed(), ..self.hunt.plan.clone() };
        match name {
            None => {
                plan.duration = self.short();
                plan.warmup = plan.warmup.min(PROBE_WARMUP_MAX);
            }
            Some("half") => plan.warmup = plan.warmup.max(HALF_WARMUP_MIN.min(plan.duration * 2)),
            Some(_) => {}
        }
        plan.grace = self.hunt.objective.grace(plan.duration);
        let outcome = run(&plan, self.hunt.stop, &mut |_| {})?;
        if outcome.interrupted {
            return Ok(None);
        }
        let document = Document::new(&plan, &outcome);
        let probe = Probe::of(rate, &document, self.hunt.objective);
        self.knee.hint = self.knee.hint.take().or(document.hint().map(str::to_owned));
        self.knee.probes.push(probe.clone());
        watch.probed(&probe, name);
        let is_kept = name != Some("knee") || probe.is_better_than(self.knee.latency_ms);
        if let Some(name) = name.filter(|_| is_kept && self.hunt.dir.is_some()) {
            self.kept.insert(name, (outcome, document));
        }
        Ok(Some(probe))
    }

    /// Closed loops of 1, 2, 4 … connections to each target, and what bends their curve.
    fn scale(&mut self, watch: &mut dyn Watch) -> Result<Option<Scalability>, Error> {
        let mut points = Vec::new();
        let mut limits = Vec::new();
        let most = self.hunt.plan.connections.min(SCALE_CONNECTIONS_MAX);
        let mut connections = self.hunt.plan.targets.len();
        while connections <= most {
            let Some((point, document)) = self.closed_loop(connections, watch)? else { break };
            points.push(point);
            limits.push(document.generator.limit);
            connections *= 2;
        }
        Ok(fit(Over::Connections, &points).map(|law| law.with_generator(&limits)))
    }

    /// None if it was interrupted.
    fn closed_loop(&mut self, connections: usize, watch: &mut dyn Watch) -> Result<Option<(Point, Document)>, Error> {
        let (plan, seed) = (self.hunt.plan, self.next_seed());
        let plan = Plan {
            rate: Rate::Max,
            connections,
            threads: plan.threads.min(connections),
            duration: self.short(),
            warmup: plan.warmup.min(PROBE_WARMUP_MAX),
            watch: false,
            seed,
            ..plan.clone()
        };
        let outcome = run(&plan, self.hunt.stop, &mut |_| {})?;
        if outcome.interrupted {
            return Ok(None);
        }
        let point = Point { n: count(connections), rate: outcome.rate_achieved() };
        watch.scaled(point);
        Ok(Some((point, Document::new(&plan, &outcome))))
    }
}

impl Probe {
    /// Of a run at a rate.
    #[must_use]
    pub fn of(rate_asked: u64, run: &Document, objective: &Objective) -> Self {
        Self::judged(rate_asked, run, objective.missed(run))
    }

    fn judged(rate_asked: u64, run: &Document, missed: Option<String>) -> Self {
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

    /// Whether this confirmation is the one to tell of, where `best` is the latencies of the best before it at its rate.
    fn is_better_than(&self, best: Option<Percentiles>) -> bool {
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
