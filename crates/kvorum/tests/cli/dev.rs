//! `kvorum dev`: a cluster of real processes that live exactly as long as it does.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{kvorum, run};

/// For nodes to drain or to be killed.
const SOON: Duration = Duration::from_secs(20);

struct Dev {
    child: Child,
    base_port: u16,
    /// The lines that it prints to paste.
    curls: Vec<String>,
}

impl Dev {
    /// Starts three nodes and waits until they are ready.
    fn start(base_port: u16, data_dir: &Path) -> Self {
        let mut command = kvorum(&["dev", "--base-port", &base_port.to_string(), "--data-dir"]);
        let mut child = command.arg(data_dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut curls = Vec::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        for line in lines.by_ref().take_while(|line| !line.starts_with("Ctrl-C")) {
            if line.trim_start().starts_with("curl ") {
                curls.push(line);
            }
        }
        assert_eq!(curls.len(), 2, "it did not become ready: {:?}", child.try_wait());
        Self { child, base_port, curls }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit code (none if a signal killed it) and its output, once its nodes are gone too.
    fn end(self) -> (Option<i32>, String) {
        let output = self.child.wait_with_output().unwrap();
        wait_for(|| ports(self.base_port).all(is_free));
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

fn ports(base_port: u16) -> impl Iterator<Item = u16> {
    base_port..base_port + 3
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

fn wait_for(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Three free ports in a row, other ones for every test of this process.
fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 100).unwrap() * 10;
    let mut bases = std::iter::repeat_with(|| 30_500 + (own + NEXT.fetch_add(3, Ordering::Relaxed)) % 2_000);
    bases.find(|base| ports(*base).all(is_free)).unwrap()
}

#[test]
fn what_it_tells_to_paste_works_and_after_ctrl_c_the_data_is_still_there() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    let base_port = dev.base_port;
    let paste = |line: &String| {
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let answers: Vec<String> = dev.curls.iter().map(paste).collect();
    assert!(answers.first().unwrap().starts_with("HTTP/1.1 201"), "{answers:?}");
    assert!(answers.last().unwrap().ends_with("\r\n\r\nhello"), "{answers:?}");
    dev.signal(Signal::INT);
    assert_eq!(dev.end().0, Some(0));

    let dev = Dev::start(base_port, dir.path());
    let ended = run(&mut kvorum(&["get", "greeting", "--url", &format!("http://127.0.0.1:{base_port}")]));
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "hello"));
    dev.signal(Signal::TERM);
    assert_eq!(dev.end().0, Some(0));
}

#[test]
fn its_nodes_end_even_if_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    dev.signal(Signal::KILL);
    assert_eq!(dev.end().0, None);
}

#[test]
fn a_node_that_dies_is_named_and_the_others_are_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    let pid = dev.child.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let victim = children.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(victim).unwrap(), Signal::KILL).unwrap();
    let url = format!("http://127.0.0.1:{}", dev.base_port);
    let (code, said) = dev.end();
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("node {url} ended unexpectedly (signal: 9")), "{said}");
}

#[test]
fn a_port_in_use_is_named_before_anything_is_started() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let ended = run(kvorum(&["dev", "--nodes", "1", "--base-port", &port.to_string(), "--data-dir"]).arg(dir.path()));
    assert_eq!(ended.code, 2);
    assert!(
        ended.stderr.contains(&format!("port {port} of")) && ended.stderr.contains("--base-port"),
        "{}",
        ended.stderr
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn admin_ports_that_nodes_have_are_named_before_anything_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_ports();
    let [base, admin] = [port, port + 1].map(|port| port.to_string());
    let ended = run(kvorum(&["dev", "--base-port", &base, "--admin-base-port", &admin, "--data-dir"]).arg(dir.path()));
    assert_eq!(ended.code, 2);
    let said = ended.stderr;
    assert!(said.contains(&format!("port {admin} of")) && said.contains("another --admin-base-port"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn another_cluster_over_the_same_data_is_told_which_flags_made_it_one() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    dev.signal(Signal::INT);
    assert_eq!(dev.end().0, Some(0));
    let port = free_ports().to_string();
    let ended = run(kvorum(&["dev", "--base-port", &port, "--data-dir"]).arg(dir.path()));
    assert_eq!(ended.code, 2);
    let said = ended.stderr;
    assert!(said.contains("did not start") && said.contains("another --data-dir"), "{said}");
}
