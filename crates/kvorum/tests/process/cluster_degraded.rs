//! One of three is away: dead, paused or beyond a black hole. The others must hardly notice.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::http::request;
use crate::support::{Client, Cluster, SOON, entity, entity_at, wait_until};

/// Far longer than any of these tests should take, so that waiting for it is seen.
const DEADLINE: &[(&str, &str)] = &[("KVORUM_COORDINATOR_DEADLINE", "20s")];

/// Every kind of request at 2/3, many times, through the nodes that are left.
fn serves_at_quorum(cluster: &Cluster) {
    let begin = Instant::now();
    let rounds = 100;
    for index in 0..2 {
        let mut client = cluster.client(index);
        for round in 0..rounds {
            let target = entity(format!("k{}", round % 10));
            client.put(&target, format!("{index} {round}").as_bytes());
            assert_eq!(client.value(&target), format!("{index} {round}").as_bytes());
            client.delete(&target);
            client.absent(&target);
        }
    }
    // 800 requests; if even one in a hundred waited for the missing node's deadline this were 160 s.
    assert!(begin.elapsed() < SOON, "800 requests took {:?}", begin.elapsed());
}

#[test]
fn a_dead_node_is_not_waited_for() {
    let mut cluster = Cluster::with(3, DEADLINE);
    cluster.kill(2);
    serves_at_quorum(&cluster);
    cluster.restart(2);
    cluster.wait_whole();
    serves_at_quorum(&cluster);
}

#[test]
fn a_paused_node_is_not_waited_for() {
    let mut cluster = Cluster::with(3, DEADLINE);
    cluster.pause(2);
    serves_at_quorum(&cluster);
    cluster.resume(2);
    cluster.wait_whole();
    serves_at_quorum(&cluster);
}

#[test]
fn a_node_beyond_a_black_hole_is_not_waited_for() {
    let mut cluster = Cluster::with(3, DEADLINE);
    cluster.kill(2);
    let hole = BlackHole::at(&cluster, 2);
    serves_at_quorum(&cluster);
    drop(hole);
    cluster.restart(2);
    cluster.wait_whole();
    serves_at_quorum(&cluster);
}

/// A port that swallows connection attempts: a listener whose queue is full drops every further SYN.
struct BlackHole {
    _listener: TcpListener,
    _queued: Vec<std::net::TcpStream>,
}

impl BlackHole {
    fn at(cluster: &Cluster, index: usize) -> Self {
        let address = cluster.node(index).address;
        let listener = TcpListener::bind(address).expect("the dead node's port is free");
        rustix::net::listen(&listener, 0).expect("a listener's queue can be shortened");
        let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300));
        let mut queued = Vec::new();
        wait_until("the queue is full", || match connect() {
            Ok(stream) => {
                queued.push(stream);
                false
            }
            Err(_) => true,
        });
        Self { _listener: listener, _queued: queued }
    }
}

#[test]
fn a_refused_connection_is_a_failure_at_once() {
    let mut cluster = Cluster::with(3, &[("KVORUM_COORDINATOR_DEADLINE", "60s")]);
    cluster.kill(2);
    let begin = Instant::now();
    let mut client = cluster.client(0);
    for (method, body) in [("PUT", Some(b"v".as_slice())), ("GET", None), ("DELETE", None)] {
        for _ in 0..20 {
            let problem = client.ok(method, &entity_at("k", 3, 3), body).problem(504);
            assert_eq!(problem["acked"], 2, "{problem}");
        }
    }
    assert!(begin.elapsed() < SOON, "60 requests took {:?}: each waits", begin.elapsed());
}

#[test]
fn a_silent_node_costs_a_request_that_needs_it_the_deadline_and_no_more() {
    let cluster = Cluster::with(3, &[("KVORUM_COORDINATOR_DEADLINE", "1s")]);
    cluster.pause(2);
    let begin = Instant::now();
    let problem = cluster.client(0).ok("PUT", &entity_at("k", 3, 3), Some(b"v")).problem(504);
    assert_eq!(problem["acked"], 2, "{problem}");
    assert!(begin.elapsed() >= Duration::from_millis(900), "gave up before the deadline: {:?}", begin.elapsed());
    assert_eq!(cluster.client(1).value(&entity("k")), b"v", "a 504 may take effect");
    cluster.resume(2);
    cluster.wait_answers(0, 3);
}

#[test]
fn with_two_of_three_away_only_one_ack_is_to_be_had() {
    let mut cluster = Cluster::start(3);
    cluster.client(0).put(&entity_at("k", 3, 3), b"v");
    cluster.kill(1);
    cluster.kill(2);
    let mut client = cluster.client(0);
    client.get(&entity("k")).problem(504);
    assert_eq!(client.value(&entity_at("k", 1, 3)), b"v");
    client.put(&entity_at("k", 1, 3), b"w");
    assert_eq!(client.value(&entity_at("k", 1, 3)), b"w");
    client.delete(&entity_at("k", 1, 3));
    client.absent(&entity_at("k", 1, 3));
    assert!(cluster.is_ready(0), "a lonely node is still ready");
}

#[test]
fn a_node_that_comes_back_counts_again() {
    let mut cluster = Cluster::start(3);
    for round in 0..5 {
        let away = round % 3;
        let other = (away + 1) % 3;
        cluster.kill(away);
        cluster.client(other).put(&entity("k"), format!("{round}").as_bytes());
        cluster.restart(away);
        cluster.wait_whole();
        assert_eq!(cluster.client(away).value(&entity_at("k", 3, 3)), format!("{round}").as_bytes());
        cluster.client(away).put(&entity_at("k", 3, 3), b"all three again");
    }
}

#[test]
fn pipelined_requests_do_not_wait_for_a_silent_node() {
    let cluster = Cluster::with(3, DEADLINE);
    cluster.pause(2);
    let mut client: Client = cluster.client(0);
    let mut bytes = Vec::new();
    for round in 0..200 {
        bytes.extend(request("PUT", &entity(format!("k{round}")), &[], Some(b"v")));
        bytes.extend(request("GET", &entity(format!("k{round}")), &[], None));
    }
    let begin = Instant::now();
    client.write(&bytes).unwrap();
    for _ in 0..200 {
        assert_eq!(client.receive("PUT").unwrap().status, 201);
        assert_eq!(client.receive("GET").unwrap().status, 200);
    }
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}
