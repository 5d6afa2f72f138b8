//! The commit thread: it gathers, refuses, answers everything, and stops.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvorum_base::blocking_pool::{ReadPool, ReadPoolThreads};
use kvorum_core::key::Key;
use kvorum_core::quorum::{Failure, StoreAnswer};
use kvorum_core::record::Record;
use kvorum_core::version::{Hlc, Incarnation, Version};
use kvorum_storage::commit::queue::{Load, TurnTime};
use kvorum_storage::commit::{
    CommitConfig, CommitQueue, CommitThread, Committer, Completion, CompletionToken, QueueLimits, Sink, Submission,
    Work,
};
use kvorum_storage::memory::MemoryStore;
use kvorum_storage::{
    Batch, Durability, GcWatermarks, HealthState, HintChange, Page, PageLimit, Store, StoreError, StoreStats, Tier,
};

const LONG: Duration = Duration::from_secs(20);
const WALL_MS: u64 = 1_000_000;

/// The twin, with a gate before every commit and memory that keeps nothing.
#[derive(Default)]
struct Gated {
    inner: MemoryStore,
    closed: Mutex<bool>,
    opened: Condvar,
    commits: Mutex<Vec<usize>>,
    always_cold: AtomicBool,
    reads_closed: Mutex<bool>,
    reads_opened: Condvar,
    reads_waiting: Mutex<usize>,
}

impl Gated {
    fn set_closed(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn set_reads_closed(&self, closed: bool) {
        *self.reads_closed.lock().unwrap() = closed;
        self.reads_opened.notify_all();
    }
}

impl Store for Gated {
    fn get(&self, key: &Key, tier: Tier) -> Result<Option<Bytes>, StoreError> {
        if tier == Tier::Cache && self.always_cold.load(Ordering::Relaxed) {
            return Err(StoreError::NeedsDisk);
        }
        *self.reads_waiting.lock().unwrap() += 1;
        let mut closed = self.reads_closed.lock().unwrap();
        while *closed && tier == Tier::Disk {
            closed = self.reads_opened.wait(closed).unwrap();
        }
        drop(closed);
        *self.reads_waiting.lock().unwrap() -= 1;
        self.inner.get(key, tier)
    }
    fn salvage(&self, key: &Key) -> Option<Bytes> {
        self.inner.salvage(key)
    }
    fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: PageLimit) -> Result<Page, StoreError> {
        self.inner.scan(start, end, limit)
    }
    fn scan_unchecked(&self, start: &[u8], limit: PageLimit) -> Result<Page, StoreError> {
        self.inner.scan_unchecked(start, limit)
    }
    fn forget(&self, key: &Key) {
        self.inner.forget(key);
    }
    fn change_hints(&self, changes: &[HintChange]) -> Result<(), StoreError> {
        self.inner.change_hints(changes)
    }
    fn scan_hints(&self, start: &[u8], end: &[u8], limit: PageLimit) -> Result<Page, StoreError> {
        self.inner.scan_hints(start, end, limit)
    }
    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        self.commits.lock().unwrap().push(batch.records().len());
        let mut closed = self.closed.lock().unwrap();
        while *closed {
            closed = self.opened.wait(closed).unwrap();
        }
        self.inner.commit(batch, durability)
    }
    fn metadata(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.metadata(name)
    }
    fn gc_watermarks(&self) -> &Arc<GcWatermarks> {
        self.inner.gc_watermarks()
    }
    fn compact(&self) -> Result<(), StoreError> {
        self.inner.compact()
    }
    fn sequence(&self) -> u64 {
        self.inner.sequence()
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush()
    }
    fn health(&self) -> HealthState {
        self.inner.health()
    }
    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
}

struct Channel(mpsc::Sender<(u16, Vec<Completion>)>);

impl Sink for Channel {
    fn deliver(&mut self, shard: u16, done: &mut Vec<Completion>) {
        self.0.send((shard, std::mem::take(done))).unwrap();
    }
}

struct Rig {
    store: Arc<Gated>,
    queue: CommitQueue,
    thread: CommitThread<Gated>,
    answers: mpsc::Receiver<(u16, Vec<Completion>)>,
    _pool: ReadPoolThreads,
}

impl Rig {
    fn start(limits: QueueLimits, pool_jobs: usize) -> Self {
        let store = Arc::new(Gated::default());
        let config = CommitConfig {
            retention: Duration::from_secs(1),
            recent_entries_max: 1000,
            skew_max: Duration::from_secs(60),
            bound_lead: Duration::from_secs(1),
            batch_bytes_max: 1 << 20,
            durability: Durability::Fsync,
        };
        let committer = Committer::new(Arc::clone(&store), config, Duration::ZERO).unwrap();
        let (pool, pool_threads) = ReadPool::start(2, pool_jobs).unwrap();
        let (sender, answers) = mpsc::channel();
        let now = || TurnTime { boot: Duration::from_secs(100), wall_ms: WALL_MS };
        let (queue, thread) = CommitThread::start(committer, limits, pool, Channel(sender), now).unwrap();
        Self { store, queue, thread, answers, _pool: pool_threads }
    }

    fn answers(&self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.answers.recv_timeout(LONG).expect("an answer to each").1);
        }
        all
    }

    /// Returns once a commit waits at the gate.
    fn wait_for_commits(&self, count: usize) {
        let deadline = Instant::now() + LONG;
        while self.store.commits.lock().unwrap().len() < count {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }
}

const WIDE: QueueLimits = QueueLimits { works_max: 1000, bytes_max: 1 << 20 };

fn work(number: u64, shard: u16, millis: u64) -> Work {
    let key = Key::new(number.to_string().into()).unwrap();
    let version = Version { hlc: Hlc::from_millis(millis), incarnation: Incarnation(1) };
    let record = Record::value(&key, version, 1, None, &[b'x'; 100]).bytes().clone();
    let hash = key.hash();
    Work::Store(Submission {
        key,
        hash,
        version,
        record,
        repair: false,
        epoch: 0,
        token: CompletionToken { shard, id: number },
    })
}

fn accepted(shard: u16, id: u64) -> Completion {
    Completion::Stored { token: CompletionToken { shard, id }, answer: StoreAnswer::Accepted }
}

#[test]
fn what_arrives_during_a_commit_shares_the_next() {
    let rig = Rig::start(WIDE, 10);
    rig.store.set_closed(true);
    rig.queue.submit(work(0, 0, WALL_MS)).unwrap();
    rig.wait_for_commits(1);
    let mut works: Vec<Work> =
        (1..=100).map(|number| work(number, (number % 3).try_into().unwrap(), WALL_MS)).collect();
    rig.queue.submit_all(&mut works);
    assert!(works.is_empty());
    assert_eq!(rig.queue.load().works, 101, "what is being committed counts too");
    rig.store.set_closed(false);
    assert_eq!(rig.answers.recv_timeout(LONG).unwrap(), (0, vec![accepted(0, 0)]));
    for shard in 0..3_u16 {
        let (told, done) = rig.answers.recv_timeout(LONG).unwrap();
        assert_eq!(told, shard, "one call per shard and batch");
        let ids = (1..=100).filter(|number| number % 3 == u64::from(shard));
        assert_eq!(done, ids.map(|id| accepted(shard, id)).collect::<Vec<_>>());
    }
    assert_eq!(*rig.store.commits.lock().unwrap(), [1, 100]);
    let store = rig.thread.stop();
    assert_eq!(store.stats().records, 101);
    assert_eq!(rig.queue.load(), Load::default());
}

#[test]
fn a_full_queue_gives_the_work_back() {
    let bytes = work(100, 0, WALL_MS).bytes();
    for limits in [QueueLimits { works_max: 4, ..WIDE }, QueueLimits { bytes_max: 4 * bytes, ..WIDE }] {
        let rig = Rig::start(limits, 10);
        rig.store.set_closed(true);
        for number in 100..104 {
            rig.queue.submit(work(number, 0, WALL_MS)).unwrap();
        }
        let returned = rig.queue.submit(work(104, 0, WALL_MS)).unwrap_err();
        assert_eq!(returned.token().id, 104);
        let mut works = vec![work(105, 0, WALL_MS), work(106, 0, WALL_MS)];
        rig.queue.submit_all(&mut works);
        assert_eq!(works.len(), 2);
        rig.store.set_closed(false);
        assert_eq!(rig.answers(4).len(), 4);
        let deadline = Instant::now() + LONG;
        while rig.queue.load().works > 0 {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        rig.queue.submit(returned).unwrap();
        assert_eq!(rig.answers(1), [accepted(0, 104)]);
    }
}

#[test]
fn an_empty_queue_takes_a_work_of_any_size() {
    let rig = Rig::start(QueueLimits { works_max: 0, bytes_max: 0 }, 10);
    rig.queue.submit(work(1, 0, WALL_MS)).unwrap();
    assert_eq!(rig.answers(1), [accepted(0, 1)]);
}

#[test]
fn stopping_answers_everything_taken_and_refuses_the_rest() {
    let rig = Rig::start(WIDE, 10);
    rig.store.set_closed(true);
    rig.queue.submit(work(0, 0, WALL_MS)).unwrap();
    rig.wait_for_commits(1);
    for number in 1..50 {
        rig.queue.submit(work(number, 0, WALL_MS)).unwrap();
    }
    let store = Arc::clone(&rig.store);
    let queue = rig.queue.clone();
    let stopping = std::thread::spawn(move || rig.thread.stop());
    let mut extra = 0;
    while queue.submit(work(1000, 0, WALL_MS)).is_ok() {
        extra += 1;
        std::thread::yield_now();
    }
    store.set_closed(false);
    stopping.join().unwrap();
    assert_eq!(queue.load(), Load::default());
    assert!(queue.submit(work(1000, 0, WALL_MS)).is_err(), "not because it is full");
    let answered: usize = rig.answers.try_iter().map(|(_, done)| done.len()).sum();
    assert_eq!(answered, 50 + extra);
}

#[test]
fn cold_records_are_looked_up_through_the_pool() {
    let rig = Rig::start(WIDE, 10);
    rig.queue.submit(work(1, 0, WALL_MS)).unwrap();
    assert_eq!(rig.answers(1), [accepted(0, 1)]);
    rig.store.always_cold.store(true, Ordering::Relaxed);
    rig.queue.submit(work(1, 0, WALL_MS)).unwrap();
    assert_eq!(rig.answers(1), [accepted(0, 1)], "the same version again");
    // The works of a thread that has to stop come back from the pool too.
    rig.queue.submit(work(1, 0, WALL_MS)).unwrap();
    let _ = rig.thread.stop();
    let (_, done) = rig.answers.try_recv().unwrap();
    assert_eq!(done, [accepted(0, 1)]);
}

#[test]
fn what_needs_the_disk_at_once_is_no_more_jobs_than_the_pool_has_threads() {
    let rig = Rig::start(WIDE, 10);
    let works = || (1..=100).map(|number| work(number, 0, WALL_MS)).collect::<Vec<_>>();
    rig.queue.submit_all(&mut works());
    assert_eq!(rig.answers(100).len(), 100);
    rig.store.always_cold.store(true, Ordering::Relaxed);
    rig.store.set_reads_closed(true);
    rig.queue.submit_all(&mut works());
    rig.store.set_reads_closed(false);
    let mut answers = rig.answers(100);
    answers.sort_by_key(|done| done.token().id);
    assert_eq!(answers, (1..=100).map(|id| accepted(0, id)).collect::<Vec<_>>(), "none was refused");
}

#[test]
fn what_is_out_with_the_read_pool_counts_against_the_limits() {
    let bytes = work(0, 0, WALL_MS).bytes();
    let rig = Rig::start(QueueLimits { works_max: 3, ..WIDE }, 10);
    rig.queue.submit(work(0, 0, WALL_MS)).unwrap();
    assert_eq!(rig.answers(1), [accepted(0, 0)]);
    rig.store.always_cold.store(true, Ordering::Relaxed);
    rig.store.set_reads_closed(true);
    rig.queue.submit(work(0, 0, WALL_MS)).unwrap();
    rig.queue.submit(work(0, 0, WALL_MS)).unwrap();
    let deadline = Instant::now() + LONG;
    while *rig.store.reads_waiting.lock().unwrap() < 2 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    // A raise goes through the thread, so the batch with the two of them is over.
    rig.queue.submit(Work::RaiseBound { to: Hlc::ZERO, token: CompletionToken { shard: 0, id: 9 } }).unwrap();
    assert!(matches!(rig.answers(1)[..], [Completion::Raised { .. }]));
    while rig.queue.load().works > 2 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    assert_eq!(rig.queue.load(), Load { works: 2, bytes: 2 * bytes });
    rig.store.set_reads_closed(false);
    assert_eq!(rig.answers(2), [accepted(0, 0), accepted(0, 0)]);
    let queue = rig.queue.clone();
    let _ = rig.thread.stop();
    assert_eq!(queue.load(), Load::default());
}

#[test]
fn cold_records_are_refused_when_the_pool_is_full() {
    let rig = Rig::start(WIDE, 0);
    rig.queue.submit(work(1, 0, WALL_MS)).unwrap();
    assert_eq!(rig.answers(1), [accepted(0, 1)]);
    rig.store.always_cold.store(true, Ordering::Relaxed);
    rig.queue.submit(work(1, 0, WALL_MS)).unwrap();
    let refused = Completion::Stored {
        token: CompletionToken { shard: 0, id: 1 },
        answer: StoreAnswer::Failed(Failure::Overloaded),
    };
    assert_eq!(rig.answers(1), [refused]);
}

#[test]
fn the_bound_is_raised_on_request() {
    let rig = Rig::start(WIDE, 10);
    let token = CompletionToken { shard: 2, id: 5 };
    let to = Hlc::from_millis(WALL_MS + 5000);
    rig.queue.submit(Work::RaiseBound { to, token }).unwrap();
    let [Completion::Raised { token: told, bound: Ok(bound) }] = rig.answers(1)[..] else { panic!("not raised") };
    assert!(told == token && bound >= to);
    let store = rig.thread.stop();
    assert_eq!(store.metadata("clock_bound").unwrap(), Some(bound.raw().to_be_bytes().to_vec()));
}
