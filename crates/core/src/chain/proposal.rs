//! One attempt to have a value chosen.

use std::collections::BTreeSet;

use super::{Ballot, ChainAnswer, ChainRequest, ChainValue, majority, rules};
use crate::node::NodeId;

/// One attempt: its [request](Self::request) goes to all [voters](Self::voters), and their answers come back to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposal<V> {
    parent: V,
    wanted: V,
    ballot: Ballot,
    voters: Vec<NodeId>,
    /// Who has promised, then who has accepted.
    agreed: BTreeSet<NodeId>,
    /// Who cannot agree any more in this phase.
    lost: BTreeSet<NodeId>,
    /// Of the greatest ballot in a promise.
    accepted: Option<(Ballot, V)>,
    /// What a majority of promises lets it propose.
    proposed: Option<V>,
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposalStep<V> {
    /// Answers are awaited.
    Wait,
    /// The [request](Proposal::request) has changed: to be sent to all voters, this node as well.
    Send,
    /// The value is chosen. It may be another proposer's: then the wanted one is to be made anew, behind it.
    Chosen(V),
    /// A later epoch is chosen already.
    Overtaken(V),
    /// Another attempt has this greater ballot. A random while later it can be tried again.
    Outbid(Ballot),
    /// Too few voters are left. Those that do not vote, or were not reached.
    TooFew(Vec<NodeId>),
}

impl<V: ChainValue> Proposal<V> {
    /// With the promise of its own acceptor.
    pub(super) fn new(parent: V, wanted: V, ballot: Ballot, own: NodeId, accepted: Option<(Ballot, V)>) -> Self {
        let voters = rules::deciding(&parent, &wanted);
        let (agreed, lost) = (BTreeSet::new(), BTreeSet::new());
        let mut proposal = Self { parent, wanted, ballot, voters, agreed, lost, accepted: None, proposed: None };
        proposal.on_answer(own, ChainAnswer::Promised(accepted));
        proposal
    }

    /// Whom to ask.
    #[must_use]
    pub fn voters(&self) -> &[NodeId] {
        &self.voters
    }

    /// What to ask them.
    #[must_use]
    pub fn request(&self) -> ChainRequest<V> {
        match &self.proposed {
            None => ChainRequest::Prepare { ballot: self.ballot, parent: self.parent.clone() },
            Some(value) => ChainRequest::Accept { ballot: self.ballot, value: value.clone() },
        }
    }

    /// Takes an answer to a request of this attempt; each may come twice, and those of the first phase late.
    pub fn on_answer(&mut self, from: NodeId, answer: ChainAnswer<V>) -> ProposalStep<V> {
        if !self.voters.contains(&from) {
            return ProposalStep::Wait;
        }
        match answer {
            ChainAnswer::Chosen(value) if value.epoch() > self.parent.epoch() => ProposalStep::Overtaken(value),
            ChainAnswer::Refused(ballot) => ProposalStep::Outbid(ballot),
            ChainAnswer::Promised(accepted) if self.proposed.is_none() => {
                if accepted.as_ref().map(|(ballot, _)| ballot) > self.accepted.as_ref().map(|(ballot, _)| ballot) {
                    self.accepted = accepted;
                }
                if self.agrees(from) {
                    self.proposed = Some(rules::to_propose(&self.wanted, self.accepted.as_ref()));
                    self.agreed.clear();
                    self.lost.clear();
                    return ProposalStep::Send;
                }
                ProposalStep::Wait
            }
            ChainAnswer::Accepted if self.proposed.is_some() && self.agrees(from) => match &self.proposed {
                Some(value) => ProposalStep::Chosen(value.clone()),
                None => ProposalStep::Wait,
            },
            ChainAnswer::Promised(_) | ChainAnswer::Accepted => ProposalStep::Wait,
            ChainAnswer::NoVoter
            | ChainAnswer::Behind(_)
            | ChainAnswer::NotNext
            | ChainAnswer::Known
            | ChainAnswer::Chosen(_) => self.on_lost(from),
        }
    }

    /// A voter was not reached, or does not agree.
    pub fn on_lost(&mut self, from: NodeId) -> ProposalStep<V> {
        if !self.agreed.contains(&from) {
            self.lost.insert(from);
        }
        if self.voters.len() - self.lost.len() < majority(self.voters.len()) {
            return ProposalStep::TooFew(self.lost.iter().copied().collect());
        }
        ProposalStep::Wait
    }

    /// Whether a majority agrees, with this one.
    fn agrees(&mut self, from: NodeId) -> bool {
        self.lost.remove(&from);
        self.agreed.insert(from);
        self.agreed.len() >= majority(self.voters.len())
    }
}
