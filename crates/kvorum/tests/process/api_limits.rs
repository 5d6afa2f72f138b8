//! Sizes, times and numbers of connections: what is refused, and that only the refused one notices.

use std::time::Duration;

use crate::support::http::request;
use crate::support::{Client, Cluster, entity, wait_for, wait_until};

#[test]
fn a_value_over_the_limit_is_refused_from_its_length_alone() {
    let cluster = Cluster::with(1, &[("KVORUM_LIMITS_VALUE_BYTES_MAX", "1000")]);
    let mut client = cluster.client(0);
    client.put(&entity("k"), &[b'x'; 1_000]);
    let head =
        |length: u64| format!("PUT {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n", entity("k"));
    for length in [1_001, 1 << 40, 1 << 60] {
        let mut client = cluster.client(0);
        client.write(head(length).as_bytes()).unwrap();
        let response = client.receive("PUT").unwrap();
        assert!(response.closes(), "{response:?}");
        response.problem(413);
    }
    assert_eq!(client.value(&entity("k")), [b'x'; 1_000]);
}

#[test]
fn a_client_that_sends_too_much_anyway_still_reads_why() {
    let cluster = Cluster::with(1, &[("KVORUM_LIMITS_VALUE_BYTES_MAX", "1000")]);
    let mut client = cluster.client(0);
    let response = client.ok("PUT", &entity("k"), Some(&[b'x'; 20_000]));
    assert!(response.closes());
    response.problem(413);
    cluster.client(0).absent(&entity("k"));
}

#[test]
fn a_chunked_value_over_the_limit_is_refused_when_it_is_over() {
    let cluster = Cluster::with(1, &[("KVORUM_LIMITS_VALUE_BYTES_MAX", "1000")]);
    let mut client = cluster.client(0);
    let chunk = format!("{:x}\r\n{}\r\n", 500, "y".repeat(500));
    let head = format!("PUT {} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", entity("k"));
    client.write(format!("{head}{chunk}{chunk}{chunk}").as_bytes()).unwrap();
    let response = client.receive("PUT").unwrap();
    assert!(response.closes());
    response.problem(413);
    let mut client = cluster.client(0);
    client.write(format!("{head}{chunk}{chunk}0\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(client.receive("PUT").unwrap().status, 201, "exactly the limit is not over it");
}

#[test]
fn a_head_over_16_kib_is_refused() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let long = "h".repeat(15_000);
    assert_eq!(client.with("GET", "/v0/status", &[("X-Long", &long)], None).status, 200);
    let longer = "h".repeat(17_000);
    let many: Vec<(String, String)> = (0..400).map(|n| (format!("X-{n}"), "v".repeat(50))).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    for headers in [vec![("X-Long", longer.as_str())], many] {
        let mut client = cluster.client(0);
        let response = client.with("GET", "/v0/status", &headers, None);
        assert_eq!(response.status, 431, "{response:?}");
        assert!(response.closes(), "{response:?}");
    }
    let response = cluster.client(0).get(&format!("/v0/entity?id={}", "k".repeat(17_000)));
    assert_eq!(response.status, 431, "a long target is a long head: {response:?}");
    // One that never ends must not be collected for ever either.
    let mut client = cluster.client(0);
    let _refused = client.write(&[b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 200_000]].concat());
    assert_eq!(client.receive("GET").map(|response| response.status).unwrap_or(431), 431);
}

#[test]
fn a_request_that_does_not_arrive_in_time_is_told_so() {
    let cluster = Cluster::with(1, &[("KVORUM_LIMITS_REQUEST_READ_TIMEOUT", "500ms")]);
    let put = String::from_utf8(request("PUT", &entity("k"), &[], Some(b"value"))).unwrap();
    let half_head = &put[..20];
    let half_body = &put[..put.len() - 2];
    let chunked =
        format!("PUT {} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", entity("k"));
    for bytes in [half_head, half_body, &chunked] {
        let mut client = cluster.client(0);
        client.write(bytes.as_bytes()).unwrap();
        let response = client.receive("PUT").unwrap_or_else(|error| panic!("{bytes:?}: {error}"));
        assert_eq!(response.status, 408, "{bytes:?}: {response:?}");
        assert!(response.closes(), "{response:?}");
    }
    cluster.client(0).absent(&entity("k"));
}

#[test]
fn a_body_that_trickles_in_is_one_request_with_one_deadline() {
    let cluster = Cluster::with(1, &[("KVORUM_LIMITS_REQUEST_READ_TIMEOUT", "500ms")]);
    let mut client = cluster.client(0).timeout(Duration::from_millis(50));
    client
        .write(format!("PUT {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", entity("k")).as_bytes())
        .unwrap();
    let status = wait_for("the trickling request is ended", || {
        // A byte each time that nothing has come yet: progress alone must not keep the request alive.
        let _sent = client.write(b"x");
        client.receive("PUT").ok().map(|response| response.status)
    });
    assert_eq!(status, 408);
}

#[test]
fn the_idle_time_between_requests_is_not_the_time_of_a_request() {
    let cluster = Cluster::with(1, &[("KVORUM_LIMITS_REQUEST_READ_TIMEOUT", "300ms")]);
    let mut idle = cluster.client(0);
    idle.put(&entity("k"), b"v");
    let mut slow = cluster.client(0);
    slow.write(b"GET /v0/sta").unwrap();
    assert_eq!(slow.receive("GET").unwrap().status, 408, "more than the limit has passed");
    assert_eq!(idle.value(&entity("k")), b"v", "the idle connection was kept");
}

#[test]
fn connections_over_the_limit_are_refused_until_others_go() {
    let cluster = Cluster::with(1, &[("KVORUM_LIMITS_CONNECTIONS_MAX", "8"), ("KVORUM_RUNTIME_SHARDS", "1")]);
    let mut held: Vec<Client> = Vec::new();
    let refused = wait_for("a connection is refused", || {
        let mut client = cluster.client(0);
        match client.send("GET", "/v0/status", &[], None) {
            Ok(response) if response.status == 200 => {
                held.push(client);
                assert!(held.len() <= 8, "{} connections are over the limit of 8", held.len());
                None
            }
            Ok(response) => Some(response),
            Err(error) => panic!("refused without a word: {error}"),
        }
    });
    assert!(refused.header("retry-after").is_some_and(|text| text.parse::<u32>().is_ok()), "{refused:?}");
    assert_eq!(refused.status, 503, "{refused:?}");
    for client in &mut held {
        assert_eq!(client.get("/v0/status").status, 200, "those that are in are served");
    }
    held.truncate(2);
    wait_until("there is room again", || {
        cluster.client(0).send("GET", "/v0/status", &[], None).is_ok_and(|response| response.status == 200)
    });
}

#[test]
fn idle_connections_are_closed_without_a_word() {
    let cluster = Cluster::with(1, &[("KVORUM_LIMITS_IDLE_TIMEOUT", "300ms")]);
    let mut fresh = cluster.client(0);
    fresh.stream().unwrap();
    assert!(fresh.closed_silently(), "one that never asked");
    let mut used = cluster.client(0);
    used.put(&entity("k"), b"v");
    assert!(used.closed_silently(), "one that asked once");
}
