//! `kvorum query` and `kvorum script`: work beside the data, and its answer to stdout.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::answer_text::to_text;
use crate::client::{ClientRequest, percent_encode};
use crate::client_nodes::RequestEffect;
use crate::data_args::{QueryArgs, ScriptArgs, WorkArgs};
use crate::entity::print;
use crate::outcome::{ExitOutcome, Unreachable};
use crate::output::OutputForm;
use crate::refusal::finish;

/// What a node takes at most.
const SOURCE_BYTES_MAX: u64 = 64 << 10;
/// What it answers at most.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// `kvorum query`
pub(crate) fn query(args: &QueryArgs) -> Result<ExitOutcome> {
    post("/v0/query", Vec::new(), &args.work, &read(args.file.as_deref())?)
}

/// `kvorum script`
pub(crate) fn script(args: &ScriptArgs) -> Result<ExitOutcome> {
    let bounds = [("prefix", &args.prefix), ("start", &args.start), ("end", &args.end)];
    let given = bounds.iter().filter_map(|(name, bound)| Some((*name, percent_encode(bound.as_ref()?.as_bytes()))));
    post("/v0/script", given.collect(), &args.work, &read(Some(&args.file))?)
}

fn post(path: &str, mut query: Vec<(&'static str, String)>, work: &WorkArgs, body: &[u8]) -> Result<ExitOutcome> {
    query.extend(work.quorum.parameters());
    if work.partial {
        query.push(("partial", "1".to_owned()));
    }
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let target = format!("{path}?{}", query.join("&"));
    let form = work.form.output;
    let mut nodes = work.quorum.server.nodes();
    let request = ClientRequest { body, ..ClientRequest::of("POST", &target) };
    let answer = nodes.send(&request, RequestEffect::Read)?;
    if answer.status != 200 {
        return finish(answer, form);
    }
    let mut text = Vec::new();
    let read = answer.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut text);
    let unreachable = |cause| Unreachable { url: nodes.current().to_string(), cause };
    read.map_err(unreachable)?;
    if text.len() as u64 > ANSWER_BYTES_MAX {
        bail!("the answer is longer than any of a kvorum node");
    }
    let text = match form {
        OutputForm::Json => text,
        OutputForm::Text => to_text(&text).map_err(|error| unreachable(error.into()))?.into_bytes(),
    };
    print(nodes.current(), |out| out.write_all(&text))
}

/// A query or a script: from a file, or from stdin.
fn read(file: Option<&OsStr>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    match file {
        None if io::stdin().is_terminal() => bail!("nothing to ask: give a file, or `-` for stdin"),
        Some(path) if path != OsStr::new("-") => {
            let file = File::open(path).with_context(|| Path::new(path).display().to_string())?;
            file.take(SOURCE_BYTES_MAX + 1).read_to_end(&mut text)
        }
        _ => io::stdin().lock().take(SOURCE_BYTES_MAX + 1).read_to_end(&mut text),
    }
    .context("what to ask")?;
    if text.len() as u64 > SOURCE_BYTES_MAX {
        bail!("it is longer than 64 KiB, which is the most that a node takes");
    }
    Ok(text)
}
