//! Framing, limits and timeouts.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Client, ConnectionPhase, Node, SEATS_OF_ADDRESS, read, settings, until, with, with_memory};
use crate::HttpSettings;
use crate::accept::PEER_SEATS_OF_ADDRESS;

const SOON: Duration = Duration::from_millis(200);

/// A last answer that the node gave before it closed.
async fn last_answer(client: &mut Client) -> super::Answer {
    let answer = client.answer(false).await;
    assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
    assert_eq!(client.rest().await, b"");
    answer
}

async fn get(client: &mut Client, key: &str) -> Vec<u8> {
    client.ask(&format!("GET /v0/entity?id={key}")).await.body
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let mut requests = String::new();
        for number in 0..50 {
            requests +=
                &format!("PUT /v0/entity?id=k{number} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{number:02}");
            requests += &format!("GET /v0/entity?id=k{number} HTTP/1.1\r\nHost: x\r\n\r\n");
            requests += "GET /v0/entity HTTP/1.1\r\nHost: x\r\n\r\n";
        }
        client.send(requests).await;
        for number in 0..50 {
            assert_eq!(client.answer(false).await.status, 201);
            assert_eq!(client.answer(false).await.body, format!("{number:02}").into_bytes());
            assert_eq!(client.answer(false).await.status, 400);
        }
        client.assert_alive().await;
    });
}

#[test]
fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        client.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /readyz HT").await;
        assert_eq!(client.answer(false).await.status, 200);
        client.send("TP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(client.answer(false).await.status, 200);
    });
}

#[test]
fn a_head_that_comes_byte_by_byte_is_a_head() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        for byte in b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" {
            client.send([*byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.answer(false).await.status, 201);
        assert_eq!(get(&mut client, "k").await, b"abc");
    });
}

#[test]
fn chunked_bodies_are_put_together() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        client.send("PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        for chunk in ["3\r\nabc\r\n", "1;extension=1\r\nd\r\n", "2\r\nef\r\n", "0\r\nTrailer: x\r\n\r\n"] {
            client.send(chunk).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.answer(false).await.status, 201);
        assert_eq!(get(&mut client, "k").await, b"abcdef");
        client.send("PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").await;
        assert_eq!(client.answer(false).await.status, 201);
        assert_eq!(get(&mut client, "k").await, b"");
    });
}

#[test]
fn a_broken_chunk_is_400_and_the_end() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let head = "PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.send(format!("{head}3\r\nabc\r\nzz\r\n")).await;
        let answer = last_answer(&mut client).await;
        assert_eq!(answer.status, 400);
        answer.problem();
        assert_eq!(node.entities.requests.get(), 0);
    });
}

#[test]
fn a_body_that_ends_early_stores_nothing() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        client.send("PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc").await;
        client.stream.shutdown().await.unwrap();
        client.rest().await;
        assert_eq!(node.entities.requests.get(), 0);
        until("the connection goes", || node.shard.connections() == 0).await;
    });
}

#[test]
fn large_values_go_in_and_out() {
    let settings = HttpSettings { value_bytes_max: 8 << 20, ..settings() };
    with(settings, |node| async move {
        let value: Vec<u8> = (0..8 << 20).map(|at: usize| ((at * 7) >> 3) as u8).collect();
        let mut client = node.connect().await;
        assert_eq!(client.ask_with("PUT /v0/entity?id=k", &value).await.status, 201);
        assert!(get(&mut client, "k").await == value);
        client.assert_alive().await;
    });
}

#[test]
fn a_value_over_the_limit_is_413() {
    let settings = HttpSettings { value_bytes_max: 1000, ..settings() };
    with(settings, |node| async move {
        let mut client = node.connect().await;
        assert_eq!(client.ask_with("PUT /v0/entity?id=k", &[b'x'; 1000]).await.status, 201);
        // Decided from the length, before a byte of the body has come.
        client.send("PUT /v0/entity?id=l HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n").await;
        let answer = last_answer(&mut client).await;
        assert_eq!(answer.status, 413);
        assert_eq!(answer.problem()["limit"], 1000);
        // Counted, where the length is not declared.
        let mut client = node.connect().await;
        client.send("PUT /v0/entity?id=l HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        client.send(format!("1f4\r\n{0}\r\n1f5\r\n{0}y\r\n", "x".repeat(500))).await;
        assert_eq!(last_answer(&mut client).await.status, 413);
        assert_eq!(node.entities.value(b"l"), None);
    });
}

#[test]
fn the_answer_to_a_refused_upload_survives_the_upload() {
    let settings = HttpSettings { value_bytes_max: 1000, ..settings() };
    with(settings, |node| async move {
        let mut client = node.connect().await;
        client.send("PUT /v0/entity?id=l HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").await;
        client.send(vec![b'x'; 1_000_000]).await;
        assert_eq!(last_answer(&mut client).await.status, 413);
    });
}

#[test]
fn expect_continue_is_honoured_once_the_head_is_acceptable() {
    let settings = HttpSettings { value_bytes_max: 1000, ..settings() };
    with(settings, |node| async move {
        let expecting = |target: &str, length: usize| {
            format!("PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n")
        };
        let mut client = node.connect().await;
        client.send(expecting("/v0/entity?id=k", 3)).await;
        assert_eq!(client.read_through(b"\r\n\r\n").await, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.send("abc").await;
        assert_eq!(client.answer(false).await.status, 201);
        assert_eq!(get(&mut client, "k").await, b"abc");
        for (target, length, status) in [("/v0/entity?id=", 3, 400), ("/v0/entity?id=k", 1001, 413)] {
            let mut client = node.connect().await;
            client.send(expecting(target, length)).await;
            assert_eq!(last_answer(&mut client).await.status, status);
        }
    });
}

#[test]
fn http_1_0_is_answered_and_closed() {
    with(settings(), |node| async move {
        node.entities.insert(b"k", b"v");
        for keep in ["", "Connection: keep-alive\r\n"] {
            let mut client = node.connect().await;
            client.send(format!("GET /v0/entity?id=k HTTP/1.0\r\n{keep}\r\n")).await;
            let answer = last_answer(&mut client).await;
            assert_eq!((answer.status, answer.body.as_slice()), (200, b"v".as_slice()));
        }
        let mut client = node.connect().await;
        client.send("GET /v0/entities?start=k HTTP/1.0\r\n\r\n").await;
        let head = String::from_utf8(client.read_through(b"\r\n\r\n").await).unwrap();
        assert!(!head.contains("chunked"), "{head}");
        assert_eq!(client.rest().await, b"k\nv");
    });
}

#[test]
fn an_offer_of_h2c_is_ignored() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB";
        assert_eq!(client.ask_with(&format!("PUT /v0/entity?id=k\r\n{offer}"), b"v").await.status, 201);
        let answer = client.ask(&format!("GET /v0/entity?id=k\r\n{offer}")).await;
        assert_eq!((answer.status, answer.body.as_slice()), (200, b"v".as_slice()));
        client.assert_alive().await;
    });
}

#[test]
fn connection_close_is_obeyed() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        client.send("GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert_eq!(last_answer(&mut client).await.status, 200);
    });
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        client.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await;
        client.stream.shutdown().await.unwrap();
        assert!(client.rest().await.ends_with(b"ok\n"));
        until("the connection goes", || node.shard.connections() == 0).await;
    });
}

#[test]
fn garbage_is_400_and_the_end() {
    with(settings(), |node| async move {
        let samples: [&[u8]; 7] = [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            b"hello\r\n\r\n",
            b"GET /livez HTTP/9.9\r\n\r\n",
            b"GET /livez HTTP/1.1\r\nno colon\r\n\r\n",
            b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ];
        for sample in samples {
            let mut client = node.connect().await;
            client.send(sample).await;
            let text = String::from_utf8(client.rest().await).unwrap();
            assert!(text.starts_with("HTTP/1.1 400 "), "{:?}: {text}", String::from_utf8_lossy(sample));
        }
        assert_eq!(read(&node.metrics.malformed), samples.len() as u64);
        assert_eq!(node.entities.requests.get(), 0);
    });
}

#[test]
fn one_host_is_required() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        client.send("GET /livez HTTP/1.1\r\n\r\n").await;
        let answer = client.answer(false).await;
        assert_eq!(answer.status, 400);
        assert!(answer.problem()["detail"].as_str().unwrap().contains("Host"));
        client.assert_alive().await;
    });
}

#[test]
fn a_head_over_16_kib_is_431() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let fits = format!("GET /livez\r\nX: {}", "x".repeat(16_000));
        assert_eq!(client.ask(&fits).await.status, 200);
        for filler in ["x".repeat(16_400), "x".repeat(70_000)] {
            let mut client = node.connect().await;
            client.send(format!("GET /livez HTTP/1.1\r\nHost: x\r\nX: {filler}\r\n\r\n")).await;
            let text = String::from_utf8(client.rest().await).unwrap();
            assert!(text.starts_with("HTTP/1.1 431 ") && text.contains("connection: close"), "{text}");
        }
    });
}

#[test]
fn a_slow_head_is_408() {
    with(HttpSettings { request_read_timeout: SOON, ..settings() }, |node| async move {
        let mut fresh = node.connect().await;
        fresh.send("GET /livez HT").await;
        let mut used = node.connect().await;
        used.assert_alive().await;
        used.send("G").await;
        // In one packet with a request before it.
        let mut piped = node.connect().await;
        piped.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /li").await;
        assert_eq!(piped.answer(false).await.status, 200);
        for client in [&mut fresh, &mut used, &mut piped] {
            let answer = last_answer(client).await;
            assert_eq!(answer.status, 408);
            answer.problem();
        }
        assert_eq!(read(&node.metrics.request_timeouts), 3);
    });
}

#[test]
fn a_slow_body_is_408_and_stores_nothing() {
    with(HttpSettings { request_read_timeout: SOON, ..settings() }, |node| async move {
        // The second is only being swallowed.
        for target in ["/v0/entity?id=k", "/v0/entity?id="] {
            let mut client = node.connect().await;
            client.send(format!("PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")).await;
            assert_eq!(last_answer(&mut client).await.status, 408);
        }
        assert_eq!(node.entities.requests.get(), 0);
        assert_eq!(read(&node.metrics.in_flight), 0);
    });
}

#[test]
fn a_body_that_trickles_is_408_too() {
    with(HttpSettings { request_read_timeout: SOON, ..settings() }, |node| async move {
        let mut client = node.connect().await;
        client.send("PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n").await;
        until("the node has had enough", || {
            let _ = client.stream.try_write(b"x");
            read(&node.metrics.request_timeouts) == 1
        })
        .await;
        assert_eq!(last_answer(&mut client).await.status, 408);
    });
}

#[test]
fn a_request_being_served_does_not_time_out() {
    let settings = HttpSettings { request_read_timeout: SOON, idle_timeout: SOON, ..settings() };
    with(settings, |node| async move {
        node.entities.held.set(true);
        let mut client = node.connect().await;
        client.send("GET /v0/entity?id=k HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut idle = node.connect().await;
        assert_eq!(idle.rest().await, b"");
        assert_eq!(read(&node.metrics.in_flight), 1);
        node.entities.held.set(false);
        node.entities.release.notify_waiters();
        assert_eq!(client.answer(false).await.status, 404);
    });
}

#[test]
fn idle_connections_are_closed_without_a_word() {
    with(HttpSettings { idle_timeout: SOON, request_read_timeout: SOON, ..settings() }, |node| async move {
        let mut silent = node.connect().await;
        let mut used = node.connect().await;
        used.assert_alive().await;
        assert_eq!(silent.rest().await, b"");
        assert_eq!(used.rest().await, b"");
        assert_eq!(read(&node.metrics.idle_timeouts), 2);
        assert_eq!(read(&node.metrics.request_timeouts), 0);
    });
}

/// What the node's only connection is doing.
fn phase(node: &Node) -> ConnectionPhase {
    node.shard.connections.borrow().iter().next().unwrap().1.phase()
}

#[test]
fn a_connection_that_was_parked_goes_on() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        client.assert_alive().await;
        until("it is parked", || phase(&node) == ConnectionPhase::Parked).await;
        client.assert_alive().await;
        // Half a head behind a request is not lost when the buffers are given back.
        client.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /readyz HT").await;
        assert_eq!(client.answer(false).await.status, 200);
        until("the head is noticed", || phase(&node) == ConnectionPhase::Head).await;
        client.send("TP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(client.answer(false).await.status, 200);
        client.assert_alive().await;
    });
}

#[test]
fn a_reader_that_stops_is_cut_off() {
    let settings = HttpSettings { write_timeout: SOON, value_bytes_max: 64 << 20, ..settings() };
    with_memory(128 << 20, settings, |node| async move {
        node.entities.insert(b"k", &vec![b'v'; 32 << 20]);
        let mut whole = node.connect().await;
        whole.send("GET /v0/entity?id=k HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut range = node.connect().await;
        range.send("GET /v0/entities?start=k HTTP/1.1\r\nHost: x\r\n\r\n").await;
        until("both are cut off", || read(&node.metrics.write_timeouts) == 2 && node.shard.connections() == 0).await;
        assert!(whole.rest().await.len() < 32 << 20);
        assert_eq!(read(&node.metrics.in_flight), 0);
    });
}

#[test]
fn connections_over_the_limit_are_told_and_closed() {
    with(HttpSettings { connections_max: 2, ..settings() }, |node| async move {
        let mut first = node.connect().await;
        first.assert_alive().await;
        let mut second = node.connect().await;
        second.assert_alive().await;
        let mut third = node.connect().await;
        third.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let answer = last_answer(&mut third).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        answer.problem();
        drop(second);
        until("the seat is free", || node.shard.connections() == 1).await;
        node.connect().await.assert_alive().await;
        first.assert_alive().await;
    });
}

#[test]
fn a_peer_has_a_seat_where_clients_have_all() {
    with(HttpSettings { connections_max: 1, ..settings() }, |node| async move {
        let mut client = node.connect().await;
        client.assert_alive().await;
        let hello = "GET /_peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: kvorum/4\r\n";
        let mut peer = node.connect().await;
        peer.send(format!("{hello}Kvorum-Cluster: ours\r\n\r\n")).await;
        assert_eq!(peer.answer(false).await.status, 101);
        until("the peer is taken", || node.peers.taken.borrow().len() == 1).await;
        // A stranger, and who says nothing, leave theirs at once.
        let mut stranger = node.connect().await;
        stranger.send(format!("{hello}\r\n")).await;
        assert_eq!(last_answer(&mut stranger).await.status, 403);
        assert_eq!(node.connect().await.rest().await, b"");
        client.assert_alive().await;
        until("all seats of peers are free", || node.shard.peer_seats.borrow().is_empty()).await;
    });
}

#[test]
fn a_peer_has_a_seat_where_clients_of_its_address_have_all_and_one_address_takes_few_of_those() {
    with(settings(), |node| async move {
        node.clients_come_from("10.0.0.1");
        let mut clients = Vec::new();
        for _ in 0..SEATS_OF_ADDRESS {
            clients.push(node.connect().await);
            clients.last_mut().unwrap().assert_alive().await;
        }
        let mut over = node.connect().await;
        over.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let answer = last_answer(&mut over).await;
        assert!(answer.status == 503 && answer.problem()["detail"].as_str().unwrap().contains("address"), "{answer:?}");
        let hello = "GET /_peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: kvorum/4\r\n";
        let hello = format!("{hello}Kvorum-Cluster: ours\r\n\r\n");
        let mut peer = node.connect().await;
        peer.send(&hello).await;
        assert_eq!(peer.answer(false).await.status, 101);
        // One address that says nothing does not take all seats of peers.
        let mut silent = Vec::new();
        for _ in 0..2 * PEER_SEATS_OF_ADDRESS {
            silent.push(node.connect().await);
        }
        until("the silent have seats", || node.shard.peer_seats.borrow().len() >= PEER_SEATS_OF_ADDRESS).await;
        assert_eq!(node.shard.peer_seats.borrow().len(), PEER_SEATS_OF_ADDRESS);
        node.clients_come_from("10.0.0.2");
        node.connect().await.assert_alive().await;
        drop(silent);
        until("their seats are free", || node.shard.peer_seats.borrow().is_empty()).await;
    });
}

#[test]
fn requests_over_the_limit_are_shed_and_keep_their_connection() {
    with(HttpSettings { requests_max: 1, ..settings() }, |node| async move {
        node.entities.held.set(true);
        let mut first = node.connect().await;
        first.send("GET /v0/entity?id=k HTTP/1.1\r\nHost: x\r\n\r\n").await;
        until("the first is in flight", || node.entities.requests.get() == 1).await;
        let mut second = node.connect().await;
        for request in ["GET /v0/entity?id=k", "PUT /v0/entity?id=k", "GET /v0/entities?start=k"] {
            let answer = second.ask_with(request, b"some body").await;
            assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        }
        second.assert_alive().await;
        assert_eq!(node.entities.requests.get(), 1);
        node.entities.held.set(false);
        node.entities.release.notify_waiters();
        assert_eq!(first.answer(false).await.status, 404);
        assert_eq!(second.ask("GET /v0/entity?id=k").await.status, 404);
    });
}

#[test]
fn who_sends_slowly_takes_no_room_from_others() {
    with(HttpSettings { requests_max: 1, ..settings() }, |node| async move {
        let mut slow = node.connect().await;
        for request in ["PUT /v0/entity?id=k", "GET /v0/entity?id=k"] {
            slow.send(format!("{request} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx")).await;
            until("it is being read", || read(&node.metrics.in_flight) == 1).await;
            let mut client = node.connect().await;
            assert_eq!(client.ask("GET /v0/entity?id=other").await.status, 404);
            slow.send("y").await;
            assert!(slow.answer(false).await.status < 300);
        }
    });
}

#[test]
fn a_request_over_the_limit_waits_a_moment_for_room() {
    with(HttpSettings { requests_max: 1, ..settings() }, |node| async move {
        let (mut first, mut second) = (node.connect().await, node.connect().await);
        // On a machine that stops for longer than the wait, again.
        loop {
            node.entities.held.set(true);
            let (begun, shed) = (node.entities.requests.get(), read(&node.metrics.shed));
            first.send("GET /v0/entity?id=k HTTP/1.1\r\nHost: x\r\n\r\n").await;
            until("the first is in flight", || node.entities.requests.get() == begun + 1).await;
            second.send("GET /v0/entity?id=k HTTP/1.1\r\nHost: x\r\n\r\n").await;
            until("the second was seen", || read(&node.metrics.in_flight) == 2 || read(&node.metrics.shed) > shed)
                .await;
            node.entities.held.set(false);
            node.entities.release.notify_waiters();
            assert_eq!(first.answer(false).await.status, 404);
            match second.answer(false).await.status {
                404 => return,
                status => assert_eq!(status, 503),
            }
        }
    });
}

async fn drained(node: &Node) {
    tokio::time::timeout(super::PATIENCE, node.shard.drained()).await.expect("drains");
}

#[test]
fn draining_finishes_what_is_in_flight_and_closes_the_rest() {
    with(settings(), |node| async move {
        node.entities.held.set(true);
        let mut silent = node.connect().await;
        let mut used = node.connect().await;
        used.assert_alive().await;
        let mut busy = node.connect().await;
        busy.send("PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nv").await;
        until("it is in flight", || node.entities.requests.get() == 1 && node.shard.connections() == 3).await;
        node.shard.drain();
        assert_eq!(silent.rest().await, b"");
        assert_eq!(used.rest().await, b"");
        assert_eq!(node.shard.connections(), 1, "what is idle is not waited for: only the busy one is left");
        let mut late = node.connect().await;
        late.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(last_answer(&mut late).await.status, 503);
        node.entities.held.set(false);
        node.entities.release.notify_waiters();
        assert_eq!(last_answer(&mut busy).await.status, 201);
        drop(busy);
        drained(&node).await;
        assert_eq!(node.entities.value(b"k"), Some(b"v".to_vec()));
    });
}

#[test]
fn a_request_that_came_just_before_the_drain_is_answered() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        client.assert_alive().await;
        client.send("PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nv").await;
        // It is unread: tasks run only while this one waits.
        node.shard.drain();
        assert_eq!(client.answer(false).await.status, 201);
        assert_eq!(client.rest().await, b"");
        drained(&node).await;
        assert_eq!(node.entities.value(b"k"), Some(b"v".to_vec()));
    });
}

#[test]
fn a_peer_gets_the_socket_and_what_it_has_said() {
    with(settings(), |node| async move {
        let hello = "GET /_peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: kvorum/4\r\n";
        let mut client = node.connect().await;
        client.send(format!("{hello}Kvorum-Cluster: ours\r\n\r\nfirst frames")).await;
        let answer = client.answer(false).await;
        assert_eq!((answer.status, answer.header("upgrade")), (101, Some("kvorum/4")));
        assert_eq!(answer.header("kvorum-node"), Some("b"));
        until("the peer is taken", || node.peers.taken.borrow().len() == 1).await;
        assert_eq!(node.shard.connections(), 0);
        let (mut stream, mut read_ahead, hello) = node.peers.taken.borrow_mut().pop().unwrap();
        assert_eq!(hello.get("kvorum-cluster").unwrap(), "ours");
        client.send(" and more").await;
        let mut said = vec![0; b"first frames and more".len() - read_ahead.len()];
        stream.read_exact(&mut said).await.unwrap();
        let all = [read_ahead.split_off(0).to_vec(), said].concat();
        assert_eq!(all, b"first frames and more");
        stream.write_all(b"answer").await.unwrap();
        assert_eq!(client.read_bytes(6).await, b"answer");
    });
}

#[test]
fn a_stranger_is_refused() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let answer = client.ask("GET /_peer\r\nConnection: Upgrade\r\nUpgrade: kvorum/4").await;
        assert_eq!((answer.status, &answer.problem()["detail"]), (403, &"another cluster".into()));
        client.assert_alive().await;
        assert!(node.peers.taken.borrow().is_empty());
    });
}

#[test]
fn idle_connections_hold_no_buffers() {
    with(HttpSettings { connections_max: 2000, ..settings() }, |node| async move {
        let mut clients = Vec::new();
        for _ in 0..200 {
            clients.push(node.connect().await);
        }
        until("all have a seat", || node.shard.connections() == 200).await;
        let parked =
            || node.shard.connections.borrow().iter().all(|(_, watch)| watch.phase() == ConnectionPhase::Parked);
        assert!(parked());
        for client in &mut clients {
            client.assert_alive().await;
        }
        until("all are parked again", parked).await;
    });
}

#[test]
fn each_head_has_its_lines_once_whatever_hyper_writes_with_it() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        // A body that looks like a head, a body that is large, and none.
        let bodies =
            [b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n".to_vec(), vec![b'\r'; 300_000], Vec::new()];
        for (id, body) in bodies.iter().enumerate() {
            assert_eq!(client.ask_with(&format!("PUT /v0/entity?id={id}"), body).await.status, 201);
        }
        let mut sent = String::new();
        for _ in 0..20 {
            for id in 0..3 {
                sent += &format!("GET /v0/entity?id={id} HTTP/1.1\r\nHost: x\r\n\r\n");
            }
            sent += "HEAD /v0/entity?id=0 HTTP/1.1\r\nHost: x\r\n\r\n";
            sent += "PUT /v0/entity?id=none HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nv";
            sent += "DELETE /v0/entity?id=none HTTP/1.1\r\nHost: x\r\n\r\nGET /v0/entity?id=none HTTP/1.1\r\nHost: x\r\n\r\n";
        }
        client.send(sent).await;
        // Until this side waits for the client, which does not read.
        until("answers wait", || node.metrics.requests().map(|(_, _, count)| count).sum::<u64>() > 5).await;
        let lines = |answer: &super::Answer, has_value: bool| {
            let policy = has_value.then_some("sandbox; default-src 'none'");
            assert_eq!(answer.header("content-security-policy"), policy, "{answer:?}");
            for line in ["\r\nx-content-type-options: nosniff\r\n", "\r\ncross-origin-resource-policy: same-origin\r\n"]
            {
                assert_eq!(answer.head.matches(line).count(), 1, "{answer:?}");
            }
        };
        for _ in 0..20 {
            for body in &bodies {
                let answer = client.answer(false).await;
                assert!(answer.status == 200 && answer.body == *body, "{} {}", answer.status, answer.body.len());
                lines(&answer, true);
            }
            for (method, status) in [("HEAD", 200), ("PUT", 201), ("DELETE", 202), ("GET", 404)] {
                let mut answer = client.answer(method == "HEAD").await;
                if answer.status == 100 {
                    assert_eq!(answer.head, "HTTP/1.1 100 Continue\r\n\r\n");
                    answer = client.answer(false).await;
                }
                assert_eq!(answer.status, status, "{method}");
                lines(&answer, method == "HEAD");
            }
        }
    });
}
