//! `put`, `get`, `delete`, `range`: one request each.

use std::ffi::OsStr;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kvorum_config::NodeUrl;
use serde_json::Value;

use crate::args::{KeyArgs, PutArgs, RangeArgs, RequestArgs};
use crate::client::{ClientRequest, ClientResponse, percent_encode};
use crate::client_nodes::{ClientNodes, RequestEffect};
use crate::node_args::OneNodeArgs;
use crate::outcome::{ExitOutcome, Unreachable};
use crate::printable::printable;

/// `kvorum put`
pub(crate) fn put(args: &PutArgs) -> Result<ExitOutcome> {
    let value = value(args.value.as_deref())?;
    finish(ask(&mut args.request.quorum.server.nodes(), "PUT", &args.key, &args.request, args.ttl, &value)?)
}

/// `kvorum get`
pub(crate) fn get(args: &KeyArgs) -> Result<ExitOutcome> {
    let mut nodes = args.request.quorum.server.nodes();
    let mut answer = ask(&mut nodes, "GET", &args.key, &args.request, None, b"")?;
    match answer.status {
        200 => print(nodes.current(), |out| answer.copy_body(out)),
        _ => finish(answer),
    }
}

/// `kvorum delete`
pub(crate) fn delete(args: &KeyArgs) -> Result<ExitOutcome> {
    finish(ask(&mut args.request.quorum.server.nodes(), "DELETE", &args.key, &args.request, None, b"")?)
}

/// `kvorum range`
pub(crate) fn range(args: &RangeArgs) -> Result<ExitOutcome> {
    let mut target = format!("/v0/entities?start={}", percent_encode(args.start.as_bytes()));
    if let Some(end) = &args.end {
        target.push_str("&end=");
        target.push_str(&percent_encode(end.as_bytes()));
    }
    let mut answer = args.server.nodes().send(&ClientRequest::of("GET", &target), RequestEffect::Read)?;
    match answer.status {
        200 => print(&args.server.url, |out| answer.copy_records(out)),
        _ => finish(answer),
    }
}

/// Copies what a node answered to stdout. A reader that has had enough is not an error.
pub(crate) fn print(
    url: &NodeUrl,
    copy: impl FnOnce(&mut BufWriter<io::StdoutLock<'static>>) -> io::Result<()>,
) -> Result<ExitOutcome> {
    let mut out = BufWriter::new(io::stdout().lock());
    match copy(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitOutcome::Done),
        Err(cause) => Err(Unreachable { url: url.to_string(), cause }.into()),
        Ok(()) => Ok(ExitOutcome::Done),
    }
}

/// Has the node that is meant do something, and answer with a page of JSON; the exit code where it has none to give.
///
/// # Errors
/// [`Unreachable`], or what could not be written.
pub fn order_json(node: &OneNodeArgs, target: &str) -> Result<Result<Value, ExitOutcome>> {
    ask_json(&mut node.nodes(), "POST", target)
}

/// Asks for a page of JSON; the exit code where there is none to be had.
///
/// # Errors
/// [`Unreachable`], or what could not be written.
pub(crate) fn ask_json(nodes: &mut ClientNodes, method: &str, target: &str) -> Result<Result<Value, ExitOutcome>> {
    let effect = if method == "GET" { RequestEffect::Read } else { RequestEffect::Write };
    let mut answer = nodes.send(&ClientRequest::of(method, target), effect)?;
    if !(200..300).contains(&answer.status) {
        return Ok(Err(finish(answer)?));
    }
    let mut body = Vec::new();
    let unreachable = |cause| Unreachable { url: nodes.current().to_string(), cause };
    answer.copy_body(&mut body).map_err(unreachable)?;
    Ok(Ok(serde_json::from_slice(&body).map_err(|error| unreachable(error.into()))?))
}

/// The exit code of an answer that has nothing for stdout; what went wrong goes to stderr.
pub(crate) fn finish(mut answer: ClientResponse) -> Result<ExitOutcome> {
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
    eprintln!("kvorum: {}", explain(answer.status, &body));
    Ok(outcome)
}

/// An RFC 9457 problem as lines: title and detail, then its own members.
fn explain(status: u16, body: &[u8]) -> String {
    let Ok(serde_json::Value::Object(problem)) = serde_json::from_slice(body) else {
        return if status == 404 { "not found".into() } else { format!("the node answered {status}") };
    };
    let member = |name: &str| problem.get(name).and_then(serde_json::Value::as_str);
    let mut text = member("title").map_or_else(|| format!("the node answered {status}"), printable);
    if let Some(detail) = member("detail") {
        text = format!("{text}: {}", printable(detail));
    }
    for (name, value) in
        problem.iter().filter(|(name, _)| !["type", "title", "status", "detail"].contains(&name.as_str()))
    {
        text = format!("{text}\n  {}: {}", printable(name), printable(&value.to_string()));
    }
    text
}

/// Headers that `--trace` shows.
const TRACED: [(&str, &str); 3] =
    [("server-timing", "Server-Timing"), ("kvorum-replicas", "Kvorum-Replicas"), ("expires", "Expires")];

fn ask(
    nodes: &mut ClientNodes,
    method: &str,
    key: &OsStr,
    args: &RequestArgs,
    ttl_s: Option<u64>,
    body: &[u8],
) -> Result<ClientResponse> {
    let mut target = format!("/v0/entity?id={}", percent_encode(key.as_bytes()));
    for (name, number) in args.quorum.parameters().chain(ttl_s.map(|ttl_s| ("ttl", ttl_s.to_string()))) {
        target.push_str(&format!("&{name}={number}"));
    }
    let request = ClientRequest { trace: args.trace, body, ..ClientRequest::of(method, &target) };
    let effect = if method == "GET" { RequestEffect::Read } else { RequestEffect::Write };
    let answer = nodes.send(&request, effect)?;
    if args.trace {
        for (name, label) in TRACED {
            if let Some(value) = answer.header(name) {
                eprintln!("{label}: {}", printable(value));
            }
        }
    }
    Ok(answer)
}

fn value(argument: Option<&OsStr>) -> Result<Vec<u8>> {
    let argument = argument.map(OsStr::as_bytes);
    match argument {
        None if io::stdin().is_terminal() => {
            bail!("no value: give it, or `-` for stdin, or @FILE, or '' for an empty one")
        }
        None | Some(b"-") => {
            let mut value = Vec::new();
            io::stdin().lock().read_to_end(&mut value).context("stdin")?;
            Ok(value)
        }
        Some([b'@', path @ ..]) => {
            let path = Path::new(OsStr::from_bytes(path));
            std::fs::read(path).with_context(|| path.display().to_string())
        }
        Some(value) => Ok(value.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(missing_docs)]

    use super::explain;

    #[test]
    fn a_problem_is_told_with_its_own_members() {
        let body = br#"{"type":"about:blank","title":"Not Enough Replicas","status":504,"detail":"1 of 2","acked":1}"#;
        assert_eq!(explain(504, body), "Not Enough Replicas: 1 of 2\n  acked: 1");
    }

    #[test]
    fn an_answer_without_a_problem_is_told_by_its_status() {
        assert_eq!(explain(404, b""), "not found");
        assert_eq!(explain(502, b"<html>"), "the node answered 502");
    }
}
