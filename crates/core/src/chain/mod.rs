//! The chain of layouts: one value for each epoch, decided by the members that the value before it names.
//!
//! Each epoch is one instance of single-decree Paxos (Lamport, "Paxos Made Simple", 2001, section 2). Its acceptors are
//! the [voters](ChainValue::voters) of the epoch before it, as in "Reconfiguring a State Machine" (Lamport, Malkhi and
//! Zhou, 2010) with α = 1: there is no leader and no log, and a majority of the members decides everything. A node keeps
//! the newest value that it knows to be chosen, and what it has promised and accepted for the one that follows.
//!
//! - [`layout`](crate::layout) is what is decided.
//! - [`acceptor`] is a member's part. **What it has changed must be durable before its answer leaves.**
//! - [`proposal`] is one attempt of a proposer. It ends within the deadline of requests between nodes.
//! - [`recovery`] gives a member back its vote that has lost its directory.
//! - `rules.rs` has the rules, each with the defect that a test plants in its place.
//!
//! None of them sends anything or knows the time. `tests/chain.rs` tries every order of their messages.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::node::{DirectoryId, NodeId};

pub mod acceptor;
pub mod proposal;
pub mod recovery;
mod rules;

/// The number of an attempt: greater ones win. Two attempts never have the same, because a directory promises its own
/// durably before it uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ballot {
    /// Comes first in their order. Every attempt has at least 1.
    pub counter: u64,
    /// Whose attempt it is.
    pub directory: DirectoryId,
}

impl Ballot {
    /// Below those of all attempts.
    pub const NONE: Self = Self { counter: 0, directory: DirectoryId(0) };
}

/// Whose answer counts for the epoch that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voter {
    /// The node.
    pub member: NodeId,
    /// The directory that it votes with. `None` is any: before the first epoch nobody knows directories.
    pub directory: Option<DirectoryId>,
}

/// What an epoch is.
pub trait ChainValue: Clone {
    /// Its number.
    fn epoch(&self) -> u64;

    /// Two values of one epoch have different digests.
    fn digest(&self) -> u64;

    /// The digest of the value that it follows.
    fn parent(&self) -> u64;

    /// Who decides the epoch that follows; none twice.
    fn voters(&self) -> impl Iterator<Item = Voter>;

    /// Whether the change from this one to `next`, which names this one as its parent, is one that the protocol knows.
    fn may_be_followed_by(&self, next: &Self) -> bool;
}

/// What a node asks another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChainRequest<V> {
    /// The newest value that is chosen, if that is of a later epoch than `have`.
    Get {
        /// The epoch that the asker knows.
        have: u64,
    },
    /// To promise a ballot of the epoch that follows `parent`. Who does not know `parent` yet learns it by this.
    Prepare {
        /// The attempt.
        ballot: Ballot,
        /// The value that was chosen for the epoch before.
        parent: V,
    },
    /// To accept a value.
    Accept {
        /// The attempt.
        ballot: Ballot,
        /// It.
        value: V,
    },
    /// A value that is chosen.
    Learn {
        /// It.
        value: V,
    },
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChainAnswer<V> {
    /// A later epoch is chosen than was asked about: its value.
    Chosen(V),
    /// It knows no later epoch than the asker.
    Known,
    /// It accepts nothing below the ballot any more. What it had accepted, and at which ballot.
    Promised(Option<(Ballot, V)>),
    /// It has accepted the value.
    Accepted,
    /// It has promised this ballot, which is greater.
    Refused(Ballot),
    /// It does not know the value's parent. The epoch that it knows.
    Behind(u64),
    /// The value does not follow the one that is chosen.
    NotNext,
    /// It does not vote: the epoch names another directory of it, or does not name it.
    NoVoter,
}

/// As bytes, for a frame or a file.
#[must_use]
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("plain values can be written")
}

/// What [`encode`] has made bytes of; none if they are something else. Nothing is allocated for a length that the bytes
/// do not have.
#[must_use]
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// The least number of so many of which any two such sets have one in common.
fn majority(of: usize) -> usize {
    of / 2 + 1
}
