//! What a node misses while it is away reaches it when it is back, without a read and without a repair.

use std::time::{Duration, Instant};

use crate::support::cluster::flip;
use crate::support::random::Random;
use crate::support::skew::Clocks;
use crate::support::{Cluster, entity, entity_at, wait_until};

const AWAY: usize = 2;

/// What a node holds itself, in the order of keys.
fn held(cluster: &Cluster, index: usize) -> Vec<(String, String)> {
    cluster.local(index, "k")
}

fn wait_for_hints(cluster: &Cluster, index: usize, hints: usize) {
    wait_until("the hints are kept", || cluster.metric(index, "kvorum_hints_kept_total") >= hints as f64);
}

fn wait_delivered(cluster: &Cluster, index: usize) {
    wait_until("the hints are delivered", || cluster.metric(index, "kvorum_hints_pending") == 0.0);
}

/// Values, new and changed, and deletions, through two nodes while the third is away.
fn change_while_away(cluster: &Cluster) {
    let mut clients = [cluster.client(0), cluster.client(1)];
    for number in 0..300 {
        let client = &mut clients[number % 2];
        let target = entity_at(format!("k{number:03}"), 2, 3);
        if number % 3 == 0 {
            client.delete(&target);
        } else {
            client.put(&target, format!("new {number}").as_bytes());
        }
    }
}

fn fill(cluster: &Cluster) {
    let mut client = cluster.client(0);
    for number in 0..200 {
        client.put(&entity_at(format!("k{number:03}"), 3, 3), b"old");
    }
}

#[test]
fn a_node_that_was_away_gets_every_write_and_deletion() {
    let mut cluster = Cluster::start(3);
    fill(&cluster);
    cluster.kill(AWAY);
    change_while_away(&cluster);
    (0..2).for_each(|index| wait_for_hints(&cluster, index, 150));
    let page: serde_json::Value = serde_json::from_str(&cluster.client(0).get("/v0/cluster").text()).unwrap();
    let url = cluster.node(AWAY).url();
    let entry = page["nodes"].as_array().unwrap().iter().find(|node| node["url"] == url.as_str()).unwrap();
    assert_eq!((entry["hints"].as_u64(), entry["state"].as_str()), (Some(150), Some("down")), "{page}");
    assert!(cluster.status_text(0).lines().any(|line| line.starts_with(&url) && line.ends_with("150")));

    cluster.restart(AWAY);
    let expected = held(&cluster, 0);
    assert_eq!(expected.len(), 200);
    wait_until("it holds what the others hold", || held(&cluster, AWAY) == expected);
    for index in 0..2 {
        wait_delivered(&cluster, index);
        assert_eq!(cluster.metric(index, "kvorum_hints_delivered_total"), 150.0);
        assert_eq!(cluster.metric(index, "kvorum_hints_dropped_total"), 0.0);
    }
    assert_eq!(cluster.metric(AWAY, "kvorum_hints_kept_total"), 0.0);
}

#[test]
fn hints_survive_the_death_of_the_node_that_keeps_them() {
    let mut cluster = Cluster::start(3);
    fill(&cluster);
    cluster.kill(AWAY);
    change_while_away(&cluster);
    for index in 0..2 {
        wait_for_hints(&cluster, index, 150);
        cluster.kill(index);
    }
    (0..2).for_each(|index| cluster.spawn(index));
    (0..2).for_each(|index| cluster.wait_ready(index));
    for index in 0..2 {
        wait_until("the hints are found again", || cluster.metric(index, "kvorum_hints_pending") == 150.0);
    }
    cluster.restart(AWAY);
    let expected = held(&cluster, 0);
    wait_until("it holds what the others hold", || held(&cluster, AWAY) == expected);
    // Delivered is delivered, for the next run, too.
    for index in 0..2 {
        wait_delivered(&cluster, index);
    }
    assert!(cluster.terminate(0).success());
    cluster.restart(0);
    assert_eq!(cluster.metric(0, "kvorum_hints_delivered_total"), 0.0);
}

#[test]
fn what_is_owed_when_a_node_stops_is_delivered_by_its_next_run() {
    let mut cluster = Cluster::start(3);
    fill(&cluster);
    cluster.kill(AWAY);
    change_while_away(&cluster);
    (0..2).for_each(|index| assert!(cluster.terminate(index).success()));
    cluster.spawn_all();
    cluster.wait_whole();
    let expected = held(&cluster, 0);
    wait_until("it holds what the others hold", || held(&cluster, AWAY) == expected);
}

#[test]
fn a_hint_makes_no_copy_beyond_from() {
    let mut cluster = Cluster::start(4);
    cluster.kill(AWAY);
    let mut clients = [cluster.client(0), cluster.client(1), cluster.client(3)];
    let mut written = 0;
    for number in 0..100 {
        // Whose only live replica refuses nothing: at least one of two is up.
        clients[number % 3].put(&entity_at(format!("k{number:02}"), 1, 2), b"v");
        written += 1;
    }
    cluster.restart(AWAY);
    wait_until("every key has its two copies", || {
        let copies: usize = (0..4).map(|index| held(&cluster, index).len()).sum();
        assert!(copies <= 2 * written, "one copy too many");
        copies == 2 * written
    });
    assert!((0..written).all(|number| cluster.copies(&format!("k{number:02}")) == 2));
    assert!(!held(&cluster, AWAY).is_empty());
}

#[test]
fn a_damaged_record_keeps_no_other_hint_from_its_node() {
    let mut cluster = Cluster::prepare(3, &[]);
    Clocks::prepare(&mut cluster).set(AWAY, Duration::from_secs(20));
    cluster.spawn_all();
    cluster.wait_whole();
    let old = |number: u64| Random::new(number).bytes(200);
    let mut client = cluster.client(0);
    for number in 0..100 {
        client.put(&entity_at(format!("k{number:03}"), 3, 3), &old(number));
    }
    // Twice: what was in the log at the first start is in a table at the second.
    for _ in 0..2 {
        assert!(cluster.terminate(AWAY).success());
        cluster.restart(AWAY);
    }
    // What is timestamped in the next 20 s is below the bound of its clock: it will look up what it has of each key.
    cluster.client(AWAY).put(&entity_at("ahead", 3, 3), b"v");
    cluster.kill(AWAY);
    flip(&cluster.node(AWAY).data_dir.clone(), &old(50), "sst");
    for number in 0..100 {
        client.put(&entity(format!("k{number:03}")), b"new");
    }
    wait_for_hints(&cluster, 0, 100);
    cluster.restart(AWAY);
    wait_delivered(&cluster, 0);
    let (delivered, dropped) =
        (cluster.metric(0, "kvorum_hints_delivered_total"), cluster.metric(0, "kvorum_hints_dropped_total"));
    assert!((1.0..60.0).contains(&dropped), "those of one block: {dropped}");
    assert_eq!(delivered + dropped, 100.0);
}

#[test]
fn a_key_that_was_overwritten_is_delivered_once() {
    let mut cluster = Cluster::start(3);
    cluster.kill(AWAY);
    let mut client = cluster.client(0);
    for number in 0..400 {
        client.put(&entity("k"), format!("value {number}").as_bytes());
    }
    wait_for_hints(&cluster, 0, 400);
    cluster.restart(AWAY);
    wait_delivered(&cluster, 0);
    assert_eq!(held(&cluster, AWAY), [("k".to_owned(), "value 399".to_owned())]);
    assert_eq!(cluster.metric(0, "kvorum_hints_delivered_total"), 1.0);
}

#[test]
fn over_the_bound_the_oldest_go_and_a_round_brings_them() {
    let bytes_max = 256 << 10;
    let mut cluster = Cluster::with(3, &[("KVORUM_HINTS_BYTES_MAX", "256KiB")]);
    cluster.kill(AWAY);
    let mut client = cluster.client(0);
    for number in 0..200 {
        client.put(&entity(format!("k{number:03}")), &[b'v'; 8 << 10]);
    }
    wait_for_hints(&cluster, 0, 200);
    wait_until("the oldest are dropped", || cluster.metric(0, "kvorum_hints_pending_bytes") <= f64::from(bytes_max));
    let dropped = cluster.metric(0, "kvorum_hints_dropped_total");
    assert_eq!(dropped + cluster.metric(0, "kvorum_hints_pending"), 200.0);
    assert!(dropped >= 160.0, "{dropped}");
    cluster.restart(AWAY);
    wait_delivered(&cluster, 0);
    assert_eq!(cluster.metric(0, "kvorum_hints_delivered_total"), 200.0 - dropped);
    let keys: Vec<String> = held(&cluster, AWAY).into_iter().map(|(key, _)| key).collect();
    assert!((dropped as usize..200).all(|number| keys.contains(&format!("k{number:03}"))), "the newest: {keys:?}");
    wait_until("a round brings the rest", || held(&cluster, AWAY).len() == 200);
}

#[test]
fn a_node_that_lost_its_directory_takes_hints_too() {
    let mut cluster = Cluster::start(3);
    fill(&cluster);
    cluster.kill(AWAY);
    std::fs::remove_dir_all(&cluster.node(AWAY).data_dir).unwrap();
    change_while_away(&cluster);
    (0..2).for_each(|index| wait_for_hints(&cluster, index, 150));
    cluster.restart(AWAY);
    (0..2).for_each(|index| wait_delivered(&cluster, index));
    assert_eq!(held(&cluster, AWAY), held(&cluster, 0), "each of the 300 keys was changed");
    assert!(cluster.status_text(0).contains("rebuilding"));
    // What it stores without a vote is stored, and no hint of it is kept.
    let kept = cluster.metric(0, "kvorum_hints_kept_total");
    cluster.client(0).put(&entity("z"), b"v");
    wait_until("it stores what it is sent", || !cluster.local(AWAY, "z").is_empty());
    wait_until("the write has come to its end", || cluster.metric(0, "kvorum_coordinator_operations") == 0.0);
    assert_eq!(cluster.metric(0, "kvorum_hints_kept_total"), kept);
}

#[test]
fn nothing_is_kept_where_hints_are_off() {
    let mut cluster = Cluster::with(3, &[("KVORUM_HINTS_BYTES_MAX", "0")]);
    cluster.kill(AWAY);
    change_while_away(&cluster);
    assert!(cluster.metric(0, "kvorum_coordinator_unconfirmed_stores_total") > 0.0);
    assert!(cluster.terminate(0).success());
    cluster.restart(0);
    assert_eq!(cluster.metric(0, "kvorum_hints_pending"), 0.0);
}

#[test]
fn a_read_below_quorum_brings_what_it_saw_to_the_replicas_that_are_behind() {
    let settings = [("KVORUM_HINTS_BYTES_MAX", "0"), ("KVORUM_COORDINATOR_READ_FANOUT", "all")];
    let mut cluster = Cluster::with(3, &settings);
    fill(&cluster);
    let mut client = cluster.client(0);
    client.put(&entity_at("k-one", 1, 1), b"v");
    let holders = cluster.copies("k-one");
    cluster.kill(AWAY);
    change_while_away(&cluster);
    cluster.restart(AWAY);
    wait_until("it holds what the others hold", || {
        for number in 0..300 {
            // Node 0 is asked for the record, answers first, and is right.
            let status = client.get(&entity_at(format!("k{number:03}"), 1, 3)).status;
            assert_eq!(status, if number % 3 == 0 { 404 } else { 200 });
        }
        client.get(&entity_at("k-one", 1, 3));
        let [at_one, at_other] = [0, AWAY].map(|index| {
            let mut all = held(&cluster, index);
            all.retain(|(key, _)| key != "k-one");
            all
        });
        at_one == at_other
    });
    assert!(cluster.metric(0, "kvorum_coordinator_read_repairs_total") >= 300.0);
    assert_eq!(cluster.copies("k-one"), holders, "a copy that was not asked for");
}

#[test]
fn hints_go_no_faster_than_hints_rate() {
    const HINTS: usize = 600;
    const RATE: f64 = 65_536.0;
    // What each hint counts at least; and what may go before anything waits: a page, and the burst of a tenth of a
    // second.
    const HINT_BYTES: f64 = 512.0;
    const AT_ONCE: f64 = 128.0 * 700.0 + RATE / 10.0;
    // Of the processor it may have all: here only the bytes count.
    let mut cluster =
        Cluster::with(3, &[("KVORUM_HINTS_RATE", "64KiB"), ("KVORUM_RUNTIME_BACKGROUND_CPU_PERCENT", "100")]);
    cluster.kill(AWAY);
    let mut client = cluster.client(0);
    for number in 0..HINTS {
        client.put(&entity_at(format!("k{number:03}"), 2, 3), b"");
    }
    wait_for_hints(&cluster, 0, HINTS);
    let begin = Instant::now();
    cluster.restart(AWAY);
    wait_delivered(&cluster, 0);
    let (took, all) = (begin.elapsed(), HINTS as f64 * HINT_BYTES);
    assert!(all <= RATE * took.as_secs_f64() + AT_ONCE, "{HINTS} hints within {took:?}");
}
