//! This node as a replica, seen from one shard: reads from the cache at once, or from the disk through
//! the read pool; stores through the commit thread.
//!
//! Whoever asks gets exactly one answer for each question that was taken; what comes back from another
//! thread finds its asker by a ticket.

mod held;
mod mailbox;
pub mod peer_reply;
pub mod reply_to;

pub use held::Held;
pub use mailbox::{Event, Mailbox, Mailboxes};

use std::cell::RefCell;
use std::sync::Arc;

use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::Clock;
use kvorum_base::log_limit::LogLimit;
use kvorum_base::value_memory::{LargeValues, Unusable};
use kvorum_core::quorum::Failure;
use kvorum_core::{Key, PartitionId, Record};
use kvorum_peer::membership::Membership;
use kvorum_storage::commit::{CommitQueue, Fact, Submission, Ticket, Work};
use kvorum_storage::{Found, Store, StoreError, Tier, find};
use slab::Slab;

/// This node's replica. `A` is what remembers who asked.
pub struct Replica<A> {
    shard: u16,
    store: Arc<dyn Store>,
    queue: CommitQueue,
    pool: ReadPool,
    mailbox: Arc<Mailbox>,
    membership: Arc<Membership>,
    checks: Arc<Checks>,
    askers: RefCell<Slab<Waiting<A>>>,
}

/// What everything that leaves the store goes through.
struct Checks {
    large_values: Arc<LargeValues>,
    clock: Arc<Clock>,
    damaged: LogLimit,
    failed: LogLimit,
}

struct Waiting<A> {
    asker: A,
    /// Of the key, where the answer depends on having a vote for it.
    partition: Option<PartitionId>,
}

impl<A> Replica<A> {
    /// The replica as shard number `shard` uses it; results come through `mailbox`.
    #[expect(clippy::too_many_arguments, reason = "what a shard has of its node")]
    pub fn new(
        shard: u16,
        store: Arc<dyn Store>,
        queue: CommitQueue,
        pool: ReadPool,
        mailbox: Arc<Mailbox>,
        membership: Arc<Membership>,
        large_values: Arc<LargeValues>,
        clock: Arc<Clock>,
    ) -> Self {
        let (damaged, failed) = Default::default();
        let checks = Arc::new(Checks { large_values, clock, damaged, failed });
        Self { shard, store, queue, pool, mailbox, membership, checks, askers: RefCell::default() }
    }

    /// What is held for `key`, or `None` if the disk has to be read: then the answer comes through the
    /// mailbox to `asker`. An `uncounted` answer is given without a vote as well.
    pub fn read(&self, key: &Key, uncounted: bool, asker: impl FnOnce() -> A) -> Option<Held> {
        if let Some(failure) = self.membership.abstains_for(key.hash().partition()).filter(|_| !uncounted) {
            return Some(Held::Failed(failure));
        }
        match find(&*self.store, key, Tier::Cache) {
            Err(StoreError::NeedsDisk) => {}
            found => return Some(self.checks.held(key, found)),
        }
        let ticket = self.ticket(asker(), (!uncounted).then(|| key.hash().partition()));
        // A key of its own: a peer's is a slice of the buffer that it was read into.
        let key = Key::new(bytes::Bytes::copy_from_slice(key.as_bytes())).expect("these bytes were a key before");
        let (store, mailbox) = (self.store.clone(), self.mailbox.clone());
        let checks = self.checks.clone();
        let job = move || {
            let held = checks.held(&key, find(&*store, &key, Tier::Disk));
            mailbox.post([Event::Read { ticket, held }]);
        };
        if self.pool.submit(Box::new(job)).is_ok() {
            return None;
        }
        self.redeem(ticket);
        Some(Held::Failed(Failure::Overloaded))
    }

    /// The submission of a checked record; `asker` will get the answer once it is queued. An `uncounted` answer is
    /// given without a vote as well.
    pub fn submission(&self, key: Key, record: &Record, is_repair: bool, uncounted: bool, asker: A) -> Submission {
        let hash = key.hash();
        Submission {
            hash,
            version: record.version(),
            record: record.bytes().clone(),
            repair: is_repair,
            ticket: self.ticket(asker, (!uncounted).then(|| hash.partition())),
            key,
        }
    }

    /// Whether stores are taken at all now.
    pub fn refuses_stores(&self) -> Option<Failure> {
        if self.membership.is_fenced() {
            return Some(Failure::ClockSkew);
        }
        // A rebuilding node stores what it can, though its answers do not count.
        self.membership.abstains().filter(|failure| *failure == Failure::NotServing)
    }

    /// Whether the disk takes no writes at present.
    pub fn disk_refuses(&self) -> bool {
        self.store.health() != kvorum_storage::HealthState::Healthy
    }

    /// How far the store is durable.
    pub fn sequence(&self) -> u64 {
        self.store.sequence()
    }

    /// Queues one submission.
    ///
    /// # Errors
    /// The asker back, and why, if it was not taken.
    pub fn store(&self, submission: Submission) -> Result<(), (A, Failure)> {
        let ticket = submission.ticket;
        if let Some(failure) = self.refuses_stores() {
            return Err((self.redeem(ticket), failure));
        }
        self.queue.submit(Work::Store(submission)).map_err(|_| (self.redeem(ticket), Failure::Overloaded))
    }

    /// Queues many under one lock; what is not taken stays in `works`.
    pub fn store_all(&self, works: &mut Vec<Work>) {
        self.queue.submit_all(works);
    }

    /// Asks for a durable clock bound of at least `to`.
    ///
    /// # Errors
    /// The asker back if the queue is full.
    pub fn raise_bound(&self, to: kvorum_core::Hlc, asker: A) -> Result<(), A> {
        let ticket = self.ticket(asker, None);
        self.queue.submit(Work::RaiseBound { to, ticket }).map_err(|_| self.redeem(ticket))
    }

    /// Asks for a fact of anti-entropy to be made durable.
    ///
    /// # Errors
    /// The asker back if the queue is full.
    pub fn heed(&self, fact: Fact, asker: A) -> Result<(), A> {
        let ticket = self.ticket(asker, None);
        self.queue.submit(Work::Heed { fact, ticket }).map_err(|_| self.redeem(ticket))
    }

    /// The store, for whoever looks at all of it.
    pub fn records(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Who asked, and why the answer counts for nothing, if so: this node has no vote, perhaps since it was asked.
    pub fn answered(&self, ticket: Ticket) -> (A, Option<Failure>) {
        let Waiting { asker, partition } = self.take(ticket);
        (asker, partition.and_then(|partition| self.membership.abstains_for(partition)))
    }

    fn ticket(&self, asker: A, partition: Option<PartitionId>) -> Ticket {
        let slot = self.askers.borrow_mut().insert(Waiting { asker, partition });
        Ticket { shard: self.shard, id: u64::try_from(slot).expect("a slot is a small number") }
    }

    /// Who asked; each ticket is redeemed once.
    ///
    /// # Panics
    /// If a ticket comes back twice.
    pub fn redeem(&self, ticket: Ticket) -> A {
        self.take(ticket).asker
    }

    fn take(&self, ticket: Ticket) -> Waiting<A> {
        let slot = usize::try_from(ticket.id).expect("tickets hold what slots were");
        self.askers.borrow_mut().remove(slot)
    }

    /// Questions that wait for another thread.
    pub fn waiting(&self) -> usize {
        self.askers.borrow().len()
    }
}

impl Checks {
    /// Turns what the store found into what the replica says: nothing unchecked leaves it, nor anything large that
    /// there is no memory for.
    fn held(&self, key: &Key, found: Result<Found, StoreError>) -> Held {
        let bytes = match found {
            Ok(Found::Absent { floor }) => return Held::Absent { floor },
            Ok(Found::Record(bytes)) => bytes,
            Err(StoreError::Corrupt(reason)) => {
                if let Some(left_out) = self.damaged.due(self.clock.boot()) {
                    tracing::error!(key_hash = key.hash().get(), reason, left_out, "stored block is damaged");
                }
                return Held::Failed(Failure::Corrupt);
            }
            Err(error) => {
                if let Some(left_out) = self.failed.due(self.clock.boot()) {
                    tracing::error!(key_hash = key.hash().get(), %error, left_out, "read failed");
                }
                return Held::Failed(Failure::Disk);
            }
        };
        match self.large_values.verified(key, bytes) {
            Ok(record) => Held::Record(record),
            Err(unusable) => {
                if let Unusable::Damaged(error) = &unusable
                    && let Some(left_out) = self.damaged.due(self.clock.boot())
                {
                    tracing::error!(key_hash = key.hash().get(), %error, left_out, "stored record is damaged");
                }
                Held::Failed(unusable.into())
            }
        }
    }
}
