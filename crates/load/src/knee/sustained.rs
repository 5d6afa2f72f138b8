//! The sustained knee: the highest rate that holds for as long as is asked, with debt that is bounded.

use std::time::Duration;

use super::bench::{Bench, SearchObserver};
use super::descent::Descent;
use super::objective::Objective;
use super::probe::Probe;
use super::result::{NodeDebt, SustainedKnee};
use super::search::SearchStep;
use crate::Error;
use crate::nodes::WatchedNodes;
use crate::report::Document;
use crate::run::{Rate, RunPlan, run};

/// A probe takes one part in so many of the confirmation's time.
const PROBE_PART: u32 = 5;

impl Objective {
    /// Why a run at a rate does not show that it is sustained; none if it does: the objective holds in all of the run
    /// and in each window of 10 s, and debt is bounded, as far as that is known.
    fn missed_for_long(&self, run: &Document) -> Option<String> {
        let bad: Vec<String> = run.windows.iter().filter_map(|window| self.missed_by(&window.latency_ms)).collect();
        let worst = run.windows.iter().map(|window| window.latency_ms.p99).fold(0.0, f64::max);
        let number = run.windows.len();
        // Not of one window: that is there already.
        let windows = (!bad.is_empty() && number > 1)
            .then(|| format!("{} of {number} windows of 10 s missed it, with a p99 of up to {worst:.2} ms", bad.len()));
        let grew = run
            .nodes
            .iter()
            .flat_map(|node| node.debt.iter().flat_map(|debt| &debt.grew).map(move |what| (node, what)));
        let grew = grew.map(|(node, what)| format!("debt of {} grew: {what}", node.url.trim_start_matches("http://")));
        let all: Vec<String> = self.missed(run).into_iter().chain(windows).chain(grew).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Bench<'_> {
    /// From the burst knee downward. What is known is in `sustained_knee`, also where it was interrupted.
    pub(super) fn descend(&mut self, burst: u64, full: Duration, watch: &mut dyn SearchObserver) -> Result<(), Error> {
        self.knee.sustained_knee = Some(SustainedKnee { seconds: full.as_secs_f64(), ..SustainedKnee::default() });
        let mut descent = Descent::new(burst);
        loop {
            let step = descent.next();
            let passed = match step {
                SearchStep::Done(rate) => {
                    let bounded = self.knee.sustained_knee.as_ref().and_then(|found| found.debt_bounded);
                    self.knee.sustained = if rate == Some(burst) { bounded } else { Some(false) };
                    return Ok(());
                }
                SearchStep::Probe(rate) => self.sustain(rate, full / PROBE_PART, false, watch)?,
                SearchStep::Confirm(rate) => self.sustain(rate, full, true, watch)?,
            };
            let Some(passed) = passed else { return Ok(()) };
            descent.tell(passed);
        }
    }

    /// Whether this rate holds for so long, after what earlier ones have left is done; none if it was interrupted.
    fn sustain(
        &mut self,
        rate: u64,
        time: Duration,
        is_last: bool,
        watch: &mut dyn SearchObserver,
    ) -> Result<Option<bool>, Error> {
        let hunt = self.hunt;
        WatchedNodes::find(&hunt.plan.targets).settle(time, hunt.stop);
        let grace = hunt.objective.grace(time);
        let plan =
            RunPlan { rate: Rate::PerSecond(rate), seed: self.next_seed(), duration: time, grace, ..hunt.plan.clone() };
        let outcome = run(&plan, hunt.stop, &mut |_| {})?;
        if outcome.interrupted {
            return Ok(None);
        }
        let document = Document::new(&plan, &outcome);
        let probe = Probe::judged(rate, &document, hunt.objective.missed_for_long(&document));
        watch.probed(&probe, Some(if is_last { "sustained" } else { "sustain" }));
        let passed = probe.passed;
        let found = self.knee.sustained_knee.get_or_insert_default();
        found.probes.push(probe);
        if is_last && passed {
            found.rate = Some(rate);
            found.latency_ms = Some(document.latency_ms);
            found.windows.clone_from(&document.windows);
            let debt =
                |node: &crate::nodes::NodeRow| Some(NodeDebt { url: node.url.clone(), debt: node.debt.clone()? });
            found.debt_bounded = document.debt_bounded;
            found.debt = document.nodes.iter().filter_map(debt).collect();
            self.kept.insert("sustained", (outcome, document));
        }
        Ok(Some(passed))
    }
}
