//! What clients asked and were answered, in the order in which it happened.

use std::fmt;
use std::time::Duration;

use kvorum_core::quorum::Quorum;
use kvorum_core::{Key, Record, Version};

/// What a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAction {
    /// To store the value with this number, which no other write has.
    Put(u64),
    /// The same, of a value that lives for so many seconds.
    PutFor(u64, u32),
    /// To delete.
    Delete,
    /// To read.
    Get,
}

/// A request's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOutcome {
    /// Stored or deleted, with this version.
    Written(Version),
    /// Read: this value of this version, or that there is none.
    Found(Option<(u64, Version)>),
    /// Read: there was this value of this version, and it has ended.
    Ended(u64, Version),
    /// Refused, with the promise that nothing was sent.
    Refused,
    /// Nothing, or that too few replicas answered: a write may take effect at any later time, or never.
    Unknown,
}

/// The number and version of a value, unless it is a deletion.
pub(crate) fn value_of(record: &Record) -> Option<(u64, Version)> {
    if record.is_tombstone() {
        return None;
    }
    let payload = record.payload();
    let text = std::str::from_utf8(&payload).expect("only such values were written");
    let value = text.split(' ').next().and_then(|number| number.parse().ok());
    Some((value.expect("only such values were written"), record.version()))
}

/// One request.
#[derive(Clone, Debug)]
pub struct RecordedOperation {
    /// Through which node.
    pub node: usize,
    /// About the key with this number.
    pub key: usize,
    /// With these numbers of replicas.
    pub quorum: Quorum,
    /// What it requested.
    pub action: ClientAction,
    /// Its place among all begins and ends.
    pub begin: u64,
    /// That of its end; none while it is under way.
    pub end: Option<u64>,
    /// When it began.
    pub began_at: Duration,
    /// Its answer; [`ClientOutcome::Unknown`] until then.
    pub outcome: ClientOutcome,
}

/// All requests of a run.
#[derive(Debug, Default)]
pub struct History {
    /// In the order of their begins.
    pub operations: Vec<RecordedOperation>,
    events: u64,
}

impl History {
    /// A request begins; its number.
    pub fn begin(&mut self, node: usize, key: usize, quorum: Quorum, action: ClientAction, now: Duration) -> usize {
        self.events += 1;
        let outcome = ClientOutcome::Unknown;
        let begin = self.events;
        self.operations.push(RecordedOperation { node, key, quorum, action, begin, end: None, began_at: now, outcome });
        self.operations.len() - 1
    }

    /// It ends.
    pub fn end(&mut self, number: usize, outcome: ClientOutcome) {
        self.events += 1;
        let operation = &mut self.operations[number];
        operation.end = Some(self.events);
        operation.outcome = outcome;
    }

    /// The requests about one key.
    pub fn of_key(&self, key: usize) -> impl Iterator<Item = &RecordedOperation> {
        self.operations.iter().filter(move |operation| operation.key == key)
    }
}

impl fmt::Display for RecordedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, quorum, action, begin, end, began_at, outcome, .. } = self;
        let end = end.map_or_else(|| "-".to_owned(), |end| end.to_string());
        let (ack, from) = (quorum.required(), quorum.replicas());
        write!(
            f,
            "{:>8.3} {begin:>5}..{end:<5} node {node} {ack}/{from} {action:?}: {outcome:?}",
            began_at.as_secs_f64()
        )
    }
}

/// A key by its number. Odd names, so that they lie in different partitions.
#[must_use]
pub fn key(seed: u64, number: usize) -> Key {
    Key::new(format!("key {number} of {seed}").into()).expect("it is short")
}
