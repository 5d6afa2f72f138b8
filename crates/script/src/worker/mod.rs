//! The worker: a process for one script and one task.
//!
//! It locks itself in ([`confine`]), loads the script, answers each record as soon as `map` has returned, and ends. It
//! answers one by one, so that a limit that kills it is the error of the record that met it.

mod confine;
mod json;
mod message;
mod script;

use std::io::{self, BufReader, Read, Write};
use std::process::ExitCode;

use crate::limits::shortened;
use crate::wire::{Label, ScriptRecord, read_frame, write_frame};

use script::Script;

/// What `kvorum script-worker` does: reads a task from stdin, answers on stdout.
#[must_use]
pub fn worker_main() -> ExitCode {
    let mut stdout = Stdout;
    if let Err(error) = confine::confine() {
        let message = format!("it could not lock itself in: {error}");
        let _unread = write_frame(&mut stdout, Label::Unconfined, message.as_bytes());
        return ExitCode::FAILURE;
    }
    let mut stdin = BufReader::with_capacity(64 * 1024, io::stdin().lock());
    // Without a node that sends and reads there is nothing to say, and nobody to tell.
    answer(&mut stdin, &mut stdout).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

/// Stdout without the buffer and the search for ends of lines that std's has.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(io::stdout(), bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut body = Vec::new();
    let task = read_frame(from, &mut body)?;
    let mut script = match Script::load(&body) {
        Ok(script) => script,
        Err(message) => return refuse(to, message),
    };
    write_frame(to, Label::Ready, b"")?;
    let answered = match task {
        Label::Check => Ok(()),
        Label::Map => map(&script, from, to)?,
        Label::Finish => finish(&mut script, from, to)?,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    match answered {
        Ok(()) => write_frame(to, Label::Done, b""),
        Err(message) => refuse(to, message),
    }
}

fn refuse(to: &mut impl Write, message: String) -> io::Result<()> {
    write_frame(to, Label::Refused, shortened(message).as_bytes())
}

fn map(script: &Script, from: &mut impl Read, to: &mut impl Write) -> io::Result<Result<(), String>> {
    let mut body = Vec::new();
    while read_frame(from, &mut body)? == Label::Record {
        let record = ScriptRecord::decode(&body).ok_or(io::ErrorKind::InvalidData)?;
        match script.map(&record) {
            Ok(pairs) => write_frame(to, Label::Pairs, &pairs)?,
            Err(message) => write_frame(to, Label::Failed, message.as_bytes())?,
        }
    }
    Ok(Ok(()))
}

fn finish(script: &mut Script, from: &mut impl Read, to: &mut impl Write) -> io::Result<Result<(), String>> {
    let mut body = Vec::new();
    while read_frame(from, &mut body)? == Label::Pairs {
        if let Err(message) = script.add(&body) {
            return Ok(Err(message));
        }
    }
    match script.finish() {
        Ok(pairs) => write_frame(to, Label::Pairs, &pairs).map(Ok),
        Err(message) => Ok(Err(message)),
    }
}
