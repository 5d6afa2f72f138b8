//! Streams of records.

use tokio::io::AsyncReadExt;

use super::{read, settings, until, with};
use crate::{HttpSettings, RangeError};

#[test]
fn one_chunk_per_record_from_start_to_before_end() {
    with(settings(), |node| async move {
        for key in ["a", "b", "b\0", "c", "d"] {
            node.entities.insert(key.as_bytes(), format!("value of {key}").as_bytes());
        }
        node.entities.insert(b"empty", b"");
        let mut client = node.connect().await;
        let answer = client.ask("GET /v0/entities?start=b&end=d").await;
        let chunks: Vec<_> = answer.chunks.iter().map(|chunk| String::from_utf8_lossy(chunk)).collect();
        assert_eq!(chunks, ["b\nvalue of b", "b\0\nvalue of b\0", "c\nvalue of c"]);
        let open = client.ask("GET /v0/entities?start=d").await;
        assert_eq!(open.chunks, [b"d\nvalue of d".to_vec(), b"empty\n".to_vec()]);
    });
}

#[test]
fn the_bytes_on_the_wire() {
    with(settings(), |node| async move {
        node.entities.insert(b"k1", b"v1");
        node.entities.insert(b"k2", &[b'x'; 20]);
        let mut client = node.connect().await;
        client.send("GET /v0/entities?start=k HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        let head = String::from_utf8(client.read_through(b"\r\n\r\n").await).unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let body = client.rest().await;
        assert_eq!(body, b"5\r\nk1\nv1\r\n17\r\nk2\nxxxxxxxxxxxxxxxxxxxx\r\n0\r\n\r\n");
    });
}

#[test]
fn deleted_records_are_left_out_and_an_empty_range_is_an_empty_body() {
    with(settings(), |node| async move {
        node.entities.insert(b"a", b"1");
        node.ask("DELETE /v0/entity?id=a").await;
        let answer = node.ask("GET /v0/entities?start=a").await;
        assert_eq!((answer.status, answer.chunks.len()), (200, 0));
        assert_eq!(node.ask("GET /v0/entities?start=z&end=b").await.chunks.len(), 0);
    });
}

#[test]
fn a_head_of_a_range_reads_nothing() {
    with(settings(), |node| async move {
        node.entities.insert(b"a", b"1");
        let answer = node.ask("HEAD /v0/entities?start=a").await;
        assert_eq!((answer.status, answer.header("content-length")), (200, None));
        assert_eq!(node.ranges.pages.get(), 0);
    });
}

#[test]
fn pages_follow_each_other_without_gap_or_repeat() {
    with(settings(), |node| async move {
        for number in 0..3000 {
            node.entities.insert(format!("k{number:05}").as_bytes(), b"0123456789");
        }
        let answer = node.ask("GET /v0/entities?start=k").await;
        let expected: Vec<_> = (0..3000).map(|number| format!("k{number:05}\n0123456789").into_bytes()).collect();
        assert_eq!(answer.chunks, expected);
        assert!(node.ranges.pages.get() > 10);
    });
}

#[test]
fn a_reader_that_pauses_pauses_the_scan() {
    let settings = HttpSettings { scan_page_bytes: 64 << 10, ..settings() };
    with(settings, |node| async move {
        let value = vec![b'v'; 32 << 10];
        for number in 0..2000 {
            node.entities.insert(format!("k{number:05}").as_bytes(), &value);
        }
        let mut client = node.connect().await;
        // A second request behind the range must neither hold it back nor run past it.
        client.send("GET /v0/entities?start=k HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await;
        // 64 MB do not fit the sockets' buffers: the scan stops by itself.
        let mut pages = 0;
        until("the scan pauses", || {
            let before = std::mem::replace(&mut pages, node.ranges.pages.get());
            pages > 0 && pages == before && read(&node.metrics.in_flight) == 1
        })
        .await;
        assert!(pages < 900, "{pages} of some 1000 pages were read for no client");
        let answer = client.answer(false).await;
        assert_eq!(answer.chunks.len(), 2000);
        assert!(node.ranges.pages.get() > pages);
        assert_eq!(client.answer(false).await.body, b"ok\n");
    });
}

#[test]
fn a_damaged_record_cuts_the_stream() {
    with(settings(), |node| async move {
        for number in 0..500 {
            node.entities.insert(format!("k{number:03}").as_bytes(), &[b'v'; 100]);
        }
        *node.ranges.corrupt.borrow_mut() = Some(b"k400".to_vec());
        let mut client = node.connect().await;
        client.send("GET /v0/entities?start=k HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let all = client.rest().await;
        assert!(!all.ends_with(b"0\r\n\r\n"), "the stream must not look complete");
        assert!(!all.windows(5).any(|window| window == b"k401\n"));
        assert_eq!(read(&node.metrics.ranges_broken), 1);
        assert_eq!(read(&node.metrics.in_flight), 0);
    });
}

#[test]
fn what_fails_before_the_first_record_has_a_status() {
    with(settings(), |node| async move {
        *node.ranges.failure.borrow_mut() = Some(RangeError::Overloaded);
        let shed = node.ask("GET /v0/entities?start=k").await;
        assert_eq!((shed.status, shed.header("retry-after")), (503, Some("1")));
        *node.ranges.failure.borrow_mut() = Some(RangeError::Failed("the disk".into()));
        let failed = node.ask("GET /v0/entities?start=k").await;
        assert_eq!(failed.status, 500);
        assert!(failed.problem()["request_id"].is_string());
    });
}

#[test]
fn a_client_that_leaves_ends_its_range() {
    with(settings(), |node| async move {
        let value = vec![b'v'; 64 << 10];
        for number in 0..500 {
            node.entities.insert(format!("k{number:03}").as_bytes(), &value);
        }
        let mut client = node.connect().await;
        client.send("GET /v0/entities?start=k HTTP/1.1\r\nHost: x\r\n\r\n").await;
        client.stream.read_exact(&mut [0; 1000]).await.unwrap();
        drop(client);
        until("the range ends", || read(&node.metrics.in_flight) == 0 && node.shard.connections() == 0).await;
    });
}
