//! What every store must do: the same suite over RocksDB and over its deterministic twin.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use bytes::Bytes;
use kvorum_base::cpu_share::CpuShare;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::{Hlc, Incarnation, Key, Record, Version};
use kvorum_engine_rocksdb::RocksStore;
use kvorum_storage::budget::MemoryBudget;
use kvorum_storage::memory::{Fault, MemoryStore};
use kvorum_storage::{Batch, Durability, HealthState, HintChange, PageLimit, Store, StoreError, Tier};
use tempfile::TempDir;

const ALL: PageLimit = PageLimit { records: usize::MAX, bytes: usize::MAX };

/// A store that can be closed (or crashed, everything synced) and opened again.
trait Subject {
    type Store: Store;
    fn store(&self) -> &Self::Store;
    fn restart(&mut self);
}

struct Rocks {
    directory: TempDir,
    store: Option<RocksStore>,
}

impl Rocks {
    fn new() -> Self {
        let mut rocks = Self { directory: tempfile::tempdir().unwrap(), store: None };
        rocks.restart();
        rocks
    }
}

impl Subject for Rocks {
    type Store = RocksStore;
    fn store(&self) -> &RocksStore {
        self.store.as_ref().unwrap()
    }
    fn restart(&mut self) {
        self.store = None;
        let budget = MemoryBudget::new(MemoryBudget::BYTES_MIN).unwrap();
        self.store = Some(RocksStore::open(&self.directory.path().join("store"), budget, CpuShare::whole()).unwrap());
    }
}

struct Memory(MemoryStore);

impl Subject for Memory {
    type Store = MemoryStore;
    fn store(&self) -> &MemoryStore {
        &self.0
    }
    fn restart(&mut self) {
        self.0.crash(usize::MAX);
    }
}

/// Runs each rule over both stores.
macro_rules! contract {
    ($($rule:ident),* $(,)?) => {
        mod rocks { $(#[test] fn $rule() { super::$rule(super::Rocks::new()); })* }
        mod memory { $(#[test] fn $rule() { super::$rule(super::Memory(super::MemoryStore::default())); })* }
    };
}

contract!(
    what_was_committed_is_read,
    a_later_put_of_a_batch_wins,
    any_bytes_are_a_key,
    scans_are_half_open_and_sorted,
    scans_go_on_where_a_page_ended,
    a_page_holds_at_least_one_record,
    metadata_is_no_record,
    everything_synced_survives_a_restart,
    the_sequence_grows_with_every_commit_and_survives,
    an_empty_value_is_not_an_absent_one,
    flushed_records_are_read_from_the_disk,
    many_overwrites_leave_the_last,
    hints_are_no_records_and_records_no_hints,
    of_the_hints_under_one_name_the_newest_version_stays,
    a_range_of_hints_is_dropped_and_no_more,
    hints_survive_a_restart,
    hints_do_not_count_for_the_sequence,
    compaction_drops_deletions_at_or_below_the_gc_watermark_and_nothing_else,
);

fn key(bytes: &[u8]) -> Key {
    Key::new(Bytes::copy_from_slice(bytes)).unwrap()
}

fn put(store: &impl Store, records: &[(&[u8], &[u8])]) {
    let mut batch = Batch::default();
    for (name, value) in records {
        batch.put(key(name), Bytes::copy_from_slice(value));
    }
    store.commit(&batch, Durability::Fsync).unwrap();
}

fn get(store: &impl Store, name: &[u8]) -> Option<Bytes> {
    store.get(&key(name), Tier::Disk).unwrap()
}

fn names(store: &impl Store, start: &[u8], end: Option<&[u8]>) -> Vec<Bytes> {
    let page = store.scan(start, end, ALL).unwrap();
    assert!(!page.more);
    if end.is_none() {
        assert_eq!(store.scan_unchecked(start, ALL).unwrap(), page, "without damage it is the same");
    }
    page.records.into_iter().map(|(name, _)| name).collect()
}

fn what_was_committed_is_read(subject: impl Subject) {
    let store = subject.store();
    assert_eq!(get(store, b"a"), None);
    put(store, &[(b"a", b"1"), (b"b", b"2")]);
    assert_eq!(get(store, b"a").unwrap(), "1");
    assert_eq!(store.get(&key(b"b"), Tier::Cache).unwrap().unwrap(), "2");
    put(store, &[(b"a", b"3")]);
    assert_eq!(get(store, b"a").unwrap(), "3");
    store.forget(&key(b"a"));
    assert_eq!(get(store, b"a").unwrap(), "3", "only the cache loses it");
    assert_eq!(store.health(), HealthState::Healthy);
}

fn a_later_put_of_a_batch_wins(subject: impl Subject) {
    put(subject.store(), &[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]);
    assert_eq!(get(subject.store(), b"a").unwrap(), "3");
}

fn any_bytes_are_a_key(subject: impl Subject) {
    let all: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).chain([vec![0, 0], vec![255; 2048]]).collect();
    for name in &all {
        put(subject.store(), &[(name, name)]);
    }
    for name in &all {
        assert_eq!(get(subject.store(), name).unwrap(), name);
    }
    let mut sorted = all.clone();
    sorted.sort();
    assert_eq!(names(subject.store(), b"", None), sorted);
}

fn scans_are_half_open_and_sorted(subject: impl Subject) {
    let store = subject.store();
    put(store, &[(b"b", b""), (b"d", b""), (b"a", b""), (b"c", b""), (b"ab", b"")]);
    assert_eq!(names(store, b"a", Some(b"c")), ["a", "ab", "b"]);
    assert_eq!(names(store, b"aa", Some(b"b\0")), ["ab", "b"]);
    assert_eq!(names(store, b"c", None), ["c", "d"]);
    assert_eq!(names(store, b"e", None), [""; 0]);
    assert_eq!(names(store, b"c", Some(b"c")), [""; 0]);
    assert_eq!(names(store, b"d", Some(b"a")), [""; 0]);
}

fn scans_go_on_where_a_page_ended(subject: impl Subject) {
    let store = subject.store();
    let all: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    for name in &all {
        put(store, &[(name.as_bytes(), b"xxxxxxx")]);
    }
    for limit in [PageLimit { records: 7, ..ALL }, PageLimit { bytes: 30, ..ALL }] {
        let mut found = Vec::new();
        let mut start = Vec::new();
        loop {
            let page = store.scan(&start, Some(b"090"), limit).unwrap();
            assert!(page.records.len() <= 7);
            start = page.records.last().unwrap().0.to_vec();
            start.push(0);
            found.extend(page.records.into_iter().map(|(name, _)| name));
            if !page.more {
                break;
            }
        }
        assert_eq!(found, all[..90]);
    }
}

fn a_page_holds_at_least_one_record(subject: impl Subject) {
    put(subject.store(), &[(b"a", &[0; 1000]), (b"b", &[0; 1000])]);
    let page = subject.store().scan(b"", None, PageLimit { records: 10, bytes: 1 }).unwrap();
    assert_eq!((page.records.len(), page.more), (1, true));
}

fn metadata_is_no_record(mut subject: impl Subject) {
    let mut batch = Batch::default();
    batch.put_metadata("bound", vec![1, 2]);
    subject.store().commit(&batch, Durability::Fsync).unwrap();
    assert_eq!(subject.store().metadata("bound").unwrap(), Some(vec![1, 2]));
    assert_eq!(subject.store().metadata("other").unwrap(), None);
    assert_eq!(get(subject.store(), b"bound"), None);
    assert_eq!(names(subject.store(), b"", None), [""; 0]);
    batch.put_metadata("bound", vec![3]);
    subject.store().commit(&batch, Durability::Fsync).unwrap();
    subject.restart();
    assert_eq!(subject.store().metadata("bound").unwrap(), Some(vec![3]));
}

fn everything_synced_survives_a_restart(mut subject: impl Subject) {
    for round in 0..5_u8 {
        for number in 0..50_u8 {
            put(subject.store(), &[(&[number], &[round, number])]);
        }
        subject.restart();
        for number in 0..50_u8 {
            assert_eq!(get(subject.store(), &[number]).unwrap(), vec![round, number]);
        }
    }
}

fn the_sequence_grows_with_every_commit_and_survives(mut subject: impl Subject) {
    let mut last = subject.store().sequence();
    for number in 0..20_u8 {
        put(subject.store(), &[(&[number], b"x"), (b"same", b"x")]);
        let next = subject.store().sequence();
        assert!(next > last);
        last = next;
    }
    subject.restart();
    assert_eq!(subject.store().sequence(), last);
}

fn an_empty_value_is_not_an_absent_one(mut subject: impl Subject) {
    put(subject.store(), &[(b"a", b"")]);
    assert_eq!(get(subject.store(), b"a").unwrap(), "");
    subject.restart();
    assert_eq!(get(subject.store(), b"a").unwrap(), "");
    assert_eq!(get(subject.store(), b"b"), None);
}

fn flushed_records_are_read_from_the_disk(mut subject: impl Subject) {
    put(subject.store(), &[(b"a", b"1")]);
    subject.store().flush().unwrap();
    subject.restart();
    // Cold, so memory may have to refer to the disk.
    match subject.store().get(&key(b"a"), Tier::Cache) {
        Err(StoreError::NeedsDisk) => {}
        other => assert_eq!(other.unwrap().unwrap(), "1"),
    }
    assert_eq!(get(subject.store(), b"a").unwrap(), "1");
    assert_eq!(subject.store().get(&key(b"a"), Tier::Cache).unwrap().unwrap(), "1", "it is warm now");
    assert_eq!(get(subject.store(), b"b"), None);
}

fn many_overwrites_leave_the_last(mut subject: impl Subject) {
    for round in 0..300_u32 {
        put(subject.store(), &[(b"a", &round.to_be_bytes()), (b"b", &[round.to_be_bytes(); 100].concat())]);
        if round % 100 == 99 {
            subject.store().flush().unwrap();
        }
    }
    subject.restart();
    assert_eq!(get(subject.store(), b"a").unwrap(), &299_u32.to_be_bytes()[..]);
    assert_eq!(names(subject.store(), b"", None), ["a", "b"]);
}

fn hint(name: &'static str, number: u64) -> HintChange {
    let version = Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(1) };
    let value = number.to_string();
    let record = Record::value(&key(b"k"), version, 3, None, value.as_bytes());
    HintChange::Keep(name.into(), record.bytes().clone())
}

/// The names of hints, and what is in them.
fn hints(store: &impl Store) -> Vec<(String, String)> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let value = |bytes: Bytes| text(&Record::decode(&key(b"k"), bytes).unwrap().payload());
    let page = store.scan_hints(b"", b"\xff", ALL).unwrap();
    page.records.into_iter().map(|(name, record)| (text(&name), value(record))).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn hints_are_no_records_and_records_no_hints(subject: impl Subject) {
    let store = subject.store();
    put(store, &[(b"a", b"1")]);
    store.change_hints(&[hint("a", 2), hint("b", 3)]).unwrap();
    assert_eq!(get(store, b"a").unwrap(), "1");
    assert_eq!(get(store, b"b"), None);
    assert_eq!(names(store, b"", None), ["a"]);
    assert_eq!(hints(store), pairs(&[("a", "2"), ("b", "3")]));
    let page = store.scan_hints(b"a", b"b", ALL).unwrap();
    assert_eq!((page.records.len(), page.more), (1, false));
    assert!(store.scan_hints(b"", b"z", PageLimit { records: 1, bytes: 1 }).unwrap().more);
    assert!(store.scan_hints(b"b", b"a", ALL).unwrap().records.is_empty());
}

fn of_the_hints_under_one_name_the_newest_version_stays(mut subject: impl Subject) {
    for numbers in [[1, 3, 2], [2, 1, 3], [3, 2, 1]] {
        for number in numbers {
            subject.store().change_hints(&[hint("a", number)]).unwrap();
            subject.store().flush().unwrap();
        }
        assert_eq!(hints(subject.store()), pairs(&[("a", "3")]));
        subject.store().change_hints(&[hint("b", 1), hint("b", 9), hint("b", 5)]).unwrap();
        subject.restart();
        assert_eq!(hints(subject.store()), pairs(&[("a", "3"), ("b", "9")]));
        let all = HintChange::Drop(Bytes::from("a")..Bytes::from("c"));
        subject.store().change_hints(&[all]).unwrap();
        assert_eq!(hints(subject.store()), []);
    }
    let put = |text: &'static str| HintChange::Put("z".into(), text.into());
    subject.store().change_hints(&[put("9"), put("1")]).unwrap();
    let page = subject.store().scan_hints(b"z", b"zz", ALL).unwrap();
    assert_eq!(page.records[0].1, "1", "what is put is no version");
}

fn a_range_of_hints_is_dropped_and_no_more(mut subject: impl Subject) {
    let names = ["a", "b1", "b2", "c"];
    subject.store().change_hints(&names.map(|name| hint(name, 1))).unwrap();
    put(subject.store(), &[(b"b1", b"record")]);
    // In the order given: what comes after the drop stays.
    subject.store().change_hints(&[HintChange::Drop("b".into().."c".into()), hint("b3", 1)]).unwrap();
    subject.restart();
    assert_eq!(hints(subject.store()), pairs(&[("a", "1"), ("b3", "1"), ("c", "1")]));
    assert_eq!(get(subject.store(), b"b1").unwrap(), "record");
}

fn hints_survive_a_restart(mut subject: impl Subject) {
    subject.store().change_hints(&[hint("a", 1)]).unwrap();
    subject.restart();
    subject.store().change_hints(&[hint("b", 2)]).unwrap();
    subject.store().flush().unwrap();
    subject.restart();
    assert_eq!(hints(subject.store()), pairs(&[("a", "1"), ("b", "2")]));
}

fn hints_do_not_count_for_the_sequence(mut subject: impl Subject) {
    put(subject.store(), &[(b"a", b"1")]);
    let before = subject.store().sequence();
    subject.store().change_hints(&[hint("a", 1), hint("b", 1)]).unwrap();
    assert_eq!(subject.store().sequence(), before, "they are not synced, so nobody may count on them");
    put(subject.store(), &[(b"a", b"2")]);
    let after = subject.store().sequence();
    assert!(after > before);
    subject.restart();
    assert!(subject.store().sequence() >= after);
}

// The twin's own promises: what it can lose and how it fails.

#[test]
fn the_twin_loses_what_was_not_synced_from_the_newest_backwards() {
    let store = MemoryStore::default();
    put(&store, &[(b"a", b"0")]);
    for number in 1..=3_u8 {
        let mut batch = Batch::default();
        batch.put(key(b"a"), Bytes::from(vec![b'0' + number]));
        store.commit(&batch, Durability::Os).unwrap();
    }
    store.crash(2);
    assert_eq!(get(&store, b"a").unwrap(), "2");
    store.crash(0);
    assert_eq!(get(&store, b"a").unwrap(), "2", "what survived a crash is durable");
}

#[test]
fn the_twin_refuses_writes_while_full_and_reads_on() {
    let store = MemoryStore::default();
    put(&store, &[(b"a", b"0")]);
    store.set_fault(Fault::DiskFull);
    let mut batch = Batch::default();
    batch.put(key(b"a"), Bytes::from("1"));
    assert_eq!(store.commit(&batch, Durability::Fsync), Err(StoreError::DiskFull));
    assert_eq!(store.health(), HealthState::DiskFull);
    assert_eq!(get(&store, b"a").unwrap(), "0");
    store.set_fault(Fault::None);
    store.commit(&batch, Durability::Fsync).unwrap();
    assert_eq!((store.health(), get(&store, b"a").unwrap()), (HealthState::Healthy, "1".into()));
}

#[test]
fn the_twin_is_poisoned_by_a_failed_sync_until_a_restart() {
    for survives in [false, true] {
        let store = MemoryStore::default();
        put(&store, &[(b"a", b"0")]);
        store.set_fault(Fault::SyncFails { survives });
        let mut batch = Batch::default();
        batch.put(key(b"a"), Bytes::from("1"));
        assert!(matches!(store.commit(&batch, Durability::Fsync), Err(StoreError::Poisoned(_))));
        store.set_fault(Fault::None);
        assert!(matches!(store.commit(&batch, Durability::Fsync), Err(StoreError::Poisoned(_))));
        assert_eq!((store.health(), get(&store, b"a").unwrap()), (HealthState::Poisoned, "0".into()));
        store.crash(0);
        assert_eq!(get(&store, b"a").unwrap(), if survives { "1" } else { "0" });
        put(&store, &[(b"a", b"2")]);
    }
}

fn compaction_drops_deletions_at_or_below_the_gc_watermark_and_nothing_else(mut subject: impl Subject) {
    let version = |millis| Version { hlc: Hlc::from_millis(millis), incarnation: Incarnation(1) };
    let store = |store: &dyn Store, records: &[(&Key, Record)]| {
        let mut batch = Batch::default();
        records.iter().for_each(|(key, record)| batch.put((*key).clone(), record.bytes().clone()));
        store.commit(&batch, Durability::Fsync).unwrap();
        store.flush().unwrap();
    };
    let (old, new, kept) = (key(b"old"), key(b"new"), key(b"kept"));
    let value = |key: &Key, millis| Record::value(key, version(millis), 3, None, b"value");
    store(subject.store(), &[(&old, value(&old, 10)), (&new, value(&new, 10)), (&kept, value(&kept, 10))]);
    store(
        subject.store(),
        &[(&old, Record::tombstone(&old, version(100), 3)), (&new, Record::tombstone(&new, version(101), 3))],
    );
    subject.store().compact().unwrap();
    assert_eq!(subject.store().stats().dropped, 0, "nothing is proven yet");
    subject.restart();
    let store = subject.store();
    // In the cache, too: what is there is no answer for long.
    assert!(store.get(&old, Tier::Disk).unwrap().is_some());
    store.gc_watermarks().raise(&PartitionSet::all(), Hlc::from_millis(100));
    store.compact().unwrap();
    assert_eq!(store.stats().dropped, 1);
    assert_eq!(names(store, b"a", None), ["kept", "new"]);
}
