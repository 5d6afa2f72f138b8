//! What anti-entropy has the commit thread promise: the fence and the floors, durable before they are answered.
//!
//! The fence holds from the moment at which it is added, for the rest of its batch too: a fence that is higher
//! than the durable one refuses stragglers earlier than was asked, and promises nothing. Floors hold only once
//! they are durable.

use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::Failure;
use kvorum_core::version::{Hlc, Version};

use super::work::{Done, Fact, Ticket};
use crate::error::StoreError;
use crate::floors::Floors;
use crate::store::{Batch, Durability, Store};

/// The names under which they are persisted.
const FENCE: &str = "fence";
const FLOORS: &str = "floors";

/// Forgets up to where partitions were proven converged, durably: for a store whose peers go back to an earlier
/// state, too, and may lack what was proven. Blocks.
///
/// # Errors
/// As [`Store::metadata`] and [`Store::commit`].
pub fn forget_floors(store: &impl Store) -> Result<(), StoreError> {
    if store.metadata(FLOORS)?.is_none() {
        return Ok(());
    }
    let mut batch = Batch::default();
    batch.put_metadata(FLOORS, Floors::default().encode_with(&[]));
    store.commit(&batch, Durability::Fsync)
}

/// The fence, and what a batch adds.
#[derive(Debug)]
pub(super) struct Facts {
    fence: Hlc,
    /// What of `fence` is durable.
    durable: Hlc,
    floors: Vec<(PartitionSet, Hlc)>,
    /// Whom to tell after the commit.
    tickets: Vec<Ticket>,
}

impl Facts {
    /// Reads what is persisted, and publishes the floors.
    pub(super) fn load(store: &impl Store) -> Result<Self, StoreError> {
        let damaged = |_| StoreError::Corrupt("the fence is not 8 bytes long".to_owned());
        let fence = match store.metadata(FENCE)? {
            None => Hlc::ZERO,
            Some(bytes) => Hlc::from_raw(u64::from_be_bytes(bytes.try_into().map_err(damaged)?)),
        };
        if let Some(bytes) = store.metadata(FLOORS)? {
            store.floors().load(&bytes)?;
        }
        Ok(Self { fence, durable: fence, floors: Vec::new(), tickets: Vec::new() })
    }

    /// Up to where clients' writes are refused.
    pub(super) fn fence(&self) -> Version {
        Version::last_of(self.fence)
    }

    /// Whether the batch adds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Adds a fact to the batch.
    pub(super) fn add(&mut self, fact: Fact, ticket: Ticket) {
        match fact {
            Fact::Fence(to) => self.fence = self.fence.max(to),
            Fact::Floors(partitions, to) => self.floors.push((partitions, to)),
        }
        self.tickets.push(ticket);
    }

    /// Puts what is to be made durable into the batch.
    pub(super) fn put_into(&self, batch: &mut Batch, floors: &Floors) {
        if self.fence > self.durable {
            batch.put_metadata(FENCE, self.fence.raw().to_be_bytes().to_vec());
        }
        if !self.floors.is_empty() {
            batch.put_metadata(FLOORS, floors.encode_with(&self.floors));
        }
    }

    /// After the commit's attempt: publishes the floors and tells who asked. The highest new floor, if any.
    pub(super) fn finish(&mut self, result: Result<(), Failure>, floors: &Floors, done: &mut Vec<Done>) -> Option<Hlc> {
        let mut highest = None;
        if result.is_ok() {
            self.durable = self.fence;
            for (partitions, to) in &self.floors {
                floors.raise(partitions, *to);
                highest = highest.max(Some(*to));
            }
        }
        self.floors.clear();
        done.extend(self.tickets.drain(..).map(|ticket| Done::Heeded { ticket, result }));
        highest
    }
}
