//! `kvorum slow`: what nodes answered slowly, of all of them.

use std::cmp::Reverse;
use std::io::{self, Write};

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use crate::every_node::{ask_every, tell_troubles};
use crate::outcome::ExitOutcome;
use crate::output::{OutputForm, align, json_line};
use crate::printable::printable;
use crate::view_args::SlowArgs;

/// `kvorum slow`
pub(crate) fn slow(args: &SlowArgs) -> Result<ExitOutcome> {
    let urls = args.server.urls();
    let pages = ask_every(urls, args.server.key(), "/v0/slow", args.server.deadline());
    let outcome = tell_troubles(urls, &pages);
    let of_nodes = urls.iter().zip(&pages).filter_map(|(url, page)| Some((url.as_str(), page.as_ref().ok()?)));
    let requests = merged(of_nodes, args.limit);
    let mut out = io::stdout().lock();
    match args.form.output {
        OutputForm::Json => {
            for request in &requests {
                writeln!(out, "{}", json_line(request))?;
            }
        }
        OutputForm::Text if outcome != ExitOutcome::Done => {}
        OutputForm::Text if requests.is_empty() => writeln!(out, "no request was slow since the nodes started")?,
        OutputForm::Text => write!(out, "{}", text(&requests))?,
    }
    Ok(outcome)
}

/// The newest requests of all pages, each with the node that answered it.
fn merged<'a>(pages: impl Iterator<Item = (&'a str, &'a Value)>, limit: u32) -> Vec<Value> {
    let mut requests = Vec::new();
    for (url, page) in pages {
        for request in page.get("requests").and_then(Value::as_array).into_iter().flatten() {
            let mut request = request.clone();
            if let Some(members) = request.as_object_mut() {
                members.insert("node".into(), url.into());
                requests.push(request);
            }
        }
    }
    requests.sort_by_key(|request| Reverse(request.get("at_ms").and_then(Value::as_u64)));
    requests.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    requests
}

const HEADS: [&str; 12] = [
    "time",
    "node",
    "request",
    "class",
    "ack",
    "status",
    "ms",
    "queue",
    "commit",
    "peers",
    "waited for",
    "hash of the key",
];

fn text(requests: &[Value]) -> String {
    let row = |request: &Value| {
        let member = |name: &str| cell(request.get(name));
        let at_ms = request.get("at_ms").and_then(Value::as_i64);
        let time = at_ms.and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
        vec![
            time.map_or_else(|| "-".to_owned(), |time| format!("{time:.3}")),
            node(request.get("node")),
            member("operation"),
            member("class"),
            format!("{}/{}", member("ack"), member("from")),
            member("status"),
            member("ms"),
            member("queue_ms"),
            member("commit_ms"),
            member("peers_ms"),
            last_replica(request),
            member("hash"),
        ]
    };
    let rows: Vec<Vec<String>> = requests.iter().map(row).collect();
    align(&[vec![HEADS.map(str::to_owned).to_vec()], rows].concat())
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => printable(text),
        Some(Value::Number(number)) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or_default()),
        Some(other) => printable(&other.to_string()),
    }
}

/// The last replica that the answer needed: of those that answered, or, where they were too few, one that did not.
fn last_replica(request: &Value) -> String {
    let receipt = request.get("receipt").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let time = |replica: &&Value| replica.get("ms").and_then(Value::as_f64);
    let answered = receipt.iter().filter(|replica| time(replica).is_some());
    let ack = request.get("ack").and_then(Value::as_u64).unwrap_or_default();
    let is_enough = u64::try_from(answered.clone().count()).is_ok_and(|count| count >= ack);
    let last = if is_enough {
        answered.max_by(|a, b| time(a).unwrap_or_default().total_cmp(&time(b).unwrap_or_default()))
    } else {
        receipt.iter().find(|replica| time(replica).is_none())
    };
    let Some(last) = last else { return "-".to_owned() };
    format!("{} {} {}", node(last.get("node")), cell(last.get("outcome")), cell(last.get("ms")))
}

/// A node without what all URLs begin with.
fn node(url: Option<&Value>) -> String {
    let url = cell(url);
    url.strip_prefix("http://").unwrap_or(&url).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{last_replica, merged, text};

    fn request(at_ms: u64, operation: &str) -> Value {
        json!({"at_ms": at_ms, "ms": 123.44, "operation": operation, "hash": "00ff", "partition": 17, "class": "quorum",
            "ack": 2, "from": 3, "status": 200, "queue_ms": 0.1, "commit_ms": null, "peers_ms": 120.0, "receipt": [
                {"node": "http://a:1", "outcome": "record", "version": "v", "ms": 1.2},
                {"node": "http://b:1", "outcome": "record", "version": "v", "ms": 120.0},
                {"node": "http://c:1", "outcome": "no-answer", "version": null, "ms": null}]})
    }

    #[test]
    fn the_requests_of_all_nodes_are_shown_newest_first() {
        let pages = [
            ("http://a:1", json!({"threshold_ms": 100, "requests": [request(3000, "PUT"), request(1000, "GET")]})),
            ("http://b:1", json!({"threshold_ms": 100, "requests": [request(2000, "DELETE")]})),
        ];
        let all = merged(pages.iter().map(|(url, page)| (*url, page)), 2);
        let told: Vec<_> = all.iter().map(|one| (one["node"].as_str(), one["operation"].as_str())).collect();
        assert_eq!(told, [(Some("http://a:1"), Some("PUT")), (Some("http://b:1"), Some("DELETE"))]);
        let text = text(&all);
        let line = "1970-01-01T00:00:03.000Z  a:1   PUT      quorum  2/3  200     123.4  0.1    -       120.0  \
                    b:1 record 120.0  00ff";
        assert_eq!(text.lines().nth(1), Some(line), "{text}");
        let mut lacking = request(1, "PUT");
        lacking["ack"] = json!(3);
        assert_eq!(last_replica(&lacking), "c:1 no-answer -");
    }
}
