//! What anti-entropy has the commit thread promise: the fence and the GC watermarks, durable before they are answered.
//!
//! The fence holds from the moment at which it is added, for the rest of its batch too: a fence that is higher
//! than the durable one refuses stragglers earlier than was asked, and promises nothing. GC watermarks hold only once
//! they are durable.

use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::Failure;
use kvorum_core::version::{Hlc, Version};

use super::work::{Completion, CompletionToken, Promise};
use crate::error::StoreError;
use crate::gc_watermarks::GcWatermarks;
use crate::store::{Batch, Durability, Store};

/// The names under which they are persisted. GC watermarks were once called floors: the name on disks stays.
const FENCE: &str = "fence";
const GC_WATERMARKS: &str = "floors";

/// Durably removes how far partitions were proven converged: for a store whose peers go back to an earlier state, too,
/// and may lack what was proven. Blocks.
///
/// # Errors
/// As [`Store::metadata`] and [`Store::commit`].
pub fn forget_gc_watermarks(store: &impl Store) -> Result<(), StoreError> {
    if store.metadata(GC_WATERMARKS)?.is_none() {
        return Ok(());
    }
    let mut batch = Batch::default();
    batch.put_metadata(GC_WATERMARKS, GcWatermarks::default().encode_with(&[]));
    store.commit(&batch, Durability::Fsync)
}

/// The fence, and what a batch adds.
#[derive(Debug)]
pub(super) struct Promises {
    fence: Hlc,
    /// What of `fence` is durable.
    durable: Hlc,
    gc_watermarks: Vec<(PartitionSet, Hlc)>,
    /// Which to answer after the commit.
    tokens: Vec<CompletionToken>,
}

impl Promises {
    /// Reads what is persisted, and publishes the GC watermarks.
    pub(super) fn load(store: &impl Store) -> Result<Self, StoreError> {
        let damaged = |_| StoreError::Corrupt("the fence is not 8 bytes long".to_owned());
        let fence = match store.metadata(FENCE)? {
            None => Hlc::ZERO,
            Some(bytes) => Hlc::from_raw(u64::from_be_bytes(bytes.try_into().map_err(damaged)?)),
        };
        if let Some(bytes) = store.metadata(GC_WATERMARKS)? {
            store.gc_watermarks().load(&bytes)?;
        }
        Ok(Self { fence, durable: fence, gc_watermarks: Vec::new(), tokens: Vec::new() })
    }

    /// Up to where clients' writes are refused.
    pub(super) fn fence(&self) -> Version {
        Version::last_of(self.fence)
    }

    /// The fence, if this batch raises it.
    pub(super) fn fence_wanted(&self) -> Hlc {
        if self.fence > self.durable { self.fence } else { Hlc::ZERO }
    }

    /// Whether the batch adds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Adds a fact to the batch.
    pub(super) fn add(&mut self, promise: Promise, token: CompletionToken) {
        match promise {
            Promise::Fence(to) => self.fence = self.fence.max(to),
            Promise::GcWatermarks(partitions, to) => self.gc_watermarks.push((partitions, to)),
        }
        self.tokens.push(token);
    }

    /// Puts what is to be made durable into the batch.
    pub(super) fn put_into(&self, batch: &mut Batch, gc_watermarks: &GcWatermarks) {
        if self.fence > self.durable {
            batch.put_metadata(FENCE, self.fence.raw().to_be_bytes().to_vec());
        }
        if !self.gc_watermarks.is_empty() {
            batch.put_metadata(GC_WATERMARKS, gc_watermarks.encode_with(&self.gc_watermarks));
        }
    }

    /// After the commit's attempt: publishes the GC watermarks and answers. The highest new GC watermark, if any.
    pub(super) fn finish(
        &mut self,
        result: Result<(), Failure>,
        gc_watermarks: &GcWatermarks,
        done: &mut Vec<Completion>,
    ) -> Option<Hlc> {
        let mut highest = None;
        if result.is_ok() {
            self.durable = self.fence;
            for (partitions, to) in &self.gc_watermarks {
                gc_watermarks.raise(partitions, *to);
                highest = highest.max(Some(*to));
            }
        }
        self.gc_watermarks.clear();
        done.extend(self.tokens.drain(..).map(|token| Completion::MadeDurable { token, result }));
        highest
    }
}
