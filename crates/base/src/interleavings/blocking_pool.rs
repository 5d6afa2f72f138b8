//! Every job that the pool takes is run or dropped, once; the bound holds; no wake-up is missed; stopping ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::check;
use crate::blocking_pool::ReadPool;

const JOBS_MAX: usize = 2;

/// What became of the jobs of a test, in plain counters: the checker runs one thread at a time.
#[derive(Default)]
struct Counts {
    run: AtomicUsize,
    dropped: AtomicUsize,
    refused: AtomicUsize,
}

/// Counts itself when it goes, run or not.
struct CountedJob {
    counts: Arc<Counts>,
    is_run: bool,
}

impl Drop for CountedJob {
    fn drop(&mut self) {
        let counter = if self.is_run { &self.counts.run } else { &self.counts.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn submit(pool: &ReadPool, counts: &Arc<Counts>) {
    let job = CountedJob { counts: Arc::clone(counts), is_run: false };
    let run = move || {
        let mut job = job;
        job.is_run = true;
    };
    let refused = pool.submit(Box::new(run)).is_err();
    assert!(pool.depth() <= JOBS_MAX);
    counts.refused.fetch_add(usize::from(refused), Ordering::Relaxed);
}

fn submitters(pool: &ReadPool, counts: &Arc<Counts>) -> Vec<thread::JoinHandle<()>> {
    let submitter = |_| {
        let (pool, counts) = (pool.clone(), Arc::clone(counts));
        thread::spawn(move || (0..2).for_each(|_| submit(&pool, &counts)))
    };
    (0..2).map(submitter).collect()
}

#[test]
fn what_is_taken_is_run_or_dropped_once_when_the_pool_stops_at_any_moment() {
    check(1, || {
        let (pool, threads) = ReadPool::start(2, JOBS_MAX).unwrap();
        let counts = Arc::new(Counts::default());
        let submitters = submitters(&pool, &counts);
        threads.stop();
        submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
        submit(&pool, &counts);
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        assert_eq!(of(&counts.run) + of(&counts.dropped), 5, "each once");
        assert!(of(&counts.dropped) >= of(&counts.refused) && of(&counts.refused) >= 1);
        assert_eq!(pool.depth(), 0, "nothing is left behind");
        assert_eq!(pool.refused(), of(&counts.refused) as u64);
    });
}

#[test]
fn every_job_is_run_without_another_to_wake_for_it() {
    check(1, || {
        let (pool, threads) = ReadPool::start(2, 8).unwrap();
        let done = Arc::new((Mutex::new(0), Condvar::new()));
        for _ in 0..2 {
            let (pool, done) = (pool.clone(), Arc::clone(&done));
            thread::spawn(move || {
                for _ in 0..2 {
                    let done = Arc::clone(&done);
                    let job = move || {
                        *done.0.lock().unwrap() += 1;
                        done.1.notify_one();
                    };
                    assert!(pool.submit(Box::new(job)).is_ok());
                }
            });
        }
        let mut count = done.0.lock().unwrap();
        while *count < 4 {
            count = done.1.wait(count).unwrap();
        }
        drop(count);
        threads.stop();
    });
}
