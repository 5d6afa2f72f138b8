//! Answers that the console makes itself: what it is, and what series were.

use std::fmt::Write as _;

use serde_json::json;

use crate::api_route::parameter;
use crate::problem::ConsoleProblem;
use crate::ring::HistorySpan;
use crate::series::position;
use crate::state::ConsoleState;

/// Of one answer of `/api/history`.
const SERIES_MAX: usize = 32;
const SECONDS_MAX: u64 = 86_400;

/// `/api/session`
pub(crate) fn session(state: &ConsoleState) -> String {
    let nodes: Vec<&str> = state.nodes.iter().map(|node| node.url.as_str()).collect();
    json!({
        "level": state.settings.level.name(),
        "mode": state.settings.mode.name(),
        "nodes": nodes,
        "version": env!("CARGO_PKG_VERSION"),
    })
    .to_string()
}

/// `/api/history?series=a,b&seconds=3600`
///
/// # Errors
/// 400
pub(crate) fn history(state: &ConsoleState, query: Option<&str>) -> Result<String, ConsoleProblem> {
    let ids = parameter(query, "series").unwrap_or_default();
    let ids: Vec<&str> = ids.split(',').filter(|id| !id.is_empty()).collect();
    if ids.is_empty() || ids.len() > SERIES_MAX {
        return Err(ConsoleProblem::bad_request(format!("`series` takes 1 to {SERIES_MAX} ids, with commas between")));
    }
    let unknown =
        |id: &str| ConsoleProblem::bad_request(format!("there is no series {id:?}: /api/series has them all"));
    let series: Vec<(&str, usize)> =
        ids.iter().map(|id| position(id).map(|at| (*id, at)).ok_or_else(|| unknown(id))).collect::<Result<_, _>>()?;
    let seconds = parameter(query, "seconds").map_or(Some(3600), |text| text.parse::<u64>().ok());
    let seconds = seconds.filter(|seconds| (1..=SECONDS_MAX).contains(seconds)).ok_or_else(|| {
        ConsoleProblem::bad_request(format!("`seconds` takes a whole number from 1 to {SECONDS_MAX}"))
    })?;
    Ok(written(state, &series, seconds))
}

fn written(state: &ConsoleState, series: &[(&str, usize)], seconds: u64) -> String {
    let history = state.history();
    let span = HistorySpan { end_s: history.end_s, seconds };
    // Of minutes, the last that is over ends before the newest second.
    let since_end_s = if span.step_s() == 1 { 0 } else { history.end_s % 60 + 1 };
    let end_ms = history.end_ms.saturating_sub(since_end_s * 1000);
    let mut text = format!("{{\"end_ms\":{end_ms},\"step_ms\":{},\"nodes\":[", span.step_s() * 1000);
    for (index, (node, known)) in history.nodes.iter().zip(&state.nodes).enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(text, "{comma}{{\"url\":{},\"series\":{{", json!(known.url)).expect("a string takes all text");
        for (index, (id, at)) in series.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(text, "{comma}\"{id}\":").expect("a string takes all text");
            node.write(&mut text, *at, span);
        }
        text.push_str("}}");
    }
    text.push_str("]}");
    text
}
