//! The store over RocksDB: records in the default column family, the node's own values in `metadata`, hints in
//! `hints`.
//!
//! Errors are distinguished by the prefix of their message: the crate passes no subcodes on, but RocksDB puts the
//! subcode's text directly after the code's, before anything of the environment's (`util/status.cc`).

pub mod backup;
mod debt;
mod engine_share;
mod engine_waits;
mod error;
mod flushes;
mod listener;
pub mod log_zeros;
pub mod options;
pub mod reaper;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use kvorum_base::cpu_share::CpuShare;
use kvorum_base::histogram::Histogram;
use kvorum_base::sync::{Mutex, MutexGuard};
use kvorum_core::backpressure::Backpressure;
use kvorum_core::key::Key;
use kvorum_storage::budget::MemoryBudget;
use kvorum_storage::data_dir::{DataDir, DataDirError, LogState, SyncMarker};
use kvorum_storage::record_cache::{Lookup, RecordCache};
use kvorum_storage::{
    Batch, Durability, GcWatermarks, Health, HealthState, HintChange, Page, PageLimit, Stall, Store, StoreError,
    StoreStats, Tier,
};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::compaction_filter::Decision;
use rocksdb::statistics::Ticker;
use rocksdb::{
    BottommostLevelCompaction, Cache, ColumnFamily, ColumnFamilyDescriptor, CompactOptions, DB, ErrorKind, Options,
    ReadOptions, ReadTier, WriteBatch, WriteOptions, properties,
};

use crate::debt::{Lately, StoreDebt};
use crate::engine_share::EngineShare;
use crate::engine_waits::noted;
use crate::error::classify;
use crate::flushes::Flushes;
use crate::listener::EngineListener;
use crate::log_zeros::LogZeros;

const DEFAULT: &str = "default";
const METADATA: &str = "metadata";
const HINTS: &str = "hints";
/// Space that commits leave on the disk.
const SPACE_RESERVED: u64 = 4 << 20;
/// Space that hints leave to commits besides.
const SPACE_BEYOND_HINTS: usize = 64 << 20;
/// How often it is looked again whether writes are held back, where that changes meanwhile.
const STALL_LOOKS: usize = 3;
/// The largest commit whose memory, at most twice of it, is kept for the next: many times what small values fill.
const WRITES_KEPT_MAX: usize = 256 << 10;

/// RocksDB in one directory. Dropping it closes it without a flush: the log has everything.
pub struct RocksStore {
    db: DB,
    /// Keeps the statistics reachable.
    options: Options,
    cache: Cache,
    records: RecordCache,
    health: Arc<Health>,
    share: Arc<EngineShare>,
    /// What a flush writes.
    table_bytes: u64,
    lately: Mutex<Lately>,
    flushes: Arc<Flushes>,
    read_cache: ReadOptions,
    read_disk: ReadOptions,
    read_unchecked: ReadOptions,
    synced: WriteOptions,
    unsynced: WriteOptions,
    /// For hints: not synced, and refused where writes are held back.
    patient: WriteOptions,
    /// The last sequence number of the last commit, or of what was recovered. The engine's own may be that of a
    /// hint that is not synced.
    committed: AtomicU64,
    /// The engine's batch of the last commit, emptied by the next.
    writes: Mutex<Option<WriteBatch>>,
    marker: Option<SyncMarker>,
    zeros: Arc<LogZeros>,
    path: PathBuf,
    commit_micros: Arc<Histogram>,
    gc_watermarks: Arc<GcWatermarks>,
    dropped: Arc<AtomicU64>,
}

/// Why a node's store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The engine's files.
    #[error(
        "cannot open the store in {path}: {source}. If its files are damaged, move the whole data directory away: \
         the node then starts empty and counts for no quorum until it is rebuilt"
    )]
    Store {
        /// Where.
        path: PathBuf,
        /// What.
        source: StoreError,
    },
    /// The files beside it.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
}

impl RocksStore {
    /// Opens the store of a data directory. If its log was recovered less far than it had been synced, the
    /// directory is durably marked as rebuilding first, and the loss is returned. Blocks.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_in(directory: &DataDir, budget: MemoryBudget, share: CpuShare) -> Result<(Self, LogState), OpenError> {
        let path = directory.store_path();
        let mut result = Self::open(&path, budget, share.clone());
        // Killed in the middle of its first start, the engine leaves what it then calls corrupt. Nothing was
        // ever committed, so nothing is lost by starting over.
        if matches!(result, Err(StoreError::Corrupt(_))) && directory.sync_marker(0)?.1 == LogState::Whole {
            std::fs::remove_dir_all(&path).map_err(|source| DataDirError::Io {
                action: "clear",
                path: path.clone(),
                source,
            })?;
            result = Self::open(&path, budget, share);
        }
        let mut store = result.map_err(|source| OpenError::Store { path, source })?;
        let (marker, log) = directory.sync_marker(store.sequence())?;
        if let Some(loss) = log.loss() {
            directory.set_rebuilding(&loss)?;
        }
        store.mark(&marker);
        store.marker = Some(marker);
        Ok((store, log))
    }

    /// Notes how far the log is durable. A marker that lags behind costs a check, so a failure is no error.
    fn mark(&self, marker: &SyncMarker) {
        let _ = marker.write(self.committed.load(Ordering::Acquire));
    }

    /// Microseconds of each commit: log write, sync, and the engine's own waiting.
    #[must_use]
    pub fn commit_micros(&self) -> Arc<Histogram> {
        Arc::clone(&self.commit_micros)
    }

    /// Opens or creates the database in `path` and replays its log up to the first record that is damaged or
    /// missing. Blocks, for seconds after a crash.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Corrupt`] where no prefix of the log makes sense, or
    /// [`StoreError::Io`].
    pub fn open(path: &Path, budget: MemoryBudget, share: CpuShare) -> Result<Self, StoreError> {
        let (mut options, cache) = options::database(budget);
        let health = Arc::new(Health::default());
        let share = Arc::new(EngineShare::new(share, Arc::clone(&health), budget.merged()));
        let flushes = Arc::new(Flushes::new(budget));
        let zeros = Arc::new(LogZeros::new(path));
        options.add_event_listener(EngineListener {
            health: Arc::clone(&health),
            share: Arc::clone(&share),
            flushes: Arc::clone(&flushes),
            zeros: Arc::clone(&zeros),
        });
        let (gc_watermarks, dropped): (Arc<GcWatermarks>, Arc<AtomicU64>) = Default::default();
        let mut records = options.clone();
        drop_proven(&mut records, Arc::clone(&gc_watermarks), Arc::clone(&dropped));
        let families = [
            ColumnFamilyDescriptor::new(DEFAULT, records),
            ColumnFamilyDescriptor::new(METADATA, options::metadata(budget, &cache)),
            ColumnFamilyDescriptor::new(HINTS, options::hints(budget, &cache)),
        ];
        log_zeros::cut(path).map_err(|error| StoreError::Io(error.to_string()))?;
        let db = DB::open_cf_descriptors(&options, path, families).map_err(|error| classify(&error))?;
        let mut read_cache = ReadOptions::default();
        read_cache.set_read_tier(ReadTier::BlockCache);
        let mut read_unchecked = ReadOptions::default();
        read_unchecked.set_verify_checksums(false);
        read_unchecked.fill_cache(false);
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let mut patient = WriteOptions::default();
        patient.set_no_slowdown(true);
        let store = Self {
            committed: AtomicU64::new(db.latest_sequence_number()),
            db,
            options,
            cache,
            records: RecordCache::new(budget.records),
            health,
            share,
            table_bytes: u64::try_from(budget.table).unwrap_or(u64::MAX),
            lately: Mutex::default(),
            flushes,
            read_cache,
            read_disk: ReadOptions::default(),
            read_unchecked,
            synced,
            unsynced: WriteOptions::default(),
            patient,
            writes: Mutex::default(),
            marker: None,
            zeros,
            path: path.to_owned(),
            commit_micros: Arc::default(),
            gc_watermarks,
            dropped,
        };
        for family in [DEFAULT, HINTS] {
            options::shrink_memtables(&store.db, store.family(family), budget);
        }
        store.note_stall();
        Ok(store)
    }

    /// Notes how far writes are held back: the engine reports changes alone, for each family, and not always in their
    /// order. One that comes meanwhile is seen by looking again.
    fn note_stall(&self) {
        let look = || match (
            self.property(properties::IS_WRITE_STOPPED),
            self.property(properties::ACTUAL_DELAYED_WRITE_RATE),
        ) {
            (0, 0) => Stall::None,
            (0, _) => Stall::Delayed,
            _ => Stall::Stopped,
        };
        for _ in 0..STALL_LOOKS {
            let stall = look();
            if stall == self.health.stall() {
                return;
            }
            self.health.set_stall(stall);
        }
    }

    /// Makes everything durable that was committed, whatever was asked for. Blocks.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn sync_log(&self) -> Result<(), StoreError> {
        self.refuse_if_poisoned()?;
        noted("sync log", || self.db.flush_wal(true)).map_err(|error| self.write_error(&error))
    }

    /// Writes a snapshot of everything committed so far into `path`, which must not exist: table files as hard
    /// links. Writes go on meanwhile. Blocks.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Corrupt`] or [`StoreError::Io`].
    pub fn checkpoint(&self, path: &Path) -> Result<(), StoreError> {
        // It begins a new log, too.
        if !self.has_space(0) {
            return Err(StoreError::DiskFull);
        }
        let checkpoint = Checkpoint::new(&self.db);
        let made = self.share.waited_for(|| checkpoint.and_then(|checkpoint| checkpoint.create_checkpoint(path)));
        made.map_err(|error| classify(&error))
    }

    /// Gives up compactions and flushes, and fails what waits for them. For the end: there is no way back.
    pub fn cancel_background_work(&self) {
        self.db.cancel_all_background_work(false);
    }

    #[track_caller]
    fn kept_writes(&self) -> MutexGuard<'_, Option<WriteBatch>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn family(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("the family is created when the database is opened")
    }

    fn families(&self) -> [&ColumnFamily; 3] {
        [DEFAULT, METADATA, HINTS].map(|name| self.family(name))
    }

    /// What a failed read was, counted.
    fn read_error(&self, error: &rocksdb::Error) -> StoreError {
        let error = classify(error);
        if matches!(error, StoreError::Corrupt(_)) {
            self.health.corrupt_reads.fetch_add(1, Ordering::Relaxed);
        }
        error
    }

    /// What a failed write was. Whatever is not a lack of space is final: the engine may have written half
    /// of it, and nothing after it would be found by a recovery.
    fn write_error(&self, error: &rocksdb::Error) -> StoreError {
        if let StoreError::DiskFull = classify(error) {
            self.health.set_disk_full(error.as_ref());
            return StoreError::DiskFull;
        }
        // A write that waited for compaction when the node gave that up: nothing was written.
        if error.kind() == ErrorKind::ShutdownInProgress {
            return StoreError::Io(error.as_ref().to_owned());
        }
        self.health.set_poisoned(error.as_ref());
        StoreError::Poisoned(error.as_ref().to_owned())
    }

    /// Whether the disk has room for `bytes` in the log and a new log after it. The engine survives a full disk in
    /// every place but one: at the begin of a new log, it then takes no writes until a restart. So the last of the
    /// space is left to it.
    fn has_space(&self, bytes: usize) -> bool {
        let needed = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(SPACE_RESERVED);
        // Where that cannot be read, the write itself shows it.
        rustix::fs::statvfs(&self.path).map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= needed)
    }

    fn refuse_if_poisoned(&self) -> Result<(), StoreError> {
        self.health.poison().map_or(Ok(()), |reason| Err(StoreError::Poisoned(reason.to_owned())))
    }

    fn page(
        &self,
        family: &str,
        mut options: ReadOptions,
        start: &[u8],
        end: Option<&[u8]>,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        options.fill_cache(false);
        if let Some(end) = end {
            if start >= end {
                return Ok(Page::default());
            }
            options.set_iterate_upper_bound(end);
        }
        let mut iterator = self.db.raw_iterator_cf_opt(self.family(family), options);
        iterator.seek(start);
        let mut page = Page::default();
        let mut bytes = 0;
        while let Some((key, record)) = iterator.item() {
            if page.records.len() >= limit.records.max(1) || (bytes >= limit.bytes && !page.records.is_empty()) {
                page.more = true;
                return Ok(page);
            }
            bytes += key.len() + record.len();
            page.records.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(record)));
            iterator.next();
        }
        iterator.status().map_err(|error| self.read_error(&error))?;
        Ok(page)
    }

    fn level0_files(&self) -> u64 {
        let files = self.db.property_value(properties::num_files_at_level(0)).ok().flatten();
        files.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn property(&self, name: &properties::PropName) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or(0)
    }
}

impl Store for RocksStore {
    fn get(&self, key: &Key, tier: Tier) -> Result<Option<Bytes>, StoreError> {
        let moment = match self.records.get(key) {
            Lookup::Hit(record) => return Ok(Some(record)),
            Lookup::Miss(moment) => moment,
        };
        let options = match tier {
            Tier::Cache => &self.read_cache,
            Tier::Disk => &self.read_disk,
        };
        let found = noted("get", || self.db.get_pinned_opt(key.as_bytes(), options));
        let found = found.map_err(|error| self.read_error(&error))?;
        let Some(found) = found else { return Ok(None) };
        let record = Bytes::copy_from_slice(&found);
        self.records.keep(key, &record, moment);
        Ok(Some(record))
    }

    fn salvage(&self, key: &Key) -> Option<Bytes> {
        let found = self.db.get_pinned_opt(key.as_bytes(), &self.read_unchecked).ok().flatten()?;
        Some(Bytes::copy_from_slice(&found))
    }

    fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: PageLimit) -> Result<Page, StoreError> {
        noted("scan", || self.page(DEFAULT, ReadOptions::default(), start, end, limit))
    }

    fn scan_unchecked(&self, start: &[u8], limit: PageLimit) -> Result<Page, StoreError> {
        let mut options = ReadOptions::default();
        options.set_verify_checksums(false);
        noted("scan", || self.page(DEFAULT, options, start, None, limit))
    }

    fn forget(&self, key: &Key) {
        self.records.forget(key);
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        self.refuse_if_poisoned()?;
        if !self.has_space(batch.bytes()) {
            self.health.set_refused_bytes(Some(batch.bytes()));
            return Err(StoreError::DiskFull);
        }
        let size = batch.bytes() + 16 * batch.records().len() + 64;
        let is_kept = size <= WRITES_KEPT_MAX;
        // What is large is made in one piece: to grow copies it.
        let kept = self.kept_writes().take().filter(|_| is_kept);
        let mut writes = kept.unwrap_or_else(|| WriteBatch::with_capacity_bytes(size));
        writes.clear();
        for (key, record) in batch.records() {
            writes.put(key.as_bytes(), record);
        }
        for (name, value) in batch.metadata() {
            writes.put_cf(self.family(METADATA), name, value);
        }
        let options = match durability {
            Durability::Fsync => &self.synced,
            Durability::Os => &self.unsynced,
        };
        // Whatever was written before is in the log before it, and is synced with it.
        let before = self.db.latest_sequence_number();
        let begin = Instant::now();
        let keys = || batch.records().iter().map(|(key, _)| key);
        self.records.begin_changes(keys());
        let written = noted("commit", || self.db.write_opt(&writes, options));
        self.records.end_changes(keys());
        written.map_err(|error| self.write_error(&error))?;
        self.commit_micros.record(u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX));
        self.health.set_space();
        self.health.set_refused_bytes(None);
        let count = u64::try_from(batch.records().len() + batch.metadata().len()).unwrap_or(0);
        self.committed.fetch_max(before + count, Ordering::AcqRel);
        if let Some(marker) = &self.marker {
            self.mark(marker);
        }
        if durability == Durability::Fsync {
            self.zeros.note_synced(writes.size_in_bytes());
        }
        if is_kept {
            *self.kept_writes() = Some(writes);
        }
        self.flushes.begin_if_due(&self.db, || self.families());
        Ok(())
    }

    fn change_hints(&self, changes: &[HintChange]) -> Result<(), StoreError> {
        self.refuse_if_poisoned()?;
        let bytes = changes.iter().map(HintChange::bytes).sum::<usize>();
        let is_drop = |change: &HintChange| matches!(change, HintChange::Drop(_));
        let reserve = if changes.iter().all(is_drop) { 0 } else { SPACE_BEYOND_HINTS };
        if !self.has_space(bytes + reserve) {
            return Err(StoreError::DiskFull);
        }
        let family = self.family(HINTS);
        let mut writes = WriteBatch::with_capacity_bytes(bytes + 16 * changes.len() + 64);
        for change in changes {
            match change {
                HintChange::Keep(name, record) => writes.merge_cf(family, name, record),
                HintChange::Put(name, bytes) => writes.put_cf(family, name, bytes),
                HintChange::Drop(range) => writes.delete_range_cf(family, &range.start, &range.end),
            }
        }
        let written = noted("change hints", || self.db.write_opt(&writes, &self.patient));
        self.zeros.note_written(writes.size_in_bytes());
        if written.is_ok() {
            self.flushes.begin_if_due(&self.db, || self.families());
        }
        match written {
            Err(error) if error.kind() == ErrorKind::Incomplete => Err(StoreError::Busy),
            written => written.map_err(|error| self.write_error(&error)),
        }
    }

    fn scan_hints(&self, start: &[u8], end: &[u8], limit: PageLimit) -> Result<Page, StoreError> {
        noted("scan hints", || self.page(HINTS, ReadOptions::default(), start, Some(end), limit))
    }

    fn metadata(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.db.get_cf(self.family(METADATA), name).map_err(|error| self.read_error(&error))
    }

    fn gc_watermarks(&self) -> &Arc<GcWatermarks> {
        &self.gc_watermarks
    }

    fn compact(&self) -> Result<(), StoreError> {
        let mut options = CompactOptions::default();
        // The last level too: most of what was deleted lies there.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.share.waited_for(|| self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options));
        self.refuse_if_poisoned()
    }

    fn sequence(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.sync_log()?;
        // The log still has everything: a failed flush is the engine's to retry, and poisons nothing.
        self.share.waited_for(|| flushes::all(&self.db, &self.families(), true)).map_err(|error| classify(&error))
    }

    fn health(&self) -> HealthState {
        // The reserve is not the engine's, so only this shows when there is space beyond it again. The engine itself
        // reports when it has recovered from its own errors.
        if self.health.refused_bytes().is_some_and(|bytes| self.has_space(bytes)) {
            self.health.set_refused_bytes(None);
        }
        self.health.state()
    }

    fn backpressure(&self) -> Backpressure {
        self.note_stall();
        let debt = StoreDebt {
            level0_files: self.level0_files(),
            pending_bytes: self.property(properties::ESTIMATE_PENDING_COMPACTION_BYTES),
            table_bytes: self.table_bytes,
            is_stopped: self.health.stall() == Stall::Stopped,
        };
        self.share.set_compaction_percent(debt.compaction_percent());
        self.lately.lock().unwrap_or_else(PoisonError::into_inner).note(debt)
    }

    fn stats(&self) -> StoreStats {
        let count = |ticker| self.options.get_ticker_count(ticker);
        let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let waiting =
            |family| self.db.property_int_value_cf(family, properties::NUM_IMMUTABLE_MEM_TABLE).ok().flatten();
        let health = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            compaction_pending_bytes: self.property(properties::ESTIMATE_PENDING_COMPACTION_BYTES),
            level0_files: self.level0_files(),
            memtable_bytes: self.property(properties::SIZE_ALL_MEM_TABLES),
            memtables_waiting: self.families().into_iter().filter_map(waiting).sum(),
            flushed_bytes: count(Ticker::FlushWriteBytes),
            compacted_bytes: count(Ticker::CompactWriteBytes),
            written_bytes: count(Ticker::BytesWritten),
            table_bytes: self.property(properties::LIVE_SST_FILES_SIZE),
            records: self.property(properties::ESTIMATE_NUM_KEYS),
            cache_capacity_bytes: bytes(self.cache.get_capacity()),
            cache_used_bytes: bytes(self.cache.get_usage()),
            record_cache_used_bytes: self.records.used_bytes(),
            cache_hits: count(Ticker::BlockCacheHit),
            cache_misses: count(Ticker::BlockCacheMiss),
            block_reads: count(Ticker::BlockCacheAdd),
            stall: self.health.stall(),
            stalls: health(&self.health.stalls),
            stall_micros: count(Ticker::StallMicros),
            background_errors: health(&self.health.background_errors),
            damaged_compactions: health(&self.health.damaged_compactions),
            recoveries: health(&self.health.recoveries),
            corrupt_reads: health(&self.health.corrupt_reads),
            dropped: health(&self.dropped),
        }
    }
}

/// Has compactions drop the deletions that [`GcWatermarks::may_drop`] allows, and count them.
fn drop_proven(records: &mut Options, proven: Arc<GcWatermarks>, drops: Arc<AtomicU64>) {
    // Called by several threads at once; it only reads atomics and counts in one.
    records.set_compaction_filter("kvorum.gc_watermarks", move |_, key: &[u8], record: &[u8]| {
        if proven.may_drop(key, record) {
            drops.fetch_add(1, Ordering::Relaxed);
            Decision::Remove
        } else {
            Decision::Keep
        }
    });
}
