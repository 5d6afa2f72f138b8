//! One PUT or DELETE: when it is done, when it starts over, when it is lost.
//!
//! Owns the counting of answers, nothing else. The coordinator timestamps, sends to all `from` replicas, feeds every
//! answer in, and does the step; the deadline is its own (at the deadline the outcome is unknown).
//!
//! Promises: at quorum, [`WriteStep::Done`] means that every later quorum read of the key returns this write or a newer
//! one. It does *not* keep more of an answer than the rules need: the failure's kind and the time of each answer,
//! needed in a receipt, stay with the coordinator.
//!
//! Invariants: an answer is counted once per replica and attempt; answers of an earlier attempt
//! count for nothing (they are about another version) but their versions still raise the next timestamp;
//! `Done`, `Hopeless` are returned at most once and nothing but `Wait` follows them; answers keep
//! being recorded then, for [`Write::accepted`].
//!
//! Source: Attiya, Bar-Noy, Dolev (1995), multi-writer; `docs/explanation/consistency.md`, "The protocol".

use super::rules;
use crate::quorum::{Current, Quorum, Rank, ReplicaSet, StoreAnswer};
use crate::version::Version;

/// Attempts of one write at most. Two are the rule; more only where a GC watermark was in the way, and a
/// GC watermark moves once per round of anti-entropy.
pub const ATTEMPTS_MAX: u8 = 4;

/// Which timestamp of a write an answer is about: 1 is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u8);

impl Attempt {
    /// The first.
    pub const FIRST: Self = Self(1);

    /// Its number, from 1 to [`ATTEMPTS_MAX`].
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }
}

/// How a write succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Enough replicas have accepted it.
    Held,
    /// Concurrent writes beat it twice: it took effect and was overwritten at once.
    Overwritten,
}

/// What the coordinator has to do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStep {
    /// Nothing.
    Wait,
    /// Timestamp it with a version greater than `above` (and than [`Write::newest`], which answers that arrive
    /// while the timestamp is made may have raised), call [`Write::retried`], send to all again.
    RetryWithHigherTimestamp {
        /// The greatest version in any answer.
        above: Version,
    },
    /// Answer the client: success.
    Done(WriteOutcome),
    /// Every replica has answered or failed, and the write can no longer succeed: `504` at once instead of at the
    /// deadline. Not before the last answer, so that the `504` names all that accepted.
    Hopeless,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WritePhase {
    /// Waiting for answers.
    Open,
    /// `RetryWithHigherTimestamp` was returned; waiting for [`Write::retried`].
    Blocked,
    /// `Done` or `Hopeless` was returned.
    Closed,
}

/// The state of one write: sets of replicas, no allocation.
#[derive(Clone, Debug)]
pub struct Write {
    quorum: Quorum,
    attempt: Attempt,
    phase: WritePhase,
    accepted: ReplicaSet,
    stale: ReplicaSet,
    stale_unknown: ReplicaSet,
    failed: ReplicaSet,
    /// Whether a GC watermark is among the answers in `stale`.
    gc_watermark_among_stale: bool,
    newest: Version,
}

impl Write {
    /// A write whose first attempt is about to be sent to all `quorum.replicas()` replicas.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            attempt: Attempt::FIRST,
            phase: WritePhase::Open,
            accepted: ReplicaSet::EMPTY,
            stale: ReplicaSet::EMPTY,
            stale_unknown: ReplicaSet::EMPTY,
            failed: ReplicaSet::EMPTY,
            gc_watermark_among_stale: false,
            newest: Version::ZERO,
        }
    }

    /// The attempt whose answers count now.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The greatest version in any answer so far, of any attempt.
    #[must_use]
    pub fn newest(&self) -> Version {
        self.newest
    }

    /// The replicas that have accepted the current attempt.
    #[must_use]
    pub fn accepted(&self) -> ReplicaSet {
        self.accepted
    }

    /// How many replicas have accepted the current attempt.
    #[must_use]
    pub fn acked(&self) -> u8 {
        self.accepted.len()
    }

    /// The write has a new timestamp, greater than every version in any answer, and is sent to all again:
    /// counting begins anew. The earlier timestamp may live on at a minority; the new one is newer.
    ///
    /// # Panics
    /// Unless [`WriteStep::RetryWithHigherTimestamp`] was returned since the last attempt began.
    pub fn retried(&mut self) -> Attempt {
        assert_eq!(self.phase, WritePhase::Blocked, "only a blocked write gets a second timestamp");
        let attempt = Attempt(self.attempt.0 + 1);
        *self = Self { attempt, newest: self.newest, ..Self::new(self.quorum) };
        attempt
    }

    /// One replica's answer to one attempt; a failure to answer is an answer, and final for that attempt.
    /// Duplicates, answers of earlier attempts and ranks that were not addressed count for nothing.
    pub fn on_answer(&mut self, attempt: Attempt, rank: Rank, answer: StoreAnswer) -> WriteStep {
        if let StoreAnswer::Stale(current) | StoreAnswer::StaleUnknown(current) = answer {
            self.newest = self.newest.max(current.version());
        }
        if attempt != self.attempt || rank.0 >= self.quorum.replicas() || self.has_answered(rank) {
            return WriteStep::Wait;
        }
        match answer {
            StoreAnswer::Accepted => self.accepted.insert(rank),
            StoreAnswer::Stale(current) => {
                self.gc_watermark_among_stale |= matches!(current, Current::GcWatermark(_));
                self.stale.insert(rank)
            }
            StoreAnswer::StaleUnknown(_) if rules::is_promise(answer) => self.stale.insert(rank),
            StoreAnswer::StaleUnknown(_) => self.stale_unknown.insert(rank),
            StoreAnswer::Failed(_) => self.failed.insert(rank),
        };
        if self.phase != WritePhase::Open {
            return WriteStep::Wait;
        }
        let step = if self.quorum.is_quorum() { self.quorum_step() } else { self.available_step() };
        self.phase = match step {
            WriteStep::Wait => WritePhase::Open,
            WriteStep::RetryWithHigherTimestamp { .. } => WritePhase::Blocked,
            WriteStep::Done(_) | WriteStep::Hopeless => WritePhase::Closed,
        };
        step
    }

    fn has_answered(&self, rank: Rank) -> bool {
        [self.accepted, self.stale, self.stale_unknown, self.failed].iter().any(|set| set.contains(rank))
    }

    /// Replicas with an answer about the key, whatever it was.
    fn answered(&self) -> u8 {
        self.accepted.len() + self.stale.len() + self.stale_unknown.len()
    }

    fn quorum_step(&self) -> WriteStep {
        let from = self.quorum.replicas();
        // 1. Every write completed before this one began was accepted by a majority, shares a replica
        //    with ours, and that replica accepted ours after it: ours is newer. That needs q accepts;
        //    what the client asked for beyond q is that replicas answer, and a refusal as stale
        //    is an answer: that replica holds something newer, durably.
        if rules::is_held_by_majority(self.accepted.len(), from) && self.answered() >= self.quorum.required() {
            return WriteStep::Done(WriteOutcome::Held);
        }
        // 2. So many have promised never to accept it that it can never reach a majority: no quorum read
        //    has returned it or will. `StaleUnknown` is no promise and does not count here.
        if rules::can_never_be_held(self.stale.len(), from) {
            return self.blocked();
        }
        // 3. Otherwise the outcome is unknown, at the deadline, or as soon as no replica is left to answer.
        self.hopeless_if_all_answered()
    }

    fn blocked(&self) -> WriteStep {
        // The second timestamp is newer than all that blocked the first, which overlapped every majority that had
        // completed a write before we began. So the records that block it too are concurrent with us, and every later
        // read finds one of them: ours came just before, and is overwritten.
        if rules::may_be_overwritten(self.attempt == Attempt::FIRST) && !self.gc_watermark_among_stale {
            // As many copies of it, or of something newer, as of any write that is acknowledged: with an even n fewer
            // are enough to block.
            let is_kept = rules::is_kept(self.accepted.len(), self.stale.len(), self.quorum.replicas());
            if is_kept && self.answered() >= self.quorum.required() {
                return WriteStep::Done(WriteOutcome::Overwritten);
            }
            return self.hopeless_if_all_answered();
        }
        // A GC watermark is no write: a read that found only the GC watermark would return nothing, although nothing
        // was deleted. So a block with a GC watermark in it never excuses us.
        self.retry_or(WriteStep::Hopeless)
    }

    /// The client chose availability: any `ack` accepts do, and none of the above is promised. A replica
    /// that holds something newer, promise or not, shows that our clock is behind: once more, so that what is
    /// acknowledged is newer than what the acknowledging replicas held.
    fn available_step(&self) -> WriteStep {
        if self.accepted.len() >= self.quorum.required() {
            return WriteStep::Done(WriteOutcome::Held);
        }
        if self.attempt == Attempt::FIRST && self.stale.len() + self.stale_unknown.len() > 0 {
            return self.retry_or(WriteStep::Wait);
        }
        self.hopeless_if_all_answered()
    }

    fn retry_or(&self, exhausted: WriteStep) -> WriteStep {
        if self.attempt.0 < ATTEMPTS_MAX {
            WriteStep::RetryWithHigherTimestamp { above: self.newest }
        } else {
            exhausted
        }
    }

    fn hopeless_if_all_answered(&self) -> WriteStep {
        if self.answered() + self.failed.len() == self.quorum.replicas() {
            WriteStep::Hopeless
        } else {
            WriteStep::Wait
        }
    }
}
