//! A `kvorum dev` with three nodes on ports of its own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Ended, kvorum, run};

/// For nodes to drain or to be killed.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Dev {
    pub(crate) child: Child,
    pub(crate) base_port: u16,
    pub(crate) data_dir: PathBuf,
    /// The lines that it prints to paste.
    pub(crate) curls: Vec<String>,
    /// The others with a command.
    pub(crate) tour: Vec<String>,
}

impl Dev {
    /// Starts three nodes and waits until they are ready.
    pub(crate) fn start(base_port: u16, data_dir: &Path) -> Self {
        let mut command = kvorum(&["dev", "--base-port", &base_port.to_string(), "--data-dir"]);
        // Tests need not wait long for what a node that is away would say.
        command.env("KVORUM_COORDINATOR_DEADLINE", "1s");
        let mut child = command.arg(data_dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut curls, mut tour) = (Vec::new(), Vec::new());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        for line in lines.by_ref().take_while(|line| !line.starts_with("Ctrl-C")) {
            if line.trim_start().starts_with("curl ") {
                curls.push(line);
            } else if line.starts_with("  ") && line.contains("kvorum ") {
                tour.push(line);
            }
        }
        assert_eq!(curls.len(), 2, "it did not become ready: {:?}", child.try_wait());
        Self { child, base_port, data_dir: data_dir.to_owned(), curls, tour }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// From 1 on.
    pub(crate) fn url(&self, number: u16) -> String {
        format!("http://127.0.0.1:{}", self.base_port + number - 1)
    }

    /// Gives an order from another process.
    pub(crate) fn order(&self, order: &str) -> Ended {
        let mut command = kvorum(&["dev"]);
        run(command.args(order.split(' ')).arg("--data-dir").arg(&self.data_dir))
    }

    /// Gives one that must be carried out; the nodes after it.
    pub(crate) fn nodes(&self, order: &str) -> Vec<Value> {
        let ended = self.order(&format!("{order} -o json"));
        assert_eq!(ended.code, 0, "{order}: {}", ended.stderr);
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
        answer["nodes"].as_array().unwrap().clone()
    }

    /// What a client command says of this node.
    pub(crate) fn ask(&self, number: u16, command: &str) -> Ended {
        run(kvorum(&[]).args(command.split(' ')).args(["--url", &self.url(number)]))
    }

    /// Its exit code (none if a signal killed it) and its output, once its nodes are gone too. Those that stay fail the
    /// test, and are killed.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + SOON;
        let nodes = || ports(self.base_port).filter_map(node_pid).collect::<Vec<_>>();
        let (mut code, mut left) = (None, nodes());
        while (code.is_none() || !left.is_empty()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            code = self.child.try_wait().unwrap().map(|status| status.code());
            left = nodes();
        }
        if !left.is_empty() {
            let _ = self.child.kill();
            for node in &left {
                let _ = kill_process(*node, Signal::KILL);
            }
            panic!("still there: {left:?}");
        }
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (code.expect("it has ended"), said)
    }
}

pub(crate) fn ports(base_port: u16) -> impl Iterator<Item = u16> {
    base_port..base_port + 3
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

pub(crate) fn wait_for(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Three free ports in a row, other ones for every test of this process.
pub(crate) fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 100).unwrap() * 10;
    let mut bases = std::iter::repeat_with(|| 30_500 + (own + NEXT.fetch_add(3, Ordering::Relaxed)) % 2_000);
    bases.find(|base| ports(*base).all(is_free)).unwrap()
}

/// The process of the node with this port.
pub(crate) fn node_pid(port: u16) -> Option<Pid> {
    let listens = |process: &std::fs::DirEntry| {
        let line = std::fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        line.contains(&format!("\0--listen\0127.0.0.1:{port}\0"))
    };
    let mut processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let process = processes.find(listens)?;
    Pid::from_raw(process.file_name().to_str()?.parse().ok()?)
}
