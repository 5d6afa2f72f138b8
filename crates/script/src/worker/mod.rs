//! The worker: a process for one script and one task.
//!
//! It locks itself in ([`confine`]), loads the script, answers each record as soon as `map` has returned, and ends. It
//! answers one by one, so that a limit that kills it is the error of the record that met it.

mod confine;
mod json;
mod message;
mod outlet;
mod script;

use std::io::{self, BufReader, Read};
use std::process::ExitCode;
use std::sync::Arc;

use crate::limits::shortened;
use crate::wire::{PipeLabel, ScriptRecord, read_frame};

use outlet::Outlet;
use script::Script;

/// What `kvorum script-worker` does: reads a task from stdin, answers on stdout.
#[must_use]
pub fn worker_main() -> ExitCode {
    let to = Arc::new(Outlet::default());
    let answered = match confine::confine(&to) {
        Ok(()) => answer(&mut BufReader::with_capacity(64 * 1024, io::stdin().lock()), &to),
        Err(error) => to.say(PipeLabel::Unconfined, format!("it could not lock itself in: {error}").as_bytes()),
    };
    // Without a node that sends and reads there is nobody to tell.
    answered.and_then(|()| to.flush()).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn answer(from: &mut impl Read, to: &Outlet) -> io::Result<()> {
    let mut body = Vec::new();
    let task = read_frame(from, &mut body)?;
    let mut script = match Script::load(&body) {
        Ok(script) => script,
        Err(message) => return refuse(to, message),
    };
    to.say(PipeLabel::Ready, b"")?;
    match task {
        PipeLabel::Check => to.say(PipeLabel::Done, b""),
        PipeLabel::Map => map(&script, from, to),
        PipeLabel::Combine => reduce(&mut script, Script::combined, from, to),
        PipeLabel::Finish => reduce(&mut script, Script::finish, from, to),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn refuse(to: &Outlet, message: String) -> io::Result<()> {
    to.say(PipeLabel::Refused, shortened(message).as_bytes())
}

fn map(script: &Script, from: &mut impl Read, to: &Outlet) -> io::Result<()> {
    let mut body = Vec::new();
    while read_frame(from, &mut body)? == PipeLabel::Record {
        let record = ScriptRecord::decode(&body).ok_or(io::ErrorKind::InvalidData)?;
        match script.map(&record) {
            Ok(pairs) => to.say(PipeLabel::Pairs, &pairs)?,
            Err(message) => to.say(PipeLabel::Failed, message.as_bytes())?,
        }
    }
    to.say(PipeLabel::Done, b"")
}

/// Takes all pairs in, and answers with what `result` makes of them.
fn reduce(
    script: &mut Script,
    result: fn(&Script) -> Result<Vec<u8>, String>,
    from: &mut impl Read,
    to: &Outlet,
) -> io::Result<()> {
    let mut body = Vec::new();
    while read_frame(from, &mut body)? == PipeLabel::Pairs {
        if let Err(message) = script.add(&body) {
            return refuse(to, message);
        }
    }
    match result(script) {
        Ok(pairs) => to.say(PipeLabel::Pairs, &pairs).and_then(|()| to.say(PipeLabel::Done, b"")),
        Err(message) => refuse(to, message),
    }
}
