//! The nodes of a scenario: processes of this binary, on free ports, with data of their own.
//!
//! All of them end when [`ScenarioNodes`] is dropped, whatever happened before; and each watches a pipe on its stdin,
//! so that it ends even if this process is killed.

use std::fs::{File, create_dir_all, read_to_string, remove_dir, remove_dir_all};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kvorum_config::node_url;
use kvorum_load::client::Client;
use kvorum_load::scenario::Cluster;
use kvorum_load::target::Target;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::limits::{Hierarchy, MemoryGroup};
use crate::bench::lines::warn;
use crate::dev::nodes::{node_command, shares};

/// For all nodes to answer a read that needs every one of them.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// For nodes whose data is kept to drain.
const STOP_DEADLINE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Characters of a dead node's log that are printed.
const LOG_TAIL: usize = 1_000;

/// Ports below those that the system gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// What to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    pub(super) cluster: &'a Cluster,
    /// Holds one directory per node; made for it, and removed with it.
    pub(super) root: &'a Path,
    /// Whether the data stays.
    pub(super) keep: bool,
    pub(super) memory_limit: Option<(&'a Hierarchy, u64)>,
    pub(super) stop: &'a AtomicBool,
}

/// A cluster that runs.
#[derive(Debug)]
pub(super) struct ScenarioNodes {
    root: PathBuf,
    keep: bool,
    nodes: Vec<ScenarioNode>,
    /// Of the first node: where it is profiled.
    admin_url: String,
}

#[derive(Debug)]
struct ScenarioNode {
    target: Target,
    /// Holds the pipe that the node watches.
    child: Child,
    log: PathBuf,
    /// Dropped after the process has ended.
    limit: Option<MemoryGroup>,
}

impl ScenarioNodes {
    /// Starts them, and waits until all of them answer.
    pub(super) fn start(order: &Order<'_>) -> Result<Self> {
        let count = usize::from(order.cluster.nodes);
        let mut ports = free_ports(count + 1)?;
        let admin_port = ports.pop().expect("one more than the nodes");
        let addresses: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let list = addresses.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>().join(",");
        create_dir_all(order.root).with_context(|| order.root.display().to_string())?;
        let mut all = Self {
            root: order.root.to_owned(),
            keep: order.keep,
            nodes: Vec::with_capacity(count),
            admin_url: format!("http://127.0.0.1:{admin_port}"),
        };
        for (number, address) in (1..).zip(&addresses) {
            let admin = (number == 1).then(|| format!("127.0.0.1:{admin_port}"));
            all.nodes.push(spawn(order, number, address, &list, admin)?);
        }
        all.wait_whole(order.stop)?;
        Ok(all)
    }

    /// All of them; the first is the coordinator.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.nodes.iter().map(|node| &node.target)
    }

    pub(super) fn admin_url(&self) -> &str {
        &self.admin_url
    }

    /// Their processes, for [`has_ended`].
    pub(super) fn processes(&self) -> impl Iterator<Item = Pid> {
        self.nodes.iter().map(|node| Pid::from_child(&node.child))
    }

    /// How a node ended that should run; none if all of them do.
    pub(super) fn death(&mut self) -> Option<String> {
        let ended = |node: &mut ScenarioNode| {
            let status = node.child.try_wait().ok().flatten()?;
            let log = read_to_string(&node.log).unwrap_or_default();
            let from = log.char_indices().rev().nth(LOG_TAIL).map_or(0, |(at, _)| at);
            let tail = log.get(from..).unwrap_or_default().trim();
            Some(format!("node {} ended ({status}); its log ends: {tail}", node.target))
        };
        self.nodes.iter_mut().find_map(ended)
    }

    /// Waits until every node answers a read that needs all of them.
    fn wait_whole(&mut self, stop: &AtomicBool) -> Result<()> {
        let count = self.nodes.len();
        let path = format!("/v0/entity?id=whole&ack={count}&from={count}");
        let deadline = Instant::now() + START_DEADLINE;
        for target in self.targets().cloned().collect::<Vec<_>>() {
            let mut client = Client::new(target.clone(), PAGE_TIMEOUT);
            while !client.get(&path).is_ok_and(|page| page.status == 404) {
                if let Some(death) = self.death() {
                    bail!(death);
                }
                if Instant::now() > deadline || stop.load(Ordering::Relaxed) {
                    bail!("{target} does not answer for all nodes");
                }
                sleep(POLL);
            }
        }
        Ok(())
    }

    fn ask_to_end(&mut self) {
        for node in &mut self.nodes {
            // One that has been waited for is not signalled: its number may be another's by now.
            if matches!(node.child.try_wait(), Ok(None)) {
                let _ = kill_process(Pid::from_child(&node.child), Signal::TERM);
            }
        }
        let deadline = Instant::now() + STOP_DEADLINE;
        while self.nodes.iter_mut().any(|node| matches!(node.child.try_wait(), Ok(None))) && Instant::now() < deadline {
            sleep(POLL);
        }
    }
}

/// Whether a process of ours has ended, without waiting for it: its owner still can.
pub(super) fn has_ended(process: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(process), options), Ok(None))
}

impl ScenarioNode {
    fn enter_limit(&self) -> Result<(), String> {
        self.limit.as_ref().map_or(Ok(()), |limit| limit.add(self.child.id()))
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ScenarioNodes {
    fn drop(&mut self) {
        if self.keep {
            self.ask_to_end();
        }
        self.nodes.iter_mut().for_each(ScenarioNode::end);
        if self.keep {
            warn(format_args!("data kept in {}", self.root.display()));
            return;
        }
        if let Err(error) = remove_dir_all(&self.root) {
            warn(format_args!("{} is left behind: {error}", self.root.display()));
        }
        // Those above it that were made for it, once the last one is gone.
        let _ = self.root.ancestors().skip(1).take(2).try_for_each(remove_dir);
    }
}

fn spawn(order: &Order<'_>, number: u8, address: &str, list: &str, admin: Option<String>) -> Result<ScenarioNode> {
    let data_dir = order.root.join(format!("node-{number}"));
    create_dir_all(&data_dir).with_context(|| data_dir.display().to_string())?;
    let log = order.root.join(format!("node-{number}.log"));
    let url = format!("http://{address}");
    let mut command = node_command(&node_url(&url).map_err(anyhow::Error::msg)?, list, &data_dir)?;
    // Nothing that the user has set for other nodes.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KVORUM_")) {
        command.env_remove(name);
    }
    command.envs(shares(order.cluster.nodes.into()));
    command.envs(order.cluster.settings.iter().copied());
    command.envs(admin.map(|admin| ("KVORUM_ADMIN_LISTEN", admin)));
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    command.stdout(Stdio::null()).stderr(file);
    let name = || format!("kvorum-bench-{}-{}", std::process::id(), address.replace(':', "-"));
    let limit = order.memory_limit.map(|(hierarchy, bytes)| hierarchy.group(&name(), bytes)).transpose();
    let limit = limit.map_err(anyhow::Error::msg)?;
    let target = url.parse().map_err(anyhow::Error::msg)?;
    let child = command.spawn().context("a node's process")?;
    let mut node = ScenarioNode { target, child, log, limit };
    // It has hardly begun: what it holds by now does not count.
    if let Err(why) = node.enter_limit() {
        node.end();
        bail!(why);
    }
    Ok(node)
}

/// Free now; each is given out once.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let size = PORTS.end - PORTS.start;
    // Elsewhere in every process: several may run at the same time.
    let own = u16::try_from(std::process::id() % 500).expect("below 500") * 40;
    let candidates = (0..size).map(|_| PORTS.start + own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % size);
    let free: Vec<u16> =
        candidates.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(count).collect();
    if free.len() < count {
        bail!("fewer than {count} ports are free on 127.0.0.1");
    }
    Ok(free)
}
