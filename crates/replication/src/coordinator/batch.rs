//! Many operations of one client at once. Each is a request of its own, as sure and as linearizable as if it had come
//! alone; only the ways are shared: one admission, one frame for each peer and direction, one lock of the commit queue.
//!
//! Cancel safety: as of [`Coordinator`].

use std::rc::Rc;
use std::time::Duration;

use kvorum_base::waits;
use kvorum_core::quorum::{Failure, Quorum, StoreAnswer};
use kvorum_core::{Key, Record, Version};
use kvorum_peer::client::Sent;
use kvorum_peer::link::Grouping;
use kvorum_storage::commit::{Submission, Work};

use super::api::{NewValue, Refused, WithReceipt};
use super::operation::Outcome;
use super::operations::{Operations, ResponseKind, find};
use super::{Coordinator, Delayed};
use crate::operation_id::OperationId;
use crate::replica::reply_to::ReplyTo;

/// One operation of a batch.
#[derive(Debug)]
pub struct BatchOperation<'a> {
    /// On which key: no other of the batch has it.
    pub key: Key,
    /// How many replicas.
    pub quorum: Quorum,
    /// What to do.
    pub action: BatchAction<'a>,
}

/// What an operation of a batch does.
#[derive(Debug)]
pub enum BatchAction<'a> {
    /// Store a value.
    Put(NewValue<'a>),
    /// Read the newest version.
    Get,
    /// Store a deletion.
    Delete,
}

impl Coordinator {
    /// Carries out all operations at once; what became of each, in their order.
    ///
    /// # Errors
    /// [`Refused`], of all of them, without an effect. Those of single operations are in the list.
    pub async fn batch(&self, operations: Vec<BatchOperation<'_>>) -> Result<Vec<Result<Outcome, Refused>>, Refused> {
        let mut came = self.admit().await?;
        let gives_way = |operation: &BatchOperation<'_>| match &operation.action {
            BatchAction::Get => Ok(Duration::ZERO),
            BatchAction::Put(value) => self.give_way(&operation.key, operation.quorum, value.body.value_bytes()),
            BatchAction::Delete => self.give_way(&operation.key, operation.quorum, 0),
        };
        let delays: Vec<Result<Duration, Refused>> = operations.iter().map(gives_way).collect();
        let delay = delays.iter().flatten().max().copied().unwrap_or_default();
        if !delay.is_zero() {
            came = came.or_else(|| Some(self.operations.clock.boot()));
            let _delayed = Delayed::new(&self.operations.delayed);
            Box::pin(waits::queue("debt", tokio::time::sleep(delay))).await;
        }
        let mut prepared = Vec::with_capacity(operations.len());
        for (operation, delay) in operations.into_iter().zip(delays) {
            prepared.push(match delay {
                Ok(_) => self.prepare(operation).await,
                Err(refused) => Err(refused),
            });
        }
        let begun = self.operations.together(|operations| {
            let begin = |prepared: Result<Prepared, Refused>| prepared.map(|prepared| prepared.begin(operations, came));
            prepared.into_iter().map(begin).collect::<Vec<_>>()
        });
        // If this future is dropped, so are these: each request's client is gone then.
        let mut waiting = Vec::with_capacity(begun.len());
        waiting.extend(begun.into_iter().map(|begun| begun.map(|id| Some(self.operations.outcome(id)))));
        let mut outcomes = Vec::with_capacity(waiting.len());
        for begun in &mut waiting {
            outcomes.push(match begun {
                Ok(outcome) => outcome.take().expect("each is awaited once").await,
                Err(refused) => Err(refused.clone()),
            });
        }
        Ok(outcomes)
    }

    /// Timestamps a write.
    async fn prepare(&self, operation: BatchOperation<'_>) -> Result<Prepared, Refused> {
        let BatchOperation { key, quorum, action } = operation;
        let record = match action {
            BatchAction::Get => None,
            BatchAction::Put(value) => Some(value.into_record(&key, self.timestamp(&key, quorum).await?, quorum)),
            BatchAction::Delete => {
                Some(Record::tombstone(&key, self.timestamp(&key, quorum).await?, quorum.replicas()))
            }
        };
        Ok(Prepared { key, quorum, record })
    }
}

/// An operation that only has to be sent: a write with its record, or a read.
struct Prepared {
    key: Key,
    quorum: Quorum,
    record: Option<Record>,
}

impl Prepared {
    fn begin(self, operations: &Rc<Operations>, came: Option<Duration>) -> OperationId {
        let Self { key, quorum, record } = self;
        match record {
            Some(record) => operations.begin_write(key, quorum, record, WithReceipt::No, came),
            None => operations.begin_read(key, quorum, WithReceipt::No, came),
        }
    }
}

impl NewValue<'_> {
    /// The record of this value. A second timestamp keeps the end that this one gives.
    pub(super) fn into_record(self, key: &Key, version: Version, quorum: Quorum) -> Record {
        let Self { body, content_type, ttl_s } = self;
        let expires_ms = ttl_s.map(|ttl_s| version.hlc.millis() + u64::from(ttl_s) * 1000);
        body.into_record(|value| Record::expiring(key, version, quorum.replicas(), expires_ms, content_type, value))
    }
}

impl Operations {
    /// Has what `begin` sends go together: to each peer in one frame, to this node's own store under one lock.
    fn together<T>(self: &Rc<Self>, begin: impl FnOnce(&Rc<Self>) -> T) -> T {
        self.grouping.set(Grouping::Together);
        let begun = begin(self);
        self.grouping.set(Grouping::Alone);
        let mut works = self.own_works.take();
        self.replica.store_all(&mut works);
        for work in works.drain(..) {
            if let Work::Store(submission) = work
                && let ReplyTo::Operation(id) = self.replica.redeem(submission.token)
            {
                self.note_own_refusal(id);
            }
        }
        self.own_works.replace(works);
        self.handle_inbox(self.clock.boot());
        begun
    }

    pub(super) fn keep_for_own(&self, submission: Submission) -> Result<Sent, Failure> {
        if let Some(failure) = self.replica.refuses_stores() {
            self.replica.redeem(submission.token);
            return Err(failure);
        }
        self.own_works.borrow_mut().push(Work::Store(submission));
        Ok(Sent::Now)
    }

    fn note_own_refusal(&self, id: OperationId) {
        if let Some(operation) = find(&mut self.table.borrow_mut(), id)
            && operation.quorum.replicas() == 1
        {
            // It was sent to no replica.
            operation.is_sent = false;
            operation.decide(Err(Refused::Overloaded));
        }
        let failed = ResponseKind::Stored(StoreAnswer::Failed(Failure::Overloaded));
        self.post(id.get(), self.membership.own(), failed);
    }
}
