//! A constant rate for long, and a verdict: whether the target serves it, second by second, without getting into debt;
//! or, where the rate is more than it can serve, whether it goes on with what it can and refuses the rest at once.
//!
//! Pure: of a run that is over.

use crate::knee::{ACHIEVED_SHARE, Objective};
use crate::nodes::NodeSecond;
use crate::numbers::{count, float, index, whole};
pub use crate::report::{Clause, SlowNode, SlowSecond, Soak};
use crate::report::{Document, WindowRow, windows};
use crate::run::{Rate, RunOutcome, RunPlan};

/// The part of all seconds that may be over the objective.
const SLOW_SHARE: f64 = 0.01;
/// The least part of the goodput that is asked for.
const GOODPUT_SHARE: f64 = 0.8;
/// From when on it is asked for: before that the target may find out that there is too much.
pub const GOODPUT_FROM_S: f64 = 30.0;
/// How soon a 503 must come, in ms.
const SHED_MS_MAX: f64 = 50.0;
const NO_ROOM: &str = "503";

/// Judges a run at a rate.
#[must_use]
pub fn soak(
    plan: &RunPlan,
    outcome: &RunOutcome,
    document: &Document,
    objective: &Objective,
    goodput: Option<u64>,
) -> Soak {
    let slow: Vec<_> = document.seconds.iter().map(|second| second.slow_commits).collect();
    let seconds = windows(outcome, 1, &slow, plan.rate != Rate::Max);
    judge(&seconds, document, objective, goodput)
}

fn judge(seconds: &[WindowRow], document: &Document, objective: &Objective, goodput: Option<u64>) -> Soak {
    let slow_seconds: Vec<SlowSecond> = seconds
        .iter()
        .filter(|second| objective.missed_by(&second.latency_ms).is_some())
        .map(|second| slow_second(second, document))
        .collect();
    let verdict = match goodput {
        None => serves(objective, (slow_seconds.len(), seconds.len()), document),
        Some(goodput) => sheds(goodput, document),
    };
    Soak {
        objective: objective.to_string(),
        goodput,
        passed: verdict.iter().all(|clause| clause.passed != Some(false)),
        verdict,
        seconds: count(seconds.len()),
        slow_seconds,
    }
}

fn slow_second(second: &WindowRow, document: &Document) -> SlowSecond {
    let at = whole(second.from_s);
    // A sample is taken a little after the second that it ends.
    let is_then = |of: &&NodeSecond| of.at_s >= 0.5 && index(whole(of.at_s - 0.5)) == index(at);
    let node = |node: &crate::nodes::NodeRow| {
        let second = node.seconds.iter().find(is_then)?;
        Some(SlowNode { url: node.url.clone(), second: *second })
    };
    SlowSecond {
        at_s: at,
        requests: second.requests,
        latency_ms: second.latency_ms,
        stolen_share: second.stolen_share,
        nodes: document.nodes.iter().filter_map(node).collect(),
    }
}

fn clause(asked: impl Into<String>, found: impl Into<String>, passed: Option<bool>) -> Clause {
    Clause { asked: asked.into(), found: found.into(), passed }
}

/// Of a rate that the target is to serve.
fn serves(objective: &Objective, (slow, all): (usize, usize), document: &Document) -> Vec<Clause> {
    let share = float(count(slow)) / float(count(all).max(1));
    let failures = document.said_of_failures();
    let grew: Vec<String> = document
        .nodes
        .iter()
        .flat_map(|node| node.debt.iter().flat_map(|debt| &debt.grew).map(|what| format!("{}: {what}", node.url)))
        .collect();
    let debt = match document.debt_bounded {
        Some(true) => "it is".to_owned(),
        Some(false) => grew.join("; "),
        None => "not known: no node showed it, or not for long enough".to_owned(),
    };
    vec![
        clause(
            format!("at most 1 second in 100 over {objective}"),
            format!("{slow} of {all} ({:.2} %)", share * 100.0),
            Some(share <= SLOW_SHARE && all > 0),
        ),
        clause("no error", failures.clone().unwrap_or_else(|| "none".into()), Some(failures.is_none())),
        clause("nothing unsent", document.unsent.to_string(), Some(document.unsent == 0)),
        clause("debt is bounded", debt, document.debt_bounded),
    ]
}

/// Of a rate that is more than the target can serve.
fn sheds(goodput: u64, document: &Document) -> Vec<Clause> {
    let least = float(goodput) * GOODPUT_SHARE;
    let per_second = |window: &WindowRow| float(window.requests) / window.seconds().max(1e-9);
    let judged = document.windows.iter().filter(|window| window.from_s >= GOODPUT_FROM_S);
    let worst = judged.min_by(|a, b| per_second(a).total_cmp(&per_second(b)));
    let found = worst.map_or_else(
        || "no such window".to_owned(),
        |worst| format!("{:.0}/s at the least, from {:.0} to {:.0} s", per_second(worst), worst.from_s, worst.to_s),
    );
    let shed = document.errors.get(NO_ROOM).copied().unwrap_or(0);
    let others = document.failures() - shed;
    let (refused, due) = (document.refused_ms.p99, float(document.requests + document.unanswered + document.unsent));
    let sent = 1.0 - float(document.unsent) / due.max(1.0);
    vec![
        clause(
            format!("at least {least:.0} successes a second in every 10 s after the first {GOODPUT_FROM_S:.0} s"),
            found,
            Some(worst.is_some_and(|worst| per_second(worst) >= least)),
        ),
        clause(
            "every other answer is a 503",
            format!(
                "{shed} are, {others} are not: {}",
                document.said_of_failures().unwrap_or_else(|| "no error".into())
            ),
            Some(others == 0),
        ),
        clause(
            format!("p99 of the 503s is at most {SHED_MS_MAX} ms"),
            crate::report::told_ms(refused),
            Some(refused.is_nan() || refused <= SHED_MS_MAX),
        ),
        clause(
            "99 % of what was due was sent: else the load was another one",
            format!("{:.2} %", sent * 100.0),
            Some(sent >= ACHIEVED_SHARE),
        ),
    ]
}
