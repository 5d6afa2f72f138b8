//! When memtables are flushed: several together, and those of all families at once.
//!
//! A write into a memtable is mostly misses of the processor's caches, the fewer the smaller it is; tables are better
//! large. The engine merges memtables into one table (`min_write_buffer_number_to_merge`), but not where it flushes all
//! families at once by itself (`atomic_flush`). That is what lets a damaged log be recovered up to a point, which no
//! family may be beyond; the seldom written ones keep no old log alive, either. So each writer asks it for such flushes
//! (`force_atomic_flush`). Decision 0055.

use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_storage::budget::MemoryBudget;
use rocksdb::{ColumnFamily, DB, Error, FlushOptions, properties};

/// Notes when something has changed, and asks for flushes.
pub(super) struct Flushes {
    /// Bytes in memtables that are enough for a flush.
    due_from: u64,
    /// Something has changed since it was last looked.
    changed: AtomicBool,
    /// A family was flushed by itself.
    uneven: AtomicBool,
}

impl Flushes {
    pub(super) fn new(budget: MemoryBudget) -> Self {
        let [changed, uneven] = Default::default();
        // The engine takes a memtable for full somewhat below or above its size.
        let due_from = budget.table - budget.memtable() / 2;
        Self { due_from: u64::try_from(due_from).unwrap_or(u64::MAX), changed, uneven }
    }

    /// A memtable is full.
    pub(super) fn note_change(&self) {
        self.changed.store(true, Ordering::Release);
    }

    /// The engine flushed one family by itself, further than the others.
    pub(super) fn note_uneven(&self) {
        self.uneven.store(true, Ordering::Release);
        self.note_change();
    }

    /// After a write: asks for a flush if there is enough for one, or if the families are uneven. Never while there is
    /// another, behind which memtables that become full would be flushed by themselves. Does not wait for it.
    pub(super) fn begin_if_due<'a>(&self, db: &DB, families: impl FnOnce() -> [&'a ColumnFamily; 3]) {
        if !self.changed.load(Ordering::Relaxed) || !self.changed.swap(false, Ordering::Acquire) {
            return;
        }
        let families = families();
        let sum = |name| -> u64 {
            families.iter().filter_map(|family| db.property_int_value_cf(family, name).ok().flatten()).sum()
        };
        // Of the whole database.
        let running = db.property_int_value(properties::NUM_RUNNING_FLUSHES).ok().flatten().unwrap_or(0);
        if running > 0 || sum(properties::MEM_TABLE_FLUSH_PENDING) > 0 {
            // Looked at again after the next write.
            return self.note_change();
        }
        let uneven = self.uneven.swap(false, Ordering::Acquire);
        let due = uneven || sum(properties::CUR_SIZE_ALL_MEM_TABLES) >= self.due_from;
        if due && all(db, &families, false).is_err() {
            // Writes are held back. After an error of the engine's it is dropped without one: the engine's recovery
            // flushes everything.
            self.uneven.fetch_or(uneven, Ordering::Release);
            self.note_change();
        }
    }
}

/// Flushes all families up to the same write, and waits for that if it is to.
pub(super) fn all(db: &DB, families: &[&ColumnFamily; 3], wait: bool) -> Result<(), Error> {
    let mut options = FlushOptions::default();
    options.set_force_atomic_flush(true);
    options.set_wait(wait);
    // Otherwise it waits until it would hold no write back, before it begins.
    options.set_allow_write_stall(true);
    db.flush_cfs_opt(families, &options)
}
