//! A node that was ordered to be slow: its answers are late, whole and in order.

use tokio::time::Instant;

use super::*;

#[test]
fn answers_of_a_slow_node_are_late_and_in_order_and_again_at_once_when_it_is_undone() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        client.ask_with("PUT /v0/entity?id=a", b"hello").await;
        node.faults.obey("slow 150").unwrap();
        let begun = Instant::now();
        let get = "GET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n\r\n";
        let missing = "GET /v0/entity?id=b HTTP/1.1\r\nHost: x\r\n\r\n";
        client.send([get, missing, get].concat()).await;
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(client.answer(false).await.status);
            assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
        }
        assert_eq!(statuses, [200, 404, 200]);
        node.faults.obey("slow 10000").unwrap();
        node.faults.obey("slow 0").unwrap();
        assert_eq!(client.ask("GET /v0/entity?id=a").await.body, b"hello");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_large_answer_of_a_slow_node_is_late_and_whole_and_so_is_what_was_asked_behind_it() {
    with(settings(), |node| async move {
        let value = vec![7; 1 << 20];
        let mut client = node.connect().await;
        client.ask_with("PUT /v0/entity?id=a", &value).await;
        node.faults.obey("slow 150").unwrap();
        let begun = Instant::now();
        client.send("GET /v0/entity?id=a HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2)).await;
        for _ in 0..2 {
            assert!(client.answer(false).await.body == value);
            assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
        }
    });
}

#[test]
fn an_answer_that_is_later_than_connections_are_kept_awake_still_comes_and_so_it_does_while_the_node_drains() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        node.faults.obey("slow 3000").unwrap();
        assert_eq!(client.ask("GET /v0/entity?id=b").await.status, 404);
        node.faults.obey("slow 300").unwrap();
        client.send("GET /v0/entity?id=b HTTP/1.1\r\nHost: x\r\n\r\n").await;
        until("it is asked", || node.entities.requests.get() == 2).await;
        node.shard.drain();
        assert_eq!(client.answer(false).await.status, 404);
    });
}
