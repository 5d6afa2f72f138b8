//! One node, wired together: the only place that sees the configuration and knows all parts.
//!
//! Starting: listener, data directory, store, commit thread, read pool, shards. The listener comes first, so
//! that a port in use leaves the directory alone. Stopping is the same backwards: nothing new is taken,
//! what is under way is finished, the queue of writes is drained, the store flushed.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use kvorum_core::placement::{Layout, LayoutError, LayoutNode, NodeId};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::clock::{Clock, Incarnations, SystemTime, TimeSource};
use crate::commit::queue::Now;
use crate::commit::{CommitConfig, CommitMetrics, CommitQueue, CommitThread, Committer, Done, QueueLimits, Sink};
use crate::config::Config;
use crate::data_dir::{ClusterId, DataDir, DataDirError};
use crate::histogram::Histogram;
use crate::http::HttpMetrics;
use crate::large_values::LargeValues;
use crate::mailbox::{Event, Mailbox};
use crate::membership::Membership;
use crate::metrics::CoordinatorMetrics;
use crate::read_pool::{ReadPool, ReadPoolThreads};
use crate::runtime::{ShardParts, run_shard};
use crate::store::options::MemoryBudget;
use crate::store::rocks::{OpenError, RocksStore};
use crate::store::{Durability, HealthState, Store, StoreError};

/// Connections that wait for a shard to take them.
const HANDOVER_MAX: usize = 128;
/// Clients get so long to finish when the node stops; the exit itself comes within ten seconds.
const DRAIN_MAX: Duration = Duration::from_secs(7);
/// Reads that wait for a thread of the pool.
const READ_QUEUE_MAX: usize = 4096;
/// How far ahead of its use the clock's bound is made durable.
const BOUND_LEAD: Duration = Duration::from_millis(1000);
/// Versions are remembered for so much longer than their coordinator waits, by which clocks of two
/// machines may drift meanwhile.
const RETENTION_MARGIN: Duration = Duration::from_millis(500);

/// Why a node does not start. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}. Stop what uses it, or give another --listen")]
    Listen {
        /// What was asked for.
        address: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// The layout is impossible.
    #[error("the cluster's layout is impossible: {0}")]
    Layout(#[from] LayoutError),
    /// The directory is not this node's.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The store does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store cannot be read.
    #[error("the store cannot be read: {0}. See docs/operating.md, \"A disk fails\"")]
    Store(#[from] StoreError),
    /// The system refuses a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// What the node shows of itself: to `/readyz`, `/metrics` and `/v0/cluster`.
pub struct NodeView {
    /// The hybrid logical clock.
    pub clock: Arc<Clock>,
    /// Identity, standing and peers.
    pub membership: Arc<Membership>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Writes on their way to the store.
    pub queue: CommitQueue,
    /// What the commit thread counts.
    pub commit: Arc<CommitMetrics>,
    /// Log write and fsync of each batch, in microseconds.
    pub commit_micros: Arc<Histogram>,
    /// Blocking reads.
    pub pool: ReadPool,
    /// Memory for large values.
    pub large_values: Arc<LargeValues>,
    /// What each shard's coordinator counts.
    pub coordinators: Vec<Arc<CoordinatorMetrics>>,
    /// What each shard's HTTP side counts.
    pub http: Vec<Arc<HttpMetrics>>,
}

impl NodeView {
    /// Whether the node takes reads and writes.
    ///
    /// # Errors
    /// Why it does not.
    pub fn ready(&self) -> Result<(), String> {
        if self.membership.is_draining() {
            return Err("the node is stopping".to_owned());
        }
        if self.membership.is_fenced() {
            return Err("the clock is too far from most peers': set it right".to_owned());
        }
        if self.clock.is_stuck_ahead() {
            return Err("the wall clock was set back by more than clock.skew_max: set it right, or wait".to_owned());
        }
        match self.store.health() {
            HealthState::Healthy => {}
            HealthState::DiskFull => return Err("the disk is full: reads go on, writes resume with space".to_owned()),
            HealthState::Poisoned => {
                return Err("a log write or fsync failed: reads only until a restart; check the disk".to_owned());
            }
        }
        self.serving()
    }

    /// Whether the node answers clients at all.
    ///
    /// # Errors
    /// Why it does not.
    pub fn serving(&self) -> Result<(), String> {
        if self.membership.abstains() == Some(kvorum_core::quorum::Failure::NotServing) {
            return Err("the data directory is new: waiting to meet a majority of the cluster once".to_owned());
        }
        Ok(())
    }
}

/// Takes what the commit thread has done to the shards.
struct Mailboxes(Vec<Arc<Mailbox>>);

impl Sink for Mailboxes {
    fn deliver(&mut self, shard: u16, done: &mut Vec<Done>) {
        if let Some(mailbox) = self.0.get(usize::from(shard)) {
            mailbox.post(done.drain(..).map(Event::Commit));
        }
    }
}

/// Runs a node until it is told to stop by SIGTERM or SIGINT.
///
/// # Errors
/// [`StartError`]; nothing has been changed then.
pub fn run(config: &Config) -> Result<(), StartError> {
    let address = config.listen.to_string();
    let listen_error = |error| StartError::Listen { address: address.clone(), error };
    let listener = TcpListener::bind(&address).map_err(listen_error)?;
    listener.set_nonblocking(true).map_err(listen_error)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let node = Node::start(config)?;
    tracing::info!(url = config.own.as_str(), incarnation = node.view.membership.incarnation().0, "node started");
    let accepted = runtime.block_on(accept(listener, &node));
    node.stop(config);
    accepted.map_err(listen_error)
}

struct Node {
    view: Arc<NodeView>,
    shards: Vec<ShardThread>,
    drain: watch::Sender<bool>,
    commit: CommitThread<RocksStore>,
    pool: ReadPoolThreads,
}

struct ShardThread {
    connections: mpsc::Sender<TcpHandover>,
    thread: JoinHandle<()>,
}

/// A connection on its way to its shard's runtime.
pub type TcpHandover = std::net::TcpStream;

impl Node {
    fn start(config: &Config) -> Result<Self, StartError> {
        let time: Arc<dyn TimeSource> = Arc::new(SystemTime);
        let layout = layout(config)?;
        let own = layout.nodes().iter().position(|node| node.url == config.own.as_str());
        let own = NodeId(u8::try_from(own.expect("the configuration has checked it")).expect("at most 128 nodes"));
        let cluster_id = cluster_id(&layout);
        let data_dir = DataDir::open(&config.data_dir, cluster_id)?;
        let budget = MemoryBudget::new(config.memory_bytes.get()).expect("the configuration has checked it");
        if let Some(excess) = config.excess_bytes() {
            tracing::warn!(%excess, "limits allow more memory than memory_bytes and 128 MiB");
        }
        let (store, rebuilding) = open_store(&data_dir, budget)?;
        let incarnations = Incarnations { directory: data_dir.incarnation(), run: data_dir.draw()? };
        let skew_max_ms = u64::try_from(config.clock_skew_max.as_millis()).unwrap_or(u64::MAX);
        let membership = Arc::new(Membership::new(layout, own, cluster_id, data_dir, rebuilding, skew_max_ms));
        let commit_micros = store.commit_micros();
        let committer = Committer::new(store.clone(), commit_config(config), time.boot())?;
        let clock = Arc::new(Clock::new(time.clone(), committer.bound(), config.clock_skew_max, incarnations));
        let commit_metrics = committer.metrics();
        let (pool, pool_threads) = ReadPool::start(config.runtime.read_threads.get(), READ_QUEUE_MAX)?;
        let shard_count = config.runtime.shards.get();
        let mailboxes: Vec<Arc<Mailbox>> = (0..shard_count).map(|_| Arc::default()).collect();
        let limits = QueueLimits {
            works_max: config.commit.queue_records_max.get(),
            bytes_max: config.commit.queue_bytes_max.get(),
        };
        let now = move || Now { boot: time.boot(), wall_ms: time.wall_ms() };
        let (queue, commit) = CommitThread::start(committer, limits, pool.clone(), Mailboxes(mailboxes.clone()), now)?;
        let store: Arc<dyn Store> = store;
        let view = Arc::new(NodeView {
            clock: clock.clone(),
            membership: membership.clone(),
            store,
            queue,
            commit: commit_metrics,
            commit_micros,
            pool,
            large_values: LargeValues::new(config.coordinator.request_bytes_max.get()),
            coordinators: (0..shard_count).map(|_| Arc::default()).collect(),
            http: (0..shard_count).map(|_| Arc::default()).collect(),
        });
        let (drain, drained) = watch::channel(false);
        let mut shards = Vec::new();
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let (connections, taken) = mpsc::channel(HANDOVER_MAX);
            let parts = ShardParts {
                index: u16::try_from(index).expect("the configuration bounds the shards"),
                clock: clock.clone(),
                view: view.clone(),
                mailbox,
                connections: taken,
                drain: drained.clone(),
            };
            let config = config.clone();
            let thread = std::thread::Builder::new().name(format!("shard-{index}"));
            let thread = thread.spawn(move || run_shard(&config, parts))?;
            shards.push(ShardThread { connections, thread });
        }
        Ok(Self { view, shards, drain, commit, pool: pool_threads })
    }

    fn stop(self, config: &Config) {
        let Self { view, shards, drain, commit, pool } = self;
        drain.send_replace(true);
        for shard in shards {
            drop(shard.connections);
            if shard.thread.join().is_err() {
                tracing::error!("a shard ended in a panic");
            }
        }
        let store = commit.stop();
        pool.stop();
        if let Err(error) = store.flush() {
            tracing::warn!(%error, "could not flush the store: the next start reads its log instead");
        }
        drop(view);
        tracing::info!(url = config.own.as_str(), "node stopped");
    }
}

/// Hands connections to the shards in turn until the node is told to stop.
async fn accept(listener: TcpListener, node: &Node) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut shards = node.shards.iter().cycle();
    loop {
        let accepted = tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let Some(shard) = shards.next() else { break };
                if let Err(error) = hand_over(stream, shard).await {
                    tracing::debug!(%error, "connection lost before it was served");
                }
            }
            // Out of descriptors, most likely: those that are open may close.
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    tracing::info!("stopping: finishing what is under way");
    node.view.membership.drain();
    Ok(())
}

async fn hand_over(stream: TcpStream, shard: &ShardThread) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    shard.connections.send(stream).await.map_err(|_| std::io::Error::other("the shard has stopped"))
}

/// How long connections may take to finish.
#[must_use]
pub fn drain_max() -> Duration {
    DRAIN_MAX
}

fn layout(config: &Config) -> Result<Layout, LayoutError> {
    let nodes = config.members.iter().map(|member| LayoutNode {
        url: member.url.as_str().to_owned(),
        weight: u16::try_from(member.weight.get()).unwrap_or(u16::MAX),
        zone: member.zone.as_ref().map(|zone| zone.as_str().to_owned()),
    });
    Layout::new(1, nodes.collect())
}

/// A cluster is what its URLs are.
fn cluster_id(layout: &Layout) -> ClusterId {
    let urls: Vec<&str> = layout.nodes().iter().map(|node| node.url.as_str()).collect();
    ClusterId(xxhash_rust::xxh3::xxh3_64(urls.join("\n").as_bytes()))
}

fn open_store(data_dir: &DataDir, budget: MemoryBudget) -> Result<(Arc<RocksStore>, Option<String>), StartError> {
    let (store, log) = RocksStore::open_in(data_dir, budget)?;
    if let Some(loss) = log.loss() {
        tracing::error!(reason = loss, "this node has lost what it acknowledged: rebuilding, without a vote");
    }
    Ok((Arc::new(store), data_dir.rebuilding()?))
}

fn commit_config(config: &Config) -> CommitConfig {
    CommitConfig {
        retention: config.coordinator.deadline + RETENTION_MARGIN,
        recent_entries_max: config.commit.recent_versions_max.get(),
        skew_max: config.clock_skew_max,
        bound_lead: BOUND_LEAD,
        batch_bytes_max: config.batch_bytes_max(),
        durability: match config.durability {
            crate::config::Durability::Fsync => Durability::Fsync,
            crate::config::Durability::Os => Durability::Os,
        },
    }
}
