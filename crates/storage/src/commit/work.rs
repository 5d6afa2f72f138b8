//! What the commit thread is asked to do, and what became of it.

use bytes::Bytes;
use kvorum_core::key::{Key, KeyHash};
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::{Failure, StoreAnswer};
use kvorum_core::version::{Hlc, Version};

/// Where an answer goes: a shard, and what it calls the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The shard that asked.
    pub shard: u16,
    /// Its name for the request.
    pub id: u64,
}

/// A record to store. The caller has checked its digest.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The entity.
    pub key: Key,
    /// Its hash.
    pub hash: KeyHash,
    /// The record's version.
    pub version: Version,
    /// The encoded record.
    pub record: Bytes,
    /// Whether it is a reader's write-back or repair, and not a client's write or a hint of one.
    pub repair: bool,
    /// Whom to tell.
    pub ticket: Ticket,
}

impl Submission {
    /// What it counts against the queue's bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.key.as_bytes().len() + self.record.len()
    }
}

/// What was done to bring a record's current version into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// It was read so many times.
    Ahead(u8),
    /// Nobody had the time.
    Refused,
}

/// One thing for the commit thread to do.
#[derive(Debug)]
pub enum Work {
    /// Store a record, if the rules say so.
    Store(Submission),
    /// Store a record whose lookup needed the disk: not for shards, but for whoever reads what
    /// [`Committer::take_cold`](super::Committer::take_cold) gives.
    Again {
        /// The record.
        submission: Submission,
        /// What was done to bring it into the cache.
        reads: Reads,
    },
    /// Make it durable that stamps up to `to` may be given.
    RaiseBound {
        /// The greatest stamp wanted.
        to: Hlc,
        /// Whom to tell.
        ticket: Ticket,
    },
    /// Make a fact of anti-entropy durable, and heed it from then on.
    Heed {
        /// What.
        fact: Fact,
        /// Whom to tell.
        ticket: Ticket,
    },
}

/// What anti-entropy has found out, or asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// No client's write and no hint is accepted up to the last version of this reading.
    Fence(Hlc),
    /// These partitions are proven converged up to the last version of this reading.
    Floors(PartitionSet, Hlc),
}

impl Work {
    /// What it counts against the queue's bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Store(submission) | Self::Again { submission, .. } => submission.bytes(),
            Self::RaiseBound { .. } | Self::Heed { .. } => 0,
        }
    }

    /// Of the key, where it is about one.
    #[must_use]
    pub fn hash(&self) -> Option<KeyHash> {
        match self {
            Self::Store(submission) | Self::Again { submission, .. } => Some(submission.hash),
            Self::RaiseBound { .. } | Self::Heed { .. } => None,
        }
    }

    /// Whom to tell.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        match self {
            Self::Store(submission) | Self::Again { submission, .. } => submission.ticket,
            Self::RaiseBound { ticket, .. } | Self::Heed { ticket, .. } => *ticket,
        }
    }

    /// What to tell where it was not done.
    #[must_use]
    pub fn refuse(&self, failure: Failure) -> Done {
        match self {
            Self::Store(submission) | Self::Again { submission, .. } => {
                Done::Stored { ticket: submission.ticket, answer: StoreAnswer::Failed(failure) }
            }
            Self::RaiseBound { ticket, .. } => Done::Raised { ticket: *ticket, bound: Err(failure) },
            Self::Heed { ticket, .. } => Done::Heeded { ticket: *ticket, result: Err(failure) },
        }
    }
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The answer to a [`Work::Store`].
    Stored {
        /// Whose.
        ticket: Ticket,
        /// What the replica answers.
        answer: StoreAnswer,
    },
    /// The answer to a [`Work::RaiseBound`].
    Raised {
        /// Whose.
        ticket: Ticket,
        /// The durable bound, at least what was asked for.
        bound: Result<Hlc, Failure>,
    },
    /// The answer to a [`Work::Heed`].
    Heeded {
        /// Whose.
        ticket: Ticket,
        /// Whether it is durable.
        result: Result<(), Failure>,
    },
}

impl Done {
    /// Whom to tell.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        match self {
            Self::Stored { ticket, .. } | Self::Raised { ticket, .. } | Self::Heeded { ticket, .. } => *ticket,
        }
    }
}

/// Takes answers back to the shards.
pub trait Sink: Send {
    /// Takes everything out of `done`, all of it `shard`'s: one call per shard and batch. Must not block.
    fn deliver(&mut self, shard: u16, done: &mut Vec<Done>);
}
