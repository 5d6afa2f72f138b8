//! `put`, `get`, `delete`, `range`: one request each.

use std::ffi::OsStr;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kvorum_config::NodeUrl;
use serde_json::{Map, Value};

use crate::client::{ClientRequest, ClientResponse, percent_encode};
use crate::client_nodes::{ClientNodes, RequestEffect};
use crate::data_args::{KeyArgs, PutArgs, RangeArgs, RequestArgs};
use crate::node_args::OneNodeArgs;
use crate::outcome::{ExitOutcome, Unreachable};
use crate::output::{OutputForm, add_bytes, json_line, show};
use crate::printable::printable;
use crate::receipt;
use crate::refusal::finish;

/// What `limits.value_bytes_max` may be at most.
const VALUE_BYTES_MAX: u64 = 256 << 20;

/// `kvorum put`
pub(crate) fn put(args: &PutArgs) -> Result<ExitOutcome> {
    let value = value(args.value.as_deref())?;
    let mut nodes = args.request.quorum.server.nodes();
    let answer = ask(&mut nodes, "PUT", &args.key, &args.request, args.ttl, &value)?;
    conclude_write(&nodes, &args.key, &args.request, answer)
}

/// `kvorum get`
pub(crate) fn get(args: &KeyArgs) -> Result<ExitOutcome> {
    let mut nodes = args.request.quorum.server.nodes();
    let mut answer = ask(&mut nodes, "GET", &args.key, &args.request, None, b"")?;
    match answer.status {
        200 if args.request.form.output == OutputForm::Json => print_object(&nodes, &args.key, answer),
        200 => print(nodes.current(), |out| answer.copy_body(out)),
        _ => finish(answer, args.request.form.output),
    }
}

/// `kvorum delete`
pub(crate) fn delete(args: &KeyArgs) -> Result<ExitOutcome> {
    let mut nodes = args.request.quorum.server.nodes();
    let answer = ask(&mut nodes, "DELETE", &args.key, &args.request, None, b"")?;
    conclude_write(&nodes, &args.key, &args.request, answer)
}

/// A write says nothing in text, unless it was refused.
fn conclude_write(nodes: &ClientNodes, key: &OsStr, args: &RequestArgs, answer: ClientResponse) -> Result<ExitOutcome> {
    if args.form.output == OutputForm::Text || !(200..300).contains(&answer.status) {
        return finish(answer, args.form.output);
    }
    show(OutputForm::Json, &Value::Object(object(nodes, key, &answer)), "")
}

/// Prints a value with all that is known of it.
fn print_object(nodes: &ClientNodes, key: &OsStr, answer: ClientResponse) -> Result<ExitOutcome> {
    let mut object = object(nodes, key, &answer);
    let value = read_value(answer).map_err(|cause| Unreachable { url: nodes.current().to_string(), cause })?;
    add_bytes(&mut object, "value", &value);
    show(OutputForm::Json, &Value::Object(object), "")
}

/// The members that answers about a key have in common; the names are those of a batch's answers.
fn object(nodes: &ClientNodes, key: &OsStr, answer: &ClientResponse) -> Map<String, Value> {
    let mut object = Map::new();
    add_bytes(&mut object, "key", key.as_bytes());
    object.insert("node".into(), nodes.current().as_str().into());
    object.insert("status".into(), answer.status.into());
    for (name, header) in [("etag", "etag"), ("content_type", "content-type")] {
        if let Some(text) = answer.header(header).filter(|_| name == "etag" || answer.status == 200) {
            object.insert(name.into(), text.into());
        }
    }
    if let Some(expires_ms) = answer.header("kvorum-expires").and_then(|text| text.parse::<u64>().ok()) {
        object.insert("expires_ms".into(), expires_ms.into());
    }
    if let Some(replicas) = receipt::replicas(answer) {
        object.insert("replicas".into(), replicas);
    }
    object
}

/// A whole value, or an error where no node would have one of its size.
fn read_value(from: impl Read) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    from.take(VALUE_BYTES_MAX + 1).read_to_end(&mut value)?;
    if value.len() as u64 > VALUE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the value is longer than any of a kvorum node"));
    }
    Ok(value)
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
        200 if args.form.output == OutputForm::Json => print(&args.server.url, |out| write_records(&mut answer, out)),
        200 => print(&args.server.url, |out| answer.copy_records(out)),
        _ => finish(answer, args.form.output),
    }
}

/// A line of JSON for each record of a range.
fn write_records(answer: &mut ClientResponse, out: &mut impl Write) -> io::Result<()> {
    answer.read_records(|key, value| {
        let mut object = Map::new();
        add_bytes(&mut object, "key", key);
        add_bytes(&mut object, "value", &read_value(value)?);
        writeln!(out, "{}", json_line(&Value::Object(object)))
    })
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
pub fn order_json(node: &OneNodeArgs, target: &str, form: OutputForm) -> Result<Result<Value, ExitOutcome>> {
    ask_json(&mut node.nodes(), "POST", target, form)
}

/// Asks for a page of JSON; the exit code where there is none to be had.
///
/// # Errors
/// [`Unreachable`], or what could not be written.
pub(crate) fn ask_json(
    nodes: &mut ClientNodes,
    method: &str,
    target: &str,
    form: OutputForm,
) -> Result<Result<Value, ExitOutcome>> {
    let effect = if method == "GET" { RequestEffect::Read } else { RequestEffect::Write };
    let mut answer = nodes.send(&ClientRequest::of(method, target), effect)?;
    if !(200..300).contains(&answer.status) {
        return Ok(Err(finish(answer, form)?));
    }
    let mut body = Vec::new();
    let unreachable = |cause| Unreachable { url: nodes.current().to_string(), cause };
    answer.copy_body(&mut body).map_err(unreachable)?;
    Ok(Ok(serde_json::from_slice(&body).map_err(|error| unreachable(error.into()))?))
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
    if args.trace && args.form.output == OutputForm::Text {
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
