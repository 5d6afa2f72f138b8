//! This node as a replica, seen from one shard: reads from the cache at once, or from the disk through
//! the read pool; stores through the commit thread.
//!
//! Each question that was taken gets exactly one answer; what comes back from another thread finds its asker by a
//! token.

mod mailbox;
pub mod peer_reply;
pub mod reply_to;

pub use mailbox::{Event, Mailbox, Mailboxes};
use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::Clock;
use kvorum_base::log_limit::LogLimit;
use kvorum_base::value_memory::{LargeValues, Unusable};
use kvorum_core::quorum::{Failure, Held, ReadAnswer};
use kvorum_core::{Key, PartitionId, Record};
use kvorum_peer::membership::Membership;
use kvorum_storage::commit::{CommitQueue, CompletionToken, Promise, Submission, Work};
use kvorum_storage::{Store, StoreError, Tier, find};
use slab::Slab;

/// Whether an answer may count for a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerCounts {
    /// It does: a node without a vote for the key's partition fails instead.
    InQuorum,
    /// It does not, so a node without a vote gives it, too.
    Outside,
}

/// Why a record is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreReason {
    /// A client writes it.
    Write,
    /// It was accepted elsewhere: a read writes it back, or repair copies it. Exempt from the fence.
    Repair,
}

/// This node's replica. `A` names the asker.
pub struct Replica<A> {
    shard: u16,
    store: Arc<dyn Store>,
    queue: CommitQueue,
    pool: ReadPool,
    mailbox: Arc<Mailbox>,
    membership: Arc<Membership>,
    checks: Arc<Checks>,
    waiters: RefCell<Slab<WaitingRequests<A>>>,
}

/// What everything that leaves the store goes through.
struct Checks {
    large_values: Arc<LargeValues>,
    clock: Arc<Clock>,
    damaged: LogLimit,
    failed: LogLimit,
}

struct WaitingRequests<A> {
    reply_to: A,
    /// The layout by which it was asked.
    epoch: u64,
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
        Self { shard, store, queue, pool, mailbox, membership, checks, waiters: RefCell::default() }
    }

    /// What is held for `key`, or `None` if the disk has to be read: then the answer comes through the
    /// mailbox to `reply_to`. `epoch` is the layout by which it is asked. A non-voting answer is given without a vote as
    /// well.
    pub fn read(
        &self,
        key: &Key,
        epoch: u64,
        counts: AnswerCounts,
        reply_to: impl FnOnce() -> A,
    ) -> Option<ReadAnswer<Record>> {
        if let Some(failure) =
            self.membership.abstains_for(key.hash().partition()).filter(|_| counts == AnswerCounts::InQuorum)
        {
            return Some(ReadAnswer::Failed(failure));
        }
        match find(&*self.store, key, Tier::Cache) {
            Err(StoreError::NeedsDisk) => {}
            found => {
                let held = self.checks.held(key, found);
                return Some(if self.queue.is_past(epoch) { ReadAnswer::Failed(Failure::Epoch) } else { held });
            }
        }
        let token = self.token(reply_to(), epoch, (counts == AnswerCounts::InQuorum).then(|| key.hash().partition()));
        // A key of its own: a peer's is a slice of the buffer that it was read into.
        let key = Key::new(bytes::Bytes::copy_from_slice(key.as_bytes())).expect("these bytes were a key before");
        let (store, mailbox) = (self.store.clone(), self.mailbox.clone());
        let checks = self.checks.clone();
        let job = move || {
            let answer = checks.held(&key, find(&*store, &key, Tier::Disk));
            mailbox.post([Event::Read { token, answer }]);
        };
        if self.pool.submit(Box::new(job)).is_ok() {
            return None;
        }
        self.redeem(token);
        Some(ReadAnswer::Failed(Failure::Overloaded))
    }

    /// The submission of a checked record; `reply_to` will get the answer once it is queued. A non-voting answer is
    /// given without a vote as well.
    pub fn submission(
        &self,
        key: Key,
        record: &Record,
        epoch: u64,
        why: StoreReason,
        counts: AnswerCounts,
        reply_to: A,
    ) -> Submission {
        let hash = key.hash();
        Submission {
            hash,
            version: record.version(),
            record: record.bytes().clone(),
            repair: why == StoreReason::Repair,
            epoch,
            token: self.token(reply_to, epoch, (counts == AnswerCounts::InQuorum).then(|| hash.partition())),
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

    /// Whether this node is past the layout of this epoch, and answers nothing that is asked by it.
    pub fn is_past(&self, epoch: u64) -> bool {
        self.queue.is_past(epoch)
    }

    /// Up to which epoch it is, durably.
    pub fn bar(&self) -> u64 {
        self.queue.bar()
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
    /// `reply_to` back, and why, if it was not taken.
    pub fn store(&self, submission: Submission) -> Result<(), (A, Failure)> {
        let token = submission.token;
        if let Some(failure) = self.refuses_stores() {
            return Err((self.redeem(token), failure));
        }
        self.queue.submit(Work::Store(submission)).map_err(|_| (self.redeem(token), Failure::Overloaded))
    }

    /// Queues many under one lock; what is not taken stays in `works`.
    pub fn store_all(&self, works: &mut Vec<Work>) {
        self.queue.submit_all(works);
    }

    /// Asks for a durable clock bound of at least `to`.
    ///
    /// # Errors
    /// `reply_to` back if the queue is full.
    pub fn raise_bound(&self, to: kvorum_core::Hlc, reply_to: A) -> Result<(), A> {
        let token = self.token(reply_to, u64::MAX, None);
        self.queue.submit(Work::RaiseBound { to, token }).map_err(|_| self.redeem(token))
    }

    /// Asks for a promise to be made durable.
    ///
    /// # Errors
    /// `reply_to` back if the queue is full.
    pub fn make_durable(&self, promise: Promise, reply_to: A) -> Result<(), A> {
        let token = self.token(reply_to, u64::MAX, None);
        self.queue.submit(Work::MakeDurable { promise, token }).map_err(|_| self.redeem(token))
    }

    /// The store, to look at all of it.
    pub fn records(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The asker, and why an answer counts for nothing, if so: this node has no vote, or is past the layout by which it
    /// was asked, perhaps since then.
    pub fn answered(&self, token: CompletionToken) -> (A, Option<Failure>) {
        let WaitingRequests { reply_to, epoch, partition } = self.take(token);
        let abstains = partition.and_then(|partition| self.membership.abstains_for(partition));
        (reply_to, abstains.or_else(|| self.queue.is_past(epoch).then_some(Failure::Epoch)))
    }

    fn token(&self, reply_to: A, epoch: u64, partition: Option<PartitionId>) -> CompletionToken {
        let slot = self.waiters.borrow_mut().insert(WaitingRequests { reply_to, epoch, partition });
        CompletionToken { shard: self.shard, id: u64::try_from(slot).expect("a slot is a small number") }
    }

    /// The asker; each token is redeemed once.
    ///
    /// # Panics
    /// If a token comes back twice.
    pub fn redeem(&self, token: CompletionToken) -> A {
        self.take(token).reply_to
    }

    fn take(&self, token: CompletionToken) -> WaitingRequests<A> {
        let slot = usize::try_from(token.id).expect("tokens hold what slots were");
        self.waiters.borrow_mut().remove(slot)
    }

    /// Questions that wait for another thread.
    pub fn waiting(&self) -> usize {
        self.waiters.borrow().len()
    }
}

impl Checks {
    /// Turns what the store found into the replica's answer: nothing unchecked leaves it, nor anything large that there
    /// is no memory for.
    fn held(&self, key: &Key, found: Result<Held<Bytes>, StoreError>) -> ReadAnswer<Record> {
        let bytes = match found {
            Ok(Held::Absent { gc_watermark }) => return ReadAnswer::Held(Held::Absent { gc_watermark }),
            Ok(Held::Record(bytes)) => bytes,
            Err(StoreError::Corrupt(reason)) => {
                if let Some(left_out) = self.damaged.due(self.clock.boot()) {
                    tracing::error!(key_hash = key.hash().get(), reason, left_out, "stored block is damaged");
                }
                return ReadAnswer::Failed(Failure::Corrupt);
            }
            Err(error) => {
                if let Some(left_out) = self.failed.due(self.clock.boot()) {
                    tracing::error!(key_hash = key.hash().get(), %error, left_out, "read failed");
                }
                return ReadAnswer::Failed(Failure::Disk);
            }
        };
        match self.large_values.verified(key, bytes) {
            Ok(record) => ReadAnswer::Held(Held::Record(record)),
            Err(unusable) => {
                if let Unusable::Damaged(error) = &unusable
                    && let Some(left_out) = self.damaged.due(self.clock.boot())
                {
                    tracing::error!(key_hash = key.hash().get(), %error, left_out, "stored record is damaged");
                }
                ReadAnswer::Failed(unusable.into())
            }
        }
    }
}
