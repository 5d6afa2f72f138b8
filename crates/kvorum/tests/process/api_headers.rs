//! The headers of requests and responses: versions, conditions, content types, dates, receipts.

use crate::support::{Cluster, entity};

#[test]
fn the_version_is_the_etag_of_every_answer_that_has_one() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let target = entity("versioned");
    let first = client.put(&target, b"same bytes").etag();
    assert_eq!(client.get(&target).etag(), first);
    assert_eq!(client.ok("HEAD", &target, None).etag(), first);
    let second = client.put(&target, b"same bytes").etag();
    assert_ne!(second, first, "every write is a version of its own");
    assert_eq!(client.get(&target).etag(), second);
    let deleted = client.delete(&target).etag();
    assert_eq!(client.absent(&target).etag(), deleted, "a 404 of a deletion has its version");
    assert!(deleted != first && deleted != second);
}

#[test]
fn versions_survive_a_restart_and_never_repeat() {
    let mut cluster = Cluster::start(1);
    let mut seen = vec![cluster.client(0).put(&entity("k"), b"0").etag()];
    for _ in 0..3 {
        cluster.kill(0);
        cluster.restart(0);
        let mut client = cluster.client(0);
        assert_eq!(Some(&client.get(&entity("k")).etag()), seen.last());
        let next = client.put(&entity("k"), b"1").etag();
        assert!(!seen.contains(&next), "{next} came twice");
        seen.push(next);
    }
}

#[test]
fn last_modified_and_date_are_http_dates_of_now() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let put = client.put(&entity("dated"), b"v");
    let get = client.get(&entity("dated"));
    for (response, name) in [(&put, "date"), (&get, "date"), (&get, "last-modified")] {
        let text = response.header(name).unwrap_or_else(|| panic!("no {name}: {response:?}"));
        assert!(text.len() == 29 && text.ends_with(" GMT") && text.contains(", "), "{name}: {text}");
    }
    let day = |text: &str| text[..16].to_owned();
    // A test that runs over midnight would see two days; the hour before it is enough of an answer.
    let (modified, date) = (get.header("last-modified").unwrap(), get.header("date").unwrap());
    assert!(day(modified) == day(date) || modified.contains(" 23:"), "{modified} {date}");
    assert!(client.absent(&entity("none")).header("last-modified").is_none());
}

#[test]
fn a_content_type_is_stored_with_the_value() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let longest = format!("text/{}", "x".repeat(250));
    for content_type in ["application/json", "text/plain; charset=utf-8", "image/png", &longest] {
        let put = client.with("PUT", &entity("typed"), &[("Content-Type", content_type)], Some(b"{}"));
        assert_eq!(put.status, 201);
        assert_eq!(client.get(&entity("typed")).header("content-type"), Some(content_type));
        assert_eq!(client.ok("HEAD", &entity("typed"), None).header("content-type"), Some(content_type));
    }
    client.put(&entity("typed"), b"untyped now");
    assert_eq!(client.get(&entity("typed")).header("content-type"), Some("application/octet-stream"));
    let too_long = format!("text/{}", "x".repeat(251));
    client.with("PUT", &entity("typed"), &[("Content-Type", &too_long)], Some(b"{}")).problem(400);
    assert_eq!(client.value(&entity("typed")), b"untyped now");
}

#[test]
fn a_reader_that_has_the_version_is_told_so() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let target = entity("cached");
    let old = client.put(&target, b"old").etag();
    let new = client.put(&target, b"new").etag();
    let matching = [new.clone(), format!("{old}, {new}"), format!("{old},{new}"), format!("W/{new}"), "*".to_owned()];
    for method in ["GET", "HEAD"] {
        for condition in &matching {
            let response = client.with(method, &target, &[("If-None-Match", condition)], None);
            assert_eq!((response.status, response.etag()), (304, new.clone()), "{method} {condition}");
            assert!(response.body.is_empty() && client.is_open());
        }
        for condition in [&old, "\"nonsense\"", "\"\""] {
            let response = client.with(method, &target, &[("If-None-Match", condition)], None);
            assert_eq!(response.status, 200, "{method} {condition}");
        }
    }
    assert_eq!(client.with("GET", &entity("none"), &[("If-None-Match", "*")], None).status, 404);
}

#[test]
fn conditional_writes_are_refused_rather_than_made_unconditional() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let version = client.put(&entity("k"), b"kept").etag();
    for header in ["If-Match", "If-None-Match", "if-match"] {
        for condition in [version.as_str(), "*"] {
            for (method, body) in [("PUT", Some(b"lost".as_slice())), ("DELETE", None)] {
                client.with(method, &entity("k"), &[(header, condition)], body).problem(501);
                assert!(client.is_open());
            }
        }
    }
    assert_eq!(client.value(&entity("k")), b"kept");
}

#[test]
fn head_is_get_without_the_body() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    client.put(&entity("k"), b"twelve bytes");
    let comparable = |headers: &[(String, String)]| -> Vec<(String, String)> {
        let mut all: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
            .filter(|h| h.0 != "date")
            .collect();
        all.sort();
        all
    };
    for target in [entity("k"), "/v0/status".to_owned(), "/livez".to_owned()] {
        let get = client.get(&target);
        let head = client.ok("HEAD", &target, None);
        assert_eq!((head.status, comparable(&head.headers)), (get.status, comparable(&get.headers)), "{target}");
    }
    assert_eq!(client.ok("HEAD", &entity("k"), None).header("content-length"), Some("12"));
    for (target, status) in [(entity("none"), 404), (entity(""), 400), ("/nowhere".to_owned(), 400)] {
        assert_eq!(client.ok("HEAD", &target, None).status, status);
    }
    assert_eq!(client.value(&entity("k")), b"twelve bytes", "the connection is still in step");
}

#[test]
fn a_traced_answer_carries_the_receipt_and_no_other_does() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let trace = [("Kvorum-Trace", "1")];
    for (method, body, status) in
        [("PUT", Some(b"v".as_slice()), 201), ("GET", None, 200), ("DELETE", None, 202), ("GET", None, 404)]
    {
        let plain = client.ok(method, &entity("k"), body);
        assert!(plain.header("server-timing").is_none() && plain.header("kvorum-replicas").is_none());
        let traced = client.with(method, &entity("k"), &trace, body);
        assert_eq!(traced.status, status);
        let timing = traced.header("server-timing").unwrap_or_else(|| panic!("no Server-Timing: {traced:?}"));
        let milliseconds = timing.split("dur=").nth(1).and_then(|text| text.split([',', ';']).next());
        assert!(milliseconds.is_some_and(|text| text.trim().parse::<f64>().is_ok()), "{timing}");
        let replicas = traced.header("kvorum-replicas").unwrap_or_else(|| panic!("no Kvorum-Replicas: {traced:?}"));
        let (node, outcome) = replicas.split_once('=').expect("node=outcome@version");
        let (outcome, version) = outcome.split_once('@').expect("node=outcome@version");
        assert!(node.contains(&cluster.node(0).address.to_string()) && !outcome.is_empty(), "{replicas}");
        assert!(traced.etag().contains(version), "{replicas} is not about {}", traced.etag());
    }
}

#[test]
fn errors_are_described_by_problem_documents() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let problem = client.get("/v0/entity").problem(400);
    assert!(problem["detail"].as_str().unwrap().contains("id"), "{problem}");
    let problem = client.get(&format!("{}&ack=3", entity("k"))).problem(400);
    assert!(problem["detail"].as_str().unwrap().contains("ack"), "{problem}");
    client.get(&entity("none")).problem(404);
    client.ok("POST", &entity("k"), Some(b"")).problem(405);
}
