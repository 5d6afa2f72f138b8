//! What a restored directory keeps of what was proven, and what not.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_base::cpu_share::CpuShare;
use kvorum_core::Hlc;
use kvorum_core::partitions::PartitionSet;
use kvorum_engine_rocksdb::RocksStore;
use kvorum_engine_rocksdb::backup::{BackupError, Label, Scope, restore, take};
use kvorum_storage::budget::MemoryBudget;
use kvorum_storage::commit::{CommitConfig, Committer, Completion, CompletionToken, Promise, Work};
use kvorum_storage::data_dir::{ClusterId, DataDir};
use kvorum_storage::{Durability, Store};

const CLUSTER: ClusterId = ClusterId(7);
const NODE: &str = "http://a:1";
const PROVEN: Hlc = Hlc::from_millis(5000);

fn open(path: &Path) -> (DataDir, Arc<RocksStore>, Committer<RocksStore>) {
    let directory = DataDir::open(path, CLUSTER).unwrap();
    let (store, _) =
        RocksStore::open_in(&directory, MemoryBudget::new(MemoryBudget::BYTES_MIN).unwrap(), CpuShare::whole())
            .unwrap();
    let store = Arc::new(store);
    let config = CommitConfig {
        retention: Duration::from_secs(1),
        recent_entries_max: 10,
        skew_max: Duration::from_secs(60),
        bound_lead: Duration::from_secs(1),
        batch_bytes_max: 1 << 20,
        durability: Durability::Fsync,
    };
    let committer = Committer::new(store.clone(), config, Duration::ZERO).unwrap();
    (directory, store, committer)
}

/// A backup of a node in its fifth epoch, with all partitions proven converged.
fn backup(path: &Path) -> std::path::PathBuf {
    let (_directory, store, mut committer) = open(path);
    let promises = [Promise::GcWatermarks(PartitionSet::all(), PROVEN), Promise::Bar(5)];
    let token = CompletionToken { shard: 0, id: 0 };
    let mut works: Vec<_> = promises.map(|promise| Work::MakeDurable { promise, token }).into();
    let mut done = Vec::new();
    committer.run(&mut works, Duration::ZERO, 6000, &mut done);
    assert!(done.iter().all(|done| matches!(done, Completion::MadeDurable { result: Ok(()), .. })) && done.len() == 2);
    let label = Label { cluster: CLUSTER, node: NODE.to_owned(), wall_ms: 6000, sequence: store.sequence() };
    take(path, &store, &label).unwrap()
}

#[test]
fn one_restored_node_keeps_what_was_proven_and_a_restored_cluster_does_not() {
    let root = tempfile::tempdir().unwrap();
    let backup = backup(&root.path().join("live"));
    for (scope, gc_watermark, votes) in [(Scope::Node, PROVEN, false), (Scope::Cluster, Hlc::ZERO, true)] {
        let path = root.path().join(format!("{scope:?}"));
        restore(&backup, &path, CLUSTER, NODE, scope).unwrap();
        let (directory, store, committer) = open(&path);
        let bar = committer.bar().load(Ordering::Relaxed);
        assert_eq!(bar, if votes { 0 } else { 5 }, "a restored cluster is founded again");
        assert_eq!(store.gc_watermarks().bounds(), (gc_watermark, gc_watermark), "{scope:?}");
        assert_eq!(directory.rebuilding().unwrap().is_none(), votes, "{scope:?}");
    }
}

#[test]
fn a_backup_that_lacks_what_it_says_is_refused_and_leaves_nothing_that_votes() {
    let root = tempfile::tempdir().unwrap();
    let backup = backup(&root.path().join("live"));
    let logs = std::fs::read_dir(backup.join("store")).unwrap().map(|entry| entry.unwrap().path());
    logs.filter(|path| path.extension().is_some_and(|kind| kind == "log" || kind == "sst"))
        .for_each(|path| std::fs::remove_file(path).unwrap());
    let path = root.path().join("restored");
    let error = restore(&backup, &path, CLUSTER, NODE, Scope::Cluster).unwrap_err();
    assert!(matches!(error, BackupError::Damaged { .. } | BackupError::Open(_)), "{error}");
    assert!(DataDir::open(&path, CLUSTER).unwrap().rebuilding().unwrap().is_some());
}
