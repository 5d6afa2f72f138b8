//! `kvorum backup` and `kvorum restore` on real nodes.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::cluster::{rewrite, split_record};
use crate::support::skew::Clocks;
use crate::support::{Cluster, SOON, entity, entity_at, kvorum, wait_for, wait_until, wait_within};

/// A round covers what is older than the deadline and half a second, and a lost vote comes back only when clocks have
/// gone `skew_max` on; neither hints nor automatic rounds help.
const SETTINGS: [(&str, &str); 4] = [
    ("KVORUM_COORDINATOR_DEADLINE", "1s"),
    ("KVORUM_REPAIR_INTERVAL", "24h"),
    ("KVORUM_CLOCK_SKEW_MAX", "1s"),
    ("KVORUM_HINTS_BYTES_MAX", "0"),
];

fn backup(cluster: &Cluster, index: usize, name: &str) -> (PathBuf, Output) {
    let (path, url) = (cluster.root().join(name), cluster.node(index).url());
    let output = backup_of(&cluster.node(index).data_dir, &url, &path, &[]);
    (path, output)
}

/// `kvorum backup` of what a URL answers, out of this data directory.
fn backup_of(data_dir: &Path, url: &str, path: &Path, more: &[&str]) -> Output {
    let mut command = kvorum();
    command.arg("backup").arg(path).arg("--data-dir").arg(data_dir).args(["--url", url]).args(more).output().unwrap()
}

/// `kvorum restore` with what `serve` is started with, and these arguments behind.
fn restore(cluster: &Cluster, index: usize, backup: &Path, more: &[&str]) -> Output {
    let serve = cluster.serve(index);
    let mut command = kvorum();
    command.arg("restore").arg(backup).args(serve.get_args().skip(1)).args(more).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn assert_done(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
}

#[track_caller]
fn assert_refused(output: &Output, why: &str) {
    assert_eq!(output.status.code(), Some(2), "{}", said(output));
    assert!(said(output).contains(why), "{}", said(output));
}

const SECOND: Duration = Duration::from_secs(1);

fn value(number: usize) -> Vec<u8> {
    format!("value {number}").into_bytes()
}

#[test]
fn a_backup_taken_under_load_has_what_was_acknowledged_before_and_repair_makes_a_restored_node_whole() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    let mut client = cluster.client(0);
    for number in 0..200 {
        client.put(&entity_at(format!("k{number:04}"), 3, 3), &value(number));
    }
    let stop = AtomicBool::new(false);
    let (path, output) = std::thread::scope(|scope| {
        let writers = (1..3).map(|index| {
            let (cluster, stop) = (&cluster, &stop);
            scope.spawn(move || {
                let mut client = cluster.client(index);
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    client.put(&entity(format!("other {index} {number}")), b"v");
                    number += 1;
                }
                number
            })
        });
        let writers: Vec<_> = writers.collect();
        let taken = backup(&cluster, 2, "monday");
        stop.store(true, Ordering::Relaxed);
        assert!(writers.into_iter().all(|writer| writer.join().unwrap() > 0), "the node took writes meanwhile");
        taken
    });
    assert_done(&output);
    assert!(path.join("BACKUP").exists() && !cluster.node(2).data_dir.join("backup").exists(), "it was moved");
    client.put(&entity_at("after", 3, 3), b"v");

    assert_refused(&restore(&cluster, 2, &path, &[]), "is in use or has data");
    cluster.kill(2);
    assert_refused(&restore(&cluster, 2, &path, &[]), "is in use or has data");
    std::fs::remove_dir_all(&cluster.node(2).data_dir).unwrap();
    assert_done(&restore(&cluster, 2, &path, &[]));
    cluster.spawn(2);
    let held: BTreeMap<String, String> = wait_for("the restored node serves its range", || {
        let response = cluster.client(2).send("GET", "/v0/entities?start=k&end=l", &[], None).ok()?;
        let chunks = response.chunks.filter(|_| response.status == 200)?;
        Some(chunks.iter().map(|chunk| split_record(chunk)).collect())
    });
    let expected = (0..200).map(|number| (format!("k{number:04}"), String::from_utf8(value(number)).unwrap()));
    assert_eq!(held, expected.collect());
    wait_until("the restored node says so", || cluster.status_text(2).contains("restored from a backup of"));
    cluster.wait_connected(0, 2);
    // Nothing that needs its vote succeeds; what does not need it goes on.
    let problem = client.ok("GET", &entity_at("after", 3, 3), None).problem(504);
    assert!(problem["replicas"].to_string().contains("rebuilding"), "{problem}");
    assert_eq!(client.value(&entity("after")), b"v");
    wait_within(3 * SOON, "repair gives it back what the others have, and its vote", || {
        let url = cluster.node(0).url();
        kvorum().args(["repair", "--wait", "--url", &url]).output().expect("the binary runs");
        (client.ok("GET", &entity_at("after", 3, 3), None).status == 200).then_some(())
    });
    for index in 0..2 {
        assert_eq!(cluster.local(index, "a"), cluster.local(2, "a"), "nodes {index} and 2 hold the same");
    }
}

#[test]
fn a_whole_cluster_is_restored_to_its_backups() {
    let mut cluster = Cluster::start(3);
    let mut client = cluster.client(0);
    for number in 0..50 {
        client.put(&entity_at(format!("k{number}"), 3, 3), &value(number));
    }
    client.delete(&entity_at("k7", 3, 3));
    let paths: Vec<PathBuf> = (0..3)
        .map(|index| {
            let (path, output) = backup(&cluster, index, &format!("backup-{index}"));
            assert_done(&output);
            path
        })
        .collect();
    client.put(&entity_at("given up", 3, 3), b"v");
    cluster.kill_all();
    for (index, path) in paths.iter().enumerate() {
        std::fs::remove_dir_all(&cluster.node(index).data_dir).unwrap();
        assert_done(&restore(&cluster, index, path, &["--whole-cluster"]));
        cluster.spawn(index);
    }
    cluster.wait_whole();
    let mut client = cluster.client(1);
    for number in (0..50).filter(|number| *number != 7) {
        assert_eq!(client.value(&entity(format!("k{number}"))), value(number));
    }
    client.absent(&entity("k7"));
    client.absent(&entity("given up"));
    client.put(&entity_at("k7", 3, 3), b"again");
    // The backups are as they were, and good for another time.
    cluster.kill_all();
    std::fs::remove_dir_all(&cluster.node(0).data_dir).unwrap();
    assert_done(&restore(&cluster, 0, &paths[0], &[]));
}

#[test]
fn restore_refuses_other_clusters_other_nodes_and_what_is_no_backup() {
    let cluster = Cluster::start(2);
    let (path, output) = backup(&cluster, 0, "of-0");
    assert_done(&output);
    let other = Cluster::prepare(2, &[]);
    assert_refused(&restore(&other, 0, &path, &[]), "clusters are never mixed");
    let mut wrong_node = Cluster::prepare(2, &[]);
    let list = (0..2).map(|index| cluster.node(index).url()).collect::<Vec<_>>().join(",");
    wrong_node.set_list(0, list);
    let url = cluster.node(1).url();
    assert_refused(&restore(&wrong_node, 0, &path, &["--advertise", &url]), "its keys belong there");
    let half = cluster.root().join("half");
    std::fs::create_dir(&half).unwrap();
    assert_refused(&restore(&other, 0, &half, &[]), "is no complete backup");
    rewrite(&path.join("BACKUP"), |bytes| bytes[40] ^= 1);
    assert_refused(&restore(&other, 0, &path, &[]), "is no complete backup");
    assert!(!other.node(0).data_dir.exists() && !wrong_node.node(0).data_dir.exists(), "nothing was left");
}

#[test]
fn a_backup_into_what_exists_is_refused_and_one_that_nobody_fetched_is_replaced_and_after_an_hour_gone() {
    let mut cluster = Cluster::prepare(1, &[]);
    let clocks = Clocks::prepare(&mut cluster);
    cluster.spawn_all();
    cluster.wait_whole();
    cluster.client(0).put(&entity("k"), b"v");
    let existing = cluster.root().join("existing");
    std::fs::create_dir(&existing).unwrap();
    let (_, output) = backup(&cluster, 0, "existing");
    assert_refused(&output, "exists");
    for round in 0..2 {
        clocks.set(0, 61 * SECOND * round);
        let taken = cluster.client(0).ok("POST", "/v0/backup", None);
        assert_eq!(taken.status, 200, "{taken:?}");
        assert_eq!(taken.json()["node"], cluster.node(0).url());
        let again = cluster.client(0).ok("POST", "/v0/backup", None).problem(503);
        assert!(again["detail"].to_string().contains("less than a minute ago"), "{again}");
    }
    let left = cluster.node(0).data_dir.join("backup");
    assert!(left.join("BACKUP").exists());
    clocks.set(0, 122 * SECOND);
    assert_eq!(backup(&cluster, 0, "fetched").1.status.code(), Some(0));
    assert!(!left.exists());
    clocks.set(0, 183 * SECOND);
    assert_eq!(cluster.client(0).ok("POST", "/v0/backup", None).status, 200);
    assert!(left.exists());
    clocks.set(0, 4000 * SECOND);
    wait_until("what nobody has fetched for an hour is gone", || !left.exists());
}

#[test]
fn what_answers_at_the_url_names_no_path_and_no_link_is_followed() {
    let mut cluster = Cluster::prepare(2, &[]);
    let clocks = Clocks::prepare(&mut cluster);
    cluster.spawn_all();
    cluster.wait_whole();
    // A node takes one backup a minute.
    let minute_later = |minutes: u32| (0..2).for_each(|index| clocks.set(index, 61 * SECOND * minutes));
    let [one, other] = [0, 1].map(|index| cluster.node(index));
    let path = cluster.root().join("taken");
    // The answer of another node, whose backup is not here. What holds the port could name any path.
    let output = backup_of(&one.data_dir, &other.url(), &path, &[]);
    assert_refused(&output, "is not in");
    let theirs = other.data_dir.join("backup");
    assert!(theirs.join("BACKUP").exists() && !path.exists(), "the path of the answer was used");
    // An older backup of this node is not what the answer describes either.
    assert_eq!(cluster.client(0).ok("POST", "/v0/backup", None).status, 200);
    minute_later(1);
    assert_refused(&backup_of(&one.data_dir, &other.url(), &path, &[]), "is it another node's directory?");
    // A link in the backup's place leads nowhere.
    let mine = one.data_dir.join("backup");
    std::fs::remove_dir_all(&mine).unwrap();
    std::os::unix::fs::symlink(&theirs, &mine).unwrap();
    minute_later(2);
    assert_refused(&backup_of(&one.data_dir, &other.url(), &path, &[]), "is not in");
    assert!(theirs.join("BACKUP").exists() && !path.exists());
    assert_refused(&backup_of(cluster.root(), &one.url(), &path, &[]), "is not the data directory of a node");
}

#[test]
fn a_copied_backup_shares_no_file_with_its_node_and_all_is_the_owners_alone() {
    let mut cluster = Cluster::prepare(1, &[]);
    let clocks = Clocks::prepare(&mut cluster);
    cluster.spawn_all();
    cluster.wait_whole();
    let data_dir = &cluster.node(0).data_dir;
    for round in 0..2 {
        clocks.set(0, 61 * SECOND * round);
        cluster.client(0).put(&entity("k"), &vec![b'v'; 1000]);
        let path = cluster.root().join(format!("taken-{round}"));
        let more: &[&str] = if round == 0 { &[] } else { &["--copy"] };
        assert_done(&backup_of(data_dir, &cluster.node(0).url(), &path, more));
        let mut tables = 0;
        for entry in std::fs::read_dir(path.join("store")).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            assert_eq!(metadata.mode() & 0o077, 0, "{}", entry.path().display());
            if entry.path().extension().is_some_and(|extension| extension == "sst") {
                assert_eq!(metadata.nlink() > 1, round == 0, "{}", entry.path().display());
                tables += 1;
            }
        }
        assert!(tables > 0 && !data_dir.join("backup").exists());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o077, 0);
    }
    for entry in std::fs::read_dir(data_dir).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o077, 0, "{}", entry.path().display());
    }
}
