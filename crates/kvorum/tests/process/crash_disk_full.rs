//! A full disk: writes are refused, reads go on, and writing resumes by itself.
//! Needs a small file system of its own, hence root; without it the tests are loudly skipped.

use std::time::{Duration, Instant};

use crate::support::disk::SmallDisk;
use crate::support::random::Random;
use crate::support::{Client, Cluster, entity, entity_at, wait_for, wait_until};

/// A cluster whose node 0 lives on a small disk. The disk is dropped after the cluster.
fn on_a_small_disk(n: usize) -> Option<(Cluster, SmallDisk)> {
    on_a_disk(n, 128, &[("KVORUM_COORDINATOR_DEADLINE", "2s")])
}

fn on_a_disk(n: usize, megabytes: usize, environment: &[(&str, &str)]) -> Option<(Cluster, SmallDisk)> {
    let mut cluster = Cluster::prepare(n, environment);
    let at = cluster.root().join("small");
    let disk = SmallDisk::mount(&at, megabytes)?;
    cluster.set_data_dir(0, at.join("data"));
    cluster.spawn_all();
    cluster.wait_whole();
    Some((cluster, disk))
}

#[test]
fn a_node_with_a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let Some((mut cluster, disk)) = on_a_small_disk(1) else { return };
    let mut client = cluster.client(0);
    let key = |number: usize| entity(format!("k{number}"));
    let value = |number: usize| vec![number as u8; 20_000];
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        for number in round * 1_000..round * 1_000 + 20 {
            client.put(&key(number), &value(number));
            acknowledged.push(number);
        }
        disk.fill();
        let mut number = round * 1_000 + 20;
        let refused = wait_for("a write is refused", || {
            let response = client.ok("PUT", &key(number), Some(&value(number)));
            if response.status == 201 {
                acknowledged.push(number);
                number += 1;
                return None;
            }
            Some(response)
        });
        assert!(matches!(refused.status, 503 | 504), "{refused:?}");
        wait_until("the node is not ready", || client.get("/readyz").status == 503);
        assert_eq!(client.get("/livez").status, 200);
        for &number in &acknowledged {
            assert!(client.value(&key(number)) == value(number), "reads go on");
        }
        let response = client.ok("PUT", &entity("full"), Some(b"v"));
        response.problem(503);
        assert!(response.header("retry-after").is_some(), "{response:?}");
        disk.free();
        wait_until("writing resumes by itself", || client.ok("PUT", &entity("again"), Some(b"v")).status == 201);
        wait_until("the node is ready again", || client.get("/readyz").status == 200);
        client.absent(&entity("full"));
    }
    let logged = |what: &str| cluster.log(0).matches(what).count();
    let (full, free) = (logged("the disk is full"), logged("the disk has space again"));
    assert!(full >= 3 && full == free, "each change is logged: {full} and {free} times\n{}", cluster.log(0));
    assert!(full <= 6, "and not each refusal: {full} times\n{}", cluster.log(0));
    cluster.kill(0);
    cluster.restart(0);
    let mut client = cluster.client(0);
    for &number in &acknowledged {
        assert!(client.value(&key(number)) == value(number), "write {number} was acknowledged and is lost");
    }
    drop(cluster);
    drop(disk);
}

/// With the memory that a node has by default a flush is of eight memtables of 4 MiB, into one table. Here there is
/// space for all of the logs, and not for that.
#[test]
fn a_flush_that_finds_no_space_loses_nothing_and_is_made_up_for() {
    let environment = [("KVORUM_COORDINATOR_DEADLINE", "2s"), ("KVORUM_MEMORY_BYTES", "512MiB")];
    let Some((mut cluster, disk)) = on_a_disk(1, 256, &environment) else { return };
    let mut client = cluster.client(0);
    let key = |number: usize| entity(format!("k{number}"));
    let value = |number: usize| Random::new(number as u64).bytes(100_000);
    let logs = |cluster: &Cluster| cluster.files(0, "store", ".log").len();
    let mut acknowledged = 0;
    let mut write = |client: &mut Client| {
        let is_written = client.ok("PUT", &key(acknowledged), Some(&value(acknowledged))).status == 201;
        acknowledged += usize::from(is_written);
        is_written
    };
    wait_until("there are six memtables", || write(&mut client) && logs(&cluster) == 6);
    disk.fill_but(24 << 20);
    wait_until("the flush fails", || {
        write(&mut client);
        cluster.log(0).contains("sst: No space left on device")
    });
    assert!(logs(&cluster) > 8, "{}", logs(&cluster));
    wait_until("writes are refused", || !write(&mut client));
    disk.free();
    wait_until("writing resumes by itself, and what could not be flushed is", || {
        write(&mut client) && logs(&cluster) < 3
    });
    cluster.kill(0);
    cluster.restart(0);
    let mut client = cluster.client(0);
    for number in 0..acknowledged {
        assert!(client.value(&key(number)) == value(number), "write {number} was acknowledged and is lost");
    }
    drop(cluster);
    drop(disk);
}

#[test]
fn killed_with_a_full_disk_a_node_has_what_it_acknowledged() {
    let Some((mut cluster, disk)) = on_a_small_disk(1) else { return };
    let mut client = cluster.client(0);
    let key = |number: usize| entity(format!("k{number}"));
    let mut acknowledged = 0;
    disk.fill();
    wait_until("a write is refused", || {
        let status = client.ok("PUT", &key(acknowledged), Some(&[7; 10_000])).status;
        acknowledged += usize::from(status == 201);
        status != 201
    });
    cluster.kill(0);
    disk.free();
    cluster.restart(0);
    let mut client = cluster.client(0);
    for number in 0..acknowledged {
        assert!(
            client.value(&key(number)) == [7; 10_000],
            "write {number} of {acknowledged} was acknowledged and is lost"
        );
    }
    client.put(&entity("k"), b"v");
    drop(cluster);
    drop(disk);
}

#[test]
fn one_full_disk_of_three_stops_nobody_else_and_its_node_answers_what_is_true() {
    let Some((cluster, disk)) = on_a_small_disk(3) else { return };
    let mut client = cluster.client(0);
    disk.fill();
    let mut written = Vec::new();
    let mut write = |client: &mut Client| {
        let target = format!("k{:05}", written.len());
        client.put(&entity(&target), &[1; 20_000]);
        written.push(target);
    };
    wait_until("the coordinator cannot write itself, and has noticed", || {
        (0..20).for_each(|_| write(&mut client));
        client.get("/readyz").status == 503
    });
    // For longer than the clock's bound leads: its timestamps do without the disk.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        write(&mut client);
    }
    client.ok("PUT", &entity_at("all", 3, 3), Some(b"v")).problem(503);
    assert_eq!(cluster.log(0).matches("the disk is full").count(), 1, "not once for each refusal");
    // Through the others, the two of them are a majority.
    for index in 1..3 {
        let key = format!("through {index}");
        cluster.client(index).put(&entity(&key), b"v");
        assert_eq!(cluster.client(0).value(&entity(&key)), b"v", "the full node still coordinates reads");
    }
    for index in 0..3 {
        let mut client = cluster.client(index);
        for key in &written {
            assert!(client.value(&entity(key)) == [1; 20_000], "{key} through node {index}");
        }
        client.absent(&entity("all"));
    }
    drop(cluster);
    drop(disk);
}
