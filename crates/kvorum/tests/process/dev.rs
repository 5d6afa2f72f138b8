//! `kvorum dev`: a local cluster of real processes in the foreground.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::cluster::{free_port, output_file};
use crate::support::{Client, entity, kvorum, wait_for, wait_until};

/// The command, stopped with the test.
struct Dev {
    child: Child,
    base: u16,
}

impl Dev {
    fn start(root: &Path, base: u16) -> Self {
        let mut command = kvorum();
        command.args(["dev", "--nodes", "3", "--base-port", &base.to_string(), "--data-dir"]).arg(root.join("data"));
        command.env("KVORUM_MEMORY_BYTES", "64MiB").stdin(Stdio::null());
        command.stdout(output_file(&root.join("out"))).stderr(output_file(&root.join("err")));
        let mut dev = Self { child: command.spawn().unwrap(), base };
        for index in 0..3 {
            wait_for("every node is ready", || {
                assert!(dev.child.try_wait().unwrap().is_none(), "it ended by itself");
                dev.client(index).send("GET", "/readyz", &[], None).ok().filter(|response| response.status == 200)
            });
        }
        dev
    }

    fn client(&self, index: u16) -> Client {
        Client::new(SocketAddr::from(([127, 0, 0, 1], self.base + index)))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Whether any node still holds its port.
    fn is_gone(&self) -> bool {
        (0..3).all(|index| TcpListener::bind(("127.0.0.1", self.base + index)).is_ok())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Not SIGKILL at first: the nodes are its children, not ours.
        if self.child.try_wait().unwrap().is_none() {
            self.signal(Signal::TERM);
        }
        let _ended = self.child.wait();
    }
}

/// Three free ports in a row.
fn free_base() -> u16 {
    loop {
        let base = free_port();
        if (1..3).all(|index| TcpListener::bind(("127.0.0.1", base + index)).is_ok()) {
            return base;
        }
    }
}

#[test]
fn a_local_cluster_says_how_to_use_it_stops_cleanly_and_keeps_its_data() {
    let root = tempfile::tempdir().unwrap();
    let base = free_base();
    for (round, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let mut dev = Dev::start(root.path(), base);
        let text = wait_for("it says how to use it", || {
            let read = |name: &str| std::fs::read_to_string(root.path().join(name)).unwrap();
            Some(read("out") + &read("err")).filter(|text| text.contains("curl "))
        });
        for index in 0..3 {
            assert!(text.contains(&format!("http://127.0.0.1:{}", base + index)), "{text}");
        }
        if round == 1 {
            assert_eq!(dev.client(1).value(&entity("k")), b"kept");
        }
        wait_until("a quorum answers", || {
            dev.client(0).send("PUT", &entity("k"), &[], Some(b"kept")).is_ok_and(|response| response.status == 201)
        });
        dev.signal(signal);
        let status = wait_for("it ends", || dev.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
        assert!(dev.is_gone());
    }
}

#[test]
fn nodes_do_not_outlive_a_cluster_that_is_killed() {
    let root = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(root.path(), free_base());
    dev.child.kill().unwrap();
    dev.child.wait().unwrap();
    wait_until("the nodes notice and stop", || dev.is_gone());
}
