//! Damage that no request reads is found and repaired by `kvorum scrub`, and by the node itself.

use crate::support::cluster::flip;
use crate::support::random::Random;
use crate::support::{Cluster, entity, entity_at, kvorum, wait_until};

const KEYS: u64 = 300;

fn value(number: u64) -> Vec<u8> {
    Random::new(number).bytes(200)
}

/// A cluster whose last node holds tables with a few damaged blocks.
fn damaged(n: usize, environment: &[(&str, &str)]) -> Cluster {
    let mut cluster = Cluster::with(n, environment);
    let mut client = cluster.client(0);
    for number in 0..KEYS {
        client.put(&entity_at(format!("k{number:03}"), n, n), &value(number));
    }
    // Twice: what was in the log at the first start is in a table at the second.
    for _ in 0..2 {
        assert!(cluster.terminate(n - 1).success());
        cluster.restart(n - 1);
    }
    cluster.kill(n - 1);
    for number in [7, 140, 141, 290] {
        flip(&cluster.node(n - 1).data_dir.clone(), &value(number), "sst");
    }
    cluster.restart(n - 1);
    cluster
}

/// The exit code of `kvorum scrub`, and its three numbers.
fn scrub(cluster: &Cluster, index: usize) -> (Option<i32>, Vec<u64>) {
    let output = kvorum().args(["scrub", "--url", &cluster.node(index).url()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (output.status.code(), numbers)
}

#[test]
fn what_is_damaged_is_replaced_by_the_other_replicas_on_request() {
    let mut cluster = damaged(3, &[]);
    cluster.wait_whole();
    let (code, numbers) = scrub(&cluster, 2);
    let [records, damaged, mended] = numbers[..] else { panic!("{numbers:?}") };
    assert_eq!((code, records), (Some(0), KEYS));
    assert!(damaged >= 4 && mended == damaged, "a block has many records: {numbers:?}");
    // Now they are read from there alone: all three must answer.
    let mut client = cluster.client(2);
    for number in 0..KEYS {
        assert_eq!(client.value(&entity_at(format!("k{number:03}"), 3, 3)), value(number));
    }
    assert_eq!(cluster.metric(2, "kvorum_scrub_mended_total") as u64, mended);
    assert_eq!(scrub(&cluster, 2), (Some(0), vec![KEYS, 0, 0]));
    assert_eq!(scrub(&cluster, 0), (Some(0), vec![KEYS, 0, 0]));
}

#[test]
fn a_node_repairs_itself_without_being_asked() {
    let cluster = damaged(3, &[("KVORUM_SCRUB_RATE", "1MiB")]);
    wait_until("the node has mended what was damaged", || {
        let found = cluster.metric(2, "kvorum_scrub_damaged_total");
        found >= 4.0 && cluster.metric(2, "kvorum_scrub_mended_total") == found
    });
}

#[test]
fn what_no_other_replica_has_is_reported_and_stays() {
    let cluster = damaged(1, &[]);
    let (code, numbers) = scrub(&cluster, 0);
    let [records, damaged, mended] = numbers[..] else { panic!("{numbers:?}") };
    assert_eq!((code, records, mended), (Some(4), KEYS, 0));
    assert!(damaged >= 4, "{numbers:?}");
    cluster.client(0).get(&entity("k007")).problem(504);
    assert!(cluster.log(0).contains("a damaged record could not be replaced"));
}

#[test]
fn a_pass_that_is_stopped_says_so_and_another_can_be_asked_for() {
    let cluster = Cluster::with(1, &[("KVORUM_SCRUB_RATE", "0")]);
    let mut client = cluster.client(0);
    assert!(client.ok("DELETE", "/v0/scrub", None).json()["stopping"].is_null());
    for number in 0..64 {
        client.put(&entity(format!("large-{number}")), &Random::new(number).bytes(1 << 20));
    }
    let pass = client.ok("POST", "/v0/scrub", None).json()["pass"].clone();
    wait_until("it stops", || cluster.client(0).ok("DELETE", "/v0/scrub", None).json()["stopping"] == pass);
    let shown = || cluster.client(0).get("/v0/cluster").json()["nodes"][0]["scrub"].clone();
    wait_until("the pass has ended", || shown()["ended"] == pass);
    assert_eq!(shown()["trouble"], "an operator stopped it");
    assert_eq!(scrub(&cluster, 0).0, Some(0));
    assert!(shown()["trouble"].is_null(), "{}", shown());
}
