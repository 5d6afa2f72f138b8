//! What scans over the cluster take of a node: memory where they are coordinated, the disk where they read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::scan_pace::ScanPace;

/// What scans may take of a node.
#[derive(Clone, Copy, Debug)]
pub struct ScanSettings {
    /// Bytes that scans through this node hold.
    pub memory_bytes: usize,
    /// About how many bytes a node looks at for one page.
    pub page_bytes: usize,
    /// Bytes a second that this node reads for scans; none: no limit.
    pub rate: Option<u64>,
}

/// What scans take, on all shards of a node.
#[derive(Debug)]
pub struct ScanBudget {
    used: AtomicUsize,
    bytes_max: usize,
    pub(super) page_bytes: usize,
    pub(super) pace: Option<ScanPace>,
}

impl ScanBudget {
    /// Nothing is taken.
    #[must_use]
    pub fn new(settings: ScanSettings) -> Arc<Self> {
        let ScanSettings { memory_bytes, page_bytes, rate } = settings;
        let pace = rate.map(ScanPace::new);
        Arc::new(Self { used: AtomicUsize::new(0), bytes_max: memory_bytes, page_bytes, pace })
    }

    pub(super) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        self.has_room(bytes).then(|| Reservation { budget: Arc::clone(self), bytes })
    }

    /// Takes so many, if they are there.
    fn has_room(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Bytes that are reserved now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// Bytes of one scan, until it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<ScanBudget>,
    bytes: usize,
}

impl Reservation {
    /// At least so many; whether there was room.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let has_room = more == 0 || self.budget.has_room(more);
        self.bytes += if has_room { more } else { 0 };
        has_room
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
