//! Where the engine's calls wait, while a profile of locks runs: from its own account of each thread's calls, which is
//! asleep otherwise. Its own threads, which flush and compact, are not seen.

use std::cell::Cell;
use std::time::Duration;

use kvorum_base::waits::{WaitKind, WaitTotal, is_watched, note};
use rocksdb::perf::{PerfMetric, PerfStatsLevel, set_perf_stats, with_thread_local};

/// A write that is held back may do so on the condition: that time is in both.
const WAITS: [(PerfMetric, &str); 5] = [
    (PerfMetric::BlockReadTime, "block read"),
    (PerfMetric::WriteWalTime, "log write and sync"),
    (PerfMetric::DbMutexLockNanos, "mutex"),
    (PerfMetric::WriteDelayTime, "write stall"),
    (PerfMetric::DbConditionWaitNanos, "condition"),
];

thread_local! {
    /// Unknown at first: the engine begins with counts of each thread's calls, one for each comparison of two keys.
    static IS_COUNTING: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Runs one call of the engine. Must not be nested.
pub(super) fn noted<T>(call: &'static str, work: impl FnOnce() -> T) -> T {
    let watched = is_watched();
    if IS_COUNTING.get() != Some(watched) {
        set_perf_stats(if watched { PerfStatsLevel::EnableTime } else { PerfStatsLevel::Disable });
        IS_COUNTING.set(Some(watched));
    }
    if !watched {
        return work();
    }
    with_thread_local(|account| {
        let done = work();
        for (metric, name) in WAITS {
            let time = Duration::from_nanos(account.metric(metric));
            if !time.is_zero() {
                note(WaitKind::Engine(name), call.to_owned(), WaitTotal { count: 1, time });
            }
        }
        done
    })
}
