//! What a run costs the nodes: processor time, memory, what else the system counts, and the debt of their stores.
//!
//! A node on this machine is read from `/proc` of the processes that listen on its port, whatever server it is. Any
//! other is asked for `/metrics`, in the names that Prometheus' clients agree on. The nodes are the targets and,
//! where a target answers `/v0/cluster`, the rest of its cluster.

mod calls;
mod debt;
mod debt_row;
mod metrics;
mod proc;
mod rows;
mod sample;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::calls::Calls;
pub(crate) use self::debt::all_bounded;
pub use self::debt_row::{Debt, DebtRow};
pub(crate) use self::rows::slow_commits;
use self::sample::Sample;
pub use self::sample::{NodeRow, NodeSecond, Source};
pub(crate) use self::sample::{SLOW_COMMIT_SECONDS, Series};
use crate::Error;
use crate::client::Client;
use crate::target::Target;

/// For any page of a node.
const PAGE_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two samples.
const PERIOD: Duration = Duration::from_secs(1);
/// How soon an interrupt is noticed.
const POLL: Duration = Duration::from_millis(50);

/// A node that is watched.
#[derive(Debug)]
struct WatchedNode {
    target: Target,
    processes: Vec<proc::ProcDir>,
    client: Client,
}

/// All nodes that are watched.
#[derive(Debug)]
pub(crate) struct WatchedNodes(Vec<WatchedNode>);

impl WatchedNodes {
    /// Finds the nodes behind these targets, each once. Asks each target for its cluster, at most a second each, and
    /// the system's resolver for names.
    pub(crate) fn find(targets: &[Target]) -> Self {
        let of_cluster = |target: &Target| metrics::cluster(&mut Client::new(target.clone(), PAGE_TIMEOUT));
        let mut all: Vec<(Target, Vec<SocketAddr>)> = Vec::new();
        for target in targets.iter().cloned().chain(targets.iter().flat_map(of_cluster)) {
            // One name of a node may be another one's address. What has no address is distinguished by its name.
            let addresses = target.addresses().unwrap_or_default();
            let is_same = |(one, known): &(Target, Vec<SocketAddr>)| {
                *one == target || known.iter().any(|address| addresses.contains(address))
            };
            if !all.iter().any(is_same) {
                all.push((target, addresses));
            }
        }
        Self(all.into_iter().map(|(target, _)| WatchedNode::new(target)).collect())
    }

    /// Samples every node at `begin` and then every second, and once more at `end`; each by a thread of its own, so
    /// that one which is silent costs the others nothing. Blocks until then, or `stop`.
    pub(crate) fn watch(self, begin: Instant, end: Instant, stop: &AtomicBool) -> Vec<Series> {
        thread::scope(|scope| {
            let watch = |node: WatchedNode| scope.spawn(move || node.watch(begin, end, stop));
            let watchers: Vec<_> = self.0.into_iter().map(watch).collect();
            watchers.into_iter().map(|watcher| watcher.join().expect("a watcher does not panic")).collect()
        })
    }
}

impl WatchedNode {
    fn new(target: Target) -> Self {
        let processes =
            if is_here(&target) { proc::listening_on(&target.addresses().unwrap_or_default()) } else { Vec::new() };
        Self { client: Client::new(target.clone(), PAGE_TIMEOUT), processes, target }
    }

    fn watch(mut self, begin: Instant, end: Instant, stop: &AtomicBool) -> Series {
        let mut series = Series {
            url: self.target.to_string(),
            source: Source::None,
            time: end - begin,
            samples: Vec::new(),
            calls_per_second: None,
        };
        wait_until(begin.checked_sub(PERIOD).unwrap_or(begin), stop);
        let mut calls = Calls::until(begin, &self.processes);
        let mut next = begin;
        loop {
            wait_until(next, stop);
            // Before anything is measured: while some are counted, every call on the machine takes longer.
            if let Some(calls) = calls.take() {
                series.calls_per_second = calls.per_second();
            }
            let (source, sample) = self.sample();
            if let Some(sample) = sample {
                series.source = source;
                series.samples.push((begin.elapsed(), sample));
            }
            if next >= end || stop.load(Ordering::Relaxed) {
                series.time = series.time.min(begin.elapsed());
                return series;
            }
            // A sample that took long is followed by the next one that is due.
            while next <= Instant::now() {
                next += PERIOD;
            }
            next = next.min(end);
        }
    }

    fn sample(&mut self) -> (Source, Option<Sample>) {
        let here = proc::sum(&self.processes);
        let told = metrics::sample(&mut self.client);
        match here {
            Some(here) => {
                let Sample { cpu_seconds, resident_bytes, switches, disk_read_bytes, .. } = here;
                let told = told.unwrap_or_default();
                (Source::Proc, Some(Sample { cpu_seconds, resident_bytes, switches, disk_read_bytes, ..told }))
            }
            None => (Source::Metrics, told),
        }
    }
}

impl WatchedNodes {
    /// Waits until no store has more debt than is usual, `most` at most, or until `stop`. A node that shows no debt is
    /// not waited for.
    pub(crate) fn settle(mut self, most: Duration, stop: &AtomicBool) {
        let deadline = Instant::now() + most;
        while !stop.load(Ordering::Relaxed) && Instant::now() < deadline {
            let mut debts = self.0.iter_mut().filter_map(|node| node.sample().1).map(|sample| sample.debt);
            if debts.all(|debt| debt.is_usual()) {
                return;
            }
            wait_until((Instant::now() + PERIOD).min(deadline), stop);
        }
    }
}

fn wait_until(time: Instant, stop: &AtomicBool) {
    while Instant::now() < time && !stop.load(Ordering::Relaxed) {
        thread::sleep(time.saturating_duration_since(Instant::now()).min(POLL));
    }
}

/// What a node's `/metrics` has under each of these names, over all labels. Blocks for a second at most.
///
/// # Errors
/// [`Error::Unreachable`] if it has no such page, or one without one of them.
pub fn figures<const N: usize>(target: &Target, names: [&str; N]) -> Result<[f64; N], Error> {
    let page = Client::new(target.clone(), PAGE_TIMEOUT).get("/metrics")?;
    let sums = metrics::sums(&String::from_utf8_lossy(&page.body), &names);
    let mut all = [0.0; N];
    for ((figure, sum), name) in all.iter_mut().zip(sums).zip(names) {
        let cause = || io::Error::other(format!("its /metrics has no {name}"));
        *figure = sum.ok_or_else(|| Error::Unreachable { target: target.to_string(), cause: cause() })?;
    }
    Ok(all)
}

/// Whether the target's address is one of this machine's.
fn is_here(target: &Target) -> bool {
    let connected = target.addresses().ok().into_iter().flatten();
    let streams = connected.filter_map(|address| TcpStream::connect_timeout(&address, PAGE_TIMEOUT).ok());
    streams.take(1).any(|stream| match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) => local.ip() == peer.ip(),
        _ => false,
    })
}
