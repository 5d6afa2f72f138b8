//! Stores in directories, and their files.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvorum_base::cpu_share::CpuShare;
use kvorum_core::key::Key;
use kvorum_engine_rocksdb::RocksStore;
use kvorum_storage::budget::MemoryBudget;
use kvorum_storage::data_dir::{ClusterId, DataDir, DataDirError, LogState};

pub(crate) fn budget() -> MemoryBudget {
    MemoryBudget::new(MemoryBudget::BYTES_MIN).unwrap()
}

pub(crate) fn open(path: &Path) -> (DataDir, RocksStore, LogState) {
    let directory = open_directory(path);
    let (store, log) = RocksStore::open_in(&directory, budget(), CpuShare::whole()).unwrap();
    (directory, store, log)
}

/// A child that another test starts has this process's descriptors until it executes, and the lock with them.
fn open_directory(path: &Path) -> DataDir {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match DataDir::open(path, ClusterId(1)) {
            Err(DataDirError::Locked(_)) if Instant::now() < deadline => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

pub(crate) fn key(number: u32) -> Key {
    Key::new(Bytes::from(format!("key-{number:06}"))).unwrap()
}

/// Bytes that do not compress, different for every number.
pub(crate) fn noise(number: u32, length: usize) -> Bytes {
    let mut state = u64::from(number) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect::<Vec<u8>>().into()
}

/// What a `kill -9` leaves: the files as they are while the store is open, all of one moment. The engine makes and
/// removes some by itself, also where a flush finds no space: then the copy is made anew.
pub(crate) fn copy_live(from: &Path, to: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let before = lengths(from);
        if before.iter().try_for_each(|(file, _)| copy_file(from, to, file)).is_ok() && lengths(from) == before {
            return;
        }
        assert!(Instant::now() < deadline, "the files do not keep still");
        let _ = std::fs::remove_dir_all(to);
    }
}

fn copy_file(from: &Path, to: &Path, file: &Path) -> std::io::Result<()> {
    let target = to.join(file.strip_prefix(from).unwrap());
    std::fs::create_dir_all(target.parent().unwrap())?;
    std::fs::copy(file, target).map(|_| ())
}

/// All files below a directory but the locks, and their lengths; nothing of one that goes meanwhile.
fn lengths(directory: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => found.extend(lengths(&entry.path())),
            Ok(metadata) if entry.file_name() != "LOCK" => _ = found.insert(entry.path(), metadata.len()),
            _ => {}
        }
    }
    found
}

/// The files with this ending, oldest first.
pub(crate) fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("store")).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == ending));
    found.sort();
    found
}
