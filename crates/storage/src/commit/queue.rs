//! The way to the commit thread, and the thread: or, in a simulation, a task that runs the same turns.
//!
//! Bounded in works and bytes, from their submission to their answer; full gives the work back. While one
//! batch is synced the next one gathers: that is the group commit, and no timer is needed for it.
//!
//! Every work that was taken is answered exactly once, also when the thread has to stop. Works whose lookup needs the
//! disk wait in the read pool, and count here until they are answered: they come back past the bounds, because they
//! were let in before.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::sync::atomic::{AtomicU64, Ordering};
use kvorum_base::sync::thread;
use kvorum_base::sync::thread::JoinHandle;
use kvorum_base::sync::{Condvar, Mutex, MutexGuard, Notify};
use kvorum_base::waits::QueueWaits;

use super::committer::{Committer, NeedsDisk};
use super::metrics::{CommitMetrics, add};
use super::work::{Completion, Prefetch, Sink, Work};
use crate::store::{Store, Tier};

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Works.
    pub works_max: usize,
    /// Bytes of keys and records. An empty queue takes one work of any size.
    pub bytes_max: usize,
}

/// The present, from the owner of the clocks.
#[derive(Clone, Copy, Debug)]
pub struct TurnTime {
    /// Since boot, suspend included.
    pub boot: Duration,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

/// A handle to submit work with.
#[derive(Clone)]
pub struct CommitQueue {
    shared: Arc<QueueShared>,
    bar: Arc<AtomicU64>,
}

/// The thread. Stop it to get everything answered.
pub struct CommitThread<S> {
    shared: Arc<QueueShared>,
    thread: JoinHandle<Arc<S>>,
}

struct QueueShared {
    state: Mutex<QueueState>,
    /// Wakes the thread, where one runs the turns.
    ready: Condvar,
    /// Wakes the task, where one does.
    ready_task: Notify,
    limits: QueueLimits,
}

#[derive(Default)]
struct QueueState {
    works: Vec<Work>,
    waits: QueueWaits,
    /// Everything that is not answered: what waits, what is being committed, what is out with the read pool.
    load: Load,
    /// What of it is in `works`.
    waiting: Load,
    /// Works out with the read pool.
    warming: usize,
    /// Whether the runner of the turns sleeps: only then is it woken.
    idle: bool,
    stopping: bool,
}

/// What counts against the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Works submitted and not yet answered.
    pub works: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl CommitQueue {
    /// A queue, and what its turns are run with. `now` is asked once per batch.
    pub fn new<S: Store, K: Sink, N: FnMut() -> TurnTime>(
        committer: Committer<S>,
        limits: QueueLimits,
        pool: ReadPool,
        sink: K,
        now: N,
    ) -> (Self, CommitRunner<S, K, N>) {
        let shared =
            Arc::new(QueueShared { state: Mutex::default(), ready: Condvar::new(), ready_task: Notify::new(), limits });
        let metrics = committer.metrics();
        let queue = Self { shared: Arc::clone(&shared), bar: committer.bar() };
        let (works, done, shards) = (Vec::new(), Vec::new(), Vec::new());
        (queue, CommitRunner { shared, committer, metrics, pool, sink, now, works, done, shards })
    }

    /// Whether this node is past the layout of this epoch. To be asked after what is answered by it was read.
    #[must_use]
    #[inline]
    pub fn is_past(&self, epoch: u64) -> bool {
        epoch < self.bar()
    }

    /// The durable bar.
    #[must_use]
    #[inline]
    pub fn bar(&self) -> u64 {
        self.bar.load(Ordering::Acquire)
    }

    /// Queues one work.
    ///
    /// # Errors
    /// The work itself if the queue is full or the thread is stopping: nothing was done.
    pub fn submit(&self, work: Work) -> Result<(), Work> {
        let mut state = self.shared.lock();
        if !state.has_room(&work, self.shared.limits) {
            return Err(work);
        }
        state.push(work);
        self.shared.wake(state);
        Ok(())
    }

    /// Queues works from the front of `works` under one lock, and leaves there what has no room.
    pub fn submit_all(&self, works: &mut Vec<Work>) {
        if works.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        let mut load = state.load;
        let fits = works.iter().take_while(|work| {
            let fits = !state.stopping && load.has_room(work, self.shared.limits);
            load.add(work);
            fits
        });
        let count = fits.count();
        for work in works.drain(..count) {
            state.push(work);
        }
        self.shared.wake(state);
    }

    /// What was submitted and is not answered.
    #[must_use]
    pub fn load(&self) -> Load {
        self.shared.lock().load
    }
}

impl<S: Store> CommitThread<S> {
    /// Starts the thread `commit`. `now` is asked once per batch.
    ///
    /// # Errors
    /// The operating system's, where it starts no thread.
    pub fn start(
        committer: Committer<S>,
        limits: QueueLimits,
        pool: ReadPool,
        sink: impl Sink + 'static,
        now: impl FnMut() -> TurnTime + Send + 'static,
    ) -> std::io::Result<(CommitQueue, Self)> {
        let (queue, runner) = CommitQueue::new(committer, limits, pool, sink, now);
        let shared = Arc::clone(&runner.shared);
        let thread = thread::Builder::new().name("commit".to_owned()).spawn(move || runner.run())?;
        Ok((queue, Self { shared, thread }))
    }

    /// Refuses new work, answers all that was taken, ends the thread, and gives the store back. Blocks.
    ///
    /// # Panics
    /// If the thread did.
    #[must_use]
    pub fn stop(self) -> Arc<S> {
        self.shared.stop();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Load {
    fn has_room(self, work: &Work, limits: QueueLimits) -> bool {
        self.works == 0 || (self.works < limits.works_max && self.bytes + work.bytes() <= limits.bytes_max)
    }

    fn add(&mut self, work: &Work) {
        self.works += 1;
        self.bytes += work.bytes();
    }

    fn subtract(&mut self, part: Self) {
        self.works -= part.works;
        self.bytes -= part.bytes;
    }
}

impl QueueState {
    fn has_room(&self, work: &Work, limits: QueueLimits) -> bool {
        !self.stopping && self.load.has_room(work, limits)
    }

    fn push(&mut self, work: Work) {
        self.load.add(&work);
        self.requeue(work);
    }

    /// Takes back what was counted when it was let in, and has not been answered since.
    fn requeue(&mut self, work: Work) {
        self.waits.before_put(self.works.len());
        self.waiting.add(&work);
        self.works.push(work);
    }
}

impl QueueShared {
    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, mut state: MutexGuard<'_, QueueState>) {
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        if idle {
            self.ready.notify_one();
            self.ready_task.notify_one();
        }
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        self.wake(state);
    }

    /// Blocks until something waits; whether it does, and not all is answered for a thread that shall stop.
    fn wait(&self) -> bool {
        let mut state = self.lock();
        while state.works.is_empty() {
            if state.stopping && state.warming == 0 {
                return false;
            }
            state.idle = true;
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle = false;
        }
        true
    }

    /// Swaps all that waits into the empty `works`; how much that is.
    fn take(&self, works: &mut Vec<Work>) -> Load {
        let mut state = self.lock();
        let state = &mut *state;
        state.waits.before_take("commit", state.works.len(), state.works.len());
        std::mem::swap(&mut state.works, works);
        std::mem::take(&mut state.waiting)
    }
}

/// Decides and commits what is queued, turn by turn: on a thread of its own, or wherever a simulator needs it.
pub struct CommitRunner<S, K, N> {
    shared: Arc<QueueShared>,
    committer: Committer<S>,
    metrics: Arc<CommitMetrics>,
    pool: ReadPool,
    sink: K,
    now: N,
    /// What a turn has taken, what became of it, and that sorted by shard: empty between turns.
    works: Vec<Work>,
    done: Vec<Completion>,
    shards: Vec<Vec<Completion>>,
}

impl<S: Store, K: Sink, N: FnMut() -> TurnTime> CommitRunner<S, K, N> {
    fn run(mut self) -> Arc<S> {
        // If this thread panics, work is refused from then on, and not piled up.
        let _refuse = StopOnDrop(Arc::clone(&self.shared));
        while self.shared.wait() {
            self.turn();
        }
        Arc::clone(self.committer.store())
    }

    /// Waits until there is something for [`CommitRunner::turn`]. Cancel safe.
    pub async fn until_work(&self) {
        loop {
            {
                let mut state = self.shared.lock();
                state.idle = state.works.is_empty();
                if !state.idle {
                    return;
                }
            }
            self.shared.ready_task.notified().await;
        }
    }

    /// Decides, commits and answers everything that waits now. Blocks on the store.
    pub fn turn(&mut self) {
        let mut works = std::mem::take(&mut self.works);
        let mut answered = self.shared.take(&mut works);
        while !works.is_empty() {
            let begin = Instant::now();
            let now = (self.now)();
            self.committer.run(&mut works, now.boot, now.wall_ms, &mut self.done);
            self.metrics.batch_micros.record(u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX));
            self.deliver();
            answered.subtract(self.warm());
        }
        self.works = works;
        // Those out with the read pool count on.
        self.shared.lock().load.subtract(answered);
    }

    fn deliver(&mut self) {
        for done in self.done.drain(..) {
            let shard = usize::from(done.token().shard);
            if self.shards.len() <= shard {
                self.shards.resize_with(shard + 1, Vec::new);
            }
            self.shards.get_mut(shard).expect("resized to hold it").push(done);
        }
        for (shard, done) in (0..=u16::MAX).zip(&mut self.shards) {
            if !done.is_empty() {
                self.sink.deliver(shard, done);
                done.clear();
            }
        }
    }

    /// Has the cold lookups read by the pool, divided among its threads: neighbours share blocks, and many that come
    /// back at once share a commit. Each comes back by itself, read or not. How much they are.
    fn warm(&mut self) -> Load {
        let mut out = Load::default();
        let mut cold = self.committer.take_cold();
        let in_job = cold.len().div_ceil(self.pool.threads());
        while !cold.is_empty() {
            let rest = cold.split_off(in_job.min(cold.len()));
            let works = std::mem::replace(&mut cold, rest);
            out.works += works.len();
            out.bytes += works.iter().map(|cold| cold.submission.bytes()).sum::<usize>();
            add(&self.metrics.cold_reads, works.len());
            self.shared.lock().warming += works.len();
            let store = Arc::clone(self.committer.store());
            let mut warming = Warming { shared: Arc::clone(&self.shared), works, read: 0 };
            // A refused job is dropped, which brings the works back too.
            let _ = self.pool.submit(Box::new(move || warming.read(&*store)));
        }
        out
    }
}

/// Works out with the read pool. However it ends, they come back to the queue.
struct Warming {
    shared: Arc<QueueShared>,
    works: Vec<NeedsDisk>,
    /// How many of them were read.
    read: usize,
}

impl Warming {
    fn read(&mut self, store: &impl Store) {
        for cold in &self.works {
            // For its effect on the cache; an error shows again at the lookup, which answers it.
            let _ = store.get(&cold.submission.key, Tier::Disk);
            self.read += 1;
        }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.warming -= self.works.len();
        for (index, NeedsDisk { submission, reads }) in self.works.drain(..).enumerate() {
            let reads = if index < self.read { Prefetch::Ahead(reads + 1) } else { Prefetch::Refused };
            state.requeue(Work::Retry { submission, reads });
        }
        self.shared.wake(state);
    }
}

struct StopOnDrop(Arc<QueueShared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
