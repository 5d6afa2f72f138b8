//! `kill -9` under load: nothing acknowledged is lost, nothing read goes back.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::load::Seen;
use crate::support::random::Random;
use crate::support::{Cluster, entity, entity_at, number_from_environment, wait_until};

/// How long clients wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills all nodes under load at each `moment`, `rounds` times, and looks for all that was acknowledged.
fn kill_all(cluster: &mut Cluster, seen: &Seen, rounds: usize, mut moment: impl FnMut(&Cluster, usize, &mut Random)) {
    let mut random = Random::new(Random::seed());
    let addresses: Vec<SocketAddr> = (0..3).map(|index| cluster.node(index).address).collect();
    let mut checked = 0;
    for round in 0..rounds {
        let mut moments = Random::new(random.next());
        seen.under_load(&addresses, PATIENCE, &mut random, || {
            moment(cluster, round, &mut moments);
            cluster.kill_all();
        });
        cluster.spawn_all();
        cluster.wait_whole();
        let before = checked;
        checked = seen.check_once(cluster, checked);
        seen.check_shared(cluster);
        eprintln!("round {round}: {} acknowledged keys are there", checked - before);
    }
    assert_eq!(seen.check_once(cluster, 0), checked);
    assert!(checked > rounds * 50, "only {checked} writes were acknowledged: this shows nothing");
}

/// 20 times, or KVORUM_TEST_KILL_ROUNDS.
#[test]
fn killing_all_nodes_20_times_loses_no_acknowledged_write() {
    let seen = Seen::new();
    let rounds = number_from_environment("KVORUM_TEST_KILL_ROUNDS", 20);
    kill_all(&mut Cluster::start(3), &seen, rounds, |_, _, random| seen.after_writes(random.below(1_500)));
}

/// With the memory that a node has by default a flush is of six to eight memtables, each with a log of its own. In
/// every second round the nodes are killed about when node 0 is at one. A third as many rounds, and two at least.
#[test]
fn killing_all_nodes_with_many_memtables_loses_no_acknowledged_write() {
    let seen = Seen::with_bytes(20_000);
    let mut cluster = Cluster::with(3, &[("KVORUM_MEMORY_BYTES", "512MiB")]);
    let rounds = number_from_environment("KVORUM_TEST_KILL_ROUNDS", 20).div_ceil(3).max(2);
    kill_all(&mut cluster, &seen, rounds, |cluster, round, random| {
        seen.after_writes(random.below(2_000));
        if round % 2 == 1 {
            wait_until("node 0 begins a flush", || cluster.files(0, "store", ".log").len() > 8);
            seen.after_writes(random.below(200));
        }
    });
}

/// Writers use two nodes while something happens to the third: no writer may notice, and nothing may be lost.
fn unnoticed(rounds: usize, disturb: fn(&mut Cluster, &Seen, usize)) {
    let mut random = Random::new(Random::seed());
    let mut cluster = Cluster::start(3);
    let seen = Seen::new();
    let mut checked = 0;
    for round in 0..rounds {
        let victim = random.below(3) as usize;
        let others: Vec<SocketAddr> =
            (0..3).filter(|&index| index != victim).map(|index| cluster.node(index).address).collect();
        let before = random.below(500);
        seen.under_load(&others, PATIENCE, &mut random, || {
            seen.after_writes(before);
            disturb(&mut cluster, &seen, victim);
            seen.after_writes(500);
        });
        cluster.wait_whole();
        checked = seen.check_once(&cluster, checked);
        seen.check_shared(&cluster);
        eprintln!("round {round}: {checked} keys are there, {:?} conflicts were refused", seen.contended);
        let refused = seen.refused.lock().unwrap();
        assert!(refused.is_none(), "an error while node {victim} was away: {refused:?}");
    }
    assert_eq!(seen.check_once(&cluster, 0), checked);
}

#[test]
fn killing_one_node_at_a_time_is_not_even_noticed_by_the_clients_of_the_others() {
    unnoticed(6, |cluster, seen, victim| {
        cluster.kill(victim);
        seen.after_writes(500);
        cluster.restart(victim);
    });
}

#[test]
fn pausing_one_node_at_a_time_is_not_even_noticed_by_the_clients_of_the_others() {
    unnoticed(3, |cluster, seen, victim| {
        cluster.pause(victim);
        seen.after_writes(500);
        cluster.resume(victim);
    });
}

fn timestamp_retries(cluster: &Cluster) -> f64 {
    (0..cluster.len()).map(|index| cluster.metric(index, "kvorum_coordinator_restamps_total")).sum()
}

#[test]
fn writes_of_one_key_through_all_nodes_are_never_refused_after_a_start() {
    let mut cluster = Cluster::start(3);
    for round in 0..3 {
        let mut clients = cluster.clients();
        for number in 0..2_000 {
            let key = entity_at("contended", 2 + number / 2 % 2, 3);
            if number % 2 == 0 {
                clients[number % 3].put(&key, b"v");
            } else {
                clients[number % 3].delete(&key);
            }
        }
        eprintln!("round {round}: {} writes were stamped again", timestamp_retries(&cluster));
        cluster.kill_all();
        cluster.spawn_all();
        cluster.wait_whole();
    }
}

#[test]
fn deletes_that_were_acknowledged_stay_after_killing_all() {
    let mut cluster = Cluster::start(3);
    let key = |number: usize| entity(format!("k{number}"));
    for round in 0..3 {
        let mut clients = cluster.clients();
        for number in 0..100 {
            clients[number % 3].put(&key(number), b"v");
            clients[(number + round) % 3].delete(&key(number));
        }
        cluster.kill_all();
        cluster.spawn_all();
        cluster.wait_whole();
        let mut clients = cluster.clients();
        for number in 0..100 {
            clients[(number + 1) % 3].absent(&key(number));
        }
    }
}

/// The tables and logs in one of node 0's directories.
fn tables_and_logs(cluster: &Cluster, directory: &str) -> BTreeSet<OsString> {
    [".sst", ".log"].iter().flat_map(|kind| cluster.files(0, directory, kind)).collect()
}

#[test]
fn what_a_killed_node_has_not_freed_goes_with_its_next_run() {
    let mut cluster = Cluster::start(1);
    cluster.client(0).put(&entity("k"), b"v");
    let is_in_step = |cluster: &Cluster| tables_and_logs(cluster, "freed") == tables_and_logs(cluster, "store");
    wait_until("each file has a second name", || is_in_step(&cluster));
    let before = tables_and_logs(&cluster, "store");
    cluster.kill(0);
    cluster.restart(0);
    assert_ne!(before, tables_and_logs(&cluster, "store"), "the log was replayed and deleted");
    wait_until("and no other has one", || is_in_step(&cluster));
}
