//! A member's part in the decisions.

use serde::{Deserialize, Serialize};

use super::proposal::Proposal;
use super::recovery::{Recovery, Restored};
use super::{Ballot, ChainAnswer, ChainRequest, ChainValue, rules};
use crate::node::{DirectoryId, NodeId};

/// What a directory knows of the chain, and has promised. All of it is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Acceptor<V> {
    member: NodeId,
    directory: DirectoryId,
    /// The newest value that it knows to be chosen.
    chosen: V,
    /// For the epoch that follows, as `accepted`. [`Ballot::NONE`] if it has promised none.
    promised: Ballot,
    accepted: Option<(Ballot, V)>,
    /// The promises of an earlier directory of this member are lost.
    has_lost: bool,
    /// The epoch that it may decide although the one before names another directory of this member.
    restored_for: Option<u64>,
}

/// Why a node proposes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProposal {
    /// It does not vote: see [`ChainAnswer::NoVoter`].
    #[error("this node has no vote on layouts")]
    NoVoter,
    /// Another value was chosen meanwhile, or the change is none.
    #[error("the layout has changed meanwhile")]
    NotNext,
}

impl<V: ChainValue> Acceptor<V> {
    /// Of a member with a directory that knows no more than that `chosen` is.
    #[must_use]
    pub fn new(member: NodeId, directory: DirectoryId, chosen: V) -> Self {
        Self { member, directory, chosen, promised: Ballot::NONE, accepted: None, has_lost: false, restored_for: None }
    }

    /// The member that it is of.
    #[must_use]
    pub fn member(&self) -> NodeId {
        self.member
    }

    /// The newest value that it knows to be chosen.
    #[must_use]
    pub fn chosen(&self) -> &V {
        &self.chosen
    }

    /// Whether its answers count.
    #[must_use]
    pub fn may_vote(&self) -> bool {
        rules::may_vote(&self.chosen, self.member, self.directory, self.has_lost, self.restored_for)
    }

    /// What it has promised may be lost: from now on it is another one, which has promised nothing. `fresh` was never
    /// used before, so that no ballot comes twice.
    pub fn forget(&mut self, fresh: DirectoryId) {
        *self = Self { has_lost: true, ..Self::new(self.member, fresh, self.chosen.clone()) };
    }

    /// The directory that it votes with, if the epoch names it.
    #[must_use]
    pub fn directory(&self) -> DirectoryId {
        self.directory
    }

    /// Answers. What it has changed must be durable before the answer leaves.
    pub fn answer(&mut self, request: ChainRequest<V>) -> ChainAnswer<V> {
        match request {
            ChainRequest::Get { have } if have < self.chosen.epoch() => ChainAnswer::Chosen(self.chosen.clone()),
            ChainRequest::Get { .. } => ChainAnswer::Known,
            ChainRequest::Learn { value } => {
                self.learn(value);
                ChainAnswer::Known
            }
            ChainRequest::Prepare { ballot, parent } => self.promise(ballot, parent),
            ChainRequest::Accept { ballot, value } => self.accept(ballot, value),
        }
    }

    /// Takes over a value that is chosen, if it is newer than what it knows: whether it was.
    pub fn learn(&mut self, value: V) -> bool {
        if value.epoch() <= self.chosen.epoch() {
            return false;
        }
        self.chosen = value;
        self.promised = Ballot::NONE;
        self.accepted = None;
        true
    }

    fn promise(&mut self, ballot: Ballot, parent: V) -> ChainAnswer<V> {
        if parent.epoch() < self.chosen.epoch() {
            return ChainAnswer::Chosen(self.chosen.clone());
        }
        // Of another cluster, or made by a defect: nothing of it is taken over.
        if parent.epoch() == self.chosen.epoch() && parent.digest() != self.chosen.digest() {
            return ChainAnswer::NotNext;
        }
        self.learn(parent);
        if !self.may_vote() {
            return ChainAnswer::NoVoter;
        }
        if rules::is_kept_out(ballot, self.promised) {
            return ChainAnswer::Refused(self.promised);
        }
        self.promised = ballot;
        ChainAnswer::Promised(self.accepted.clone())
    }

    fn accept(&mut self, ballot: Ballot, value: V) -> ChainAnswer<V> {
        let next = self.chosen.epoch() + 1;
        if value.epoch() > next {
            return ChainAnswer::Behind(self.chosen.epoch());
        }
        if !rules::is_next(&self.chosen, &value) {
            let is_late = value.epoch() < next;
            return if is_late { ChainAnswer::Chosen(self.chosen.clone()) } else { ChainAnswer::NotNext };
        }
        if !self.may_vote() {
            return ChainAnswer::NoVoter;
        }
        if rules::is_kept_out(ballot, self.promised) {
            return ChainAnswer::Refused(self.promised);
        }
        self.promised = ballot;
        self.accepted = Some((ballot, value));
        ChainAnswer::Accepted
    }

    /// Begins an attempt of this member: above every ballot that it has promised, and above `seen`, which outbid an
    /// earlier one. Its promise to itself must be durable before the first message leaves.
    ///
    /// # Errors
    /// [`NoProposal`]
    pub fn propose(&mut self, wanted: V, seen: Ballot) -> Result<Proposal<V>, NoProposal> {
        if !self.may_vote() {
            return Err(NoProposal::NoVoter);
        }
        if !rules::is_next(&self.chosen, &wanted) {
            return Err(NoProposal::NotNext);
        }
        let ballot = self.ballot_above(seen);
        self.promised = ballot;
        Ok(Proposal::new(self.chosen.clone(), wanted, ballot, self.member, self.accepted.clone()))
    }

    /// Begins to ask for what this member has promised with a directory that is lost. To be called when each attempt
    /// that may have asked that directory is over.
    #[must_use]
    pub fn recover(&self, seen: Ballot) -> Recovery<V> {
        Recovery::new(self.chosen.clone(), self.ballot_above(seen), self.member)
    }

    /// Votes again on the epoch that the recovery was about, if that is still the one that follows. Does nothing while
    /// there is a vote: an answer that comes late takes no newer promise away.
    pub fn restore(&mut self, restored: Restored<V>) {
        let Restored { parent, ballot, accepted } = restored;
        if parent.epoch() == self.chosen.epoch() && !self.may_vote() {
            self.promised = ballot;
            self.accepted = rules::to_accept_again(accepted);
            self.restored_for = Some(parent.epoch() + 1);
        }
    }

    fn ballot_above(&self, seen: Ballot) -> Ballot {
        Ballot { counter: self.promised.counter.max(seen.counter) + 1, directory: self.directory }
    }
}
