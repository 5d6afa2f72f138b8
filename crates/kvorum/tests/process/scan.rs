//! Scans against real nodes: all keys of the cluster, once, whatever happens to a node meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http::{Client, Response, entity, entity_at, request};
use crate::support::{Cluster, wait_until};

/// Records, and the trailer; marks are left out.
struct Scanned {
    records: Vec<Value>,
    marks: Vec<String>,
    trailer: Value,
}

impl Scanned {
    fn of(answer: &Response) -> Self {
        assert_eq!(answer.status, 200, "{answer:?}");
        let lines = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut lines: Vec<Value> =
            lines.map(|line| serde_json::from_slice(line).expect("each line is JSON")).collect();
        let trailer = lines.pop().expect("there is a trailer");
        assert!(trailer.get("complete").is_some(), "the last line is no trailer: {trailer}");
        let (marks, records) = lines.into_iter().partition(|line: &Value| line.get("mark").is_some());
        let text = |mark: Value| mark["mark"].as_str().expect("a mark is a text").to_owned();
        Self { records, marks: Vec::into_iter(marks).map(text).collect(), trailer }
    }

    fn keys(&self) -> Vec<&str> {
        self.records.iter().map(|record| record["key"].as_str().expect("a key that is text")).collect()
    }
}

fn scan(client: &mut Client, query: &str) -> Scanned {
    Scanned::of(&client.ok("GET", &format!("/v0/scan?{query}"), None))
}

pub fn fill(client: &mut Client, prefix: &str, count: usize, operation: impl Fn(&str) -> Value) {
    for part in (0..count).collect::<Vec<_>>().chunks(1000) {
        let line = |number: &usize| format!("{}\n", operation(&format!("{prefix}{number:07}")));
        let body: String = part.iter().map(line).collect();
        let answer = client.ok("POST", "/v0/batch", Some(body.as_bytes()));
        assert_eq!(answer.status, 200, "{answer:?}");
        let lines = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for line in lines {
            let status = serde_json::from_slice::<Value>(line).expect("JSON")["status"].as_u64();
            assert!(status < Some(300), "{}", String::from_utf8_lossy(line));
        }
    }
}

pub fn put(key: &str) -> Value {
    json!({"op": "put", "key": key, "value": format!("value of {key}")})
}

#[test]
fn every_key_of_the_cluster_once_through_any_node_in_both_forms() {
    let cluster = Cluster::start(3);
    let mut clients = cluster.clients();
    fill(&mut clients[0], "k/", 3000, put);
    // A key that one replica has, one that is deleted, one that ends, bytes that are no text.
    clients[1].put(&entity_at("k/single", 1, 1), b"of one");
    clients[1].put(&entity("k/deleted"), b"x");
    clients[1].delete(&entity("k/deleted"));
    let ended = clients[1].ok("PUT", &format!("{}&ttl=1", entity("k/ended")), Some(b"x"));
    assert_eq!(ended.status, 201);
    wait_until("the value has ended", || clients[1].ok("GET", &entity("k/ended"), None).status == 404);
    clients[1].put(&entity("other"), b"x");
    clients[2].put(&entity(b"k/\xff"), b"\xfe");
    let mut digests = BTreeSet::new();
    for client in &mut clients {
        let scanned = scan(client, "prefix=k/");
        assert_eq!((scanned.records.len(), &scanned.trailer["complete"]), (3002, &json!(true)), "{}", scanned.trailer);
        let texts: Vec<&str> = scanned.records.iter().filter_map(|record| record["key"].as_str()).collect();
        assert!(texts.is_sorted() && texts.len() == 3001 && texts.contains(&"k/single"));
        assert_eq!(scanned.records[17]["value"], "value of k/0000017");
        let alone = client.ok("GET", &entity("k/0000017"), None);
        assert_eq!(scanned.records[17]["etag"].as_str(), Some(alone.etag().as_str()));
        digests.insert(scanned.trailer["digest"].as_str().unwrap().to_owned());
        let nodes = scanned.trailer["coverage"][0]["nodes"].as_array().unwrap().len();
        assert_eq!(nodes, 3, "{}", scanned.trailer);
        let framed = client.with("GET", "/v0/scan?prefix=k/", &[("Accept", "application/vnd.kvorum.frames")], None);
        assert_eq!(framed.header("content-type"), Some("application/vnd.kvorum.frames"));
        let trailer = last_frame(&framed.body);
        assert_eq!((trailer[0], trailer[1]), (3, 1));
        digests.insert(trailer[18..34].iter().map(|byte| format!("{byte:02x}")).collect());
    }
    assert_eq!(digests.len(), 1, "all nodes and both forms agree");
    let keys = scan(&mut clients[0], "start=k/0000010&end=k/0000020&values=0");
    assert_eq!((keys.records.len(), keys.records[0].get("value")), (10, None));
    assert_eq!(scan(&mut clients[0], "prefix=").records.len(), 3003);
    assert_eq!(scan(&mut clients[0], "prefix=none").trailer["count"], 0);
}

/// Type and body of the last one.
fn last_frame(body: &[u8]) -> &[u8] {
    let mut rest = body;
    loop {
        let (length, more) = rest.split_first_chunk::<4>().expect("a whole frame");
        let (frame, more) = more.split_at(usize::try_from(u32::from_be_bytes(*length)).unwrap());
        if more.is_empty() {
            return frame;
        }
        rest = more;
    }
}

#[test]
fn values_of_all_sizes_are_scanned() {
    let cluster = Cluster::start(3);
    let mut clients = cluster.clients();
    let sizes = [0, 1, 5_000, 70_000, 300_000, 8 << 20];
    for size in sizes {
        clients[0].put(&entity(format!("of {size:08}")), &vec![b'v'; size]);
    }
    for client in &mut clients {
        let found = scan(client, "prefix=of");
        let lengths: Vec<usize> = found.records.iter().map(|record| record["value"].as_str().unwrap().len()).collect();
        assert_eq!(lengths, sizes);
    }
}

#[test]
fn a_scan_goes_on_through_other_nodes_while_nodes_are_killed_between_its_parts() {
    let mut cluster = Cluster::start(3);
    let expected: BTreeMap<String, String> =
        (0..2000).map(|number| format!("k{number:07}")).map(|key| (key.clone(), format!("value of {key}"))).collect();
    fill(&mut cluster.client(0), "k", 2000, put);
    let (mut found, mut after, mut part) = (Vec::new(), String::new(), 0);
    loop {
        let dead = part % 3;
        cluster.kill(dead);
        let mut client = cluster.client((dead + 1) % 3);
        // Until the others notice, a replica that was there counts as there.
        let answer = client.ok("GET", &format!("/v0/scan?prefix=k&limit=600{after}"), None);
        let scanned = Scanned::of(&answer);
        found.extend(
            scanned.records.iter().map(|record| {
                (record["key"].as_str().unwrap().to_owned(), record["value"].as_str().unwrap().to_owned())
            }),
        );
        cluster.restart(dead);
        cluster.wait_whole();
        let Some(token) = scanned.trailer["after"].as_str() else { break };
        after = format!("&after={token}");
        part += 1;
    }
    assert!(found.is_sorted() && part >= 3);
    assert_eq!(found.len(), expected.len(), "each once");
    assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), expected);
}

#[test]
fn a_node_that_dies_or_pauses_in_the_middle_costs_no_key() {
    let mut cluster = Cluster::start(3);
    let value = "v".repeat(4000);
    let large = |key: &str| json!({"op": "put", "key": key, "value": value});
    fill(&mut cluster.client(0), "k", 5000, large);
    for round in 0..2 {
        let mut client = cluster.client(0).timeout(Duration::from_secs(60));
        client.write(&request("GET", "/v0/scan?prefix=k", &[], None)).unwrap();
        let head = client.head().unwrap();
        assert_eq!(head.status, 200);
        let mut body = client.chunk().unwrap().expect("a first piece");
        // 20 MB do not fit between node and client: the scan is in its middle.
        if round == 0 {
            cluster.kill(1);
        } else {
            cluster.pause(2);
        }
        while let Some(piece) = client.chunk().unwrap() {
            body.extend_from_slice(&piece);
        }
        if round == 0 {
            cluster.restart(1);
        } else {
            cluster.resume(2);
        }
        let text = String::from_utf8(body).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let keys: Vec<&str> = lines.iter().filter_map(|line| line["key"].as_str()).collect();
        assert_eq!(keys.len(), 5000, "{}", lines.last().unwrap());
        assert!(keys.is_sorted() && keys.iter().collect::<BTreeSet<_>>().len() == 5000);
        let trailer = lines.last().unwrap();
        assert_eq!(trailer["complete"], true);
        assert!(trailer["coverage"].as_array().unwrap().len() >= 2, "the plan has changed: {}", trailer["coverage"]);
        cluster.wait_whole();
    }
}

#[test]
fn without_enough_replicas_a_scan_is_504_and_partial_goes_on_without_them() {
    let mut cluster = Cluster::start(5);
    fill(&mut cluster.client(0), "k", 500, put);
    cluster.kill(3);
    cluster.kill(4);
    let mut client = cluster.client(0);
    let query = "prefix=k&ack=2&from=3";
    let target = format!("/v0/scan?{query}");
    wait_until("the scan is refused", || client.ok("GET", &target, None).status == 504);
    let problem = client.ok("GET", &target, None).problem(504);
    assert!(problem["partitions"].as_array().is_some_and(|ranges| !ranges.is_empty()), "{problem}");
    let dead: Vec<String> = [3, 4].map(|index| cluster.node(index).url()).to_vec();
    let named: Vec<&str> = problem["nodes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), dead.iter().map(String::as_str).collect());
    let partial = scan(&mut client, &format!("{query}&partial=1"));
    assert_eq!((&partial.trailer["complete"], &partial.trailer["after"]), (&json!(false), &Value::Null));
    assert_eq!(partial.trailer["missing"], problem["partitions"]);
    assert!(!partial.records.is_empty() && partial.records.len() < 500, "{}", partial.records.len());
    for key in partial.keys() {
        assert_eq!(client.ok("GET", &entity_at(key, 2, 3), None).status, 200);
    }
    let single = scan(&mut client, "prefix=k&ack=1&from=3");
    assert_eq!((single.records.len(), &single.trailer["complete"]), (500, &json!(true)));
}

#[test]
fn a_scan_over_deletions_says_where_it_is_and_tokens_hold_at_any_node() {
    let cluster = Cluster::start(3);
    let mut clients = cluster.clients();
    fill(&mut clients[0], "d", 20_000, |key| json!({"op": "delete", "key": key}));
    clients[0].put(&entity("e"), b"the only one");
    let scanned = scan(&mut clients[1], "start=d");
    assert_eq!(scanned.keys(), ["e"]);
    assert!(scanned.marks.len() >= 10, "{} marks", scanned.marks.len());
    let middle = &scanned.marks[scanned.marks.len() / 2];
    for client in &mut clients {
        assert_eq!(scan(client, &format!("start=d&after={middle}")).keys(), ["e"]);
        for wrong in [
            format!("start=c&after={middle}"),
            format!("start=d&ack=1&after={middle}"),
            format!("start=d&after={}", &middle[1..]),
        ] {
            client.ok("GET", &format!("/v0/scan?{wrong}"), None).problem(400);
        }
    }
    let others = Cluster::start(3);
    others.client(0).ok("GET", &format!("/v0/scan?start=d&after={middle}"), None).problem(400);
}

#[test]
fn a_client_that_stops_reading_or_leaves_costs_a_bounded_part_of_the_memory() {
    let cluster = Cluster::with(3, &[("KVORUM_MEMORY_BYTES", "64MiB")]);
    let value = "v".repeat(40_000);
    fill_large(&mut cluster.client(0), 2000, &value);
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..40 {
        let mut client = cluster.client(0);
        client.write(&request("GET", "/v0/scan?prefix=k", &[], None)).unwrap();
        let head = client.head().unwrap();
        match head.status {
            200 => open.push(client),
            503 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(!open.is_empty() && refused > 0, "{} are open, {refused} were refused", open.len());
    assert_eq!(cluster.client(0).value(&entity("k7")).len(), 40_000, "the node serves on");
    drop(open);
    wait_until("those that left have given their memory back", || {
        cluster.client(0).ok("HEAD", "/v0/scan?prefix=k", None).status == 200
    });
    assert_eq!(scan(&mut cluster.client(0), "prefix=k").records.len(), 2000);
}

fn fill_large(client: &mut Client, count: usize, value: &str) {
    for number in 0..count {
        client.put(&entity(format!("k{number}")), value.as_bytes());
    }
}
