//! `put`, `get`, `delete`, `range`: one request each.

use std::ffi::OsStr;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kvorum_config::NodeUrl;
use serde_json::Value;

use crate::args::{KeyArgs, PutArgs, RangeArgs, RequestArgs, ServerArgs};
use crate::client::{ClientRequest, ClientResponse, ResponseBounds, percent_encode, send};
use crate::outcome::{ExitOutcome, Unreachable};
use crate::printable::printable;

/// `kvorum put`
pub(crate) fn put(args: &PutArgs) -> Result<ExitOutcome> {
    let value = value(args.value.as_deref())?;
    finish(ask("PUT", &args.key, &args.request, args.ttl, &value)?)
}

/// `kvorum get`
pub(crate) fn get(args: &KeyArgs) -> Result<ExitOutcome> {
    let mut answer = ask("GET", &args.key, &args.request, None, b"")?;
    match answer.status {
        200 => print(&args.request.quorum.server.url, |out| answer.copy_body(out)),
        _ => finish(answer),
    }
}

/// `kvorum delete`
pub(crate) fn delete(args: &KeyArgs) -> Result<ExitOutcome> {
    finish(ask("DELETE", &args.key, &args.request, None, b"")?)
}

/// `kvorum range`
pub(crate) fn range(args: &RangeArgs) -> Result<ExitOutcome> {
    let mut target = format!("/v0/entities?start={}", percent_encode(args.start.as_bytes()));
    if let Some(end) = &args.end {
        target.push_str("&end=");
        target.push_str(&percent_encode(end.as_bytes()));
    }
    let request = ClientRequest {
        method: "GET",
        target: &target,
        trace: false,
        accept: None,
        body: b"",
        key: args.server.key_file.as_ref(),
    };
    let mut answer = send(&args.server.url, ResponseBounds::Silence(args.server.timeout), &request)?;
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

/// Asks a node for a page of JSON; the exit code where it has none to give.
///
/// # Errors
/// [`Unreachable`], or what could not be written.
pub fn ask_json(server: &ServerArgs, method: &str, target: &str) -> Result<Result<Value, ExitOutcome>> {
    let request =
        ClientRequest { method, target, trace: false, accept: None, body: b"", key: server.key_file.as_ref() };
    let mut answer = send(&server.url, ResponseBounds::Silence(server.timeout), &request)?;
    if !(200..300).contains(&answer.status) {
        return Ok(Err(finish(answer)?));
    }
    let mut body = Vec::new();
    let unreachable = |cause| Unreachable { url: server.url.to_string(), cause };
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

fn ask(method: &str, key: &OsStr, args: &RequestArgs, ttl_s: Option<u64>, body: &[u8]) -> Result<ClientResponse> {
    let mut target = format!("/v0/entity?id={}", percent_encode(key.as_bytes()));
    for (name, number) in args.quorum.parameters().chain(ttl_s.map(|ttl_s| ("ttl", ttl_s.to_string()))) {
        target.push_str(&format!("&{name}={number}"));
    }
    let server = &args.quorum.server;
    let request =
        ClientRequest { method, target: &target, trace: args.trace, accept: None, body, key: server.key_file.as_ref() };
    let answer = send(&server.url, ResponseBounds::Silence(server.timeout), &request)?;
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
