//! What flushes and compactions take of a core while requests come.
//!
//! The engine has a thread for each, and no setting for this: its rate limit counts bytes, of which the same work
//! writes many more in large records than in small ones, and cannot be changed while it runs. So they rest between
//! records, as other work in the background does ([`kvorum_base::cpu_share`]): a flush until so much has come that it
//! must not (decision 0036), a compaction the less, the greater the store's debt ([`super::debt`], decision 0061).
//!
//! Where the engine calls us between records, on the thread that makes a table and without a lock, is the prefix
//! extractor: it is asked of each key whether that has a prefix. None has, so tables are what they are without it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kvorum_base::cpu_share::{CpuShare, ThreadShare};
use kvorum_storage::{Health, Stall};
use rocksdb::SliceTransform;

/// Between two looks at the clock.
const RECORDS: u32 = 64;
/// Shorter rests are saved up: to sleep and wake is work too.
const REST_MIN: Duration = Duration::from_millis(5);
/// Between two looks at what has come meanwhile.
const REST_MAX: Duration = Duration::from_millis(10);

thread_local! {
    /// What this thread of the engine is at.
    static JOB: RefCell<Option<EngineJob>> = const { RefCell::new(None) };
}

/// Finds no prefix in any key, and has the job of its thread rest.
pub(super) fn extractor() -> SliceTransform {
    SliceTransform::create("kvorum.none", |key| key, Some(has_prefix))
}

fn has_prefix(_: &[u8]) -> bool {
    JOB.with_borrow_mut(|job| job.iter_mut().for_each(EngineJob::note_record));
    false
}

/// What the jobs of one store have of a core, and what came that makes them urgent.
pub(super) struct EngineShare {
    cpu_share: CpuShare,
    health: Arc<Health>,
    /// How many memtables a flush merges.
    merged: u32,
    memtables_sealed: AtomicU32,
    /// What a compaction has of a core at least, of a hundred.
    compaction_percent: AtomicU32,
    waiting: AtomicU32,
}

impl EngineShare {
    pub(super) fn new(cpu_share: CpuShare, health: Arc<Health>, merged: usize) -> Self {
        let [memtables_sealed, compaction_percent, waiting] = Default::default();
        let merged = u32::try_from(merged).unwrap_or(u32::MAX);
        Self { cpu_share, health, merged, memtables_sealed, compaction_percent, waiting }
    }

    /// The calling thread begins a flush of full memtables, which is urgent when as many more are full.
    pub(super) fn begin_flush(self: &Arc<Self>) {
        self.begin(JobKind::Flush { sealed_before: self.memtables_sealed.load(Ordering::Relaxed) });
    }

    /// The calling thread begins a compaction.
    pub(super) fn begin_compaction(self: &Arc<Self>) {
        self.begin(JobKind::Compaction);
    }

    fn begin(self: &Arc<Self>, kind: JobKind) {
        JOB.set(Some(EngineJob {
            kind,
            work: self.cpu_share.begin(),
            records: 0,
            saved_up: Duration::ZERO,
            share: Arc::clone(self),
        }));
    }

    /// The flush or compaction of the calling thread is over.
    pub(super) fn end() {
        JOB.set(None);
    }

    pub(super) fn note_memtable_sealed(&self) {
        self.memtables_sealed.fetch_add(1, Ordering::Relaxed);
    }

    /// What a compaction has of a core from now on, of a hundred, if that is more than the node's share.
    pub(super) fn set_compaction_percent(&self, percent: u32) {
        self.compaction_percent.store(percent, Ordering::Relaxed);
    }

    /// Calls what waits for flushes or compactions: all are urgent meanwhile.
    pub(super) fn waited_for<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = wait();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

#[derive(Clone, Copy)]
enum JobKind {
    Flush {
        /// Memtables that had been full before it began.
        sealed_before: u32,
    },
    Compaction,
}

struct EngineJob {
    share: Arc<EngineShare>,
    kind: JobKind,
    work: ThreadShare,
    records: u32,
    saved_up: Duration,
}

impl EngineJob {
    fn is_urgent(&self) -> bool {
        let is_waited_for = self.share.waiting.load(Ordering::Relaxed) > 0 || self.share.health.stall() != Stall::None;
        is_waited_for
            || match self.kind {
                JobKind::Flush { sealed_before } => {
                    let sealed = self.share.memtables_sealed.load(Ordering::Relaxed);
                    sealed.wrapping_sub(sealed_before) >= self.share.merged
                }
                JobKind::Compaction => self.compaction_percent() >= 100,
            }
    }

    fn compaction_percent(&self) -> u32 {
        self.share.compaction_percent.load(Ordering::Relaxed)
    }

    fn note_record(&mut self) {
        self.records += 1;
        if self.records < RECORDS {
            return;
        }
        self.records = 0;
        self.save_up();
        if self.saved_up >= REST_MIN {
            while let Some(rest) = self.next_rest() {
                std::thread::sleep(rest);
            }
        }
    }

    fn save_up(&mut self) {
        self.saved_up += match self.kind {
            JobKind::Flush { .. } => self.work.rest(),
            JobKind::Compaction => self.work.rest_with(self.compaction_percent()),
        };
    }

    /// A part of what is saved up. An urgent job has nothing left, nor later for what it works now.
    fn next_rest(&mut self) -> Option<Duration> {
        if self.is_urgent() {
            self.saved_up = Duration::ZERO;
        }
        let rest = self.saved_up.min(REST_MAX);
        self.saved_up -= rest;
        (!rest.is_zero()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use kvorum_base::cpu_share::cpu_time;

    use crate::engine_share::*;

    const WORK: Duration = Duration::from_millis(2);

    /// Has this thread work for so long.
    fn work_for(time: Duration) {
        let begin = cpu_time();
        while cpu_time().saturating_sub(begin) < time {
            std::hint::spin_loop();
        }
    }

    /// Has this thread work, and gives what its job is to rest for it.
    fn rest(share: &EngineShare) -> Duration {
        share.cpu_share.note_request();
        work_for(WORK);
        JOB.with_borrow_mut(|job| {
            let job = job.as_mut().unwrap();
            job.save_up();
            std::iter::from_fn(|| job.next_rest()).sum()
        })
    }

    fn share() -> Arc<EngineShare> {
        Arc::new(EngineShare::new(CpuShare::new(10), Arc::default(), 2))
    }

    #[test]
    fn a_flush_rests_until_as_many_more_memtables_are_full() {
        let share = share();
        share.begin_flush();
        assert!(rest(&share) >= 9 * WORK);
        share.set_compaction_percent(100);
        share.note_memtable_sealed();
        assert!(rest(&share) >= 9 * WORK);
        share.note_memtable_sealed();
        assert_eq!(rest(&share), Duration::ZERO);
        share.begin_flush();
        assert!(rest(&share) >= 9 * WORK, "it is those memtables' own now");
    }

    #[test]
    fn a_compaction_rests_the_less_the_more_is_owed() {
        let share = share();
        share.begin_compaction();
        share.note_memtable_sealed();
        share.note_memtable_sealed();
        assert!(rest(&share) >= 9 * WORK);
        share.set_compaction_percent(50);
        let half = rest(&share);
        assert!(half >= WORK && half < 9 * WORK, "{half:?}");
        share.set_compaction_percent(100);
        assert_eq!(rest(&share), Duration::ZERO);
        share.set_compaction_percent(0);
        assert!(rest(&share) >= 9 * WORK);
    }

    #[test]
    fn what_is_waited_for_does_not_rest_nor_make_up_for_it() {
        let share = share();
        share.begin_compaction();
        share.health.set_stall(Stall::Delayed);
        assert_eq!(rest(&share), Duration::ZERO, "writes wait");
        share.health.set_stall(Stall::None);
        assert_eq!(share.waited_for(|| rest(&share)), Duration::ZERO);
        assert_eq!(JOB.with_borrow_mut(|job| job.as_mut().unwrap().saved_up), Duration::ZERO);
        assert!(rest(&share) >= 9 * WORK);
    }
}
