//! The stores' debt beside the latency, as text.

use std::fmt::Write;

use super::document::{Document, told_ms};
use super::windows::WindowRow;
use crate::nodes::{Debt, NodeRow, NodeSecond};
use crate::numbers::{bytes, float};

/// Lines over time at most; of a long run each is of several windows.
const LINES_MAX: usize = 10;

/// Nothing where no node shows its debt.
pub(super) fn write(out: &mut String, document: &Document) -> std::fmt::Result {
    let nodes = || document.nodes.iter().filter_map(|node| Some((node, node.debt.as_ref()?)));
    if nodes().next().is_none() {
        return Ok(());
    }
    writeln!(
        out,
        "Debt, end (most):             pending   level 0  memtables   stalled   written per byte given   bounded"
    )?;
    for (node, debt) in nodes() {
        let both = |of: fn(&Debt) -> Option<u64>, tell: &dyn Fn(u64) -> String| {
            of(&debt.last).map_or_else(|| "-".into(), tell)
                + &of(&debt.most).map_or(String::new(), |most| format!(" ({})", tell(most)))
        };
        writeln!(
            out,
            "  {:<22}{:>21} {:>9} {:>9} {:>9} {:>15} {:>18}",
            name(node),
            both(|debt| debt.compaction_pending_bytes, &|value| bytes(float(value))),
            both(|debt| debt.level0_files, &|value| value.to_string()),
            both(|debt| debt.memtables_waiting, &|value| value.to_string()),
            debt.stall_seconds.map_or_else(|| "-".into(), |seconds| format!("{seconds:.1}s")),
            debt.write_amplification.map_or_else(|| "-".into(), |times| format!("{times:.2}")),
            said(debt.bounded),
        )?;
    }
    write_over_time(out, document)?;
    let grew = nodes().flat_map(|(node, debt)| debt.grew.iter().map(move |what| (node, what)));
    for (node, what) in grew {
        writeln!(out, "  {} had more debt at the end than it can go on with: {what}", name(node))?;
    }
    Ok(())
}

/// `yes`, `no`, or that it is not known.
fn said(bounded: Option<bool>) -> &'static str {
    match bounded {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "not known",
    }
}

fn name(node: &NodeRow) -> &str {
    node.url.trim_start_matches("http://")
}

fn write_over_time(out: &mut String, document: &Document) -> std::fmt::Result {
    let nodes = || document.nodes.iter().filter(|node| node.debt.is_some());
    writeln!(
        out,
        "  Seconds           p99   pending, level 0, memtables, stalled of {}",
        nodes().map(name).collect::<Vec<_>>().join(" | ")
    )?;
    let windows = &document.windows;
    for part in windows.chunks(windows.len().div_ceil(LINES_MAX).max(1)) {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
        let worst = part.iter().map(|window| window.latency_ms.p99).fold(f64::NAN, f64::max);
        let each = nodes().map(|node| cell(node, first, last)).collect::<Vec<_>>().join(" | ");
        writeln!(out, "  {:>5.0}-{:<5.0} {:>11}   {each}", first.from_s, last.to_s, told_ms(worst))?;
    }
    Ok(())
}

/// At the end of these windows, and how long it was stalled in them.
fn cell(node: &NodeRow, first: &WindowRow, last: &WindowRow) -> String {
    // A sample is taken a little after the second that it ends.
    let is_in = |second: &&NodeSecond| second.at_s > first.from_s + 0.5 && second.at_s <= last.to_s + 0.5;
    let stalled: Vec<f64> = node.seconds.iter().filter(is_in).filter_map(|second| second.stall_seconds).collect();
    let debt = node.seconds.iter().filter(is_in).map(|second| second.debt).rfind(|debt| !debt.is_unknown());
    let stalled = if stalled.is_empty() { "-".into() } else { format!("{:.1}s", stalled.iter().sum::<f64>()) };
    format!("{} {stalled}", told_debt(debt.unwrap_or_default()))
}

/// Bytes pending, files in level 0 and memtables waiting.
#[must_use]
pub fn told_debt(debt: Debt) -> String {
    let figure = |value: Option<u64>| value.map_or_else(|| "-".into(), |value| value.to_string());
    let pending = debt.compaction_pending_bytes.map_or_else(|| "-".into(), |value| bytes(float(value)));
    format!("{pending} {} {}", figure(debt.level0_files), figure(debt.memtables_waiting))
}
