//! The node's side of scripts: how many run at once, what they are given, and what became of it.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use crate::child::{Parting, WorkerProcess};
use crate::limits::{
    MESSAGE_BYTES_MAX, OUTPUT_BYTES_MAX, OVER_CPU, OVER_MEMORY, OVER_OUTPUT, OVER_WALL, SOURCE_BYTES_MAX,
    VALUE_BYTES_MAX, WAIT_MAX, WORKERS_MAX,
};
use crate::wire::{HEAD_BYTES, PipeFrames, PipeLabel, ScriptRecord, split_frame, split_pair};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// All workers are at work, and none became free in time: a `503`.
    #[error("all {WORKERS_MAX} workers for scripts are busy: try again later")]
    Busy,
    /// The script's fault, with the line where there is one: a `422`.
    #[error("{0}")]
    Script(String),
    /// The worker did not start, or something else ended it.
    #[error("no worker for scripts: {0}")]
    Unavailable(String),
}

/// One pair of a script's result.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptPair {
    /// A string, a number or a boolean.
    pub key: serde_json::Value,
    /// Anything.
    pub value: serde_json::Value,
}

/// Starts workers, at most [`WORKERS_MAX`] at once. All its calls block.
#[derive(Debug)]
pub struct ScriptWorkers {
    program: PathBuf,
    busy: Mutex<usize>,
    freed: Condvar,
}

/// A place among the workers at once.
struct WorkerPlace<'a>(&'a ScriptWorkers);

impl Drop for WorkerPlace<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.freed.notify_one();
    }
}

/// What a worker said before it ended.
#[derive(Debug, Default)]
struct Answers {
    /// The script was loaded.
    is_ready: bool,
    /// All was answered.
    is_done: bool,
    /// What came for each record, or the result.
    pairs: VecDeque<Result<Vec<u8>, String>>,
    refused: Option<WorkerError>,
}

impl Answers {
    fn parse(mut bytes: &[u8]) -> Self {
        let mut answers = Self::default();
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        while let Some((label, body)) = split_frame(&mut bytes) {
            match label {
                PipeLabel::Ready => answers.is_ready = true,
                PipeLabel::Pairs => answers.pairs.push_back(Ok(body.to_vec())),
                PipeLabel::Failed => answers.pairs.push_back(Err(text(body))),
                PipeLabel::Refused => answers.refused = Some(WorkerError::Script(text(body))),
                PipeLabel::Done => answers.is_done = true,
                PipeLabel::Unconfined => answers.refused = Some(WorkerError::Unavailable(text(body))),
                PipeLabel::Map
                | PipeLabel::Combine
                | PipeLabel::Finish
                | PipeLabel::Check
                | PipeLabel::Record
                | PipeLabel::End => break,
            }
        }
        answers
    }
}

/// The same of one that had loaded its script: a signal that its own work has raised would come again, so the script is
/// told. `SIGKILL` comes from outside.
fn cause_at_work(parting: Parting) -> WorkerError {
    let is_own = |signal: i32| signal != Signal::KILL.as_raw();
    match (cause_of_death(parting), parting) {
        (WorkerError::Unavailable(_), Parting::Ended(status)) if status.signal().is_some_and(is_own) => {
            WorkerError::Script("the script has ended its worker".to_owned())
        }
        (cause, _) => cause,
    }
}

/// What a worker that did not answer everything died of.
fn cause_of_death(parting: Parting) -> WorkerError {
    let status = match parting {
        Parting::Late => return WorkerError::Script(OVER_WALL.to_owned()),
        Parting::Flooded => return WorkerError::Unavailable("it wrote more than a worker writes".to_owned()),
        Parting::Ended(status) => status,
    };
    match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => WorkerError::Script(OVER_CPU.to_owned()),
        // What Rust does without memory. Lua has its own limit, and mostly meets that first.
        Some(signal) if signal == Signal::ABORT.as_raw() => WorkerError::Script(OVER_MEMORY.to_owned()),
        _ => WorkerError::Unavailable(format!("it ended with {status}")),
    }
}

impl ScriptWorkers {
    /// Workers that run `program script-worker`. A node gives `/proc/self/exe`: its own program, also after the file was
    /// replaced by a newer one.
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self { program, busy: Mutex::new(0), freed: Condvar::new() }
    }

    /// How many workers run.
    #[must_use]
    pub fn busy(&self) -> usize {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Result<WorkerPlace<'_>, WorkerError> {
        let waited = self.freed.wait_timeout_while(self.lock(), WAIT_MAX, |busy| *busy >= WORKERS_MAX);
        let (mut busy, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(WorkerError::Busy);
        }
        *busy += 1;
        drop(busy);
        Ok(WorkerPlace(self))
    }

    /// One worker from start to end. The thread that starts it is the one that waits: should the thread die, the kernel
    /// kills the worker.
    fn run(&self, frames: &PipeFrames<'_>, answers_max: usize) -> Result<(Answers, Parting), WorkerError> {
        // The worker keeps to its output, but for a message for everything, and what it says of each record behind that.
        let answer_bytes_max =
            OUTPUT_BYTES_MAX + 2 * MESSAGE_BYTES_MAX + (answers_max + 4) * (HEAD_BYTES + OVER_OUTPUT.len());
        let _place = self.enter()?;
        let unavailable = |error: std::io::Error| WorkerError::Unavailable(error.to_string());
        let process = WorkerProcess::start(&self.program).map_err(unavailable)?;
        let (bytes, parting) = process.converse(frames, answer_bytes_max).map_err(unavailable)?;
        let mut answers = Answers::parse(&bytes);
        match answers.refused.take() {
            Some(refused) => Err(refused),
            None if answers.is_ready => Ok((answers, parting)),
            None => Err(cause_of_death(parting)),
        }
    }

    /// Loads the script and nothing more.
    ///
    /// # Errors
    /// What is wrong with the script, or there is no worker.
    pub fn check(&self, source: &[u8]) -> Result<(), WorkerError> {
        let frames = begin(PipeLabel::Check, source)?;
        let (answers, parting) = self.run(&frames, 0)?;
        if answers.is_done { Ok(()) } else { Err(cause_at_work(parting)) }
    }

    /// What the script's `map` emitted for each record, encoded as [`ScriptWorkers::finish`] takes it and empty for
    /// nothing, or its error. An exceeded limit is the error of the record at work and of all behind it.
    ///
    /// # Errors
    /// The script does not load, or there is no worker.
    pub fn map(
        &self,
        source: &[u8],
        records: &[ScriptRecord<'_>],
    ) -> Result<Vec<Result<Vec<u8>, String>>, WorkerError> {
        let mut frames = begin(PipeLabel::Map, source)?;
        let fits = |record: &&ScriptRecord<'_>| record.value.len() <= VALUE_BYTES_MAX;
        records.iter().filter(fits).for_each(|record| frames.push_record(record));
        frames.push(PipeLabel::End, b"");
        let (mut answers, parting) = self.run(&frames, records.len())?;
        let rest = if answers.is_done {
            WorkerError::Unavailable("it left a record out".to_owned())
        } else {
            cause_at_work(parting)
        };
        let answer = |record: &ScriptRecord<'_>| match (fits(&record), &rest) {
            (false, _) => Ok(Err(format!("the value has over {} MiB: too large for a script", VALUE_BYTES_MAX >> 20))),
            (true, WorkerError::Script(message)) => {
                Ok(answers.pairs.pop_front().unwrap_or_else(|| Err(message.clone())))
            }
            (true, other) => answers.pairs.pop_front().ok_or_else(|| other.clone()),
        };
        records.iter().map(answer).collect()
    }

    /// What `map` emitted, combined as far as the script combines, encoded as it was.
    ///
    /// # Errors
    /// As [`ScriptWorkers::finish`].
    pub fn combine<E: AsRef<[u8]>>(&self, source: &[u8], emitted: &[E]) -> Result<Vec<u8>, WorkerError> {
        self.reduce(PipeLabel::Combine, source, emitted)
    }

    /// Combines and finishes what `map` emitted, given in the order of the records' keys.
    ///
    /// # Errors
    /// The script's, or there is no worker.
    pub fn finish<E: AsRef<[u8]>>(&self, source: &[u8], emitted: &[E]) -> Result<Vec<ScriptPair>, WorkerError> {
        decode_pairs(&self.reduce(PipeLabel::Finish, source, emitted)?)
    }

    fn reduce<E: AsRef<[u8]>>(&self, task: PipeLabel, source: &[u8], emitted: &[E]) -> Result<Vec<u8>, WorkerError> {
        let mut frames = begin(task, source)?;
        let some = emitted.iter().map(AsRef::as_ref).filter(|pairs| !pairs.is_empty());
        some.for_each(|pairs| frames.push(PipeLabel::Pairs, pairs));
        frames.push(PipeLabel::End, b"");
        let (mut answers, parting) = self.run(&frames, 1)?;
        match answers.pairs.pop_front() {
            Some(Ok(pairs)) if answers.is_done => Ok(pairs),
            _ => Err(cause_at_work(parting)),
        }
    }
}

fn begin(task: PipeLabel, source: &[u8]) -> Result<PipeFrames<'_>, WorkerError> {
    if source.len() > SOURCE_BYTES_MAX {
        let message = format!("the script has {} bytes: at most {SOURCE_BYTES_MAX} are taken", source.len());
        return Err(WorkerError::Script(message));
    }
    let mut frames = PipeFrames::default();
    frames.push(task, source);
    Ok(frames)
}

fn decode_pairs(mut bytes: &[u8]) -> Result<Vec<ScriptPair>, WorkerError> {
    let malformed = || WorkerError::Unavailable("its answer is malformed".to_owned());
    let mut pairs = Vec::new();
    while !bytes.is_empty() {
        let (key, value) = split_pair(&mut bytes).ok_or_else(malformed)?;
        let parse = |text| serde_json::from_slice(text).map_err(|_| malformed());
        pairs.push(ScriptPair { key: parse(key)?, value: parse(value)? });
    }
    Ok(pairs)
}
