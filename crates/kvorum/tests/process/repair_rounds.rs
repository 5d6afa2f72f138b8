//! Anti-entropy on real nodes: replicas that differ become identical, deletions are dropped only when that is safe, and
//! no round depends on one node.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::random::Random;
use crate::support::skew::Clocks;
use crate::support::{
    Client, Cluster, SOON, entity_at, kvorum, number_from_environment, wait_for, wait_until, wait_within,
};

/// A round compares what is older than the deadline and half a second; neither hints nor automatic rounds come in
/// between.
const SETTINGS: [(&str, &str); 4] = [
    ("KVORUM_COORDINATOR_DEADLINE", "1s"),
    ("KVORUM_REPAIR_INTERVAL", "24h"),
    ("KVORUM_CLOCK_SKEW_MAX", "1s"),
    ("KVORUM_HINTS_BYTES_MAX", "0"),
];

fn repair(cluster: &Cluster, index: usize) -> Output {
    kvorum().args(["repair", "--wait", "--url", &cluster.node(index).url()]).output().expect("the binary runs")
}

fn page(client: &mut Client) -> Value {
    serde_json::from_slice(&client.get("/v0/repair").body).expect("the page is JSON")
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// For a round that is held back.
const LONG: Duration = Duration::from_secs(120);

/// The lowest watermark of a node.
fn watermark_ms(cluster: &Cluster, index: usize) -> u64 {
    page(&mut cluster.client(index))["watermark"]["lowest_ms"].as_u64().expect("a number")
}

/// How far the clock of a node that was restarted may be ahead of the wall, and with it all others.
const AHEAD_MS: u64 = 2500;

/// Has node `driver` drive rounds until everything written before now is proven converged.
#[track_caller]
fn converge(cluster: &Cluster, driver: usize) {
    let now = now_ms() + AHEAD_MS;
    wait_until("everything is proven converged", || {
        let output = repair(cluster, driver);
        let is_proven = (0..cluster.len()).all(|index| watermark_ms(cluster, index) >= now);
        assert!(!is_proven || output.status.success(), "{output:?}");
        is_proven
    });
}

#[test]
fn a_round_that_is_stopped_proves_nothing_and_the_next_one_goes_on() {
    let rate = [("KVORUM_REPAIR_RATE", "256KiB")];
    let cluster = Cluster::with(3, &[&SETTINGS[..], &rate].concat());
    let mut client = cluster.client(0);
    let idle: Value = serde_json::from_slice(&client.ok("DELETE", "/v0/repair", None).body).unwrap();
    assert!(idle["stopping"].is_null(), "{idle}");
    for number in 0..64 {
        client.put(&entity_at(key(number), 3, 3), &Random::new(1).bytes(32 << 10));
    }
    let url = cluster.node(0).url();
    let mut waits = kvorum();
    let waits = waits.args(["repair", "--wait", "--url", &url]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let waits = waits.spawn().unwrap();
    wait_until("the round scans", || page(&mut cluster.client(0))["driving"]["phase"] == "sum up");
    let stopping: Value = serde_json::from_slice(&client.ok("DELETE", "/v0/repair", None).body).unwrap();
    let output = waits.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("an operator stopped the round"), "{output:?}");
    let last = page(&mut client)["last"].clone();
    assert_eq!(
        (&last["round"], &last["stopped"], &last["clean"]),
        (&stopping["stopping"], &true.into(), &false.into())
    );
    assert_eq!(watermark_ms(&cluster, 0), 0);
    // Another begins, and this one may end.
    wait_within(LONG, "all is proven by a later round", || {
        client.ok("POST", "/v0/repair", None);
        // The driver notes that a round has ended once all nodes have taken what it has proven, this one first.
        (watermark_ms(&cluster, 0) > 0 && page(&mut client)["last"]["stopped"] == false).then_some(())
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
        // With one copy, and that on the node which is away, no node can take it.
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

/// Writes so much on both sides of the keys that every node which is up flushes and compacts several times.
fn compact(cluster: &Cluster, through: usize) {
    let mut client = cluster.client(through);
    let value = Random::new(1).bytes(100 * 1024);
    for number in 0..300 {
        let edge = if number % 2 == 0 { "a" } else { "z" };
        let target = entity_at(format!("{edge}-{}", number % 20), 2, 3);
        // While a replica is paused, values wait for it up to the deadline, and more than a bound of them are refused.
        wait_until("there is room for the value", || {
            let response = client.with("PUT", &target, &[], Some(&value));
            let is_refused = response.status == 503
                && response.json()["detail"].as_str().is_some_and(|why| why.starts_with("as many bytes of values"));
            assert!(response.status == 201 || is_refused, "{response:?}");
            !is_refused
        });
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
    compact(&cluster, 0);
    assert_eq!(dropped(&cluster, 0), 0.0, "the replica that is away still has the values");
    cluster.restart(2);
    cluster.wait_whole();
    assert_eq!(held(&cluster, 2), keys);
    converge(&cluster, 0);
    assert_eq!(held(&cluster, 2), 0, "it has the deletions now");
    wait_until("compactions drop the deletions", || {
        compact(&cluster, 0);
        (0..3).all(|index| dropped(&cluster, index) > 0.0)
    });
    converge(&cluster, 1);
    for index in 0..3 {
        for number in 0..keys {
            cluster.client(index).get(&entity_at(key(number), 2, 3)).problem(404);
        }
    }
    assert_eq!((0..3).map(|index| held(&cluster, index)).sum::<usize>(), 0);
}

/// Twice, or KVORUM_TEST_RESURRECTION_ROUNDS.
#[test]
fn no_deleted_key_returns_whichever_replica_was_away() {
    let rounds = number_from_environment("KVORUM_TEST_RESURRECTION_ROUNDS", 2);
    let mut random = Random::new(Random::seed());
    let mut cluster = Cluster::with(3, &SETTINGS);
    let key = |round: usize, number: usize| format!("k-{round}-{number:03}");
    let keys = 100;
    let mut came_back = 0;
    for round in 0..rounds {
        let away = random.below(3) as usize;
        let others = [(away + 1) % 3, (away + 2) % 3];
        for number in 0..keys {
            cluster.client(number % 3).put(&entity_at(key(round, number), 3, 3), b"deleted soon");
        }
        let [is_proven, is_killed, is_compacted_back] = [0; 3].map(|_| random.below(2) == 0);
        if is_proven {
            converge(&cluster, others[0]);
        }
        if is_killed {
            cluster.kill(away)
        } else {
            cluster.pause(away)
        }
        for number in 0..keys {
            cluster.client(others[number % 2]).delete(&entity_at(key(round, number), 2, 3));
        }
        assert_eq!(repair(&cluster, others[0]).status.code(), Some(3), "a node is away");
        compact(&cluster, others[0]);
        if is_killed {
            cluster.restart(away)
        } else {
            cluster.resume(away)
        }
        cluster.wait_whole();
        let before = [0, 1, 2].map(|index| dropped(&cluster, index));
        if is_compacted_back {
            compact(&cluster, away);
        }
        came_back += returned(&cluster, round, &key, keys);
        converge(&cluster, random.below(3) as usize);
        wait_until("compactions drop the deletions", || {
            compact(&cluster, away);
            (0..3).all(|index| dropped(&cluster, index) >= before[index] + keys as f64)
        });
        came_back += (0..=round).map(|round| returned(&cluster, round, &key, keys)).sum::<usize>();
        came_back += (0..3).map(|index| held(&cluster, index)).sum::<usize>();
        eprintln!(
            "round {round}: node {away} was {}, {came_back} came back",
            if is_killed { "dead" } else { "paused" }
        );
        assert_eq!(came_back, 0);
    }
}

/// How many keys of a round a quorum still finds, through all nodes.
fn returned(cluster: &Cluster, round: usize, key: &dyn Fn(usize, usize) -> String, keys: usize) -> usize {
    let mut clients = cluster.clients();
    let mut found = |index: usize, number| clients[index].get(&entity_at(key(round, number), 2, 3)).status != 404;
    (0..3).map(|index| (0..keys).filter(|number| found(index, *number)).count()).sum()
}

#[test]
fn a_round_whose_driver_dies_holds_up_nothing() {
    let settings = [SETTINGS[0], SETTINGS[1], SETTINGS[2], ("KVORUM_REPAIR_RATE", "64KiB")];
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
fn a_round_of_a_fast_clock_does_not_hold_up_one_of_a_slow_clock() {
    let settings = [SETTINGS[0], SETTINGS[1], ("KVORUM_CLOCK_SKEW_MAX", "10m")];
    let mut cluster = Cluster::prepare(3, &settings);
    // No test can wait until the slow clocks are where the fast one is.
    Clocks::prepare(&mut cluster).set(2, Duration::from_secs(300));
    cluster.spawn_all();
    cluster.wait_whole();
    for driver in [2, 0, 1, 2, 0] {
        assert!(cluster.client(driver).ok("POST", "/v0/repair", None).status == 202);
        let driven = |page: &Value| page["driven"] == page["wanted"] && page["last"]["clean"] == true;
        wait_until("the round ends", || driven(&page(&mut cluster.client(driver))));
    }
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

/// Waits until a node that rebuilds has its vote back, and its peers count it.
#[track_caller]
fn rebuilt(cluster: &Cluster, index: usize) {
    wait_within(2 * SOON, "the node votes again", || (cluster.metric(index, "kvorum_node_votes") == 1.0).then_some(()));
    let others: Vec<usize> = (0..cluster.len()).filter(|other| *other != index).collect();
    wait_until("peers count it", || others.iter().all(|other| cluster.metric(*other, "kvorum_peer_rebuilding") == 0.0));
}

#[test]
fn a_wiped_node_is_rebuilt_and_votes_again() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    for number in 0..200 {
        cluster.client(0).put(&entity_at(key(number), 3, 3), b"v");
    }
    for number in 0..50 {
        cluster.client(1).delete(&entity_at(key(number), 3, 3));
    }
    converge(&cluster, 0);
    let (data, older) = (cluster.node(0).data_dir.clone(), cluster.root().join("older"));
    assert!(cluster.terminate(0).success());
    copy_directory(&data, &older);
    cluster.restart(0);
    cluster.wait_whole();
    let before = cluster.local(2, "k");
    cluster.kill(2);
    std::fs::remove_dir_all(&cluster.node(2).data_dir).unwrap();
    cluster.restart(2);
    wait_until("it rebuilds", || cluster.status_text(2).contains("votes for 0 of 4096"));
    rebuilt(&cluster, 2);
    assert_eq!(cluster.local(2, "k"), before);
    // It is one half of every quorum now.
    cluster.pause(1);
    for number in [0, 50, 199] {
        let status = if number < 50 { 404 } else { 200 };
        assert_eq!(cluster.client(2).get(&entity_at(key(number), 1, 3)).status, status);
        assert_eq!(cluster.client(0).get(&entity_at(key(number), 2, 3)).status, status);
    }
    cluster.client(0).put(&entity_at(key(50), 2, 3), b"newer");
    cluster.resume(1);
    cluster.wait_whole();
    // After a restart what is made good counts against it no more.
    assert!(cluster.terminate(2).success());
    cluster.restart(2);
    cluster.wait_whole();
    assert_eq!(cluster.metric(2, "kvorum_node_votes"), 1.0);
    assert_eq!(cluster.client(2).value(&entity_at(key(50), 3, 3)), b"newer");
    // Nor does it to a peer whose older disk remembers the directory that was lost; else there would be no majority any
    // more.
    cluster.kill(0);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&older, &data).unwrap();
    cluster.restart(0);
    wait_until("it rebuilds", || voting_partitions(&cluster.status_text(0)).is_some());
    assert_eq!(cluster.metric(2, "kvorum_node_votes"), 1.0);
    rebuilt(&cluster, 0);
    assert_eq!(cluster.client(0).value(&entity_at(key(50), 3, 3)), b"newer");
}

fn copy_directory(from: &Path, to: &Path) {
    assert!(Command::new("cp").args(["-a".as_ref(), from.as_os_str(), to.as_os_str()]).status().unwrap().success());
}

/// For how many partitions a node that rebuilds votes, as `kvorum status` shows.
fn voting_partitions(status: &str) -> Option<u64> {
    let (_, rest) = status.split_once("it votes for ")?;
    rest.split(' ').next()?.parse().ok()
}

/// The round that rebuilds is slowed down, and the last keys are written meanwhile for another `from` than it has
/// listed them with. It can settle all partitions but those of the keys that both other nodes hold so when it comes to
/// them, which are left to the next round: every sixth on average, so that of a hundred there are some.
#[test]
fn a_node_that_rebuilds_shows_its_round_and_the_partitions_that_it_has_back() {
    let settings = [&SETTINGS[..], &[("KVORUM_REPAIR_RATE", "128KiB")]].concat();
    let mut cluster = Cluster::with(3, &settings);
    let mut random = Random::new(Random::seed());
    let value = random.bytes(1024);
    for number in 0..600 {
        cluster.client(0).put(&entity_at(key(number), 3, 3), &value);
    }
    cluster.kill(2);
    std::fs::remove_dir_all(&cluster.node(2).data_dir).unwrap();
    cluster.restart(2);
    wait_until("it rebuilds", || voting_partitions(&cluster.status_text(2)) == Some(0));
    assert!(cluster.status_text(2).contains("between two rounds"), "{}", cluster.status_text(2));
    wait_until("it shows the round that copies", || cluster.status_text(2).contains("step 4 of 5, copy: "));
    let mut client = cluster.client(0);
    let some = wait_for("it votes for some partitions", || {
        for number in 500..600 {
            client.put(&entity_at(key(number), 1, 2 + random.below(2) as usize), b"newer");
        }
        voting_partitions(&cluster.status_text(2)).filter(|count| *count > 0)
    });
    assert!((4096 - 100..4096).contains(&some), "all but those of at most a hundred keys: {some}");
    assert_eq!(cluster.metric(2, "kvorum_node_voting_partitions") as u64, some);
    assert_eq!(cluster.metric(2, "kvorum_node_votes"), 0.0);
    rebuilt(&cluster, 2);
    assert_eq!(voting_partitions(&cluster.status_text(2)), None);
    for number in 0..500 {
        assert_eq!(cluster.client(2).value(&entity_at(key(number), 3, 3)), value);
    }
}

#[test]
fn a_restored_directory_brings_no_forgotten_deletion_back() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    for number in 0..100 {
        cluster.client(0).put(&entity_at(key(number), 3, 3), b"v");
    }
    assert!(cluster.terminate(2).success());
    let (data, copy) = (cluster.node(2).data_dir.clone(), cluster.root().join("copy"));
    std::fs::rename(&data, &copy).unwrap();
    copy_directory(&copy, &data);
    cluster.restart(2);
    for number in 0..60 {
        cluster.client(0).delete(&entity_at(key(number), 3, 3));
    }
    converge(&cluster, 0);
    wait_until("compactions drop the deletions", || {
        compact(&cluster, 0);
        (0..3).all(|index| dropped(&cluster, index) >= 60.0)
    });
    cluster.kill(2);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copy, &data).unwrap();
    cluster.restart(2);
    wait_until("it rebuilds", || cluster.status_text(2).contains("votes for 0 of 4096"));
    rebuilt(&cluster, 2);
    converge(&cluster, 1);
    for index in 0..3 {
        assert_eq!(held(&cluster, index), 40, "on node {index}");
    }
    for number in 0..100 {
        let status = if number < 60 { 404 } else { 200 };
        assert_eq!(cluster.client(2).get(&entity_at(key(number), 3, 3)).status, status);
    }
}
