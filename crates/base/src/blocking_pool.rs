//! Threads that may block on the disk, so that shards and the commit thread need not; in a simulation, tasks.
//!
//! Owns a bounded queue of jobs. A full queue gives the job back. A job that was taken is run or, if the
//! pool stops first, dropped: what must happen in both cases belongs into the `Drop` of what it captures.
//!
//! A node has two: the read pool, and the scan pool with one thread, which has the processor only when nothing
//! else of the machine needs it. Jobs there only read: a writer that is not given the processor would hold up the
//! commit thread, with which it shares the engine's write queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::priority;
use crate::sync::thread;
use crate::sync::thread::JoinHandle;
use crate::sync::{Condvar, Mutex, MutexGuard, Notify};
use crate::waits::QueueWaits;

/// Between two attempts to get a job into a full pool.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// One thing to do on the pool.
pub type Job = Box<dyn FnOnce() + Send>;

/// A handle to submit jobs with.
#[derive(Clone)]
pub struct ReadPool {
    shared: Arc<PoolShared>,
}

/// The threads. Dropping it stops them.
pub struct ReadPoolThreads {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
}

struct PoolShared {
    queue: Mutex<Queue>,
    /// Wakes a thread, where threads run the jobs.
    ready: Condvar,
    /// Wakes a task, where tasks do.
    ready_task: Notify,
    jobs_max: usize,
    /// How many jobs run at once.
    threads: usize,
    refused: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    waits: QueueWaits,
    /// Threads and tasks that wait for a job. At zero, a new job wakes none.
    idle: usize,
    stopping: bool,
}

impl ReadPool {
    /// Starts `threads` threads (at least one) behind a queue of at most `jobs_max` jobs.
    ///
    /// # Errors
    /// The operating system's, where it starts no thread.
    pub fn start(threads: usize, jobs_max: usize) -> std::io::Result<(Self, ReadPoolThreads)> {
        let threads = threads.max(1);
        let pool = Self::new(threads, jobs_max);
        let mut running = pool.nobody();
        for index in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("read-{index}"));
            running.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok((pool, running))
    }

    /// Starts a scan pool behind a queue of at most `jobs_max` jobs.
    ///
    /// # Errors
    /// The operating system's, where it starts no thread.
    pub fn start_scans(jobs_max: usize) -> std::io::Result<(Self, ReadPoolThreads)> {
        let pool = Self::new(1, jobs_max);
        let mut running = pool.nobody();
        let shared = Arc::clone(&pool.shared);
        let work = move || {
            priority::lower_to(priority::SCANS);
            shared.work();
        };
        running.threads.push(thread::Builder::new().name("scan".to_owned()).spawn(work)?);
        Ok((pool, running))
    }

    fn nobody(&self) -> ReadPoolThreads {
        ReadPoolThreads { shared: Arc::clone(&self.shared), threads: Vec::new() }
    }

    /// The same queue without threads: [`ReadPool::next`] gives its jobs.
    #[must_use]
    pub fn without_threads(jobs_max: usize) -> Self {
        Self::new(1, jobs_max)
    }

    fn new(threads: usize, jobs_max: usize) -> Self {
        Self {
            shared: Arc::new(PoolShared {
                queue: Mutex::default(),
                ready: Condvar::new(),
                ready_task: Notify::new(),
                jobs_max,
                threads,
                refused: AtomicU64::new(0),
            }),
        }
    }

    /// Waits for a job, to be run by the caller. Cancel safe.
    pub async fn next(&self) -> Job {
        loop {
            {
                let mut queue = self.shared.lock();
                if let Some(job) = queue.pop() {
                    return job;
                }
                queue.idle += 1;
            }
            let _idle = Idle(&self.shared);
            self.shared.ready_task.notified().await;
        }
    }

    /// Queues a job.
    ///
    /// # Errors
    /// The job itself if the queue is full or the pool has stopped.
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.shared.lock();
        if queue.stopping || queue.jobs.len() >= self.shared.jobs_max {
            drop(queue);
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            return Err(job);
        }
        queue.push(job);
        let wake = queue.idle > 0;
        drop(queue);
        if wake {
            self.shared.ready.notify_one();
            self.shared.ready_task.notify_one();
        }
        Ok(())
    }

    /// Waits for room, and for what the job gives; nothing if the pool stops first.
    ///
    /// Cancelled, it is run all the same if there was room.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (send, receive) = oneshot::channel();
        let mut job: Job = Box::new(move || {
            // The caller may have gone.
            let _ = send.send(job());
        });
        while let Err(refused) = self.submit(job) {
            if self.shared.lock().stopping {
                return None;
            }
            job = refused;
            tokio::time::sleep(FULL_PAUSE).await;
        }
        receive.await.ok()
    }

    /// The same where there is room now; nothing where there is none. Once the caller has gone, a job that waits is not
    /// run any more.
    pub async fn try_run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (send, receive) = oneshot::channel();
        let job: Job = Box::new(move || {
            if !send.is_closed() {
                let _ = send.send(job());
            }
        });
        self.submit(job).ok()?;
        receive.await.ok()
    }

    /// Jobs that run at once.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Jobs that wait for a thread.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.shared.lock().jobs.len()
    }

    /// Jobs given back so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Queue {
    fn push(&mut self, job: Job) {
        self.waits.before_put(self.jobs.len());
        self.jobs.push_back(job);
    }

    fn pop(&mut self) -> Option<Job> {
        self.waits.before_take("read pool", self.jobs.len(), self.jobs.len().min(1));
        self.jobs.pop_front()
    }
}

/// A task that waits for a job, until dropped.
struct Idle<'a>(&'a PoolShared);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.lock().idle -= 1;
    }
}

impl ReadPoolThreads {
    /// Drops what waits, lets what runs finish, and ends the threads. Blocks until then.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let mut queue = self.shared.lock();
        queue.stopping = true;
        // Dropped outside the lock: a job's drop may call back.
        let waiting = std::mem::take(&mut queue.jobs);
        drop(queue);
        self.shared.ready.notify_all();
        drop(waiting);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for ReadPoolThreads {
    fn drop(&mut self) {
        self.end();
    }
}

impl PoolShared {
    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.pop() {
                drop(queue);
                // A job that panics has been reported by the panic hook; the thread goes on.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                queue = self.lock();
            } else if queue.stopping {
                return;
            } else {
                queue.idle += 1;
                queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::blocking_pool::*;
    use std::sync::mpsc;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_full_queue_gives_the_job_back_and_the_rest_is_run() {
        let (pool, threads) = ReadPool::start(1, 2).unwrap();
        let (release, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let (done, results) = mpsc::channel();
        pool.submit(Box::new(move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
        }))
        .unwrap_or_else(|_| panic!("the queue is empty"));
        running.recv_timeout(LONG).unwrap();
        for index in 0..2 {
            let done = done.clone();
            assert!(pool.submit(Box::new(move || done.send(index).unwrap())).is_ok());
        }
        assert_eq!(pool.depth(), 2);
        assert!(pool.submit(Box::new(|| {})).is_err());
        assert_eq!(pool.refused(), 1);
        release.send(()).unwrap();
        assert_eq!(results.recv_timeout(LONG).unwrap(), 0);
        assert_eq!(results.recv_timeout(LONG).unwrap(), 1);
        threads.stop();
        assert!(pool.submit(Box::new(|| {})).is_err());
    }

    #[tokio::test]
    async fn what_finds_no_room_waits_for_it_and_learns_of_the_end() {
        let pool = ReadPool::without_threads(1);
        assert!(pool.submit(Box::new(|| {})).is_ok());
        let ran = tokio::join!(pool.run(|| 7), async {
            (pool.next().await)();
            (pool.next().await)();
        });
        assert_eq!(ran.0, Some(7));
        assert!(pool.submit(Box::new(|| {})).is_ok());
        let stopped = tokio::join!(pool.run(|| 7), async { pool.nobody().stop() });
        assert_eq!(stopped.0, None);
    }

    #[tokio::test]
    async fn scans_have_the_lowest_priority_and_reads_the_usual_one() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let usual = own();
        let (reads, _reading) = ReadPool::start(1, 1).unwrap();
        let (scans, _scanning) = ReadPool::start_scans(1).unwrap();
        assert_eq!(scans.run(own).await, Some(priority::SCANS));
        assert_eq!(reads.run(own).await, Some(usual));
        assert_eq!(own(), usual);
    }

    #[test]
    fn stopping_drops_what_waits_and_finishes_what_runs() {
        let (pool, threads) = ReadPool::start(1, 8).unwrap();
        let (release, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let (done, results) = mpsc::channel();
        let finished = done.clone();
        assert!(
            pool.submit(Box::new(move || {
                started.send(()).unwrap();
                gate.recv().unwrap();
                finished.send("ran").unwrap();
            }))
            .is_ok()
        );
        running.recv_timeout(LONG).unwrap();
        struct Dropped(mpsc::Sender<&'static str>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                let _ = self.0.send("dropped");
            }
        }
        let waiting = Dropped(done);
        assert!(pool.submit(Box::new(move || drop(waiting))).is_ok());
        let stopping = std::thread::spawn(move || threads.stop());
        assert_eq!(results.recv_timeout(LONG).unwrap(), "dropped");
        release.send(()).unwrap();
        assert_eq!(results.recv_timeout(LONG).unwrap(), "ran");
        stopping.join().unwrap();
    }
}
