//! The canary of `kvorum dev`: it writes and reads while a page is open, through all nodes, and counts what a client of a
//! linearizable store must never see.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

/// What it has counted.
#[derive(Debug, Default)]
pub(crate) struct Canary {
    stopped: AtomicBool,
    /// Whether anything was tried since a page was opened.
    active: AtomicBool,
    writes: AtomicU64,
    reads: AtomicU64,
    lost: AtomicU64,
    stale: AtomicU64,
    failed: AtomicU64,
    /// Since it was last shown.
    succeeded_now: AtomicU64,
    failed_now: AtomicU64,
}

impl Canary {
    /// Has it go on.
    pub(crate) fn resume(&self) {
        self.stopped.store(false, Ordering::Relaxed);
    }

    /// Has it stop; what it has counted stays.
    pub(crate) fn pause(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The counts, and whether all that was tried since the last time succeeded; null while it does nothing.
    pub(crate) fn show(&self) -> Value {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (succeeded, failed) =
            (self.succeeded_now.swap(0, Ordering::Relaxed), self.failed_now.swap(0, Ordering::Relaxed));
        if self.is_paused() || !self.active.load(Ordering::Relaxed) {
            return Value::Null;
        }
        json!({
            "writes": load(&self.writes),
            "reads": load(&self.reads),
            "lost": load(&self.lost),
            "stale": load(&self.stale),
            "failed": load(&self.failed),
            "available": succeeded > 0 && failed == 0,
        })
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Nobody watches any more.
    pub(crate) fn rest(&self) {
        self.active.store(false, Ordering::Relaxed);
    }

    /// Something has come to an end.
    fn note_end(&self, of: &AtomicU64) {
        of.fetch_add(1, Ordering::Relaxed);
        self.active.store(true, Ordering::Relaxed);
    }

    /// A write was acknowledged.
    pub(crate) fn note_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.note_end(&self.succeeded_now);
    }

    /// A read was answered.
    pub(crate) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.note_end(&self.succeeded_now);
    }

    /// A read has missed the last acknowledged write.
    pub(crate) fn note_stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    /// A second read has missed it as well.
    pub(crate) fn note_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// No node has carried something out.
    pub(crate) fn note_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.note_end(&self.failed_now);
    }
}
