//! What a node answers instead of a result: an RFC 9457 problem, to stderr, and an exit code.

use anyhow::Result;
use serde_json::{Value, json};

use crate::client::ClientResponse;
use crate::outcome::ExitOutcome;
use crate::output::{OutputForm, json_line};
use crate::printable::printable;
use crate::receipt;

/// The exit code of an answer that has nothing for stdout. What went wrong goes to stderr: in words, or, where the
/// result would have been JSON, as the problem itself in one line.
pub(crate) fn finish(mut answer: ClientResponse, form: OutputForm) -> Result<ExitOutcome> {
    let outcome = match answer.status {
        200..300 => return Ok(ExitOutcome::Done),
        404 => ExitOutcome::NotFound,
        400 | 422 => ExitOutcome::Usage,
        504 => ExitOutcome::NotEnoughReplicas,
        _ => ExitOutcome::Refused,
    };
    let mut body = Vec::new();
    // The status is what counts; a body that breaks off only explains less.
    let _ = answer.copy_body(&mut body);
    let is_old = serde_json::from_slice(&body).is_ok_and(|problem| is_unknown_path(&problem));
    let outcome = if is_old { ExitOutcome::Refused } else { outcome };
    match form {
        OutputForm::Text if is_old => {
            eprintln!("kvorum: the node's version of kvorum does not have this: ask a newer node, or upgrade it");
        }
        OutputForm::Text => eprintln!("kvorum: {}", explain(answer.status, &body)),
        OutputForm::Json => eprintln!("{}", json_line(&problem(&answer, &body))),
    }
    Ok(outcome)
}

/// Whether a node says that it does not have a path, which a newer one has.
pub(crate) fn is_unknown_path(problem: &Value) -> bool {
    let detail = problem.get("detail").and_then(Value::as_str);
    detail.is_some_and(|detail| detail.contains("nothing at this path"))
}

/// The node's problem, or one that says as much of an answer that has none; with the receipt, if there is one.
fn problem(answer: &ClientResponse, body: &[u8]) -> Value {
    let mut problem = match serde_json::from_slice(body) {
        Ok(Value::Object(problem)) => problem,
        _ => return json!({"title": explain(answer.status, body), "status": answer.status}),
    };
    if let Some(replicas) = receipt::replicas(answer) {
        problem.entry("replicas").or_insert(replicas);
    }
    Value::Object(problem)
}

/// A problem as lines: title and detail, then its own members. Replicas are a table.
fn explain(status: u16, body: &[u8]) -> String {
    let Ok(Value::Object(problem)) = serde_json::from_slice(body) else {
        return if status == 404 { "not found".into() } else { format!("the node answered {status}") };
    };
    let member = |name: &str| problem.get(name).and_then(Value::as_str);
    let mut text = member("title").map_or_else(|| format!("the node answered {status}"), printable);
    if let Some(detail) = member("detail") {
        text = format!("{text}: {}", printable(detail));
    }
    let mut tables = String::new();
    for (name, value) in
        problem.iter().filter(|(name, _)| !["type", "title", "status", "detail"].contains(&name.as_str()))
    {
        match receipt::table(value, "  ") {
            Some(table) => tables = format!("{tables}\n{}", table.trim_end()),
            None => text = format!("{text}\n  {}: {}", printable(name), plain(value)),
        }
    }
    text + &tables
}

/// A value without JSON's signs where it needs none.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => printable(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::explain;

    #[test]
    fn a_problem_is_told_with_its_own_members() {
        let body = br#"{"type":"about:blank","title":"Not Enough Replicas","status":504,"detail":"1 of 2","acked":1,
            "nodes":["http://a:1","http://b:1"]}"#;
        let text = "Not Enough Replicas: 1 of 2\n  acked: 1\n  nodes: http://a:1, http://b:1";
        assert_eq!(explain(504, body), text);
    }

    #[test]
    fn replicas_are_a_table_behind_the_other_members() {
        let body = br#"{"title":"Not Enough Replicas","required":2,"replicas":[
            {"node":"http://a:1","outcome":"accepted","version":"0192-8f3a","micros":400},
            {"node":"http://b:1","outcome":"unreachable","version":null,"micros":null}]}"#;
        let text = "Not Enough Replicas\n  required: 2\n  \
                    node        outcome      version    time, ms\n  \
                    http://a:1  accepted     0192-8f3a  0.400\n  \
                    http://b:1  unreachable  -          -";
        assert_eq!(explain(504, body), text);
    }

    #[test]
    fn an_answer_without_a_problem_is_told_by_its_status() {
        assert_eq!(explain(404, b""), "not found");
        assert_eq!(explain(502, b"<html>"), "the node answered 502");
    }
}
