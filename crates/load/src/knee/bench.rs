//! The runs of a search.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::objective::Objective;
use super::probe::Probe;
use super::result::{Knee, ShareOfKnee};
use super::scalability::{Over, Point, Scalability, fit};
use super::search::{Effort, KneeSearch, SearchStep};
use crate::Error;
use crate::numbers::count;
use crate::report::Document;
use crate::run::{Rate, RunOutcome, RunPlan, run};

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

/// What the search reports while it goes on.
pub trait SearchObserver {
    /// A probe has ended, or with a name a run at full length: `knee` if it was to confirm one, `half` at half of it,
    /// `sustain` if it was a probe for the sustained knee, and `sustained` if it was to confirm that.
    fn probed(&mut self, probe: &Probe, name: Option<&str>);
    /// A closed loop has ended.
    fn scaled(&mut self, point: Point);
}

/// What is searched for, and how.
#[derive(Debug)]
pub struct SearchInput<'a> {
    /// What each probe does; the search decides its rate, and may begin with the plan's.
    pub plan: &'a RunPlan,
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

/// A search under way.
pub(super) struct Bench<'a> {
    pub(super) hunt: &'a SearchInput<'a>,
    /// So far: each has another seed, so that none asks for what the one before brought into caches.
    pub(super) runs: u64,
    /// What is known so far.
    pub(super) knee: Knee,
    /// The runs to save, by their name: the better confirmation of the knee, and half of it.
    pub(super) kept: BTreeMap<&'static str, (RunOutcome, Document)>,
}

impl Bench<'_> {
    /// The knee, half of it, and the scalability curve.
    pub(super) fn search(&mut self, watch: &mut dyn SearchObserver) -> Result<(), Error> {
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
        let mut search = KneeSearch::new(effort, first, point.rate);
        let rate = loop {
            let step = search.next();
            let probe = match step {
                SearchStep::Done(rate) => break rate,
                SearchStep::Probe(rate) => self.probe(rate, None, watch)?,
                SearchStep::Confirm(rate) => self.probe(rate, Some("knee"), watch)?,
            };
            let Some(probe) = probe else { return Ok(()) };
            search.tell(probe.passed.into());
            if probe.passed && matches!(step, SearchStep::Confirm(_)) {
                if probe.is_better_than(self.knee.latency_ms) {
                    self.knee.latency_ms = Some(probe.latency_ms);
                    self.knee.sustained = probe.debt_bounded;
                }
            } else if matches!(step, SearchStep::Confirm(_)) && search.best() != Some(probe.rate_asked) {
                // It did not hold: what was measured there is not of the knee.
                (self.knee.latency_ms, self.knee.sustained) = (None, None);
                self.kept.remove("knee");
            }
        };
        self.knee.knee_rate = rate;
        if let Some(rate) = rate {
            let rate = (rate / 2).max(1);
            let Some(probe) = self.probe(rate, Some("half"), watch)? else { return Ok(()) };
            self.knee.half = Some(ShareOfKnee { rate, latency_ms: probe.latency_ms, missed: probe.missed });
        }
        if let Some((rate, time)) = rate.zip(self.hunt.sustained) {
            self.descend(rate, time, watch)?;
        }
        if effort == Effort::Whole {
            self.knee.scalability = self.scale(watch)?;
        }
        Ok(())
    }

    pub(super) fn next_seed(&mut self) -> u64 {
        self.runs += 1;
        self.hunt.plan.seed.wrapping_add(self.runs)
    }

    fn short(&self) -> Duration {
        let duration = self.hunt.plan.duration;
        let least = if self.hunt.effort == Effort::Whole { PROBE_MIN } else { BRIEF_PROBE_MIN };
        (duration / PROBE_SHARE).max(least).min(duration)
    }

    /// Runs at a rate, and notes and reports the result: at full length if it is saved under a name. None if it was
    /// interrupted: what there was of it is not of that rate.
    fn probe(
        &mut self,
        rate: u64,
        name: Option<&'static str>,
        watch: &mut dyn SearchObserver,
    ) -> Result<Option<Probe>, Error> {
        let mut plan = RunPlan { rate: Rate::PerSecond(rate), seed: self.next_seed(), ..self.hunt.plan.clone() };
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
    fn scale(&mut self, watch: &mut dyn SearchObserver) -> Result<Option<Scalability>, Error> {
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
    fn closed_loop(
        &mut self,
        connections: usize,
        watch: &mut dyn SearchObserver,
    ) -> Result<Option<(Point, Document)>, Error> {
        let (plan, seed) = (self.hunt.plan, self.next_seed());
        let plan = RunPlan {
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
