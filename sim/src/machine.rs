//! One machine: clocks, a disk, and for as long as it runs a node's process: the production code of shard,
//! coordinator, replica, peers, membership and commit logic, with tasks where that has threads.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::{Clock, TimeSource};
use kvorum_base::cpu_share::CpuShare;
use kvorum_base::value_memory::LargeValues;
use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::frame::{INTERLEAVED_MAX, PAYLOAD_OVERHEAD_MAX};
use kvorum_core::hints::BacklogBounds;
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::scan::page::PAGE_OVERHEAD_MAX;
use kvorum_core::{Incarnation, Key};
use kvorum_peer::context::PeerSettings;
use kvorum_peer::membership::{Membership, VoteState};
use kvorum_peer::room::PeerRoom;
use kvorum_replication::anti_entropy::{AntiEntropy, RepairSettings};
use kvorum_replication::cluster_scan::{ScanBudget, ScanSettings};
use kvorum_replication::coordinator::Coordinator;
use kvorum_replication::coordinator::hedge::Hedging;
use kvorum_replication::hints::{HintQueue, HintSettings};
use kvorum_replication::replica::Mailbox;
use kvorum_replication::shard::{FanOut, Shard, ShardParts};
use kvorum_storage::commit::queue::TurnTime;
use kvorum_storage::commit::{
    BOUND_LEAD, CommitConfig, CommitMetrics, CommitQueue, Committer, QueueLimits, RETENTION_MARGIN,
};
use kvorum_storage::data_dir::{ClusterId, DataDir};
use kvorum_storage::memory::{Fault, MemoryStore};
use kvorum_storage::{Durability, Store};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, LocalSet};

use crate::calls::{Guard, secret, take_call};
use crate::chance::SimRandom;
use crate::invariants::Stored;
use crate::network::Network;
use crate::outbox::Outbox;
use crate::scan_work::RecordItself;
use crate::store::Disk;
use crate::tasks::{Latency, run_commits, run_jobs, task_set, write_notes};
use crate::time::MachineTime;
use crate::trace::Trace;

/// The cluster that all nodes belong to.
const CLUSTER: ClusterId = ClusterId(0x51);
/// Tasks that do what the threads of the read pool do.
pub const READERS: usize = 2;

/// What all machines of a run have in common.
#[derive(Clone)]
pub struct MachinePlan {
    /// The nodes, before their cluster is founded.
    pub layout: Arc<Layout>,
    /// Their URLs, in the order of the layout.
    pub urls: Rc<[String]>,
    /// The whole of a request.
    pub deadline: Duration,
    /// Which replicas a read asks first.
    pub fan_out: FanOut,
    /// The most that clocks may differ.
    pub skew_max: Duration,
    /// Bounds of the commit queue.
    pub queue: QueueLimits,
    /// Accepted versions remembered.
    pub recent_entries_max: usize,
    /// Jobs that wait for the read pool, or for the scan pool.
    pub jobs_max: usize,
    /// Answered writes that wait for their last replicas.
    pub lingering_max: usize,
    /// The longest value.
    pub value_bytes_max: usize,
    /// Bytes that may wait for a peer.
    pub peer_queue_bytes_max: usize,
    /// Memory for large values.
    pub large_bytes_max: usize,
    /// Hints are kept, and rounds of anti-entropy come by themselves. Both make up for much, also for defects.
    pub has_background: bool,
    /// How far rounds lie behind the clocks. The shorter, the more writes under way are below the fence.
    pub fence_lag: Duration,
    /// Whether peers have to prove something.
    pub guard: Guard,
}

/// What is around all machines of a run.
#[derive(Clone)]
pub struct Environment {
    /// What connects them.
    pub network: Rc<Network>,
    /// Where events go.
    pub trace: Arc<Trace>,
    /// Where commits go.
    pub stored: Arc<Mutex<Stored>>,
}

/// What the disk of a machine was like once.
struct Backup {
    directory: PathBuf,
    memory: MemoryStore,
    sequence: u64,
}

/// What has happened to a machine's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing.
    None,
    /// It was replaced by an empty one.
    Wiped,
    /// It was replaced by what a backup had.
    Restored,
}

/// How a process ends without its consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// It alone: the kernel closes its connections.
    Process,
    /// With the machine's power.
    Power,
}

/// A machine. Its process comes and goes, its disk stays.
pub struct Machine {
    /// Its place in the layout.
    pub index: usize,
    plan: MachinePlan,
    /// Its clocks.
    pub time: Arc<MachineTime>,
    network: Rc<Network>,
    trace: Arc<Trace>,
    stored: Arc<Mutex<Stored>>,
    chance: Rc<RefCell<SimRandom>>,
    directory: PathBuf,
    disk: RefCell<Arc<Disk>>,
    backup: RefCell<Option<Backup>>,
    /// What has happened to its disk.
    pub loss: Cell<Loss>,
    /// Where the disk that it then had was counted from, which separates what is rebuilt later from what was before.
    lost_at: Cell<u64>,
    /// It has lost something at some time, though it may have got back what others had.
    pub has_lost: Cell<bool>,
    /// How often its process was stopped or let go on.
    pub pauses: Cell<u64>,
    has_voted: Cell<bool>,
    /// The longest that the disk takes, in milliseconds.
    disk_ms: Rc<Cell<u64>>,
    process: RefCell<Option<Process>>,
}

/// A node's process.
pub struct Process {
    /// The one shard.
    pub shard: Rc<Shard>,
    /// The way to the commit logic.
    pub queue: CommitQueue,
    /// What it counts.
    pub commit: Arc<CommitMetrics>,
    tasks: Rc<Tasks>,
}

/// The tasks of a process: all run, or none does.
struct Tasks {
    set: RefCell<LocalSet>,
    is_paused: Cell<bool>,
    is_dead: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct RunningProcess(Rc<Tasks>);

impl Future for RunningProcess {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let tasks = &self.0;
        if tasks.is_dead.get() {
            return Poll::Ready(());
        }
        *tasks.waker.borrow_mut() = Some(context.waker().clone());
        if !tasks.is_paused.get() {
            // They never all end.
            let _ = Pin::new(&mut *tasks.set.borrow_mut()).poll(context);
        }
        Poll::Pending
    }
}

impl Tasks {
    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Machine {
    /// A new machine with an empty disk, not running. Its files are below `directory`.
    #[must_use]
    pub fn new(
        index: usize,
        plan: MachinePlan,
        around: Environment,
        chance: SimRandom,
        directory: &Path,
        time: MachineTime,
    ) -> Rc<Self> {
        let Environment { network, trace, stored } = around;
        let disk = Disk::new(index, MemoryStore::default(), stored.clone(), trace.clone());
        Rc::new(Self {
            index,
            plan,
            time: Arc::new(time),
            network,
            trace,
            stored,
            chance: Rc::new(RefCell::new(chance)),
            directory: directory.join(index.to_string()),
            disk: RefCell::new(disk),
            backup: RefCell::default(),
            loss: Cell::new(Loss::None),
            lost_at: Cell::new(0),
            has_lost: Cell::new(false),
            pauses: Cell::new(0),
            has_voted: Cell::new(false),
            disk_ms: Rc::new(Cell::new(2)),
            process: RefCell::default(),
        })
    }

    /// Its disk as it is now.
    pub fn disk(&self) -> Arc<Disk> {
        self.disk.borrow().clone()
    }

    /// Whether its process runs, paused or not.
    pub fn is_up(&self) -> bool {
        self.process.borrow().is_some()
    }

    /// Looks at the process, if it runs.
    pub fn with<T>(&self, look: impl FnOnce(&Process) -> T) -> Option<T> {
        self.process.borrow().as_ref().map(look)
    }

    /// Its name.
    pub fn url(&self) -> &str {
        &self.plan.urls[self.index]
    }

    /// It has voted: from now on it has something to lose.
    pub fn note_vote(&self) {
        self.has_voted.set(true);
    }

    /// Whether it ever voted.
    pub fn has_voted(&self) -> bool {
        self.has_voted.get()
    }

    /// Has this node drive a round of anti-entropy, if there is a process.
    pub fn want_round(&self) {
        self.with(|process| process.shard.anti_entropy.want());
    }

    /// Takes note of it if a node has got back what it had lost.
    pub fn note_rebuilt(&self) {
        let is_rebuilt = |of: &Membership| of.is_rebuilt() && of.rebuilt() > self.lost_at.get();
        if self.with(|process| is_rebuilt(&process.shard.membership)) == Some(true) {
            self.loss.set(Loss::None);
        }
    }

    /// Whether it votes.
    pub fn vote_state(&self) -> Option<VoteState> {
        self.with(|process| process.shard.membership.vote_state())
    }

    /// Runs something in the process, if there is one; it ends with it.
    pub fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        run: impl FnOnce(Coordinator, Arc<LargeValues>) -> F,
    ) -> Option<AbortHandle> {
        self.spawn_on(|shard| run(shard.coordinator.clone(), shard.large_values.clone()))
    }

    /// The same with all parts of its shard.
    pub fn spawn_on<F: Future<Output = ()> + 'static>(&self, run: impl FnOnce(&Shard) -> F) -> Option<AbortHandle> {
        self.with(|process| {
            let task = run(&process.shard);
            let handle = process.tasks.set.borrow().spawn_local(task).abort_handle();
            process.tasks.wake();
            handle
        })
    }

    /// Stops the process without ending it.
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, is_paused: bool) {
        self.pauses.set(self.pauses.get() + 1);
        self.with(|process| {
            process.tasks.is_paused.set(is_paused);
            process.tasks.wake();
        });
    }

    /// The longest that the disk takes for anything from now on.
    pub fn set_disk_ms(&self, longest: u64) {
        self.disk_ms.set(longest);
    }

    /// What happens to the disk's commits from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.disk().memory().set_fault(fault);
    }

    /// Ends the process between two of its steps, and loses what was not synced. With [`Crash::Process`] the kernel
    /// closes its connections; with [`Crash::Power`] its peers receive nothing.
    pub fn crash(&self, crash: Crash) {
        let process = self.process.borrow_mut().take();
        let Some(process) = process else { return };
        if crash == Crash::Power {
            self.network.power_off(self.index);
        }
        self.network.listen(self.index, None);
        let tasks = process.tasks.clone();
        tasks.is_dead.set(true);
        tasks.wake();
        self.network.end_all(self.index);
        let set = tasks.set.replace(task_set());
        drop(set);
        drop(process);
        let kept = self.chance.borrow_mut().index(4);
        self.disk().memory().crash(kept);
    }

    /// The whole disk is replaced by an empty one. The process must not run.
    pub fn wipe(&self) {
        self.replace_disk(MemoryStore::default());
        std::fs::remove_dir_all(&self.directory).expect("it is there once the node has run");
        self.loss.set(Loss::Wiped);
        self.lost_at.set(0);
        self.has_lost.set(true);
    }

    fn replace_disk(&self, memory: MemoryStore) {
        assert!(!self.is_up(), "a disk is replaced between two runs");
        *self.disk.borrow_mut() = Disk::new(self.index, memory, self.stored.clone(), self.trace.clone());
    }

    /// Takes a backup, the process running or not.
    pub fn back_up(&self) {
        let directory = self.directory.with_extension("backup");
        let _ = std::fs::remove_dir_all(&directory);
        copy_files(&self.directory, &directory);
        let disk = self.disk();
        *self.backup.borrow_mut() =
            Some(Backup { directory, memory: disk.memory().backup(), sequence: self.sequence() });
    }

    /// How far the backup goes, if there is one and it is older than the disk.
    pub fn backup_sequence(&self) -> Option<u64> {
        let backup = self.backup.borrow().as_ref().map(|backup| backup.sequence);
        backup.filter(|sequence| *sequence < self.sequence())
    }

    /// How far its disk has got, as its peers count it.
    fn sequence(&self) -> u64 {
        self.rebuilt() + self.disk().sequence()
    }

    /// Where that is counted from.
    fn rebuilt(&self) -> u64 {
        let text = std::fs::read_to_string(self.directory.join("REBUILT")).unwrap_or_default();
        text.lines().next().map_or(0, |line| line.parse().expect("a number"))
    }

    /// Puts the backup in the place of the disk. The process must not run.
    pub fn restore(&self) {
        let backup = self.backup.borrow_mut().take().expect("somebody has looked");
        self.replace_disk(backup.memory);
        std::fs::remove_dir_all(&self.directory).expect("it is there once the node has run");
        copy_files(&backup.directory, &self.directory);
        self.loss.set(Loss::Restored);
        self.lost_at.set(self.rebuilt());
        self.has_lost.set(true);
    }

    /// How far another's store was durable by this machine's files, as peers count it.
    pub fn remembers(&self, other: &Self) -> Option<u64> {
        let text = std::fs::read_to_string(self.directory.join("PEERS")).ok()?;
        let line = text.lines().find(|line| line.ends_with(&format!(" n{}", other.index)))?;
        line.split(' ').nth(2)?.parse().ok()
    }

    /// Has reads of the key wait for the disk once.
    pub fn make_cold(&self, key: &Key) {
        self.disk().memory().make_cold(key);
    }

    /// Starts the process on what the disk has.
    pub fn start(self: &Rc<Self>) {
        assert!(!self.is_up(), "one process at a time");
        self.network.power_on(self.index);
        let (process, start) = self.boot();
        let tasks = process.tasks.clone();
        tasks.set.borrow().spawn_local(start);
        let network = self.network.clone();
        let (context, handler) = (process.shard.peer_context.clone(), process.shard.handler.clone());
        let listening = tasks.clone();
        self.network.listen(
            self.index,
            Some(Rc::new(move |incoming| {
                listening.set.borrow().spawn_local(take_call(
                    network.clone(),
                    context.clone(),
                    handler.clone(),
                    incoming,
                ));
                listening.wake();
            })),
        );
        tokio::task::spawn_local(RunningProcess(tasks));
        *self.process.borrow_mut() = Some(process);
    }

    fn boot(&self) -> (Process, impl Future<Output = ()> + 'static) {
        let plan = &self.plan;
        let random = |bytes: &mut [u8]| {
            let mut chance = self.chance.borrow_mut();
            bytes.iter_mut().for_each(|byte| *byte = chance.bits().to_be_bytes()[0]);
            Ok(())
        };
        let data_dir = DataDir::open_with(&self.directory, CLUSTER, &random).expect("the files are this node's");
        data_dir.begin_run(Durability::Fsync).expect("temporary files can be written");
        let rebuilding = data_dir.rebuilding().expect("temporary files can be read");
        let mut run = [0; 4];
        random(&mut run).expect("it always is");
        let incarnation = Incarnation(u32::from_be_bytes(run));
        let disk = self.disk();
        let skew_max_ms = u64::try_from(plan.skew_max.as_millis()).expect("a short time");
        let acceptor = data_dir.acceptor().expect("temporary files can be read").unwrap_or_else(|| {
            let own = NodeId(u32::try_from(self.index).expect("few nodes"));
            Acceptor::new(own, data_dir.id(), Layout::clone(&plan.layout))
        });
        let membership = Arc::new(Membership::new(acceptor, data_dir, disk.sequence(), rebuilding, skew_max_ms));
        let time: Arc<dyn TimeSource> = self.time.clone();
        let committer = Committer::new(disk.clone(), commit_config(plan), time.boot()).expect("the disk can be read");
        let clock = Arc::new(Clock::new(time.clone(), committer.bound(), plan.skew_max, incarnation));
        let commit = committer.metrics();
        let [pool, scans] = [(); 2].map(|()| ReadPool::without_threads(plan.jobs_max));
        let mailbox: Arc<Mailbox> = Arc::default();
        let outbox = Outbox::default();
        let now = move || TurnTime { boot: time.boot(), wall_ms: time.wall_ms() };
        let (queue, runner) = CommitQueue::new(committer, plan.queue, pool.clone(), outbox.clone(), now);
        let shard = Rc::new(self.shard(clock, disk, &queue, [&pool, &scans], &mailbox, membership.clone()));
        let commits = run_commits(runner, outbox, mailbox.clone(), self.disk_latency());
        let readers: Vec<_> =
            std::iter::repeat_n(pool, READERS).chain([scans]).map(|pool| run_jobs(pool, self.disk_latency())).collect();
        let (starting, copies) = (shard.clone(), plan.layout.copies());
        let start = async move {
            tokio::task::spawn_local(commits);
            readers.into_iter().for_each(|reader| drop(tokio::task::spawn_local(reader)));
            tokio::task::spawn_local(write_notes(membership));
            starting.start();
            tokio::task::spawn_local(starting.driver().run());
            tokio::task::spawn_local(starting.layout_driver(copies).run());
            tokio::task::spawn_local(async move {
                let (_never, stop) = oneshot::channel();
                kvorum_replication::hints::run::run(starting.hint_store(), stop).await;
            });
        };
        let tasks = Rc::new(Tasks {
            set: RefCell::new(task_set()),
            is_paused: Cell::new(false),
            is_dead: Cell::new(false),
            waker: RefCell::default(),
        });
        (Process { shard, queue, commit, tasks }, start)
    }

    fn shard(
        &self,
        clock: Arc<Clock>,
        disk: Arc<Disk>,
        queue: &CommitQueue,
        [pool, scans]: [&ReadPool; 2],
        mailbox: &Arc<Mailbox>,
        membership: Arc<Membership>,
    ) -> Shard {
        let plan = &self.plan;
        let boot = clock.boot();
        let frame_bytes_max = plan.value_bytes_max + PAYLOAD_OVERHEAD_MAX + PAGE_OVERHEAD_MAX;
        let hints = if plan.has_background { HINTS } else { HintSettings::OFF };
        Shard::new(ShardParts {
            index: 0,
            peers: PeerSettings {
                deadline: plan.deadline,
                frame_bytes_max,
                partial_bytes_max: frame_bytes_max * INTERLEAVED_MAX,
                queue_bytes_max: plan.peer_queue_bytes_max,
                connect_timeout: Duration::from_millis(500),
                reconnect_delay_max: Duration::from_secs(1),
            },
            fan_out: plan.fan_out,
            hedging: Hedging::new(5, plan.deadline / 4),
            lingering_max: plan.lingering_max,
            clock,
            membership,
            store: disk,
            queue: queue.clone(),
            pool: pool.clone(),
            scans: scans.clone(),
            mailbox: mailbox.clone(),
            cpu_share: CpuShare::whole(),
            large_values: LargeValues::new(plan.large_bytes_max),
            scan_budget: ScanBudget::new(ScanSettings {
                memory_bytes: 1 << 20,
                page_bytes: SCAN_PAGE_BYTES,
                rate: None,
            }),
            derivation: Arc::new(RecordItself),
            hints: Arc::new(HintQueue::new(hints)),
            anti_entropy: Arc::new(AntiEntropy::new(repair(plan), boot)),
            metrics: Arc::default(),
            dial: Box::new(self.network.dialler(self.index, plan.urls.clone())),
            secret: secret(plan.guard, self.index),
            room: PeerRoom::new(PEER_LINKS_MAX, 1 << 20),
            first_dials: Vec::new(),
        })
    }

    fn disk_latency(&self) -> Latency {
        Latency { longest_ms: self.disk_ms.clone(), chance: self.chance.clone() }
    }
}

fn repair(plan: &MachinePlan) -> RepairSettings {
    RepairSettings {
        interval: Duration::from_secs(if plan.has_background { 3 } else { 3600 }),
        rate: 1 << 20,
        tree_bytes_max: 1 << 20,
        lag: plan.fence_lag,
        retention: plan.deadline + RETENTION_MARGIN,
    }
}

/// A peer has one shard, and a connection whose end was lost stays for a while.
const PEER_LINKS_MAX: usize = 64;

/// A record or two: so a scan of a few keys has several pages, and faults come between them.
const SCAN_PAGE_BYTES: usize = 100;

/// Little, so that its bounds are reached.
const HINTS: HintSettings = HintSettings {
    bounds: BacklogBounds { bytes_max: 4096, age_max: Duration::from_secs(60) },
    rate: 64 * 1024,
    queue_bytes_max: 2048,
};

fn commit_config(plan: &MachinePlan) -> CommitConfig {
    CommitConfig {
        retention: plan.deadline + RETENTION_MARGIN,
        recent_entries_max: plan.recent_entries_max,
        skew_max: plan.skew_max,
        bound_lead: BOUND_LEAD,
        batch_bytes_max: plan.queue.bytes_max / 2,
        durability: Durability::Fsync,
    }
}

/// The files of a directory that holds nothing else; none are open for writing at this moment.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("temporary files can be written");
    for entry in std::fs::read_dir(from).expect("temporary files can be read") {
        let entry = entry.expect("temporary files can be read");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("temporary files can be written");
    }
}
