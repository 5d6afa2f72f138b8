//! HTTP/1.1 as clients really use it: keep-alive, pipelining, chunks, Expect, old and new versions.

use std::time::Duration;

use crate::support::http::request;
use crate::support::{Client, Cluster, entity};

#[test]
fn no_error_of_a_client_costs_it_the_connection() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    client.put(&entity("k"), b"v");
    let errors: [(&str, String, Option<&[u8]>, u16); 7] = [
        ("GET", entity("none"), None, 404),
        ("GET", "/v0/entity".to_owned(), None, 400),
        ("PUT", "/v0/entity?id=".to_owned(), Some(b"a body that is not stored"), 400),
        ("PUT", format!("{}&ack=7", entity("k")), Some(&[b'x'; 40_000]), 400),
        ("POST", entity("k"), Some(b"another body"), 405),
        ("POST", "/nowhere".to_owned(), Some(&[b'x'; 40_000]), 400),
        ("DELETE", "/v0/status".to_owned(), None, 405),
    ];
    for (method, target, body, status) in errors {
        let response = client.ok(method, &target, body);
        response.problem(status);
        assert!(!response.closes() && client.is_open(), "{method} {target}: {response:?}");
        assert_eq!(client.value(&entity("k")), b"v", "after {method} {target}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let rounds = 100;
    let mut bytes = Vec::new();
    for round in 0..rounds {
        let (target, value) = (entity(format!("k{}", round % 7)), format!("value {round}"));
        bytes.extend(request("PUT", &target, &[], Some(value.as_bytes())));
        bytes.extend(request("GET", &target, &[], None));
        bytes.extend(request("HEAD", &target, &[], None));
        bytes.extend(request("GET", &entity("none"), &[], None));
    }
    client.write(&bytes).unwrap();
    for round in 0..rounds {
        assert_eq!(client.receive("PUT").unwrap().status, 201);
        assert_eq!(client.receive("GET").unwrap().text(), format!("value {round}"));
        assert_eq!(client.receive("HEAD").unwrap().status, 200);
        assert_eq!(client.receive("GET").unwrap().status, 404);
    }
    assert!(client.is_open());
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    for byte in request("PUT", &entity("slow"), &[("Content-Type", "text/plain")], Some(b"in pieces")) {
        client.write(&[byte]).unwrap();
    }
    assert_eq!(client.receive("PUT").unwrap().status, 201);
    assert_eq!(client.value(&entity("slow")), b"in pieces");
}

fn put_chunked(client: &mut Client, key: &str, body: &[u8]) -> u16 {
    let head = format!("PUT {} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", entity(key));
    client.write(head.as_bytes()).unwrap();
    client.write(body).unwrap();
    client.receive("PUT").unwrap().status
}

#[test]
fn chunked_request_bodies_are_put_together() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    assert_eq!(put_chunked(&mut client, "a", b"5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n"), 201);
    assert_eq!(client.value(&entity("a")), b"hello, world");
    assert_eq!(put_chunked(&mut client, "b", b"0\r\n\r\n"), 201);
    assert_eq!(client.value(&entity("b")), b"");
    assert_eq!(put_chunked(&mut client, "c", b"3;name=value\r\nabc\r\n0\r\nTrailer: x\r\n\r\n"), 201);
    assert_eq!(client.value(&entity("c")), b"abc");
    let mut long = Vec::new();
    for _ in 0..300 {
        long.extend_from_slice(format!("{:x}\r\n{}\r\n", 1_000, "y".repeat(1_000)).as_bytes());
    }
    long.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(put_chunked(&mut client, "d", &long), 201);
    assert_eq!(client.value(&entity("d")).len(), 300_000);
    assert!(client.is_open());
}

#[test]
fn a_client_that_asks_is_told_to_continue() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let head =
        format!("PUT {} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", entity("e"));
    client.write(head.as_bytes()).unwrap();
    assert_eq!(client.receive_any("PUT").unwrap().status, 100);
    client.write(b"value").unwrap();
    assert_eq!(client.receive_any("PUT").unwrap().status, 201);
    assert_eq!(client.value(&entity("e")), b"value");
}

#[test]
fn a_client_that_asks_before_sending_too_much_is_told_at_once() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let length = 8 * 1024 * 1024 + 1;
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n",
        entity("e")
    );
    client.write(head.as_bytes()).unwrap();
    client.receive_any("PUT").unwrap().problem(413);
}

#[test]
fn an_offered_upgrade_to_http_2_is_ignored() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let offer = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"),
    ];
    let put = client.with("PUT", &entity("jdk"), &offer, Some(b"value"));
    assert_eq!((put.status, put.version.as_str()), (201, "HTTP/1.1"));
    assert!(put.header("upgrade").is_none() && client.is_open());
    let get = client.with("GET", &entity("jdk"), &offer, None);
    assert_eq!((get.status, get.body.as_slice()), (200, b"value".as_slice()));
    assert_eq!(client.value(&entity("jdk")), b"value");
}

#[test]
fn http_1_0_clients_get_a_whole_answer_and_a_close() {
    let cluster = Cluster::start(1);
    cluster.client(0).put(&entity("old"), b"value");
    for target in [entity("old"), "/v0/status".to_owned(), entity("none")] {
        let mut client = cluster.client(0);
        client.write(format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let response = client.head().unwrap();
        assert!(response.closes(), "{response:?}");
        let length = response.header("content-length").expect("a length").to_owned();
        assert!(length.parse::<u64>().is_ok());
    }
    let mut client = cluster.client(0);
    client.write(b"GET /v0/entities?start=a HTTP/1.0\r\n\r\n").unwrap();
    let response = client.receive("GET").unwrap();
    assert_eq!((response.status, response.chunks, response.body), (200, None, b"old\nvalue".to_vec()));
}

#[test]
fn a_client_that_wants_to_close_is_answered_first() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let response = client.with("PUT", &entity("last"), &[("Connection", "close")], Some(b"v"));
    assert_eq!(response.status, 201);
    assert!(response.closes());
    let mut client = cluster.client(0);
    client.write(&request("GET", &entity("last"), &[], None)).unwrap();
    client.stream().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.receive("GET").unwrap().body, b"v", "a half-closed client still reads");
}

#[test]
fn a_client_that_goes_away_in_the_middle_of_a_body_stores_nothing() {
    let cluster = Cluster::start(1);
    for head in ["Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        let mut client = cluster.client(0);
        client.write(format!("PUT {} HTTP/1.1\r\nHost: localhost\r\n{head}", entity("half")).as_bytes()).unwrap();
        client.stream().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
        // The answer, if one comes, is an error; then the server closes.
        if let Ok(response) = client.receive("PUT") {
            assert!(response.status >= 400, "{response:?}");
        }
    }
    cluster.client(0).absent(&entity("half"));
}

#[test]
fn malformed_http_is_a_bad_request_and_harms_nobody_else() {
    let cluster = Cluster::start(1);
    let mut bystander = cluster.client(0);
    bystander.put(&entity("k"), b"v");
    let framed = |rest: &str| format!("PUT {} HTTP/1.1\r\n{rest}", entity("k")).into_bytes();
    let malformed: [Vec<u8>; 10] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(20),
        b"garbage\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        format!("GET {} HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", entity("k")).into_bytes(),
        framed("Host: localhost\r\nContent-Length: x\r\n\r\n"),
        framed("Host: localhost\r\nContent-Length: -1\r\n\r\n"),
        framed("Host: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        framed("Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        framed("Host: localhost\r\nTransfer-Encoding: gzip\r\n\r\n"),
    ];
    for bytes in malformed {
        let shown = String::from_utf8_lossy(&bytes).chars().take(60).collect::<String>();
        let mut client = cluster.client(0).timeout(Duration::from_secs(15));
        client.write(&bytes).unwrap();
        let response = client.receive("PUT").unwrap_or_else(|error| panic!("{shown:?}: {error}"));
        assert_eq!(response.status, 400, "{shown:?}: {response:?}");
        assert!(!client.is_open() || client.closed_silently(), "{shown:?}: framing is lost");
        assert_eq!(bystander.value(&entity("k")), b"v");
    }
}
