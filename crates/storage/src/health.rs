//! Whether the store takes writes: atomics that the engine's threads set and every request reads. Each
//! change is logged, once, where it happens.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// What the store can do at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// Reads and writes.
    Healthy,
    /// Reads; writes again by itself when there is space.
    DiskFull,
    /// Reads until a restart.
    Poisoned,
}

/// Whether the engine holds writes back because compaction or flushing is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stall {
    /// It does not.
    #[default]
    None,
    /// It slows them down.
    Delayed,
    /// It lets none through.
    Stopped,
}

/// The store's health and the counters that its events feed. Shared with the engine's threads.
#[derive(Debug, Default)]
pub struct Health {
    disk_full: AtomicBool,
    /// Bytes of the commit that did not fit beside the space that is left to the engine; zero if all did. The engine's
    /// own lack of space is `disk_full`.
    refused_bytes: AtomicUsize,
    /// Why no commit succeeds until a restart. Set once.
    poison: OnceLock<String>,
    stall: AtomicU8,
    /// How often a stall began.
    pub stalls: AtomicU64,
    /// Failures of background work.
    pub background_errors: AtomicU64,
    /// Of these, damaged files found by compaction.
    pub damaged_compactions: AtomicU64,
    /// Recoveries from a full disk.
    pub recoveries: AtomicU64,
    /// Reads that found damage.
    pub corrupt_reads: AtomicU64,
}

impl Health {
    /// What the store can do.
    #[must_use]
    pub fn state(&self) -> HealthState {
        if self.poison.get().is_some() {
            HealthState::Poisoned
        } else if self.disk_full.load(Ordering::Relaxed) || self.refused_bytes.load(Ordering::Relaxed) > 0 {
            HealthState::DiskFull
        } else {
            HealthState::Healthy
        }
    }

    /// Why it is poisoned, if it is.
    #[must_use]
    pub fn poison(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// No commit from now on. The first reason is kept.
    pub fn set_poisoned(&self, reason: &str) {
        if self.poison.set(reason.to_owned()).is_ok() {
            tracing::error!(reason, "a write to the log failed: the store takes no writes until a restart");
        }
    }

    /// There is no space.
    pub fn set_disk_full(&self, reason: &str) {
        if !self.disk_full.swap(true, Ordering::Relaxed) {
            tracing::error!(reason, "the disk is full: the store takes no writes until there is space");
        }
    }

    /// Bytes of the commit that was refused for the sake of the engine's reserve, if the last one was.
    #[must_use]
    pub fn refused_bytes(&self) -> Option<usize> {
        Some(self.refused_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// A commit of so many bytes is refused for the sake of the engine's reserve; none if it would not be any more.
    pub fn set_refused_bytes(&self, bytes: Option<usize>) {
        let before = self.refused_bytes.swap(bytes.map_or(0, |bytes| bytes.max(1)), Ordering::Relaxed);
        match (before, bytes) {
            (0, Some(_)) => {
                let reason = "what is left is the engine's own";
                tracing::error!(reason, "the disk is full: the store takes no writes until there is space");
            }
            (1.., None) => tracing::info!("the disk has space again: the store takes writes"),
            (0, None) | (1.., Some(_)) => {}
        }
    }

    /// There is space, or there is again. Cheap: for every commit.
    pub fn set_space(&self) {
        if self.disk_full.load(Ordering::Relaxed) && self.disk_full.swap(false, Ordering::Relaxed) {
            tracing::info!("the disk has space again: the store takes writes");
        }
    }

    /// A compaction has found a damaged block, and will be tried again: it is logged once.
    pub fn note_damaged_compaction(&self, reason: &str) {
        if self.damaged_compactions.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(reason, "compaction found a damaged block: reads that need it fail, all else goes on");
        }
    }

    /// How far writes are held back.
    #[must_use]
    pub fn stall(&self) -> Stall {
        match self.stall.load(Ordering::Relaxed) {
            0 => Stall::None,
            1 => Stall::Delayed,
            _ => Stall::Stopped,
        }
    }

    /// Notes a change, and counts it where a stall begins.
    pub fn set_stall(&self, stall: Stall) {
        let code = match stall {
            Stall::None => 0,
            Stall::Delayed => 1,
            Stall::Stopped => 2,
        };
        if self.stall.swap(code, Ordering::Relaxed) == 0 && code != 0 {
            self.stalls.fetch_add(1, Ordering::Relaxed);
        }
    }
}
