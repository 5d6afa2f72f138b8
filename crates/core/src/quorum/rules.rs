//! The rules of the register, one function each. Beside each is the defect that the simulator plants in its place
//! ([`crate::mutant`]): a test shows that each is noticed. `is_kept` has none: the orders of faults that would show it
//! are in `tests/quorum_cases.rs`.
//!
//! The state machines ([`super::write`], [`super::read`]) and the replica ([`super::replica`]) call rules by name. What
//! a rule is for stands here; why all of them together give a linearizable register is in the documents
//! ("Consistency").

use super::{Addressed, Current, Expiry, ReplicaSet, StoreAnswer, majority};
use crate::mutant::{Mutant, is_on};
use crate::version::Version;

/// **A write is held once a majority of its replicas has accepted it.** Any two majorities share a replica, so every
/// later read finds it.
#[inline]
pub(super) fn is_held_by_majority(accepted: u8, from: u8) -> bool {
    let required = majority(from);
    if is_on(Mutant::AnswerBeforeMajority) && required > 1 {
        return accepted + 1 >= required;
    }
    accepted >= required
}

/// **Only `Stale` is a promise never to accept the version.** `StaleUnknown` says what is held, and no more.
#[inline]
pub(super) fn is_promise(answer: StoreAnswer) -> bool {
    match answer {
        StoreAnswer::Stale(_) => true,
        StoreAnswer::StaleUnknown(_) => is_on(Mutant::StaleUnknownAsStale),
        StoreAnswer::Accepted | StoreAnswer::Failed(_) => false,
    }
}

/// **A write starts over only once its version can never be read:** so many replicas have promised never to accept it
/// that no majority is left.
#[inline]
pub(super) fn can_never_be_held(promises: u8, from: u8) -> bool {
    promises > from - majority(from) || is_on(Mutant::RetryUnblocked) && promises > 0
}

/// **Only a write that has started over may count as overwritten.** Its second version is above all that beat the
/// first, so what beats it too was written at the same time.
#[inline]
pub(super) fn may_be_overwritten(is_first_attempt: bool) -> bool {
    !is_first_attempt || is_on(Mutant::OverwrittenAtOnce)
}

/// **What is overwritten at once is kept by a majority,** in itself or in something newer (decision 0044).
#[inline]
pub(super) fn is_kept(accepted: u8, promises: u8, from: u8) -> bool {
    accepted + promises >= majority(from)
}

/// **The version of a second attempt is above every version in any answer.**
#[inline]
#[must_use]
pub fn is_above_all_seen(version: Version, newest: Version) -> bool {
    version.hlc > newest.hlc || is_on(Mutant::RetryNotAbove)
}

/// **A read waits for `ack` answers that count.** While a key moves, of each of its groups.
#[inline]
pub(super) fn has_enough_answers(addressed: &impl Addressed, answered: ReplicaSet) -> bool {
    let required = |group| match addressed.required(group) {
        required if is_on(Mutant::ReadBelowAck) && required > 1 => required - 1,
        required => required,
    };
    addressed.groups().as_ref().iter().all(|group| answered.and(*group).len() >= required(*group))
}

/// **A refused write-back is no copy.** The replica holds something newer, and that is what it has answered.
#[inline]
pub(super) fn is_copy(answer: StoreAnswer) -> bool {
    match answer {
        StoreAnswer::Accepted => true,
        StoreAnswer::Stale(_) => is_on(Mutant::StaleAsHeld),
        StoreAnswer::StaleUnknown(_) | StoreAnswer::Failed(_) => false,
    }
}

/// **What is read is held by the replicas that reported it, and those that have confirmed a write-back.** Neither one
/// that a write-back was only `sent` to, nor one with an `absent` record.
#[inline]
pub(super) fn holders(confirmed: ReplicaSet, sent: ReplicaSet, absent: impl FnOnce() -> ReplicaSet) -> ReplicaSet {
    let confirmed = if is_on(Mutant::WriteBackUnconfirmed) { confirmed.or(sent) } else { confirmed };
    if is_on(Mutant::AbsentAsHeld) { confirmed.or(absent()) } else { confirmed }
}

/// **A read at a quorum answers what a majority holds:** every later read will find it. Below a quorum the client has
/// chosen not to wait for that.
#[inline]
pub(super) fn may_be_answered(held: u8, scope: u8, is_quorum: bool) -> bool {
    !is_quorum || held >= majority(scope) || is_on(Mutant::SkipWriteBack)
}

/// **What is older never replaces what is newer.**
#[inline]
pub(super) fn is_superseded(version: Version, current: Current) -> bool {
    version <= current.version() && !is_on(Mutant::AcceptOlder)
}

/// Which replicas' clocks, as their answers show them, have passed the end of a value, and which have not.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClocksAtEnd {
    /// At the end or behind it.
    pub(super) passed: ReplicaSet,
    /// Before it, although they were asked to follow a clock behind the end, and have answered since.
    pub(super) cannot_follow: ReplicaSet,
}

/// **A value that has ended is held by a majority before it is answered as deleted,** like every other deletion: where
/// its replicas miss it, an older value would come back.
#[inline]
pub(super) fn needs_no_holders(has_ended: impl FnOnce() -> bool) -> bool {
    is_on(Mutant::ExpiredNotHeld) && has_ended()
}

/// **A value has ended once the clocks of a majority have passed its end,** durably. Every later quorum read counts one
/// of them, so that none finds the value again.
#[inline]
pub(super) fn has_ended(clocks: ClocksAtEnd, groups: &[ReplicaSet]) -> bool {
    let required = |group: &ReplicaSet| if is_on(Mutant::ExpiredByOneClock) { 1 } else { majority(group.len()) };
    groups.iter().all(|group| clocks.passed.and(*group).len() >= required(group))
}

/// **A value is served while no clock that is known has passed its end,** neither the coordinator's nor a replica's, or
/// else while a majority cannot follow the clock that has.
#[inline]
pub(super) fn has_not_ended(clocks: ClocksAtEnd, is_own_passed: bool, groups: &[ReplicaSet]) -> bool {
    if is_on(Mutant::AliveByOwnClock) {
        return !is_own_passed;
    }
    let is_before_all = clocks.passed.is_empty() && !is_own_passed;
    // Of one group is enough: no read can have had a majority of it that has passed.
    is_before_all || groups.iter().any(|group| clocks.cannot_follow.and(*group).len() >= majority(group.len()))
}

/// Below a quorum one clock that has passed the end is enough: nothing is promised there.
#[inline]
pub(super) fn expiry_below_quorum(clocks: ClocksAtEnd, is_own_passed: bool) -> Expiry {
    if clocks.passed.is_empty() && !is_own_passed { Expiry::Ahead } else { Expiry::Passed }
}
