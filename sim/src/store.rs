//! A disk: the memory store, with every commit observed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::{Key, Record, Version};
use kvorum_storage::memory::MemoryStore;
use kvorum_storage::{
    Batch, Durability, GcWatermarks, HealthState, HintChange, Page, PageLimit, Store, StoreError, StoreStats, Tier,
};

use crate::invariants::Stored;
use crate::trace::Trace;

/// What one machine's disk holds.
pub struct Disk {
    node: usize,
    inner: MemoryStore,
    stored: Arc<Mutex<Stored>>,
    trace: Arc<Trace>,
}

impl Disk {
    /// The disk of a node with this in it; what it commits is shown to `stored`.
    #[must_use]
    pub fn new(node: usize, inner: MemoryStore, stored: Arc<Mutex<Stored>>, trace: Arc<Trace>) -> Arc<Self> {
        Arc::new(Self { node, inner, stored, trace })
    }

    /// To make faults with.
    pub fn memory(&self) -> &MemoryStore {
        &self.inner
    }

    /// What is held for the key, past all caches and faults.
    pub fn held(&self, key: &Key) -> Option<Record> {
        self.inner.salvage(key).map(|bytes| Record::decode(key, bytes).expect("this disk damages nothing"))
    }
}

impl Disk {
    /// [`Mutant::ServeHint`]: the newest hint of the key, if it is newer than what is held.
    fn hinted(&self, key: &Key, held: Option<Bytes>) -> Result<Option<Bytes>, StoreError> {
        let page = self.inner.scan_hints(&[], &[0xff; 64], PageLimit { records: usize::MAX, bytes: usize::MAX })?;
        // A record's digest covers its key: no other's is taken for it.
        let hints =
            page.records.into_iter().map(|(_, bytes)| bytes).filter(|bytes| Record::decode(key, bytes.clone()).is_ok());
        Ok(held.into_iter().chain(hints).max_by_key(|bytes| Record::claimed_version(bytes)))
    }
}

impl Store for Disk {
    fn get(&self, key: &Key, tier: Tier) -> Result<Option<Bytes>, StoreError> {
        let held = self.inner.get(key, tier)?;
        Ok(if is_on(Mutant::ServeHint) { self.hinted(key, held)? } else { held })
    }

    fn salvage(&self, key: &Key) -> Option<Bytes> {
        self.inner.salvage(key)
    }

    fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: PageLimit) -> Result<Page, StoreError> {
        self.inner.scan(start, end, limit)
    }

    fn scan_unchecked(&self, start: &[u8], limit: PageLimit) -> Result<Page, StoreError> {
        self.inner.scan_unchecked(start, limit)
    }

    fn forget(&self, key: &Key) {
        self.inner.forget(key);
    }

    fn change_hints(&self, changes: &[HintChange]) -> Result<(), StoreError> {
        self.inner.change_hints(changes)
    }

    fn scan_hints(&self, start: &[u8], end: &[u8], limit: PageLimit) -> Result<Page, StoreError> {
        self.inner.scan_hints(start, end, limit)
    }

    fn gc_watermarks(&self) -> &Arc<GcWatermarks> {
        self.inner.gc_watermarks()
    }

    fn compact(&self) -> Result<(), StoreError> {
        self.inner.compact()
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        let mut before: BTreeMap<&Key, Version> = BTreeMap::new();
        for (key, _) in batch.records() {
            before.insert(key, self.held(key).map_or(Version::ZERO, |held| held.version()));
        }
        let result = self.inner.commit(batch, durability);
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, bytes) in batch.records() {
            let record = Record::decode(key, bytes.clone()).expect("what is committed was checked");
            self.trace.bytes(bytes, || format!("{} stores {key:?} {:?}: {result:?}", self.node, record.version()));
            let before = before.insert(key, record.version()).expect("each key was looked up");
            stored.note(self.node, key, before, &record);
        }
        result
    }

    fn metadata(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.metadata(name)
    }

    fn sequence(&self) -> u64 {
        self.inner.sequence()
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush()
    }

    fn health(&self) -> HealthState {
        self.inner.health()
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
}
