//! The console of `kvorum dev`: nodes fail on order, the canary sees nothing lost, and what the lab makes can be opened.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};

use crate::support::console::{ConsoleProcess, states};
use crate::support::disk::SmallDisk;
use crate::support::{Client, wait_for, wait_until};

/// Three free ports in a row, other ones for every test, below all that other tests take.
fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 60).unwrap() * 15;
    wait_for("three free ports in a row", || {
        let base = 4_000 + own + NEXT.fetch_add(3, Ordering::Relaxed) % 900;
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        (base..base + 3).all(is_free).then_some(base)
    })
}

/// A `dev` on free ports, and its console.
fn dev() -> (tempfile::TempDir, u16, ConsoleProcess) {
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let console = ConsoleProcess::of_dev(base, dir.path());
    (dir, base, console)
}

#[track_caller]
fn post(console: &ConsoleProcess, path: &str, body: &Value) -> Value {
    let response = console.ask("POST", path, Some(body.to_string().as_bytes()));
    assert_eq!(response.status, 200, "{body}: {response:?}");
    response.json()
}

#[test]
fn nodes_are_killed_and_started_from_a_page_and_the_canary_loses_nothing() {
    let (_dir, base, console) = dev();
    assert_eq!(console.get("/api/session").json()["level"], "lab");
    let mut stream = console.stream();
    stream.until("the canary sings", |frame| frame["canary"]["writes"].as_u64() > Some(10));
    let killed = post(&console, "/api/lab/dev", &json!({ "line": "kill 2" }));
    assert_eq!((killed["ok"].as_bool(), killed["nodes"][1]["state"].as_str()), (Some(true), Some("dead")));
    stream.until("it is dead and silent", |frame| {
        frame["dev"]["nodes"][1]["state"] == "dead" && states(frame) == ["up", "silent", "up"]
    });
    let before = stream.next()["canary"]["writes"].as_u64().unwrap();
    let after = stream.until("writes go on", |frame| frame["canary"]["writes"].as_u64() > Some(before + 20));
    assert_eq!(after["canary"]["available"], true, "{after}");
    post(&console, "/api/lab/dev", &json!({ "line": "start 2" }));
    stream.until("it is back", |frame| states(frame) == ["up", "up", "up"]);
    post(&console, "/api/lab/dev", &json!({ "line": "pause 3" }));
    stream.until("one stands still", |frame| states(frame) == ["up", "up", "silent"]);
    post(&console, "/api/lab/dev", &json!({ "line": "resume 3" }));
    let canary = stream.until("all are back", |frame| states(frame) == ["up", "up", "up"])["canary"].clone();
    assert_eq!((canary["lost"].as_u64(), canary["stale"].as_u64()), (Some(0), Some(0)), "{canary}");
    let refused = post(&console, "/api/lab/dev", &json!({ "line": "kill 9" }));
    assert!(refused["ok"] == false && refused["error"].as_str().unwrap().contains("1 to 3"), "{refused}");
    console.ask("POST", "/api/lab/dev", Some(b"kill 1")).problem(400);
    console.ask("POST", "/api/lab/dev", Some(br#"{"line":"kill 1\nkill 2"}"#)).problem(400);
    post(&console, "/api/lab/canary", &json!({ "run": false }));
    stream.until("the canary is silent", |frame| frame["canary"].is_null());
    post(&console, "/api/lab/canary", &json!({ "run": true }));
    stream.until("and sings again", |frame| frame["canary"]["available"] == true);
    drop(stream);
    let node = format!("127.0.0.1:{base}").parse().unwrap();
    wait_until("who watches nothing finds no key of the canary", || {
        Client::new(node).get("/v0/scan?prefix=&values=0").text().contains("\"count\":0")
    });
}

/// The job, once it has ended.
#[track_caller]
fn ended(console: &ConsoleProcess, id: &Value) -> Value {
    wait_for("the job has ended", || {
        let jobs = console.get("/api/lab/jobs").json();
        let job = jobs.as_array().unwrap().iter().find(|job| job["id"] == *id).cloned().unwrap();
        (job["state"] != "running").then_some(job)
    })
}

#[test]
fn load_and_profiles_are_started_from_a_page_and_opened() {
    let (dir, _, console) = dev();
    let arguments = json!({ "rate": 100, "duration": "1s", "warmup": "0s", "keys": 100 });
    let run = post(&console, "/api/lab/bench", &json!({ "command": "run", "arguments": arguments }));
    let job = ended(&console, &run["id"]);
    assert!(job["state"] == "done" && job["progress"]["requests"].is_u64(), "{job}");
    let open = job["open"].as_str().unwrap();
    let report = console.client().get(open);
    assert_eq!((report.status, report.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = report.header("content-security-policy").unwrap();
    assert!(policy.starts_with("sandbox allow-scripts; default-src 'none'"), "{policy}");
    assert_eq!(console.client().get(&format!("{open}run.json")).header("content-type"), Some("application/json"));
    console.client().get(&format!("{open}../job-2/x")).problem(404);
    console.client().get("/open/0123456789abcdef0123456789abcdef/").problem(404);
    let again = post(&console, "/api/lab/bench", &json!({ "command": "run", "arguments": arguments }));
    ended(&console, &again["id"]);
    let sides = json!({ "a": run["id"], "b": again["id"] });
    let compared = post(&console, "/api/lab/bench", &json!({ "command": "compare", "arguments": sides }));
    let job = ended(&console, &compared["id"]);
    assert!(job["state"] == "done" && job["open"].is_string(), "{job}");
    // Without load there may be nothing to draw.
    let load = json!({ "command": "run", "arguments": { "rate": 500, "duration": "5s", "warmup": "0s", "keys": 100 } });
    let load = post(&console, "/api/lab/bench", &load);
    let profile = post(&console, "/api/lab/profile", &json!({ "node": 0, "kind": "alloc", "seconds": 2 }));
    let job = ended(&console, &profile["id"]);
    assert!(job["state"] == "done" && job["open"].is_string(), "{job}");
    ended(&console, &load["id"]);
    let drawn = console.client().get(job["open"].as_str().unwrap());
    assert_eq!(drawn.header("content-type"), Some("image/svg+xml"));
    let long = json!({ "rate": 10, "duration": "600s", "warmup": "0s" });
    let long = post(&console, "/api/lab/bench", &json!({ "command": "run", "arguments": long }));
    wait_until("it has begun to measure", || {
        let jobs = console.get("/api/lab/jobs").json();
        jobs.as_array().unwrap().iter().any(|job| job["id"] == long["id"] && !job["progress"].is_null())
    });
    assert_eq!(console.ask("DELETE", &format!("/api/lab/jobs/{}", long["id"]), None).status, 200);
    let stopped = ended(&console, &long["id"]);
    assert!(stopped["state"] == "stopped" && stopped["open"].is_string(), "it reports what there was: {stopped}");
    for wrong in [json!({ "rate": 1, "out": "/tmp" }), json!({ "rate": "1 --out /tmp" })] {
        let body = json!({ "command": "run", "arguments": wrong }).to_string();
        console.ask("POST", "/api/lab/bench", Some(body.as_bytes())).problem(400);
    }
    assert!(dir.path().join("lab").is_dir());
}

#[test]
fn a_full_disk_for_reports_fails_the_job_in_words_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&dir.path().join("lab"), 4) else { return };
    disk.fill();
    let console = ConsoleProcess::of_dev(free_ports(), dir.path());
    let brief = json!({ "rate": 50, "duration": "1s", "warmup": "0s", "keys": 100 });
    let brief = json!({ "command": "run", "arguments": brief });
    let full = post(&console, "/api/lab/bench", &brief);
    let job = ended(&console, &full["id"]);
    assert!(job["state"] == "failed" && job["error"].as_str().unwrap().contains("No space left on device"), "{job}");
    let mut stream = console.stream();
    stream.until("the nodes serve on", |frame| {
        states(frame) == ["up", "up", "up"] && frame["canary"]["available"] == true
    });
    disk.free();
    let again = post(&console, "/api/lab/bench", &brief);
    let job = ended(&console, &again["id"]);
    assert!(job["state"] == "done" && job["open"].is_string(), "{job}");
}

/// Whether a process runs with this in its arguments.
fn runs_with(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let arguments = |process: std::fs::DirEntry| std::fs::read_to_string(process.path().join("cmdline")).ok();
    processes.filter_map(arguments).any(|all| all.split('\0').any(|one| one == argument))
}

#[test]
fn load_from_a_page_ends_with_a_dev_that_was_killed() {
    let (dir, _, console) = dev();
    let long = json!({ "rate": 10, "duration": "600s", "warmup": "0s" });
    let long = post(&console, "/api/lab/bench", &json!({ "command": "run", "arguments": long }));
    let out = format!("--out={}", dir.path().join(format!("lab/job-{}", long["id"])).display());
    wait_until("the load runs", || runs_with(&out));
    // It is killed.
    drop(console);
    wait_until("the load has ended", || !runs_with(&out));
}

#[test]
fn a_dev_without_a_console_prints_no_address_and_keeps_its_ports_to_itself() {
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let mut command = crate::support::kvorum();
    command
        .args(["dev", "--nodes", "1", "--no-console", "--base-port", &base.to_string(), "--data-dir"])
        .arg(dir.path());
    let log = dir.path().join("out");
    command.stdout(std::fs::File::create(&log).unwrap()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let text = || std::fs::read_to_string(&log).unwrap();
    wait_until("it is ready", || text().contains("Ctrl-C"));
    assert!(!text().contains("/#") && !dir.path().join("node-1/console.url").exists(), "{}", text());
    child.kill().unwrap();
    child.wait().unwrap();
}
