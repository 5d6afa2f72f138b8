//! What is RocksDB's alone: real files that are cut, flipped, full or not writable.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvorum_base::cpu_share::CpuShare;
use kvorum_core::node::NodeId;
use kvorum_engine_rocksdb::RocksStore;
use kvorum_engine_rocksdb::log_zeros;
use kvorum_storage::budget::MemoryBudget;
use kvorum_storage::data_dir::{ClusterId, DataDir, LogState};
use kvorum_storage::{Batch, Durability, HealthState, HintChange, Stall, Store, StoreError, Tier};

mod store_files;

use store_files::{budget, copy_live, files, key, noise, open};

const COMMITS: u32 = 200;

fn try_put(store: &RocksStore, number: u32, length: usize) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    batch.put(key(number), noise(number, length));
    store.commit(&batch, Durability::Fsync)
}

fn assert_has(store: &RocksStore, numbers: impl Iterator<Item = u32>, length: usize) {
    for number in numbers {
        assert_eq!(store.get(&key(number), Tier::Disk).unwrap(), Some(noise(number, length)), "{number}");
    }
}

/// Takes the zeros away that opening a store would take away first. Returns the newest log.
fn newest_log(path: &Path) -> PathBuf {
    log_zeros::cut(&path.join("store")).unwrap();
    files(path, "log").pop().unwrap()
}

/// Writes [`COMMITS`] records, kills, does something to the directory, and opens it again.
fn after_kill(change: impl FnOnce(&Path)) -> (tempfile::TempDir, DataDir, RocksStore, LogState) {
    let outer = tempfile::tempdir().unwrap();
    let (_directory, store, log) = open(&outer.path().join("live"));
    assert_eq!(log, LogState::Whole);
    for number in 0..COMMITS {
        try_put(&store, number, 100).unwrap();
    }
    let killed = outer.path().join("killed");
    copy_live(&outer.path().join("live"), &killed);
    change(&killed);
    let (directory, store, log) = open(&killed);
    (outer, directory, store, log)
}

fn assert_shortened(directory: &DataDir, store: &RocksStore, log: LogState) {
    assert!(matches!(log, LogState::Shortened { .. }), "{log:?}");
    let reason = directory.rebuilding().unwrap().unwrap();
    assert!(reason.contains("had been synced"), "{reason}");
    // What is there is a prefix of what was written.
    let held = (0..COMMITS).take_while(|number| store.get(&key(*number), Tier::Disk).unwrap().is_some()).count();
    let held = u32::try_from(held).unwrap();
    assert!(held < COMMITS);
    assert_has(store, 0..held, 100);
    for number in held..COMMITS {
        assert_eq!(store.get(&key(number), Tier::Disk).unwrap(), None, "{number}");
    }
}

#[test]
fn a_kill_loses_nothing_that_was_synced() {
    let (_outer, directory, store, log) = after_kill(|path| {
        let newest = std::fs::read(files(path, "log").pop().unwrap()).unwrap();
        assert!(newest.ends_with(&[0; 1000]), "zeros for what comes next");
    });
    assert_eq!(log, LogState::Whole);
    assert_eq!(directory.rebuilding().unwrap(), None);
    assert_has(&store, 0..COMMITS, 100);
}

#[test]
fn a_log_with_zeros_at_its_end_that_another_follows_is_whole() {
    let outer = tempfile::tempdir().unwrap();
    let live = outer.path().join("live");
    let directory = DataDir::open(&live, ClusterId(1)).unwrap();
    // So that a flush takes long, for which the log of its memtable stays.
    let share = CpuShare::new(1);
    let (store, _) = RocksStore::open_in(&directory, budget(), share.clone()).unwrap();
    let first = files(&live, "log");
    let mut records = 0;
    let mut put_some = || {
        let mut batch = Batch::default();
        (records..records + 1000).for_each(|number| batch.put(key(number), noise(number, 20)));
        records += 1000;
        share.note_request();
        store.commit(&batch, Durability::Fsync).unwrap();
        records
    };
    while files(&live, "log") == first {
        put_some();
    }
    let records = put_some();
    let killed = outer.path().join("killed");
    copy_live(&live, &killed);
    let logs = files(&killed, "log");
    assert!(logs.len() > 1 && files(&killed, "sst").iter().all(|table| table.metadata().unwrap().len() < 1 << 20));
    for log in logs {
        // The engine takes those of a log that it leaves away by itself, unless it dies meanwhile.
        std::fs::OpenOptions::new().append(true).open(log).unwrap().write_all(&[0; 100_003]).unwrap();
    }
    let (directory, store, log) = open(&killed);
    assert_eq!((log, directory.rebuilding().unwrap()), (LogState::Whole, None));
    assert_has(&store, 0..records, 20);
}

#[test]
fn hints_that_the_machine_did_not_survive_are_no_loss() {
    let outer = tempfile::tempdir().unwrap();
    let live = outer.path().join("live");
    let (_directory, store, _) = open(&live);
    let hint = |number: u32| HintChange::Put(Bytes::from(format!("hint-{number}")), noise(number, 100));
    for number in 0..COMMITS {
        store.change_hints(&[hint(number), hint(number + 1)]).unwrap();
        try_put(&store, number, 100).unwrap();
    }
    let killed = |name: &str| {
        let copy = outer.path().join(name);
        copy_live(&live, &copy);
        let newest = newest_log(&copy);
        let length = std::fs::metadata(&newest).unwrap().len();
        (copy, newest, length)
    };
    let (_, _, synced) = killed("before");
    let heard = store.sequence();
    (0..COMMITS).for_each(|number| store.change_hints(&[hint(number)]).unwrap());
    assert_eq!(store.sequence(), heard, "a peer gets nothing that may be lost");
    let (killed, newest, length) = killed("after");
    assert!(length > synced, "they are in the log");
    std::fs::OpenOptions::new().write(true).open(&newest).unwrap().set_len(synced).unwrap();
    let (directory, store, log) = open(&killed);
    assert_eq!((log, directory.rebuilding().unwrap()), (LogState::Whole, None));
    assert!(store.sequence() >= heard);
    assert_has(&store, 0..COMMITS, 100);
}

#[test]
fn a_torn_tail_beyond_what_was_synced_is_no_loss() {
    let (_outer, directory, store, log) = after_kill(|path| {
        let newest = newest_log(path);
        let mut bytes = std::fs::read(&newest).unwrap();
        // The begin of one more record: as the first half of the last.
        let half = bytes[bytes.len() - 150..bytes.len() - 80].to_vec();
        bytes.extend(half);
        std::fs::write(&newest, bytes).unwrap();
    });
    assert_eq!(log, LogState::Whole);
    assert_eq!(directory.rebuilding().unwrap(), None);
    assert_has(&store, 0..COMMITS, 100);
}

#[test]
fn a_log_cut_below_what_was_synced_is_noticed() {
    for cut in [1, 5, 5000] {
        let (_outer, directory, store, log) = after_kill(|path| {
            let newest = newest_log(path);
            let length = std::fs::metadata(&newest).unwrap().len();
            std::fs::OpenOptions::new().write(true).open(&newest).unwrap().set_len(length - cut).unwrap();
        });
        assert_shortened(&directory, &store, log);
    }
}

#[test]
fn a_flipped_bit_in_the_live_log_is_noticed() {
    let (_outer, directory, store, log) = after_kill(|path| {
        let newest = newest_log(path);
        let mut bytes = std::fs::read(&newest).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&newest, bytes).unwrap();
    });
    assert_shortened(&directory, &store, log);
}

#[test]
fn flushes_and_compactions_give_way_to_requests() {
    let outer = tempfile::tempdir().unwrap();
    let usual = rustix::process::getpriority_process(None).unwrap();
    let (_directory, store, _) = open(outer.path());
    for number in 0..4 {
        try_put(&store, number % 2, 100).unwrap();
        store.flush().unwrap();
    }
    store.compact().unwrap();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stats: Vec<String> =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).ok()).collect();
    for name in ["(rocksdb:high)", "(rocksdb:low)"] {
        let of = |stat: &String| stat.split_once(name)?.1.split_whitespace().nth(16)?.parse::<i32>().ok();
        assert_eq!(stats.iter().find_map(of), Some(usual.max(5)), "{name} {stats:?}");
    }
    assert_eq!(rustix::process::getpriority_process(None).unwrap(), usual);
}

const ALONE: &str = "KVORUM_TEST_ALONE";

/// What the engine's flushes and compactions in this process have written: bytes, and calls.
fn engine_writes() -> (u64, u64) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let engine =
        tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("rocksdb:")));
    engine.fold((0, 0), |(bytes, calls), task| {
        let io = std::fs::read_to_string(task.join("io")).unwrap();
        let of = |name| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap();
        (bytes + of("wchar:"), calls + of("syscw:"))
    })
}

/// Runs itself again in a process in which nothing else writes tables.
#[test]
fn tables_are_written_in_small_pieces() {
    if std::env::var_os(ALONE).is_some() {
        return write_tables();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "tables_are_written_in_small_pieces"])
        .env(ALONE, "")
        .output()
        .unwrap();
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{texts:?}");
}

fn write_tables() {
    let outer = tempfile::tempdir().unwrap();
    let (_directory, store, _) = open(outer.path());
    for half in 0..2 {
        for number in 0..2000 {
            let mut batch = Batch::default();
            batch.put(key(2 * number + half), noise(number, 1000));
            store.commit(&batch, Durability::Os).unwrap();
        }
        store.flush().unwrap();
    }
    store.compact().unwrap();
    let (bytes, calls) = engine_writes();
    assert!(bytes >= 7 << 20, "{bytes} bytes");
    assert!(bytes / calls <= 16 << 10, "{bytes} bytes in {calls} calls");
}

/// How long something takes, while requests come.
fn time_until(share: &CpuShare, is_over: impl Fn() -> bool) -> Duration {
    let begin = Instant::now();
    while !is_over() {
        share.note_request();
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    begin.elapsed()
}

#[test]
fn flushes_and_compactions_rest_while_requests_come() {
    let outer = tempfile::tempdir().unwrap();
    let directory = DataDir::open(outer.path(), ClusterId(1)).unwrap();
    let share = CpuShare::new(5);
    let (store, _) = RocksStore::open_in(&directory, budget(), share.clone()).unwrap();
    // With the last of these tables a compaction begins.
    for _ in 0..engine_option(outer.path(), "default", "level0_file_num_compaction_trigger") {
        // The log of the table before may only now go.
        let log = files(outer.path(), "log").pop();
        for first in (0..).step_by(1000).take_while(|_| files(outer.path(), "log").pop() == log) {
            let mut batch = Batch::default();
            (first..first + 1000).for_each(|number| batch.put(key(number), noise(number, 20)));
            share.note_request();
            store.commit(&batch, Durability::Os).unwrap();
        }
        let full = store.stats().memtable_bytes;
        let flush = time_until(&share, || {
            // A write asks for the flush, where the one before had not quite ended when the memtable was full.
            try_put(&store, 0, 20).unwrap();
            store.stats().memtable_bytes < full / 2
        });
        // Some 70,000 records are 20 ms of work here, and no machine does it in 5.
        assert!(flush >= Duration::from_millis(100), "{flush:?}");
    }
    let oldest = files(outer.path(), "sst").swap_remove(0);
    let compaction = time_until(&share, || !oldest.exists());
    assert!(compaction >= Duration::from_millis(300), "{compaction:?}");
}

fn remove_logs(path: &Path) {
    for log in files(path, "log") {
        std::fs::remove_file(log).unwrap();
    }
}

#[test]
fn a_store_without_any_log_is_refused_unless_nothing_was_ever_written() {
    let outer = tempfile::tempdir().unwrap();
    for is_new in [true, false] {
        let (directory, store, _) = open(outer.path());
        if !is_new {
            try_put(&store, 1, 100).unwrap();
        }
        drop((directory, store));
        remove_logs(outer.path());
        let directory = DataDir::open(outer.path(), ClusterId(1)).unwrap();
        let result = RocksStore::open_in(&directory, budget(), CpuShare::whole());
        if is_new {
            assert_eq!(result.unwrap().1, LogState::Whole, "a first start that was killed");
        } else {
            let text = result.err().expect("the log had a record").to_string();
            assert!(text.contains("move the whole data directory away"), "{text}");
        }
    }
}

const KILLED: &str = "KVORUM_TEST_KILLED_DIR";
/// Large ones and small ones, with zeros behind the log only for these.
const KILLED_LENGTHS: [usize; 2] = [38_000, 2_000];

/// Runs itself again in a process that writes until it is killed, through many changes of logs and tables.
#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_synced() {
    if let Some(path) = std::env::var_os(KILLED) {
        return write_for_ever(Path::new(&path));
    }
    let outer = tempfile::tempdir().unwrap();
    let mut acked = 0;
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "a_kill_at_any_moment_loses_nothing_that_was_synced"])
            .env(KILLED, outer.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        // From the very start to several memtables.
        let until = [0, 1, 0, 700, 10, 1500, 0, 300][round];
        if until == 0 {
            child.kill().unwrap();
        }
        let mut seen = 0;
        for line in lines.map_while(Result::ok) {
            let Some(number) = line.strip_prefix("acked ") else { continue };
            acked = number.parse().unwrap();
            seen += 1;
            if seen == until {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let (directory, store, log) = open(outer.path());
        assert_eq!(log, LogState::Whole, "round {round}");
        assert_eq!(directory.rebuilding().unwrap(), None);
        for (first, length) in (1..).zip(KILLED_LENGTHS) {
            assert_has(&store, (first..=acked).step_by(2), length);
        }
    }
    assert!(acked > 2500, "{acked}");
}

fn write_for_ever(path: &Path) {
    let (_directory, store, _) = open(path);
    let held = (1..).take_while(|number| store.get(&key(*number), Tier::Disk).unwrap().is_some()).count();
    for number in u32::try_from(held).unwrap() + 1.. {
        try_put(&store, number, KILLED_LENGTHS[usize::from(number % 2 == 0)]).unwrap();
        println!("\nacked {number}");
    }
}

#[test]
fn a_vanished_store_is_noticed() {
    let (_outer, directory, store, log) = after_kill(|path| std::fs::remove_dir_all(path.join("store")).unwrap());
    assert_shortened(&directory, &store, log);
}

#[test]
fn a_noticed_loss_stays_noticed() {
    let (outer, directory, store, log) = after_kill(|path| std::fs::remove_dir_all(path.join("store")).unwrap());
    assert_shortened(&directory, &store, log);
    try_put(&store, 1, 100).unwrap();
    drop((directory, store));
    let (directory, _store, log) = open(&outer.path().join("killed"));
    assert_eq!(log, LogState::Whole, "what was written since is there");
    assert!(directory.rebuilding().unwrap().is_some());
}

#[test]
fn a_cold_record_needs_the_disk_and_is_warm_after() {
    let outer = tempfile::tempdir().unwrap();
    let (directory, store, _) = open(outer.path());
    try_put(&store, 7, 100).unwrap();
    store.flush().unwrap();
    drop((directory, store));
    let (_directory, store, _) = open(outer.path());
    assert_eq!(store.get(&key(7), Tier::Cache), Err(StoreError::NeedsDisk));
    assert_has(&store, 7..8, 100);
    assert_eq!(store.get(&key(7), Tier::Cache).unwrap(), Some(noise(7, 100)));
    let stats = store.stats();
    assert!(stats.record_cache_used_bytes > 0 && stats.table_bytes > 0, "{stats:?}");
    assert!(
        stats.block_reads > 0 && stats.cache_misses > stats.block_reads,
        "missed in the cache, and then read: {stats:?}"
    );
    let whole = u64::try_from(budget().cache).unwrap();
    assert_eq!(stats.cache_capacity_bytes, whole);
    assert!(stats.cache_used_bytes < whole);
}

#[test]
fn what_was_flushed_or_compacted_is_read_without_the_disk() {
    let outer = tempfile::tempdir().unwrap();
    let (_directory, store, _) = open(outer.path());
    try_put(&store, 7, 100).unwrap();
    store.flush().unwrap();
    assert_eq!(store.stats().record_cache_used_bytes, 0, "or it would answer");
    assert_eq!(store.get(&key(7), Tier::Cache).unwrap(), Some(noise(7, 100)));
    // Records that were not read yet: what a read found is kept in front of the block cache.
    try_put(&store, 8, 100).unwrap();
    store.flush().unwrap();
    store.compact().unwrap();
    assert_eq!(store.get(&key(8), Tier::Cache).unwrap(), Some(noise(8, 100)));
}

/// An option of one family that the engine runs with.
fn engine_option(path: &Path, family: &str, name: &str) -> i64 {
    let written = std::fs::read_dir(path.join("store")).unwrap().map(|entry| entry.unwrap().path());
    let last = written.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("OPTIONS-")).max();
    let text = std::fs::read_to_string(last.expect("the engine writes its options down")).unwrap();
    let options = text.split(&format!("[CFOptions \"{family}\"]")).nth(1).expect("the family is there");
    let value = options.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}=")));
    value.unwrap().parse().unwrap()
}

#[test]
fn only_the_records_files_hold_writes_back() {
    let outer = tempfile::tempdir().unwrap();
    let (_directory, _store, _) = open(outer.path());
    let option = |family, name| engine_option(outer.path(), family, name);
    for name in ["level0_slowdown_writes_trigger", "level0_stop_writes_trigger"] {
        assert!(option("default", name) < 100, "{name}");
        for family in ["metadata", "hints"] {
            assert_eq!(option(family, name), i64::from(i32::MAX), "{family}, {name}");
        }
    }
    for family in ["metadata", "hints"] {
        let name = "max_write_buffer_number";
        assert_eq!(option(family, name), option("default", name), "{family}");
    }
}

/// Flushes `number`'s record and flips a byte of its value on disk.
fn damage(path: &Path, number: u32) {
    let (directory, store, _) = open(path);
    try_put(&store, number, 1000).unwrap();
    store.flush().unwrap();
    drop((directory, store));
    let value = noise(number, 1000);
    let holds = |bytes: &Vec<u8>| bytes.windows(200).position(|window| window == &value[700..900]);
    let (table, mut bytes, at) = files(path, "sst")
        .into_iter()
        .map(|table| (table.clone(), std::fs::read(&table).unwrap()))
        .find_map(|(table, bytes)| holds(&bytes).map(|at| (table, bytes, at)))
        .expect("noise is stored as it is");
    bytes[at] ^= 1;
    std::fs::write(table, bytes).unwrap();
}

#[test]
fn a_flipped_bit_on_disk_is_an_error_and_never_an_answer() {
    let outer = tempfile::tempdir().unwrap();
    damage(outer.path(), 3);
    let (_directory, store, _) = open(outer.path());
    assert!(matches!(store.get(&key(3), Tier::Disk), Err(StoreError::Corrupt(_))));
    assert!(matches!(store.scan(b"", None, ALL), Err(StoreError::Corrupt(_))));
    assert_eq!(store.stats().corrupt_reads, 2);
    let salvaged = store.salvage(&key(3)).unwrap();
    assert_eq!(&salvaged[..700], &noise(3, 1000)[..700], "the header of a record is still to be had");
    assert!(matches!(store.get(&key(3), Tier::Disk), Err(StoreError::Corrupt(_))), "salvaging caches nothing");
    try_put(&store, 3, 500).unwrap();
    assert_has(&store, 3..4, 500);
    assert_eq!(store.health(), HealthState::Healthy);
}

const ALL: kvorum_storage::PageLimit = kvorum_storage::PageLimit { records: usize::MAX, bytes: usize::MAX };

#[test]
fn damage_met_by_compaction_is_counted_and_stops_no_writes() {
    let outer = tempfile::tempdir().unwrap();
    damage(outer.path(), 3);
    let (_directory, store, _) = open(outer.path());
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut number = 0;
    // Files pile up until the damaged one is compacted with them.
    while store.stats().damaged_compactions == 0 {
        assert!(Instant::now() < deadline, "no compaction: {:?}", store.stats());
        number += 1;
        try_put(&store, number % 10, 300).unwrap();
        store.flush().unwrap();
    }
    assert_eq!(store.health(), HealthState::Healthy);
    try_put(&store, 3, 300).unwrap();
    assert_has(&store, 3..4, 300);
}

/// No compaction of the damaged file succeeds, so others pile up in level 0.
#[test]
fn writes_that_are_held_back_when_a_store_is_opened_are_known_to_be() {
    let outer = tempfile::tempdir().unwrap();
    damage(outer.path(), 3);
    let (directory, store, _) = open(outer.path());
    assert_eq!(store.stats().stall, Stall::None);
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.stats().stall == Stall::None {
        assert!(Instant::now() < deadline, "no stall: {:?}", store.stats());
        try_put(&store, 2, 300).unwrap();
        try_put(&store, 4, 300).unwrap();
        store.flush().unwrap();
    }
    drop((directory, store));
    let (_directory, store, _) = open(outer.path());
    assert_eq!((store.stats().stall, store.stats().stalls), (Stall::Delayed, 1));
    try_put(&store, 4, 300).unwrap();
}

/// A small file system of its own, unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o"]).arg(format!("size={size}")).arg("tmpfs").arg(directory.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("SKIPPED: mounting a tmpfs needs root; the rules of a full disk were not tested");
        }
        mounted.then_some(Self(directory))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn hints_leave_the_last_of_the_disk_to_commits() {
    let Some(disk) = Tmpfs::mount("100m") else { return };
    let (_directory, store, _) = open(&disk.0.path().join("node"));
    let hint = [HintChange::Put("hint".into(), noise(1, 100))];
    store.change_hints(&hint).unwrap();
    std::fs::write(disk.0.path().join("ballast"), vec![1; 50 << 20]).unwrap();
    assert_eq!(store.change_hints(&hint), Err(StoreError::DiskFull));
    assert_eq!(store.health(), HealthState::Healthy, "it is no matter to anybody");
    try_put(&store, 1, 100).unwrap();
    store.change_hints(&[HintChange::Drop("a".into().."z".into())]).unwrap();
}

#[test]
fn a_backup_on_a_full_disk_is_refused_and_costs_the_store_nothing() {
    let Some(disk) = Tmpfs::mount("64m") else { return };
    let (_directory, store, _) = open(&disk.0.path().join("node"));
    try_put(&store, 1, 300).unwrap();
    let ballast = disk.0.path().join("ballast");
    std::io::copy(&mut std::io::repeat(1), &mut std::fs::File::create(&ballast).unwrap()).unwrap_err();
    assert_eq!(store.checkpoint(&disk.0.path().join("backup")), Err(StoreError::DiskFull));
    // Not removed: a process that another test begins may have it open for a moment more.
    std::fs::File::create(&ballast).unwrap();
    try_put(&store, 2, 300).unwrap();
    assert_has(&store, 1..3, 300);
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_resumes_by_itself() {
    const LENGTH: usize = 20_000;
    let Some(disk) = Tmpfs::mount("64m") else { return };
    let path = disk.0.path().join("node");
    let (directory, store, _) = open(&path);
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 32 << 20]).unwrap();
    let mut acked = Vec::new();
    let mut number = 0;
    // Until it stays full: what the engine flushes meanwhile makes space once more.
    let mut refused = 0;
    while refused < 3 {
        number += 1;
        match try_put(&store, number, LENGTH) {
            Ok(()) => {
                acked.push(number);
                refused = 0;
            }
            Err(error) => {
                assert_eq!(error, StoreError::DiskFull);
                refused = if store.health() == HealthState::DiskFull { refused + 1 } else { 0 };
            }
        }
    }
    assert_has(&store, acked.iter().copied(), LENGTH);
    // Killed at this moment, it has everything that was acknowledged.
    let elsewhere = tempfile::tempdir().unwrap();
    copy_live(&path, elsewhere.path());
    let (copy_directory, copy, log) = open(elsewhere.path());
    assert_eq!(log, LogState::Whole);
    assert_has(&copy, acked.iter().copied(), LENGTH);
    drop((copy_directory, copy));

    std::fs::remove_file(&ballast).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.health() != HealthState::Healthy {
        assert!(Instant::now() < deadline, "no recovery: {:?}", store.stats());
        std::thread::yield_now();
    }
    for number in 100_000..100_050 {
        try_put(&store, number, LENGTH).unwrap();
        acked.push(number);
    }
    assert_has(&store, acked.iter().copied(), LENGTH);
    copy_live(&path, &elsewhere.path().join("second"));
    drop((directory, store));
    for path in [path, elsewhere.path().join("second")] {
        let (_directory, store, log) = open(&path);
        assert_eq!(log, LogState::Whole);
        assert_has(&store, acked.iter().copied(), LENGTH);
    }
}

/// Beyond the reserve that commits leave to it: others fill the disk, too, and then the engine's own work fails.
#[test]
fn the_engine_recovers_by_itself_when_a_flush_has_met_a_full_disk() {
    const LENGTH: usize = 20_000;
    const PUTS: u32 = 150;
    let Some(disk) = Tmpfs::mount("32m") else { return };
    let path = disk.0.path().join("node");
    let (directory, store, _) = open(&path);
    for number in 0..PUTS {
        try_put(&store, number, LENGTH).unwrap();
    }
    let ballast = disk.0.path().join("ballast");
    let free = rustix::fs::statvfs(disk.0.path()).map(|disk| disk.f_bavail * disk.f_frsize).unwrap();
    std::fs::write(&ballast, vec![1; usize::try_from(free).unwrap() - (1 << 20)]).unwrap();
    assert_eq!(store.flush(), Err(StoreError::DiskFull));
    assert_eq!(store.health(), HealthState::DiskFull);
    assert_eq!(try_put(&store, PUTS, LENGTH), Err(StoreError::DiskFull));
    assert_has(&store, 0..PUTS, LENGTH);

    std::fs::remove_file(&ballast).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.stats().recoveries == 0 || store.health() != HealthState::Healthy {
        assert!(Instant::now() < deadline, "no recovery: {:?}", store.stats());
        std::thread::yield_now();
    }
    try_put(&store, PUTS, LENGTH).unwrap();
    store.flush().unwrap();
    drop((directory, store));
    let (_directory, store, log) = open(&path);
    assert_eq!(log, LogState::Whole);
    assert_has(&store, 0..=PUTS, LENGTH);
}

const LIMITED: &str = "KVORUM_TEST_LIMITED_DIR";

/// Runs itself again in a process whose files may not grow beyond 100 KB, where the log write then fails
/// with something else than a lack of space.
#[test]
fn a_failed_log_write_poisons_the_store_until_a_restart() {
    if let Some(path) = std::env::var_os(LIMITED) {
        return write_until_poisoned(Path::new(&path));
    }
    let outer = tempfile::tempdir().unwrap();
    drop(open(outer.path()));
    let this = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 200; exec \"$0\" --exact --nocapture \"$1\""])
        .arg(this)
        .arg("a_failed_log_write_poisons_the_store_until_a_restart")
        .env(LIMITED, outer.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let acked = text.lines().find_map(|line| line.strip_prefix("acked ")).expect("the child says how far it came");
    let acked: u32 = acked.parse().unwrap();
    let (_directory, store, log) = open(outer.path());
    assert_eq!(log, LogState::Whole);
    assert_eq!(store.health(), HealthState::Healthy);
    assert_has(&store, 0..acked, 1000);
    try_put(&store, acked, 1000).unwrap();
}

fn write_until_poisoned(path: &Path) {
    let (_directory, store, _) = open(path);
    let (acked, error) = (0..).find_map(|number| try_put(&store, number, 1000).err().map(|e| (number, e))).unwrap();
    assert!(matches!(&error, StoreError::Poisoned(reason) if reason.contains("File too large")), "{error}");
    assert_eq!(store.health(), HealthState::Poisoned);
    assert!(acked > 10);
    assert!(matches!(try_put(&store, acked + 1, 1), Err(StoreError::Poisoned(_))));
    assert_has(&store, 0..acked, 1000);
    assert_eq!(store.get(&key(acked), Tier::Disk).unwrap(), None, "what was not durable is not visible");
    println!("\nacked {acked}");
}

#[test]
fn all_memory_follows_from_one_number() {
    assert_eq!(MemoryBudget::new(MemoryBudget::BYTES_MIN - 1), None);
    for memory_bytes in [64 << 20, 512 << 20, 5_000_000_001] {
        let budget = MemoryBudget::new(memory_bytes).unwrap();
        for budget in (0..3).map(|node| budget.at(NodeId(node))) {
            let (merged, memtable) = (budget.merged(), budget.memtable());
            assert!((1..=8).contains(&merged) && memtable * merged >= budget.table, "{budget:?}");
            assert!(memtable * (merged - 1) < budget.table && 4 * budget.table <= budget.write_buffers, "{budget:?}");
        }
        assert!(budget.write_buffers <= memory_bytes / 4);
        assert!(budget.write_buffers < budget.cache);
        let sum = budget.cache + budget.records + budget.node_buffers;
        assert!(sum <= memory_bytes && sum + 8 > memory_bytes, "{budget:?}");
    }
}

/// How many equal batches a store takes before its memtable is full. The engine begins a log with each memtable.
fn batches_in_a_memtable(budget: MemoryBudget) -> u32 {
    let outer = tempfile::tempdir().unwrap();
    let store = RocksStore::open(outer.path(), budget, CpuShare::whole()).unwrap();
    let newest_log = || {
        let names = std::fs::read_dir(outer.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "log")).max()
    };
    let first = newest_log();
    for batches in 0..1000 {
        if newest_log() != first {
            return batches;
        }
        let mut batch = Batch::default();
        batch.put(key(batches), noise(batches, 50_000));
        store.commit(&batch, Durability::Os).unwrap();
    }
    panic!("50 MB are more than any memtable of the least budget");
}

#[test]
fn replicas_do_not_flush_at_the_same_moment() {
    let [first, second, third] = [0, 1, 2].map(|node| batches_in_a_memtable(budget().at(NodeId(node))));
    assert!(first > second + second / 10 && second > third + third / 10, "{first}, {second}, {third}");
}

#[test]
fn write_buffers_stay_within_their_budget() {
    let outer = tempfile::tempdir().unwrap();
    let (_directory, store, _) = open(outer.path());
    let mut peak = 0;
    for round in 0..60 {
        let mut batch = Batch::default();
        for number in 0..100 {
            batch.put(key(round * 100 + number), noise(round * 100 + number, 10_000));
        }
        store.commit(&batch, Durability::Os).unwrap();
        peak = peak.max(store.stats().memtable_bytes);
    }
    // A flush takes a moment, in which the next buffer fills; what is over is evicted from the cache.
    let allowed = u64::try_from(budget().write_buffers * 2).unwrap();
    assert!(peak > 1 << 20 && peak < allowed, "{peak} of {allowed}");
    // Buffers that wait for their flush are charged to the cache, and pin it.
    let is_within = || store.stats().cache_used_bytes <= u64::try_from(budget().cache).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_within() {
        assert!(Instant::now() < deadline, "{} bytes are cached", store.stats().cache_used_bytes);
        std::thread::sleep(Duration::from_millis(10));
    }
}
