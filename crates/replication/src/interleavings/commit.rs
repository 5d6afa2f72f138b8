//! From the shards to the commit thread and back: every work that was taken is answered once, to its shard and in
//! its order; the bound holds; no wake-up is missed; stopping loses nothing that was taken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kvorum_base::blocking_pool::{ReadPool, ReadPoolThreads};
use kvorum_base::interleavings::check;
use kvorum_core::quorum::{Failure, StoreAnswer};
use kvorum_core::{Hlc, Incarnation, Key, Record, Version};
use kvorum_storage::commit::queue::{Load, TurnTime};
use kvorum_storage::commit::{
    CommitConfig, CommitQueue, CommitThread, Committer, Completion, CompletionToken, QueueLimits, Submission, Work,
};
use kvorum_storage::memory::MemoryStore;
use kvorum_storage::{Batch, Durability, Store};
use shuttle::future::block_on;
use shuttle::thread::{self, JoinHandle};

use crate::replica::{Event, Mailbox, Mailboxes};

const WALL_MS: u64 = 1_000_000;
const SHARDS: u16 = 2;
const WORKS_MAX: usize = 3;

struct Rig {
    queue: CommitQueue,
    thread: CommitThread<MemoryStore>,
    mailboxes: Vec<Arc<Mailbox>>,
    pool: ReadPoolThreads,
}

fn key(shard: u16, id: u64) -> Key {
    Key::new(format!("{shard}-{id}").into()).unwrap()
}

fn work(shard: u16, id: u64) -> Work {
    let (key, version) = (key(shard, id), Version { hlc: Hlc::from_millis(WALL_MS), incarnation: Incarnation(1) });
    let record = Record::value(&key, version, 1, None, b"v").bytes().clone();
    let hash = key.hash();
    Work::Store(Submission {
        key,
        hash,
        version,
        record,
        repair: false,
        epoch: 0,
        token: CompletionToken { shard, id },
    })
}

impl Rig {
    /// With `cold` the works cannot be decided without a look at the disk, which the pool of one thread and one job
    /// takes for the commit thread, or refuses.
    fn start(cold: bool) -> Self {
        let store = Arc::new(MemoryStore::default());
        if cold {
            let mut batch = Batch::default();
            batch.put_metadata("clock_bound", Hlc::from_millis(2 * WALL_MS).raw().to_be_bytes().to_vec());
            store.commit(&batch, Durability::Fsync).unwrap();
            (0..SHARDS).for_each(|shard| (0..3).for_each(|id| store.make_cold(&key(shard, id))));
        }
        let config = CommitConfig {
            retention: Duration::from_secs(1),
            recent_entries_max: 10,
            skew_max: Duration::from_secs(60),
            bound_lead: Duration::from_secs(1),
            batch_bytes_max: 1 << 20,
            durability: Durability::Fsync,
        };
        let committer = Committer::new(store, config, Duration::ZERO).unwrap();
        let (pool, pool_threads) = ReadPool::start(1, 1).unwrap();
        let mailboxes: Vec<Arc<Mailbox>> = (0..SHARDS).map(|_| Arc::default()).collect();
        let limits = QueueLimits { works_max: WORKS_MAX, bytes_max: 1 << 20 };
        let now = || TurnTime { boot: Duration::from_secs(100), wall_ms: WALL_MS };
        let (queue, thread) = CommitThread::start(committer, limits, pool, Mailboxes(mailboxes.clone()), now).unwrap();
        Self { queue, thread, mailboxes, pool: pool_threads }
    }

    /// A shard: submits one, then two at once, and waits for the answer to each that was taken.
    fn shard(&self, shard: u16, in_order: bool) -> JoinHandle<()> {
        let (queue, mailbox) = (self.queue.clone(), Arc::clone(&self.mailboxes[usize::from(shard)]));
        thread::spawn(move || {
            let mut awaited = BTreeMap::new();
            if queue.submit(work(shard, 0)).is_ok() {
                awaited.insert(0, ());
            }
            let mut works = vec![work(shard, 1), work(shard, 2)];
            queue.submit_all(&mut works);
            assert!(queue.load().works <= WORKS_MAX, "over the bound");
            awaited.extend((1..3).take(2 - works.len()).map(|id| (id, ())));
            let mut taken = Vec::new();
            while !awaited.is_empty() {
                block_on(mailbox.take(&mut taken));
                for event in taken.drain(..) {
                    let Event::Commit(Completion::Stored { token, answer }) = event else { panic!("not asked for") };
                    assert_eq!(token.shard, shard);
                    let first = awaited.first_key_value().map(|(id, ())| *id);
                    assert!(awaited.remove(&token.id).is_some(), "answered twice, or not taken");
                    assert!(!in_order || first == Some(token.id), "answered out of order");
                    let overloaded = StoreAnswer::Failed(Failure::Overloaded);
                    assert!(answer == StoreAnswer::Accepted || (!in_order && answer == overloaded), "{answer:?}");
                }
            }
        })
    }

    fn shards(&self, in_order: bool) -> Vec<JoinHandle<()>> {
        (0..SHARDS).map(|shard| self.shard(shard, in_order)).collect()
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn every_work_that_was_taken_is_answered_once_and_in_order() {
    check(10, || {
        let rig = Rig::start(false);
        join(rig.shards(true));
        let _store = rig.thread.stop();
        assert_eq!(rig.queue.load(), Load::default());
    });
}

#[test]
fn stopping_answers_what_was_taken_and_refuses_the_rest() {
    check(10, || {
        let rig = Rig::start(false);
        let shards = rig.shards(true);
        let _store = rig.thread.stop();
        assert!(rig.queue.submit(work(0, 0)).is_err(), "refused, and not because it is full");
        join(shards);
        assert_eq!(rig.queue.load(), Load::default());
    });
}

#[test]
fn works_that_need_the_disk_come_back_while_the_pool_and_the_thread_stop() {
    check(10, || {
        let rig = Rig::start(true);
        let shards = rig.shards(false);
        let pool = rig.pool;
        let stopping = thread::spawn(move || pool.stop());
        let _store = rig.thread.stop();
        join(shards);
        stopping.join().unwrap();
        assert_eq!(rig.queue.load(), Load::default());
    });
}

#[test]
fn a_task_that_runs_the_turns_misses_no_work() {
    check(10, || {
        let committer = Committer::new(
            Arc::new(MemoryStore::default()),
            CommitConfig {
                retention: Duration::from_secs(1),
                recent_entries_max: 10,
                skew_max: Duration::from_secs(60),
                bound_lead: Duration::from_secs(1),
                batch_bytes_max: 1 << 20,
                durability: Durability::Fsync,
            },
            Duration::ZERO,
        );
        let mailbox: Arc<Mailbox> = Arc::default();
        let limits = QueueLimits { works_max: 10, bytes_max: 1 << 20 };
        let now = || TurnTime { boot: Duration::from_secs(100), wall_ms: WALL_MS };
        let sink = Mailboxes(vec![Arc::clone(&mailbox)]);
        let (queue, mut runner) = CommitQueue::new(committer.unwrap(), limits, ReadPool::without_threads(1), sink, now);
        let submitter = thread::spawn(move || (0..3).for_each(|id| queue.submit(work(0, id)).unwrap()));
        let (mut taken, mut count) = (Vec::new(), 0);
        while count < 3 {
            block_on(runner.until_work());
            runner.turn();
            block_on(mailbox.take(&mut taken));
            count += taken.drain(..).count();
        }
        submitter.join().unwrap();
    });
}
