//! The rules of the chain, one function each, and beside each the defect that a test plants in its place
//! ([`crate::mutant`]).

use super::{Ballot, ChainValue};
use crate::mutant::{Mutant, is_on};
use crate::node::{DirectoryId, NodeId};

/// **The members that an epoch names decide the one after it.** A joiner decides nothing before it is one.
pub(super) fn deciding<V: ChainValue>(parent: &V, next: &V) -> Vec<NodeId> {
    let of = if is_on(Mutant::NextDecidesItself) { next } else { parent };
    of.voters().map(|voter| voter.member).collect()
}

/// **A member that has promised a ballot accepts nothing below it.**
pub(super) fn is_kept_out(ballot: Ballot, promised: Ballot) -> bool {
    ballot < promised && !is_on(Mutant::PromiseForgotten)
}

/// **A proposer proposes what was accepted at the greatest ballot that its promises name,** and what it wants itself only
/// if none names one.
pub(super) fn to_propose<V: ChainValue>(wanted: &V, accepted: Option<&(Ballot, V)>) -> V {
    match accepted {
        Some((_, value)) if !is_on(Mutant::OwnValueProposed) => value.clone(),
        _ => wanted.clone(),
    }
}

/// **A value is accepted only behind the one that is chosen.**
pub(super) fn is_next<V: ChainValue>(chosen: &V, value: &V) -> bool {
    let is_behind = value.epoch() == chosen.epoch() + 1 && value.parent() == chosen.digest();
    (is_behind || is_on(Mutant::ParentUnchecked)) && chosen.may_be_followed_by(value)
}

/// **A directory votes if the epoch names it, or for the one epoch that it has asked the others about.** What it had
/// promised for a later one is asked about again. Where directories are not known yet, one that `has_lost` an earlier one
/// is none that the epoch names.
pub(super) fn may_vote<V: ChainValue>(
    chosen: &V,
    member: NodeId,
    directory: DirectoryId,
    has_lost: bool,
    restored_for: Option<u64>,
) -> bool {
    let Some(voter) = chosen.voters().find(|voter| voter.member == member) else { return false };
    let is_named = voter.directory.map_or(!has_lost, |named| named == directory);
    let is_restored = restored_for.is_some_and(|epoch| epoch == chosen.epoch() + 1 || is_on(Mutant::RestoredForEver));
    is_named || is_restored || is_on(Mutant::ForgottenVotes)
}

/// **A directory that has lost its promises asks a majority of the other members.** Each attempt that could rest on such
/// a promise has asked one of them too.
pub(super) fn must_answer(others: usize) -> usize {
    super::majority(others)
}

/// **What the others have accepted is accepted again.**
pub(super) fn to_accept_again<V>(accepted: Option<(Ballot, V)>) -> Option<(Ballot, V)> {
    accepted.filter(|_| !is_on(Mutant::RestoredEmpty))
}
