//! SIGTERM: not ready, finish what is in flight, exit 0 within ten seconds.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::http::request;
use crate::support::{Cluster, entity, entity_at, wait_until, wait_within};

const LIMIT: Duration = Duration::from_secs(10);

/// Whether new work is turned away: not ready.
fn turned_away(cluster: &Cluster, index: usize) -> bool {
    !cluster.is_ready(index)
}

#[test]
fn an_idle_node_stops_at_once_and_has_everything_afterwards() {
    let mut cluster = Cluster::start(1);
    let mut idle = cluster.client(0);
    for number in 0..100 {
        idle.put(&entity(format!("k{number}")), b"v");
    }
    for signal in [Signal::TERM, Signal::INT] {
        cluster.signal(0, signal);
        let status = cluster.wait_exit(0, LIMIT);
        assert_eq!(status.code(), Some(0), "an idle keep-alive connection is no reason to wait");
        cluster.restart(0);
        assert_eq!(cluster.local(0, "k").len(), 100);
    }
}

#[test]
fn a_put_whose_body_is_on_its_way_is_answered() {
    let mut cluster = Cluster::start(1);
    let bytes = request("PUT", &entity("in flight"), &[("Expect", "100-continue")], Some(b"the whole value"));
    let (head, body) = bytes.split_at(bytes.len() - b"the whole value".len());
    let mut client = cluster.client(0);
    client.write(head).unwrap();
    assert_eq!(client.receive_any("PUT").unwrap().status, 100, "the node has begun with it");
    client.write(&body[..5]).unwrap();
    cluster.signal(0, Signal::TERM);
    wait_until("new work is turned away", || turned_away(&cluster, 0));
    client.write(&body[5..]).unwrap();
    let response = client.receive("PUT").unwrap();
    assert_eq!(response.status, 201, "{response:?}");
    assert!(response.closes(), "no further request is wanted: {response:?}");
    assert_eq!(cluster.wait_exit(0, LIMIT).code(), Some(0));
    cluster.restart(0);
    assert_eq!(cluster.client(0).value(&entity("in flight")), b"the whole value");
}

#[test]
fn whoever_comes_during_the_drain_is_told_so() {
    let mut cluster = Cluster::start(1);
    let bytes = request("PUT", &entity("in flight"), &[("Expect", "100-continue")], Some(b"value"));
    let (head, body) = bytes.split_at(bytes.len() - b"value".len());
    let mut slow = cluster.client(0);
    slow.write(head).unwrap();
    assert_eq!(slow.receive_any("PUT").unwrap().status, 100);
    let mut idle = cluster.client(0);
    idle.put(&entity("k"), b"v");
    cluster.signal(0, Signal::TERM);
    // Each shard notices it for itself, and closes what is idle at that moment without a word.
    wait_until("all shards drain", || {
        let probe = || cluster.client(0).send("GET", "/readyz", &[], None);
        (0..4).all(|_| probe().is_ok_and(|response| response.status == 503 && response.closes()))
    });
    for _ in 0..5 {
        for (method, target) in [("GET", "/readyz"), ("GET", &entity("k")), ("PUT", &entity("late"))] {
            let response = cluster.client(0).ok(method, target, (method == "PUT").then_some(b"v"));
            let problem = response.problem(503);
            assert!(problem["detail"].as_str().unwrap().contains("stopping"), "{problem}");
            assert!(response.closes() && response.header("retry-after").is_some(), "{response:?}");
        }
    }
    assert!(idle.send("GET", &entity("k"), &[], None).is_err(), "an idle connection is closed");
    slow.write(body).unwrap();
    assert_eq!(slow.receive("PUT").unwrap().status, 201);
    assert_eq!(cluster.wait_exit(0, LIMIT).code(), Some(0));
    cluster.restart(0);
    cluster.client(0).absent(&entity("late"));
}

/// A node whose threads hang as soon as they log: its output is not read, and the pipe is full.
#[test]
fn a_node_that_hangs_while_it_stops_ends_all_the_same() {
    let mut cluster = Cluster::prepare(1, &[("KVORUM_LOG_LEVEL", "info")]);
    let (log, says) = std::io::pipe().unwrap();
    let filling = says.try_clone().unwrap();
    let mut child = {
        let mut command = cluster.serve(0);
        command.arg("--stop-on-stdin-eof").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(says);
        command.spawn().unwrap()
    };
    wait_until("the node is ready", || cluster.is_ready(0));
    cluster.client(0).put(&entity("k"), b"v");
    let (filler, stop) = (AtomicI32::new(0), AtomicBool::new(false));
    let (status, mut log) = thread::scope(|scope| {
        // Dropped here if something fails: then nothing waits for room in the pipe.
        let mut log = log;
        scope.spawn(|| {
            filler.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            while !stop.load(Ordering::Relaxed) {
                (&filling).write_all(b"\n").unwrap();
            }
        });
        wait_until("the pipe is full", || {
            // Not even a byte has room if its filler sleeps; one that only waits for a processor is running.
            let stat = format!("/proc/self/task/{}/stat", filler.load(Ordering::Relaxed));
            std::fs::read_to_string(stat)
                .is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')))
        });
        wait_until("the node hangs", || {
            let headers = [
                ("Connection", "Upgrade"),
                ("Upgrade", "kvorum/4"),
                ("Kvorum-Cluster", "0000000000000001"),
                ("Kvorum-Node", "http://10.0.0.1:80"),
                ("Kvorum-Directory", "1"),
                ("Kvorum-Founding", "1"),
                ("Kvorum-Epoch", "1"),
                ("Kvorum-Deadline-Ms", "1"),
                ("Kvorum-Run", "1"),
                ("Kvorum-Recovered", "1"),
            ];
            let mut client = cluster.client(0).timeout(Duration::from_millis(500));
            client.send("GET", "/_peer", &headers, None).is_err()
        });
        let begin = Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
        let status = wait_within(LIMIT, "the node exits", || child.try_wait().unwrap());
        eprintln!("it took {:?}", begin.elapsed());
        stop.store(true, Ordering::Relaxed);
        // Room for the threads that wait.
        assert_eq!(log.read(&mut [0; 4096]).unwrap(), 4096);
        (status, log)
    });
    assert_eq!(status.code(), Some(0));
    drop(filling);
    let mut said = String::new();
    log.read_to_string(&mut said).unwrap();
    assert!(!said.contains("node stopped"), "it did not hang: {said}");
    cluster.restart(0);
    assert_eq!(cluster.client(0).value(&entity("k")), b"v");
}

#[test]
fn a_put_that_waits_for_a_replica_is_answered() {
    let mut cluster = Cluster::with(3, &[("KVORUM_COORDINATOR_DEADLINE", "5s")]);
    cluster.pause(2);
    let mut client = cluster.client(0);
    client.write(&request("PUT", &entity_at("k", 3, 3), &[], Some(b"v"))).unwrap();
    wait_until("the coordinator has sent it to the others", || cluster.local(1, "k").len() == 1);
    cluster.signal(0, Signal::TERM);
    wait_until("new work is turned away", || turned_away(&cluster, 0));
    cluster.resume(2);
    let response = client.receive("PUT").unwrap();
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(cluster.wait_exit(0, LIMIT).code(), Some(0));
    assert_eq!(cluster.client(1).value(&entity_at("k", 2, 3)), b"v");
}

#[test]
fn a_client_that_never_finishes_does_not_keep_the_node() {
    let mut cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let bytes = request("PUT", &entity("k"), &[], Some(b"never whole"));
    client.write(&bytes[..bytes.len() - 3]).unwrap();
    let mut reader = cluster.client(0);
    reader.put(&entity("big"), &vec![1; 4_000_000]);
    for _ in 0..20 {
        reader.write(&request("GET", &entity("big"), &[], None)).unwrap();
    }
    reader.head().unwrap();
    cluster.signal(0, Signal::TERM);
    let begin = Instant::now();
    let status = cluster.wait_exit(0, LIMIT);
    assert_eq!(status.code(), Some(0), "after {:?}", begin.elapsed());
    cluster.restart(0);
    cluster.client(0).absent(&entity("k"));
}

#[test]
fn a_node_that_drains_costs_its_peers_nothing() {
    let mut cluster = Cluster::start(3);
    let mut client = cluster.client(0);
    cluster.signal(2, Signal::TERM);
    let mut number = 0;
    wait_until("node 2 has gone", || {
        client.put(&entity(format!("k{number}")), b"v");
        client.value(&entity(format!("k{number}")));
        number += 1;
        !cluster.runs(2)
    });
    assert_eq!(cluster.wait_exit(2, LIMIT).code(), Some(0));
    cluster.restart(2);
    cluster.wait_whole();
    for index in 0..number {
        assert_eq!(cluster.client(2).value(&entity(format!("k{index}"))), b"v");
    }
}

#[test]
fn a_second_signal_is_not_a_crash() {
    let mut cluster = Cluster::start(1);
    cluster.client(0).put(&entity("k"), b"v");
    cluster.signal(0, Signal::TERM);
    cluster.signal(0, Signal::TERM);
    assert_eq!(cluster.wait_exit(0, LIMIT).code(), Some(0));
    cluster.restart(0);
    assert_eq!(cluster.client(0).value(&entity("k")), b"v");
}
