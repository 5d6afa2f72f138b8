//! The verdict of a soak, as text: the windows, the seconds that were slow, and what was asked for.

use std::fmt::Write;

use super::debt::told_debt;
use super::document::{Document, told_ms};
use super::verdict::{SlowNode, SlowSecond, Soak};
use super::windows::WindowRow;

/// Lines of windows at most; of a long run each is of several.
const WINDOW_LINES_MAX: usize = 30;
/// Slow seconds that are listed one by one.
const SLOW_LINES_MAX: usize = 60;

pub(super) fn write(out: &mut String, document: &Document, soak: &Soak) -> std::fmt::Result {
    writeln!(
        out,
        "Over time:     sent   success       503  other errors    unsent         p99         max     503 p99     503 max"
    )?;
    let windows = &document.windows;
    for part in windows.chunks(windows.len().div_ceil(WINDOW_LINES_MAX).max(1)) {
        write_windows(out, part)?;
    }
    let slow = &soak.slow_seconds;
    if !slow.is_empty() {
        writeln!(out, "Seconds over {}: {} of {}", soak.objective, slow.len(), soak.seconds)?;
    }
    for second in slow.iter().take(SLOW_LINES_MAX) {
        write_slow(out, second)?;
    }
    if slow.len() > SLOW_LINES_MAX {
        writeln!(out, "  and {} more, which are in run.json", slow.len() - SLOW_LINES_MAX)?;
    }
    writeln!(out, "Soak: {}", if soak.passed { "PASSED" } else { "NOT PASSED" })?;
    for clause in &soak.verdict {
        let word = match clause.passed {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "?",
        };
        writeln!(out, "  {word:<4} {}: {}", clause.asked, clause.found)?;
    }
    Ok(())
}

/// Several windows as one: the sums, and the worst latencies.
fn write_windows(out: &mut String, part: &[WindowRow]) -> std::fmt::Result {
    let (Some(first), Some(last)) = (part.first(), part.last()) else { return Ok(()) };
    let sum = |of: fn(&WindowRow) -> u64| part.iter().map(of).sum::<u64>();
    let worst = |of: fn(&WindowRow) -> f64| told_ms(part.iter().map(of).fold(f64::NAN, f64::max));
    let shed = sum(|window| window.shed);
    writeln!(
        out,
        "  {:>4.0}-{:<5.0} {:>8} {:>9} {shed:>9} {:>13} {:>9} {:>11} {:>11} {:>11} {:>11}",
        first.from_s,
        last.to_s,
        sum(|window| window.sent),
        sum(|window| window.requests),
        sum(|window| window.errors) - shed,
        last.unsent.unwrap_or(0),
        worst(|window| window.latency_ms.p99),
        worst(|window| window.latency_ms.max),
        worst(|window| window.shed_ms.p99),
        worst(|window| window.shed_ms.max),
    )
}

fn write_slow(out: &mut String, slow: &SlowSecond) -> std::fmt::Result {
    let stolen = slow.stolen_share.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0));
    let latency = &slow.latency_ms;
    writeln!(
        out,
        "  at {} s: {} successes, p99 {}, max {}; {stolen} of the processors taken by the host",
        slow.at_s,
        slow.requests,
        told_ms(latency.p99),
        told_ms(latency.max)
    )?;
    for SlowNode { url, second } in &slow.nodes {
        let figure = |value: Option<u64>| value.map_or_else(|| "-".into(), |value: u64| value.to_string());
        let stalled = second.stall_seconds.map_or_else(|| "-".into(), |seconds| format!("{seconds:.2} s"));
        writeln!(
            out,
            "    {}: {} slow commits, stalled {stalled}, pending, level 0, memtables: {}",
            url.trim_start_matches("http://"),
            figure(second.slow_commits),
            told_debt(second.debt),
        )?;
    }
    Ok(())
}
