//! `kvorum profile` and the admin listener, on real nodes under load.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::cluster::{free_port, kvorum};
use crate::support::disk::SmallDisk;
use crate::support::http::Client;
use crate::support::{Cluster, wait_for, wait_until};

/// One node with an admin listener, and a client that stores and reads until this is dropped.
struct Busy {
    cluster: Cluster,
    admin: SocketAddr,
    load: Child,
}

impl Busy {
    fn start() -> Self {
        Self::with(&[], "1000")
    }

    fn with(settings: &[(&str, &str)], rate: &str) -> Self {
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let listen = admin.to_string();
        let cluster = Cluster::with(1, &[&[("KVORUM_ADMIN_LISTEN", listen.as_str())], settings].concat());
        let mut load = kvorum();
        load.args(["bench", "run", "--url", &cluster.node(0).url(), "--workload", "mixed:put=50,get=50"]);
        load.args(["--rate", rate, "--duration", "10m", "--warmup", "0ms", "--keys", "5000", "--value-size", "2000"]);
        let load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the load has begun", || cluster.metric(0, "kvorum_allocated_bytes_total") > 30e6);
        Self { cluster, admin, load }
    }

    fn client(&self) -> Client {
        Client::new(self.admin).timeout(Duration::from_secs(60))
    }

    fn profile(&self, kind: &str, seconds: u32, out: &Path, more: &[&str]) -> Output {
        let seconds = seconds.to_string();
        let args = ["profile", "--url", &format!("http://{}", self.admin), "--kind", kind, "--seconds", &seconds];
        kvorum().args(args).arg("--out").arg(out).args(more).output().unwrap()
    }

    fn wait_begun(&self) {
        wait_until("a profile has begun", || self.cluster.log(0).contains("profile begun"));
    }

    /// Whether the node takes a profile now: then it does, for a second.
    fn is_free(&self) -> bool {
        match self.client().get("/debug/profile/lock?seconds=1").status {
            200 => true,
            409 => false,
            other => panic!("status {other}"),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _gone = self.load.kill();
        let _gone = self.load.wait();
    }
}

#[track_caller]
fn text(output: &Output, code: i32) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// Whether a stack has frames that begin or end so, in this order.
fn has(stacks: &str, frames: &[&str]) -> bool {
    stacks.lines().any(|line| {
        let mut rest = line;
        frames.iter().all(|frame| match rest.split_once(frame) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    })
}

#[test]
fn all_three_kinds_show_this_code_and_the_engine_and_what_has_changed() {
    let busy = Busy::start();
    let dir = busy.cluster.root().join("profiles");
    let expected: [(&str, &[&[&str]]); 3] = [
        ("alloc", &[&["(storage/src/commit/", "rocksdb::"], &["(http/src/"]]),
        (
            "lock",
            &[&["commit;queue commit "], &["commit;engine commit;log write and sync "], &["shard-", ";queue mailbox "]],
        ),
        ("cpu", &[&["commit;", "(storage/src/commit/", "rocksdb::DBImpl::"], &["shard-", "(http/src/"]]),
    ];
    for (kind, frames) in expected {
        let output = busy.profile(kind, 4, &dir, &[]);
        if kind == "cpu" && String::from_utf8_lossy(&output.stderr).contains("perf_event_open") {
            eprintln!("SKIPPED, NOTHING WAS SHOWN: {}", text(&output, 4));
            return;
        }
        let table = text(&output, 0);
        assert!(table.contains("could not be unwound") && table.contains("| self % |"), "{table}");
        let stacks = std::fs::read_to_string(dir.join(format!("{kind}.collapsed"))).unwrap();
        for frames in frames {
            assert!(has(&stacks, frames), "{kind}: no stack with {frames:?} in\n{stacks}");
        }
        let graph = std::fs::read_to_string(dir.join(format!("{kind}.svg"))).unwrap();
        assert!(graph.starts_with("<?xml") && graph.contains("search") && graph.contains("unzoom"), "no flame graph");
        let written = std::fs::read_to_string(dir.join(format!("{kind}.md"))).unwrap();
        assert!(table.contains(&written), "what is printed is what is kept");
    }
    let again = busy.cluster.root().join("again");
    text(&busy.profile("lock", 1, &again, &["--diff", dir.to_str().unwrap()]), 0);
    let graph = std::fs::read_to_string(again.join("lock.diff.svg")).unwrap();
    assert!(graph.contains("compared") && graph.contains("commit"), "no differential flame graph");
}

#[test]
fn what_waits_for_room_among_those_in_flight_is_shown() {
    let busy = Busy::with(&[("KVORUM_COORDINATOR_REQUESTS_MAX", "4")], "max");
    let dir = busy.cluster.root().join("profiles");
    text(&busy.profile("lock", 2, &dir, &[]), 0);
    let stacks = std::fs::read_to_string(dir.join("lock.collapsed")).unwrap();
    assert!(has(&stacks, &["shard-", ";queue room "]), "{stacks}");
}

#[test]
fn a_profile_of_allocations_adds_up_to_what_the_node_counts() {
    let busy = Busy::start();
    let response = busy.client().get("/debug/profile/alloc?seconds=10");
    let note = response.header("kvorum-profile-note").unwrap();
    let counted = note.split_once(", of ").and_then(|(_, rest)| rest.split_once(" bytes counted")).unwrap().0;
    let allocated: f64 = counted.parse().unwrap();
    let sampled: f64 =
        response.text().lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    // A few hundred samples.
    assert!((0.5..1.5).contains(&(sampled / allocated)), "{sampled} sampled, {allocated} counted");
}

#[test]
fn a_second_profile_is_refused_until_whoever_wanted_the_first_has_gone() {
    let busy = Busy::start();
    let dir = busy.cluster.root().join("profiles");
    let mut first = kvorum();
    first.args(["profile", "--url", &format!("http://{}", busy.admin), "--kind", "alloc", "--seconds", "120", "--out"]);
    let mut first = first.arg(&dir).stderr(Stdio::null()).spawn().unwrap();
    busy.wait_begun();
    let refused = text(&busy.profile("cpu", 1, &dir, &[]), 4);
    assert!(refused.contains("another profile is being taken"), "{refused}");
    // As Ctrl-C would, which does nothing where a shell has started the tests in the background.
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(!first.wait().unwrap().success());
    wait_until("the node has given it up", || busy.is_free());
    assert!(!dir.join("alloc.collapsed").exists(), "nothing was written of it");
}

#[test]
fn a_node_that_is_told_to_stop_gives_up_its_profile() {
    let mut busy = Busy::start();
    let mut client = busy.client();
    client.write(b"GET /debug/profile/lock?seconds=120 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    busy.wait_begun();
    assert!(busy.cluster.terminate(0).success());
    assert_eq!(client.receive("GET").unwrap().status, 503);
}

#[test]
fn a_client_that_says_nothing_more_is_gone_and_told_nothing() {
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let cluster = Cluster::with(1, &[("KVORUM_ADMIN_LISTEN", &admin.to_string())]);
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.write_all(b"GET /debug/profile/lock?seconds=120 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(std::io::read_to_string(stream).unwrap(), "");
    drop(cluster);
}

#[test]
fn what_is_too_long_too_often_or_unknown_is_refused() {
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let cluster = Cluster::with(1, &[("KVORUM_ADMIN_LISTEN", &admin.to_string())]);
    for (target, status) in [
        ("/debug/profile/cpu?seconds=121", 400),
        ("/debug/profile/cpu?seconds=1&frequency=1000", 400),
        ("/debug/profile/heap", 404),
        ("/v0/entity?id=a", 404),
    ] {
        assert_eq!(Client::new(admin).get(target).status, status, "{target}");
    }
    assert_eq!(Client::new(admin).send("POST", "/debug/profile/cpu", &[], None).unwrap().status, 405);
    let url = format!("http://{admin}");
    for bad in [["--seconds", "121"], ["--frequency", "1000"], ["--kind", "heap"], ["--diff", "/nowhere"]] {
        let kind = if bad[0] == "--kind" { "--seconds=1" } else { "--kind=lock" };
        let output = kvorum().args(["profile", "--url", &url, "--out", "/tmp", kind]).args(bad).output().unwrap();
        text(&output, 2);
    }
    drop(cluster);
}

#[test]
fn the_listener_is_closed_unless_configured_and_open_to_this_machine_only() {
    let cluster = Cluster::start(1);
    let out = cluster.root().join("profiles");
    let profile = |url: &str| {
        let output = kvorum().args(["profile", "--url", url, "--kind", "cpu", "--out"]).arg(&out).output().unwrap();
        text(&output, 4)
    };
    assert!(profile(&format!("http://127.0.0.1:{}", free_port())).contains("admin.listen"));
    assert!(profile(&cluster.node(0).url()).contains("is that the node's admin listener?"));
    let inodes = listening_sockets(cluster.pid(0).as_raw_nonzero().get());
    assert_eq!(inodes, 1, "one for clients and peers, and no other");
    for (elsewhere, says) in [("0.0.0.0:9080", "only this machine"), ("10.0.0.1:9080", "only this machine")] {
        let output = Cluster::prepare(1, &[("KVORUM_ADMIN_LISTEN", elsewhere)]).serve(0).output().unwrap();
        let said = text(&output, 2);
        assert!(said.contains("admin.listen") && said.contains(says), "{said}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Cluster::prepare(1, &[("KVORUM_ADMIN_LISTEN", &address)]).serve(0).output().unwrap();
    let said = text(&output, 2);
    assert!(said.contains("admin.listen") && said.contains("in use"), "{said}");
}

/// How many sockets of the process listen.
fn listening_sockets(pid: i32) -> usize {
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default());
    let listening = |inode: &str| {
        let lines = tables.iter().flat_map(|table| table.lines());
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .any(|fields| fields.get(3) == Some(&"0A") && fields.get(9) == Some(&inode))
    };
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let sockets = links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()));
    sockets.filter(|inode| listening(inode)).count()
}

#[test]
fn a_full_disk_is_told_and_loses_neither_the_table_nor_an_earlier_profile() {
    let busy = Busy::start();
    let dir = busy.cluster.root().join("small");
    let Some(disk) = SmallDisk::mount(&dir, 1) else { return };
    let old = ["collapsed", "md", "svg", "diff.svg"].map(|ending| dir.join(format!("lock.{ending}")));
    old.iter().for_each(|path| std::fs::write(path, "old").unwrap());
    disk.fill();
    let output = busy.profile("lock", 1, &dir, &[]);
    let said = text(&output, 2);
    assert!(said.contains("lock.collapsed") && said.contains("No space left"), "{said}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("could not be unwound") && printed.contains("| self % |"), "{said}");
    assert!(old.iter().all(|path| std::fs::read_to_string(path).unwrap() == "old"), "an old file is gone");
    assert!(std::fs::read_dir(&dir).unwrap().count() == 1 + old.len(), "half of a file is left");
}

#[test]
fn a_profile_without_samples_leaves_no_graph_of_an_earlier_one() {
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let cluster = Cluster::with(1, &[("KVORUM_ADMIN_LISTEN", &admin.to_string())]);
    let dir = cluster.root().join("profiles");
    std::fs::create_dir(&dir).unwrap();
    for old in ["lock.svg", "lock.diff.svg", "cpu.svg"] {
        std::fs::write(dir.join(old), "old").unwrap();
    }
    let url = format!("http://{admin}");
    let args = ["profile", "--url", &url, "--kind", "lock", "--seconds", "1", "--out"];
    text(&kvorum().args(args).arg(&dir).output().unwrap(), 0);
    // An idle node waits for nothing, or nearly.
    let is_empty = std::fs::read_to_string(dir.join("lock.collapsed")).unwrap().is_empty();
    let graph = std::fs::read_to_string(dir.join("lock.svg")).ok();
    assert!(graph.map_or(is_empty, |graph| !is_empty && graph != "old"), "the old graph");
    assert!(!dir.join("lock.diff.svg").exists() && dir.join("cpu.svg").exists());
}

#[test]
fn a_run_tells_the_bytes_that_its_requests_allocate() {
    let cluster = Cluster::start(1);
    let out = cluster.root().join("run");
    let mut run = kvorum();
    run.args(["bench", "run", "--url", &cluster.node(0).url(), "--workload", "put", "--rate", "1000"]);
    run.args(["--duration", "2s", "--warmup", "0ms", "--keys", "1000", "--value-size", "1000", "--out"]);
    let printed = text(&run.arg(&out).output().unwrap(), 0);
    let run: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let bytes = run["nodes"][0]["allocated_bytes_per_request"].as_f64();
    // The value itself at least, and not a hundred times that.
    assert!(bytes.is_some_and(|bytes| (1_000.0..100_000.0).contains(&bytes)), "{bytes:?} in {printed}");
}

#[test]
fn dev_opens_an_admin_listener_for_each_node() {
    let dir = tempfile::tempdir().unwrap();
    let (base, admin) = (free_port(), free_port());
    let mut dev = kvorum();
    dev.args(["dev", "--nodes", "1", "--base-port", &base.to_string(), "--admin-base-port", &admin.to_string()]);
    let mut dev = dev.arg("--data-dir").arg(dir.path()).stdout(Stdio::null()).spawn().unwrap();
    let response = wait_for("the admin listener answers", || {
        let mut client = Client::new(SocketAddr::from(([127, 0, 0, 1], admin)));
        client.send("GET", "/debug/profile/lock?seconds=1", &[], None).ok()
    });
    assert_eq!(response.status, 200);
    rustix::process::kill_process(rustix::process::Pid::from_child(&dev), Signal::TERM).unwrap();
    assert!(dev.wait().unwrap().success());
}
