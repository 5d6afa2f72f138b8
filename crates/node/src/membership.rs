//! Who this node is, whom it knows, and whether it may vote.
//!
//! The rule of amnesia (the project's design, "Versions"): a replica that has lost what it acknowledged
//! must not vote. Each node remembers the incarnations of its peers durably *before* it counts an answer
//! of theirs; a peer that comes back with another incarnation has lost its disk, is told so in the
//! handshake, and is *rebuilding* from then on, as is a node whose log is shorter than what it had synced.
//! A directory that was just created votes once a majority of the cluster, itself included, has met it
//! without remembering another; on the first start of a whole cluster nobody is remembered.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use kvorum_core::Incarnation;
use kvorum_core::placement::{Layout, NodeId};
use kvorum_core::quorum::Failure;

use crate::data_dir::{ClusterId, DataDir, DataDirError};
use crate::peer::handshake::Stranger;

/// Whether this node's answers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// Its directory is new, and it has not met enough peers to know that it replaces nobody.
    Unconfirmed = 0,
    /// It votes.
    Voting = 1,
    /// It has lost what it acknowledged.
    Rebuilding = 2,
}

/// What this node knows of one peer, over all shards.
#[derive(Default)]
pub struct PeerState {
    /// Connections that are up now, over all shards.
    pub links: AtomicU32,
    /// Recent round trip, in microseconds; 0 before the first.
    pub latency_us: AtomicU64,
    /// How far its wall clock is ahead of ours, in milliseconds.
    pub clock_offset_ms: AtomicI64,
    /// It came back with another incarnation than the one remembered.
    pub rebuilding: AtomicBool,
    /// Connections made.
    pub connects: AtomicU64,
    /// Connections that it or we refused in the handshake.
    pub refusals: AtomicU64,
    /// Connections closed for what came over them.
    pub protocol_errors: AtomicU64,
    /// Why there is no connection.
    pub trouble: Mutex<Option<String>>,
}

/// Identity and standing of this node, and its view of the others.
pub struct Membership {
    layout: Layout,
    own: NodeId,
    cluster_id: ClusterId,
    standing: AtomicU8,
    /// Why it is rebuilding.
    rebuilding: Mutex<Option<String>>,
    fenced: AtomicBool,
    draining: AtomicBool,
    peers: Vec<PeerState>,
    data_dir: DataDir,
    skew_max_ms: u64,
    /// Handshakes of nodes that do not belong here.
    pub strangers: AtomicU64,
    /// The last of them, which is not logged twice.
    last_stranger: Mutex<Option<Stranger>>,
}

impl Membership {
    /// Takes the opened directory; `own` is a node of `layout`; `rebuilding` says why, if it already is.
    #[must_use]
    pub fn new(
        layout: Layout,
        own: NodeId,
        cluster_id: ClusterId,
        data_dir: DataDir,
        rebuilding: Option<String>,
        skew_max_ms: u64,
    ) -> Self {
        let standing = if rebuilding.is_some() { Standing::Rebuilding } else { Standing::Unconfirmed };
        let membership = Self {
            peers: layout.nodes().iter().map(|_| PeerState::default()).collect(),
            layout,
            own,
            cluster_id,
            rebuilding: Mutex::new(rebuilding),
            standing: AtomicU8::new(standing as u8),
            fenced: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            data_dir,
            skew_max_ms,
            strangers: AtomicU64::new(0),
            last_stranger: Mutex::default(),
        };
        membership.confirm();
        membership
    }

    /// The layout that all nodes share.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// This node.
    #[must_use]
    pub fn own(&self) -> NodeId {
        self.own
    }

    /// All nodes but this one.
    pub fn others(&self) -> impl Iterator<Item = NodeId> {
        (0..=u8::MAX).map(NodeId).take(self.layout.nodes().len()).filter(|node| *node != self.own)
    }

    /// The URL of a node of the layout.
    ///
    /// # Panics
    /// If `node` is not of this layout.
    #[must_use]
    pub fn url(&self, node: NodeId) -> &str {
        &self.layout.nodes().get(usize::from(node.0)).expect("nodes come from this layout").url
    }

    /// The cluster's id.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster_id
    }

    /// This data directory's incarnation.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.data_dir.incarnation()
    }

    /// What is known of a node.
    ///
    /// # Panics
    /// If `node` is not of this layout.
    #[must_use]
    pub fn peer(&self, node: NodeId) -> &PeerState {
        self.peers.get(usize::from(node.0)).expect("nodes come from this layout")
    }

    /// The node with this URL.
    #[must_use]
    pub fn node_by_url(&self, url: &str) -> Option<NodeId> {
        let index = self.layout.nodes().iter().position(|node| node.url == url)?;
        u8::try_from(index).ok().map(NodeId)
    }

    /// Whether this node votes.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Acquire) {
            0 => Standing::Unconfirmed,
            1 => Standing::Voting,
            _ => Standing::Rebuilding,
        }
    }

    /// Why this node's own answers count for nothing now, if so.
    #[must_use]
    pub fn abstains(&self) -> Option<Failure> {
        match self.standing() {
            Standing::Voting => None,
            Standing::Unconfirmed => Some(Failure::NotServing),
            Standing::Rebuilding => Some(Failure::Rebuilding),
        }
    }

    /// Why this node is rebuilding.
    #[must_use]
    pub fn rebuilding_reason(&self) -> Option<String> {
        self.rebuilding.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The incarnation remembered for a peer.
    #[must_use]
    pub fn remembered(&self, url: &str) -> Option<Incarnation> {
        self.data_dir.remembered(url)
    }

    /// Remembers a peer that is met for the first time. Blocks on the disk: not for a shard.
    ///
    /// # Errors
    /// If it could not be made durable; then the peer's answers must not be counted.
    pub fn remember(&self, url: &str, incarnation: Incarnation) -> Result<(), DataDirError> {
        if self.data_dir.remembered(url).is_none() {
            self.data_dir.remember(url, incarnation)?;
        }
        self.confirm();
        Ok(())
    }

    /// Loses the vote: durable, so that a restart does not give it back. Blocks on the disk.
    ///
    /// # Errors
    /// If the mark could not be made durable; the vote is lost for this run all the same.
    pub fn become_rebuilding(&self, reason: &str) -> Result<(), DataDirError> {
        self.standing.store(Standing::Rebuilding as u8, Ordering::Release);
        let mut rebuilding = self.rebuilding.lock().unwrap_or_else(PoisonError::into_inner);
        if rebuilding.is_none() {
            tracing::error!(reason, "this node has lost what it acknowledged: rebuilding, without a vote");
            *rebuilding = Some(reason.to_owned());
            self.data_dir.set_rebuilding(reason)?;
        }
        Ok(())
    }

    fn confirm(&self) {
        let met = self.others().filter(|node| self.remembered(self.url(*node)).is_some()).count();
        if met >= self.layout.nodes().len() / 2 {
            let _ = self.standing.compare_exchange(
                Standing::Unconfirmed as u8,
                Standing::Voting as u8,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
    }

    /// Whether the clock is too far from most peers' to accept or coordinate anything new.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Takes a measured clock offset, and fences or frees this node: fenced while more than half of the
    /// connected peers are further than `skew_max` away.
    pub fn note_clock_offset(&self, node: NodeId, offset_ms: i64) {
        self.peer(node).clock_offset_ms.store(offset_ms, Ordering::Relaxed);
        let connected = || self.peers.iter().filter(|peer| peer.links.load(Ordering::Relaxed) > 0);
        let far = connected()
            .filter(|peer| peer.clock_offset_ms.load(Ordering::Relaxed).unsigned_abs() > self.skew_max_ms)
            .count();
        let fenced = far * 2 > connected().count();
        if self.fenced.swap(fenced, Ordering::Relaxed) != fenced {
            if fenced {
                tracing::error!(offset_ms, "clock is too far from most peers: fenced until it is set right");
            } else {
                tracing::info!(offset_ms, "clock agrees with the peers again");
            }
        }
    }

    /// Counts a refused handshake, and logs it if it is not the one that was logged last.
    pub fn note_stranger(&self, stranger: &Stranger) {
        self.strangers.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last_stranger.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(stranger) {
            tracing::warn!(reason = %stranger, "handshake refused");
            *last = Some(stranger.clone());
        }
    }

    /// From now on nothing new is begun.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether the node is stopping.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
