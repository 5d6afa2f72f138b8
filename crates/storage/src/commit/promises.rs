//! What the commit thread promises: the fence and the GC watermarks of anti-entropy, and the bar of a step of the layout.
//! All are durable before they are answered.
//!
//! Fence and bar hold from the moment at which they are added, for the rest of their batch too: what is higher than the
//! durable one refuses stragglers earlier than was asked, and promises nothing. GC watermarks hold only once they are
//! durable.

use std::sync::Arc;

use kvorum_base::sync::atomic::{AtomicU64, Ordering};
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
const BAR: &str = "bar";

/// Durably removes how far partitions were proven converged, and the bar: for a store whose peers go back to an earlier
/// state, too. They may lack what was proven, and their cluster is founded again. Blocks.
///
/// # Errors
/// As [`Store::metadata`] and [`Store::commit`].
pub fn forget_promises(store: &impl Store) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    if store.metadata(GC_WATERMARKS)?.is_some() {
        batch.put_metadata(GC_WATERMARKS, GcWatermarks::default().encode_with(&[]));
    }
    if store.metadata(BAR)?.is_some() {
        batch.put_metadata(BAR, 0_u64.to_be_bytes().to_vec());
    }
    if batch.is_empty() { Ok(()) } else { store.commit(&batch, Durability::Fsync) }
}

/// Fence and bar, and what a batch adds.
#[derive(Debug)]
pub(super) struct Promises {
    bar: u64,
    /// What of `bar` is durable; for the shards, which look at it after each read.
    durable_bar: Arc<AtomicU64>,
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
        let damaged_bar = |_| StoreError::Corrupt("the bar is not 8 bytes long".to_owned());
        let bar = match store.metadata(BAR)? {
            None => 0,
            Some(bytes) => u64::from_be_bytes(bytes.try_into().map_err(damaged_bar)?),
        };
        let fence = match store.metadata(FENCE)? {
            None => Hlc::ZERO,
            Some(bytes) => Hlc::from_raw(u64::from_be_bytes(bytes.try_into().map_err(damaged)?)),
        };
        if let Some(bytes) = store.metadata(GC_WATERMARKS)? {
            store.gc_watermarks().load(&bytes)?;
        }
        let (durable_bar, gc_watermarks, tokens) = (Arc::new(AtomicU64::new(bar)), Vec::new(), Vec::new());
        Ok(Self { bar, durable_bar, fence, durable: fence, gc_watermarks, tokens })
    }

    /// What was asked by an older layout is refused.
    pub(super) fn bar(&self) -> u64 {
        self.bar
    }

    /// The bar once it is durable.
    pub(super) fn durable_bar(&self) -> Arc<AtomicU64> {
        self.durable_bar.clone()
    }

    /// Up to where clients' writes are refused.
    pub(super) fn fence(&self) -> Version {
        Version::last_of(self.fence)
    }

    /// The fence, if this batch raises it.
    pub(super) fn fence_wanted(&self) -> Hlc {
        if self.fence > self.durable { self.fence } else { Hlc::ZERO }
    }

    /// Adds a promise to the batch.
    pub(super) fn add(&mut self, promise: Promise, token: CompletionToken) {
        match promise {
            Promise::Fence(to) => self.fence = self.fence.max(to),
            Promise::GcWatermarks(partitions, to) => self.gc_watermarks.push((partitions, to)),
            Promise::Bar(epoch) => self.bar = self.bar.max(epoch),
        }
        self.tokens.push(token);
    }

    /// Whether the batch has something that others rely on once it is there: of this batch, or of one that failed.
    pub(super) fn must_be_synced(&self) -> bool {
        !self.tokens.is_empty() || self.fence > self.durable || self.bar > self.durable_bar.load(Ordering::Relaxed)
    }

    /// Puts what is to be made durable into the batch.
    pub(super) fn put_into(&self, batch: &mut Batch, gc_watermarks: &GcWatermarks) {
        if self.fence > self.durable {
            batch.put_metadata(FENCE, self.fence.raw().to_be_bytes().to_vec());
        }
        if self.bar > self.durable_bar.load(Ordering::Relaxed) {
            batch.put_metadata(BAR, self.bar.to_be_bytes().to_vec());
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
            // A read that has found something looks at it afterwards.
            self.durable_bar.store(self.bar, Ordering::Release);
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
