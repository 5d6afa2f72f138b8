//! Hints: a write that a replica did not confirm is kept here, at its coordinator, and delivered when the replica
//! is back. The policy is `kvorum_core::hints`; this is what carries it out.
//!
//! The path of a hint: a shard [`offer`](HintQueue::offer)s it when its write has come to its end; the background
//! shard's [`hint_store`] writes what has gathered, in bulk and without a sync of its own; its hint senders, one for
//! each other node, deliver. It is removed, on the disk too, only after the target has answered that it holds the
//! version or a newer one.
//!
//! Promises: no answer waits for a hint. What is kept is bounded in bytes and age for each target, what waits to be
//! written in bytes; what is over a bound is dropped and counted. What was written survives the process, not the
//! machine. Does *not* promise that a hint is delivered: what guarantees convergence is anti-entropy, of which a node
//! gets a round at its return if hints for it were dropped.
//!
//! A hint is no ack and no answer: shards put hints in and never take any out, readers see the other column family,
//! and what a target answers goes to [`BackgroundRpc`](crate::background_rpc::BackgroundRpc), which no request of a
//! client is in.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hint_pace;
mod hint_sender;
pub mod hint_store;
mod names;
pub mod run;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use kvorum_base::sync::{Mutex, MutexGuard, Notify};
use kvorum_base::waits::QueueWaits;
use kvorum_core::hints::{BacklogBounds, Size};
use kvorum_core::node::NodeId;
use kvorum_core::{Key, Record};

/// What a hint takes beside its key and its record, about.
const OVERHEAD_BYTES: usize = 128;

/// Limits of hints.
#[derive(Clone, Copy, Debug)]
pub struct HintSettings {
    /// What is kept for each node; no bytes: nothing is.
    pub bounds: BacklogBounds,
    /// Bytes a second that are delivered to each node at most.
    pub rate: u64,
    /// Bytes that wait to be written.
    pub queue_bytes_max: usize,
}

impl HintSettings {
    /// No hints.
    pub const OFF: Self =
        Self { bounds: BacklogBounds { bytes_max: 0, age_max: Duration::ZERO }, rate: 0, queue_bytes_max: 0 };
}

/// A write, and the nodes without it.
pub struct Hint {
    key: Key,
    record: Record,
    owed: Vec<NodeId>,
}

impl Hint {
    #[cfg(all(test, feature = "interleavings"))]
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    fn bytes(&self) -> usize {
        self.key.as_bytes().len() + self.record.bytes().len() + OVERHEAD_BYTES
    }
}

/// Why a hint was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The queue to the background shard was full.
    QueueFull,
    /// The store did not take it.
    Store,
    /// More than `hints.bytes_max` for its target, and it was among the oldest.
    Bytes,
    /// Older than `hints.age_max`.
    Age,
    /// Its target is no node of the layout, or no replica of its key: the layout was changed.
    NoReplica,
    /// It was damaged on the disk.
    Damaged,
    /// Its target refused it and holds nothing newer: it came too late, or what is held is damaged. Left to
    /// anti-entropy.
    Refused,
}

impl Dropped {
    /// All reasons.
    pub const ALL: [Self; 7] =
        [Self::QueueFull, Self::Store, Self::Bytes, Self::Age, Self::NoReplica, Self::Damaged, Self::Refused];

    /// As metrics name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::Store => "store",
            Self::Bytes => "bytes",
            Self::Age => "age",
            Self::NoReplica => "no-replica",
            Self::Damaged => "damaged",
            Self::Refused => "refused",
        }
    }
}

/// What is counted for one target. Written by the background shard, read by anyone.
#[derive(Debug, Default)]
pub struct TargetMetrics {
    /// Hints kept now.
    pub pending: AtomicU64,
    /// Their bytes.
    pub pending_bytes: AtomicU64,
    /// When the oldest of them was kept, to a minute, in milliseconds of the wall clock; zero without any.
    pub oldest_ms: AtomicU64,
    /// Hints kept so far.
    pub kept: AtomicU64,
    /// Of these, hints that the target has taken, or holds something newer than.
    pub delivered: AtomicU64,
    /// Of these, hints left out because a newer one of their key was delivered.
    pub superseded: AtomicU64,
    /// Bytes a second that it is sent at most, now, each hint counted as `HINT_BYTES` more.
    pub rate: AtomicU64,
    /// Hints for it were dropped since it was last brought up to date by a round.
    missed: AtomicBool,
}

/// Hints on their way from the shards to the background shard, and what is counted of all of them.
pub struct HintQueue {
    settings: HintSettings,
    waiting: Mutex<WaitingHints>,
    filled: Notify,
    /// Each that was a target in this run.
    targets: Mutex<BTreeMap<NodeId, Arc<TargetMetrics>>>,
    dropped: [AtomicU64; Dropped::ALL.len()],
}

#[derive(Default)]
struct WaitingHints {
    hints: VecDeque<Hint>,
    bytes: usize,
    waits: QueueWaits,
}

impl WaitingHints {
    fn pop(&mut self) -> Option<Hint> {
        self.waits.before_take("hints", self.hints.len(), self.hints.len().min(1));
        self.hints.pop_front()
    }
}

impl HintQueue {
    /// An empty one.
    #[must_use]
    pub fn new(settings: HintSettings) -> Self {
        Self {
            settings,
            waiting: Mutex::default(),
            filled: Notify::new(),
            targets: Mutex::default(),
            dropped: Default::default(),
        }
    }

    /// Limits.
    #[must_use]
    pub fn settings(&self) -> HintSettings {
        self.settings
    }

    /// Takes a write that was sent, for those of its replicas that have not settled it. Never waits: what there is
    /// no room for is dropped.
    pub fn offer(&self, key: &Key, record: &Record, owed: Vec<NodeId>) {
        if self.settings.bounds.bytes_max == 0 || owed.is_empty() {
            return;
        }
        let missing = u64::try_from(owed.len()).unwrap_or(u64::MAX);
        let hint = Hint { key: key.clone(), record: record.clone(), owed };
        let mut waiting = self.lock();
        // One of any size finds room where there is no other.
        if waiting.bytes > 0 && waiting.bytes + hint.bytes() > self.settings.queue_bytes_max {
            // While the queue cannot change: what was handed over is either waiting or counted.
            self.count_dropped(Dropped::QueueFull, missing);
            drop(waiting);
            return hint.owed.iter().for_each(|node| self.note_missed(*node));
        }
        let was_empty = waiting.hints.is_empty();
        let length = waiting.hints.len();
        waiting.waits.before_put(length);
        waiting.bytes += hint.bytes();
        waiting.hints.push_back(hint);
        drop(waiting);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Waits until a hint came while there was none. Cancel safe.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// The oldest hints, of about `bytes`, at least one if there is any.
    pub(crate) fn take(&self, bytes: usize) -> Vec<Hint> {
        let mut waiting = self.lock();
        let mut taken = Vec::new();
        let mut left = bytes;
        while let Some(hint) = waiting.pop() {
            waiting.bytes -= hint.bytes();
            left = left.saturating_sub(hint.bytes());
            taken.push(hint);
            if left == 0 {
                break;
            }
        }
        taken
    }

    /// A hint for this node was dropped: when it is back it needs a round of anti-entropy.
    fn note_missed(&self, node: NodeId) {
        self.target(node).missed.store(true, Ordering::Relaxed);
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// What is counted for a node.
    #[must_use]
    pub fn target(&self, node: NodeId) -> Arc<TargetMetrics> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).entry(node).or_default().clone()
    }

    /// Hints dropped for a reason.
    #[must_use]
    pub fn dropped(&self, why: Dropped) -> u64 {
        self.dropped.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The nodes that the waiting hints are for.
    #[cfg(test)]
    pub(crate) fn owed(&self) -> Vec<Vec<NodeId>> {
        self.lock().hints.iter().map(|hint| hint.owed.clone()).collect()
    }

    fn count_dropped(&self, why: Dropped, hints: u64) {
        if let Some(count) = self.dropped.get(why as usize) {
            count.fetch_add(hints, Ordering::Relaxed);
        }
    }

    fn note_pending(&self, node: NodeId, size: Size, oldest_ms: Option<u64>) {
        let target = self.target(node);
        target.pending.store(size.hints, Ordering::Relaxed);
        target.pending_bytes.store(size.bytes, Ordering::Relaxed);
        target.oldest_ms.store(oldest_ms.unwrap_or(0), Ordering::Relaxed);
    }

    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, WaitingHints> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
