//! Batches against real nodes: each operation is as sure as a single one, whatever happens to a node meanwhile.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::disk::SmallDisk;
use crate::support::{Client, Cluster, entity, kvorum, wait_until};

fn batch(client: &mut Client, operations: &[Value]) -> Vec<Value> {
    let body: String = operations.iter().map(|operation| format!("{operation}\n")).collect();
    let answer = client.ok("POST", "/v0/batch", Some(body.as_bytes()));
    assert_eq!(answer.status, 200, "{answer:?}");
    let lines = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("each line is JSON")).collect()
}

fn statuses(answers: &[Value]) -> Vec<u64> {
    answers.iter().map(|answer| answer["status"].as_u64().expect("each answer has a status")).collect()
}

fn puts(prefix: &str, count: usize, value: &str) -> Vec<Value> {
    (0..count).map(|number| json!({"op": "put", "key": format!("{prefix}{number}"), "value": value})).collect()
}

fn gets(prefix: &str, count: usize) -> Vec<Value> {
    (0..count).map(|number| json!({"op": "get", "key": format!("{prefix}{number}")})).collect()
}

#[test]
fn what_a_batch_stores_every_node_reads_alone_and_in_batches() {
    let cluster = Cluster::start(3);
    let mut clients = cluster.clients();
    assert!(statuses(&batch(&mut clients[0], &puts("k", 1000, "value"))).iter().all(|status| *status == 201));
    for client in &mut clients {
        let found = batch(client, &gets("k", 1000));
        assert!(found.iter().all(|answer| answer["status"] == 200 && answer["value"] == "value"));
        let alone = client.ok("GET", &entity("k7"), None);
        assert_eq!((alone.status, found[7]["etag"].as_str()), (200, Some(alone.etag().as_str())));
    }
    let mixed =
        [json!({"op": "delete", "key": "k0"}), json!({"op": "get", "key": "k1"}), json!({"op": "get", "key": "x"})];
    assert_eq!(statuses(&batch(&mut clients[1], &mixed)), [202, 200, 404]);
    clients[2].absent(&entity("k0"));
    assert_eq!(cluster.metric(0, "kvorum_http_batch_operations_total") as u64, 2000);
}

#[test]
fn values_of_all_sizes_go_through_a_batch() {
    let cluster = Cluster::start(3);
    let mut clients = cluster.clients();
    let sizes = [0, 1, 5_000, 15_000, 17_000, 70_000, 1_000_000];
    let value = |size: usize| "v".repeat(size);
    let put = |size: &usize| json!({"op": "put", "key": format!("of {size}"), "value": value(*size)});
    assert_eq!(statuses(&batch(&mut clients[0], &sizes.iter().map(put).collect::<Vec<_>>())), [201; 7]);
    let get = |size: &usize| json!({"op": "get", "key": format!("of {size}")});
    let found = batch(&mut clients[1], &sizes.iter().map(get).collect::<Vec<_>>());
    for (size, answer) in sizes.iter().zip(&found) {
        assert!(answer["value"] == value(*size).as_str(), "{size}: {}", answer["status"]);
    }
}

#[test]
fn without_a_node_the_others_suffice_and_without_two_each_operation_is_504() {
    let mut cluster = Cluster::start(3);
    batch(&mut cluster.client(0), &puts("k", 50, "old"));
    cluster.kill(2);
    let mut client = cluster.client(0);
    assert!(statuses(&batch(&mut client, &puts("k", 50, "new"))).iter().all(|status| *status == 201));
    assert!(batch(&mut client, &gets("k", 50)).iter().all(|answer| answer["value"] == "new"));
    cluster.kill(1);
    let mut client = cluster.client(0);
    let refused = batch(&mut client, &puts("k", 3, "newer"));
    assert_eq!(statuses(&refused), [504; 3]);
    assert_eq!(refused[0]["problem"]["title"], "Not Enough Replicas");
    assert_eq!(refused[0]["problem"]["required"], 2);
    cluster.spawn(1);
    cluster.spawn(2);
    cluster.wait_whole();
    let found = batch(&mut cluster.client(2), &gets("k", 50));
    assert!(found[3..].iter().all(|answer| answer["value"] == "new"), "nothing is lost");
}

#[test]
fn a_node_that_is_paused_or_killed_in_the_middle_costs_no_acknowledged_write() {
    let mut cluster = Cluster::start(3);
    for round in 0..6 {
        let address = cluster.node(0).address;
        let sender = std::thread::spawn(move || {
            let mut client = Client::new(address).timeout(Duration::from_secs(30));
            batch(&mut client, &puts(&format!("r{round} "), 1000, "v"))
        });
        if round % 2 == 0 {
            cluster.kill(2);
            cluster.restart(2);
        } else {
            cluster.pause(1);
            cluster.resume(1);
        }
        let answers = sender.join().expect("the batch is answered");
        let stored: Vec<Value> = answers.iter().filter(|answer| answer["status"] == 201).cloned().collect();
        assert!(stored.len() > 900, "{:?}", statuses(&answers));
        cluster.wait_whole();
        let get = |answer: &Value| json!({"op": "get", "key": answer["key"]});
        let found = batch(&mut cluster.client(1), &stored.iter().map(get).collect::<Vec<_>>());
        assert!(found.iter().all(|answer| answer["status"] == 200), "an acknowledged write is lost");
    }
}

#[test]
fn a_node_whose_disk_is_full_refuses_or_leaves_it_to_the_others() {
    let mut cluster = Cluster::prepare(3, &[]);
    let at = cluster.root().join("small");
    let Some(disk) = SmallDisk::mount(&at, 256) else {
        eprintln!("SKIPPED, NOTHING WAS SHOWN of full disks, which need root");
        return;
    };
    cluster.set_data_dir(0, at.join("data"));
    cluster.spawn_all();
    cluster.wait_whole();
    disk.fill();
    let mut client = cluster.client(0);
    wait_until("the disk is full, and the others suffice", || {
        statuses(&batch(&mut client, &puts("k", 64, "v"))).iter().all(|status| *status == 201)
    });
    let needs_all = json!({"op": "put", "key": "all", "value": "v", "ack": 3, "from": 3});
    let refused = batch(&mut client, &[needs_all, json!({"op": "get", "key": "k1"})]);
    assert!([503, 504].contains(&statuses(&refused)[0]) && statuses(&refused)[1] == 200, "{refused:?}");
    disk.free();
}

#[test]
fn a_client_that_goes_away_or_stops_reading_holds_nothing() {
    let cluster = Cluster::start(3);
    let mut client = cluster.client(0);
    let large: Vec<Value> =
        (0..7).map(|key| json!({"op": "put", "key": format!("l{key}"), "value": "v".repeat(1_000_000)})).collect();
    batch(&mut client, &large);
    let body: String = gets("l", 7).iter().map(|operation| format!("{operation}\n")).collect();
    let mut silent: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = cluster.client(0);
            client.send("POST", "/v0/batch", &[], Some(body.as_bytes())).expect("it is sent");
            client
        })
        .collect();
    wait_until("the answers wait for their clients", || cluster.metric(0, "kvorum_http_requests_in_flight") >= 1.0);
    assert!(statuses(&batch(&mut client, &gets("l", 2))).iter().all(|status| [200, 503].contains(status)));
    silent.clear();
    wait_until("nothing is held any more", || {
        cluster.metric(0, "kvorum_http_requests_in_flight") <= 1.0
            && cluster.metric(0, "kvorum_large_value_bytes") == 0.0
    });
    assert_eq!(statuses(&batch(&mut client, &gets("l", 7))), [200; 7]);
}

#[test]
fn the_command_line_sends_a_file_in_parts_and_shows_504() {
    let mut cluster = Cluster::start(3);
    let url = cluster.node(0).url();
    let run = |input: &str| {
        let mut command = kvorum();
        command.args(["batch", "-", "--url", &url]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let text: String = puts("k", 2500, "v").iter().map(|operation| format!("{operation}\n")).collect();
    let stored = run(&text);
    assert!(stored.status.success(), "{stored:?}");
    let lines = String::from_utf8(stored.stdout).unwrap();
    assert_eq!(lines.lines().filter(|line| line.starts_with("{\"status\":201,")).count(), 2500);
    let wrong = run("{\"op\":\"get\",\"key\":\"k\",\"colour\":1}\n");
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("line 1 of the batch: unknown field `colour`"));
    cluster.kill(1);
    cluster.kill(2);
    let missing = run("{\"op\":\"get\",\"key\":\"k1\"}\n");
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
}
