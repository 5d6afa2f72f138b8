//! The lab's part of the API: orders to the nodes of `dev`, the canary, profiles and load.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::job_arguments::{bench_arguments, profile_order};
use crate::jobs::Jobs;
use crate::problem::ConsoleProblem;
use crate::state::ConsoleState;

const LINE_CHARS_MAX: usize = 200;
/// For an order to be carried out.
const ORDER_TIME: Duration = Duration::from_secs(20);

/// `POST /api/lab/dev`
///
/// # Errors
/// 400; 404 where there is no `dev`.
pub(crate) async fn dev(state: &ConsoleState, body: &Value) -> Result<String, ConsoleProblem> {
    let lab = state.settings.lab.clone().ok_or_else(|| ConsoleProblem::not_found("only `kvorum dev` takes orders"))?;
    let line = body["line"].as_str().map(str::trim).unwrap_or_default().to_owned();
    if line.is_empty() || line.len() > LINE_CHARS_MAX || line.contains(char::is_control) {
        return Err(ConsoleProblem::bad_request("`line` is an order such as `kill 2`"));
    }
    let room = state.orders.clone().try_acquire_owned();
    let room =
        room.map_err(|_| ConsoleProblem::full("other orders are carried out: try again in a moment".to_owned()))?;
    let ordered = tokio::task::spawn_blocking(move || {
        let _room = room;
        lab.order(&line)
    });
    let late =
        |_| ConsoleProblem::new(504, "Gateway Timeout", "`kvorum dev` has not answered in time: see its terminal");
    let answer = timeout(ORDER_TIME, ordered).await.map_err(late)?;
    answer.map_err(|error| ConsoleProblem::new(500, "Internal Server Error", error.to_string()))
}

/// `POST /api/lab/canary`
///
/// # Errors
/// 400; 404 where there is no `dev`.
pub(crate) fn canary(state: &ConsoleState, body: &Value) -> Result<String, ConsoleProblem> {
    let canary = state.canary.as_ref().ok_or_else(|| ConsoleProblem::not_found("only `kvorum dev` has a canary"))?;
    match body["run"].as_bool() {
        Some(true) => canary.resume(),
        Some(false) => canary.pause(),
        None => return Err(ConsoleProblem::bad_request("`run` is true or false")),
    }
    Ok(body.to_string())
}

/// The jobs.
///
/// # Errors
/// 404 where there are none.
pub(crate) fn jobs(state: &ConsoleState) -> Result<&Jobs, ConsoleProblem> {
    state
        .jobs
        .as_ref()
        .ok_or_else(|| ConsoleProblem::not_found("this console starts no jobs: `kvorum dev` has one that does"))
}

/// `POST /api/lab/profile`
///
/// # Errors
/// 400, 404, 503
pub(crate) fn profile(state: &ConsoleState, body: &Value) -> Result<String, ConsoleProblem> {
    let jobs = jobs(state)?;
    let order = profile_order(body)?;
    let node = state.nodes.get(order.node).ok_or_else(|| ConsoleProblem::not_found("there is no such node"))?;
    let admin = node.admin.clone().ok_or_else(|| {
        let detail =
            format!("{} has no admin listener that is known here: `kvorum dev --admin-base-port` opens them", node.url);
        ConsoleProblem::not_found(detail)
    })?;
    let against = order.against.map(|id| earlier(jobs, id)).transpose()?;
    let id = jobs.start(&format!("profile {}", order.kind), Some(order.seconds), |dir| {
        let mut arguments = vec!["profile".to_owned(), format!("--url={admin}"), format!("--kind={}", order.kind)];
        arguments.push(format!("--seconds={}", order.seconds));
        arguments.push(format!("--out={}", dir.display()));
        arguments.push("--stop-on-stdin-eof".to_owned());
        arguments.extend(against.map(|dir| format!("--diff={}", dir)));
        arguments
    })?;
    Ok(json!({ "id": id }).to_string())
}

/// `POST /api/lab/bench`
///
/// # Errors
/// 400, 404, 503
pub(crate) fn bench(state: &ConsoleState, body: &Value) -> Result<String, ConsoleProblem> {
    let jobs = jobs(state)?;
    let command = body["command"].as_str().unwrap_or_default();
    let given = body["arguments"].as_object().cloned().unwrap_or_default();
    let mut arguments = bench_arguments(command, &given)?;
    let urls: Vec<&str> = state.nodes.iter().map(|node| node.url.as_str()).collect();
    let urls = urls.join(",");
    let sides = if command == "compare" { compared(jobs, &given)? } else { Vec::new() };
    // Saved runs are compared as they are, and at once.
    if sides.is_empty() {
        arguments.extend(["--progress=json", "--stop-on-stdin-eof"].map(str::to_owned));
    }
    if command != "compare" {
        arguments.push(format!("--url={urls}"));
    } else if sides.is_empty() {
        arguments.extend([urls.clone(), urls]);
    }
    arguments.extend(sides);
    let id = jobs.start(command, None, |dir: &Path| {
        // Before the sides of a comparison, which are no options.
        arguments.insert(2, format!("--out={}", dir.display()));
        arguments
    })?;
    Ok(json!({ "id": id }).to_string())
}

/// The directories of the runs that are compared; none of them: the nodes are, with themselves.
fn compared(jobs: &Jobs, given: &serde_json::Map<String, Value>) -> Result<Vec<String>, ConsoleProblem> {
    let side = |name: &str| {
        let id = given.get(name).filter(|id| !id.is_null());
        let number = |id: &Value| {
            id.as_u64().ok_or_else(|| ConsoleProblem::bad_request(format!("`{name}` is the id of an earlier run")))
        };
        id.map(|id| number(id).and_then(|id| earlier(jobs, id))).transpose()
    };
    match (side("a")?, side("b")?) {
        (Some(a), Some(b)) => Ok(vec![a, b]),
        (None, None) => Ok(Vec::new()),
        _ => Err(ConsoleProblem::bad_request("`a` and `b` are both ids of earlier runs, or both left out")),
    }
}

/// Where an earlier job has written to.
fn earlier(jobs: &Jobs, id: u64) -> Result<String, ConsoleProblem> {
    let job =
        jobs.find(id).ok_or_else(|| ConsoleProblem::not_found(format!("there is no job {id}: it may be forgotten")))?;
    Ok(job.dir.display().to_string())
}
