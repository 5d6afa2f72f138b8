//! The familiar text: what wrk2 prints, and what kvorum's tool has to add.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::document::Document;
use crate::numbers::{bytes, count, float};
use crate::run::{Rate, RunOutcome, RunPlan};

/// What `wrk2` prints of the distribution.
const QUANTILES: [f64; 8] = [0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1.0];

/// What becomes of the detailed percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spectrum {
    /// They are a part of the text.
    Shown,
    /// They are not.
    Hidden,
}

/// The whole text, newline at its end.
#[must_use]
pub fn text(plan: &RunPlan, outcome: &RunOutcome, document: &Document, spectrum: Spectrum) -> String {
    let mut out = String::new();
    write_text(&mut out, plan, outcome, document, spectrum).expect("a string takes everything");
    out
}

fn write_text(
    out: &mut String,
    plan: &RunPlan,
    outcome: &RunOutcome,
    document: &Document,
    spectrum: Spectrum,
) -> std::fmt::Result {
    let latency = &outcome.tally.latency;
    writeln!(out, "Running {} test @ {}", seconds(plan.duration.as_secs_f64()), document.targets.join(","))?;
    writeln!(out, "  {} threads and {} connections", plan.threads, plan.connections)?;
    if document.interrupted && document.duration_s <= 0.0 {
        return writeln!(out, "Interrupted: nothing was measured yet");
    }
    thread_stats(out, plan, outcome)?;
    writeln!(out, "  Latency Distribution (HdrHistogram - Recorded Latency)")?;
    for quantile in QUANTILES {
        let value = if latency.is_empty() { 0.0 } else { float(latency.value_at_quantile(quantile)) };
        writeln!(out, "{:>7.3}%  {:>8}", quantile * 100.0, time(value))?;
    }
    if spectrum == Spectrum::Shown {
        write_spectrum(out, latency)?;
    }
    let in_time = seconds(document.duration_s);
    writeln!(out, "  {} requests in {in_time}, {} read", document.requests, bytes(float(document.bytes_read)))?;
    write_errors(out, document)?;
    let per_second = float(document.bytes_read) / document.duration_s.max(1e-9);
    writeln!(out, "Requests/sec: {:>10.2}", document.rate_achieved)?;
    writeln!(out, "Transfer/sec: {:>10}", bytes(per_second))?;
    write_own(out, plan, document)
}

fn thread_stats(out: &mut String, plan: &RunPlan, outcome: &RunOutcome) -> std::fmt::Result {
    let latency = &outcome.tally.latency;
    writeln!(out, "  Thread Stats   Avg      Stdev     Max   +/- Stdev")?;
    let (mean, deviation) = (latency.mean(), latency.stdev());
    let within: u64 = latency
        .iter_recorded()
        .filter(|step| (float(step.value_iterated_to()) - mean).abs() <= deviation)
        .map(|step| step.count_at_value())
        .sum();
    let share = float(within) / float(latency.len().max(1));
    let max = if latency.is_empty() { 0 } else { latency.max() };
    stats(out, "Latency", [mean, deviation, float(max)].map(time), share)?;
    // Whole ones: neither what an interrupt left of one, nor those in which the last answers were waited for.
    let whole = usize::try_from(outcome.measured.as_secs()).unwrap_or(usize::MAX).min(outcome.seconds.len());
    let whole = outcome.seconds.get(..whole).unwrap_or_default();
    let rates: Vec<f64> = whole.iter().map(|second| float(second.requests) / float(count(plan.threads))).collect();
    let number = float(count(rates.len()).max(1));
    // What nothing adds up to has a sign.
    let mean = rates.iter().fold(0.0, |sum, rate| sum + rate) / number;
    let deviation = (rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / number).sqrt();
    let within = rates.iter().filter(|rate| (*rate - mean).abs() <= deviation).count();
    let max = rates.iter().fold(0.0_f64, |max, rate| max.max(*rate));
    stats(out, "Req/Sec", [mean, deviation, max].map(metric), float(count(within)) / number)
}

fn stats(out: &mut String, name: &str, [mean, deviation, max]: [String; 3], share: f64) -> std::fmt::Result {
    writeln!(out, "    {name:<8} {mean:>8} {deviation:>8} {max:>8} {:>8.2}%", share * 100.0)
}

/// As HdrHistogram prints it, in ms.
fn write_spectrum(out: &mut String, latency: &Histogram<u64>) -> std::fmt::Result {
    writeln!(out, "\n  Detailed Percentile spectrum:")?;
    writeln!(out, "       Value   Percentile   TotalCount 1/(1-Percentile)\n")?;
    for (value, quantile, total) in steps(latency) {
        write!(out, "{:>12.3} {quantile:>12.6} {total:>12}", value / 1e3)?;
        if quantile < 1.0 {
            write!(out, " {:>12.2}", 1.0 / (1.0 - quantile))?;
        }
        writeln!(out)?;
    }
    let max = if latency.is_empty() { 0 } else { latency.max() };
    let (mean, deviation) = (latency.mean() / 1e3, latency.stdev() / 1e3);
    writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
    writeln!(out, "#[Max     = {:>12.3}, Total count    = {:>12}]", float(max) / 1e3, latency.len())?;
    writeln!(out, "----------------------------------------------------------")
}

/// Value in µs, quantile, and how many are at most that, in steps that halve towards 1 every five.
pub(super) fn steps(latency: &Histogram<u64>) -> Vec<(f64, f64, u64)> {
    let mut total = 0;
    let steps = latency.iter_quantiles(5).map(|step| {
        total += step.count_since_last_iteration();
        (float(step.value_iterated_to()).min(float(latency.max())), step.quantile_iterated_to(), total)
    });
    steps.collect()
}

fn write_errors(out: &mut String, document: &Document) -> std::fmt::Result {
    let of = |name: &str| document.errors.get(name).copied().unwrap_or(0);
    let names = ["connect", "reset", "closed", "protocol", "unasked"];
    if names.iter().map(|name| of(name)).sum::<u64>() + document.timeouts > 0 {
        let each = names.map(|name| format!("{name} {}", of(name))).join(", ");
        writeln!(out, "  Socket errors: {each}, timeout {}", document.timeouts)?;
    }
    if of("no_trailer") > 0 {
        writeln!(out, "  Scans that ended without a trailer: {}", of("no_trailer"))?;
    }
    let statuses = document.errors.iter().filter(|(name, _)| name.parse::<u16>().is_ok());
    let refused: u64 = statuses.clone().map(|(_, count)| count).sum();
    if refused > 0 {
        let each: Vec<String> = statuses.map(|(status, count)| format!("{status}: {count}")).collect();
        writeln!(out, "  Non-2xx or 3xx responses: {refused} ({})", each.join(", "))?;
    }
    Ok(())
}

/// What wrk2 has no line for.
fn write_own(out: &mut String, plan: &RunPlan, document: &Document) -> std::fmt::Result {
    if let Rate::PerSecond(rate) = plan.rate {
        writeln!(
            out,
            "Asked for {rate}/s: {} sent more than 1 ms late, {} never sent in time",
            document.late_sends, document.unsent
        )?;
    }
    if document.batch > 1 {
        let each: Vec<String> = document.outcomes.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        let (batch, rate) = (document.batch, document.operation_rate_achieved);
        writeln!(out, "Batches of {batch}: {rate:.2} operations/sec; outcomes {}", or_none(&each))?;
    }
    if document.operations.len() > 1 {
        for (name, row) in &document.operations {
            let (p50, p99) = (time(row.latency_ms.p50 * 1e3), time(row.latency_ms.p99 * 1e3));
            let what = if document.batch > 1 { "operations" } else { "requests" };
            writeln!(out, "  {name}: {} {what}, p50 {p50}, p99 {p99}", row.requests)?;
        }
    }
    let generator = &document.generator;
    writeln!(
        out,
        "Generator: {:.1} us of processor time per request, busy {:.0} % of the time",
        generator.cpu_us_per_request,
        generator.busy_share * 100.0
    )?;
    write_nodes(out, document)?;
    super::debt::write(out, document)?;
    if let Some(why) = &generator.limit {
        writeln!(out, "The GENERATOR is the limit, not the target: {why}")?;
    }
    if let Some(why) = document.said_of_unsent() {
        writeln!(out, "{why}")?;
    }
    if let Some(why) = &generator.late {
        writeln!(out, "The generator was late, and the latencies are partly its own: {why}")?;
    }
    for sentence in document.said_of_host() {
        writeln!(out, "{sentence}")?;
    }
    if let Some(slow) = document.slow_commits() {
        writeln!(out, "Nodes: {slow}")?;
    }
    if let Some(hint) = document.hint() {
        writeln!(out, "{hint}")?;
    }
    if document.interrupted {
        writeln!(out, "Interrupted: this is what there was until then")?;
        if document.unanswered > 0 {
            writeln!(out, "{} requests had no answer yet: their latencies are missing", document.unanswered)?;
        }
    }
    document.soak.as_ref().map_or(Ok(()), |soak| super::soak::write(out, document, soak))
}

fn or_none(each: &[String]) -> String {
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

/// What a request cost every node, whichever it went to.
fn write_nodes(out: &mut String, document: &Document) -> std::fmt::Result {
    if document.nodes.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "Per request:         CPU us    syscalls*    sleeps   allocated   disk read     commits   each taking   peak memory"
    )?;
    let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    for node in &document.nodes {
        writeln!(
            out,
            "  {:<22}{:>5} {:>12} {:>9} {:>11} {:>11} {:>11} {:>13} {:>13}",
            node.url.trim_start_matches("http://"),
            node.cpu_us_per_request.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}")),
            cell(node.syscalls_per_request),
            cell(node.sleeps_per_request),
            node.allocated_bytes_per_request.map_or_else(|| "-".to_owned(), bytes),
            node.disk_read_bytes_per_request.map_or_else(|| "-".to_owned(), bytes),
            node.commits_per_request.map_or_else(|| "-".to_owned(), |commits| format!("{commits:.3}")),
            node.commit_ms.map_or_else(|| "-".to_owned(), |ms| time(ms * 1e3)),
            bytes(float(node.resident_bytes_max))
        )?;
    }
    writeln!(out, "  * in the warm-up; where the kernel counts: root, or tracefs and CAP_PERFMON")?;
    if document.requests > 0 && document.nodes.iter().any(|node| node.cpu_us_per_request.is_none()) {
        writeln!(out, "  - not known: neither on this machine nor in its /metrics, or not of nine tenths of the run")?;
    }
    Ok(())
}

fn seconds(value: f64) -> String {
    if (value - value.round()).abs() < 0.005 { format!("{value:.0}s") } else { format!("{value:.2}s") }
}

/// Microseconds with wrk's units.
pub(crate) fn time(micros: f64) -> String {
    match micros {
        value if value < 1e3 => format!("{value:.2}us"),
        value if value < 1e6 => format!("{:.2}ms", value / 1e3),
        value if value < 60e6 => format!("{:.2}s", value / 1e6),
        value => format!("{:.2}m", value / 60e6),
    }
}

fn metric(value: f64) -> String {
    match value {
        value if value < 1e3 => format!("{value:.2}"),
        value if value < 1e6 => format!("{:.2}k", value / 1e3),
        value => format!("{:.2}M", value / 1e6),
    }
}
