//! What threads do in production, as tasks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use kvorum_base::blocking_pool::ReadPool;
use kvorum_peer::membership::{Membership, NOTES_INTERVAL};
use kvorum_replication::replica::{Event, Mailbox};
use kvorum_storage::commit::CommitRunner;
use kvorum_storage::commit::queue::TurnTime;

use crate::chance::SimRandom;
use crate::outbox::Outbox;
use crate::store::Disk;
use tokio::runtime::UnhandledPanic;
use tokio::task::LocalSet;

/// Between two looks whether notes are to be written.
const NOTES_TICK: Duration = Duration::from_millis(100);

/// Tasks of which none ends in a panic without ending the run.
pub(crate) fn task_set() -> LocalSet {
    let mut tasks = LocalSet::new();
    tasks.unhandled_panic(UnhandledPanic::ShutdownRuntime);
    tasks
}

/// How long the disk takes.
pub(crate) struct Latency {
    pub(crate) longest_ms: Rc<Cell<u64>>,
    pub(crate) chance: Rc<RefCell<SimRandom>>,
}

impl Latency {
    async fn pass(&self) {
        let time = self.chance.borrow_mut().millis(0..self.longest_ms.get() + 1);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }
}

/// What the commit thread does: a batch takes time before the disk has it, and its answers take time after.
pub(crate) async fn run_commits<N: FnMut() -> TurnTime>(
    mut runner: CommitRunner<Disk, Outbox, N>,
    outbox: Outbox,
    mailbox: Arc<Mailbox>,
    disk: Latency,
) {
    loop {
        runner.until_work().await;
        disk.pass().await;
        runner.turn();
        disk.pass().await;
        let done = std::mem::take(&mut *outbox.0.lock().unwrap_or_else(PoisonError::into_inner));
        mailbox.post(done.into_iter().map(Event::Commit));
    }
}

/// What a thread of the read pool, or of the scan pool, does.
pub(crate) async fn run_jobs(pool: ReadPool, disk: Latency) {
    loop {
        let job = pool.next().await;
        disk.pass().await;
        job();
    }
}

/// What the thread `notes` does.
pub(crate) async fn write_notes(membership: Arc<Membership>) {
    let mut idle = Duration::ZERO;
    loop {
        tokio::time::sleep(NOTES_TICK).await;
        idle += NOTES_TICK;
        if membership.wants_notes() || idle >= NOTES_INTERVAL {
            idle = Duration::ZERO;
            membership.write_notes_once().expect("temporary files can be written");
        }
    }
}
