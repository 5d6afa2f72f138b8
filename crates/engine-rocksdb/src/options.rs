//! RocksDB's settings, all of whose memory follows from one number.

use kvorum_core::record::Record;
use kvorum_storage::budget::MemoryBudget;
use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, DB, DBCompressionType, DBRecoveryMode, DataBlockIndexType, LogLevel,
    Options, SstFileManager, WriteBufferManager,
};

use super::{debt, engine_share};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// `PrepopulateBlockCache::kFlushAndCompaction` in the engine's `table.h`: the cache gets the blocks of every new
/// table, those of a compaction as the first to go (decision 0045).
const FLUSHED_AND_COMPACTED: i32 = 2;
/// What a flush or compaction writes at a time, where one block is no longer. A write copies into the page cache
/// without giving the processor away meanwhile, and where a virtual machine's host has first to find the memory, that
/// is 9 µs a page (decision 0048).
const WRITE_BYTES: u64 = 16 * KIB as u64;

/// Files in level 0 from which on the engine itself holds writes back.
pub(super) const SLOWDOWN_FILES: u64 = 48;

/// The options of a database with its records in the default column family, and the cache to ask for usage.
pub(super) fn database(budget: MemoryBudget) -> (Options, Cache) {
    let cache = Cache::new_hyper_clock_cache(budget.cache, 0);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    memory(&mut options, budget, &cache);
    logs(&mut options, budget);
    levels(&mut options, budget);
    let mut records = blocks(&cache);
    records.set_prepopulate_block_cache(FLUSHED_AND_COMPACTED);
    options.set_block_based_table_factory(&records);
    options.set_prefix_extractor(engine_share::extractor());
    // One thread for flushes, one for compactions: that no two flushes are under way is relied upon (`flushes.rs`).
    options.set_max_background_jobs(2);
    options.set_writable_file_max_buffer_size(WRITE_BYTES);
    // Explicit, so that the engine's own recovery from a full disk has what it polls free space with.
    options.set_sst_file_manager(&SstFileManager::new());
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    (options, cache)
}

/// The options of the few named values of the node's own.
pub(super) fn metadata(budget: MemoryBudget, cache: &Cache) -> Options {
    let mut options = Options::default();
    memtables(&mut options, budget, MIB);
    options.set_block_based_table_factory(&blocks(cache));
    never_holds_writes_back(&mut options);
    options
}

/// The options of the hints: many are written, few are read, and all of them go.
pub(super) fn hints(budget: MemoryBudget, cache: &Cache) -> Options {
    let mut options = Options::default();
    memtables(&mut options, budget, budget.table);
    never_holds_writes_back(&mut options);
    options.set_prefix_extractor(engine_share::extractor());
    options.set_target_file_size_base(u64::try_from(budget.table).unwrap_or(u64::MAX));
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_block_based_table_factory(&blocks(cache));
    // What was delivered is dropped as ranges, after which nothing may be written that would have them compacted.
    options.set_ttl(3600);
    // Of two versions kept under one name the newer stays, in whichever order they came, without a look.
    options.set_merge_operator_associative("newest", |_, kept, more| newest(kept, more.iter()).map(<[u8]>::to_vec));
    options
}

/// Flushes are of all families, and one compaction at a time is of any: while a long one is of the records, the
/// others get a file in level 0 for each flush, by which the engine would hold back all writes. Only the records' files
/// are a measure of that (decision 0046).
fn never_holds_writes_back(options: &mut Options) {
    options.set_level_zero_slowdown_writes_trigger(i32::MAX);
    options.set_level_zero_stop_writes_trigger(i32::MAX);
}

/// Those of one family, of `size` bytes each while the log is replayed, when each that is full becomes a table: those
/// of records and hints are as large then as several together are afterwards ([`shrink_memtables`]).
fn memtables(options: &mut Options, budget: MemoryBudget, size: usize) {
    // Twice what the budget holds, so that a slow flush stalls writes late.
    let most = i32::try_from(8 * budget.merged()).unwrap_or(i32::MAX);
    options.set_write_buffer_size(size);
    // What the engine would choose for the size that they have afterwards.
    options.set_arena_block_size((size.min(budget.memtable()) / 8).min(MIB));
    options.set_max_write_buffer_number(most);
    // By itself the engine flushes only what would stall writes: otherwise it is asked to (`flushes.rs`).
    options.set_min_write_buffer_number_to_merge(most - 1);
}

/// The log has been replayed: from now on memtables of the family, records or hints, are flushed together.
pub(super) fn shrink_memtables(db: &DB, family: &ColumnFamily, budget: MemoryBudget) {
    if budget.merged() == 1 {
        return;
    }
    // The engine writes its options into a file then, for which a full disk may have no room. Nothing reads it.
    if let Err(error) = db.set_options_cf(family, &[("write_buffer_size", &budget.memtable().to_string())]) {
        tracing::warn!(%error, "the engine's options were not changed, or not written down");
    }
}

fn newest<'a>(kept: Option<&'a [u8]>, more: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    kept.into_iter().chain(more).max_by_key(|record| Record::claimed_version(record))
}

fn memory(options: &mut Options, budget: MemoryBudget, cache: &Cache) {
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        budget.write_buffers,
        false,
        cache.clone(),
    ));
    memtables(options, budget, budget.table);
    options.set_memtable_prefix_bloom_ratio(0.02);
    options.set_memtable_whole_key_filtering(true);
    options.set_max_open_files(512);
    // For each file that a compaction reads, and charged to nothing.
    options.set_compaction_readahead_size((budget.cache / 256).clamp(128 * KIB, 2 * MIB));
}

fn logs(options: &mut Options, budget: MemoryBudget) {
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    // A log that vanished or was cut between two others ends the recovery there, where the sync marker
    // notices it, instead of leaving a hole.
    options.set_track_and_verify_wals(true);
    options.set_max_total_wal_size(u64::try_from(budget.write_buffers).unwrap_or(u64::MAX));
    options.set_max_manifest_file_size(16 * MIB);
    options.set_log_level(LogLevel::Info);
    options.set_max_log_file_size(4 * MIB);
    options.set_keep_log_file_num(4);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_avoid_unnecessary_blocking_io(true);
    options.set_skip_stats_update_on_db_open(true);
}

fn levels(options: &mut Options, budget: MemoryBudget) {
    let table = u64::try_from(budget.table).unwrap_or(u64::MAX);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_target_file_size_base(table);
    options.set_max_bytes_for_level_base(table.saturating_mul(8));
    // Filters keep many unmerged files cheap to read past: let them pile up before writes are held back.
    options.set_level_zero_file_num_compaction_trigger(i32::from(debt::TABLES));
    options.set_level_zero_slowdown_writes_trigger(i32::try_from(SLOWDOWN_FILES).unwrap_or(i32::MAX));
    options.set_level_zero_stop_writes_trigger(96);
    options.set_bytes_per_sync(1 << 20);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_bottommost_compression_type(DBCompressionType::Zstd);
    // Window bits and strategy by default, level 1, dictionaries of 16 KiB put together from 1 MiB: to train them took
    // up to half of what a compaction costs, and they were no better (decision 0037).
    options.set_bottommost_compression_options(-14, 1, 0, 16 << 10, true);
    options.set_bottommost_zstd_max_train_bytes(1 << 20, true);
    options.set_bottommost_compression_options_use_zstd_dict_trainer(false, true);
    // Blocks held back until the dictionary is made: else a whole file of them.
    options.set_bottommost_compression_options_max_dict_buffer_bytes(2 << 20, true);
}

fn blocks(cache: &Cache) -> BlockBasedOptions {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_block_size(8 * KIB);
    blocks.set_format_version(6);
    // Bloom where files are short-lived, ribbon (a third smaller, slower to build) below.
    blocks.set_hybrid_ribbon_filter(10.0, 1);
    blocks.set_optimize_filters_for_memory(true);
    blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_pin_top_level_index_and_filter(true);
    blocks
}
