//! Scans and queries on bad days: a node that is rebuilt, a full disk, clocks that are far apart.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::disk::SmallDisk;
use crate::support::http::{Client, entity};
use crate::support::skew::Clocks;
use crate::support::{Cluster, wait_until};

const KEYS: usize = 3000;

fn put_all(client: &mut Client, ttl_s: Option<u32>) {
    for part in (0..KEYS).collect::<Vec<_>>().chunks(500) {
        let line = |number: &usize| {
            let mut operation = json!({"op": "put", "key": format!("k{number:05}"), "value": format!("{number}")});
            if let Some(ttl_s) = ttl_s {
                operation["ttl"] = json!(ttl_s);
            }
            format!("{operation}\n")
        };
        let body: String = part.iter().map(line).collect();
        let answer = client.ok("POST", "/v0/batch", Some(body.as_bytes())).text();
        assert_eq!(answer.matches("\"status\":201").count(), part.len(), "{answer:.300}");
    }
}

/// Keys of a scan and the count of a query, which must both be whole.
fn scanned(client: &mut Client) -> Vec<String> {
    let answer = client.ok("GET", "/v0/scan?prefix=k&values=0", None);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["complete"], true, "{}", lines.last().unwrap());
    lines.iter().filter_map(|line| line["key"].as_str()).map(str::to_owned).collect()
}

fn counted(client: &mut Client) -> u64 {
    let body = json!({"prefix": "k", "select": {"count": {}, "sum": {"path": ""}}}).to_string();
    let answer = client.ok("POST", "/v0/query", Some(body.as_bytes()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["groups"][0]["count"].as_u64().unwrap()
}

fn is_whole(cluster: &Cluster) {
    for mut client in cluster.clients() {
        let keys = scanned(&mut client);
        assert!(keys.is_sorted() && keys.len() == KEYS, "{}", keys.len());
        assert_eq!(keys.into_iter().collect::<BTreeSet<_>>().len(), KEYS);
        assert_eq!(counted(&mut client), KEYS as u64);
    }
}

#[test]
fn scans_are_whole_while_a_node_is_rebuilt_and_none_counts_it_before() {
    let settings = [
        ("KVORUM_COORDINATOR_DEADLINE", "1s"),
        ("KVORUM_CLOCK_SKEW_MAX", "1s"),
        ("KVORUM_REPAIR_INTERVAL", "24h"),
        ("KVORUM_REPAIR_RATE", "64KiB"),
    ];
    let mut cluster = Cluster::with(3, &settings);
    put_all(&mut cluster.client(0), None);
    cluster.kill(2);
    std::fs::remove_dir_all(&cluster.node(2).data_dir).unwrap();
    cluster.restart(2);
    let mut scans = 0;
    wait_until("the node has its vote again", || {
        is_whole(&cluster);
        scans += 1;
        cluster.votes(2)
    });
    assert!(scans > 1, "some were made while it was rebuilt");
    is_whole(&cluster);
}

#[test]
fn scans_and_queries_go_on_while_a_disk_is_full() {
    let mut cluster = Cluster::prepare(3, &[("KVORUM_COORDINATOR_DEADLINE", "2s")]);
    let at = cluster.root().join("small");
    let Some(disk) = SmallDisk::mount(&at, 128) else { return };
    cluster.set_data_dir(0, at.join("data"));
    cluster.spawn_all();
    cluster.wait_whole();
    put_all(&mut cluster.client(1), None);
    disk.fill();
    let mut number = 0;
    wait_until("the node cannot write", || {
        number += 1;
        cluster.client(0).ok("PUT", &entity(format!("x{number}")), Some(&[0; 20_000]));
        cluster.client(0).get("/readyz").status == 503
    });
    // A write may be open that this node has, and another has not: then scans read, which a full disk does not hinder.
    is_whole(&cluster);
    disk.free();
    wait_until("the node is ready again", || cluster.client(0).get("/readyz").status == 200);
    is_whole(&cluster);
    drop(cluster);
}

#[test]
fn a_scan_sees_a_value_end_once_whatever_clocks_say() {
    let mut cluster = Cluster::prepare(3, &[("KVORUM_CLOCK_SKEW_MAX", "120s")]);
    let clocks = Clocks::prepare(&mut cluster);
    clocks.set(1, Duration::from_secs(60));
    cluster.spawn_all();
    cluster.wait_whole();
    put_all(&mut cluster.client(0), Some(5));
    let mut ended = BTreeSet::new();
    wait_until("all have ended through every node", || {
        let all: Vec<Vec<String>> = cluster.clients().iter_mut().map(scanned).collect();
        for keys in &all {
            let keys: BTreeSet<&String> = keys.iter().collect();
            assert!(ended.iter().all(|key| !keys.contains(key)), "a value that had ended is there again");
            let gone = (0..KEYS).map(|number| format!("k{number:05}")).filter(|key| !keys.contains(key));
            ended.extend(gone.collect::<Vec<_>>());
        }
        all.iter().all(Vec::is_empty)
    });
    assert!(cluster.clients().iter_mut().all(|client| counted(client) == 0));
}
