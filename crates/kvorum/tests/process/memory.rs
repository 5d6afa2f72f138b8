//! Resident memory stays under `memory_bytes` + 128 MiB, whatever clients do. `KVORUM_TEST_FILL_MB` sets the
//! size of the fill (the figure is 2048; `bench/memory` measures that one).

use std::thread;
use std::time::Duration;

use crate::support::random::Random;
use crate::support::{Client, Cluster, entity, entity_at};

const MIB: u64 = 1024 * 1024;
/// `memory_bytes` of these nodes.
const BUDGET: u64 = 64 * MIB;
/// What a node may take beyond its budget: code, runtime, allocator.
const BEYOND: u64 = 128 * MIB;

fn within_budget(cluster: &Cluster, when: &str) {
    for index in 0..cluster.len() {
        let (now, peak) = (cluster.memory(index, "VmRSS"), cluster.memory(index, "VmHWM"));
        eprintln!("{when}: node {index} resident {} MiB, at most {} MiB", now / MIB, peak / MIB);
        assert!(peak <= BUDGET + BEYOND, "{when}: node {index} took {} MiB", peak / MIB);
    }
}

fn fill_megabytes() -> usize {
    std::env::var("KVORUM_TEST_FILL_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// Values of all sizes, as fast as eight clients can that wait for every copy: a replica that is behind refuses what is
/// too much for it, and the range of one node shall have everything.
fn fill(cluster: &Cluster, megabytes: usize) {
    let sizes = [100, 1_000, 10_000, 100_000, 1_000_000];
    thread::scope(|scope| {
        for writer in 0..8 {
            scope.spawn(move || {
                let mut client = cluster.client(writer % cluster.len()).timeout(Duration::from_secs(60));
                let mut random = Random::new(writer as u64);
                let (mut written, mut number) = (0, 0);
                while written < megabytes * 1_000_000 / 8 {
                    let size = sizes[number % sizes.len()];
                    client.put(&entity_at(format!("fill-{writer}-{number}"), 3, 3), &random.bytes(size));
                    written += size;
                    number += 1;
                }
            });
        }
    });
}

/// Reads a whole range in small sips.
fn sip(client: &mut Client) -> (usize, usize) {
    client.write(b"GET /v0/entities?start=a HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!(client.head().unwrap().status, 200);
    let (mut records, mut bytes) = (0, 0);
    while let Some(chunk) = client.chunk().unwrap() {
        records += 1;
        bytes += chunk.len();
        if records % 100 == 0 {
            thread::park_timeout(Duration::from_millis(5));
        }
    }
    (records, bytes)
}

#[test]
fn a_fill_a_slow_range_reader_and_5000_connections_stay_within_the_budget() {
    let cluster = Cluster::with(3, &[("KVORUM_DURABILITY", "os")]);
    let megabytes = fill_megabytes();
    fill(&cluster, megabytes);
    within_budget(&cluster, "after the fill");
    let (records, bytes) = sip(&mut cluster.client(1));
    assert!(bytes >= megabytes * 1_000_000, "a full range of {records} records has only {bytes} bytes");
    within_budget(&cluster, "after a slow range");
    let mut crowd: Vec<Client> = (0..5_000).map(|_| cluster.client(0)).collect();
    for client in &mut crowd {
        assert_eq!(client.get("/v0/status").status, 200);
    }
    for (number, client) in crowd.iter_mut().enumerate() {
        client.put(&entity(format!("crowd-{number}")), &[1; 1_000]);
    }
    within_budget(&cluster, "with 5,000 connections");
}

#[test]
fn readers_who_do_not_read_cost_a_bounded_amount() {
    let cluster = Cluster::with(1, &[("KVORUM_DURABILITY", "os")]);
    let mut client = cluster.client(0);
    client.put(&entity("big"), &vec![7; 8_000_000]);
    let mut idlers: Vec<Client> = (0..200).map(|_| cluster.client(0)).collect();
    for idler in &mut idlers {
        for _ in 0..4 {
            // Refusals are fine; taking the memory is not.
            let _sent = idler.write(&crate::support::http::request("GET", &entity("big"), &[], None));
        }
        let _sent = idler.write(b"GET /v0/entities?start=a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for idler in &mut idlers {
        let first = idler.head().expect("an answer begins");
        assert!(matches!(first.status, 200 | 503), "{first:?}");
    }
    within_budget(&cluster, "with 200 readers of 8 MB that do not read");
    client.put(&entity("k"), b"v");
    assert_eq!(client.value(&entity("k")), b"v");
}

#[test]
fn large_values_under_way_to_a_silent_replica_cost_a_bounded_amount() {
    let cluster = Cluster::with(3, &[("KVORUM_DURABILITY", "os"), ("KVORUM_COORDINATOR_DEADLINE", "5s")]);
    cluster.pause(2);
    thread::scope(|scope| {
        for writer in 0..8 {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut client = cluster.client(0).timeout(Duration::from_secs(60));
                for number in 0..10 {
                    let target = entity_at(format!("{writer}-{number}"), 2, 3);
                    let response = client.with("PUT", &target, &[], Some(&vec![writer as u8; 4_000_000]));
                    assert!(matches!(response.status, 201 | 503 | 504), "{response:?}");
                }
            });
        }
    });
    within_budget(&cluster, "with 320 MB for a replica that does not read");
    cluster.resume(2);
    cluster.wait_answers(0, 3);
}
