#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::store::Durability;
use kvorum_core::layout::{FoundedCluster, WantedNode};
use tempfile::{TempDir, tempdir};

const CLUSTER: ClusterId = ClusterId(0x1234);
const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);

fn open(directory: &TempDir) -> Result<DataDir, DataDirError> {
    DataDir::open(directory.path(), CLUSTER)
}

/// A peer with this directory.
fn met(directory: u128) -> PeerNote {
    PeerNote { directory: DirectoryId(directory), run: RunId(1), sequence: 10, knows_us: false }
}

fn file(directory: &TempDir, name: &str) -> PathBuf {
    directory.path().join(name)
}

#[test]
fn an_identity_is_drawn_once_and_kept() {
    let outer = tempdir().unwrap();
    let path = outer.path().join("a/b");
    let first = DataDir::open(&path, CLUSTER).unwrap();
    assert!(first.is_new());
    let id = first.id();
    drop(first);
    let second = DataDir::open(&path, CLUSTER).unwrap();
    assert!(!second.is_new());
    assert_eq!(second.id(), id);
    let other = DataDir::open(&outer.path().join("c"), CLUSTER).unwrap();
    assert_ne!(other.id(), id);
}

#[test]
fn a_second_user_is_refused_until_the_first_is_gone() {
    let directory = tempdir().unwrap();
    let first = open(&directory).unwrap();
    let error = open(&directory).unwrap_err();
    assert!(matches!(error, DataDirError::Locked(_)));
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(first);
    open(&directory).unwrap();
}

#[test]
fn a_directory_that_others_may_write_into_is_refused_and_left_alone() {
    let directory = tempdir().unwrap();
    for mode in [0o770, 0o707, 0o722] {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        let error = open(&directory).unwrap_err().to_string();
        assert!(error.contains(&format!("mode {mode:04o}")) && error.contains("chmod go-w"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    open(&directory).unwrap();
}

#[test]
fn the_cluster_of_a_directory_in_use_can_be_read() {
    let directory = tempdir().unwrap();
    assert!(matches!(DataDir::cluster_of(directory.path()), Err(DataDirError::Damaged(_))));
    let _open = open(&directory).unwrap();
    assert_eq!(DataDir::cluster_of(directory.path()).unwrap(), CLUSTER);
}

#[test]
fn what_was_promised_about_layouts_is_read_again_and_damage_to_it_is_found() {
    let directory = tempdir().unwrap();
    let data_dir = open(&directory).unwrap();
    assert!(data_dir.acceptor().unwrap().is_none());
    let acceptor = Acceptor::new(B, data_dir.id(), Layout::fixed_at(["http://a:1", "http://b:1"]).unwrap());
    data_dir.set_acceptor(&acceptor).unwrap();
    assert_eq!(data_dir.acceptor().unwrap(), Some(acceptor));
    drop(data_dir);
    let mut bytes = fs::read(file(&directory, "LAYOUT")).unwrap();
    bytes[3] ^= 1;
    fs::write(file(&directory, "LAYOUT"), bytes).unwrap();
    let damaged = open(&directory).unwrap().acceptor();
    assert!(matches!(damaged, Err(DataDirError::Damaged(path)) if path.ends_with("LAYOUT")));
}

#[test]
fn a_directory_that_knows_an_epoch_needs_no_list() {
    let directory = tempdir().unwrap();
    let data_dir = open(&directory).unwrap();
    let founding = Layout::founding(vec![WantedNode::at("http://a:1")]).unwrap();
    let founded =
        FoundedCluster { cluster: 9, hash_seed: 0, copies: 1, directories: [(NodeId(0), data_dir.id())].into() };
    let mut acceptor = Acceptor::new(NodeId(0), data_dir.id(), founding.clone());
    data_dir.set_acceptor(&acceptor).unwrap();
    drop(data_dir);
    let other = ClusterId(CLUSTER.0 + 1);
    assert!(matches!(DataDir::open(directory.path(), other), Err(DataDirError::OtherCluster { .. })));
    assert!(acceptor.learn(founding.found(&founded).unwrap()));
    open(&directory).unwrap().set_acceptor(&acceptor).unwrap();
    assert_eq!(DataDir::open(directory.path(), other).unwrap().acceptor().unwrap(), Some(acceptor));
}

#[test]
fn a_foreign_directory_is_refused_and_left_alone() {
    let directory = tempdir().unwrap();
    fs::write(file(&directory, "thesis.tex"), "years").unwrap();
    let error = open(&directory).unwrap_err();
    assert!(matches!(error, DataDirError::Foreign(_)));
    assert!(error.to_string().contains("not a kvorum data directory"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_without_its_format_is_foreign_not_new() {
    let directory = tempdir().unwrap();
    drop(open(&directory).unwrap());
    fs::create_dir(file(&directory, "store")).unwrap();
    fs::remove_file(file(&directory, "FORMAT")).unwrap();
    assert!(matches!(open(&directory).unwrap_err(), DataDirError::Foreign(_)));
}

#[test]
fn what_a_killed_first_start_left_is_taken_over() {
    let directory = tempdir().unwrap();
    drop(open(&directory).unwrap());
    fs::remove_file(file(&directory, "FORMAT")).unwrap();
    fs::write(file(&directory, "FORMAT.new"), "kvor").unwrap();
    fs::create_dir(file(&directory, "lost+found")).unwrap();
    assert!(open(&directory).unwrap().is_new());
    assert!(!open(&directory).unwrap().is_new());
}

#[test]
fn a_newer_format_is_refused_by_its_number() {
    let directory = tempdir().unwrap();
    drop(open(&directory).unwrap());
    fs::write(file(&directory, "FORMAT"), format!("{FORMAT_NAME}{}\n", FORMAT + 1)).unwrap();
    let error = open(&directory).unwrap_err();
    assert!(matches!(error, DataDirError::Newer { found, .. } if found == FORMAT + 1));
    assert!(error.to_string().contains("Run the newer build"), "{error}");
    fs::write(file(&directory, "FORMAT"), "nonsense\n").unwrap();
    assert!(matches!(open(&directory).unwrap_err(), DataDirError::Damaged(_)));
}

#[test]
fn an_older_format_is_taken_over() {
    let directory = tempdir().unwrap();
    let id = open(&directory).unwrap().id();
    let format = file(&directory, "FORMAT");
    for older in FORMAT_MIN..FORMAT {
        fs::write(&format, format!("{FORMAT_NAME}{older}\n")).unwrap();
        assert_eq!(open(&directory).unwrap().id(), id);
        assert_eq!(fs::read_to_string(&format).unwrap(), format!("{FORMAT_NAME}{FORMAT}\n"));
    }
}

#[test]
fn another_cluster_is_refused_with_both_ids() {
    let directory = tempdir().unwrap();
    drop(open(&directory).unwrap());
    let error = DataDir::open(directory.path(), ClusterId(0xabcd)).unwrap_err();
    assert!(matches!(error, DataDirError::OtherCluster { .. }));
    let text = error.to_string();
    assert!(text.contains("0000000000001234") && text.contains("000000000000abcd"), "{text}");
}

#[test]
fn a_flipped_bit_in_what_must_be_known_is_damage() {
    for name in ["IDENTITY", "PEERS", "REBUILT"] {
        let directory = tempdir().unwrap();
        let opened = open(&directory).unwrap();
        opened.remember(B, met(7)).unwrap();
        opened.set_rebuilt(5).unwrap();
        drop(opened);
        let whole = fs::read(file(&directory, name)).unwrap();
        for index in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[index] ^= 1;
            fs::write(file(&directory, name), &bytes).unwrap();
            let error = open(&directory).unwrap_err();
            assert!(matches!(error, DataDirError::Damaged(_)), "{name} {index}: {error}");
        }
        fs::write(file(&directory, name), &whole).unwrap();
        open(&directory).unwrap();
    }
    let directory = tempdir().unwrap();
    drop(open(&directory).unwrap());
    fs::remove_file(file(&directory, "IDENTITY")).unwrap();
    assert!(matches!(open(&directory).unwrap_err(), DataDirError::Damaged(_)));
}

#[test]
fn an_unreadable_directory_says_what_to_check() {
    let directory = tempdir().unwrap();
    // A file in the place of the directory: permissions would not stop root, who may run this.
    let path = file(&directory, "plain");
    fs::write(&path, "").unwrap();
    let error = DataDir::open(&path, CLUSTER).unwrap_err();
    assert!(matches!(error, DataDirError::Io { .. }));
    assert!(error.to_string().contains("Check that the path is right"), "{error}");
}

#[test]
fn peers_are_remembered_across_restarts() {
    let directory = tempdir().unwrap();
    let first = open(&directory).unwrap();
    assert_eq!(first.remembered(B), None);
    first.remember(B, met(1)).unwrap();
    first.remember(C, met(2)).unwrap();
    first.remember(B, met(3)).unwrap();
    assert_eq!(first.remembered(B), Some(met(3)));
    drop(first);
    let second = open(&directory).unwrap();
    assert_eq!(second.remembered(B), Some(met(3)));
    assert_eq!(second.remembered(C), Some(met(2)));
    let before = fs::metadata(file(&directory, "PEERS")).unwrap().modified().unwrap();
    second.remember(C, met(2)).unwrap();
    assert_eq!(fs::metadata(file(&directory, "PEERS")).unwrap().modified().unwrap(), before, "nothing new to write");
}

#[test]
fn a_connection_that_was_made_at_the_same_time_takes_nothing_back() {
    let directory = tempdir().unwrap();
    let node = open(&directory).unwrap();
    let heard = PeerNote { sequence: 9, knows_us: true, ..met(1) };
    node.remember(B, heard).unwrap();
    node.remember(B, PeerNote { sequence: 3, knows_us: false, ..heard }).unwrap();
    assert_eq!(node.remembered(B), Some(heard));
    drop(node);
    assert_eq!(open(&directory).unwrap().remembered(B), Some(heard));
}

#[test]
fn what_is_heard_of_a_peer_is_kept_once_it_is_persisted() {
    let directory = tempdir().unwrap();
    let node = open(&directory).unwrap();
    assert_eq!(node.update(B, |_| unreachable!()), None, "nobody to change");
    node.remember(B, met(1)).unwrap();
    let heard = PeerNote { run: RunId(u64::MAX), sequence: u64::MAX, knows_us: true, ..met(1) };
    assert_eq!(node.update(B, |note| *note = heard), Some(met(1)));
    assert_eq!(node.remembered(B), Some(heard));
    drop(node);
    let node = open(&directory).unwrap();
    assert_eq!(node.remembered(B), Some(met(1)), "not persisted yet");
    node.update(B, |note| *note = heard);
    fs::create_dir(file(&directory, "PEERS.new")).unwrap();
    node.persist_peers().unwrap_err();
    fs::remove_dir(file(&directory, "PEERS.new")).unwrap();
    node.persist_peers().unwrap();
    drop(node);
    let node = open(&directory).unwrap();
    assert_eq!(node.remembered(B), Some(heard), "a failure is tried again");
    let before = fs::metadata(file(&directory, "PEERS")).unwrap().modified().unwrap();
    node.persist_peers().unwrap();
    assert_eq!(fs::metadata(file(&directory, "PEERS")).unwrap().modified().unwrap(), before, "nothing new to write");
}

#[test]
fn each_run_is_another_and_less_than_an_earlier_one_had_is_a_loss() {
    let directory = tempdir().unwrap();
    let first = open(&directory).unwrap().runs(0).present();
    let second = open(&directory).unwrap().runs(0).present();
    assert_ne!(first, second, "two draws of 64 bits");
    let note = met(1);
    assert!(note.misses(Run { id: RunId(2), recovered: 9 }));
    assert!(!note.misses(Run { id: RunId(2), recovered: 10 }));
    assert!(!note.misses(Run { id: note.run, recovered: 9 }), "it had less when it began, and got further since");
}

#[test]
fn an_unsynced_run_that_the_machine_did_not_survive_is_a_loss() {
    let directory = tempdir().unwrap();
    let running = file(&directory, "RUNNING");
    let node = open(&directory).unwrap();
    for _ in 0..2 {
        node.begin_run(Durability::Os).unwrap();
        assert_eq!(fs::read(&running).unwrap(), fs::read(BOOT_ID).unwrap());
    }
    assert_eq!(node.rebuilding().unwrap(), None, "the process died and the machine did not");
    node.begin_run(Durability::Fsync).unwrap();
    assert!(running.exists(), "what the run before left unsynced still is");
    node.end_run().unwrap();
    node.end_run().unwrap();
    node.begin_run(Durability::Fsync).unwrap();
    assert!(!running.exists());
    assert_eq!(node.rebuilding().unwrap(), None);
    for durability in [Durability::Os, Durability::Fsync] {
        let directory = tempdir().unwrap();
        let running = file(&directory, "RUNNING");
        let node = open(&directory).unwrap();
        fs::write(&running, "00000000-0000-4000-8000-000000000000\n").unwrap();
        node.begin_run(durability).unwrap();
        assert!(node.rebuilding().unwrap().unwrap().contains("durability = \"os\""));
        assert_eq!(running.exists(), durability == Durability::Os);
    }
}

#[test]
fn what_was_remembered_by_url_is_remembered_of_a_node() {
    let directory = tempdir().unwrap();
    drop(open(&directory).unwrap());
    let older = with_checksum("0000002a 0000000000000001 10 met http://b:8080\n");
    fs::write(file(&directory, "PEERS"), older).unwrap();
    for _ in 0..2 {
        let node = open(&directory).unwrap();
        assert_eq!(node.remembered(B), None);
        node.name_peer("http://b:8080", B);
        node.name_peer("http://c:8080", C);
        assert_eq!((node.remembered(B), node.remembered(C)), (Some(met(42)), None));
    }
    let node = open(&directory).unwrap();
    node.name_peer("http://b:8080", B);
    node.persist_peers().unwrap();
    drop(node);
    assert_eq!(open(&directory).unwrap().remembered(B), Some(met(42)));
}

#[test]
fn the_number_of_an_older_directory_stays() {
    let directory = tempdir().unwrap();
    drop(open(&directory).unwrap());
    let older = with_checksum(&format!("cluster {CLUSTER}\nincarnation 0000002a\n"));
    fs::write(file(&directory, "IDENTITY"), older).unwrap();
    assert_eq!(open(&directory).unwrap().id(), DirectoryId(42));
}

#[test]
fn what_cannot_be_written_is_not_remembered() {
    let directory = tempdir().unwrap();
    let node = open(&directory).unwrap();
    // Nothing can be renamed over a directory that is not empty.
    fs::create_dir_all(file(&directory, "PEERS/x")).unwrap();
    assert!(node.remember(B, met(1)).is_err());
    assert_eq!(node.remembered(B), None);
}

#[test]
fn the_first_reason_for_rebuilding_is_kept_across_restarts() {
    let directory = tempdir().unwrap();
    let first = open(&directory).unwrap();
    assert_eq!(first.rebuilding().unwrap(), None);
    first.set_rebuilding("the log\nended early").unwrap();
    first.set_rebuilding("something else").unwrap();
    drop(first);
    assert_eq!(open(&directory).unwrap().rebuilding().unwrap().as_deref(), Some("the log ended early"));
}

#[test]
fn the_marker_tells_a_whole_log_from_a_shortened_one() {
    let directory = tempdir().unwrap();
    let node = open(&directory).unwrap();
    let (marker, log) = node.sync_marker(0).unwrap();
    assert_eq!(log, LogState::Whole, "a new directory has lost nothing");
    marker.write(100).unwrap();
    marker.write(120).unwrap();
    drop((marker, node));
    let node = open(&directory).unwrap();
    assert_eq!(node.sync_marker(120).unwrap().1, LogState::Whole);
    assert_eq!(node.sync_marker(121).unwrap().1, LogState::Whole, "what was not synced may be there too");
    let log = node.sync_marker(119).unwrap().1;
    assert_eq!(log, LogState::Shortened { synced: 120, recovered: 119 });
    assert!(log.loss().unwrap().contains("119"));
}

#[test]
fn a_marker_that_is_missing_or_damaged_is_no_proof() {
    let directory = tempdir().unwrap();
    let node = open(&directory).unwrap();
    node.sync_marker(0).unwrap().0.write(5).unwrap();
    let path = file(&directory, "SYNCED");
    let whole = fs::read(&path).unwrap();
    for index in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[index] ^= 0x40;
        fs::write(&path, bytes).unwrap();
        assert_eq!(node.sync_marker(5).unwrap().1, LogState::Unknown, "{index}");
    }
    fs::write(&path, &whole[..7]).unwrap();
    assert_eq!(node.sync_marker(5).unwrap().1, LogState::Unknown);
    fs::remove_file(&path).unwrap();
    let (_, log) = node.sync_marker(5).unwrap();
    assert_eq!(log, LogState::Unknown);
    assert!(log.loss().is_some());
}
