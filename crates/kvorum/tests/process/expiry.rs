//! Values that end: through every node at the same time, for good, and with nothing older behind them.

use std::time::Duration;

use crate::support::skew::Clocks;
use crate::support::{Client, Cluster, entity, kvorum, wait_until};

fn until(client: &mut Client, key: &str, ttl_s: u64) -> u64 {
    let put = client.ok("PUT", &format!("{}&ttl={ttl_s}", entity(key)), Some(b"ends"));
    assert_eq!(put.status, 201, "{put:?}");
    put.header("kvorum-expires").expect("a value that ends says when").parse().unwrap()
}

#[test]
fn a_value_ends_for_good_and_nothing_older_comes_back() {
    let mut cluster = Cluster::start(3);
    let mut clients = cluster.clients();
    clients[0].put(&entity("k"), b"older");
    let expires_ms = until(&mut clients[1], "k", 2);
    let read = clients[2].ok("GET", &entity("k"), None);
    assert_eq!((read.status, &read.body[..]), (200, &b"ends"[..]));
    assert_eq!(read.header("kvorum-expires"), Some(expires_ms.to_string().as_str()));
    assert!(read.header("expires").is_some() && read.header("cache-control") == Some("no-cache"), "{read:?}");
    assert_eq!(cluster.local(0, "a").len(), 1);
    wait_until("the value has ended through one node", || clients[0].ok("GET", &entity("k"), None).status == 404);
    // From then on through every node, also after all of them have started again.
    for client in &mut clients {
        let gone = client.absent(&entity("k"));
        assert_eq!(gone.etag(), read.etag(), "a deletion of its version");
    }
    cluster.kill_at_once(&[0, 1, 2]);
    cluster.spawn_all();
    cluster.wait_whole();
    for index in 0..3 {
        cluster.client(index).absent(&entity("k"));
        assert!(cluster.local(index, "a").is_empty(), "nor is it in a range");
    }
    cluster.client(1).put(&entity("k"), b"newer");
    assert_eq!(cluster.client(2).value(&entity("k")), b"newer");
}

#[test]
fn clocks_that_are_apart_agree_on_when_a_value_has_ended() {
    let mut cluster = Cluster::prepare(3, &[]);
    let clocks = Clocks::prepare(&mut cluster);
    clocks.set(2, Duration::from_secs(3));
    cluster.spawn_all();
    cluster.wait_whole();
    for round in 0..3 {
        let key = format!("k{round}");
        until(&mut cluster.client(round % 2), &key, 4);
        let mut clients = cluster.clients();
        let mut has_ended = false;
        wait_until("the value has ended through every node", || {
            let statuses: Vec<u16> =
                clients.iter_mut().rev().map(|client| client.ok("GET", &entity(&key), None).status).collect();
            for status in &statuses {
                assert!(*status == 404 || *status == 200 && !has_ended, "found again: {statuses:?}");
                has_ended |= *status == 404;
            }
            statuses.iter().all(|status| *status == 404)
        });
    }
}

#[test]
fn a_node_that_was_away_serves_no_value_that_has_ended() {
    let mut cluster = Cluster::start(3);
    cluster.client(0).put(&entity("k"), b"older");
    cluster.wait_whole();
    cluster.kill(2);
    until(&mut cluster.client(0), "k", 1);
    wait_until("the value has ended", || cluster.client(1).ok("GET", &entity("k"), None).status == 404);
    cluster.restart(2);
    cluster.wait_whole();
    cluster.client(2).absent(&entity("k"));
    wait_until("the node that was away has got what has ended", || cluster.local(2, "a").is_empty());
}

#[test]
fn a_default_ends_what_says_nothing() {
    let cluster = Cluster::with(1, &[("KVORUM_LIMITS_TTL_DEFAULT", "1s")]);
    let mut client = cluster.client(0);
    client.put(&entity("k"), b"ends");
    until(&mut client, "stays", 1000);
    wait_until("the value has ended", || client.ok("GET", &entity("k"), None).status == 404);
    assert_eq!(client.value(&entity("stays")), b"ends");
}

#[test]
fn the_command_line_stores_values_that_end() {
    let cluster = Cluster::start(1);
    let url = cluster.node(0).url();
    let run = |arguments: &[&str]| kvorum().args(arguments).args(["--url", &url]).output().expect("the binary runs");
    assert!(run(&["put", "k", "v", "--ttl", "1h"]).status.success());
    let traced = run(&["get", "k", "--trace"]);
    assert!(String::from_utf8_lossy(&traced.stderr).contains("\nExpires: "), "{traced:?}");
    for ttl in ["0s", "1500ms", "87601h", "soon"] {
        let refused = run(&["put", "k", "w", "--ttl", ttl]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("whole seconds"), "{refused:?}");
    }
    assert_eq!(run(&["get", "k"]).stdout, b"v");
}
