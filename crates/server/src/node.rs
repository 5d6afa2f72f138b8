//! One node, wired together: with `runtime.rs`, which does the same for a shard, the only place with the configuration
//! and all parts.
//!
//! Starting: listener, data directory, store, commit thread, read pool, background shard, shards. The listener
//! comes first, so that a port in use leaves the directory alone. Stopping is the same backwards: nothing new is
//! taken, what is under way is finished, the queue of writes is drained, the store flushed. Connections are taken until
//! the last shard is done, so that clients get an answer; two threads end the process in time whatever the disk does.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvorum_base::blocking_pool::{ReadPool, ReadPoolThreads};
use kvorum_base::clock::{Clock, SystemTime, TimeSource};
use kvorum_base::cpu_share::CpuShare;
use kvorum_base::faults::{Faults, SkewedTime};
use kvorum_base::value_memory::LargeValues;
use kvorum_config::{Address, Config};
use kvorum_core::hints::BacklogBounds;
use kvorum_core::layout::PlanError;
use kvorum_core::scan::page::PAGE_BYTES_MAX;
use kvorum_engine_rocksdb::RocksStore;
use kvorum_engine_rocksdb::backup;
use kvorum_engine_rocksdb::backup::{BackupError, Label, Scope};
use kvorum_engine_rocksdb::reaper::Reaper;
use kvorum_http::{AddressSeats, BrowserRules, ClientShares};
use kvorum_peer::first_dials::FirstDials;
use kvorum_peer::membership::Membership;
use kvorum_peer::room::PeerRoom;
use kvorum_replication::anti_entropy::{AntiEntropy, RepairSettings};
use kvorum_replication::cluster_scan::{ScanBudget, ScanSettings};
use kvorum_replication::coordinator::metrics::CoordinatorMetrics;
use kvorum_replication::coordinator::slow::SlowLog;
use kvorum_replication::hints::{HintQueue, HintSettings};
use kvorum_replication::replica::{Mailbox, Mailboxes};
use kvorum_replication::scrub::Scrub;
use kvorum_storage::budget::MemoryBudget;
use kvorum_storage::commit::queue::TurnTime;
use kvorum_storage::commit::{BOUND_LEAD, CommitConfig, CommitThread, Committer, QueueLimits, RETENTION_MARGIN};
use kvorum_storage::data_dir::DataDir;
use kvorum_storage::{Durability, Store};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::founding::{acceptor, founding, list_id};
use crate::guards::Guards;
use crate::handover::TcpHandover;
use crate::profile::console::AdminConsole;
use crate::profile::listener::{AdminListener, AdminRules};
use crate::runtime::{BackgroundParts, ThreadParts, browser_rules, run_background, run_shard};
pub use crate::start_error::StartError;
use crate::view::NodeView;
use crate::work::NodeWork;

/// Connections that wait for a shard to take them.
const HANDOVER_MAX: usize = 128;
/// After so long the engine's compactions, and the writes that wait for them, are given up.
const HURRY_AFTER: Duration = Duration::from_secs(8);
/// After so long the process ends, wherever it stands: what was acknowledged is in the log.
const EXIT_AFTER: Duration = Duration::from_secs(9);
/// Between two looks for a shard with room; the kernel keeps further connections meanwhile.
const FULL_PAUSE: Duration = Duration::from_millis(1);
/// Reads that wait for a thread of the pool.
const READ_QUEUE_MAX: usize = 4096;
/// Pages of scans that wait for their thread. There is a handful of scans, and each has one page under way.
const SCAN_QUEUE_MAX: usize = 64;

/// Runs a node until SIGTERM or SIGINT. `commit`: what the program was built of, for its operators. `faults`: those that
/// it shall have, and may be given meanwhile.
///
/// # Errors
/// [`StartError`]; nothing has been changed then.
pub fn run(config: &Config, commit: &'static str, faults: Option<Arc<Faults>>) -> Result<(), StartError> {
    let address = config.listen.to_string();
    let listen_error = |error| StartError::Listen { address: address.clone(), error };
    let listener = TcpListener::bind(&address).map_err(listen_error)?;
    listener.set_nonblocking(true).map_err(listen_error)?;
    let admin = config.admin_listen.as_ref().map(bind_admin).transpose()?;
    let outside = Outside::new(commit, faults);
    let time = outside.time.clone();
    let (guards, guard_threads) = Guards::start(config, &time)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before what takes long: until then a SIGHUP ends the process.
    let hangup = runtime.block_on(async { signal(SignalKind::hangup()) }).map_err(listen_error)?;
    let node = Node::start(config, guards, outside)?;
    let admin = admin.map(|listener| start_admin(listener, config, &node.view, time)).transpose()?;
    tracing::info!(url = config.own.as_str(), directory = %node.view.membership.directory(), "node started");
    let reloads = runtime.spawn(ask_at_hangup(hangup, guard_threads.asker()));
    let accepted = runtime.block_on(accept(listener, &node, config.connections_per_address()));
    if let Some(admin) = admin {
        admin.stop();
    }
    node.stop(config);
    reloads.abort();
    // Ended, it asks no more.
    let _ = runtime.block_on(reloads);
    guard_threads.stop();
    accepted.map_err(listen_error)
}

fn start_admin(
    listener: TcpListener,
    config: &Config,
    view: &NodeView,
    time: Arc<dyn TimeSource>,
) -> std::io::Result<AdminListener> {
    let own = listener.local_addr()?.to_string();
    let browsers = BrowserRules { own, ..browser_rules(config) };
    let auth = view.guards.auth.clone();
    let audit = view.guards.audit.as_ref().map(Arc::downgrade).unwrap_or_default();
    // Nodes that want a key want the console's, which this node has none of.
    let console = auth.is_none().then(|| AdminConsole::start(config, listener.local_addr()?)).transpose()?;
    AdminListener::start(listener, AdminRules { browsers, auth, audit, time }, console)
}

fn bind_admin(address: &Address) -> Result<TcpListener, StartError> {
    TcpListener::bind(address.to_string())
        .map_err(|error| StartError::AdminListen { address: address.to_string(), error })
}

/// Makes the data directory that `config` names of a backup of its node.
///
/// # Errors
/// [`RestoreError`].
pub fn restore(config: &Config, backup: &Path, scope: Scope) -> Result<Label, RestoreError> {
    let cluster = list_id(&founding(config)?);
    Ok(backup::restore(backup, &config.data_dir, cluster, config.own.as_str(), scope)?)
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The layout is impossible.
    #[error("the cluster's layout is impossible: {0}")]
    Layout(#[from] PlanError),
    /// The backup, or the directory.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

/// What a node has of the world, but its settings.
struct Outside {
    /// What the program was built of.
    build: &'static str,
    faults: Option<Arc<Faults>>,
    time: Arc<dyn TimeSource>,
}

impl Outside {
    fn new(build: &'static str, faults: Option<Arc<Faults>>) -> Self {
        let time: Arc<dyn TimeSource> = match &faults {
            Some(faults) => Arc::new(SkewedTime(faults.clone())),
            None => Arc::new(SystemTime),
        };
        Self { build, faults, time }
    }
}

struct Node {
    view: Arc<NodeView>,
    shards: Vec<ShardThread>,
    background: BackgroundThread,
    drain: watch::Sender<bool>,
    store: Arc<RocksStore>,
    reaper: Reaper,
    commit: CommitThread<RocksStore>,
    /// Of the read pool and of the scan pool.
    pools: Vec<ReadPoolThreads>,
    notes: JoinHandle<()>,
}

struct ShardThread {
    connections: mpsc::Sender<TcpHandover>,
    thread: JoinHandle<()>,
}

struct BackgroundThread {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Node {
    fn start(config: &Config, guards: Guards, outside: Outside) -> Result<Self, StartError> {
        let Outside { build, faults, time } = outside;
        let founding = founding(config)?;
        let data_dir = DataDir::open(&config.data_dir, list_id(&founding))?;
        let acceptor = acceptor(config, &data_dir, founding)?;
        let own = acceptor.member();
        let budget = MemoryBudget::new(config.memory_bytes.get()).expect("the configuration has checked it");
        if let Some(excess) = config.excess_bytes() {
            tracing::warn!(%excess, "limits allow more memory than memory_bytes and 128 MiB");
        }
        let cpu_share = CpuShare::new(config.runtime.background_percent_of_a_core());
        let (store, rebuilding) = open_store(&data_dir, budget.at(own), cpu_share.clone(), durability(config))?;
        let reaper = Reaper::start(data_dir.store_path(), data_dir.freed_path())?;
        let incarnation = data_dir.draw()?;
        let skew_max_ms = u64::try_from(config.clock_skew_max.as_millis()).unwrap_or(u64::MAX);
        let membership = Membership::new(acceptor, data_dir, store.sequence(), rebuilding, skew_max_ms);
        let membership = Arc::new(membership);
        let commit_micros = store.commit_micros();
        let committer = Committer::new(store.clone(), commit_config(config), time.boot())?;
        let clock = Arc::new(Clock::new(time.clone(), committer.bound(), config.clock_skew_max, incarnation));
        let commit_metrics = committer.metrics();
        let NodePools { pool, scans, work, threads: pools } = start_pools(config, &clock)?;
        let shard_count = config.runtime.shards.get();
        // The last is the background shard's.
        let mailboxes: Vec<Arc<Mailbox>> = (0..=shard_count).map(|_| Arc::default()).collect();
        let anti_entropy = Arc::new(AntiEntropy::new(repair_settings(config), time.boot()));
        let now = move || TurnTime { boot: time.boot(), wall_ms: time.wall_ms() };
        let (queue, commit) =
            CommitThread::start(committer, queue_limits(config), pool.clone(), Mailboxes(mailboxes.clone()), now)?;
        let noted = membership.clone();
        let notes = std::thread::Builder::new().name("notes".to_owned()).spawn(move || noted.write_notes())?;
        let hints = HintQueue::new(hint_settings(config));
        let view = Arc::new(NodeView {
            clock,
            hints: Arc::new(hints),
            scan_budget: ScanBudget::new(scan_settings(config)),
            work,
            membership,
            first_dials: FirstDials::default(),
            faults,
            guards,
            peer_room: peer_room(config),
            store: store.clone(),
            engine: store.clone(),
            backing_up: Mutex::default(),
            scrub: Scrub::new(u64::try_from(config.scrub_rate.get()).unwrap_or(u64::MAX)),
            queue,
            commit: commit_metrics,
            commit_micros,
            pool,
            scans,
            cpu_share,
            anti_entropy,
            large_values: LargeValues::new(config.coordinator.request_bytes_max.get()),
            client_shares: client_shares(config),
            sampled: Mutex::default(),
            slow_threshold: config.slow_threshold,
            build,
            started: Instant::now(),
            coordinators: (0..shard_count).map(|_| coordinator_metrics(config)).collect(),
            http: (0..shard_count).map(|_| Arc::default()).collect(),
        });
        view.sample_store();
        let (drain, drained) = watch::channel(false);
        let background = start_background(config, &view, &mailboxes)?;
        let shards = start_shards(config, &view, &mailboxes, &drained)?;
        Ok(Self { view, shards, background, drain, store, reaper, commit, pools, notes })
    }

    /// Has the shards finish, and the process end in time.
    fn drain(&self) {
        self.view.membership.drain();
        self.drain.send_replace(true);
        // Not held: the engine is closed when the node is done with it.
        let store = Arc::downgrade(&self.store);
        let hurry = move || {
            std::thread::sleep(HURRY_AFTER);
            if let Some(store) = store.upgrade() {
                store.cancel_background_work();
                tracing::warn!("stopping takes long: compactions and the writes that wait for them are given up");
            }
        };
        // A thread of its own, which does nothing that could block: the log's reader may hang, too.
        let exit = || {
            std::thread::sleep(EXIT_AFTER);
            std::process::exit(0);
        };
        let threads = [
            std::thread::Builder::new().name("hurry".to_owned()).spawn(hurry),
            std::thread::Builder::new().name("exit".to_owned()).spawn(exit),
        ];
        for error in threads.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "no thread limits how long stopping takes");
        }
    }

    fn stop(self, config: &Config) {
        let Self { view, shards, background, drain: _, store, reaper, commit, pools, notes } = self;
        for shard in shards {
            drop(shard.connections);
            if shard.thread.join().is_err() {
                tracing::error!("a shard ended in a panic");
            }
        }
        drop(background.stop);
        if background.thread.join().is_err() {
            tracing::error!("the background shard ended in a panic");
        }
        let _ = commit.stop();
        pools.into_iter().for_each(ReadPoolThreads::stop);
        view.membership.stop_notes();
        if notes.join().is_err() {
            tracing::error!("the thread that writes notes ended in a panic");
        }
        let ended = store.sync_log().map_err(StartError::from).and_then(|()| Ok(view.membership.end_run()?));
        if let Err(error) = ended.and_then(|()| Ok(store.flush()?)) {
            tracing::warn!(%error, "could not flush the store: the next start reads its log instead");
        }
        drop((view, store));
        drop(reaper);
        tracing::info!(url = config.own.as_str(), "node stopped");
    }
}

fn client_shares(config: &Config) -> Arc<ClientShares> {
    ClientShares::new(config.coordinator.request_bytes_max.get(), config.limits.value_bytes_max.get())
}

fn peer_room(config: &Config) -> Arc<PeerRoom> {
    PeerRoom::new(config.peer.links_max.get(), config.unfinished_bytes_max())
}

fn start_shards(
    config: &Config,
    view: &Arc<NodeView>,
    mailboxes: &[Arc<Mailbox>],
    drained: &watch::Receiver<bool>,
) -> std::io::Result<Vec<ShardThread>> {
    let mut shards = Vec::new();
    for (index, mailbox) in (0..).zip(mailboxes).take(config.runtime.shards.get()) {
        let (connections, taken) = mpsc::channel(HANDOVER_MAX);
        let parts = ThreadParts {
            index,
            clock: view.clock.clone(),
            view: view.clone(),
            mailbox: mailbox.clone(),
            connections: taken,
            first_dials: view.membership.others().iter().map(|_| view.first_dials.begin()).collect(),
            drain: drained.clone(),
        };
        let config = config.clone();
        let thread = std::thread::Builder::new().name(format!("shard-{index}"));
        let thread = thread.spawn(move || run_shard(&config, parts))?;
        shards.push(ShardThread { connections, thread });
    }
    Ok(shards)
}

fn start_background(
    config: &Config,
    view: &Arc<NodeView>,
    mailboxes: &[Arc<Mailbox>],
) -> std::io::Result<BackgroundThread> {
    let (stop, stopped) = oneshot::channel();
    let (index, mailbox) = (0..).zip(mailboxes).last().expect("the last mailbox is the background shard's");
    let parts = BackgroundParts {
        index,
        clock: view.clock.clone(),
        view: view.clone(),
        mailbox: mailbox.clone(),
        stop: stopped,
    };
    let config = config.clone();
    let thread = std::thread::Builder::new().name("background".to_owned());
    let thread = thread.spawn(move || run_background(&config, parts))?;
    Ok(BackgroundThread { stop, thread })
}

/// Has files read anew at each SIGHUP. A task of its own: what it interrupted could lose a connection.
async fn ask_at_hangup(mut hangup: Signal, reload: SyncSender<()>) {
    while hangup.recv().await.is_some() {
        // One that waits already will do.
        let _ = reload.try_send(());
    }
}

/// Hands connections to the shards in turn, until the node is stopping and the shards are done.
async fn accept(listener: TcpListener, node: &Node, connections_per_address: usize) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut seats = AddressSeats::new(connections_per_address);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = hand_over(&listener, &node.shards, &mut seats) => {}
    }
    node.drain();
    tracing::info!("stopping: finishing what is under way");
    tokio::select! {
        () = node.drain.closed() => {}
        () = hand_over(&listener, &node.shards, &mut seats) => {}
    }
    Ok(())
}

/// Takes connections for as long as there is a shard. Cancelled, it may drop the one connection that no
/// shard has had room for.
async fn hand_over(listener: &tokio::net::TcpListener, shards: &[ShardThread], seats: &mut AddressSeats) {
    let mut turn = 0;
    loop {
        match listener.accept().await {
            Ok((stream, from)) => match stream.set_nodelay(true).and_then(|()| stream.into_std()) {
                Ok(stream) => {
                    let address = from.ip();
                    let mut handover = TcpHandover { stream, address, seat: seats.take(address) };
                    while let Some(refused) = offer(handover, shards, &mut turn) {
                        if shards.iter().all(|shard| shard.connections.is_closed()) {
                            return;
                        }
                        tokio::time::sleep(FULL_PAUSE).await;
                        handover = refused;
                    }
                }
                Err(error) => tracing::debug!(%error, "connection lost before it was served"),
            },
            // Out of descriptors, most likely: those that are open may close.
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Gives a connection to the next shard, in turn, that has room for it; back if none has. A shard that is
/// stuck or done is passed over.
fn offer(mut handover: TcpHandover, shards: &[ShardThread], turn: &mut usize) -> Option<TcpHandover> {
    let first = *turn % shards.len().max(1);
    *turn = first + 1;
    for shard in shards.iter().cycle().skip(first).take(shards.len()) {
        match shard.connections.try_send(handover) {
            Ok(()) => return None,
            Err(TrySendError::Full(refused) | TrySendError::Closed(refused)) => handover = refused,
        }
    }
    Some(handover)
}

fn open_store(
    data_dir: &DataDir,
    budget: MemoryBudget,
    cpu_share: CpuShare,
    durability: Durability,
) -> Result<(Arc<RocksStore>, Option<String>), StartError> {
    let (store, log) = RocksStore::open_in(data_dir, budget, cpu_share)?;
    data_dir.begin_run(durability)?;
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
        durability: durability(config),
    }
}

fn repair_settings(config: &Config) -> RepairSettings {
    RepairSettings {
        interval: config.repair.interval,
        rate: u64::try_from(config.repair.rate.get()).unwrap_or(u64::MAX),
        tree_bytes_max: config.repair_bytes_max(),
        lag: commit_config(config).retention,
        retention: commit_config(config).retention,
    }
}

/// Threads for what may block, and what runs on them.
struct NodePools {
    pool: ReadPool,
    scans: ReadPool,
    work: Arc<NodeWork>,
    threads: Vec<ReadPoolThreads>,
}

fn start_pools(config: &Config, clock: &Arc<Clock>) -> io::Result<NodePools> {
    let (pool, pool_threads) = ReadPool::start(config.runtime.read_threads.get(), READ_QUEUE_MAX)?;
    let (scans, scan_thread) = ReadPool::start_scans(SCAN_QUEUE_MAX)?;
    // This program, also where its file was replaced meanwhile.
    let program = config.has_scripts.then(|| PathBuf::from("/proc/self/exe"));
    let (work, script_threads) = NodeWork::start(program, clock)?;
    let threads = [Some(pool_threads), Some(scan_thread), script_threads].into_iter().flatten().collect();
    Ok(NodePools { pool, scans, work, threads })
}

fn queue_limits(config: &Config) -> QueueLimits {
    QueueLimits { works_max: config.commit.queue_records_max.get(), bytes_max: config.commit.queue_bytes_max.get() }
}

fn coordinator_metrics(config: &Config) -> Arc<CoordinatorMetrics> {
    Arc::new(CoordinatorMetrics::new(SlowLog::new(config.slow_threshold)))
}

fn scan_settings(config: &Config) -> ScanSettings {
    ScanSettings {
        memory_bytes: config.scan.memory_bytes.get(),
        page_bytes: config.scan_page_bytes(PAGE_BYTES_MAX),
        rate: config.scan.rate.map(|rate| rate.get() as u64),
    }
}

fn hint_settings(config: &Config) -> HintSettings {
    HintSettings {
        bounds: BacklogBounds { bytes_max: config.hints.bytes_max.get() as u64, age_max: config.hints.age_max },
        rate: config.hints.rate.get() as u64,
        queue_bytes_max: config.hint_queue_bytes_max(),
    }
}

fn durability(config: &Config) -> Durability {
    match config.durability {
        kvorum_config::DurabilitySetting::Fsync => Durability::Fsync,
        kvorum_config::DurabilitySetting::Os => Durability::Os,
    }
}
