//! What a coordinator answers.

use std::rc::Rc;

use kvorum_base::value_memory::Body;
use kvorum_core::quorum::{Expiry, Held};
use kvorum_core::{Record, Version};

/// One replica's part in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaReceipt {
    /// The replica's URL.
    pub node: Rc<str>,
    /// What it answered last: `accepted`, `stale`, `record`, `written-back`, `unreachable`, …
    pub outcome: &'static str,
    /// The version that it accepted or holds.
    pub version: Option<Version>,
    /// Time until its answer.
    pub micros: Option<u32>,
}

/// What each of the `from` replicas did, in the order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// One entry for each replica.
    pub replicas: Vec<ReplicaReceipt>,
}

/// What a PUT stores.
#[derive(Debug)]
pub struct NewValue<'a> {
    /// The value.
    pub body: Body,
    /// Stored with it.
    pub content_type: Option<&'a [u8]>,
    /// For how many seconds from its first timestamp it lives; without end if not given.
    pub ttl_s: Option<u32>,
}

/// A write that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteResult {
    /// Its version.
    pub version: Version,
    /// When its value ends, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// If it was asked for.
    pub receipt: Option<Receipt>,
}

/// Whether the client gets a receipt: what each replica answered, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithReceipt {
    /// It does.
    Yes,
    /// It does not: nothing is noted.
    No,
}

/// A read that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadResult {
    /// What it found.
    pub value: Held<Record>,
    /// Whether the record's value has ended.
    pub expiry: Expiry,
    /// If it was asked for.
    pub receipt: Option<Receipt>,
}

/// Why a request was refused. Only the last may have had an effect. Of the others, only a read can have been sent to
/// replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A queue is full.
    Overloaded,
    /// The stores of too many of the replicas have too much debt.
    Behind,
    /// The disk refuses, and the other replicas cannot be enough.
    CannotWrite,
    /// The clock is too far from most peers', or ahead of the wall clock.
    Fenced,
    /// The directory is new, and too few peers have registered it within the deadline.
    NotServing,
    /// Fewer replicas than required answered before the deadline; a write may still take effect.
    NotEnough {
        /// Answers required.
        required: u8,
        /// Answers that counted.
        acked: u8,
        /// What each replica did.
        receipt: Receipt,
    },
}
