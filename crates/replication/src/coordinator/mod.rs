//! The coordinator: takes a client's request, asks the key's replicas, answers at the `ack`-th of `from`.
//!
//! [`Coordinator`] is what `http` calls; [`operations`] holds the requests under way and drives the state machines of
//! `kvorum_core::quorum`; [`hedge`] decides when a read asks more replicas, `timers` sees to it, and to deadlines;
//! `slow_start` decides which to ask last; `repair` sends what was read to replicas that are behind.
//!
//! Cancel safety: dropping one of the futures gives up the *answer*. A write that was sent goes on, and may take
//! effect; a read is dropped.

pub mod api;
pub mod batch;
pub mod fan_out;
pub mod hedge;
pub mod hot;
pub mod metrics;
mod operation;
pub mod operations;
mod repair;
mod repair_budget;
mod replica_selection;
mod responses;
pub mod slow;
mod slow_start;
mod space_saving;
mod timers;
mod timestamp;

#[cfg(test)]
pub(crate) mod tests;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

pub use api::{NewValue, ReadResult, Receipt, Refused, ReplicaReceipt, WithReceipt, WriteResult};
pub use fan_out::FanOut;
use kvorum_base::waits;
use kvorum_core::backpressure::Backpressure;
use kvorum_core::node::NodeId;
use kvorum_core::quorum::{Failure, Quorum, ReadAnswer, StoreAnswer};
use kvorum_core::{Hlc, Key, Record, Version};
pub use operation::Outcome;
pub use operations::CoordinatorParts;
use operations::Operations;
pub use responses::failure_name;
pub use space_saving::HotKey;

/// The coordinator of one shard.
#[derive(Clone)]
pub struct Coordinator {
    pub(crate) operations: Rc<Operations>,
}

impl Coordinator {
    /// Nothing is under way yet.
    #[must_use]
    pub fn new(parts: CoordinatorParts) -> Self {
        Self { operations: Operations::new(parts) }
    }

    /// Requests under way, answered or not.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.operations.under_way()
    }

    /// Hedges reads, and ends what is past its deadline. Runs until it is dropped.
    pub(crate) async fn run_timers(self) {
        timers::run(self.operations).await;
    }

    /// Publishes the window of hot keys if it has ended; to be called about once a second.
    pub fn publish_hot(&self) {
        self.operations.publish_hot();
    }

    /// The shard stops: drops all requests, so that hints of their pending stores are kept.
    pub fn end(&self) {
        self.operations.end();
    }

    /// A replica's answer to a store, and its clock.
    #[inline]
    pub(crate) fn on_stored(&self, node: NodeId, id: u64, answer: StoreAnswer, clock: Hlc) {
        self.operations.on_stored(node, id, answer, clock);
    }

    /// A peer's answer to a read, and its clock.
    #[inline]
    pub(crate) fn on_read(&self, node: NodeId, id: u64, answer: ReadAnswer<Bytes>, clock: Hlc) {
        self.operations.on_read(node, id, answer, clock);
    }

    /// This node's answer to a read that needed the disk.
    pub(crate) fn on_held(&self, id: u64, answer: ReadAnswer<Record>) {
        self.operations.on_held(id, answer);
    }

    /// There is a connection to `node` again: it is asked less than others at first.
    pub(crate) fn on_connected(&self, node: NodeId) {
        self.operations.note_return(node);
    }

    /// The connection to `node` ended: everything that waits on it fails.
    pub(crate) fn on_disconnected(&self, node: NodeId) {
        self.operations.fail_all(node);
    }

    /// Has the clock's reading of now survive a restart.
    ///
    /// # Errors
    /// Why it would not.
    pub(crate) async fn make_clock_durable(&self) -> Result<(), Failure> {
        self.operations.make_clock_durable().await
    }

    /// Replaces what this node holds damaged by what a quorum answered.
    pub(crate) fn repair_own(&self, key: &Key, record: &Record) {
        self.operations.repair_own(key, record);
    }

    /// Stores a value.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn put(
        &self,
        key: Key,
        quorum: Quorum,
        value: NewValue<'_>,
        receipt: WithReceipt,
    ) -> Result<WriteResult, Refused> {
        let (version, came) = self.admit_and_timestamp(&key, quorum, value.body.value_bytes()).await?;
        let record = value.into_record(&key, version, quorum);
        self.write(key, quorum, record, receipt, came).await
    }

    /// Stores a deletion.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn delete(&self, key: Key, quorum: Quorum, receipt: WithReceipt) -> Result<WriteResult, Refused> {
        let (version, came) = self.admit_and_timestamp(&key, quorum, 0).await?;
        let record = Record::tombstone(&key, version, quorum.replicas());
        self.write(key, quorum, record, receipt, came).await
    }

    /// Reads the newest version.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn get(&self, key: Key, quorum: Quorum, receipt: WithReceipt) -> Result<ReadResult, Refused> {
        let came = self.admit().await?;
        let id = self.operations.begin_read(key, quorum, receipt, came);
        match self.operations.outcome(id).await? {
            Outcome::Found(found) => Ok(found),
            Outcome::Written(_) => unreachable!("a read is not a write"),
        }
    }

    async fn write(
        &self,
        key: Key,
        quorum: Quorum,
        record: Record,
        receipt: WithReceipt,
        came: Option<Duration>,
    ) -> Result<WriteResult, Refused> {
        let id = self.operations.begin_write(key, quorum, record, receipt, came);
        match self.operations.outcome(id).await? {
            Outcome::Written(written) => Ok(written),
            Outcome::Found(_) => unreachable!("a write is not a read"),
        }
    }

    /// Lets a request in: where its cluster is just coming up, once that is there, within the deadline. When it came,
    /// if it has waited: there is one deadline.
    async fn admit(&self) -> Result<Option<Duration>, Refused> {
        let membership = &self.operations.membership;
        if membership.is_fenced() {
            return Err(Refused::Fenced);
        }
        if membership.is_serving() {
            return Ok(None);
        }
        let came = self.operations.clock.boot();
        let serving = tokio::time::timeout(self.operations.deadline, membership.until_serving());
        // Boxed: few requests come here, and all of them would be larger. What it came to is asked below.
        let _ = Box::pin(waits::queue("cluster", serving)).await;
        match (membership.is_serving(), membership.is_fenced()) {
            (true, false) => Ok(Some(came)),
            (true, true) => Err(Refused::Fenced),
            (false, _) => Err(Refused::NotServing),
        }
    }

    /// Admits a write and timestamps it. With its version, when it came if it has waited.
    async fn admit_and_timestamp(
        &self,
        key: &Key,
        quorum: Quorum,
        bytes: usize,
    ) -> Result<(Version, Option<Duration>), Refused> {
        let mut came = self.admit().await?;
        let delay = self.give_way(key, quorum, bytes)?;
        if !delay.is_zero() {
            came = came.or_else(|| Some(self.operations.clock.boot()));
            // Boxed: seldom, and all requests would be larger.
            let _delayed = Delayed::new(&self.operations.delayed);
            Box::pin(waits::queue("debt", tokio::time::sleep(delay))).await;
        }
        let version = self.timestamp(key, quorum).await?;
        Ok((version, came))
    }

    /// Timestamps a write that is let in, without a question to its replicas first.
    async fn timestamp(&self, key: &Key, quorum: Quorum) -> Result<Version, Refused> {
        let version = self.operations.timestamp(Hlc::ZERO).await.map_err(|failure| match failure {
            Failure::Overloaded => Refused::Overloaded,
            Failure::ClockSkew => Refused::Fenced,
            Failure::DiskFull
            | Failure::Disk
            | Failure::Corrupt
            | Failure::Unreachable
            | Failure::Timeout
            | Failure::Rebuilding
            | Failure::NotServing
            | Failure::Epoch => Refused::CannotWrite,
        })?;
        // It may have space again: a write shows it.
        if self.operations.replica.disk_refuses() && self.needs_own(key, quorum) {
            match self.operations.raise_bound(self.operations.clock.past_bound()).await {
                Ok(()) => {}
                Err(Failure::Overloaded) => return Err(Refused::Overloaded),
                Err(_) => return Err(Refused::CannotWrite),
            }
        }
        Ok(version)
    }

    /// For how long a write of so many bytes waits so that its replicas' stores can pay their debt. Refuses as many as
    /// they request.
    fn give_way(&self, key: &Key, quorum: Quorum, bytes: usize) -> Result<Duration, Refused> {
        let operations = &self.operations;
        let (membership, layout) = (&operations.membership, operations.layout.pin());
        let replicas = layout.preference_list(key.hash().partition()).iter().take(usize::from(quorum.replicas()));
        let asked = replicas.filter_map(|node| match operations.peers.get(*node) {
            _ if *node == membership.own() => Some(membership.own_state().backpressure()),
            peer => peer.filter(|peer| peer.is_up()).map(|peer| peer.state().backpressure()),
        });
        let asked = Backpressure::met_by(quorum, asked);
        if asked == Backpressure::NONE {
            return Ok(Duration::ZERO);
        }
        if operations.admission.borrow_mut().refuses(asked, operations.delayed.get()) {
            operations.metrics.refused_behind.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Behind);
        }
        operations.metrics.delayed_behind.fetch_add(1, Ordering::Relaxed);
        Ok(asked.delay(bytes))
    }

    /// Whether a write cannot succeed without this node's own disk: then nothing is sent.
    fn needs_own(&self, key: &Key, quorum: Quorum) -> bool {
        let (membership, layout) = (&self.operations.membership, self.operations.layout.pin());
        let replicas = layout.preference_list(key.hash().partition());
        quorum.required() == quorum.replicas()
            && replicas.iter().take(usize::from(quorum.replicas())).any(|node| *node == membership.own())
    }
}

/// Counts a write while it is delayed, also where its client goes away.
struct Delayed<'a>(&'a Cell<usize>);

impl<'a> Delayed<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Delayed<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
