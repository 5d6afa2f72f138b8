//! `kvorum batch`: operations from a file or stdin, and their answers to stdout.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::client::ClientRequest;
use crate::client_nodes::RequestEffect;
use crate::data_args::BatchArgs;
use crate::entity::print;
use crate::outcome::{ExitOutcome, Unreachable};
use crate::output::OutputForm;
use crate::printable::printable;
use crate::refusal::finish;

/// Operations and bytes of one request: what a node takes at most, and room for a long line.
const OPERATIONS_MAX: usize = 1000;
const BYTES_MAX: usize = 4 << 20;
/// The longest line: a batch of its own.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// `kvorum batch`
pub(crate) fn batch(args: &BatchArgs) -> Result<ExitOutcome> {
    let mut input: Box<dyn BufRead> = match args.file.as_deref() {
        None if io::stdin().is_terminal() => bail!("no operations: give a file, or `-` for stdin"),
        Some(path) if path != OsStr::new("-") => {
            let file = File::open(path).with_context(|| Path::new(path).display().to_string())?;
            Box::new(BufReader::new(file))
        }
        _ => Box::new(io::stdin().lock()),
    };
    let mut target = String::from("/v0/batch");
    for (name, number) in args.quorum.parameters() {
        let separator = if target.contains('?') { '&' } else { '?' };
        target.push_str(&format!("{separator}{name}={number}"));
    }
    let mut nodes = args.quorum.server.nodes();
    let mut has_missing = false;
    let mut next_line = Vec::new();
    loop {
        let body = next_body(&mut input, &mut next_line)?;
        if body.is_empty() {
            return Ok(if has_missing { ExitOutcome::NotEnoughReplicas } else { ExitOutcome::Done });
        }
        let request = ClientRequest { body: &body, ..ClientRequest::of("POST", &target) };
        let mut answer = nodes.send(&request, RequestEffect::Write)?;
        if answer.status != 200 {
            return finish(answer, args.form.output);
        }
        let mut lines = Vec::new();
        let unreachable = |cause| Unreachable { url: nodes.current().to_string(), cause };
        answer.copy_body(&mut lines).map_err(unreachable)?;
        has_missing |= lines.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"{\"status\":504,"));
        print(nodes.current(), |out| match args.form.output {
            OutputForm::Json => out.write_all(&lines),
            OutputForm::Text => lines.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| write_text(line, out)),
        })?;
    }
}

/// An answer as its status, key, and value or what went wrong, with tabs between.
fn write_text(line: &[u8], out: &mut impl Write) -> io::Result<()> {
    let answer: Value = serde_json::from_slice(line)?;
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let bytes = |name: &str| text(&answer, name).or_else(|| text(&answer, &format!("{name}_base64")));
    let status = answer.get("status").and_then(Value::as_u64).unwrap_or_default();
    let problem = answer.get("problem").map(|problem| {
        let [title, detail] = ["title", "detail"].map(|name| text(problem, name));
        [title, detail].into_iter().flatten().collect::<Vec<_>>().join(": ")
    });
    write!(out, "{status}\t{}", printable(&bytes("key").unwrap_or_default()))?;
    if let Some(last) = problem.or_else(|| bytes("value")) {
        write!(out, "\t{}", printable(&last))?;
    }
    out.write_all(b"\n")
}

/// Lines for one request. `next` is a line that was read and had no room.
fn next_body(input: &mut impl BufRead, next: &mut Vec<u8>) -> Result<Vec<u8>> {
    let (mut body, mut operations) = (std::mem::take(next), 0);
    operations += usize::from(!body.is_empty());
    while operations < OPERATIONS_MAX {
        let mut line = Vec::new();
        let read = input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line).context("the operations")?;
        if read == 0 {
            break;
        }
        if line.len() as u64 > LINE_BYTES_MAX {
            bail!("a line is longer than 8 MiB: a batch has at most so many bytes");
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        if !body.is_empty() && body.len() + line.len() > BYTES_MAX {
            *next = line;
            break;
        }
        body.append(&mut line);
        operations += 1;
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, OPERATIONS_MAX, next_body, write_text};

    fn bodies(text: &[u8]) -> Vec<Vec<u8>> {
        let (mut input, mut next) = (text, Vec::new());
        std::iter::from_fn(|| Some(next_body(&mut input, &mut next).unwrap()).filter(|body| !body.is_empty())).collect()
    }

    #[test]
    fn a_long_file_is_sent_in_parts_and_no_line_is_lost() {
        let lines: String = (0..2 * OPERATIONS_MAX + 1).map(|number| format!("{number}\n\n")).collect();
        let parts = bodies(lines.as_bytes());
        let count = |part: &Vec<u8>| part.split(|byte| *byte == b'\n').count() - 1;
        assert_eq!(parts.iter().map(count).collect::<Vec<_>>(), [OPERATIONS_MAX, OPERATIONS_MAX, 1]);
        assert_eq!(parts.concat(), lines.replace("\n\n", "\n").as_bytes());
    }

    #[test]
    fn an_answer_in_text_is_a_line_with_its_status_its_key_and_what_came_of_it() {
        let text = |line: &str| {
            let mut out = Vec::new();
            write_text(line.as_bytes(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text("{\"status\":201,\"key\":\"a\",\"etag\":\"x\"}\n"), "201\ta\n");
        assert_eq!(text(r#"{"status":200,"key":"a","value":"1\n2"}"#), "200\ta\t1\\u{a}2\n");
        let refused =
            r#"{"status":504,"key_base64":"/w==","problem":{"title":"Not Enough Replicas","detail":"1 of 2"}}"#;
        assert_eq!(text(refused), "504\t/w==\tNot Enough Replicas: 1 of 2\n");
    }

    #[test]
    fn a_part_has_a_long_line_alone_and_a_last_line_needs_no_end() {
        let long = "x".repeat(BYTES_MAX);
        let parts = bodies(format!("a\n{long}\nb").as_bytes());
        assert_eq!(parts, [b"a\n".to_vec(), format!("{long}\n").into_bytes(), b"b\n".to_vec()]);
        assert!(bodies(b"\n \n").is_empty());
    }
}
