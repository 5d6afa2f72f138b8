//! Queries against real nodes: what a client would compute of a scan, whoever is asked and whatever nodes do meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http::{Client, entity, entity_at, request};
use crate::support::{Cluster, kvorum, wait_until};

const ORDERS: usize = 3000;

/// Their customer, their total, and whether they are open.
fn order(number: usize) -> (String, usize, bool) {
    (format!("c{:02}", number % 17), number * 7 % 1000, number.is_multiple_of(3))
}

fn order_key(number: usize) -> String {
    format!("orders/{}/{number:05}", order(number).0)
}

fn put_orders(client: &mut Client, numbers: std::ops::Range<usize>) {
    for part in numbers.collect::<Vec<_>>().chunks(1000) {
        let line = |number: &usize| {
            let (_, total, is_open) = order(*number);
            let value = json!({"status": if is_open { "open" } else { "done" }, "total": total}).to_string();
            format!("{}\n", json!({"op": "put", "key": order_key(*number), "value": value}))
        };
        let body: String = part.iter().map(line).collect();
        let answer = client.ok("POST", "/v0/batch", Some(body.as_bytes())).text();
        assert_eq!(answer.matches("\"status\":201").count(), part.len(), "{answer:.300}");
    }
}

fn query(client: &mut Client, query: &Value) -> Value {
    let answer = client.ok("POST", "/v0/query", Some(query.to_string().as_bytes()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

fn open_orders() -> Value {
    json!({
        "prefix": "orders/",
        "where": [{"path": "/status", "op": "eq", "value": "open"}],
        "group_by": {"key_segment": 1},
        "select": {"count": {}, "sum": {"path": "/total"}, "top": {"path": "/total", "n": 2}},
    })
}

/// The same, computed here.
fn expected() -> Vec<Value> {
    let mut groups: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    for number in 0..ORDERS {
        let (customer, total, is_open) = order(number);
        if is_open {
            groups.entry(customer).or_default().push((total, order_key(number)));
        }
    }
    let group = |(customer, mut orders): (String, Vec<(usize, String)>)| {
        orders.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        let top: Vec<Value> = orders.iter().take(2).map(|(total, key)| json!({"key": key, "value": total})).collect();
        let sum: usize = orders.iter().map(|(total, _)| total).sum();
        json!({"group": customer, "count": orders.len(), "sum": sum, "top": top})
    };
    groups.into_iter().map(group).collect()
}

#[test]
fn a_query_answers_what_a_scan_would_have_whoever_is_asked_and_whatever_replicas_have_missed() {
    let mut cluster = Cluster::start(3);
    put_orders(&mut cluster.client(0), 0..1000);
    // What one replica misses, the others have: its keys are read.
    cluster.kill(2);
    let mut clients = [cluster.client(0), cluster.client(1)];
    put_orders(&mut clients[0], 1000..2000);
    clients[0].put(&entity("orders/c00/deleted"), br#"{"status":"open","total":1}"#);
    clients[0].delete(&entity("orders/c00/deleted"));
    clients[1].ok("PUT", &format!("{}&ttl=1", entity("orders/c00/ended")), Some(br#"{"status":"open","total":1}"#));
    wait_until("it has ended", || clients[1].ok("GET", &entity("orders/c00/ended"), None).status == 404);
    cluster.restart(2);
    put_orders(&mut clients[0], 2000..ORDERS);
    cluster.wait_whole();
    let expected = expected();
    for mut client in cluster.clients() {
        let answer = query(&mut client, &open_orders());
        assert_eq!(answer["groups"], json!(expected));
        let count = (0..ORDERS).filter(|number| order(*number).2).count();
        assert_eq!(
            (&answer["complete"], &answer["count"], &answer["not_json"]),
            (&json!(true), &json!(count), &json!(0))
        );
        assert_eq!((&answer["after"], answer["digest"].as_str().map(str::len)), (&Value::Null, Some(32)));
        assert!(!answer["coverage"].as_array().unwrap().is_empty());
    }
    let mut client = cluster.client(1);
    client.put(&entity_at("single/1", 1, 1), b"3");
    client.put(&entity("single/2"), b"no JSON");
    let all = query(&mut client, &json!({"prefix": "single/", "select": {"count": {}, "sum": {"path": ""}}}));
    assert_eq!((&all["groups"], &all["not_json"]), (&json!([{"group": null, "count": 2, "sum": 3}]), &json!(1)));
    let sized = json!({"prefix": "", "where": [{"on": "key", "op": "suffix", "value": "/2"}], "select": {"count": {}}});
    assert_eq!(query(&mut client, &sized)["groups"], json!([{"group": null, "count": 1}]));
}

#[test]
fn what_is_wrong_with_a_query_is_named_and_what_is_too_much_is_refused() {
    let cluster = Cluster::start(3);
    let mut client = cluster.client(0);
    let mut refused = |body: &[u8], status: u16, says: &str| {
        let problem = client.ok("POST", "/v0/query", Some(body)).problem(status);
        assert!(problem["detail"].as_str().unwrap().contains(says), "{says}: {problem}");
    };
    refused(b"", 400, "");
    refused(b"[]", 400, "");
    refused(br#"{"prefix":"a","select":{"count":{}},"limit":3}"#, 400, "limit");
    refused(br#"{"prefix":"a","select":{"cuont":{}}}"#, 400, "cuont");
    refused(br#"{"select":{"count":{}}}"#, 400, "prefix");
    refused(br#"{"prefix":"a","where":[{"path":"/a","op":"like","value":1}],"select":{"count":{}}}"#, 400, "like");
    refused(&vec![b' '; 64 * 1024 + 1], 413, "64 KiB");
    assert_eq!(client.ok("GET", "/v0/query", None).status, 405);
    client.ok("POST", "/v0/query?prefix=a", Some(b"{}")).problem(400);
    client.ok("POST", "/v0/query?ack=4", Some(b"{}")).problem(400);
    for part in 0..11 {
        let line = |number: usize| format!("{{\"op\":\"put\",\"key\":\"g/{part}/{number}\",\"value\":\"{number}\"}}\n");
        let body: String = (0..1000).map(line).collect();
        assert_eq!(client.ok("POST", "/v0/batch", Some(body.as_bytes())).status, 200);
    }
    let by = |segment: usize| json!({"prefix": "g/", "group_by": {"key_segment": segment}, "select": {"count": {}}});
    assert_eq!(query(&mut client, &by(1))["groups"].as_array().unwrap().len(), 11);
    assert_eq!(query(&mut client, &by(2))["groups"].as_array().unwrap().len(), 1000);
    let by_key = json!({"prefix": "g/", "group_by": {"key_segment": 0, "separator": "+"}, "select": {"count": {}}});
    let problem = client.ok("POST", "/v0/query", Some(by_key.to_string().as_bytes())).problem(422);
    assert!(problem["detail"].as_str().unwrap().contains("10,000 groups"), "{problem}");
}

#[test]
fn without_enough_replicas_a_query_is_504_and_partial_names_what_is_missing() {
    let mut cluster = Cluster::start(5);
    put_orders(&mut cluster.client(0), 0..500);
    cluster.kill(3);
    cluster.kill(4);
    let mut client = cluster.client(0);
    let body = json!({"prefix": "orders/", "select": {"count": {}}}).to_string();
    wait_until("it is refused", || client.ok("POST", "/v0/query?ack=2&from=3", Some(body.as_bytes())).status == 504);
    let problem = client.ok("POST", "/v0/query?ack=2&from=3", Some(body.as_bytes())).problem(504);
    let partial = client.ok("POST", "/v0/query?ack=2&from=3&partial=1", Some(body.as_bytes())).json();
    assert_eq!((&partial["complete"], &partial["missing"]), (&json!(false), &problem["partitions"]));
    let count = partial["groups"][0]["count"].as_u64().unwrap();
    assert!(count > 0 && count < 500, "{count}");
}

#[test]
fn a_query_is_exact_or_none_while_nodes_die_and_pause_and_its_client_may_leave() {
    let mut cluster = Cluster::start(3);
    put_orders(&mut cluster.client(0), 0..ORDERS);
    let expected = json!(expected());
    for round in 0..6 {
        let body = open_orders().to_string();
        let mut left = cluster.client(0);
        left.write(&request("POST", "/v0/query", &[], Some(body.as_bytes()))).unwrap();
        drop(left);
        let mut client = cluster.client(0).timeout(Duration::from_secs(60));
        client.write(&request("POST", "/v0/query", &[], Some(body.as_bytes()))).unwrap();
        match round % 3 {
            0 => cluster.kill(1),
            1 => cluster.pause(2),
            _ => {}
        }
        let answer = client.receive("POST").unwrap();
        assert_eq!(answer.status, 200, "two of three are there: {}", answer.text());
        assert_eq!(answer.json()["groups"], expected);
        match round % 3 {
            0 => cluster.restart(1),
            1 => cluster.resume(2),
            _ => {}
        }
        cluster.wait_whole();
    }
}

#[test]
fn the_command_reads_a_file_or_stdin_and_prints_the_answer() {
    let cluster = Cluster::start(3);
    put_orders(&mut cluster.client(0), 0..100);
    let file = cluster.root().join("query.json");
    std::fs::write(&file, json!({"prefix": "orders/", "select": {"count": {}}}).to_string()).unwrap();
    let run = |file: &str| {
        let mut command = kvorum();
        command.args(["query", file, "--url", &cluster.node(1).url()]);
        command.output().unwrap()
    };
    let said = run(file.to_str().unwrap());
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let answer: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(answer["groups"], json!([{"group": null, "count": 100}]));
    std::fs::write(&file, "{\"prefix\":\"\",\"select\":{\"coutn\":{}}}").unwrap();
    let said = run(file.to_str().unwrap());
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("coutn"), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(run("/nowhere.json").status.code(), Some(2));
}
