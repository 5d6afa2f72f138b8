//! How a member gets its vote on layouts back that has lost its directory.
//!
//! What it had promised and accepted is lost. It asks a majority of the *others*: an attempt that was told something by
//! the lost directory needed a majority of all, so it has asked one of these too. Their promises of a fresh ballot keep
//! out every attempt that began earlier, and what they have accepted is what this member may have accepted.
//!
//! An attempt that counts a promise of the lost directory could still go on. So a recovery begins only once each such
//! attempt is over: attempts end within the deadline of requests, and a directory that is rebuilt waits longer.
//!
//! A member without others gets no vote back: what it had decided is lost with its directory.

use std::collections::BTreeSet;

use super::{Ballot, ChainAnswer, ChainRequest, ChainValue, rules};
use crate::node::NodeId;

/// The questions of a member that has lost its directory; see the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovery<V> {
    parent: V,
    ballot: Ballot,
    others: Vec<NodeId>,
    promised: BTreeSet<NodeId>,
    accepted: Option<(Ballot, V)>,
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryStep<V> {
    /// Answers are awaited, or the wait is in vain: the deadline ends it.
    Wait,
    /// Enough have answered. For `Acceptor::restore`.
    Restored(Restored<V>),
    /// A later epoch is chosen: to be learned, and asked about.
    Overtaken(V),
    /// Another attempt has this greater ballot.
    Outbid(Ballot),
}

/// What the others know of the epoch that follows `parent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored<V> {
    pub(super) parent: V,
    pub(super) ballot: Ballot,
    pub(super) accepted: Option<(Ballot, V)>,
}

impl<V: ChainValue> Recovery<V> {
    pub(super) fn new(parent: V, ballot: Ballot, own: NodeId) -> Self {
        let others = parent.voters().map(|voter| voter.member).filter(|member| *member != own).collect();
        Self { parent, ballot, others, promised: BTreeSet::new(), accepted: None }
    }

    /// Whom to ask.
    #[must_use]
    pub fn others(&self) -> &[NodeId] {
        &self.others
    }

    /// What to ask them.
    #[must_use]
    pub fn request(&self) -> ChainRequest<V> {
        ChainRequest::Prepare { ballot: self.ballot, parent: self.parent.clone() }
    }

    /// Takes an answer.
    pub fn on_answer(&mut self, from: NodeId, answer: ChainAnswer<V>) -> RecoveryStep<V> {
        match answer {
            ChainAnswer::Chosen(value) if value.epoch() > self.parent.epoch() => RecoveryStep::Overtaken(value),
            ChainAnswer::Refused(ballot) => RecoveryStep::Outbid(ballot),
            ChainAnswer::Promised(accepted) if self.others.contains(&from) => {
                self.promised.insert(from);
                if accepted.as_ref().map(|(ballot, _)| ballot) > self.accepted.as_ref().map(|(ballot, _)| ballot) {
                    self.accepted = accepted;
                }
                if self.promised.len() < rules::must_answer(self.others.len()) {
                    return RecoveryStep::Wait;
                }
                let Self { parent, ballot, accepted, .. } = self.clone();
                RecoveryStep::Restored(Restored { parent, ballot, accepted })
            }
            _ => RecoveryStep::Wait,
        }
    }
}
