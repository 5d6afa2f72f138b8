//! Scans: tokens, and what is answered in both forms.

use bytes::Bytes;
use kvorum_core::Record;
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::Quorum;
use kvorum_core::scan::page::ScanValues;
use kvorum_replication::cluster_scan::{MissingReplicas, OnMissing, ScanRefused};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use super::request::{ScanRequest, behind};
use super::token::{NoToken, TokenScope};
use crate::tests::{Answer, Node, settings, with};

fn request(start: &str, end: Option<&str>, quorum: (u8, u8)) -> ScanRequest {
    ScanRequest {
        start: Bytes::copy_from_slice(start.as_bytes()),
        end: end.map(|end| Bytes::copy_from_slice(end.as_bytes())),
        quorum: Quorum::new(quorum.0, quorum.1).unwrap(),
        limit: None,
        values: ScanValues::Wanted,
        on_missing: OnMissing::End,
        after: None,
    }
}

#[test]
fn the_end_of_a_prefix() {
    let cases: [(&[u8], Option<&[u8]>); 6] = [
        (b"", None),
        (b"a", Some(b"b")),
        (b"a/", Some(b"a0")),
        (b"a\xff", Some(b"b")),
        (b"\xff\xff", None),
        (b"\0", Some(b"\x01")),
    ];
    for (prefix, end) in cases {
        assert_eq!(behind(prefix).as_deref(), end, "{prefix:?}");
    }
}

#[test]
fn a_token_holds_for_its_cluster_range_ack_and_from_and_for_nothing_else() {
    let scope = TokenScope::new(1, &request("a", Some("c"), (2, 3)));
    for position in [None, Some(&b"b"[..]), Some(&[0xff; 2048][..])] {
        let token = scope.token(position);
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{token}");
        assert_eq!(scope.read(token.as_bytes()), Ok(position.map(Bytes::copy_from_slice)));
        let others = [
            TokenScope::new(2, &request("a", Some("c"), (2, 3))),
            TokenScope::new(1, &request("ac", Some(""), (2, 3))),
            TokenScope::new(1, &request("a", None, (2, 3))),
            TokenScope::new(1, &request("", Some("c"), (2, 3))),
            TokenScope::new(1, &request("a", Some("c"), (1, 3))),
            TokenScope::new(1, &request("a", Some("c"), (2, 2))),
        ];
        assert!(others.iter().all(|other| other.read(token.as_bytes()) == Err(NoToken)));
        for cut in 0..token.len() {
            assert_eq!(scope.read(&token.as_bytes()[..cut]), Err(NoToken), "{cut}");
        }
        let twice = token.repeat(2);
        assert_eq!(scope.read(twice.as_bytes()), Err(NoToken));
    }
    for made_up in ["", "AQ", "AAAAAAAAAAAA", "hello", "%", &"A".repeat(100_000)] {
        assert_eq!(scope.read(made_up.as_bytes()), Err(NoToken), "{made_up:.20}");
    }
}

fn lines(answer: &Answer) -> Vec<Value> {
    let body = answer.chunks.concat();
    let lines = std::str::from_utf8(&body).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).filter(|line: &Value| line.get("mark").is_none()).collect()
}

/// Types and bodies.
fn frames(answer: &Answer) -> Vec<(u8, Vec<u8>)> {
    let (body, mut frames) = (answer.chunks.concat(), Vec::new());
    let mut rest = &body[..];
    while !rest.is_empty() {
        let length = usize::try_from(u32::from_be_bytes(rest[..4].try_into().unwrap())).unwrap();
        frames.push((rest[4], rest[5..4 + length].to_vec()));
        rest = &rest[4 + length..];
    }
    frames
}

async fn scanned(node: &Node, query: &str) -> Vec<Value> {
    let answer = node.ask(&format!("GET /v0/scan?{query}")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")), "{query}");
    lines(&answer)
}

fn keys(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["key"].as_str()).collect()
}

/// A record of each shape.
fn fill(node: &Node) {
    for key in ["a", "b/1", "b/2", "b/3", "c"] {
        node.entities.insert(key.as_bytes(), format!("value of {key}").as_bytes());
    }
    let key = kvorum_core::Key::new(Bytes::from_static(b"b/\xff")).unwrap();
    let version =
        kvorum_core::Version { hlc: kvorum_core::Hlc::from_millis(7), incarnation: kvorum_core::Incarnation(1) };
    let record = Record::expiring(&key, version, 3, Some(99_000), Some(b"text/plain"), b"\xfe");
    node.entities.records.borrow_mut().insert(key.as_bytes().to_vec(), record);
}

#[test]
fn both_forms_have_the_same_records_and_one_digest() {
    with(settings(), |node| async move {
        fill(&node);
        let all = scanned(&node, "prefix=b/").await;
        assert_eq!(keys(&all), ["b/1", "b/2", "b/3"]);
        let odd = &all[3];
        assert_eq!(odd["key_base64"], "Yi//");
        assert_eq!(
            (&odd["value_base64"], &odd["expires_ms"], &odd["content_type"]),
            (&json!("/g=="), &json!(99_000), &json!("text/plain"))
        );
        assert!(odd["etag"].as_str().unwrap().starts_with('"'));
        let answer = node.ask("GET /v0/scan?prefix=b/\r\nAccept: application/vnd.kvorum.frames").await;
        assert_eq!(answer.header("content-type"), Some("application/vnd.kvorum.frames"));
        let frames = frames(&answer);
        let records: Vec<&(u8, Vec<u8>)> = frames.iter().filter(|(kind, _)| *kind == 1).collect();
        assert_eq!(records.len(), 4);
        let mut record = 3u16.to_be_bytes().to_vec();
        record.extend_from_slice(b"b/\xff");
        record.extend_from_slice(&[0; 5]);
        assert!(records[3].1.starts_with(&record));
        assert!(records[3].1.ends_with(&[&[3][..], &99_000u64.to_be_bytes(), b"\x0atext/plain\xfe"].concat()));
        let raw = answer.chunks.concat();
        let of_records: usize = records.iter().map(|(_, body)| body.len() + 5).sum();
        let (kind, trailer) = frames.last().unwrap();
        assert_eq!((*kind, trailer[0]), (3, 1));
        assert_eq!(u64::from_be_bytes(trailer[1..9].try_into().unwrap()), 4);
        let digest = u128::from_be_bytes(trailer[17..33].try_into().unwrap());
        // No mark came before the end: records are all that stands before the trailer.
        assert_eq!(digest, xxh3_128(&raw[..of_records]));
        let last = all.last().unwrap();
        assert_eq!(last["digest"], format!("{digest:032x}"));
        assert_eq!((&last["complete"], &last["count"], &last["after"]), (&json!(true), &json!(4), &Value::Null));
        assert_eq!(last["bytes"].as_u64().unwrap(), u64::from_be_bytes(trailer[9..17].try_into().unwrap()));
        assert_eq!(trailer[33..35], [0, 0], "no token at the end");
        assert_eq!(serde_json::from_slice::<Value>(&trailer[35..]).unwrap(), last["coverage"]);
        assert!(last.get("missing").is_none());
    });
}

#[test]
fn a_limit_ends_with_a_token_from_which_the_next_goes_on() {
    with(settings(), |node| async move {
        fill(&node);
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let part = scanned(&node, &format!("start=a&end=c&limit=2{after}")).await;
            all.extend(keys(&part).into_iter().map(str::to_owned));
            let trailer = part.last().unwrap();
            let Some(token) = trailer["after"].as_str() else {
                assert_eq!(trailer["complete"], true);
                break;
            };
            assert_eq!((&trailer["complete"], &trailer["count"]), (&json!(false), &json!(2)));
            after = format!("&after={token}");
        }
        assert_eq!(all, ["a", "b/1", "b/2", "b/3"], "but for the key that is no text");
        let other = node.ask(&format!("GET /v0/scan?start=a&limit=2{after}")).await;
        assert_eq!(other.status, 400);
        assert!(other.problem()["detail"].as_str().unwrap().contains("`after` is no token"));
    });
}

#[test]
fn keys_alone_and_who_answered() {
    with(settings(), |node| async move {
        fill(&node);
        let all = scanned(&node, "prefix=a&values=0&ack=2&from=3").await;
        assert!(all[0].get("value").is_none() && all[0]["etag"].is_string());
        assert_eq!((&all[1]["count"], &all[1]["bytes"]), (&json!(1), &json!(1)));
        let coverage = all[1]["coverage"].as_array().unwrap();
        assert_eq!((coverage.len(), &coverage[0]["start"], &coverage[0]["layout"]), (1, &json!("a"), &json!(1)));
        let nodes = coverage[0]["nodes"].as_array().unwrap();
        let names: Vec<&str> = nodes.iter().map(|node| node["node"].as_str().unwrap()).collect();
        assert_eq!(names, ["http://a:1", "http://b:1", "http://c:1"]);
        assert!(nodes.iter().all(|node| !node["provider"].as_array().unwrap().is_empty()));
        let head = node.ask("HEAD /v0/scan?prefix=").await;
        assert_eq!((head.status, head.header("content-length")), (200, None));
    });
}

#[test]
fn what_is_wrong_is_said_before_the_first_byte() {
    with(settings(), |node| async move {
        for (query, what) in [
            ("", "a scan has `prefix`"),
            ("prefix=a&start=b", "a scan has `prefix`"),
            ("prefix=a&end=b", "a scan has `prefix`"),
            ("end=b", "a scan has `prefix`"),
            ("start=", "must not be empty"),
            ("start=a&end=", "must not be empty"),
            ("prefix=&limit=0", "`limit` is at least 1"),
            ("prefix=&limit=x", "`limit` must be a decimal integer"),
            ("prefix=&values=2", "`values` is 0 or 1"),
            ("prefix=&partial=yes", "`partial` is 0 or 1"),
            ("prefix=&ack=3&from=2", "1 ≤ ack ≤ from"),
            ("prefix=&after=AAAA", "`after` is no token"),
            ("prefix=&colour=1", "no parameter `colour`"),
            ("prefix=&prefix=", "more than once"),
        ] {
            let answer = node.ask(&format!("GET /v0/scan?{query}")).await;
            assert_eq!(answer.status, 400, "{query}");
            assert!(answer.problem()["detail"].as_str().unwrap().contains(what), "{query}: {answer:?}");
        }
        let long = node.ask(&format!("GET /v0/scan?prefix={}", "a".repeat(2049))).await;
        assert_eq!(long.status, 400);
        assert_eq!(node.ask("POST /v0/scan?prefix=").await.header("allow"), Some("GET, HEAD"));
        assert_eq!(node.ask("GET /v0/scan?prefix=\r\nAccept: text/html").await.status, 406);
        *node.entities.scan_refused.borrow_mut() = Some(ScanRefused::NoRoom);
        let full = node.ask("GET /v0/scan?prefix=").await;
        assert_eq!((full.status, full.header("retry-after")), (503, Some("1")));
        let partitions: PartitionSet = kvorum_core::key::PartitionId::all().take(3).collect();
        let missing = MissingReplicas { partitions, nodes: [NodeId(1)].into_iter().collect(), is_busy: false };
        *node.entities.scan_refused.borrow_mut() = Some(ScanRefused::Missing(missing));
        let problem = node.ask("GET /v0/scan?prefix=").await.problem();
        assert_eq!((&problem["status"], &problem["required"]), (&json!(504), &json!(2)));
        assert_eq!((&problem["partitions"], &problem["nodes"]), (&json!(["0-2"]), &json!(["http://b:1"])));
    });
}
