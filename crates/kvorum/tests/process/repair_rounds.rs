//! Anti-entropy on real nodes: replicas that differ become identical, deletions are forgotten only when that is
//! safe, and no round depends on one node.

use std::process::Output;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::{Client, Cluster, entity_at, kvorum, wait_until};

/// A round compares what is older than the deadline and half a second; automatic rounds do not come in between.
const SETTINGS: [(&str, &str); 2] = [("KVORUM_COORDINATOR_DEADLINE", "1s"), ("KVORUM_REPAIR_INTERVAL", "24h")];

fn repair(cluster: &Cluster, index: usize) -> Output {
    kvorum().args(["repair", "--wait", "--url", &cluster.node(index).url()]).output().expect("the binary runs")
}

fn page(client: &mut Client) -> Value {
    serde_json::from_slice(&client.get("/v0/repair").body).expect("the page is JSON")
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// The lowest watermark of a node.
fn watermark_ms(cluster: &Cluster, index: usize) -> u64 {
    page(&mut cluster.client(index))["watermark"]["lowest_ms"].as_u64().expect("a number")
}

/// Has node `driver` drive rounds until all is proven converged up to now.
#[track_caller]
fn converge(cluster: &Cluster, driver: usize) {
    let now = now_ms();
    wait_until("everything is proven converged", || {
        let output = repair(cluster, driver);
        let is_proven = (0..cluster.len()).all(|index| watermark_ms(cluster, index) >= now);
        assert!(!is_proven || output.status.success(), "{output:?}");
        is_proven
    });
}

fn key(number: usize) -> String {
    format!("k{number:04}")
}

#[test]
fn replicas_that_differ_become_identical() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    for number in 0..300 {
        cluster.client(0).put(&entity_at(key(number), 3, 3), b"before");
    }
    cluster.kill(2);
    let mut client = cluster.client(0);
    for number in 0..400 {
        match number % 4 {
            0 => client.delete(&entity_at(key(number), 2, 3)),
            1 => client.put(&entity_at(key(number), 2, 3), &vec![b'x'; 100 * 1024]),
            _ => client.put(&entity_at(key(number), 2, 3), b"after"),
        };
    }
    let output = repair(&cluster, 0);
    assert_eq!(output.status.code(), Some(3), "a node is away: {output:?}");
    cluster.restart(2);
    assert_ne!(cluster.local(0, "k"), cluster.local(2, "k"), "hints would have to be off for this test");
    converge(&cluster, 1);
    let expected = cluster.local(0, "k");
    assert_eq!(expected.len(), 300);
    assert!((1..3).all(|index| cluster.local(index, "k") == expected));
    for index in 0..3 {
        assert!(cluster.client(index).get(&entity_at(key(0), 3, 3)).status == 404);
    }
}

#[test]
fn repair_gives_a_record_exactly_its_copies() {
    let mut cluster = Cluster::with(4, &SETTINGS);
    cluster.kill(3);
    let mut client = cluster.client(0);
    let mut put = 0;
    for number in 0..200 {
        let from = 1 + number % 3;
        let response = client.send("PUT", &entity_at(key(number), 1, from), &[], Some(b"v")).unwrap();
        // With one copy, and that on the node which is away, nobody can take it.
        put += usize::from(response.status == 201);
    }
    assert!(put > 150, "{put}");
    cluster.restart(3);
    converge(&cluster, 2);
    let mut seen = 0;
    for number in 0..200 {
        let copies = (0..4)
            .filter(|index| {
                cluster
                    .client(*index)
                    .get(&format!("/v0/entities?start={0}&end={0}-", key(number)))
                    .chunks
                    .is_some_and(|chunks| !chunks.is_empty())
            })
            .count();
        assert!(copies == 0 || copies == 1 + number % 3, "{} has {copies} copies", key(number));
        seen += usize::from(copies > 0);
    }
    assert!(seen >= put, "{seen} of {put}");
}

/// Restarts a node so often that what it has written is compacted: each clean stop writes a table.
fn compact(cluster: &mut Cluster, index: usize) {
    for round in 0..5 {
        for edge in ["a", "z"] {
            cluster.client(index).put(&entity_at(format!("{edge}-{round}"), 1, 3), b"v");
        }
        assert!(cluster.terminate(index).success());
        cluster.restart(index);
    }
}

/// How many of the keys a node has values of.
fn held(cluster: &Cluster, index: usize) -> usize {
    cluster.local(index, "k").iter().filter(|(key, _)| key.starts_with('k')).count()
}

fn dropped(cluster: &Cluster, index: usize) -> f64 {
    cluster.metric(index, "kvorum_store_dropped_records_total")
}

#[test]
fn a_deletion_is_forgotten_only_once_no_replica_can_bring_the_key_back() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    let keys = 100;
    for number in 0..keys {
        cluster.client(0).put(&entity_at(key(number), 3, 3), b"deleted soon");
    }
    converge(&cluster, 0);
    cluster.kill(2);
    for number in 0..keys {
        cluster.client(0).delete(&entity_at(key(number), 2, 3));
    }
    assert_eq!(repair(&cluster, 0).status.code(), Some(3), "a node is away");
    compact(&mut cluster, 0);
    assert_eq!(dropped(&cluster, 0), 0.0, "the replica that is away still has the values");
    cluster.restart(2);
    cluster.wait_whole();
    assert_eq!(held(&cluster, 2), keys);
    converge(&cluster, 0);
    assert_eq!(held(&cluster, 2), 0, "it has the deletions now");
    wait_until("compaction drops the deletions", || {
        compact(&mut cluster, 0);
        dropped(&cluster, 0) > 0.0
    });
    converge(&cluster, 1);
    for index in 0..3 {
        for number in 0..keys {
            cluster.client(index).get(&entity_at(key(number), 2, 3)).problem(404);
        }
    }
    assert_eq!((0..3).map(|index| held(&cluster, index)).sum::<usize>(), 0);
}

#[test]
fn a_round_whose_driver_dies_holds_up_nothing() {
    let settings = [SETTINGS[0], SETTINGS[1], ("KVORUM_REPAIR_RATE", "64KiB")];
    let mut cluster = Cluster::with(3, &settings);
    for number in 0..200 {
        cluster.client(0).put(&entity_at(key(number), 3, 3), &[b'x'; 4096]);
    }
    cluster.client(0).ok("POST", "/v0/repair", None);
    wait_until("the round has begun", || page(&mut cluster.client(0))["driving"]["phase"] == "sum up");
    cluster.kill(0);
    cluster.client(1).put(&entity_at(key(0), 2, 3), b"newer");
    cluster.restart(0);
    let mut client = cluster.client(1).timeout(Duration::from_secs(30));
    let round = client.ok("POST", "/v0/repair", None);
    assert_eq!(round.status, 202);
    wait_until("another node's round ends", || {
        let last = page(&mut client)["last"].clone();
        last["clean"] == true && last["partitions_proven"] == 4096
    });
}

#[test]
fn rounds_come_by_themselves() {
    let cluster = Cluster::with(3, &[("KVORUM_COORDINATOR_DEADLINE", "1s"), ("KVORUM_REPAIR_INTERVAL", "1s")]);
    cluster.client(2).put(&entity_at(key(1), 3, 3), b"v");
    let now = now_ms();
    wait_until("the watermark passes", || (0..3).all(|index| watermark_ms(&cluster, index) > now));
    let driven = (0..3).filter(|index| cluster.metric(*index, "kvorum_repair_rounds_total") > 0.0).count();
    assert_eq!(driven, 1, "the first node drives them");
}
