//! One shard: a single-threaded runtime with its share of the client connections and a connection of
//! its own to every peer. A request stays on the shard that accepted it; nothing here is locked. One more, the
//! *background* shard, has no clients and coordinates nothing: its connections carry bulk traffic.
//!
//! [`Shard::new`] is the one place where the parts of a shard are put together, for the node, the simulator and tests.
//! Each part owns what it needs; none is given the shard.

mod dispatch;

pub use crate::coordinator::FanOut;

use std::rc::Rc;
use std::sync::Arc;

use dispatch::Dispatch;
use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::Clock;
use kvorum_base::cpu_share::CpuShare;
use kvorum_base::value_memory::LargeValues;
use kvorum_core::layout::Layout;
use kvorum_peer::context::{PeerContext, PeerSettings};
use kvorum_peer::dial::Dial;
use kvorum_peer::first_dials::FirstDial;
use kvorum_peer::handler::FrameHandler;
use kvorum_peer::link::Flusher;
use kvorum_peer::membership::Membership;
use kvorum_peer::peers::Peers;
use kvorum_peer::proof::ClusterSecret;
use kvorum_peer::room::PeerRoom;
use kvorum_storage::Store;
use kvorum_storage::commit::CommitQueue;
use tokio::sync::watch;

use crate::anti_entropy::AntiEntropy;
use crate::anti_entropy::driver::Driver;
use crate::anti_entropy::member::Member;
use crate::background_rpc::BackgroundRpc;
use crate::background_scan::BackgroundScan;
use crate::cluster_scan::derivation::Derivation;
use crate::cluster_scan::{PageReader, ScanBudget, Scanner};
use crate::coordinator::hedge::Hedging;
use crate::coordinator::metrics::CoordinatorMetrics;
use crate::coordinator::{Coordinator, CoordinatorParts};
use crate::hints::HintQueue;
use crate::hints::hint_store::{HintStore, HintStoreParts};
use crate::layouts::driver::LayoutDriver;
use crate::layouts::proposer::Proposer;
use crate::layouts::voter::LayoutVoter;
use crate::pinned_layout::ShardLayout;
use crate::replica::Mailbox;
use crate::replica::Replica;
use crate::replica::reply_to::ReplyTo;

/// What a shard is made of.
pub struct ShardParts {
    /// Its number.
    pub index: u16,
    /// Limits and times of its connections to peers.
    pub peers: PeerSettings,
    /// Which replicas a read asks first.
    pub fan_out: FanOut,
    /// When reads ask more replicas.
    pub hedging: Hedging,
    /// Requests that were answered and wait for their last replicas.
    pub lingering_max: usize,
    /// The node's clock.
    pub clock: Arc<Clock>,
    /// The node's identity and standing.
    pub membership: Arc<Membership>,
    /// What the node stores.
    pub store: Arc<dyn Store>,
    /// The way to the commit thread.
    pub queue: CommitQueue,
    /// What may block on the disk and a request waits for.
    pub pool: ReadPool,
    /// Scans of what the node holds.
    pub scans: ReadPool,
    /// Where the commit thread and the pools leave answers.
    pub mailbox: Arc<Mailbox>,
    /// What background work takes of a core.
    pub cpu_share: CpuShare,
    /// The node's memory for large values.
    pub large_values: Arc<LargeValues>,
    /// What scans over the cluster take, on all shards.
    pub scan_budget: Arc<ScanBudget>,
    /// Does what scans want done beside the data.
    pub derivation: Arc<dyn Derivation>,
    /// Takes what replicas do not confirm.
    pub hints: Arc<HintQueue>,
    /// The node's part in rounds of anti-entropy.
    pub anti_entropy: Arc<AntiEntropy>,
    /// What the coordinator counts.
    pub metrics: Arc<CoordinatorMetrics>,
    /// Makes connections to peers.
    pub dial: Box<dyn Dial>,
    /// What peers have to show, if anything.
    pub secret: Option<Arc<ClusterSecret>>,
    /// How much peers may take, on all shards.
    pub room: Arc<PeerRoom>,
    /// The node waits for these: for none where they are fewer than peers.
    pub first_dials: Vec<FirstDial>,
}

/// The parts of one shard, to be wired to the outside. None of them is given this.
pub struct Shard {
    /// The node's clock.
    pub clock: Arc<Clock>,
    /// The node's identity and standing.
    pub membership: Arc<Membership>,
    /// Where keys belong.
    pub layout: Rc<ShardLayout>,
    /// What may block on the disk and a request waits for.
    pub pool: ReadPool,
    /// Scans of what the node holds.
    pub scans: ReadPool,
    /// What background work takes of a core.
    pub cpu_share: CpuShare,
    /// The node's memory for large values.
    pub large_values: Arc<LargeValues>,
    /// The node's part in rounds of anti-entropy.
    pub anti_entropy: Arc<AntiEntropy>,
    /// This node as a replica.
    pub replica: Rc<Replica<ReplyTo>>,
    /// The other nodes.
    pub peers: Rc<Peers>,
    /// What all connections share.
    pub peer_context: Rc<PeerContext>,
    /// What is done with what comes over them.
    pub handler: Rc<dyn FrameHandler>,
    /// Requests of clients.
    pub coordinator: Coordinator,
    /// Questions of background work.
    pub rpc: Rc<BackgroundRpc>,
    /// Scans over the cluster.
    pub scanner: Rc<Scanner>,
    /// Scans for background work.
    pub scan: BackgroundScan,
    /// Answers to drivers of anti-entropy.
    pub member: Rc<Member>,
    dispatch: Rc<Dispatch>,
    mailbox: Arc<Mailbox>,
    store: Arc<dyn Store>,
    hints: Arc<HintQueue>,
}

/// Takes part in rounds.
fn member(parts: &ShardParts, replica: &Rc<Replica<ReplyTo>>, scan: &BackgroundScan) -> Rc<Member> {
    Rc::new(Member {
        clock: parts.clock.clone(),
        membership: parts.membership.clone(),
        replica: replica.clone(),
        pool: parts.pool.clone(),
        scan: scan.clone(),
        anti_entropy: parts.anti_entropy.clone(),
    })
}

fn background_scan(parts: &ShardParts) -> BackgroundScan {
    BackgroundScan::new(parts.pool.clone(), parts.scans.clone(), parts.cpu_share.clone())
}

fn replica(parts: &ShardParts) -> Rc<Replica<ReplyTo>> {
    Rc::new(Replica::new(
        parts.index,
        parts.store.clone(),
        parts.queue.clone(),
        parts.pool.clone(),
        parts.mailbox.clone(),
        parts.membership.clone(),
        parts.large_values.clone(),
        parts.clock.clone(),
    ))
}

/// Reads pages of what the node holds, for scans over the cluster.
fn page_reader(parts: &ShardParts, scan: &BackgroundScan) -> Rc<PageReader> {
    let (membership, large_values) = (parts.membership.clone(), parts.large_values.clone());
    let (store, budget, derivation) = (parts.store.clone(), parts.scan_budget.clone(), parts.derivation.clone());
    Rc::new(PageReader::new(store, scan.clone(), membership, large_values, budget, derivation))
}

/// Scans the cluster.
fn scanner(
    context: &PeerContext,
    layout: &Rc<ShardLayout>,
    peers: &Rc<Peers>,
    rpc: &Rc<BackgroundRpc>,
    reader: &Rc<PageReader>,
    coordinator: &Coordinator,
    budget: Arc<ScanBudget>,
) -> Rc<Scanner> {
    Rc::new(Scanner {
        clock: context.clock.clone(),
        membership: context.membership.clone(),
        layout: layout.clone(),
        peers: peers.clone(),
        rpc: rpc.clone(),
        reader: reader.clone(),
        coordinator: coordinator.clone(),
        budget,
    })
}

impl Shard {
    /// Puts a shard together; nothing runs yet.
    #[must_use]
    pub fn new(parts: ShardParts) -> Self {
        let (scan, replica) = (background_scan(&parts), replica(&parts));
        let (member, pages) = (member(&parts, &replica, &scan), page_reader(&parts, &scan));
        let ShardParts { index, clock, membership, store, pool, scans, mailbox, cpu_share, .. } = parts;
        let ShardParts { large_values, hints, anti_entropy, .. } = parts;
        let peer_context = Rc::new(PeerContext {
            shard: index,
            settings: parts.peers,
            clock: clock.clone(),
            membership: membership.clone(),
            pool: pool.clone(),
            flusher: Rc::new(Flusher::default()),
            dial: parts.dial,
            secret: parts.secret,
            room: parts.room,
        });
        let (peers, layout) = (Peers::new(&peer_context, parts.first_dials), ShardLayout::new(membership.layout()));
        let coordinator = Coordinator::new(CoordinatorParts {
            clock: clock.clone(),
            membership: membership.clone(),
            layout: layout.clone(),
            replica: replica.clone(),
            peers: peers.clone(),
            large_values: large_values.clone(),
            cpu_share: cpu_share.clone(),
            hints: hints.clone(),
            metrics: parts.metrics,
            hedging: parts.hedging,
            fan_out: parts.fan_out,
            deadline: peer_context.settings.deadline,
            lingering_max: parts.lingering_max,
        });
        let rpc = BackgroundRpc::new(membership.clone(), peers.clone(), replica.clone(), large_values.clone());
        let scanner = scanner(&peer_context, &layout, &peers, &rpc, &pages, &coordinator, parts.scan_budget);
        let dispatch = Rc::new(Dispatch {
            pages,
            clock: clock.clone(),
            membership: membership.clone(),
            replica: replica.clone(),
            coordinator: coordinator.clone(),
            rpc: rpc.clone(),
            member: member.clone(),
            voter: LayoutVoter::new(clock.clone(), membership.clone(), pool.clone()),
            cpu_share: cpu_share.clone(),
            works: Default::default(),
        });
        Self {
            clock,
            membership,
            layout,
            pool,
            scans,
            cpu_share,
            large_values,
            anti_entropy,
            replica,
            peers,
            peer_context,
            handler: dispatch.clone(),
            coordinator,
            rpc,
            scanner,
            scan,
            member,
            dispatch,
            mailbox,
            store,
            hints,
        }
    }

    /// Starts everything that runs for as long as the shard does.
    pub fn start(&self) {
        tokio::task::spawn_local(self.dispatch.clone().take_mail(self.mailbox.clone()));
        tokio::task::spawn_local(self.peer_context.flusher.clone().run());
        tokio::task::spawn_local(self.coordinator.clone().run_timers());
        self.peers.start(&self.handler);
        let (layouts, layout) = (self.membership.layouts(), self.layout.clone());
        tokio::task::spawn_local(follow_layouts(layouts, layout, self.peers.clone(), self.handler.clone()));
    }

    /// What drives rounds of anti-entropy, on one shard of the node.
    #[must_use]
    pub fn driver(&self) -> Rc<Driver> {
        let (member, rpc, cpu_share) = (self.member.clone(), self.rpc.clone(), self.cpu_share.clone());
        Rc::new(Driver { member, rpc, cpu_share })
    }

    /// What has layouts decided.
    #[must_use]
    pub fn proposer(&self) -> Rc<Proposer> {
        let (membership, voter, rpc) = (self.membership.clone(), self.dispatch.voter.clone(), self.rpc.clone());
        Rc::new(Proposer { membership, voter, rpc, deadline: self.peer_context.settings.deadline })
    }

    /// What sees to it that the node knows the newest layout, on one shard of it. `copies`: what it proposes if it founds the
    /// cluster.
    #[must_use]
    pub fn layout_driver(&self, copies: u8) -> Rc<LayoutDriver> {
        let (clock, replica) = (self.clock.clone(), self.replica.clone());
        Rc::new(LayoutDriver { clock, proposer: self.proposer(), replica, copies })
    }

    /// What keeps and delivers hints, on one shard of the node.
    #[must_use]
    pub fn hint_store(&self) -> Rc<HintStore> {
        HintStore::new(HintStoreParts {
            clock: self.clock.clone(),
            membership: self.membership.clone(),
            layout: self.layout.clone(),
            pool: self.pool.clone(),
            scan: self.scan.clone(),
            cpu_share: self.cpu_share.clone(),
            large_values: self.large_values.clone(),
            anti_entropy: self.anti_entropy.clone(),
            peers: self.peers.clone(),
            rpc: self.rpc.clone(),
            store: self.store.clone(),
            queue: self.hints.clone(),
        })
    }
}

/// Goes over to each newer layout: connects to the nodes that have come, then begins requests with it.
async fn follow_layouts(
    mut layouts: watch::Receiver<Arc<Layout>>,
    shard: Rc<ShardLayout>,
    peers: Rc<Peers>,
    handler: Rc<dyn FrameHandler>,
) {
    // Between the shard's making and its start there may have been one.
    layouts.mark_changed();
    while layouts.changed().await.is_ok() {
        let layout = layouts.borrow_and_update().clone();
        peers.follow(&layout, &handler);
        shard.set(layout);
    }
}
