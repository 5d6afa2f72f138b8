//! What the commit thread is asked to do, and what became of it.

use bytes::Bytes;
use kvorum_core::key::{Key, KeyHash};
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::{Failure, StoreAnswer};
use kvorum_core::version::{Hlc, Version};

/// Where an answer goes: a shard, and what it calls the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionToken {
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
    /// The layout by which it is sent.
    pub epoch: u64,
    /// Which to answer.
    pub token: CompletionToken,
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
pub enum Prefetch {
    /// It was read so many times.
    Ahead(u8),
    /// There was no time for it.
    Refused,
}

/// One thing for the commit thread to do.
#[derive(Debug)]
pub enum Work {
    /// Store a record, if the rules allow it.
    Store(Submission),
    /// Store a record whose lookup needed the disk: not for shards, but for the reader of what
    /// [`Committer::take_cold`](super::Committer::take_cold) gives.
    Retry {
        /// The record.
        submission: Submission,
        /// What was done to bring it into the cache.
        reads: Prefetch,
    },
    /// Make it durable that timestamps up to `to` may be given.
    RaiseBound {
        /// The greatest timestamp needed.
        to: Hlc,
        /// Which to answer.
        token: CompletionToken,
    },
    /// Make a promise durable, and keep it from then on.
    MakeDurable {
        /// What.
        promise: Promise,
        /// Which to answer.
        token: CompletionToken,
    },
}

/// What anti-entropy has found out or asks for, and what a step of the layout does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promise {
    /// No client's write and no hint is accepted up to the last version of this reading.
    Fence(Hlc),
    /// These partitions are proven converged up to the last version of this reading.
    GcWatermarks(PartitionSet, Hlc),
    /// Nothing that was asked by an older layout than this is done or answered any more.
    Bar(u64),
}

impl Work {
    /// What it counts against the queue's bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Store(submission) | Self::Retry { submission, .. } => submission.bytes(),
            Self::RaiseBound { .. } | Self::MakeDurable { .. } => 0,
        }
    }

    /// Of the key, where it is about one.
    #[must_use]
    pub fn hash(&self) -> Option<KeyHash> {
        match self {
            Self::Store(submission) | Self::Retry { submission, .. } => Some(submission.hash),
            Self::RaiseBound { .. } | Self::MakeDurable { .. } => None,
        }
    }

    /// Which to answer.
    #[must_use]
    pub fn token(&self) -> CompletionToken {
        match self {
            Self::Store(submission) | Self::Retry { submission, .. } => submission.token,
            Self::RaiseBound { token, .. } | Self::MakeDurable { token, .. } => *token,
        }
    }

    /// What to answer where it was not done.
    #[must_use]
    pub fn refuse(&self, failure: Failure) -> Completion {
        match self {
            Self::Store(submission) | Self::Retry { submission, .. } => {
                Completion::Stored { token: submission.token, answer: StoreAnswer::Failed(failure) }
            }
            Self::RaiseBound { token, .. } => Completion::Raised { token: *token, bound: Err(failure) },
            Self::MakeDurable { token, .. } => Completion::MadeDurable { token: *token, result: Err(failure) },
        }
    }
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The answer to a [`Work::Store`].
    Stored {
        /// Whose.
        token: CompletionToken,
        /// What the replica answers.
        answer: StoreAnswer,
    },
    /// The answer to a [`Work::RaiseBound`].
    Raised {
        /// Whose.
        token: CompletionToken,
        /// The durable bound, at least what was asked for.
        bound: Result<Hlc, Failure>,
    },
    /// The answer to a [`Work::MakeDurable`].
    MadeDurable {
        /// Whose.
        token: CompletionToken,
        /// Whether it is durable.
        result: Result<(), Failure>,
    },
}

impl Completion {
    /// Which to answer.
    #[must_use]
    pub fn token(&self) -> CompletionToken {
        match self {
            Self::Stored { token, .. } | Self::Raised { token, .. } | Self::MadeDurable { token, .. } => *token,
        }
    }
}

/// Takes answers back to the shards.
pub trait Sink: Send {
    /// Takes everything out of `done`, all of it `shard`'s: one call per shard and batch. Must not block.
    fn deliver(&mut self, shard: u16, done: &mut Vec<Completion>);
}
