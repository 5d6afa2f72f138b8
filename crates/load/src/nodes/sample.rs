//! What a node is asked for, and what it has shown over a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::debt_row::{Debt, DebtRow};

/// A commit that takes longer than this is slow: of the writes of its second, those that wait for it are the p99.
pub(crate) const SLOW_COMMIT_SECONDS: f64 = 0.016;

/// Counts of a process, or of several that serve one port, since they began. What is not known is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    /// Turns given up because there was nothing to do.
    pub(super) switches: Option<u64>,
    pub(super) allocated_bytes: Option<u64>,
    /// From the disk, not from the system's cache.
    pub(super) disk_read_bytes: Option<u64>,
    /// Blocks that the store's engine asked the system for.
    pub(super) block_reads: Option<u64>,
    /// Reads that it asked one replica more for.
    pub(super) hedges: Option<u64>,
    /// Batches that it wrote, into its log and memtable, each with one sync at most.
    pub(super) commits: Option<u64>,
    /// What they took together.
    pub(super) commit_seconds: Option<f64>,
    /// Of them those that were not slow.
    pub(super) quick_commits: Option<u64>,
    /// What its store has yet to do.
    pub(super) debt: Debt,
    /// For how long the engine held writes back.
    pub(super) stall_seconds: Option<f64>,
    pub(super) flushed_bytes: Option<u64>,
    pub(super) compacted_bytes: Option<u64>,
    /// Bytes that the engine was given.
    pub(super) written_bytes: Option<u64>,
}

/// Where a node's samples come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// `/proc` of its processes on this machine.
    Proc,
    /// Its `/metrics`.
    Metrics,
    /// Nowhere: it shows none.
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
    /// The node's URL.
    pub url: String,
    /// Where this is from.
    pub source: Source,
    /// Processor time, in µs, user and system.
    pub cpu_us_per_request: Option<f64>,
    /// Bytes that it allocated, if its metrics show that.
    pub allocated_bytes_per_request: Option<f64>,
    /// System calls, where the kernel counts them (root, or tracefs and `CAP_PERFMON`): those of the last second of the
    /// warm-up, since to count them makes every call on the machine longer; none without a warm-up.
    pub syscalls_per_request: Option<f64>,
    /// Times that a thread went to sleep.
    pub sleeps_per_request: Option<f64>,
    /// What was read from a disk, by `/proc/PID/io`: what came from the system's cache is not in it.
    pub disk_read_bytes_per_request: Option<f64>,
    /// Blocks that came into the store's own cache, if its metrics show that: fetched, or of tables written meanwhile.
    pub block_reads_per_request: Option<f64>,
    /// Reads that asked a replica more than they need, if its metrics show that.
    pub hedges_per_request: Option<f64>,
    /// Commits: batches of writes that share what a sync of the log costs, if its metrics show that.
    #[serde(default)]
    pub commits_per_request: Option<f64>,
    /// What one took, in ms: the mean.
    #[serde(default)]
    pub commit_ms: Option<f64>,
    /// The most.
    pub resident_bytes_max: u64,
    /// What its store had yet to do, if its metrics show that.
    #[serde(default)]
    pub debt: Option<DebtRow>,
    /// Second by second.
    pub seconds: Vec<NodeSecond>,
}

/// A node's samples, each with its time since the begin.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(super) url: String,
    pub(super) source: Source,
    /// Of the run.
    pub(super) time: Duration,
    pub(super) samples: Vec<(Duration, Sample)>,
    pub(super) calls_per_second: Option<f64>,
}
