//! What a search has found.

use serde::{Deserialize, Serialize};

use super::probe::Probe;
use super::scalability::Scalability;
use crate::nodes::DebtRow;
use crate::report::{Percentiles, WindowRow};

/// A run at a share of the knee.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShareOfKnee {
    /// Requests a second.
    pub rate: u64,
    /// At that rate.
    pub latency_ms: Percentiles,
    /// What it missed of the objective, if it did.
    #[serde(default)]
    pub missed: Option<String>,
}

/// The whole of `knee.json`. Scripts rely on its names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Knee {
    /// As on the command line.
    pub workload: String,
    /// URLs.
    pub targets: Vec<String>,
    /// As on the command line.
    pub objective: String,
    /// The highest rate that was sustained; none if there is none, or it was not found before an interrupt.
    pub knee_rate: Option<u64>,
    /// At the knee: the better confirmation.
    pub latency_ms: Option<Percentiles>,
    /// Whether debt was bounded in the confirmation, and, where a sustained knee was searched for, whether it is this
    /// one; none if the run was too short, or no node showed it.
    #[serde(default)]
    pub sustained: Option<bool>,
    /// At half of it.
    pub half: Option<ShareOfKnee>,
    /// What is sustained for long, if that was searched for.
    #[serde(default)]
    pub sustained_knee: Option<SustainedKnee>,
    /// Every probe, in order.
    pub probes: Vec<Probe>,
    /// Throughput of closed loops, and what bends it.
    pub scalability: Option<Scalability>,
    /// Why the generator, and not the target, ended the search; none if it did not.
    pub generator_limit: Option<String>,
    /// What to do about errors that were not the target's fault; none if there were none such.
    #[serde(default)]
    pub hint: Option<String>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Interrupted or failed without a knee, it was not written in the place of one that has one.
    #[serde(skip)]
    pub earlier_stays: bool,
}

/// What was found in `--sustained`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SustainedKnee {
    /// How long it had to hold.
    pub seconds: f64,
    /// Requests a second; none if there is none, or it was not found before an interrupt.
    pub rate: Option<u64>,
    /// At that rate, in the confirmation, as all that follows.
    pub latency_ms: Option<Percentiles>,
    /// Windows of 10 s.
    pub windows: Vec<WindowRow>,
    /// Whether debt was bounded; none if no node showed it, or not for long enough.
    pub debt_bounded: Option<bool>,
    /// Of each node that showed it.
    pub debt: Vec<NodeDebt>,
    /// Every probe and confirmation, in order.
    pub probes: Vec<Probe>,
}

/// One node's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeDebt {
    /// Its URL.
    pub url: String,
    /// Over the confirmation.
    #[serde(flatten)]
    pub debt: DebtRow,
}
