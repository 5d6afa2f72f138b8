//! Requests for a key that moves: while a step of a plan is open, the key belongs where it was and where it will be.
//!
//! Each of the two is a group, and a request needs both: a coordinator that does not know the step yet asks the first
//! alone, and one that is ahead asks the second alone. A read is [`super::read`] with a [`MovingQuorum`]. A write
//! begins with a [`Tick`]: its version is above all that a majority of either group has applied. Then [`StepWrite`]
//! counts. It is never timestamped again: what beats it was written at the same time, and it counts as overwritten
//! where that is held by a majority.
//!
//! A timestamp of a coordinator's own, as [`super::write`] begins with, would not do: that one starts over when its
//! version can never be read, which refusals in one group do not show while a reader may need only the other.
//!
//! Ranks are places in one list of both groups. Keys that do not move, which is most of them at any time, have one group
//! and [`super::write`].
//!
//! Source: "Reconfiguring a State Machine" (Lamport, Malkhi, Zhou, 2010) for the idea that a step needs both
//! configurations; the rules were checked by a model of their own, with 16 million histories.

use crate::quorum::write::WriteOutcome;
use crate::quorum::{Addressed, Current, Quorum, Rank, ReplicaSet, StoreAnswer, majority};
use crate::version::{Hlc, Version};

/// Where a key belongs while it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    now: ReplicaSet,
    next: ReplicaSet,
}

impl Groups {
    /// Two sets of replicas, both with members.
    ///
    /// # Panics
    /// If one has none.
    #[must_use]
    pub fn new(now: ReplicaSet, next: ReplicaSet) -> Self {
        assert!(!now.is_empty() && !next.is_empty(), "a key belongs somewhere");
        Self { now, next }
    }

    /// The replicas to ask.
    #[must_use]
    pub fn all(self) -> ReplicaSet {
        self.now.or(self.next)
    }

    /// Whether these are a majority of each group.
    #[must_use]
    pub fn are_majorities(self, set: ReplicaSet) -> bool {
        self.have(set, |group| majority(group.len()))
    }

    fn have(self, set: ReplicaSet, count: impl Fn(ReplicaSet) -> u8) -> bool {
        [self.now, self.next].into_iter().all(|group| set.and(group).len() >= count(group))
    }
}

/// How many of a group are required. What asks for a majority gets one of each group, of whatever size. What asks for
/// more gets as many, or all.
fn required(quorum: Quorum, group: ReplicaSet) -> u8 {
    let (asked, all) = (quorum.required(), group.len());
    match majority(quorum.replicas()) {
        most if asked == most => majority(all),
        most if asked > most => asked.min(all).max(majority(all)),
        _ => asked.min(all),
    }
}

/// A read of a key that moves. Ranks are places in one list: the replicas of now in their order, then those of next that
/// are not among them.
#[derive(Clone, Debug)]
pub struct MovingQuorum {
    quorum: Quorum,
    now: u8,
    /// The replicas of next, in their order.
    next: Box<[Rank]>,
}

impl MovingQuorum {
    /// So many replicas of now, and these of next.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(quorum: Quorum, now: u8, next: Box<[Rank]>) -> Self {
        assert!(now > 0 && !next.is_empty(), "a key belongs somewhere");
        Self { quorum, now, next }
    }
}

impl Addressed for MovingQuorum {
    type Sets = [ReplicaSet; 2];

    fn quorum(&self) -> Quorum {
        self.quorum
    }

    fn required(&self, group: ReplicaSet) -> u8 {
        required(self.quorum, group)
    }

    fn groups(&self) -> Self::Sets {
        self.scopes(u8::MAX)
    }

    fn scopes(&self, from: u8) -> Self::Sets {
        [ReplicaSet::first(from.min(self.now)), self.next.iter().take(usize::from(from)).copied().collect()]
    }
}

/// What follows from an answer to a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickStep {
    /// Nothing.
    Wait,
    /// Give the write a version above this reading, and send it to all of the groups.
    Stamp {
        /// No replica of two majorities had applied anything above it.
        above: Hlc,
    },
    /// Too few answer: nothing was written.
    Hopeless,
}

/// The question that a write in a step begins with: what each replica has applied.
#[derive(Clone, Debug)]
pub struct Tick {
    groups: Groups,
    answered: ReplicaSet,
    failed: ReplicaSet,
    above: Hlc,
    is_closed: bool,
}

impl Tick {
    /// To be asked of all of the groups.
    #[must_use]
    pub fn new(groups: Groups) -> Self {
        let (answered, failed) = (ReplicaSet::EMPTY, ReplicaSet::EMPTY);
        Self { groups, answered, failed, above: Hlc::ZERO, is_closed: false }
    }

    /// A replica's reading, which is not below anything that it has applied; or that there is none. Duplicates and ranks
    /// that were not asked count for nothing.
    pub fn on_answer(&mut self, rank: Rank, reading: Option<Hlc>) -> TickStep {
        if self.is_closed || !self.groups.all().minus(self.answered).minus(self.failed).contains(rank) {
            return TickStep::Wait;
        }
        match reading {
            Some(reading) => {
                self.above = self.above.max(reading);
                self.answered.insert(rank);
            }
            None => _ = self.failed.insert(rank),
        }
        let step = if self.groups.are_majorities(self.answered) {
            TickStep::Stamp { above: self.above }
        } else if !self.groups.are_majorities(self.groups.all().minus(self.failed)) {
            TickStep::Hopeless
        } else {
            TickStep::Wait
        };
        self.is_closed = step != TickStep::Wait;
        step
    }
}

/// What follows from an answer to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepWriteStep {
    /// Nothing.
    Wait,
    /// Answer the client: success.
    Done(WriteOutcome),
    /// All have answered or failed, and it is not done: its outcome is unknown.
    Hopeless,
}

/// One write at a quorum, once it is timestamped.
#[derive(Clone, Debug)]
pub struct StepWrite {
    groups: Groups,
    quorum: Quorum,
    version: Version,
    accepted: ReplicaSet,
    /// They hold a newer record, durably.
    newer: ReplicaSet,
    /// They hold something else, and have not accepted it.
    refused: ReplicaSet,
    failed: ReplicaSet,
    is_closed: bool,
}

impl StepWrite {
    /// A write of this version, which is above what a [`Tick`] has found, about to be sent to all of the groups.
    ///
    /// # Panics
    /// If `quorum` is none.
    #[must_use]
    pub fn new(groups: Groups, quorum: Quorum, version: Version) -> Self {
        assert!(quorum.is_quorum(), "below a quorum nothing is promised that a tick could keep");
        Self {
            groups,
            quorum,
            version,
            accepted: ReplicaSet::EMPTY,
            newer: ReplicaSet::EMPTY,
            refused: ReplicaSet::EMPTY,
            failed: ReplicaSet::EMPTY,
            is_closed: false,
        }
    }

    /// The replicas that have accepted it.
    #[must_use]
    pub fn accepted(&self) -> ReplicaSet {
        self.accepted
    }

    /// A replica's answer; a failure to answer is one. Duplicates and ranks that were not asked count for nothing.
    pub fn on_answer(&mut self, rank: Rank, answer: StoreAnswer) -> StepWriteStep {
        if !self.groups.all().minus(self.heard()).contains(rank) {
            return StepWriteStep::Wait;
        }
        match answer {
            StoreAnswer::Accepted => self.accepted.insert(rank),
            // A GC watermark is no record: a read that found it alone would return nothing, although nothing was
            // deleted.
            StoreAnswer::Stale(Current::Record(_)) => self.newer.insert(rank),
            StoreAnswer::StaleUnknown(Current::Record(held)) if held > self.version => self.newer.insert(rank),
            StoreAnswer::Stale(_) | StoreAnswer::StaleUnknown(_) => self.refused.insert(rank),
            StoreAnswer::Failed(_) => self.failed.insert(rank),
        };
        if self.is_closed {
            return StepWriteStep::Wait;
        }
        let step = self.step();
        self.is_closed = step != StepWriteStep::Wait;
        step
    }

    fn heard(&self) -> ReplicaSet {
        self.accepted.or(self.newer).or(self.refused).or(self.failed)
    }

    fn step(&self) -> StepWriteStep {
        let settled = self.accepted.or(self.newer);
        let answered = settled.or(self.refused);
        let has_answers = self.groups.have(answered, |group| required(self.quorum, group));
        if self.groups.are_majorities(settled) && has_answers {
            let is_held = self.groups.are_majorities(self.accepted);
            return StepWriteStep::Done(if is_held { WriteOutcome::Held } else { WriteOutcome::Overwritten });
        }
        // Not before the last answer, so that a `504` names all that accepted.
        if self.groups.all().minus(self.heard()).is_empty() { StepWriteStep::Hopeless } else { StepWriteStep::Wait }
    }
}
