//! Serves a client's request by asking its key's replicas.

use std::rc::Rc;

use kvorum_core::quorum::Acks;
use kvorum_core::{Key, Record, Version};

/// A write that is done.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its version.
    pub version: Version,
    /// What each replica said, if it was asked for.
    pub receipt: Option<Receipt>,
}

/// A read that is done.
#[derive(Clone, Debug)]
pub struct Found {
    /// The newest.
    pub value: Looked,
    /// What each replica said, if it was asked for.
    pub receipt: Option<Receipt>,
}

/// What a read saw.
#[derive(Clone, Debug)]
pub enum Looked {
    /// A record, perhaps a tombstone or expired.
    Record(Record),
    /// Nothing.
    Absent {
        /// Deleted up to here.
        floor: Version,
    },
}

/// Why a request was not served.
#[derive(Clone, Debug)]
pub enum Refused {
    /// A queue is full.
    Overloaded,
    /// The node stops.
    Draining,
    /// Its disk refuses.
    CannotWrite,
    /// Its clock is off.
    Fenced,
    /// It is starting.
    NotServing,
    /// Fewer than required answered.
    NotEnough {
        /// Answers required.
        required: u8,
        /// Answers that came.
        acked: u8,
        /// What each replica said.
        receipt: Receipt,
    },
}

/// What each replica said.
#[derive(Clone, Debug, Default)]
pub struct Receipt {
    /// In order of preference.
    pub replicas: Vec<ReplicaReceipt>,
}

/// What one replica said.
#[derive(Clone, Debug)]
pub struct ReplicaReceipt {
    /// Its URL.
    pub node: Rc<str>,
    /// One word.
    pub outcome: &'static str,
    /// What it holds.
    pub version: Option<Version>,
    /// After how long.
    pub micros: Option<u32>,
}

/// The shape alone.
#[derive(Debug)]
pub struct Coordinator;

#[allow(clippy::unused_async, missing_docs, clippy::missing_errors_doc)]
impl Coordinator {
    pub async fn put(&self, _: Key, _: Acks, _: Option<&[u8]>, _: &[u8], _: bool) -> Result<Written, Refused> {
        Err(Refused::NotServing)
    }
    pub async fn delete(&self, _: Key, _: Acks, _: bool) -> Result<Written, Refused> {
        Err(Refused::NotServing)
    }
    pub async fn get(&self, _: Key, _: Acks, _: bool) -> Result<Found, Refused> {
        Err(Refused::NotServing)
    }
}
