//! The coordinator: takes a client's request, asks the key's replicas, answers at the `ack`-th of `from`.
//!
//! [`Coordinator`] is what `http` calls; [`operations`] holds the requests under way and does what the
//! state machines of `kvorum_core::quorum` say; [`hedge`] decides when a read asks more replicas.
//!
//! Cancel safety: dropping one of the futures gives up the *answer*. A write that was sent goes on, and
//! may take effect; a read is forgotten.

mod handle;
pub mod hedge;
pub mod operations;

pub use handle::failure_name;

use std::rc::Rc;

use kvorum_core::quorum::{Acks, Failure};
use kvorum_core::{Hlc, Key, Record, Version};

use crate::large_values::Body;
use crate::shard::{Asker, Shard};
use operations::Outcome;

/// How often a stamp that passes the clock's bound is tried again.
const STAMP_ATTEMPTS: usize = 3;

/// One replica's part in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaReceipt {
    /// The replica's URL.
    pub node: Rc<str>,
    /// What it answered: `accepted`, `stale`, `unreachable`, …
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

/// A write that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its version.
    pub version: Version,
    /// If it was asked for.
    pub receipt: Option<Receipt>,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The newest record: a value, a tombstone, or expired.
    Record(Record),
    /// Nothing.
    Absent {
        /// A deletion of everything up to here.
        floor: Version,
    },
}

/// A read that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it found.
    pub value: Looked,
    /// If it was asked for.
    pub receipt: Option<Receipt>,
}

/// Why a request was refused. All but the last were sent to nobody and had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A queue is full.
    Overloaded,
    /// The node is stopping.
    Draining,
    /// The disk refuses.
    CannotWrite,
    /// The clock is too far from most peers'.
    Fenced,
    /// The directory is new and too few peers have been met.
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

/// The coordinator of one shard.
pub struct Coordinator {
    shard: Rc<Shard>,
}

impl Coordinator {
    /// Coordinates on `shard`.
    #[must_use]
    pub fn new(shard: Rc<Shard>) -> Self {
        Self { shard }
    }

    /// Stores a value.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn put(
        &self,
        key: Key,
        acks: Acks,
        content_type: Option<&[u8]>,
        value: Body,
        trace: bool,
    ) -> Result<Written, Refused> {
        let version = self.begin_write(acks).await?;
        let record = value.into_record(|value| Record::value(&key, version, acks.from(), content_type, value));
        self.write(key, acks, record, trace).await
    }

    /// Stores a deletion.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn delete(&self, key: Key, acks: Acks, trace: bool) -> Result<Written, Refused> {
        let version = self.begin_write(acks).await?;
        let record = Record::tombstone(&key, version, acks.from());
        self.write(key, acks, record, trace).await
    }

    /// Reads the newest version.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn get(&self, key: Key, acks: Acks, trace: bool) -> Result<Found, Refused> {
        self.admit()?;
        let id = self.shard.operations.begin_read(&self.shard, key, acks, trace);
        match self.shard.operations.outcome(id).await? {
            Outcome::Found(found) => Ok(found),
            Outcome::Written(_) => unreachable!("a read is not a write"),
        }
    }

    async fn write(&self, key: Key, acks: Acks, record: Record, trace: bool) -> Result<Written, Refused> {
        let id = self.shard.operations.begin_write(&self.shard, key, acks, record, trace);
        match self.shard.operations.outcome(id).await? {
            Outcome::Written(written) => Ok(written),
            Outcome::Found(_) => unreachable!("a write is not a read"),
        }
    }

    fn admit(&self) -> Result<(), Refused> {
        if self.shard.membership.is_draining() {
            return Err(Refused::Draining);
        }
        if self.shard.membership.is_fenced() {
            return Err(Refused::Fenced);
        }
        if self.shard.membership.abstains() == Some(Failure::NotServing) {
            return Err(Refused::NotServing);
        }
        Ok(())
    }

    /// Admits a write and stamps it, without asking anybody first.
    async fn begin_write(&self, acks: Acks) -> Result<Version, Refused> {
        self.admit()?;
        // Without this node's own disk the others must suffice; where they cannot, nobody is bothered.
        if acks.from() == 1 && self.shard.peers.len() == 1 && self.shard.replica.disk_refuses() {
            return Err(Refused::CannotWrite);
        }
        let hlc = stamp(&self.shard, Hlc::ZERO).await.map_err(|failure| match failure {
            Failure::Overloaded => Refused::Overloaded,
            _ => Refused::CannotWrite,
        })?;
        Ok(Version { hlc, incarnation: self.shard.membership.incarnation() })
    }
}

/// Stamps above `above`, raising the durable bound first if it must be. Cancel safe.
///
/// # Errors
/// Why the bound could not be raised.
pub(crate) async fn stamp(shard: &Rc<Shard>, above: Hlc) -> Result<Hlc, Failure> {
    for _ in 0..STAMP_ATTEMPTS {
        let past = match shard.clock.stamp(above) {
            Ok(hlc) => return Ok(hlc),
            Err(past) => past,
        };
        let (send, receive) = tokio::sync::oneshot::channel();
        shard.replica.raise_bound(past.needed, Asker::Bound(send)).map_err(|_| Failure::Overloaded)?;
        receive.await.map_err(|_| Failure::NotServing)??;
    }
    Err(Failure::Overloaded)
}
