//! The memory for large values: who holds how much of it.

use super::{read, settings, until, with_memory};
use crate::HttpSettings;

#[test]
fn values_on_their_way_share_a_budget() {
    with_memory(300_000, settings(), |node| async move {
        let mut slow = node.connect().await;
        slow.send("PUT /v0/entity?id=slow HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n").await;
        slow.send(vec![b'x'; 199_999]).await;
        until("the slow one is charged", || node.large_values.used() > 190_000).await;
        let mut client = node.connect().await;
        let shed = client.ask_with("PUT /v0/entity?id=k", &[b'y'; 200_000]).await;
        assert_eq!((shed.status, shed.header("connection")), (503, None));
        assert_eq!(client.ask_with("PUT /v0/entity?id=k", b"small").await.status, 201);
        node.entities.insert(b"large", &[b'z'; 200_000]);
        assert_eq!(client.ask("GET /v0/entity?id=large").await.status, 503);
        slow.send("x").await;
        assert_eq!(slow.answer(false).await.status, 201);
        assert_eq!(client.ask("GET /v0/entity?id=large").await.body.len(), 200_000);
        until("everything is given back", || node.large_values.used() == 0).await;
    });
}

/// More than two sockets take by themselves, and a little less than half of what all clients may hold.
const LARGE: usize = 23 << 20;

#[test]
fn a_slow_reader_has_one_value_and_another_client_has_room() {
    let settings = HttpSettings { value_bytes_max: LARGE, ..settings() };
    with_memory(64 << 20, settings, |node| async move {
        node.entities.insert(b"k", &vec![b'v'; LARGE]);
        node.clients_come_from("10.0.0.1");
        let mut slow = node.connect().await;
        slow.send("GET /v0/entity?id=k HTTP/1.1\r\nHost: x\r\n\r\n").await;
        until("its answer waits", || !node.shares.is_unused()).await;
        let mut second = node.connect().await;
        let refused = second.ask("GET /v0/entity?id=k").await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
        assert!(refused.problem()["detail"].as_str().unwrap().contains("the client holds"), "{refused:?}");
        let refused = second.ask_with("PUT /v0/entity?id=other", &vec![b'w'; LARGE / 2]).await;
        assert_eq!(refused.status, 503, "a value on its way counts, too");
        assert_eq!(second.ask_with("PUT /v0/entity?id=other", b"small").await.status, 201, "small ones do not");
        node.clients_come_from("10.0.0.2");
        assert_eq!(node.ask("GET /v0/entity?id=k").await.body.len(), LARGE);
        assert_eq!(slow.answer(false).await.body.len(), LARGE);
        until("everything is given back", || node.shares.is_unused() && node.large_values.used() == 0).await;
        node.clients_come_from("10.0.0.1");
        assert_eq!(node.ask("GET /v0/entity?id=k").await.body.len(), LARGE);
    });
}

#[test]
fn pages_of_ranges_and_those_that_go_away_give_back_what_they_held() {
    with_memory(64 << 20, HttpSettings { value_bytes_max: LARGE, ..settings() }, |node| async move {
        node.entities.insert(b"k", &vec![b'v'; LARGE]);
        node.clients_come_from("10.0.0.1");
        let put = "PUT /v0/entity?id=k HTTP/1.1\r\nContent-Length: 99999";
        for request in ["GET /v0/entity?id=k", "GET /v0/entities?start=k", put] {
            let head = if request.contains("HTTP") { request.to_owned() } else { format!("{request} HTTP/1.1") };
            let mut client = node.connect().await;
            client.send(format!("{head}\r\nHost: x\r\n\r\n")).await;
            client.send(vec![b'x'; if request.starts_with("PUT") { 50_000 } else { 0 }]).await;
            until(request, || !node.shares.is_unused()).await;
            drop(client);
            until(request, || node.shares.is_unused() && read(&node.metrics.in_flight) == 0).await;
        }
        until("the memory is free", || node.large_values.used() == 0).await;
    });
}
