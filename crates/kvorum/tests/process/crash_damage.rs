//! Damaged, shortened and lost data directories: never a wrong answer, never a wrong vote.

use std::path::Path;

use crate::support::cluster::{flip, live_log, rewrite};
use crate::support::random::Random;
use crate::support::{Cluster, entity, entity_at, wait_until};

fn is_rebuilding(cluster: &Cluster, index: usize) -> bool {
    cluster.status_text(index).to_lowercase().contains("rebuild")
}

/// A value that no compressor shortens and no other file contains by chance.
fn value(seed: u64) -> Vec<u8> {
    Random::new(seed).bytes(200)
}

#[test]
fn a_flipped_bit_in_a_table_is_never_served_and_is_repaired() {
    let mut cluster = Cluster::start(3);
    let value = value(1);
    cluster.client(0).put(&entity_at("k", 3, 3), &value);
    // Twice: what was in the log at the first start is in a table at the second.
    for _ in 0..2 {
        assert!(cluster.terminate(2).success());
        cluster.restart(2);
    }
    cluster.kill(2);
    flip(&cluster.node(2).data_dir.clone(), &value, "sst");
    cluster.restart(2);
    cluster.wait_whole();
    for index in 0..3 {
        assert!(cluster.client(index).value(&entity("k")) == value, "a quorum has it, through node {index}");
    }
    let mut client = cluster.client(2);
    wait_until("the damaged replica is mended by what readers write back", || {
        let response = client.get(&entity_at("k", 3, 3));
        assert!(response.status == 504 || response.body == value, "damage was served: {response:?}");
        response.status == 200
    });
    let met: f64 = (0..3).map(|index| cluster.metric(index, "kvorum_coordinator_corrupt_answers_total")).sum();
    assert!(met > 0.0, "the damage was not counted");
    // The damaged block is there until it is compacted away: a range over it may break off, but not lie.
    if let Ok(response) = cluster.client(2).send("GET", "/v0/entities?start=k&end=l", &[], None) {
        let chunks = response.chunks.clone().unwrap_or_default();
        assert!(response.status >= 500 || chunks.iter().all(|chunk| chunk[2..] == value[..]), "{response:?}");
    }
}

#[test]
fn a_node_alone_with_damage_refuses_rather_than_lies() {
    let mut cluster = Cluster::start(1);
    let value = value(2);
    cluster.client(0).put(&entity("k"), &value);
    for _ in 0..2 {
        assert!(cluster.terminate(0).success());
        cluster.restart(0);
    }
    cluster.kill(0);
    flip(&cluster.node(0).data_dir.clone(), &value, "sst");
    cluster.restart(0);
    let mut client = cluster.client(0);
    for _ in 0..100 {
        client.get(&entity("k")).problem(504);
    }
    let log = cluster.log(0);
    let said = log.lines().filter(|line| line.contains("is damaged")).count();
    assert!((1..50).contains(&said), "reads of damage are not a line each: {said}");
    assert_eq!(client.ok("HEAD", &entity("k"), None).status, 504);
    client.put(&entity("other"), b"v");
    assert_eq!(client.value(&entity("other")), b"v", "the damage is that of one block");
}

#[test]
fn a_flipped_bit_in_the_live_log_makes_the_node_rebuild() {
    let mut cluster = Cluster::start(3);
    let damaged = value(3);
    for number in 0..50 {
        cluster.client(0).put(&entity_at(format!("before-{number}"), 3, 3), b"v");
    }
    cluster.client(0).put(&entity_at("damaged", 3, 3), &damaged);
    for number in 0..50 {
        cluster.client(0).put(&entity_at(format!("after-{number}"), 3, 3), b"v");
    }
    cluster.kill(2);
    flip(&cluster.node(2).data_dir.clone(), &damaged, "log");
    cluster.restart(2);
    for key in ["before-49", "damaged", "after-49"] {
        let expected = if key == "damaged" { damaged.clone() } else { b"v".to_vec() };
        for index in 0..3 {
            assert!(cluster.client(index).value(&entity(key)) == expected, "{key} through node {index}");
        }
    }
    assert!(is_rebuilding(&cluster, 2), "{}", cluster.status_text(2));
    counts_for_nothing(&mut cluster, 2, "after-49");
}

#[test]
fn a_log_shorter_than_what_was_synced_makes_the_node_rebuild() {
    let mut cluster = Cluster::start(3);
    for number in 0..200 {
        cluster.client(0).put(&entity_at(format!("k{number}"), 3, 3), &value(number));
    }
    cluster.kill(2);
    let log = live_log(&cluster.node(2).data_dir);
    rewrite(&log, |content| content.truncate(content.len() / 2));
    cluster.restart(2);
    wait_until("the node has found the loss", || is_rebuilding(&cluster, 2));
    for index in 0..3 {
        assert!(cluster.client(index).value(&entity("k199")) == value(199));
    }
    counts_for_nothing(&mut cluster, 2, "k199");
}

#[test]
fn a_torn_tail_is_cut_off_and_costs_nothing() {
    let mut cluster = Cluster::start(3);
    for number in 0..50 {
        cluster.client(0).put(&entity_at(format!("k{number}"), 3, 3), &value(number));
    }
    cluster.kill(2);
    let log = live_log(&cluster.node(2).data_dir);
    // The beginning of a commit that never became whole: half of a copy of the last bytes.
    rewrite(&log, |content| {
        let tail = content[content.len() - 150..].to_vec();
        content.extend_from_slice(&tail[..75]);
    });
    cluster.kill(1);
    cluster.restart(2);
    cluster.wait_answers(0, 2);
    assert!(!is_rebuilding(&cluster, 2), "{}", cluster.status_text(2));
    for number in 0..50 {
        assert!(cluster.client(2).value(&entity(format!("k{number}"))) == value(number));
    }
}

#[test]
fn a_wiped_data_directory_votes_for_nothing() {
    let mut cluster = Cluster::start(3);
    cluster.client(0).put(&entity_at("k", 2, 3), b"v");
    cluster.client(0).put(&entity_at("k", 3, 3), b"v");
    cluster.kill(2);
    std::fs::remove_dir_all(&cluster.node(2).data_dir).unwrap();
    cluster.restart(2);
    wait_until("its peers report the loss", || is_rebuilding(&cluster, 2));
    for index in 0..3 {
        assert_eq!(cluster.client(index).value(&entity("k")), b"v", "the two others are a quorum");
    }
    counts_for_nothing(&mut cluster, 2, "k");
    // Nor after a restart, with a directory that is now its own.
    cluster.kill(2);
    cluster.restart(2);
    wait_until("it still rebuilds", || is_rebuilding(&cluster, 2));
    counts_for_nothing(&mut cluster, 2, "k");
}

#[test]
fn a_directory_restored_from_before_votes_for_nothing() {
    let mut cluster = Cluster::start(3);
    cluster.client(0).put(&entity_at("k", 3, 3), b"old");
    assert!(cluster.terminate(1).success());
    let (directory, backup) = (cluster.node(1).data_dir.clone(), cluster.root().join("backup"));
    copy(&directory, &backup);
    cluster.restart(1);
    cluster.wait_whole();
    // Acknowledged by node 1 and by node 0 or 2: what is left of that quorum cannot outvote it alone.
    for number in 0..20 {
        cluster.client(1).put(&entity_at(format!("since {number}"), 3, 3), b"v");
    }
    cluster.client(1).put(&entity_at("k", 2, 3), b"new");
    let stored = cluster.metric(1, "kvorum_store_sequence");
    let heard = format!("kvorum_peer_sequence{{peer=\"{}\"}}", cluster.node(1).url());
    for index in [0, 2] {
        wait_until("the others have received how far it got", || cluster.metric(index, &heard) >= stored);
    }
    cluster.kill(1);
    std::fs::remove_dir_all(&directory).unwrap();
    copy(&backup, &directory);
    cluster.restart(1);
    wait_until("its peers report the loss", || is_rebuilding(&cluster, 1));
    for index in 0..3 {
        assert_eq!(cluster.client(index).value(&entity("k")), b"new", "the two others are a quorum");
    }
    counts_for_nothing(&mut cluster, 1, "k");
    // Nor after a restart, with a store that has got further since.
    cluster.kill(1);
    cluster.restart(1);
    wait_until("it still rebuilds", || is_rebuilding(&cluster, 1));
    counts_for_nothing(&mut cluster, 1, "k");
}

#[test]
fn a_directory_put_back_as_it_was_votes_again() {
    let mut cluster = Cluster::start(3);
    cluster.client(0).put(&entity_at("k", 3, 3), b"v");
    assert!(cluster.terminate(1).success());
    let (directory, aside) = (cluster.node(1).data_dir.clone(), cluster.root().join("aside"));
    std::fs::rename(&directory, &aside).unwrap();
    cluster.restart(1);
    wait_until("the empty one is noticed", || is_rebuilding(&cluster, 1));
    assert!(cluster.terminate(1).success());
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::rename(&aside, &directory).unwrap();
    cluster.restart(1);
    cluster.kill(2);
    cluster.wait_answers(0, 2);
    assert_eq!(cluster.client(1).value(&entity("k")), b"v");
}

#[test]
fn an_unsynced_log_that_the_machine_did_not_survive_makes_the_node_rebuild() {
    let mut cluster = Cluster::with(3, &[("KVORUM_DURABILITY", "os")]);
    cluster.client(0).put(&entity_at("k", 3, 3), b"v");
    let running = cluster.node(2).data_dir.join("RUNNING");
    cluster.kill(2);
    assert!(running.exists());
    cluster.restart(2);
    assert!(!is_rebuilding(&cluster, 2), "the machine has what the process wrote");
    assert!(cluster.terminate(2).success());
    assert!(!running.exists(), "everything is on the disk");
    cluster.restart(2);
    cluster.kill(2);
    // As it would be after a loss of power: another boot, and a marker no further than the log.
    std::fs::write(&running, "00000000-0000-4000-8000-000000000000\n").unwrap();
    cluster.restart(2);
    assert!(is_rebuilding(&cluster, 2), "{}", cluster.status_text(2));
    counts_for_nothing(&mut cluster, 2, "k");
}

#[test]
fn a_cluster_that_starts_for_the_first_time_does_not_rebuild() {
    let mut cluster = Cluster::start(3);
    for index in 0..3 {
        assert!(!is_rebuilding(&cluster, index), "{}", cluster.status_text(index));
    }
    cluster.kill_all();
    cluster.spawn_all();
    cluster.wait_whole();
    for index in 0..3 {
        assert!(!is_rebuilding(&cluster, index), "{}", cluster.status_text(index));
    }
}

/// Kills another node: what is left is one vote and one that must not vote, and no quorum.
fn counts_for_nothing(cluster: &mut Cluster, rebuilding: usize, key: &str) {
    let (left, away) = ((rebuilding + 1) % 3, (rebuilding + 2) % 3);
    cluster.kill(away);
    for index in [left, rebuilding] {
        let mut client = cluster.client(index);
        client.get(&entity(key)).problem(504);
        client.get(&entity("never written")).problem(504);
        client.ok("PUT", &entity("new"), Some(b"v")).problem(504);
    }
    cluster.restart(away);
    wait_until("two that remember are a quorum again", || cluster.client(left).get(&entity(key)).status == 200);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
