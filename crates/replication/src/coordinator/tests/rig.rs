//! A shard of node 0, and its peers, played.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kvorum_base::blocking_pool::{ReadPool, ReadPoolThreads};
use kvorum_base::clock::{Clock, SystemTime, TimeSource};
use kvorum_base::cpu_share::CpuShare;
use kvorum_base::value_memory::{Body, LargeValues};
use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::frame::{Decoder, Frame, Message, NO_EPOCH, encode};
use kvorum_core::hints::BacklogBounds;
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::quorum::Quorum;
use kvorum_core::{Hlc, Incarnation, Key, Record};
use kvorum_peer::context::PeerSettings;
use kvorum_peer::dial::{Dial, Tcp};
use kvorum_peer::handshake::Hello;
use kvorum_peer::membership::{Membership, RemembersUs};
use kvorum_peer::room::PeerRoom;
use kvorum_peer::server;
use kvorum_storage::Durability;
use kvorum_storage::commit::queue::TurnTime;
use kvorum_storage::commit::{CommitConfig, CommitThread, Committer, Completion, QueueLimits, Sink};
use kvorum_storage::data_dir::{ClusterId, DataDir, RunId};
use kvorum_storage::memory::{Fault, MemoryStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet};

use crate::anti_entropy::{AntiEntropy, RepairSettings};
use crate::cluster_scan::derivation::NoDerivation;
use crate::cluster_scan::{ScanBudget, ScanSettings};
use crate::coordinator::hedge::Hedging;
use crate::coordinator::metrics::CoordinatorMetrics;
use crate::coordinator::{NewValue, ReadResult, Refused, WithReceipt, WriteResult};
use crate::hints::{HintQueue, HintSettings};
use crate::replica::{Event, Mailbox};
use crate::shard::{FanOut, Shard, ShardParts};

/// Longer than anything should take, and shorter than the deadline.
pub(crate) const LONG: Duration = Duration::from_secs(10);
/// No round but those that a test asks for.
const NO_REPAIR: RepairSettings =
    RepairSettings { interval: LONG, rate: 1 << 20, tree_bytes_max: 1 << 21, lag: LONG, retention: LONG };
/// Enough for all that a test leaves.
const HINTS: HintSettings = HintSettings {
    bounds: BacklogBounds { bytes_max: 1 << 20, age_max: LONG },
    rate: 1 << 20,
    queue_bytes_max: 1 << 20,
};
/// The incarnation of the run.
pub(crate) const RUN: Incarnation = Incarnation(0x0b5e_55ed);
const CLUSTER: ClusterId = ClusterId(7);

pub(crate) struct Settings {
    pub(crate) fan_out: FanOut,
    pub(crate) deadline: Duration,
    pub(crate) lingering_max: usize,
    pub(crate) large_bytes_max: usize,
    /// Of the read pool. Without any, a test runs its jobs.
    pub(crate) read_threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fan_out: FanOut::Hedged,
            deadline: 2 * LONG,
            lingering_max: 100,
            large_bytes_max: 1 << 20,
            read_threads: 1,
        }
    }
}

/// Runs a test on a shard's kind of runtime.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "it never came to be");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

struct Post(Arc<Mailbox>);

impl Sink for Post {
    fn deliver(&mut self, _: u16, done: &mut Vec<Completion>) {
        self.0.post(done.drain(..).map(Event::Commit));
    }
}

/// What it was asked, pings aside; and where its answers go.
pub(crate) struct Peer {
    asked: mpsc::Receiver<Frame>,
    answers: OwnedWriteHalf,
    reader: JoinHandle<()>,
}

/// A peer before it takes calls.
pub(crate) struct Idle {
    node: NodeId,
    address: SocketAddr,
    listener: Option<TcpListener>,
    membership: Membership,
    _dir: TempDir,
}

pub(crate) struct Rig {
    pub(crate) shard: Shard,
    pub(crate) store: Arc<MemoryStore>,
    metrics: Arc<CoordinatorMetrics>,
    pub(crate) hints: Arc<HintQueue>,
    commits: Option<CommitThread<MemoryStore>>,
    pub(crate) peers: Vec<Peer>,
    _pool: Option<ReadPoolThreads>,
    _dir: TempDir,
}

impl Rig {
    /// Node 0 of `nodes`, connected to all others.
    pub(crate) async fn start(nodes: usize, settings: Settings) -> Self {
        let (mut rig, idle) = Self::dialling(nodes, settings).await;
        for peer in &idle {
            rig.connect(peer).await;
        }
        until(|| rig.shard.peers.all().iter().all(|peer| peer.is_up() && peer.votes())).await;
        rig
    }

    /// Node 0 of `nodes`, which all others have registered already, and which waits for their answers to its first
    /// dials.
    pub(crate) async fn dialling(nodes: usize, settings: Settings) -> (Self, Vec<Idle>) {
        Self::dialling_with(nodes, settings, Box::new(Tcp::default())).await
    }

    /// The same with another way to make connections.
    pub(crate) async fn dialling_with(nodes: usize, settings: Settings, dial: Box<dyn Dial>) -> (Self, Vec<Idle>) {
        let (rig, idle) = Self::unmet(nodes, settings, dial).await;
        idle.iter().for_each(|peer| rig.meet(peer));
        (rig, idle)
    }

    /// The same, but node 0 has had no handshake yet.
    pub(crate) async fn unmet(nodes: usize, settings: Settings, dial: Box<dyn Dial>) -> (Self, Vec<Idle>) {
        let mut listeners = Vec::new();
        for _ in 1..nodes {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listeners.push((format!("http://{}", listener.local_addr().unwrap()), listener));
        }
        // A layout sorts its nodes; this node's URL, a prefix of all others, comes first.
        listeners.sort_by(|(one, _), (other, _)| one.cmp(other));
        let urls = std::iter::once("http://127.0.0.1:1").chain(listeners.iter().map(|(url, _)| url.as_str()));
        let layout = Layout::fixed_at(urls).unwrap();
        let rig = Self::alone(layout.clone(), &settings, dial);
        let mut idle = Vec::new();
        for (index, (_, listener)) in (1..).zip(listeners) {
            idle.push(rig.idle(layout.clone(), NodeId(index), listener));
        }
        (rig, idle)
    }

    /// A peer that has registered node 0.
    pub(crate) fn idle(&self, layout: Layout, node: NodeId, listener: TcpListener) -> Idle {
        let dir = TempDir::new().unwrap();
        let membership = membership(layout, node, &dir);
        let ours = &self.shard.membership;
        membership.register_peer(NodeId(0), ours.directory(), ours.run(), RemembersUs::Yes).unwrap();
        let address = listener.local_addr().unwrap();
        Idle { node, address, listener: Some(listener), membership, _dir: dir }
    }

    /// Node 0 connects to a peer that has registered it.
    pub(crate) fn meet(&self, idle: &Idle) {
        let theirs = &idle.membership;
        self.shard.membership.register_peer(idle.node, theirs.directory(), theirs.run(), RemembersUs::Yes).unwrap();
    }

    /// Has a peer take the call of node 0; it is the last of `peers` from then on.
    pub(crate) async fn connect(&mut self, idle: &Idle) {
        self.peers.push(Peer::connect(idle, &self.shard.peer_context.settings).await);
    }

    /// A run of a peer sends a hello to node 0, and gets its answer.
    pub(crate) fn hello(&self, idle: &Idle, run: u64) {
        let mut hello = idle.hello(&self.shard.peer_context.settings);
        hello.run.id = RunId(run);
        server::answer(&self.shard.peer_context, Ok(&hello), None).unwrap();
    }

    fn alone(layout: Layout, settings: &Settings, dial: Box<dyn Dial>) -> Self {
        let dir = TempDir::new().unwrap();
        let membership = Arc::new(membership(layout, NodeId(0), &dir));
        let time: Arc<dyn TimeSource> = Arc::new(SystemTime);
        let store = Arc::new(MemoryStore::default());
        let skew_max = Duration::from_secs(60);
        let config = CommitConfig {
            retention: settings.deadline + Duration::from_millis(500),
            recent_entries_max: 1000,
            skew_max,
            bound_lead: Duration::from_secs(1),
            batch_bytes_max: 1 << 20,
            durability: Durability::Fsync,
        };
        let committer = Committer::new(store.clone(), config, Duration::ZERO).unwrap();
        let clock = Arc::new(Clock::new(time.clone(), committer.bound(), skew_max, RUN));
        let (pool, pool_threads) = match settings.read_threads {
            0 => (ReadPool::without_threads(100), None),
            threads => ReadPool::start(threads, 100).map(|(pool, threads)| (pool, Some(threads))).unwrap(),
        };
        let (mailbox, metrics): (Arc<Mailbox>, Arc<CoordinatorMetrics>) = Default::default();
        let limits = QueueLimits { works_max: 100, bytes_max: 1 << 20 };
        let now = move || TurnTime { boot: time.boot(), wall_ms: time.wall_ms() };
        let (queue, commits) =
            CommitThread::start(committer, limits, pool.clone(), Post(mailbox.clone()), now).unwrap();
        let hints = Arc::new(HintQueue::new(HINTS));
        let room = PeerRoom::new(10, 1 << 20);
        let shard = Shard::new(ShardParts {
            index: 0,
            peers: PeerSettings {
                deadline: settings.deadline,
                frame_bytes_max: 1 << 20,
                partial_bytes_max: 1 << 20,
                queue_bytes_max: 1 << 20,
                connect_timeout: LONG,
                reconnect_delay_max: LONG,
            },
            fan_out: settings.fan_out,
            hedging: Hedging::new(5, Duration::from_millis(100)),
            lingering_max: settings.lingering_max,
            clock,
            membership,
            store: store.clone(),
            queue,
            pool,
            scans: ReadPool::without_threads(100),
            mailbox,
            cpu_share: CpuShare::new(50),
            large_values: LargeValues::new(settings.large_bytes_max),
            scan_budget: ScanBudget::new(ScanSettings { memory_bytes: 1 << 20, page_bytes: 1 << 10, rate: None }),
            derivation: Arc::new(NoDerivation),
            hints: hints.clone(),
            anti_entropy: Arc::new(AntiEntropy::new(NO_REPAIR, Duration::ZERO)),
            metrics: metrics.clone(),
            dial,
            secret: None,
            room,
            first_dials: Vec::new(),
        });
        shard.start();
        Self { shard, store, metrics, hints, commits: Some(commits), peers: Vec::new(), _pool: pool_threads, _dir: dir }
    }

    pub(crate) fn metrics(&self) -> &CoordinatorMetrics {
        &self.metrics
    }

    pub(crate) fn put(&self, key: &Key, quorum: Quorum) -> JoinHandle<Result<WriteResult, Refused>> {
        self.put_value(key, quorum, b"value")
    }

    pub(crate) fn put_value(
        &self,
        key: &Key,
        quorum: Quorum,
        value: &'static [u8],
    ) -> JoinHandle<Result<WriteResult, Refused>> {
        let (coordinator, key) = (self.shard.coordinator.clone(), key.clone());
        let charge = self.shard.large_values.charge(value.len()).unwrap();
        let body = Body::new(value.into(), charge);
        tokio::task::spawn_local(async move {
            coordinator.put(key, quorum, NewValue { body, content_type: None, ttl_s: None }, WithReceipt::Yes).await
        })
    }

    pub(crate) fn get(&self, key: &Key, quorum: Quorum) -> JoinHandle<Result<ReadResult, Refused>> {
        let (coordinator, key) = (self.shard.coordinator.clone(), key.clone());
        tokio::task::spawn_local(async move { coordinator.get(key, quorum, WithReceipt::Yes).await })
    }

    /// Writes a key that all replicas accept; what they hold then.
    pub(crate) async fn stored_everywhere(&mut self, key: &Key) -> Record {
        let from = u8::try_from(self.peers.len() + 1).unwrap();
        let put = self.put(key, Quorum::new(from, from).unwrap());
        let mut stored = None;
        for peer in 0..self.peers.len() {
            let store = self.next(peer).await;
            self.answer(peer, &store, super::accepted()).await;
            let Message::Store { record, .. } = store.message else { panic!("{:?}", store.message) };
            stored = Some(Record::decode(key, record).unwrap());
        }
        put.await.unwrap().unwrap();
        stored.expect("there are peers")
    }

    /// What peer number `peer` (node `peer + 1`) is asked next.
    pub(crate) async fn next(&mut self, peer: usize) -> Frame {
        let frame = tokio::time::timeout(LONG, self.peers[peer].asked.recv()).await;
        frame.unwrap_or_else(|_| panic!("peer {peer} was asked nothing")).expect("the connection is up")
    }

    /// What one of the first two peers is asked next.
    pub(crate) async fn next_of_any(&mut self) -> (usize, Frame) {
        let [first, second, ..] = &mut self.peers[..] else { panic!("there are two peers") };
        let asked = async {
            tokio::select! {
                frame = first.asked.recv() => (0, frame.unwrap()),
                frame = second.asked.recv() => (1, frame.unwrap()),
            }
        };
        tokio::time::timeout(LONG, asked).await.expect("nobody was asked anything")
    }

    pub(crate) async fn answer(&mut self, peer: usize, question: &Frame, message: Message) {
        let mut out = BytesMut::new();
        assert!(
            encode(&Frame { id: question.id, epoch: NO_EPOCH, hlc: Hlc::ZERO, message }, &mut out).is_none(),
            "it is small"
        );
        self.peers[peer].answers.write_all(&out).await.unwrap();
    }

    /// Ends the connection to a peer, which does not come back.
    pub(crate) async fn disconnect(&mut self, peer: usize) {
        self.peers[peer].reader.abort();
        self.peers[peer].answers.shutdown().await.unwrap();
        let client = self.shard.peers.get(idle_node(peer)).unwrap();
        until(|| !client.is_up()).await;
    }

    /// From now on the queue to the commit thread takes nothing.
    pub(crate) fn stop_commits(&mut self) {
        drop(self.commits.take().expect("once").stop());
    }

    pub(crate) fn rank(&self, key: &Key, peer: u8) -> usize {
        let layout = self.shard.membership.layout();
        layout.preference_list(key.hash().partition()).iter().position(|node| node.0 == u32::from(peer) + 1).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(commits) = self.commits.take() {
            // A test that failed while the disk hung is to end.
            self.store.set_fault(Fault::None);
            drop(commits.stop());
        }
    }
}

impl Idle {
    fn hello(&self, settings: &PeerSettings) -> Hello {
        Hello::ours(&self.membership, settings.deadline_ms(), NodeId(0))
    }

    /// Refuses connections from now on.
    pub(crate) fn close(&mut self) {
        self.listener = None;
    }

    /// Takes them again.
    pub(crate) async fn listen(&mut self) {
        self.listener = Some(TcpListener::bind(self.address).await.unwrap());
    }
}

impl Peer {
    async fn connect(idle: &Idle, settings: &PeerSettings) -> Self {
        let accepted = idle.listener.as_ref().expect("it listens").accept();
        let (mut stream, _) = tokio::time::timeout(LONG, accepted).await.expect("it is called").unwrap();
        let mut input = BytesMut::new();
        let end = loop {
            assert!(stream.read_buf(&mut input).await.unwrap() > 0);
            if let Some(at) = input.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let _head = input.split_to(end);
        let hello = idle.hello(settings).headers();
        let mut head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n".to_owned();
        for (name, value) in &hello {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        Self::serve(stream, input)
    }

    fn serve(stream: TcpStream, mut input: BytesMut) -> Self {
        let (mut questions, answers) = stream.into_split();
        let (ask, asked) = mpsc::channel(1000);
        let reader = tokio::task::spawn_local(async move {
            let mut decoder = Decoder::new(1 << 20, 1 << 20);
            loop {
                while let Some(frame) = decoder.decode(&mut input).unwrap() {
                    if !matches!(frame.message, Message::Ping { .. }) && ask.send(frame).await.is_err() {
                        return;
                    }
                }
                if !matches!(questions.read_buf(&mut input).await, Ok(count) if count > 0) {
                    return;
                }
            }
        });
        Self { asked, answers, reader }
    }
}

pub(crate) fn idle_node(peer: usize) -> NodeId {
    NodeId(u32::try_from(peer + 1).unwrap())
}

fn membership(layout: Layout, own: NodeId, dir: &TempDir) -> Membership {
    let data_dir = DataDir::open(&dir.path().join("data"), CLUSTER).unwrap();
    Membership::new(Acceptor::new(own, data_dir.id(), layout), data_dir, 0, None, 60_000)
}
