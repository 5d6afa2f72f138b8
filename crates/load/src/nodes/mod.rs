//! What a run costs the nodes: processor time, memory, what else the system counts, and the debt of their stores.
//!
//! A node on this machine is read from `/proc` of the processes that listen on its port, whatever server it is. Any
//! other is asked for `/metrics`, in the names that Prometheus' clients agree on. The nodes are the targets and,
//! where a target answers `/v0/cluster`, the rest of its cluster.

mod calls;
mod debt;
mod metrics;
mod proc;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use self::calls::Calls;
pub(crate) use self::debt::all_bounded;
pub use self::debt::{Debt, DebtRow};
use crate::Error;
use crate::client::Client;
use crate::numbers::{float, index};
use crate::target::Target;

/// For any page of a node.
const PAGE_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two samples.
const PERIOD: Duration = Duration::from_secs(1);
/// Of the time of a run between its first and last sample, at least: all requests are counted, not those between them.
const SAMPLED_SHARE: f64 = 0.9;
/// A commit that takes longer than this is slow: of the writes of its second, those that wait for it are the p99.
pub(crate) const SLOW_COMMIT_SECONDS: f64 = 0.016;
/// How soon an interrupt is noticed.
const POLL: Duration = Duration::from_millis(50);

/// Counts of a process, or of several that serve one port, since they began. What nobody told is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sample {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<u64>,
    /// Turns given up because there was nothing to do.
    switches: Option<u64>,
    allocated_bytes: Option<u64>,
    /// From the disk, not from the system's cache.
    disk_read_bytes: Option<u64>,
    /// Blocks that the store's engine asked the system for.
    block_reads: Option<u64>,
    /// Reads that it asked one replica more for.
    hedges: Option<u64>,
    /// Batches that it wrote, into its log and memtable, each with one sync at most.
    commits: Option<u64>,
    /// What they took together.
    commit_seconds: Option<f64>,
    /// Of them those that were not slow.
    quick_commits: Option<u64>,
    /// What its store has yet to do.
    debt: Debt,
    /// For how long the engine held writes back.
    stall_seconds: Option<f64>,
    flushed_bytes: Option<u64>,
    compacted_bytes: Option<u64>,
    /// Bytes that the engine was given.
    written_bytes: Option<u64>,
}

/// Where a node's samples come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// `/proc` of its processes on this machine.
    Proc,
    /// Its `/metrics`.
    Metrics,
    /// Nowhere: it tells nothing.
    None,
}

/// One node's second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NodeSecond {
    /// Since the measured time began.
    pub at_s: f64,
    /// Processors in use since the sample before, 1 for all of one.
    pub cpu: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// What its store had yet to do then.
    #[serde(flatten)]
    pub debt: Debt,
    /// Seconds of it for which the engine held writes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_seconds: Option<f64>,
    /// Commits in it that took longer than 16 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_commits: Option<u64>,
    /// Bytes that flushes and compactions have written since the begin, for each byte that the engine was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_amplification: Option<f64>,
}

/// One node over a run. Per request means: of all requests of the run, whichever node they went to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its URL.
    pub url: String,
    /// Where this is from.
    pub source: Source,
    /// Processor time, in µs, user and system.
    pub cpu_us_per_request: Option<f64>,
    /// Bytes that it allocated, if its metrics tell.
    pub allocated_bytes_per_request: Option<f64>,
    /// System calls, where the kernel tells (root, or tracefs and `CAP_PERFMON`): those of the last second of the warm-up,
    /// since to count them makes every call on the machine longer; none without a warm-up.
    pub syscalls_per_request: Option<f64>,
    /// Times that a thread went to sleep.
    pub sleeps_per_request: Option<f64>,
    /// What `/proc/PID/io` says was read from a disk: what came from the system's cache is not in it.
    pub disk_read_bytes_per_request: Option<f64>,
    /// Blocks that came into the store's own cache, if its metrics tell: fetched, or of tables written meanwhile.
    pub block_reads_per_request: Option<f64>,
    /// Reads that asked a replica more than they need, if its metrics tell.
    pub hedges_per_request: Option<f64>,
    /// Commits: batches of writes that share what a sync of the log costs, if its metrics tell.
    #[serde(default)]
    pub commits_per_request: Option<f64>,
    /// What one took, in ms: the mean.
    #[serde(default)]
    pub commit_ms: Option<f64>,
    /// The most.
    pub resident_bytes_max: u64,
    /// What its store had yet to do, if its metrics tell.
    #[serde(default)]
    pub debt: Option<DebtRow>,
    /// Second by second.
    pub seconds: Vec<NodeSecond>,
}

/// A node that is watched.
#[derive(Debug)]
struct Node {
    target: Target,
    processes: Vec<proc::Process>,
    client: Client,
}

/// All nodes that are watched.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<Node>);

/// A node's samples, each with its time since the begin.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    url: String,
    source: Source,
    /// Of the run.
    time: Duration,
    samples: Vec<(Duration, Sample)>,
    calls_per_second: Option<f64>,
}

impl Nodes {
    /// Finds the nodes behind these targets, each once. Asks each target for its cluster, at most a second each, and
    /// the system's resolver for names.
    pub(crate) fn find(targets: &[Target]) -> Self {
        let of_cluster = |target: &Target| metrics::cluster(&mut Client::new(target.clone(), PAGE_TIMEOUT));
        let mut all: Vec<(Target, Vec<SocketAddr>)> = Vec::new();
        for target in targets.iter().cloned().chain(targets.iter().flat_map(of_cluster)) {
            // One name of a node may be another one's address. What has no address is told apart by its name.
            let addresses = target.addresses().unwrap_or_default();
            let is_same = |(one, known): &(Target, Vec<SocketAddr>)| {
                *one == target || known.iter().any(|address| addresses.contains(address))
            };
            if !all.iter().any(is_same) {
                all.push((target, addresses));
            }
        }
        Self(all.into_iter().map(|(target, _)| Node::new(target)).collect())
    }

    /// Samples every node at `begin` and then every second, and once more at `end`; each by a thread of its own, so that
    /// one which is silent costs the others nothing. Blocks until then, or `stop`.
    pub(crate) fn watch(self, begin: Instant, end: Instant, stop: &AtomicBool) -> Vec<Series> {
        thread::scope(|scope| {
            let watch = |node: Node| scope.spawn(move || node.watch(begin, end, stop));
            let watchers: Vec<_> = self.0.into_iter().map(watch).collect();
            watchers.into_iter().map(|watcher| watcher.join().expect("a watcher does not panic")).collect()
        })
    }
}

impl Node {
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

fn wait_until(time: Instant, stop: &AtomicBool) {
    while Instant::now() < time && !stop.load(Ordering::Relaxed) {
        thread::sleep(time.saturating_duration_since(Instant::now()).min(POLL));
    }
}

/// What a node's `/metrics` says under each of these names, over all labels. Blocks for a second at most.
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

impl Series {
    /// What it comes to, for so many requests.
    pub(crate) fn row(&self, requests: u64) -> NodeRow {
        let per_request = |count| self.spent(count).filter(|_| requests > 0).map(|spent| spent / float(requests));
        let commits = self.spent(|sample| sample.commits.map(float)).filter(|commits| *commits > 0.0);
        let commit_seconds = self.spent(|sample| sample.commit_seconds);
        NodeRow {
            url: self.url.clone(),
            source: self.source,
            cpu_us_per_request: per_request(|sample| sample.cpu_seconds.map(|seconds| seconds * 1e6)),
            allocated_bytes_per_request: per_request(|sample| sample.allocated_bytes.map(float)),
            syscalls_per_request: self
                .calls_per_second
                .filter(|_| requests > 0)
                .map(|calls| calls * self.time.as_secs_f64() / float(requests)),
            sleeps_per_request: per_request(|sample| sample.switches.map(float)),
            disk_read_bytes_per_request: per_request(|sample| sample.disk_read_bytes.map(float)),
            block_reads_per_request: per_request(|sample| sample.block_reads.map(float)),
            hedges_per_request: per_request(|sample| sample.hedges.map(float)),
            commits_per_request: per_request(|sample| sample.commits.map(float)),
            commit_ms: commit_seconds.zip(commits).map(|(seconds, commits)| seconds * 1e3 / commits),
            resident_bytes_max: self.samples.iter().filter_map(|(_, sample)| sample.resident_bytes).max().unwrap_or(0),
            debt: self.debt(),
            seconds: self.samples.windows(2).filter_map(|two| self.second(two)).collect(),
        }
    }

    /// What it counted from the first sample to the last; none if these are not of the whole run.
    fn spent(&self, count: fn(&Sample) -> Option<f64>) -> Option<f64> {
        let ((begin, first), (end, last)) = (self.samples.first()?, self.samples.last()?);
        let spent = count(last)? - count(first)?;
        // A node that was started anew counts from 0 again; of one that was silent at an end a part is missing.
        let is_whole = (*end - *begin).as_secs_f64() >= self.time.as_secs_f64() * SAMPLED_SHARE && spent >= 0.0;
        is_whole.then_some(spent)
    }

    fn second(&self, two: &[(Duration, Sample)]) -> Option<NodeSecond> {
        let [(before, old), (at, new)] = two else { return None };
        let spent = new.cpu_seconds? - old.cpu_seconds?;
        let time = at.saturating_sub(*before).as_secs_f64();
        let first = self.first_written()?;
        (spent >= 0.0 && time > 0.0).then(|| NodeSecond {
            at_s: at.as_secs_f64(),
            cpu: spent / time,
            resident_bytes: new.resident_bytes.unwrap_or(0),
            ..debt::of_second(first, old, new)
        })
    }

    /// Those of each second that it told of: what lies between two samples is of the second in which their middle lies.
    fn slow_commits(&self) -> BTreeMap<usize, u64> {
        let slow = |sample: &Sample| Some(sample.commits?.saturating_sub(sample.quick_commits?));
        let mut told = BTreeMap::new();
        for two in self.samples.windows(2) {
            let [(before, old), (at, new)] = two else { continue };
            let Some((new, old)) = slow(new).zip(slow(old)) else { continue };
            let middle = (*before + *at) / 2;
            *told.entry(index(middle.as_secs())).or_default() += new.saturating_sub(old);
        }
        told
    }
}

/// Commits of all nodes that were slow, for each of so many seconds; none where nobody tells of them, or a node that does
/// did not tell of that second.
pub(crate) fn slow_commits(nodes: &[Series], seconds: usize) -> Vec<Option<u64>> {
    let told: Vec<_> = nodes.iter().map(Series::slow_commits).filter(|told| !told.is_empty()).collect();
    let sum = |second| told.iter().map(|told| told.get(&second).copied()).sum::<Option<u64>>();
    (0..seconds).map(|second| sum(second).filter(|_| !told.is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Sample, Series, Source, slow_commits};

    /// Samples at these times, in ms, by each of which so many commits were slow.
    fn series(samples: &[(u64, Option<u64>)]) -> Series {
        let sample = |(at, slow): &(u64, Option<u64>)| {
            let sample = Sample { commits: slow.map(|slow| 100 + slow), quick_commits: Some(100), ..Sample::default() };
            (Duration::from_millis(*at), sample)
        };
        Series {
            url: String::new(),
            source: Source::Proc,
            time: Duration::from_millis(3300),
            samples: samples.iter().map(sample).collect(),
            calls_per_second: None,
        }
    }

    #[test]
    fn slow_commits_are_of_the_second_in_which_most_of_the_time_between_two_samples_lies() {
        let late = series(&[(0, Some(5)), (1000, Some(6)), (2600, Some(8)), (3000, Some(12)), (3300, Some(20))]);
        let told = |nodes: &[&Series]| slow_commits(&nodes.iter().map(|of| (*of).clone()).collect::<Vec<_>>(), 4);
        assert_eq!(told(&[&late]), [Some(1), Some(2), Some(4), Some(8)]);
        assert_eq!(told(&[&late, &late]), [Some(2), Some(4), Some(8), Some(16)]);
        let silent = series(&[(0, Some(0)), (1000, Some(0)), (2000, None), (3000, Some(0)), (3300, Some(1))]);
        assert_eq!(told(&[&late, &silent]), [Some(1), None, None, Some(9)], "it may have had some then");
        let no_kvorum = series(&[(0, None), (1000, None), (3300, None)]);
        assert_eq!(told(&[&late, &no_kvorum]), [Some(1), Some(2), Some(4), Some(8)]);
        assert_eq!(told(&[&no_kvorum]), [None; 4]);
        let restarted = series(&[(0, Some(9)), (1000, Some(0)), (2000, Some(1))]);
        assert_eq!(slow_commits(&[restarted], 2), [Some(0), Some(1)]);
    }
}
