//! Nodes in network namespaces of their own, joined by a bridge in another one, and what can be done to their links.
//!
//! No namespace, device or rule has a name or an effect outside: they exist while this process or a node has them
//! open, and a node ends with the test. Whatever happens to the test, nothing is left.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub struct Network {
    /// Where the bridge is, and the clients.
    hub: File,
    nodes: Vec<File>,
}

impl Network {
    /// Builds the network for `n` nodes.
    ///
    /// # Errors
    /// Why it cannot be had: this needs root, and `unshare`, `nsenter`, `ip`, `tc` and `iptables`.
    pub fn build(n: usize) -> Result<Self, String> {
        let network = Self { hub: namespace()?, nodes: (0..n).map(|_| namespace()).collect::<Result<_, _>>()? };
        run_in(&network.hub, "ip link set lo up")?;
        run_in(&network.hub, "ip link add bridge type bridge")?;
        run_in(&network.hub, "ip addr add 10.77.0.254/24 dev bridge")?;
        run_in(&network.hub, "ip link set bridge up")?;
        for (index, node) in network.nodes.iter().enumerate() {
            let ip = network.address(index).ip();
            let pair = format!("ip link add node-{index} type veth peer name eth0 netns {}", path(node));
            run_in(&network.hub, &pair)?;
            run_in(&network.hub, &format!("ip link set node-{index} master bridge up"))?;
            run_in(node, "ip link set lo up")?;
            run_in(node, &format!("ip addr add {ip}/24 dev eth0"))?;
            run_in(node, "ip link set eth0 up")?;
        }
        // Whether all that is needed later works.
        network.lose(0, 1)?;
        network.slow(0, 1_000)?;
        network.heal();
        Ok(network)
    }

    pub fn address(&self, index: usize) -> SocketAddr {
        SocketAddr::from(([10, 77, 0, u8::try_from(index + 1).expect("a few nodes")], 8080))
    }

    /// What goes before the command that starts node `index`; it becomes the node. A node that is stopped when the
    /// thread that started it ends goes, too.
    pub fn prefix(&self, index: usize) -> Vec<String> {
        let enter = ["nsenter".to_owned(), format!("--net={}", path(&self.nodes[index]))];
        enter.into_iter().chain(["setpriv", "--pdeathsig", "KILL"].map(str::to_owned)).collect()
    }

    /// Runs `work`, and every thread and process that it starts, where all nodes can be reached.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let done = std::thread::scope(|scope| {
            let inside = || {
                move_into_link_name_space(self.hub.as_fd(), Some(LinkNameSpaceType::Network)).expect("it is ours");
                work()
            };
            scope.spawn(inside).join()
        });
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Node `index` receives nothing more from another.
    pub fn deafen(&self, index: usize, to: usize) {
        let from = self.address(to).ip();
        run_in(&self.nodes[index], &format!("iptables -w 5 -A INPUT -s {from} -j DROP")).expect("it worked before");
    }

    /// Node `index` loses so many packets of a hundred that reach it.
    pub fn lose(&self, index: usize, percent: u64) -> Result<(), String> {
        let rule = format!(
            "iptables -w 5 -A INPUT -m statistic --mode random --probability {} -j DROP",
            percent as f64 / 100.0
        );
        run_in(&self.nodes[index], &rule)
    }

    /// Node `index` sends so many kilobits in a second, and queues 400 ms of them.
    pub fn slow(&self, index: usize, kilobits: u64) -> Result<(), String> {
        let rule = format!("tc qdisc replace dev eth0 root tbf rate {kilobits}kbit burst 8kb latency 400ms");
        run_in(&self.nodes[index], &rule)
    }

    /// Undoes everything that was done to the links.
    pub fn heal(&self) {
        for node in &self.nodes {
            run_in(node, "iptables -w 5 -F INPUT").expect("it worked before");
            let _was_not_slow = run_in(node, "tc qdisc del dev eth0 root");
        }
    }
}

/// A new network namespace, which exists while the file is open.
fn namespace() -> Result<File, String> {
    let mut command = Command::new("unshare");
    // It prints when it is there, and goes when it has been opened.
    command
        .args(["--net", "sh", "-c", "echo; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("unshare: {error}"))?;
    let is_there = child.stdout.as_mut().is_some_and(|out| out.read_exact(&mut [0]).is_ok());
    let file = File::open(format!("/proc/{}/ns/net", child.id()));
    let output = child.wait_with_output().map_err(|error| format!("unshare: {error}"))?;
    match file {
        Ok(file) if is_there => Ok(file),
        _ => Err(format!("unshare --net: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// How another process can open it.
fn path(namespace: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd())
}

fn run_in(namespace: &File, command: &str) -> Result<(), String> {
    let mut enter = Command::new("nsenter");
    enter.arg(format!("--net={}", path(namespace))).args(command.split(' '));
    let output = enter.output().map_err(|error| format!("nsenter: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{command}: {}", said.trim()))
}
