//! `kvorum console`: what it says of nodes, whom it answers, and that it stays small.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use serde_json::Value;

use crate::support::cluster::free_port;
use crate::support::console::{ConsoleProcess, FrameStream, parts, states};
use crate::support::secure::{private, said};
use crate::support::{Client, Cluster, entity, entity_at, wait_until};

fn urls(cluster: &Cluster) -> Vec<String> {
    (0..cluster.len()).map(|index| cluster.node(index).url()).collect()
}

#[track_caller]
fn wait_states(stream: &mut FrameStream, expected: &[&str]) -> Value {
    stream.until(&format!("nodes are {expected:?}"), |frame| states(frame) == expected)
}

#[test]
fn only_pages_of_the_console_with_its_token_are_answered() {
    let console = ConsoleProcess::start(&["http://127.0.0.1:1".to_owned()], &[]);
    let token = format!("kvorum-console: {}", console.token);
    let status = |lines: &[&str]| {
        let mut client = console.client();
        client.write(format!("GET /api/session HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n")).as_bytes()).unwrap();
        client.receive("GET").unwrap().status
    };
    let own = format!("Host: {}", console.address);
    assert_eq!(status(&[&own, &token]), 200);
    assert_eq!(status(&["Host: localhost", &token]), 200);
    assert_eq!(status(&["Host: evil.example", &token]), 421, "a name that DNS made to point here");
    assert_eq!(status(&[&own, "Origin: http://127.0.0.1:9", &token]), 403, "a page of another port");
    assert_eq!(status(&[&own, "Origin: null", &token]), 403);
    assert_eq!(status(&[&own, "Sec-Fetch-Site: cross-site", &token]), 403);
    assert_eq!(status(&[&own]), 401);
    assert_eq!(status(&[&own, "kvorum-console: 0123456789abcdef0123456789abcdef"]), 401);
    let page = console.client().get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(
        (page.header("x-content-type-options"), page.header("referrer-policy")),
        (Some("nosniff"), Some("no-referrer"))
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
    assert!(policy.ends_with("frame-ancestors 'none'"), "{policy}");
    let again = console.client().with("GET", "/", &[("If-None-Match", page.header("etag").unwrap())], None);
    assert_eq!((again.status, again.body.len()), (304, 0));
    console.client().get("/../Cargo.toml").problem(404);
    console.client().ok("POST", "/", Some(b"")).problem(405);
}

#[test]
fn it_listens_on_this_machine_alone() {
    let output = crate::support::kvorum().args(["console", "--listen", "0.0.0.0:0"]).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && words.contains("ssh -L"), "{words}");
}

#[test]
fn a_node_that_is_killed_or_paused_shows_as_silent_within_two_seconds_and_comes_back() {
    let mut cluster = Cluster::start(3);
    let console = ConsoleProcess::start(&urls(&cluster), &[]);
    let mut stream = console.stream();
    wait_states(&mut stream, &["up", "up", "up"]);
    cluster.kill(1);
    let killed = Instant::now();
    let frame = wait_states(&mut stream, &["up", "silent", "up"]);
    assert!(killed.elapsed().as_secs_f64() < 2.5, "{:?}", killed.elapsed());
    let why = frame["nodes"][1]["why"].as_str().unwrap();
    assert!(why.contains("connection refused") && why.contains("is it running"), "{why}");
    assert!(frame["nodes"][1]["stats"].is_null() && frame["nodes"][1]["series"].as_object().unwrap().is_empty());
    cluster.pause(2);
    let frame = wait_states(&mut stream, &["up", "silent", "silent"]);
    assert!(frame["nodes"][2]["why"].as_str().unwrap().contains("600 ms"), "{frame}");
    cluster.resume(2);
    cluster.restart(1);
    wait_states(&mut stream, &["up", "up", "up"]);
    for _ in 0..3 {
        let frame = stream.next();
        for node in frame["nodes"].as_array().unwrap() {
            let numbers = node["series"].as_object().unwrap();
            let is_wrong = |value: &Value| value.as_f64().is_none_or(|value| value < 0.0);
            assert!(!numbers.values().any(is_wrong), "a restart makes no negative rate: {node}");
        }
    }
}

#[test]
fn it_starts_before_its_nodes_and_outlives_them() {
    let mut cluster = Cluster::prepare(3, &[]);
    let console = ConsoleProcess::start(&urls(&cluster), &[]);
    let mut stream = console.stream();
    wait_states(&mut stream, &["silent", "silent", "silent"]);
    cluster.spawn_all();
    cluster.wait_whole();
    wait_states(&mut stream, &["up", "up", "up"]);
    cluster.kill_all();
    wait_states(&mut stream, &["silent", "silent", "silent"]);
    assert_eq!(console.get("/api/session").json()["nodes"].as_array().unwrap().len(), 3);
}

#[test]
fn what_a_page_asks_is_what_the_node_answers() {
    let cluster = Cluster::start(3);
    let console = ConsoleProcess::start(&urls(&cluster), &["--level", "write"]);
    let id = "k \"quoted\"\n\u{202e}right to left";
    let target = |node: usize| entity_at(id, 2, 3).replace("/v0/", &format!("/api/nodes/{node}/"));
    let value: Vec<u8> = (0..=255).cycle().take(8 << 20).collect();
    let stored = console.ask("PUT", &target(0), Some(&value));
    assert_eq!(stored.status, 201, "{stored:?}");
    let receipt = stored.header("kvorum-replicas").unwrap();
    assert_eq!(receipt.matches("=").count(), 3, "{receipt}");
    let read = console.get(&target(1));
    assert!(read.status == 200 && read.body == value && read.etag() == stored.etag(), "all eight megabytes");
    assert_eq!(cluster.client(2).value(&entity(id)), value);
    let large = console.ask("PUT", &target(0), Some(&[value.as_slice(), b"!"].concat()));
    large.problem(413);
    console.ask("PUT", &target(0), Some(&value.repeat(3))).problem(413);
    for (page, own) in [
        ("cluster", "/v0/cluster"),
        ("layout", "/v0/layout"),
        ("layout?id=k", "/v0/layout?id=k"),
        ("repair", "/v0/repair"),
    ] {
        let shown = console.get(&format!("/api/nodes/0/{page}"));
        assert_eq!((shown.status, shown.header("content-type")), (200, Some("application/json")));
        let members = |page: &Value| page.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let direct = cluster.client(0).get(own).json();
        assert_eq!(members(&shown.json()), members(&direct), "{page}");
    }
    assert_eq!(console.get("/api/nodes/0/layout").json(), cluster.client(0).get("/v0/layout").json());
    assert!(console.get("/api/nodes/0/hot").status == 200 && console.get("/api/nodes/0/slow").status == 200);
    let scanned = console.get("/api/nodes/2/scan?prefix=k&values=0");
    assert!(scanned.text().contains("\"complete\":true,\"count\":1"), "{scanned:?}");
    let refused = console.get("/api/nodes/0/entity?id=k&ack=9");
    assert_eq!(refused.problem(400), cluster.client(0).get("/v0/entity?id=k&ack=9").problem(400));
    assert_eq!(console.ask("DELETE", &target(2), None).status, 202);
    console.get(&target(0)).problem(404);
    assert_eq!(console.ask("POST", "/api/nodes/0/repair", None).status, 202);
    console.get("/api/nodes/3/cluster").problem(404);
    console.get("/api/nodes/0/backup").problem(404);
}

#[test]
fn figures_and_series_are_those_of_the_nodes() {
    let cluster = Cluster::start(1);
    let console = ConsoleProcess::start(&urls(&cluster), &[]);
    let mut stream = console.stream();
    wait_states(&mut stream, &["up"]);
    let mut client = cluster.client(0);
    for number in 0..100 {
        client.put(&entity(format!("k{number}")), b"v");
    }
    let of_puts = |node: &Value| -> u64 {
        let rows = node["stats"]["metrics"]["http_requests_total"].as_array().cloned().unwrap_or_default();
        rows.iter().filter(|row| row[0] == "PUT").map(|row| row[2].as_u64().unwrap()).sum()
    };
    let mut rates = Vec::new();
    stream.until("all are counted", |frame| {
        let node = &frame["nodes"][0];
        rates.push(node["series"]["puts"].as_f64().unwrap_or(0.0));
        of_puts(node) == 100
    });
    // A second is never quite one.
    let total: f64 = rates.iter().sum();
    assert!((80.0..=120.0).contains(&total), "{rates:?}");
    let table = console.get("/api/series").json();
    let puts = table.as_array().unwrap().iter().find(|row| row["id"] == "puts").unwrap();
    assert!(puts["promql"].as_str().unwrap().contains("kvorum_http_request_duration_seconds_count"), "{puts}");
    let past = console.get("/api/history?series=puts,records&seconds=30").json();
    assert_eq!(past["step_ms"], 1000);
    let kept = past["nodes"][0]["series"]["puts"].as_array().unwrap();
    let total: f64 = kept.iter().filter_map(Value::as_f64).sum();
    assert!(kept.len() == 30 && (80.0..=120.0).contains(&total), "{kept:?}");
    for wrong in ["series=none", "series=", "series=puts&seconds=0", "series=puts&seconds=90000", "seconds=5"] {
        console.get(&format!("/api/history?{wrong}")).problem(400);
    }
    let day = console.get("/api/history?series=puts&seconds=86400").json();
    assert_eq!((day["step_ms"].as_u64(), day["nodes"][0]["series"]["puts"].is_array()), (Some(60_000), true));
}

#[test]
fn a_level_is_not_exceeded() {
    let cluster = Cluster::start(1);
    let console = ConsoleProcess::start(&urls(&cluster), &[]);
    assert_eq!(console.get("/api/session").json()["level"], "read");
    let refused = console.ask("PUT", "/api/nodes/0/entity?id=k", Some(b"v")).problem(403);
    assert!(refused["detail"].as_str().unwrap().contains("--level write"), "{refused}");
    console.ask("DELETE", "/api/nodes/0/entity?id=k", None).problem(403);
    console.ask("POST", "/api/nodes/0/repair", None).problem(403);
    console.ask("POST", "/api/lab/dev", Some(b"{\"line\":\"kill 1\"}")).problem(403);
    console.get("/api/lab/jobs").problem(403);
    cluster.client(0).absent(&entity("k"));
}

#[test]
fn a_node_that_wants_a_key_says_so_until_the_console_has_one() {
    let (cluster, keys) = Cluster::secured(1, &[]);
    let console = ConsoleProcess::start(&urls(&cluster), &[]);
    let frame = wait_states(&mut console.stream(), &["unauthorized"]);
    assert!(frame["nodes"][0]["why"].as_str().unwrap().contains("--key-file"), "{frame}");
    console.get("/api/nodes/0/cluster").problem(401);
    let file = cluster.root().join("observer.key");
    private(&file, &keys.add("observer", "observer"));
    cluster.reload(0);
    let console = ConsoleProcess::start(&urls(&cluster), &["--key-file", file.to_str().unwrap()]);
    wait_states(&mut console.stream(), &["up"]);
    console.get("/api/nodes/0/entity?id=k").problem(403);
    assert!(said(&["--version"]).starts_with("kvorum"));
}

/// Answers whatever comes with these bytes.
fn impostor(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        }
    });
    url
}

#[test]
fn what_is_no_kvorum_or_another_cluster_is_told_apart() {
    let (first, second) = (Cluster::start(1), Cluster::start(1));
    let endless = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n";
    let page = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nConnection: close\r\n\r\nnginx";
    let urls = [
        first.node(0).url(),
        impostor(page),
        impostor(b"SSH-2.0-OpenSSH\r\n"),
        format!("http://127.0.0.1:{}", free_port()),
        impostor(endless),
    ];
    let console = ConsoleProcess::start(&urls, &[]);
    let frame = wait_states(&mut console.stream(), &["up", "not-kvorum", "not-kvorum", "silent", "silent"]);
    assert!(frame["nodes"][1]["why"].as_str().unwrap().contains("check the address"), "{frame}");
    let console = ConsoleProcess::start(&[first.node(0).url(), second.node(0).url()], &[]);
    let mut stream = console.stream();
    let frame = stream.until("one is foreign", |frame| states(frame).contains(&"foreign"));
    let nodes = frame["nodes"].as_array().unwrap();
    let foreign = nodes.iter().find(|node| node["state"] == "foreign").unwrap();
    assert!(foreign["why"].as_str().unwrap().contains("one cluster only"), "{frame}");
    assert!(foreign["stats"].is_null() && states(&frame).contains(&"up"), "its figures are left out");
}

/// Bytes of a process.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn streams_are_limited_and_one_that_nobody_reads_costs_little() {
    let cluster = Cluster::start(1);
    let console = ConsoleProcess::start(&urls(&cluster), &[]);
    let mut streams: Vec<FrameStream> = (0..64).map(|_| console.stream()).collect();
    wait_states(&mut streams[0], &["up"]);
    let refused = console.get("/api/stream").problem(503);
    assert!(refused["detail"].as_str().unwrap().contains("64 pages are open"), "{refused}");
    // Nobody reads any of them but one.
    for _ in 0..5 {
        streams[0].next();
    }
    assert!(resident(console.id()) < 64 << 20, "{} bytes", resident(console.id()));
    streams.truncate(1);
    wait_until("there is room again", || {
        let mut client = console.client();
        let head = format!("GET /api/stream HTTP/1.1\r\nHost: localhost\r\nkvorum-console: {}\r\n\r\n", console.token);
        client.write(head.as_bytes()).unwrap();
        client.head().unwrap().status == 200
    });
}

#[test]
fn values_that_do_not_come_do_not_keep_others_waiting() {
    let cluster = Cluster::start(1);
    let console = ConsoleProcess::start(&[cluster.node(0).url()], &["--level", "write"]);
    let path = "/api/nodes/0/entity?id=k";
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\nkvorum-console: {}\r\nContent-Length: 10\r\n\r\n",
        console.token
    );
    let stalled: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = console.client();
            client.write((head.clone() + "1").as_bytes()).unwrap();
            client
        })
        .collect();
    wait_until("another is told that there is no room", || console.ask("PUT", path, Some(b"v")).status == 503);
    drop(stalled);
    wait_until("there is room again", || console.ask("PUT", path, Some(b"v")).status == 201);
}

#[test]
fn connections_are_limited() {
    let console = ConsoleProcess::start(&["http://127.0.0.1:1".to_owned()], &[]);
    let mut clients = Vec::new();
    let refused = (0..200).find_map(|_| {
        let mut client = console.client();
        let response = client.get("/");
        clients.push(client);
        (response.status == 503).then_some(response)
    });
    let refused = refused.expect("the console serves 200 connections");
    assert!(refused.text().contains("close a page") && clients.len() == 129, "{} {refused:?}", clients.len());
    drop(clients);
    wait_until("there is room again", || console.client().get("/").status == 200);
}

#[test]
fn the_admin_listener_has_the_pages_for_who_reads_the_nodes_directory() {
    let mut cluster = Cluster::prepare(1, &[]);
    let admin = format!("127.0.0.1:{}", free_port());
    cluster.set_variable(0, "KVORUM_ADMIN_LISTEN", &admin);
    cluster.spawn_all();
    cluster.wait_whole();
    let file = cluster.node(0).data_dir.join("console.url");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its user's alone");
    let (address, token) = parts(&std::fs::read_to_string(&file).unwrap());
    assert_eq!(address.to_string(), admin);
    let ask = |method: &str, path: &str| Client::new(address).with(method, path, &[("kvorum-console", &token)], None);
    let session = ask("GET", "/api/session").json();
    assert_eq!((session["mode"].as_str(), session["level"].as_str()), (Some("admin"), Some("read")));
    assert_eq!(session["nodes"][0], cluster.node(0).url());
    assert_eq!(ask("GET", "/").header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(ask("GET", "/api/nodes/0/stats").json()["node"], cluster.node(0).url());
    ask("DELETE", "/api/nodes/0/entity?id=k").problem(403);
    Client::new(address).get("/api/session").problem(401);
    assert_eq!(Client::new(address).get("/debug/profile/heap").status, 404, "profiles are where they were");
    assert_eq!(Client::new(address).get("/debug/profile/lock?seconds=1").status, 200);
    cluster.terminate(0);
    assert!(!file.exists(), "the token goes with the node");
}

#[test]
fn a_node_that_wants_keys_has_no_pages_of_its_own() {
    let mut cluster = Cluster::prepare(1, &[]);
    let admin = format!("127.0.0.1:{}", free_port());
    cluster.set_variable(0, "KVORUM_ADMIN_LISTEN", &admin);
    cluster.guard();
    cluster.spawn_all();
    cluster.wait_whole();
    assert!(!cluster.node(0).data_dir.join("console.url").exists());
    assert_eq!(Client::new(admin.parse().unwrap()).get("/").status, 401, "as any path that wants a key");
}
