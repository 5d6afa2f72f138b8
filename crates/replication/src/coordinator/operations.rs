//! The requests that a shard coordinates, from their first message to their last answer.
//!
//! The state machines decide; this module carries out: it sends, finds the request that an answer
//! belongs to, keeps the deadline, and wakes the client's future. An answer that comes while others are
//! being handled (a replica on this very shard answers at once) waits its turn in `inbox`, so nothing here
//! recurses.
//!
//! A frame's id names the request's slot, its generation (a reused slot is another request) and the
//! *round*: which attempt of a write, or which write-back of a read, an answer is about.
//!
//! Bounds: admission (in `http`) bounds the requests that clients wait for; `lingering_max` bounds those
//! that have been answered and still wait for their last replicas.
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use kvorum_base::clock::Clock;
use kvorum_base::cpu_share::CpuShare;
use kvorum_base::outstanding::Outstanding;
use kvorum_base::value_memory::LargeValues;
use kvorum_core::backpressure::Admission;
use kvorum_core::frame::Message;
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::node::NodeId;
use kvorum_core::quorum::read::{Read, ReadCommand};
use kvorum_core::quorum::write::Write;
use kvorum_core::quorum::{Failure, Quorum, Rank, ReadAnswer, ReplicaSet, StoreAnswer};
use kvorum_core::{Hlc, Key, PartitionId, Record, Version};
use kvorum_peer::client::Sent;
use kvorum_peer::link::Grouping;
use kvorum_peer::membership::Membership;
use kvorum_peer::peers::Peers;
use kvorum_storage::commit::Work;
use slab::Slab;
use tokio::sync::Notify;

use super::api::{Refused, WithReceipt};
use super::fan_out::FanOut;
use super::hedge::Hedging;
use super::hot::HotCounts;
use super::metrics::CoordinatorMetrics;
use super::operation::{Attempts, Operation, Outcome, ReplicaNote, StateMachine, replicas};
use super::repair_budget::ReadRepair;
use super::slow_start::{SelectionCost, SlowStart};
use crate::hints::HintQueue;
use crate::operation_id::OperationId;
use crate::pinned_layout::{PinnedLayout, ShardLayout};
use crate::replica::reply_to::ReplyTo;
use crate::replica::{AnswerCounts, Replica, StoreReason};

/// An answer on its way to its request.
pub(super) struct Response {
    pub(super) id: u64,
    pub(super) node: NodeId,
    pub(super) answer: ResponseKind,
    /// The peer's clock.
    pub(super) clock: Hlc,
}

pub(super) enum ResponseKind {
    Stored(StoreAnswer),
    Read(ReadAnswer<Bytes>),
    Own(ReadAnswer<Record>),
}

impl ResponseKind {
    /// Whether it is an answer, and not that there is none.
    pub(super) fn counts(&self) -> bool {
        !matches!(
            self,
            Self::Stored(StoreAnswer::Failed(_)) | Self::Read(ReadAnswer::Failed(_)) | Self::Own(ReadAnswer::Failed(_))
        )
    }
}

/// What a shard's coordinator works with.
pub struct CoordinatorParts {
    /// The node's clock.
    pub clock: Arc<Clock>,
    /// The node's identity and standing.
    pub membership: Arc<Membership>,
    /// Where keys belong.
    pub layout: Rc<ShardLayout>,
    /// This node as a replica.
    pub replica: Rc<Replica<ReplyTo>>,
    /// The other nodes.
    pub peers: Rc<Peers>,
    /// The node's memory for large values.
    pub large_values: Arc<LargeValues>,
    /// Has work in the background rest while requests come.
    pub cpu_share: CpuShare,
    /// Takes what replicas do not confirm.
    pub hints: Arc<HintQueue>,
    /// What is counted.
    pub metrics: Arc<CoordinatorMetrics>,
    /// When reads ask more replicas.
    pub hedging: Hedging,
    /// Which replicas a read asks first.
    pub fan_out: FanOut,
    /// The whole of a request, both attempts.
    pub deadline: Duration,
    /// Requests that were answered and wait for their last replicas.
    pub lingering_max: usize,
}

/// All requests of one shard.
pub struct Operations {
    pub(super) clock: Arc<Clock>,
    pub(super) membership: Arc<Membership>,
    pub(super) layout: Rc<ShardLayout>,
    pub(super) replica: Rc<Replica<ReplyTo>>,
    pub(super) peers: Rc<Peers>,
    pub(super) large_values: Arc<LargeValues>,
    cpu_share: CpuShare,
    pub(super) fan_out: FanOut,
    pub(super) deadline: Duration,
    pub(super) table: RefCell<Slab<Operation>>,
    generation: Cell<u32>,
    pub(super) inbox: RefCell<VecDeque<Response>>,
    pub(super) is_handling: Cell<bool>,
    pub(super) commands: RefCell<Vec<ReadCommand>>,
    /// Room to order a read's replicas in.
    pub(super) costs: RefCell<Vec<(SelectionCost, Rank)>>,
    /// Reads by the time at which the rest of their replicas is asked.
    pub(super) hedges: RefCell<VecDeque<(Duration, OperationId)>>,
    pub(super) hedging: Hedging,
    /// Requests that were answered and wait for their last replicas, oldest first; and some that no longer do.
    pub(super) lingering: RefCell<VecDeque<OperationId>>,
    /// Those that do.
    lingering_live: Cell<usize>,
    lingering_max: usize,
    /// Stores without a request so far: each has an id of its own, by which its chunks are put together.
    last_of_nobody: Cell<u32>,
    /// Which writes give way to the debt of replicas.
    pub(super) admission: RefCell<Admission>,
    /// Writes that are delayed for that now.
    pub(super) delayed: Cell<usize>,
    pub(super) behind: SlowStart,
    /// Reads of this node's own disk.
    pub(super) own_disk: Outstanding,
    pub(super) repair: ReadRepair,
    pub(super) timers: Notify,
    /// Whether what is sent now belongs to a batch.
    pub(super) grouping: Cell<Grouping>,
    /// What a batch has for this node's own store.
    pub(super) own_works: RefCell<Vec<Work>>,
    pub(super) metrics: Arc<CoordinatorMetrics>,
    hot: RefCell<HotCounts>,
    hints: Arc<HintQueue>,
}

impl Operations {
    /// None yet.
    #[must_use]
    pub fn new(parts: CoordinatorParts) -> Rc<Self> {
        let CoordinatorParts { clock, membership, replica, peers, large_values, cpu_share, hints, metrics, .. } = parts;
        let CoordinatorParts { layout, hedging, fan_out, deadline, lingering_max, .. } = parts;
        Rc::new(Self {
            clock,
            membership,
            layout,
            replica,
            peers,
            large_values,
            cpu_share,
            fan_out,
            deadline,
            table: RefCell::default(),
            generation: Cell::new(0),
            inbox: RefCell::default(),
            is_handling: Cell::new(false),
            commands: RefCell::default(),
            costs: RefCell::default(),
            hedges: RefCell::default(),
            hedging,
            lingering: RefCell::default(),
            lingering_live: Cell::new(0),
            lingering_max,
            last_of_nobody: Cell::new(0),
            admission: RefCell::default(),
            delayed: Cell::new(0),
            behind: SlowStart::default(),
            own_disk: Outstanding::default(),
            repair: ReadRepair::default(),
            timers: Notify::new(),
            grouping: Cell::new(Grouping::Alone),
            own_works: RefCell::default(),
            metrics,
            hot: RefCell::default(),
            hints,
        })
    }

    /// Publishes the window of hot keys if it has ended.
    pub(super) fn publish_hot(&self) {
        self.hot.borrow_mut().publish(self.clock.boot(), &self.metrics.hot);
    }

    fn insert(&self, key: Key, quorum: Quorum, begin: NewOperation, machine: StateMachine) -> OperationId {
        self.cpu_share.note_request();
        let NewOperation { layout, now, came, partition, with_receipt } = begin;
        let started = came.unwrap_or(now);
        self.hot.borrow_mut().note(&key, partition, now, &self.metrics.hot);
        let generation = self.generation.get().wrapping_add(1) & 0x00ff_ffff;
        // Zero is for stores without a request.
        let generation = generation.max(1);
        self.generation.set(generation);
        let mut table = self.table.borrow_mut();
        if table.is_empty() {
            self.timers.notify_one();
        }
        let slot = table.insert(Operation {
            layout,
            generation,
            round: 1,
            key,
            partition,
            quorum,
            machine,
            started,
            queued: now.saturating_sub(started),
            deadline: started + self.deadline,
            reading: ReplicaSet::EMPTY,
            storing: ReplicaSet::EMPTY,
            deferred: ReplicaSet::EMPTY,
            owed: ReplicaSet::EMPTY,
            notes: vec![ReplicaNote::default(); usize::from(quorum.replicas())],
            with_receipt,
            is_sent: false,
            hedge_at: Duration::MAX,
            is_hopeless: false,
            is_own_vote_counted: false,
            outcome: None,
            is_decided: false,
            is_released: false,
            waker: None,
        });
        OperationId::new(slot, generation, 1)
    }

    /// Sends a timestamped write to all its replicas. Its deadline began when it `came`, if that is not now.
    pub fn begin_write(
        self: &Rc<Self>,
        key: Key,
        quorum: Quorum,
        record: Record,
        with_receipt: WithReceipt,
        came: Option<Duration>,
    ) -> OperationId {
        let machine = StateMachine::Write { machine: Write::new(quorum), record, attempts: Attempts::first() };
        let (now, layout) = (self.clock.boot(), self.layout.pin());
        let begin = NewOperation { layout, now, came, partition: key.hash().partition(), with_receipt };
        let id = self.insert(key, quorum, begin, machine);
        self.send_write(id);
        self.handle_inbox(now);
        id
    }

    /// Sends the current attempt of a write to all: peers first, whose way is longer.
    pub(super) fn send_write(&self, id: OperationId) {
        let (key, record, layout, partition, quorum) = {
            let mut table = self.table.borrow_mut();
            let Some(operation) = find(&mut table, id) else { return };
            let StateMachine::Write { record, .. } = &operation.machine else { return };
            let record = record.clone();
            operation.storing = ReplicaSet::first(operation.quorum.replicas());
            operation.owed = operation.storing;
            let Operation { key, layout, partition, quorum, .. } = operation;
            (key.clone(), record, layout.clone(), *partition, *quorum)
        };
        let replicas = replicas(&layout, partition, quorum);
        let own = self.membership.own();
        let mut is_sent = false;
        let mut deferred = ReplicaSet::EMPTY;
        let mut is_overloaded = false;
        let peers = replicas.iter().filter(|node| **node != own);
        for node in peers.chain(replicas.iter().filter(|node| **node == own)) {
            match self.send_store(id, layout.epoch(), *node, &key, &record, StoreReason::Write) {
                Ok(Sent::Now) => is_sent = true,
                Ok(Sent::Deferred) => {
                    is_sent = true;
                    let rank = replicas.iter().position(|replica| replica == node).expect("it is one of them");
                    deferred.insert(Rank(u8::try_from(rank).expect("at most 128 replicas")));
                }
                Err(failure) => {
                    is_overloaded |= failure == Failure::Overloaded;
                    let is_acked = is_on(Mutant::HintAsAck);
                    let answer = if is_acked { StoreAnswer::Accepted } else { StoreAnswer::Failed(failure) };
                    self.post(id.get(), *node, ResponseKind::Stored(answer));
                }
            }
        }
        let mut table = self.table.borrow_mut();
        let Some(operation) = find(&mut table, id) else { return };
        operation.is_sent |= is_sent;
        operation.deferred = operation.deferred.or(deferred);
        if !operation.is_sent && is_overloaded {
            // It was sent to no replica: the client may try again without a doubt about what it did.
            operation.decide(Err(Refused::Overloaded));
        }
    }

    /// Asks `node`, which this shard is connected to again, less than others at first.
    pub fn note_return(&self, node: NodeId) {
        self.behind.note_return(node, self.clock.boot());
    }

    pub(super) fn send_store(
        &self,
        id: OperationId,
        epoch: u64,
        node: NodeId,
        key: &Key,
        record: &Record,
        reason: StoreReason,
    ) -> Result<Sent, Failure> {
        if node != self.membership.own() {
            let peer = self.peers.get(node).ok_or(Failure::Unreachable)?;
            let (key, record) = (key.clone(), record.bytes().clone());
            let message = Message::Store { key, record, repair: reason == StoreReason::Repair, non_voting: false };
            peer.send(id.get(), epoch, message, self.grouping.get())
        } else {
            let submission = self.replica.submission(
                key.clone(),
                record,
                epoch,
                reason,
                AnswerCounts::InQuorum,
                ReplyTo::Operation(id),
            );
            if self.grouping.get() == Grouping::Together {
                return self.keep_for_own(submission);
            }
            self.replica.store(submission).map(|()| Sent::Now).map_err(|(_, failure)| failure)
        }
    }

    /// An id for a store whose answer is not read: no request has this generation.
    pub(super) fn id_of_nobody(&self) -> OperationId {
        let number = self.last_of_nobody.get().wrapping_add(1);
        self.last_of_nobody.set(number);
        OperationId::new(usize::try_from(number).expect("32 bits fit"), 0, 0)
    }

    /// Asks the fastest replicas, or all. Its deadline began when it `came`, if that is not now.
    pub fn begin_read(
        self: &Rc<Self>,
        key: Key,
        quorum: Quorum,
        with_receipt: WithReceipt,
        came: Option<Duration>,
    ) -> OperationId {
        let (now, layout, partition) = (self.clock.boot(), self.layout.pin(), key.hash().partition());
        let (first, record_from) = self.choose(&layout, partition, now, quorum);
        let begin = NewOperation { layout, now, came, partition, with_receipt };
        let mut machine = Read::new(quorum, first, record_from);
        let mut commands = self.commands.take();
        machine.start(&mut |command| commands.push(command));
        let machine = StateMachine::Read { machine, write_back: Version::ZERO, repaired: ReplicaSet::EMPTY };
        let id = self.insert(key, quorum, begin, machine);
        self.carry_out(id, now, &mut commands);
        self.commands.replace(commands);
        self.handle_inbox(now);
        self.hedging.earn();
        // Also where all are asked at once: what they hold may still have to be fetched from another.
        if quorum.replicas() > 1 {
            self.arm_hedge(id, now);
        }
        id
    }

    /// The client's part: waits for the outcome. Dropping it releases the request, also where it was never polled.
    pub fn outcome(&self, id: OperationId) -> impl Future<Output = Result<Outcome, Refused>> {
        let release = Release { operations: self, id };
        poll_fn(move |context| {
            let Release { operations, id } = &release;
            let id = *id;
            let mut table = operations.table.borrow_mut();
            let operation = find(&mut table, id).expect("a request stays until its client has the outcome");
            if let Some(outcome) = operation.outcome.take() {
                return Poll::Ready(outcome);
            }
            operation.waker = Some(context.waker().clone());
            Poll::Pending
        })
    }

    /// A replica's answer to a store, and its clock.
    pub fn on_stored(self: &Rc<Self>, node: NodeId, id: u64, answer: StoreAnswer, clock: Hlc) {
        self.post_at(id, node, ResponseKind::Stored(answer), clock);
        self.handle_inbox(self.clock.boot());
    }

    /// A peer's answer to a read, and its clock.
    pub fn on_read(self: &Rc<Self>, node: NodeId, id: u64, answer: ReadAnswer<Bytes>, clock: Hlc) {
        self.post_at(id, node, ResponseKind::Read(answer), clock);
        self.handle_inbox(self.clock.boot());
    }

    /// This node's answer to a read that needed the disk.
    pub fn on_held(self: &Rc<Self>, id: u64, answer: ReadAnswer<Record>) {
        let now = self.clock.boot();
        self.own_disk.answered(now);
        self.post(id, self.membership.own(), ResponseKind::Own(answer));
        self.handle_inbox(now);
    }

    /// The connection to `node` ended: everything that waits on it fails.
    pub fn fail_all(self: &Rc<Self>, node: NodeId) {
        let mut waiting = Vec::new();
        for (slot, operation) in &*self.table.borrow() {
            let Some(rank) = operation.rank(node) else { continue };
            let id = OperationId::new(slot, operation.generation, operation.round);
            if operation.storing.contains(rank) {
                waiting.push((id, ResponseKind::Stored(StoreAnswer::Failed(Failure::Unreachable))));
            }
            if operation.reading.contains(rank) {
                waiting.push((id, ResponseKind::Read(ReadAnswer::Failed(Failure::Unreachable))));
            }
        }
        for (id, answer) in waiting {
            self.post(id.get(), node, answer);
        }
        self.handle_inbox(self.clock.boot());
    }

    pub(super) fn post(&self, id: u64, node: NodeId, answer: ResponseKind) {
        self.post_at(id, node, answer, Hlc::ZERO);
    }

    fn post_at(&self, id: u64, node: NodeId, answer: ResponseKind, clock: Hlc) {
        self.inbox.borrow_mut().push_back(Response { id, node, answer, clock });
    }

    /// The client's future is gone: drops the request, or keeps it for its last replicas.
    fn release(&self, id: OperationId) {
        if let Some(oldest) = self.linger(id) {
            self.remove(oldest);
        }
    }

    /// Which request to drop, now that the client of `id` is gone.
    fn linger(&self, id: OperationId) -> Option<OperationId> {
        let mut table = self.table.borrow_mut();
        let operation = find(&mut table, id)?;
        if operation.is_over_when_released() {
            return Some(id);
        }
        operation.is_released = true;
        operation.waker = None;
        drop(table);
        let table = &mut *self.table.borrow_mut();
        let mut lingering = self.lingering.borrow_mut();
        lingering.push_back(id);
        self.lingering_live.set(self.lingering_live.get() + 1);
        let mut evicted = None;
        if self.lingering_live.get() > self.lingering_max {
            while evicted.is_none() {
                let oldest = lingering.pop_front().expect("those that live are in the list");
                evicted = find(table, oldest).map(|_| oldest);
            }
        } else if lingering.len() > 2 * self.lingering_max {
            // Behind one slow write many may have come to their end.
            lingering.retain(|id| find(table, *id).is_some());
        }
        drop(lingering);
        evicted
    }

    /// Drops a request; a write's pending stores become a hint. Nothing is kept of a write that no replica is known to
    /// have accepted: after its `504` it takes effect through those that have it, or never.
    pub(super) fn remove(&self, id: OperationId) {
        let mut table = self.table.borrow_mut();
        if find(&mut table, id).is_none() {
            return;
        }
        let operation = table.remove(id.slot());
        if operation.is_released {
            self.lingering_live.set(self.lingering_live.get() - 1);
        }
        if let StateMachine::Write { machine, record, .. } = &operation.machine
            && operation.is_sent
        {
            self.metrics.unconfirmed_stores.fetch_add(u64::from(operation.owed.len()), Ordering::Relaxed);
            if machine.acked() > 0 && !operation.owed.is_empty() {
                let owed = operation.owed.iter().filter_map(|rank| operation.node(rank)).collect();
                self.hints.offer(&operation.key, record, owed);
            }
        }
    }

    /// Requests under way, answered or not.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.table.borrow().len()
    }

    /// How long a read waits for its first replicas now.
    #[must_use]
    pub fn hedge_delay(&self) -> Duration {
        self.hedging.delay()
    }
}

/// What is known of a request before it is one.
struct NewOperation {
    layout: PinnedLayout,
    now: Duration,
    came: Option<Duration>,
    partition: PartitionId,
    with_receipt: WithReceipt,
}

/// What an answer leads to.
pub(super) enum NextStep {
    Nothing,
    RetryWithHigherTimestamp(Version),
    Commands,
}

/// Frees a request when its client has gone, with its outcome or without.
struct Release<'a> {
    operations: &'a Operations,
    id: OperationId,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.operations.release(self.id);
    }
}

/// The request that an id names, if it is still there.
pub(super) fn find(table: &mut Slab<Operation>, id: OperationId) -> Option<&mut Operation> {
    table.get_mut(id.slot()).filter(|operation| operation.generation == id.generation())
}
