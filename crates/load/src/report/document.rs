//! `run.json`: what a run was asked to do and what came of it.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::percentiles::Percentiles;
use super::verdict::Soak;
use super::windows::{WINDOW_SECONDS, WindowRow, windows};
use crate::nodes::{NodeRow, SLOW_COMMIT_SECONDS, all_bounded, slow_commits};
use crate::numbers::{count, float, median, micros, milliseconds, sum_of_known};
use crate::record::Tally;
use crate::run::{Rate, RunOutcome, RunPlan};

/// A share of all requests that are late from which on the generator asks whether it is the cause.
const LATE_SHARE: f64 = 0.01;
/// A generator that is later than this although a connection was free cannot keep up.
const LAG_MAX_US: u64 = 1_000;
/// A thread that is this busy has no time to spare.
const BUSY_SHARE: f64 = 0.95;

fn none() -> Percentiles {
    Percentiles::NONE
}

/// Milliseconds, as lines show them; `-` if nothing was measured.
#[must_use]
pub fn told_ms(value: f64) -> String {
    if value.is_nan() { "-".into() } else { format!("{value:.2} ms") }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RateAsked {
    /// Requests a second.
    PerSecond(u64),
    /// `max`.
    Word(String),
}

/// The generator's own part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Generator {
    /// Processor time of the generator for each request, in µs.
    pub cpu_us_per_request: f64,
    /// Part of the time that its threads were running, 1 for all of it.
    pub busy_share: f64,
    /// Part of the time that its threads were ready and others had the processors; none if the system does not show it.
    pub kept_waiting_share: Option<f64>,
    /// Part of the time of all processors that the machine's host gave to others, the warm-up included; none if the
    /// system does not show it.
    pub stolen_share: Option<f64>,
    /// How late requests were sent although a connection was free.
    pub lag_ms: Percentiles,
    /// Why the generator, or its machine, was the limit, and not the target; none if it was not.
    pub limit: Option<String>,
    /// It sent everything, but so late by itself that the latencies are partly its own; why.
    pub late: Option<String>,
}

/// One second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SecondRow {
    /// Successes.
    pub requests: u64,
    /// Errors and timeouts.
    pub errors: u64,
    /// Median latency of the successes, in ms.
    pub p50: f64,
    /// Their 90th percentile, in ms.
    pub p90: f64,
    /// Their 99th percentile, in ms.
    pub p99: f64,
    /// The longest, in ms.
    pub max: f64,
    /// Requests that were sent; 0 in a run that was saved before this was counted.
    #[serde(default)]
    pub sent: u64,
    /// Of the errors, those that were answered 503.
    #[serde(default)]
    pub shed: u64,
    /// How soon these came, in ms; none where there were none.
    #[serde(default)]
    pub shed_p99: Option<f64>,
    /// The longest of these, in ms.
    #[serde(default)]
    pub shed_max: Option<f64>,
    /// Requests that were due by its end, and not sent by then; none in a closed loop.
    #[serde(default)]
    pub unsent: Option<u64>,
    /// As the generator's, of this second.
    pub stolen_share: Option<f64>,
    /// Commits of all nodes that took longer than 16 ms; none if a node lacks this second, or none shows them.
    #[serde(default)]
    pub slow_commits: Option<u64>,
}

/// Successes and latencies of one operation. In batches, each is counted, and its latency is its batch's.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OperationRow {
    /// Successes.
    pub requests: u64,
    /// From when they were due.
    pub latency_ms: Percentiles,
}

/// The whole of `run.json`. Scripts rely on its names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// Version of the tool.
    pub version: String,
    /// When the measured time began, in ms since 1970.
    pub started_unix_ms: u64,
    /// URLs.
    pub targets: Vec<String>,
    /// As on the command line.
    pub workload: String,
    /// Where the target keeps a key, as on the command line; empty in a run that was saved before this was written
    /// down.
    #[serde(default)]
    pub path: String,
    /// As on the command line.
    pub key_order: String,
    /// Number of different keys.
    pub keys: u64,
    /// As on the command line.
    pub value_size: String,
    /// Whether values could be compressed.
    pub compressible: bool,
    /// As asked; none for the server's default.
    pub ack: Option<u8>,
    /// As asked; none for the server's default.
    pub from: Option<u8>,
    /// Connections, over all threads.
    pub connections: u64,
    /// Threads of the generator.
    pub threads: u64,
    /// Requests under way on one connection at most.
    pub pipeline: u64,
    /// Operations of a request; over 1, each request was a batch, and all figures of requests are of these. 0 in a run
    /// that was saved before there were batches.
    #[serde(default)]
    pub batch: u64,
    /// Length of the warm-up, which is in no figure here.
    pub warmup_s: f64,
    /// Length of the measured time.
    pub duration_s: f64,
    /// Time after the end in which answers still counted: only in searches for a knee.
    #[serde(default)]
    pub grace_s: f64,
    /// Limit of a request.
    pub timeout_s: f64,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
    /// Requests a second, or `max`.
    pub rate_asked: RateAsked,
    /// Successes that came before the end, or in the grace after it, per second.
    pub rate_achieved: f64,
    /// The same of single operations, also where others of their batch failed; 0 in a run that was saved before there
    /// were batches.
    #[serde(default)]
    pub operation_rate_achieved: f64,
    /// From when a request was due to the end of its answer; successes only. Three digits, 1 µs to 60 s; what took
    /// longer counts as 60 s.
    pub latency_ms: Percentiles,
    /// From when it was sent: what a generator sees that does not correct for coordinated omission.
    pub service_ms: Percentiles,
    /// As `latency_ms`, of answers that are no success: how soon the target refuses.
    #[serde(default = "none")]
    pub refused_ms: Percentiles,
    /// Operations, or batches, that ended: successes, errors and timeouts.
    pub requests: u64,
    /// Answers by status, but those that came after their timeout.
    pub statuses: BTreeMap<String, u64>,
    /// Outcomes of the single operations of batches, by status.
    #[serde(default)]
    pub outcomes: BTreeMap<String, u64>,
    /// What went wrong, by status (400 and above; a 404 is no error of a workload that deletes), or `connect` (a
    /// connection could not be made), `reset`, `closed` (before the answer was whole), `protocol` (no HTTP, or not one
    /// outcome for each operation of a batch), `no_trailer` (a scan's answer ended without its trailer), `unasked`
    /// (something came behind the answers). `connect` and `unasked` had no request, and are not among `requests`. A
    /// batch is an error if one of its operations is: by the first.
    pub errors: BTreeMap<String, u64>,
    /// Requests without an answer within the limit. After up to 100 ms more the connection is made anew.
    pub timeouts: u64,
    /// Requests sent more than 1 ms after they were due.
    pub late_sends: u64,
    /// Requests that were due and never sent.
    pub unsent: u64,
    /// Requests under way when an interrupt ended the run, before their limit had passed: neither successes nor errors,
    /// and not among `requests`.
    #[serde(default)]
    pub unanswered: u64,
    /// By operation.
    pub operations: BTreeMap<String, OperationRow>,
    /// Bytes received.
    pub bytes_read: u64,
    /// Bytes sent.
    pub bytes_written: u64,
    /// What the tool itself did.
    pub generator: Generator,
    /// What the run cost each node.
    pub nodes: Vec<NodeRow>,
    /// The measured time, second by second, by when answers came.
    pub seconds: Vec<SecondRow>,
    /// The same in windows of 10 s; the last one has what is left, if that is less.
    #[serde(default)]
    pub windows: Vec<WindowRow>,
    /// Whether the debt of all stores stayed bounded; none if no node showed it, or the run was too short.
    #[serde(default)]
    pub debt_bounded: Option<bool>,
    /// The verdict, if it was a soak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Soak>,
}

impl Document {
    /// Processor time of all nodes for a request, in µs; none if it is not known of one of them, or no node is known.
    #[must_use]
    pub fn cpu_us_per_request(&self) -> Option<f64> {
        sum_of_known(self.nodes.iter().map(|node| node.cpu_us_per_request))
    }

    /// What to write down of a run.
    #[must_use]
    pub fn new(plan: &RunPlan, outcome: &RunOutcome) -> Self {
        let tally = &outcome.tally;
        let started = outcome.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let nodes: Vec<_> = outcome.nodes.iter().map(|series| series.row(tally.requests())).collect();
        let slow = slow_commits(&outcome.nodes, outcome.seconds.len());
        let is_open = plan.rate != Rate::Max;
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            started_unix_ms: micros(started) / 1000,
            targets: plan.targets.iter().map(ToString::to_string).collect(),
            workload: plan.workload.to_string(),
            path: plan.api.to_string(),
            key_order: plan.order().to_string(),
            keys: plan.keys,
            value_size: plan.value_size.to_string(),
            compressible: plan.compressible,
            ack: plan.ack,
            from: plan.from,
            connections: count(plan.connections),
            threads: count(plan.threads),
            pipeline: count(plan.pipeline),
            batch: count(plan.batch),
            warmup_s: plan.warmup.as_secs_f64(),
            duration_s: outcome.measured.as_secs_f64(),
            grace_s: plan.grace.as_secs_f64(),
            timeout_s: plan.timeout.as_secs_f64(),
            interrupted: outcome.interrupted,
            rate_asked: match plan.rate {
                Rate::PerSecond(rate) => RateAsked::PerSecond(rate),
                Rate::Max => RateAsked::Word("max".into()),
            },
            rate_achieved: outcome.rate_achieved(),
            operation_rate_achieved: outcome.operation_rate_achieved(),
            latency_ms: Percentiles::of(&tally.latency),
            service_ms: Percentiles::of(&tally.service),
            refused_ms: Percentiles::of(&tally.refusal),
            requests: tally.requests(),
            statuses: by_status(&tally.statuses),
            outcomes: by_status(&tally.outcomes),
            errors: errors(tally),
            timeouts: tally.timeouts,
            late_sends: tally.late_sends,
            unsent: tally.unsent,
            unanswered: tally.unanswered,
            operations: operations(tally),
            bytes_read: tally.bytes_read,
            bytes_written: tally.bytes_written,
            generator: generator(plan, outcome),
            debt_bounded: all_bounded(nodes.iter().filter_map(|node| node.debt.as_ref()).map(|debt| debt.bounded)),
            soak: None,
            nodes,
            windows: windows(outcome, WINDOW_SECONDS, &slow, is_open),
            seconds: outcome.seconds.iter().zip(slow).map(|(second, slow)| row(second, slow, is_open)).collect(),
        }
    }

    /// Errors and timeouts, all of them.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.errors.values().sum::<u64>() + self.timeouts
    }

    /// How many failed, and how; none if none did.
    #[must_use]
    pub fn said_of_failures(&self) -> Option<String> {
        let each = self.errors.iter().map(|(what, count)| format!("{what}: {count}"));
        let timeouts = (self.timeouts > 0).then(|| format!("timeout: {}", self.timeouts));
        let each: Vec<String> = each.chain(timeouts).collect();
        (!each.is_empty()).then(|| format!("{} errors and timeouts ({})", self.failures(), each.join(", ")))
    }

    /// What to do where the errors are not the target's fault; none if they are.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        let has_none = self.errors.contains_key("404") && self.workload != "delete";
        has_none.then_some("404: keys that were not written; `kvorum bench fill` writes them")
    }

    /// Why many requests were never sent, where the generator had time to send them; none if all were, or nearly.
    #[must_use]
    pub fn said_of_unsent(&self) -> Option<String> {
        let many = float(self.requests + self.unanswered + self.unsent) * LATE_SHARE;
        let lost = self.errors.iter().filter(|(what, _)| what.parse::<u16>().is_err()).map(|(_, count)| count);
        let lost = float(lost.sum::<u64>() + self.timeouts);
        (float(self.unsent) > many && self.generator.limit.is_none()).then(|| {
            let found = "What was never sent found no connection free";
            if lost >= float(self.requests) * LATE_SHARE {
                return format!("{found}: many of the {} broke, or waited for answers that did not come", self.connections);
            }
            format!(
                "{found}: all {} had as many requests under way as they may; with more --connections the target may do more",
                self.connections
            )
        })
    }

    /// What the host of this machine, where it is a guest, has to do with the figures: a sentence each.
    #[must_use]
    pub fn said_of_host(&self) -> Vec<String> {
        let much = self.generator.stolen().map(|stolen| format!("{stolen}: these figures are not the target's alone"));
        let sentence = |what| format!("This machine is a guest, and {what}");
        much.into_iter().chain(self.stolen_seconds()).map(sentence).collect()
    }

    /// How slow the seconds were in which the host took processors; none if they were like the others.
    fn stolen_seconds(&self) -> Option<String> {
        let slower = self.slower(0.0, |second| Some(second.stolen_share? > 0.0))?;
        Some(format!("the host took processors in {slower}"))
    }

    /// How slow the seconds were in which a node's commits took long; none if they were like the others.
    #[must_use]
    pub fn slow_commits(&self) -> Option<String> {
        // A commit that no request waited for is not why a second was slow.
        let slower = self.slower(SLOW_COMMIT_SECONDS * 1e3, |second| Some(second.slow_commits? > 0))?;
        Some(format!("commits took more than 16 ms in {slower}"))
    }

    /// How slow the seconds were of which this is so; none if they were like the others, or faster than `least_ms`.
    fn slower(&self, least_ms: f64, is_so: impl Fn(&SecondRow) -> Option<bool>) -> Option<String> {
        let of = |wanted: bool| -> Vec<f64> {
            let answered = self.seconds.iter().filter(|second| second.requests > 0);
            answered.filter(|second| is_so(second) == Some(wanted)).map(|second| second.p99).collect()
        };
        let (these, others) = (of(true), of(false));
        let (slow, usual) = (median(&these), median(&others));
        (!others.is_empty() && slow > usual * SLOWER && slow >= least_ms).then(|| {
            format!(
                "{} of {} seconds: their p99 is {slow:.2} ms (median), that of the others {usual:.2} ms",
                these.len(),
                these.len() + others.len()
            )
        })
    }
}

fn by_status(counts: &BTreeMap<u16, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(status, count)| (status.to_string(), *count)).collect()
}

fn errors(tally: &Tally) -> BTreeMap<String, u64> {
    let refused = tally.refused.iter().map(|(status, count)| (status.to_string(), *count));
    let failed = tally.failures.iter().map(|(failure, count)| (failure.name().to_owned(), *count));
    refused.chain(failed).collect()
}

fn operations(tally: &Tally) -> BTreeMap<String, OperationRow> {
    let row =
        |histogram: &Histogram<u64>| OperationRow { requests: histogram.len(), latency_ms: Percentiles::of(histogram) };
    tally.operations.iter().map(|(operation, histogram)| (operation.name().to_owned(), row(histogram))).collect()
}

fn row(second: &crate::run::Second, slow_commits: Option<u64>, is_open: bool) -> SecondRow {
    let [p50, p90, p99, max] = second.latency_us.map(milliseconds);
    let [shed_p99, shed_max] = second.shed_us.map(|us| (second.shed > 0).then(|| milliseconds(us)));
    SecondRow {
        requests: second.requests,
        errors: second.errors,
        p50,
        p90,
        p99,
        max,
        sent: second.sent,
        shed: second.shed,
        shed_p99,
        shed_max,
        unsent: is_open.then_some(second.unsent),
        stolen_share: second.stolen_share,
        slow_commits,
    }
}

fn generator(plan: &RunPlan, outcome: &RunOutcome) -> Generator {
    let tally = &outcome.tally;
    let time = tally.thread_time.as_secs_f64().max(1e-9);
    let busy_share = tally.busy.as_secs_f64() / time;
    let kept_waiting_share = tally.kept_waiting.map(|waited| waited.as_secs_f64() / time);
    let never_rests = busy_share + kept_waiting_share.unwrap_or(0.0) >= BUSY_SHARE;
    let lag_p99 = tally.lag.value_at_quantile(0.99);
    let (limits, is_late) = match plan.rate {
        // A closed loop sends when it can: it is behind if its threads never rest.
        Rate::Max => (never_rests, false),
        Rate::PerSecond(rate) => {
            let many = float(rate) * outcome.measured.as_secs_f64() * LATE_SHARE;
            // A thread that rests has sent all that it could: what is left found no connection free.
            let unsent = float(tally.unsent) > many;
            let is_late = (never_rests || lag_p99 > LAG_MAX_US) && float(tally.late_sends) > many;
            (unsent && never_rests, !unsent && is_late)
        }
    };
    let why = why(busy_share, kept_waiting_share.unwrap_or(0.0), lag_p99);
    Generator {
        cpu_us_per_request: tally.busy.as_secs_f64() * 1e6 / float(tally.requests().max(1)),
        busy_share,
        kept_waiting_share,
        stolen_share: outcome.stolen_share,
        lag_ms: Percentiles::of(&tally.lag),
        limit: limits.then(|| why.clone()),
        late: is_late.then_some(why),
    }
}

/// Of the time that the machine's host took from it, so much that the figures are no longer the target's alone.
const STOLEN_SHARE: f64 = 0.05;
/// So much slower than the others are seconds that are mentioned.
const SLOWER: f64 = 1.5;

impl Generator {
    /// How much of the processors' time was taken by the machine's host, in words; none if it was little.
    #[must_use]
    pub fn stolen(&self) -> Option<String> {
        let share = self.stolen_share.filter(|share| *share > STOLEN_SHARE)?;
        Some(format!("the host took {:.0} % of the processors' time", share * 100.0))
    }
}

fn why(busy_share: f64, kept_waiting_share: f64, lag_p99: u64) -> String {
    let (busy, waiting) = (busy_share * 100.0, kept_waiting_share * 100.0);
    let cure = if kept_waiting_share > 0.1 {
        "other processes had its processors: give it a machine, or cores, of its own"
    } else if busy_share > 0.5 {
        "give it more --threads"
    } else {
        "they had time, and this machine woke them late"
    };
    format!(
        "its threads ran {busy:.0} % of the time and waited {waiting:.0} % for a processor; requests left up to \
         {:.1} ms late (p99) although a connection was free; {cure}",
        milliseconds(lag_p99)
    )
}
