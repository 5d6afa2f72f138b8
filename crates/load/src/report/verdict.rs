//! What a soak came to.

use serde::{Deserialize, Serialize};

use super::percentiles::Percentiles;
use crate::nodes::NodeSecond;

/// What a soak came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Soak {
    /// As on the command line.
    pub objective: String,
    /// The successes a second that are asked for under overload; none where everything must succeed.
    pub goodput: Option<u64>,
    /// Whether nothing of the verdict is a no.
    pub passed: bool,
    /// What it consists of.
    pub verdict: Vec<Clause>,
    /// How many seconds there were.
    pub seconds: u64,
    /// Those that were over the objective, and what happened then.
    pub slow_seconds: Vec<SlowSecond>,
}

/// A part of the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clause {
    /// What is asked for.
    pub asked: String,
    /// What came of it.
    pub found: String,
    /// Whether that is enough; none if it is not known.
    pub passed: Option<bool>,
}

/// A second that was over the objective.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlowSecond {
    /// When it began, since the measured time did.
    pub at_s: u64,
    /// Successes.
    pub requests: u64,
    /// Latencies of the successes.
    pub latency_ms: Percentiles,
    /// Part of the processors' time that the machine's host gave to others; none if the system does not show it.
    pub stolen_share: Option<f64>,
    /// What each node did that showed it.
    pub nodes: Vec<SlowNode>,
}

/// A node in such a second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlowNode {
    /// The node's URL.
    pub url: String,
    /// All that is known of it.
    #[serde(flatten)]
    pub second: NodeSecond,
}
