//! One request: which replicas were asked, their answers, and what its client gets.

use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::quorum::read::Read;
use kvorum_core::quorum::write::{Attempt, Write};
use kvorum_core::quorum::{Quorum, Rank, ReplicaSet};
use kvorum_core::{Key, PartitionId, Record, Version};

use super::api::{ReadResult, Receipt, Refused, ReplicaReceipt, WithReceipt, WriteResult};
use super::slow::SlowReplica;
use crate::pinned_layout::PinnedLayout;

/// What a client's future receives.
pub enum Outcome {
    /// Of a write.
    Written(WriteResult),
    /// Of a read.
    Found(ReadResult),
}

/// What one replica did, for the receipt.
#[derive(Clone, Copy, Default)]
pub(super) struct ReplicaNote {
    outcome: &'static str,
    version: Option<Version>,
    /// From the request's begin to the answer.
    micros: Option<u32>,
    /// When it was asked last, for a read.
    asked: Duration,
}

impl ReplicaNote {
    fn outcome(&self) -> &'static str {
        if self.outcome.is_empty() { "no-answer" } else { self.outcome }
    }
}

#[expect(clippy::large_enum_variant, reason = "it lives in the table's slots, not on its own")]
pub(super) enum StateMachine {
    Write { machine: Write, record: Record, attempts: Attempts },
    Read { machine: Read, write_back: Version, repaired: ReplicaSet },
}

pub(super) struct Operation {
    /// It holds for this request to its end.
    pub(super) layout: PinnedLayout,
    pub(super) generation: u32,
    pub(super) round: u8,
    pub(super) key: Key,
    pub(super) partition: PartitionId,
    pub(super) quorum: Quorum,
    pub(super) machine: StateMachine,
    pub(super) started: Duration,
    /// From then until it was sent.
    pub(super) queued: Duration,
    pub(super) deadline: Duration,
    /// Asked for a read, or for a store of this round, and not yet answered.
    pub(super) reading: ReplicaSet,
    pub(super) storing: ReplicaSet,
    /// Replicas whose store, of any round, waited for a connection: their answers promise nothing.
    pub(super) deferred: ReplicaSet,
    /// Replicas that do not yet hold what is written, for all that is known.
    pub(super) owed: ReplicaSet,
    /// This node's own answer counts, for it voted.
    pub(super) is_own_vote_counted: bool,
    pub(super) notes: Vec<ReplicaNote>,
    pub(super) with_receipt: WithReceipt,
    /// A write of which something has left this shard.
    pub(super) is_sent: bool,
    /// When a read that is still undecided is hedged again.
    pub(super) hedge_at: Duration,
    /// A read that cannot succeed, and waits a moment for those that it has asked: its `504` counts them.
    pub(super) is_hopeless: bool,
    pub(super) outcome: Option<Result<Outcome, Refused>>,
    /// Decided: nothing more goes to the client.
    pub(super) is_decided: bool,
    /// The client's future has its outcome, or is gone.
    pub(super) is_released: bool,
    pub(super) waker: Option<Waker>,
}

impl Operation {
    pub(super) fn replicas(&self) -> &[NodeId] {
        replicas(&self.layout, self.partition, self.quorum)
    }

    pub(super) fn rank(&self, node: NodeId) -> Option<Rank> {
        let index = self.replicas().iter().position(|replica| *replica == node)?;
        u8::try_from(index).ok().map(Rank)
    }

    pub(super) fn note(&mut self, rank: Rank, outcome: &'static str, version: Option<Version>, took: Duration) {
        if let Some(note) = self.notes.get_mut(usize::from(rank.0)) {
            *note = ReplicaNote { outcome, version, micros: u32::try_from(took.as_micros()).ok(), asked: note.asked };
        }
    }

    /// What each replica has done so far.
    pub(super) fn slow_replicas(&self) -> Vec<SlowReplica> {
        let entry = |(node, note): (&NodeId, &ReplicaNote)| SlowReplica {
            node: *node,
            outcome: note.outcome(),
            version: note.version,
            took: note.micros.map(|micros| Duration::from_micros(micros.into())),
        };
        self.replicas().iter().zip(&self.notes).map(entry).collect()
    }

    /// What was answered is about an earlier attempt, and not for the receipt.
    pub(super) fn forget_notes(&mut self) {
        self.notes.fill(ReplicaNote::default());
    }

    pub(super) fn note_asked(&mut self, rank: Rank, now: Duration) {
        self.reading.insert(rank);
        if let Some(note) = self.notes.get_mut(usize::from(rank.0)) {
            note.asked = now;
        }
    }

    /// How long a replica has had for its answer to a read.
    pub(super) fn waited_for(&self, rank: Rank, now: Duration) -> Duration {
        now.saturating_sub(self.notes.get(usize::from(rank.0)).map_or(self.started, |note| note.asked))
    }

    pub(super) fn receipt(&self) -> Receipt {
        let entry = |(node, note): (&NodeId, &ReplicaNote)| ReplicaReceipt {
            node: Rc::from(self.layout.node(*node).map_or("", |node| &node.url)),
            outcome: note.outcome(),
            version: note.version,
            micros: note.micros,
        };
        Receipt { replicas: self.replicas().iter().zip(&self.notes).map(entry).collect() }
    }

    pub(super) fn node(&self, rank: Rank) -> Option<NodeId> {
        self.replicas().get(usize::from(rank.0)).copied()
    }

    /// Decides once what the client gets, and wakes it.
    pub(super) fn decide(&mut self, outcome: Result<Outcome, Refused>) {
        if !self.is_decided {
            self.is_decided = true;
            self.outcome = Some(outcome);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }

    /// Nothing waits for it: neither its client nor one of the replicas that have a write to confirm, or may turn out
    /// to be behind what was read.
    pub(super) fn is_over(&self) -> bool {
        self.is_released && self.is_over_when_released()
    }

    pub(super) fn is_over_when_released(&self) -> bool {
        match &self.machine {
            StateMachine::Write { .. } => self.storing.is_empty(),
            StateMachine::Read { machine, .. } => {
                self.quorum.is_quorum() || machine.answered_record().is_none() || self.reading.is_empty()
            }
        }
    }

    /// Answers that count, for the body of a `504`. The answers may be enough in number and still not in content; then
    /// the one that is missing is a replica that holds what was read.
    pub(super) fn acked(&self) -> u8 {
        let acked = match &self.machine {
            StateMachine::Write { machine, .. } => machine.acked(),
            StateMachine::Read { machine, .. } => machine.answered().len(),
        };
        acked.min(self.quorum.required() - 1)
    }
}

/// Where a request goes that asks this quorum for a key of this partition.
pub(super) fn replicas(layout: &Layout, partition: PartitionId, quorum: Quorum) -> &[NodeId] {
    let all = layout.preference_list(partition);
    all.get(..usize::from(quorum.replicas())).unwrap_or(all)
}

/// The attempts of a write, by the round that a frame's id names.
pub(super) struct Attempts(Vec<Attempt>);

impl Attempts {
    pub(super) fn first() -> Self {
        Self(Vec::new())
    }

    pub(super) fn add(&mut self, attempt: Attempt) {
        self.0.push(attempt);
    }

    /// Rounds count from one, and the first attempt is always there.
    pub(super) fn named(&self, round: u8) -> Option<Attempt> {
        match round.checked_sub(2) {
            None => Some(Attempt::FIRST),
            Some(index) => self.0.get(usize::from(index)).copied(),
        }
    }
}
