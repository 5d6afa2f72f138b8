//! The deterministic twin: no files, threads or clocks, and faults on command.
//!
//! [`MemoryStore::crash`] is what the death of a machine and a restart do: commits that were not synced are
//! lost from the newest backwards, poison is gone, a commit whose sync failed may turn up.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use bytes::{Bytes, BytesMut};
use kvorum_base::sync::{Mutex, MutexGuard};
use kvorum_core::key::Key;
use kvorum_core::record::Record;

use super::{
    Batch, Durability, GcWatermarks, Health, HealthState, HintChange, Page, PageLimit, Store, StoreError, StoreStats,
    Tier,
};

/// What happens to the next commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// No space, until that is changed.
    DiskFull,
    /// The sync fails: the store is poisoned.
    SyncFails {
        /// Whether the commit is found after the crash.
        survives: bool,
    },
    /// Commits take until that is changed. Not for a simulator: they block.
    Hangs,
}

/// Records in memory. Share it through `Arc` to crash and restart what is built on it.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<MemoryState>,
    health: Mutex<Health>,
    gc_watermarks: Arc<GcWatermarks>,
}

#[derive(Debug, Default)]
struct MemoryState {
    visible: Contents,
    /// What each commit since the last sync replaced, oldest first.
    unsynced: Vec<Contents>,
    /// The commit whose sync failed, if it is to turn up after the crash.
    limbo: Option<Batch>,
    fault: Fault,
    cold: HashSet<Key>,
    unreadable: HashSet<Key>,
    dropped: usize,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    records: BTreeMap<Bytes, Bytes>,
    metadata: BTreeMap<String, Vec<u8>>,
    hints: BTreeMap<Bytes, Bytes>,
    sequence: u64,
}

impl MemoryState {
    fn is_unreadable(&self, key: &[u8]) -> bool {
        self.unreadable.iter().any(|unreadable| unreadable.as_bytes() == key)
    }
}

impl Contents {
    fn apply(&mut self, batch: &Batch) {
        for (key, record) in batch.records() {
            // Copies, as a file has: the caller need not keep them.
            self.records.insert(Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(record));
            self.sequence += 1;
        }
        for (name, value) in batch.metadata() {
            self.metadata.insert((*name).to_owned(), value.clone());
            self.sequence += 1;
        }
    }

    fn change_hint(&mut self, change: &HintChange) {
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        match change {
            HintChange::Put(name, bytes) => _ = self.hints.insert(own(name), own(bytes)),
            HintChange::Keep(name, record) => {
                let kept = self.hints.entry(own(name)).or_default();
                if Record::claimed_version(kept) <= Record::claimed_version(record) {
                    *kept = own(record);
                }
            }
            HintChange::Drop(range) => self.hints.retain(|name, _| !range.contains(name)),
        }
    }
}

impl MemoryStore {
    /// What happens to the commits from now on. [`Fault::None`] makes space again, and repairs no poison.
    pub fn set_fault(&self, fault: Fault) {
        self.state().fault = fault;
        match fault {
            Fault::DiskFull => self.health().set_disk_full("set to be full"),
            _ => self.health().set_space(),
        }
    }

    /// The machine dies and starts again: of the commits that were not synced, the oldest `kept` survive.
    pub fn crash(&self, kept: usize) {
        let mut state = self.state();
        let limbo = state.limbo.take();
        match (state.unsynced.get(kept).cloned(), limbo) {
            // The log ends where it ends: what comes after a lost commit is lost too.
            (Some(before), _) => state.visible = before,
            (None, Some(batch)) => state.visible.apply(&batch),
            (None, None) => {}
        }
        state.unsynced.clear();
        state.fault = Fault::None;
        *self.health() = Health::default();
        // A restart loads what is durable of them.
        self.gc_watermarks.clear();
    }

    /// What a backup taken now would have: all that is synced.
    #[must_use]
    pub fn backup(&self) -> Self {
        let state = self.state();
        let visible = state.unsynced.first().unwrap_or(&state.visible).clone();
        Self { state: Mutex::new(MemoryState { visible, ..MemoryState::default() }), ..Self::default() }
    }

    /// Makes the key need the disk until it is read from there.
    pub fn make_cold(&self, key: &Key) {
        self.state().cold.insert(key.clone());
    }

    /// Flips bits of the stored record at `index`, counted from its end; whether there was such a byte.
    pub fn corrupt(&self, key: &Key, index: usize) -> bool {
        let mut state = self.state();
        let Some(record) = state.visible.records.get_mut(key.as_bytes()) else { return false };
        let mut bytes = BytesMut::from(record.as_ref());
        let Some(byte) = bytes.iter_mut().rev().nth(index) else { return false };
        *byte ^= 0x10;
        *record = bytes.freeze();
        true
    }

    /// Makes reads of the key fail as those of a damaged block do, until it is written again.
    pub fn make_unreadable(&self, key: &Key) {
        self.state().unreadable.insert(key.clone());
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &Key, tier: Tier) -> Result<Option<Bytes>, StoreError> {
        let mut state = self.state();
        if tier == Tier::Cache && state.cold.contains(key) {
            return Err(StoreError::NeedsDisk);
        }
        state.cold.remove(key);
        if state.unreadable.contains(key) {
            return Err(StoreError::Corrupt("set to be".to_owned()));
        }
        Ok(state.visible.records.get(key.as_bytes()).cloned())
    }

    fn salvage(&self, key: &Key) -> Option<Bytes> {
        self.state().visible.records.get(key.as_bytes()).cloned()
    }

    fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: PageLimit) -> Result<Page, StoreError> {
        if end.is_some_and(|end| start >= end) {
            return Ok(Page::default());
        }
        let state = self.state();
        let page = page(&state.visible.records, start, end, limit);
        if page.records.iter().any(|(key, _)| state.is_unreadable(key)) {
            return Err(StoreError::Corrupt("set to be".to_owned()));
        }
        Ok(page)
    }

    fn scan_unchecked(&self, start: &[u8], limit: PageLimit) -> Result<Page, StoreError> {
        Ok(page(&self.state().visible.records, start, None, limit))
    }

    fn forget(&self, _: &Key) {}

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        while self.state().fault == Fault::Hangs {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let mut state = self.state();
        let health = self.health();
        if let Some(reason) = health.poison() {
            return Err(StoreError::Poisoned(reason.to_owned()));
        }
        match state.fault {
            Fault::DiskFull => return Err(StoreError::DiskFull),
            Fault::SyncFails { survives } => {
                health.set_poisoned("set to fail");
                state.limbo = survives.then(|| batch.clone());
                return Err(StoreError::Poisoned("set to fail".to_owned()));
            }
            Fault::None | Fault::Hangs => {}
        }
        match durability {
            Durability::Fsync => state.unsynced.clear(),
            Durability::Os => {
                let before = state.visible.clone();
                state.unsynced.push(before);
            }
        }
        state.visible.apply(batch);
        for (key, _) in batch.records() {
            state.cold.remove(key);
            state.unreadable.remove(key);
        }
        Ok(())
    }

    fn change_hints(&self, changes: &[HintChange]) -> Result<(), StoreError> {
        let mut state = self.state();
        if let Some(reason) = self.health().poison() {
            return Err(StoreError::Poisoned(reason.to_owned()));
        }
        if state.fault == Fault::DiskFull {
            return Err(StoreError::DiskFull);
        }
        let before = state.visible.clone();
        state.unsynced.push(before);
        changes.iter().for_each(|change| state.visible.change_hint(change));
        Ok(())
    }

    fn scan_hints(&self, start: &[u8], end: &[u8], limit: PageLimit) -> Result<Page, StoreError> {
        if start >= end {
            return Ok(Page::default());
        }
        Ok(page(&self.state().visible.hints, start, Some(end), limit))
    }

    fn metadata(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state().visible.metadata.get(name).cloned())
    }

    fn gc_watermarks(&self) -> &Arc<GcWatermarks> {
        &self.gc_watermarks
    }

    fn compact(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        let before = state.visible.records.len();
        state.visible.records.retain(|key, record| !self.gc_watermarks.may_drop(key, record));
        state.dropped += before - state.visible.records.len();
        Ok(())
    }

    fn sequence(&self) -> u64 {
        self.state().visible.sequence
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.state().unsynced.clear();
        Ok(())
    }

    fn health(&self) -> HealthState {
        self.health().state()
    }

    fn stats(&self) -> StoreStats {
        let state = self.state();
        let records = u64::try_from(state.visible.records.len()).unwrap_or(u64::MAX);
        let dropped = u64::try_from(state.dropped).unwrap_or(u64::MAX);
        StoreStats { records, dropped, ..StoreStats::default() }
    }
}

fn page(records: &BTreeMap<Bytes, Bytes>, start: &[u8], end: Option<&[u8]>, limit: PageLimit) -> Page {
    let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
    let mut page = Page::default();
    let mut bytes = 0;
    for (key, record) in records.range::<[u8], _>((Bound::Included(start), upper)) {
        if page.records.len() >= limit.records.max(1) || (bytes >= limit.bytes && !page.records.is_empty()) {
            page.more = true;
            break;
        }
        bytes += key.len() + record.len();
        page.records.push((key.clone(), record.clone()));
    }
    page
}
