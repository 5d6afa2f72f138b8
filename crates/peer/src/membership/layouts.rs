//! This node's part in the decisions about layouts, which is durable before anyone hears of it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use kvorum_core::chain::acceptor::{Acceptor, NoProposal};
use kvorum_core::chain::proposal::Proposal;
use kvorum_core::chain::recovery::{Recovery, Restored};
use kvorum_core::chain::{Ballot, ChainAnswer, ChainRequest};
use kvorum_core::layout::Layout;
use kvorum_core::node::{DirectoryId, NodeId};
use kvorum_storage::data_dir::DataDirError;
use tokio::sync::futures::Notified;
use xxhash_rust::xxh3::xxh3_128;

use super::{Membership, VoteState};

/// A node that was away for longer cannot come back by itself.
const EPOCHS_AHEAD_MAX: u64 = 1 << 32;
/// No attempt gets there.
const BALLOTS_MAX: u64 = 1 << 48;

/// What is no ballot of any attempt is none to outbid.
fn plausible(seen: Ballot) -> Ballot {
    if seen.counter < BALLOTS_MAX { seen } else { Ballot::NONE }
}

impl Membership {
    /// Answers a question about layouts. Blocks on the disk.
    ///
    /// # Errors
    /// If the answer could not be made durable.
    pub fn answer_layout(&self, request: ChainRequest<Layout>) -> Result<ChainAnswer<Layout>, DataDirError> {
        let is_of_vote = matches!(request, ChainRequest::Prepare { .. } | ChainRequest::Accept { .. });
        self.change_acceptor(|acceptor| {
            if !self.is_plausible(acceptor.chosen(), &request) {
                ChainAnswer::NotNext
            } else if is_of_vote && !self.may_decide(acceptor) {
                ChainAnswer::NoVoter
            } else {
                acceptor.answer(request)
            }
        })
    }

    /// Whether this node's vote on the next layout counts, if its directory has one. What it promises while it rebuilds
    /// may be lost already. Before there is a first layout, it must not have been there with another directory, as far
    /// as its peers know.
    fn may_decide(&self, acceptor: &Acceptor<Layout>) -> bool {
        let is_known = acceptor.chosen().epoch() > 0 || self.awaited().is_none();
        is_known && self.vote_state() != VoteState::Rebuilding
    }

    /// Whether this node may propose the first layout.
    #[must_use]
    pub fn may_found(&self) -> bool {
        let acceptor = self.acceptor();
        acceptor.chosen().epoch() == 0 && self.may_decide(&acceptor)
    }

    /// Begins an attempt to have `wanted` chosen. Blocks on the disk.
    ///
    /// # Errors
    /// If its own promise could not be made durable; inside, [`NoProposal`].
    pub fn propose_layout(
        &self,
        wanted: Layout,
        seen: Ballot,
    ) -> Result<Result<Proposal<Layout>, NoProposal>, DataDirError> {
        self.change_acceptor(|acceptor| {
            if self.may_decide(acceptor) { acceptor.propose(wanted, plausible(seen)) } else { Err(NoProposal::NoVoter) }
        })
    }

    /// Goes over to a layout that is chosen, if it is newer than the one that this node knows: whether it was. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// If that could not be made durable.
    pub fn learn_layout(&self, value: Layout) -> Result<bool, DataDirError> {
        self.change_acceptor(|acceptor| self.is_ours(acceptor.chosen(), &value) && acceptor.learn(value))
    }

    /// What to ask the others for the vote on layouts that this directory does not have; none while it has it, and as long
    /// as it has no vote on data.
    #[must_use]
    pub fn recover_vote(&self, seen: Ballot) -> Option<Recovery<Layout>> {
        let acceptor = self.acceptor();
        (self.vote_state() == VoteState::Voting && !acceptor.may_vote()).then(|| acceptor.recover(plausible(seen)))
    }

    /// Takes what the others answered to that. Blocks on the disk.
    ///
    /// # Errors
    /// If it could not be made durable.
    pub fn restore_vote(&self, restored: Restored<Layout>) -> Result<(), DataDirError> {
        self.change_acceptor(|acceptor| acceptor.restore(restored))
    }

    /// The directory that the next layout should name this node with: none if the newest does, and as long as this one
    /// has no vote on data.
    #[must_use]
    pub fn unnamed_directory(&self) -> Option<DirectoryId> {
        let directory = self.acceptor().directory();
        let layout = self.layout.borrow();
        let named = layout.node(self.own)?.directory;
        let is_unnamed = layout.epoch() > 0 && named != directory && self.vote_state() == VoteState::Voting;
        is_unnamed.then_some(directory)
    }

    /// The directory that a node has shown in this run, if it has not lost what it had, and of this one the own.
    #[must_use]
    pub fn shown_directory(&self, node: NodeId) -> Option<DirectoryId> {
        if node == self.own {
            return Some(self.acceptor().directory());
        }
        let peer = self.peer(node);
        let shown = *peer.directory.lock().unwrap_or_else(PoisonError::into_inner);
        shown.filter(|_| !peer.rebuilding.load(Ordering::Relaxed))
    }

    /// A peer knows the layout of this epoch, and no newer one: it may have lost what it knew.
    pub fn note_epoch(&self, node: NodeId, epoch: u64) {
        if epoch > self.epoch().saturating_add(EPOCHS_AHEAD_MAX) {
            return;
        }
        let before = self.peer(node).epoch.swap(epoch, Ordering::Relaxed);
        if before < epoch && self.epoch() < epoch {
            self.changed.notify_waiters();
        }
    }

    /// The peers that know a newer layout than this node, and are connected.
    #[must_use]
    pub fn ahead(&self) -> Vec<NodeId> {
        let epoch = self.layout.borrow().epoch();
        let is_ahead = |node: &NodeId| {
            let peer = self.peer(*node);
            peer.epoch.load(Ordering::Relaxed) > epoch && peer.links.load(Ordering::Relaxed) > 0
        };
        self.others().into_iter().filter(is_ahead).collect()
    }

    /// Waits for the next change, from this call on, of this node's standing, of its layout, or of what is known of its
    /// peers'. Cancel safe.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// What this node had promised may be lost with what it had stored: it votes as another directory from now on, under a
    /// number that none had before, since runs are drawn.
    pub(super) fn forget_promises(&self) -> Result<(), DataDirError> {
        let count = self.forgotten.fetch_add(1, Ordering::Relaxed);
        let fresh = xxh3_128(format!("{} {} {count}", self.directory(), self.run().id.0).as_bytes());
        let fresh = DirectoryId(fresh);
        self.change_acceptor(|acceptor| acceptor.forget(fresh))
    }

    /// What has changed is durable before it is known, and before this returns.
    fn change_acceptor<T>(&self, change: impl FnOnce(&mut Acceptor<Layout>) -> T) -> Result<T, DataDirError> {
        // Held to the end: layouts come in their order.
        let _writing = self.writing_layout.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.acceptor();
        let mut next = Acceptor::clone(&known);
        let changed = change(&mut next);
        if next != *known {
            self.data_dir.set_acceptor(&next)?;
            let next = Arc::new(next);
            *self.acceptor.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
            if next.chosen().epoch() > known.chosen().epoch() {
                self.install(Arc::new(next.chosen().clone()));
            }
        }
        Ok(changed)
    }

    fn acceptor(&self) -> Arc<Acceptor<Layout>> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a value may be taken over: it is of this cluster, names this node, and is not so far ahead that nothing
    /// could follow. Anything may call, so a defect elsewhere, or a stranger, must not end this node's part for good.
    fn is_ours(&self, known: &Layout, value: &Layout) -> bool {
        let is_of_cluster = known.cluster() == 0 || known.cluster() == value.cluster();
        let names_this = value.node(self.own).is_some_and(|node| *node.url == *self.own_state.url);
        let is_near = value.epoch() <= known.epoch().saturating_add(EPOCHS_AHEAD_MAX);
        known.founding_digest() == value.founding_digest() && is_of_cluster && names_this && is_near
    }

    fn is_plausible(&self, known: &Layout, request: &ChainRequest<Layout>) -> bool {
        match request {
            ChainRequest::Get { .. } => true,
            ChainRequest::Learn { value } => self.is_ours(known, value),
            ChainRequest::Prepare { ballot, parent: value } | ChainRequest::Accept { ballot, value } => {
                ballot.counter < BALLOTS_MAX && self.is_ours(known, value)
            }
        }
    }

    /// Goes over to a layout that was chosen, if it is newer. It names this node. What calls this sees to it that it is
    /// durable: [`learn_layout`](Self::learn_layout) does.
    pub fn install(&self, layout: Arc<Layout>) {
        // First: whoever sees the layout asks for its nodes.
        self.meet(&layout);
        self.layout.send_if_modified(|known| {
            let is_newer = layout.epoch() > known.epoch();
            if is_newer {
                self.epoch.store(layout.epoch(), Ordering::Relaxed);
                *known = layout;
            }
            is_newer
        });
        // It may have waited for a node that has left.
        self.confirm();
    }
}
