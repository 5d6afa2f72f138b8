//! Attempts of this node to have a layout decided.
//!
//! Several nodes may try at once. Each attempt ends anywhere without harm: what was promised is kept, and the next attempt
//! finishes what this one began.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kvorum_core::chain::acceptor::NoProposal;
use kvorum_core::chain::proposal::{Proposal, ProposalStep};
use kvorum_core::chain::recovery::{Recovery, RecoveryStep};
use kvorum_core::chain::{Ballot, ChainAnswer, ChainRequest};
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::quorum::Failure;
use kvorum_peer::membership::Membership;
use tokio::task::JoinSet;

use super::voter::LayoutVoter;
use crate::background_rpc::BackgroundRpc;

/// Has layouts decided, from one shard of the node.
pub struct Proposer {
    /// What this node knows of layouts.
    pub membership: Arc<Membership>,
    /// This node's own vote.
    pub voter: Rc<LayoutVoter>,
    /// Asks the others.
    pub rpc: Rc<BackgroundRpc>,
    /// The whole of an attempt.
    pub deadline: Duration,
}

/// Why an attempt ended without a decision. It may all the same have been decided, or be later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDecided {
    /// Another attempt has this greater ballot: after a random while there may be another.
    Outbid(Ballot),
    /// Too few voters are left; these were not reached, or have no vote.
    TooFew(Vec<NodeId>),
    /// This node has no vote on layouts, and too few of the others have answered to give it back.
    NoVote,
    /// The layout has changed meanwhile, or the change is none.
    NotNext,
    /// This node could not write it down, or the deadline is over.
    Failed(Failure),
}

impl From<Failure> for NotDecided {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Proposer {
    /// Goes over to a layout that is chosen.
    ///
    /// # Errors
    /// [`NotDecided::NotNext`] if it is no newer one of this cluster.
    pub(super) async fn learn(&self, value: Layout) -> Result<(), NotDecided> {
        let is_newer = self.voter.change(move |membership| membership.learn_layout(value)).await?;
        if is_newer { Ok(()) } else { Err(NotDecided::NotNext) }
    }

    async fn recover(&self, mut recovery: Recovery<Layout>) -> Result<(), NotDecided> {
        let mut asked = self.ask_all(recovery.others().to_vec(), &recovery.request());
        while let Some((node, answer)) = asked.next().await {
            let Ok(answer) = answer else { continue };
            match recovery.on_answer(node, answer) {
                RecoveryStep::Wait => {}
                RecoveryStep::Restored(restored) => {
                    self.voter.change(move |membership| membership.restore_vote(restored)).await?;
                    return Ok(());
                }
                RecoveryStep::Overtaken(value) => {
                    self.learn(value).await?;
                    return Err(NotDecided::NotNext);
                }
                RecoveryStep::Outbid(ballot) => return Err(NotDecided::Outbid(ballot)),
            }
        }
        Err(NotDecided::NoVote)
    }

    /// One attempt to have `wanted` chosen, or what another attempt may have had chosen: what was. It ends within the
    /// deadline: directories that are lost count on that. A node that has lost
    /// its vote on layouts gets it back first. Dropped, it may have been chosen.
    ///
    /// # Errors
    /// [`NotDecided`]
    pub async fn propose(&self, wanted: Layout, seen: Ballot) -> Result<Layout, NotDecided> {
        if let Some(recovery) = self.membership.recover_vote(seen) {
            self.recover(recovery).await?;
        }
        let begun = self.voter.change(move |membership| membership.propose_layout(wanted, seen)).await?;
        let mut proposal = begun.map_err(|no| match no {
            NoProposal::NoVoter => NotDecided::NoVote,
            NoProposal::NotNext => NotDecided::NotNext,
        })?;
        let decided = tokio::time::timeout(self.deadline, self.decide(&mut proposal)).await;
        let value = decided.map_err(|_| Failure::Timeout)??;
        tracing::info!(epoch = value.epoch(), "the nodes have decided their layout");
        match self.learn(value.clone()).await {
            // A peer may have told this node first.
            Ok(()) | Err(NotDecided::NotNext) => {}
            Err(error) => return Err(error),
        }
        self.tell_all(value.clone());
        Ok(value)
    }

    async fn decide(&self, proposal: &mut Proposal<Layout>) -> Result<Layout, NotDecided> {
        // One that is alone has promised itself all that it needs.
        let mut asked = self.ask_all(proposal.voters().to_vec(), &proposal.request());
        while let Some((node, answer)) = asked.next().await {
            let step = match answer {
                Ok(answer) => proposal.on_answer(node, answer),
                Err(_) => proposal.on_lost(node),
            };
            match step {
                ProposalStep::Wait => {}
                ProposalStep::Send => asked = self.ask_all(proposal.voters().to_vec(), &proposal.request()),
                ProposalStep::Chosen(value) | ProposalStep::Overtaken(value) => return Ok(value),
                ProposalStep::Outbid(ballot) => return Err(NotDecided::Outbid(ballot)),
                ProposalStep::TooFew(lost) => return Err(NotDecided::TooFew(lost)),
            }
        }
        Err(Failure::Unreachable.into())
    }

    /// Who does not hear of it asks for it: each pong names the newest layout.
    fn tell_all(&self, value: Layout) {
        for node in value.ids().filter(|node| *node != self.membership.own()) {
            let (rpc, value, deadline) = (self.rpc.clone(), value.clone(), self.deadline);
            tokio::task::spawn_local(async move {
                let learn = ChainRequest::Learn { value };
                let _ = tokio::time::timeout(deadline, rpc.layout(node, &learn)).await;
            });
        }
    }

    /// Asks a peer.
    pub(super) async fn ask(
        &self,
        node: NodeId,
        request: ChainRequest<Layout>,
    ) -> Result<ChainAnswer<Layout>, Failure> {
        let asked = tokio::time::timeout(self.deadline, self.rpc.layout(node, &request));
        asked.await.unwrap_or(Err(Failure::Timeout))
    }

    fn ask_all(&self, nodes: Vec<NodeId>, request: &ChainRequest<Layout>) -> Asked {
        let mut asked = JoinSet::new();
        for node in nodes {
            let (rpc, voter, request) = (self.rpc.clone(), self.voter.clone(), request.clone());
            let (own, deadline) = (self.membership.own(), self.deadline);
            asked.spawn_local(async move {
                let answering =
                    async { if node == own { voter.answer(request).await } else { rpc.layout(node, &request).await } };
                (node, tokio::time::timeout(deadline, answering).await.unwrap_or(Err(Failure::Timeout)))
            });
        }
        Asked(asked)
    }
}

/// Questions under way: dropped, their answers are awaited no longer.
struct Asked(JoinSet<(NodeId, Result<ChainAnswer<Layout>, Failure>)>);

impl Asked {
    async fn next(&mut self) -> Option<(NodeId, Result<ChainAnswer<Layout>, Failure>)> {
        self.0.join_next().await.map(|answer| answer.expect("asking does not panic"))
    }
}
