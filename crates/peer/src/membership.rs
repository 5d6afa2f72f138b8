//! This node's identity, its peers, and whether it may vote.
//!
//! Amnesia (`docs/explanation/amnesia.md`): a replica that has lost what it acknowledged must not vote. Each node
//! remembers the data directories of its peers durably *before* it counts an answer of theirs, and how far their stores
//! were durable, by each pong. The handshake shows a peer that it comes back with another directory, or with less
//! than it had. It is *rebuilding* from then on, as is a node whose log is shorter than what it had synced.
//!
//! A directory that was just created votes once a majority of the *others* remembers it durably, or an earlier one that
//! it has made good, and none with a handshake remembers another. Any two such majorities share a node; so if this
//! directory replaces one that voted, one of these peers remembers that one. (A majority of all, this node included,
//! would not do where their number is odd: of three, the two that are left of a quorum need not have connected.) A peer
//! that is rebuilding counts among those that remember it, if enough others are left to share a node with every
//! majority. On the first start of a whole cluster no node is remembered.

mod clock_fence;
mod layouts;
mod notes;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use kvorum_base::log_limit::AddressLogLimit;
use kvorum_base::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use kvorum_base::sync::{Condvar, Mutex, MutexGuard};
use kvorum_core::PartitionId;
use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::key::PARTITIONS;
use kvorum_core::layout::Layout;
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::node::{DirectoryId, NodeId};
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::Failure;
use kvorum_storage::data_dir::{ClusterId, DataDir, DataDirError, PeerNote, Run, RunId, Runs};
use tokio::sync::{Notify, watch};

use crate::error::{HandshakeError, ProtocolError};
use crate::peer_state::PeerState;

/// How far what is remembered of the peers' sequences may lag behind what was received, after a crash.
pub const NOTES_INTERVAL: Duration = Duration::from_secs(10);

/// Whether this node's answers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VoteState {
    /// Its directory is new, and too few peers have registered it to rule out that it replaces another.
    Unconfirmed = 0,
    /// It votes.
    Voting = 1,
    /// It has lost what it acknowledged.
    Rebuilding = 2,
}

/// What [`VoteState::Rebuilding`] is as long as the cluster is not founded: it answers nothing then.
const REBUILDING_UNFOUNDED: u8 = 3;

#[derive(Default)]
struct MembershipTask {
    write_now: bool,
    stop: bool,
}

/// Whether a peer remembers this node, by its handshake: this directory of it, or an earlier one that was made good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemembersUs {
    /// It did.
    Yes,
    /// It has not yet.
    NotYet,
}

/// Identity and standing of this node, and its view of the others.
pub struct Membership {
    layout: watch::Sender<Arc<Layout>>,
    /// The number of that one.
    epoch: AtomicU64,
    /// This node's part in the decisions about them, as LAYOUT has it.
    acceptor: Mutex<Arc<Acceptor<Layout>>>,
    /// Held while LAYOUT is written; what shards lock is `acceptor` alone.
    writing_layout: Mutex<()>,
    /// How often it was another one in this run.
    forgotten: AtomicU64,
    own: NodeId,
    own_state: Arc<PeerState>,
    vote_state: AtomicU8,
    /// Wakes what waits for another standing, or for the drain.
    changed: Notify,
    /// While it rebuilds: the partitions that it has a vote for already. Of this run alone.
    restored: Mutex<PartitionSet>,
    /// The greatest sequence that a peer remembered of this node in a handshake of this run.
    remembered_max: AtomicU64,
    /// Why it is rebuilding.
    rebuilding: Mutex<Option<String>>,
    fenced: AtomicBool,
    draining: AtomicBool,
    /// Each node that a layout of this run has named. Requests do not ask here: clients have what is known of theirs.
    peers: Mutex<BTreeMap<NodeId, Arc<PeerState>>>,
    data_dir: DataDir,
    runs: Runs,
    /// What the thread of [`Membership::write_notes`] waits for.
    task: Mutex<MembershipTask>,
    task_set: Condvar,
    skew_max_ms: u64,
    /// Handshakes of nodes that do not belong here.
    pub handshake_errors: AtomicU64,
    handshake_error_log: AddressLogLimit,
}

impl Membership {
    /// Takes the opened directory, and what it knows of layouts, of which the newest names its member; `recovered` is
    /// the store's own sequence when it was opened; `rebuilding` is why, if it already is.
    #[must_use]
    pub fn new(
        acceptor: Acceptor<Layout>,
        data_dir: DataDir,
        recovered: u64,
        rebuilding: Option<String>,
        skew_max_ms: u64,
    ) -> Self {
        let vote_state = if rebuilding.is_some() { REBUILDING_UNFOUNDED } else { VoteState::Unconfirmed as u8 };
        let (layout, own) = (Arc::new(acceptor.chosen().clone()), acceptor.member());
        let url = &layout.node(own).expect("this node is of the layout").url;
        let own_state = Arc::new(PeerState::new(url));
        let membership = Self {
            peers: Mutex::new(BTreeMap::from([(own, own_state.clone())])),
            epoch: AtomicU64::new(layout.epoch()),
            layout: watch::Sender::new(layout.clone()),
            acceptor: Mutex::new(Arc::new(acceptor)),
            writing_layout: Mutex::default(),
            forgotten: AtomicU64::new(0),
            own,
            own_state,
            rebuilding: Mutex::new(rebuilding),
            vote_state: AtomicU8::new(vote_state),
            changed: Notify::new(),
            restored: Mutex::default(),
            remembered_max: AtomicU64::new(0),
            fenced: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            runs: data_dir.runs(data_dir.rebuilt().saturating_add(recovered)),
            data_dir,
            task: Mutex::default(),
            task_set: Condvar::new(),
            skew_max_ms,
            handshake_errors: AtomicU64::new(0),
            handshake_error_log: AddressLogLimit::default(),
        };
        membership.meet(&layout);
        layout.nodes().iter().for_each(|node| membership.data_dir.name_peer(&node.url, node.id));
        membership.confirm();
        membership
    }

    /// The newest layout that this node knows.
    #[must_use]
    pub fn layout(&self) -> Arc<Layout> {
        self.layout.borrow().clone()
    }

    /// The number of the newest layout that this node knows.
    #[must_use]
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// The newest layout, and each newer one.
    #[must_use]
    pub fn layouts(&self) -> watch::Receiver<Arc<Layout>> {
        self.layout.subscribe()
    }

    fn meet(&self, layout: &Layout) {
        let mut peers = self.peers();
        for node in layout.nodes() {
            peers.entry(node.id).or_insert_with(|| Arc::new(PeerState::new(&node.url)));
        }
    }

    /// This node.
    #[must_use]
    pub fn own(&self) -> NodeId {
        self.own
    }

    /// This node, as it is seen by others.
    #[must_use]
    pub fn own_state(&self) -> &PeerState {
        &self.own_state
    }

    /// All nodes of the layout but this one.
    #[must_use]
    pub fn others(&self) -> Vec<NodeId> {
        self.layout.borrow().ids().filter(|node| *node != self.own).collect()
    }

    /// This data directory.
    #[must_use]
    pub fn directory(&self) -> DirectoryId {
        self.data_dir.id()
    }

    /// The data directory's path.
    #[must_use]
    pub fn data_path(&self) -> &std::path::Path {
        self.data_dir.path()
    }

    /// The list that the cluster was first started with.
    #[must_use]
    pub fn list(&self) -> ClusterId {
        self.data_dir.cluster()
    }

    /// This run of the process.
    #[must_use]
    pub fn run(&self) -> Run {
        self.runs.present()
    }

    /// The first run of this directory that a peer has missed whose last is `run`.
    #[must_use]
    pub fn run_after(&self, run: RunId) -> Option<Run> {
        self.runs.after(run)
    }

    /// What is known of a node.
    ///
    /// # Panics
    /// If no layout of this run has named it.
    #[must_use]
    pub fn peer(&self, node: NodeId) -> Arc<PeerState> {
        self.peers().get(&node).expect("nodes come from layouts").clone()
    }

    #[track_caller]
    fn peers(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<PeerState>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node with this URL.
    #[must_use]
    pub fn node_by_url(&self, url: &str) -> Option<NodeId> {
        self.layout.borrow().node_at(url)
    }

    /// Whether this node votes.
    #[must_use]
    pub fn vote_state(&self) -> VoteState {
        match self.vote_state.load(Ordering::Acquire) {
            0 => VoteState::Unconfirmed,
            1 => VoteState::Voting,
            _ => VoteState::Rebuilding,
        }
    }

    /// Why this node's own answers count for nothing now, if so.
    #[must_use]
    pub fn abstains(&self) -> Option<Failure> {
        match self.vote_state() {
            VoteState::Voting => None,
            VoteState::Rebuilding if self.is_serving() => Some(Failure::Rebuilding),
            VoteState::Unconfirmed | VoteState::Rebuilding => Some(Failure::NotServing),
        }
    }

    /// Whether its cluster is founded, and it votes or is rebuilding.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        let state = self.vote_state.load(Ordering::Acquire);
        state == VoteState::Voting as u8 || state == VoteState::Rebuilding as u8
    }

    /// Waits until this node votes, rebuilds, or is stopping. Cancel safe.
    pub async fn until_serving(&self) {
        self.until_answering(0).await;
    }

    /// The same, and knows the layout of this epoch. Cancel safe.
    pub async fn until_answering(&self, epoch: u64) {
        loop {
            let changed = self.changed.notified();
            if self.is_serving() && self.epoch() >= epoch || self.is_draining() {
                return;
            }
            changed.await;
        }
    }

    /// The same for one partition: a node that rebuilds may have a vote there already.
    #[must_use]
    pub fn abstains_for(&self, partition: PartitionId) -> Option<Failure> {
        self.abstains().filter(|failure| *failure != Failure::Rebuilding || !self.restored().contains(partition))
    }

    /// How many partitions this node votes for.
    #[must_use]
    pub fn voting_partitions(&self) -> usize {
        match self.vote_state() {
            VoteState::Voting => PARTITIONS,
            VoteState::Unconfirmed => 0,
            VoteState::Rebuilding => self.restored().len(),
        }
    }

    /// Whether this node votes and had once lost what it acknowledged: what was remembered of it before counts no
    /// longer.
    #[must_use]
    pub fn is_rebuilt(&self) -> bool {
        self.vote_state() == VoteState::Voting && self.rebuilt() > 0
    }

    /// What peers remember of this node below this sequence was lost and is back: [`DataDir::rebuilt`].
    #[must_use]
    pub fn rebuilt(&self) -> u64 {
        self.data_dir.rebuilt()
    }

    /// The sequence that peers receive, of the store's own.
    #[must_use]
    pub fn sequence(&self, stored: u64) -> u64 {
        self.rebuilt().saturating_add(stored)
    }

    /// Takes what a peer remembers of this node, to count from above it once everything is back.
    pub fn note_remembered(&self, sequence: u64) {
        self.remembered_max.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Gives the vote back for partitions of which nothing is missing any more; with the last of them, for good: then
    /// all peers have connected in this run, and what they receive is counted from above what they remember. `stored`
    /// is the store's own sequence. Blocks on the disk then.
    ///
    /// # Errors
    /// If the end of the rebuilding could not be made durable: after a restart it begins anew.
    pub fn restore(&self, partitions: &PartitionSet, stored: u64) -> Result<(), DataDirError> {
        if self.vote_state() != VoteState::Rebuilding {
            return Ok(());
        }
        let count = {
            let mut restored = self.restored();
            partitions.iter().for_each(|partition| restored.insert(partition));
            restored.len()
        };
        tracing::info!(partitions = count, "rebuilding: votes for partitions again");
        if count < PARTITIONS {
            return Ok(());
        }
        // In this order: what is made good by this rebuilding is not before it has ended.
        let known_max = self.remembered_max.load(Ordering::Acquire).max(self.sequence(stored));
        self.data_dir.set_rebuilt(known_max.saturating_add(1))?;
        // The votes on layouts come back another way: see `layouts.rs`.
        self.forget_promises()?;
        self.data_dir.clear_rebuilding()?;
        *self.rebuilding.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.vote_state.store(VoteState::Voting as u8, Ordering::Release);
        tracing::info!("rebuilt: this node votes again");
        Ok(())
    }

    /// A peer that had lost something has got it back: from now on its present run counts. Does not block: durable a
    /// little later.
    pub fn note_rebuilt(&self, node: NodeId, directory: DirectoryId, run: Run, sequence: u64) {
        let peer = self.peer(node);
        if peer.rebuilding.swap(false, Ordering::Relaxed) {
            let note = |note: &mut PeerNote| *note = PeerNote { directory, run: run.id, sequence, ..*note };
            self.data_dir.update(node, note);
            tracing::info!(peer = &*peer.url, "peer was rebuilt and votes again");
            self.write_notes_now();
        }
    }

    #[track_caller]
    fn restored(&self) -> MutexGuard<'_, PartitionSet> {
        self.restored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why this node is rebuilding.
    #[must_use]
    pub fn rebuilding_reason(&self) -> Option<String> {
        self.rebuilding.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is remembered of a peer.
    #[must_use]
    pub fn remembered(&self, node: NodeId) -> Option<PeerNote> {
        self.data_dir.remembered(node)
    }

    /// Registers a peer: whether its answers count, as far as is known here. Remembers it durably if it connects for
    /// the first time. Blocks on the disk: not for a shard.
    ///
    /// # Errors
    /// If it could not be made durable; then the peer's answers must not be counted.
    pub fn register_peer(
        &self,
        node: NodeId,
        directory: DirectoryId,
        run: Run,
        remembers: RemembersUs,
    ) -> Result<bool, DataDirError> {
        let knows_us = remembers == RemembersUs::Yes;
        let peer = self.peer(node);
        *peer.directory.lock().unwrap_or_else(PoisonError::into_inner) = Some(directory);
        let votes = match self.data_dir.remembered(node) {
            None => {
                let note = PeerNote { directory, run: run.id, sequence: run.recovered, knows_us };
                self.data_dir.remember(node, note)?;
                true
            }
            // What is remembered stays, so that the next run is measured by it, too.
            Some(note) if note.directory != directory && !is_on(Mutant::WipedVotes) => false,
            Some(note) if note.misses(run) => false,
            Some(note) => {
                // Its run is not remembered yet: the peer may never receive what it is measured by.
                self.data_dir.update(node, |note| note.knows_us |= knows_us);
                if knows_us && !note.knows_us {
                    self.write_notes_now();
                }
                true
            }
        };
        peer.rebuilding.store(!votes, Ordering::Relaxed);
        self.confirm();
        Ok(votes)
    }

    /// Takes what a peer answered on a connection that this node made: in this run its store is durable up to
    /// `sequence`. It serves such a connection only once it has looked at what this node remembers of it. Does not
    /// block.
    pub fn note_sequence(&self, node: NodeId, run: RunId, sequence: u64, remembers: RemembersUs) {
        let peer = self.peer(node);
        let is_rebuilding = peer.rebuilding.load(Ordering::Relaxed);
        let knows_us = remembers == RemembersUs::Yes || is_on(Mutant::PongsIntroduce);
        let before = self.data_dir.update(node, |note| {
            if !is_rebuilding {
                note.run = run;
                note.sequence = note.sequence.max(sequence);
            }
            note.knows_us |= knows_us;
        });
        let is_introduced = before.is_some_and(|note| knows_us && !note.knows_us);
        if is_introduced {
            self.confirm();
        }
        if is_introduced || before.is_some_and(|note| note.run != run && !is_rebuilding) {
            self.write_notes_now();
        }
    }

    /// Whether this node remembers durably that a peer has this directory.
    #[must_use]
    pub fn remembers(&self, node: NodeId, directory: DirectoryId) -> bool {
        self.remembered(node).is_some_and(|note| note.directory == directory)
    }

    /// Everything that was acknowledged is on the disk, and nothing more will be. Blocks on the disk.
    ///
    /// # Errors
    /// If that could not be noted.
    pub fn end_run(&self) -> Result<(), DataDirError> {
        self.data_dir.end_run()
    }

    /// Loses the vote: durable, so that a restart does not give it back. Blocks on the disk.
    ///
    /// # Errors
    /// If the mark could not be made durable; the vote is lost for this run all the same.
    pub fn become_rebuilding(&self, reason: &str) -> Result<(), DataDirError> {
        self.vote_state.store(REBUILDING_UNFOUNDED, Ordering::Release);
        self.confirm();
        let mut rebuilding = self.rebuilding.lock().unwrap_or_else(PoisonError::into_inner);
        if rebuilding.is_none() {
            tracing::error!(reason, "this node has lost what it acknowledged: rebuilding, without a vote");
            *rebuilding = Some(reason.to_owned());
            self.data_dir.set_rebuilding(reason)?;
        }
        Ok(())
    }

    /// Whether it is known where keys belong. A cluster of before there were epochs has them where its list says.
    fn is_founded(&self) -> bool {
        self.layout.borrow().epoch() > 0 || self.data_dir.is_taken_over()
    }

    /// Looks whether this node may serve by now.
    fn confirm(&self) {
        let change = |from: u8, to: VoteState| {
            let _ = self.vote_state.compare_exchange(from, to as u8, Ordering::AcqRel, Ordering::Acquire);
        };
        if self.is_founded() {
            change(REBUILDING_UNFOUNDED, VoteState::Rebuilding);
            if self.awaited().is_none() || is_on(Mutant::NewVotesAtOnce) {
                change(VoteState::Unconfirmed as u8, VoteState::Voting);
            }
        }
        self.changed.notify_waiters();
    }

    /// What a new directory waits for before it votes, in words; nothing once enough peers have registered it.
    #[must_use]
    pub fn awaited(&self) -> Option<String> {
        let knows_us = |node: &NodeId| self.remembered(*node).is_some_and(|note| note.knows_us);
        let (met, missing): (Vec<NodeId>, Vec<NodeId>) = self.others().into_iter().partition(knows_us);
        let others = met.len() + missing.len();
        let needed = if others == 0 { 0 } else { others / 2 + 1 };
        // One that has lost its own notes remembers this directory from now on, but shows no earlier one.
        let is_rebuilding = |node: &&NodeId| self.peer(**node).rebuilding.load(Ordering::Relaxed);
        let rebuilding: Vec<NodeId> = met.iter().filter(is_rebuilding).copied().collect();
        let intact = met.len() - rebuilding.len();
        let is_enough = met.len() >= needed && intact + needed > others;
        (others > 0 && !is_enough).then(|| {
            let (met, rebuild) = (met.len(), rebuilding.len());
            let lost = if rebuild > 0 { format!(", of which {rebuild} rebuild") } else { String::new() };
            let waiting = missing.iter().chain(&rebuilding).map(|node| self.peer(*node).url.to_string());
            let urls = waiting.collect::<Vec<_>>().join(", ");
            format!("registered by {met} of the {needed} peers needed{lost}; waiting for: {urls}")
        })
    }

    /// Counts a refused handshake, and logs it now and then for each address: anything that reaches the port can cause
    /// it. `now` is the time since boot.
    pub fn note_handshake_error(&self, error: &HandshakeError, address: Option<IpAddr>, now: Duration) {
        self.handshake_errors.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.handshake_error_log.due(address, now) {
            let address = address.map(|address| address.to_string());
            tracing::warn!(reason = %error, details = ?error, address, left_out, "handshake refused");
        }
    }

    /// Counts a connection to or from a peer that ends because of what came over it, and logs it now and then: such a
    /// peer comes back at once. `now` is the time since boot.
    pub fn note_protocol_error(&self, node: NodeId, error: &ProtocolError, now: Duration) {
        let peer = self.peer(node);
        peer.protocol_errors.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = peer.log.due(now) {
            tracing::warn!(peer = &*peer.url, %error, left_out, "peer connection closed for what it sent");
        }
    }

    /// From now on nothing new is begun.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Whether the node is stopping.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
