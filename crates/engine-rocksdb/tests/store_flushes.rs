//! When memtables are flushed, and that no family is flushed further than another for long.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod store_files;

use std::path::Path;
use std::time::{Duration, Instant};

use kvorum_base::cpu_share::CpuShare;
use kvorum_engine_rocksdb::RocksStore;
use kvorum_storage::budget::MemoryBudget;
use kvorum_storage::data_dir::{ClusterId, DataDir, LogState};
use kvorum_storage::{Batch, Durability, Store, Tier};
use store_files::{copy_live, files, key, noise};

/// Whose flushes merge four memtables of 4 MiB.
fn budget() -> MemoryBudget {
    let budget = MemoryBudget::new(256 << 20).unwrap();
    assert_eq!((budget.merged(), budget.memtable()), (4, 4 << 20));
    budget
}

fn open(path: &Path) -> (DataDir, RocksStore, LogState) {
    let directory = DataDir::open(path, ClusterId(1)).unwrap();
    let (store, log) = RocksStore::open_in(&directory, budget(), CpuShare::whole()).unwrap();
    (directory, store, log)
}

/// Writes a node's value and a record, of which the first keeps a log for as long as it is not flushed.
fn put(store: &RocksStore, number: u32, length: usize) {
    let mut batch = Batch::default();
    batch.put(key(number), noise(number, length));
    batch.put_metadata("name", number.to_be_bytes().to_vec());
    store.commit(&batch, Durability::Fsync).unwrap();
}

/// Writes 100 kB at a time, from `first` on, until `is_enough`. Returns the number of the next.
fn put_until(store: &RocksStore, first: u32, mut is_enough: impl FnMut() -> bool) -> u32 {
    let number = (first..first + 400).find(|number| {
        put(store, *number, 100_000);
        is_enough()
    });
    number.expect("40 MB are more than two flushes") + 1
}

/// Writes until a flush of four memtables is asked for, and nothing after that, for which there would be another.
fn put_until_asked(path: &Path, store: &RocksStore, first: u32) -> u32 {
    put_until(store, first, || files(path, "log").len() > 4 || !files(path, "sst").is_empty())
}

/// Small writes until there is one log alone: until nothing but the newest writes is in memtables.
fn put_until_flushed(path: &Path, store: &RocksStore, first: u32) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(60);
    for number in first.. {
        put(store, number, 100);
        if files(path, "log").len() == 1 {
            return number + 1;
        }
        assert!(Instant::now() < deadline, "a log is kept: {:?}", files(path, "log"));
        std::thread::sleep(Duration::from_millis(10));
    }
    unreachable!("the deadline comes before")
}

/// Flips a bit in the middle of the oldest log of a copy, and opens that.
fn open_damaged(live: &Path, killed: &Path) -> (DataDir, RocksStore, LogState) {
    copy_live(live, killed);
    kvorum_engine_rocksdb::log_zeros::cut(&killed.join("store")).unwrap();
    let oldest = files(killed, "log").swap_remove(0);
    let mut bytes = std::fs::read(&oldest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&oldest, bytes).unwrap();
    open(killed)
}

#[test]
fn several_memtables_are_flushed_into_one_table_and_all_families_at_once() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path();
    let (_directory, store, _) = open(path);
    let next = put_until(&store, 0, || files(path, "log").len() == 4);
    assert_eq!(files(path, "sst").len(), 0, "three full memtables are not enough");
    let next = put_until_asked(path, &store, next);
    put_until_flushed(path, &store, next);
    let log = std::fs::read_to_string(path.join("store/LOG")).unwrap();
    assert!(log.contains("Manual atomic flush"), "{log}");
    let mut lengths: Vec<u64> = files(path, "sst").iter().map(|table| table.metadata().unwrap().len()).collect();
    lengths.sort_unstable();
    assert!(
        matches!(lengths[..], [0..10_000, 14_000_000..=20_000_000]),
        "one of metadata, one of records: {lengths:?}"
    );
}

#[test]
fn damage_in_any_log_is_noticed_and_refuses_no_start() {
    let outer = tempfile::tempdir().unwrap();
    let (live, killed) = (outer.path().join("live"), outer.path().join("killed"));
    let (_directory, store, _) = open(&live);
    let damage = |next| {
        let (directory, damaged, log) = open_damaged(&live, &killed);
        assert!(matches!(log, LogState::Shortened { .. }), "{log:?}");
        assert!(directory.rebuilding().unwrap().is_some());
        assert_eq!(damaged.get(&key(next - 1), Tier::Disk).unwrap(), None, "what came after the damage");
        drop((directory, damaged));
        std::fs::remove_dir_all(&killed).unwrap();
    };
    let next = put_until(&store, 0, || files(&live, "log").len() == 3);
    damage(next);
    let next = put_until_asked(&live, &store, next);
    let next = put_until_flushed(&live, &store, next);
    damage(put_until(&store, next, || files(&live, "log").len() == 3));
}

#[test]
fn what_a_killed_store_had_in_several_memtables_is_one_table_after_its_start() {
    let outer = tempfile::tempdir().unwrap();
    let (live, killed) = (outer.path().join("live"), outer.path().join("killed"));
    let (_directory, store, _) = open(&live);
    let next = put_until(&store, 0, || files(&live, "log").len() == 4);
    copy_live(&live, &killed);
    let (_directory, store, log) = open(&killed);
    assert_eq!(log, LogState::Whole);
    assert!((0..next).all(|number| store.get(&key(number), Tier::Disk).unwrap() == Some(noise(number, 100_000))));
    let lengths: Vec<u64> = files(&killed, "sst").iter().map(|table| table.metadata().unwrap().len()).collect();
    let (small, large): (Vec<u64>, Vec<u64>) = lengths.into_iter().partition(|length| *length < 10_000);
    assert!(
        matches!((&small[..], &large[..]), ([_], [10_000_000..=20_000_000])),
        "metadata, and records: {small:?}, {large:?}"
    );
    let full = put_until(&store, next, || files(&killed, "log").len() == 2);
    assert!(full - next < 60, "memtables of 4 MiB again: {} records", full - next);
}

/// A compaction that is asked for begins with a flush of the records alone.
#[test]
fn families_that_were_flushed_by_themselves_are_even_after_the_next_writes() {
    let outer = tempfile::tempdir().unwrap();
    let (live, killed) = (outer.path().join("live"), outer.path().join("killed"));
    let (_directory, store, _) = open(&live);
    put(&store, 0, 100);
    store.compact().unwrap();
    let next = put_until_flushed(&live, &store, 1);
    let next = put_until(&store, next, || files(&live, "log").len() == 2);
    let (_, damaged, log) = open_damaged(&live, &killed);
    assert!(matches!(log, LogState::Shortened { .. }), "{log:?}");
    assert_eq!(damaged.get(&key(next - 1), Tier::Disk).unwrap(), None);
}
