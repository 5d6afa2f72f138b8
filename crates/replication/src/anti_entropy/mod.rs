//! Anti-entropy: rounds in which all nodes compare what they hold, give each other what is missing, and prove up
//! to where they agree. The rules are [`kvorum_core::repair`]'s; this carries them out.
//!
//! [`AntiEntropy`] is a node's part: the one round that it takes part in, and what it shows of rounds. [`member`]
//! answers the questions of a driver, [`driver`] is one. Nothing here runs on a request's way: scans go page by
//! page through the scan pool, at `repair.rate`, and yield to reads that wait for the disk.
//!
//! Bounds: one round at a time, the greatest; trees of at most [`RepairSettings::tree_bytes_max`]; one page of a
//! list per node at the driver; copies under way, and their bytes as those of large values.

mod copies;
pub mod driver;
pub mod member;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use kvorum_base::log_limit::LogLimit;
use kvorum_base::sync::{Mutex, MutexGuard};
use kvorum_core::repair::RoundId;
use kvorum_core::repair::trees::{LeafSet, Trees};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Questions that are answered at a time: a driver has a handful under way, and a node takes part in one round.
const QUESTIONS_MAX: usize = 64;

/// The settings.
#[derive(Clone, Copy, Debug)]
pub struct RepairSettings {
    /// From the end of one automatic round to the begin of the next.
    pub interval: Duration,
    /// Bytes that this node reads, or copies as a driver, in a second.
    pub rate: u64,
    /// Bytes of this node's trees: what does not fit is listed in every round.
    pub tree_bytes_max: usize,
    /// How far W lies behind the clock: the fence refuses a write that takes longer to arrive.
    pub lag: Duration,
    /// How long an answer may still be counted after it was given.
    pub retention: Duration,
}

/// A node's part in rounds, over all its shards.
pub struct AntiEntropy {
    settings: RepairSettings,
    state: Mutex<RepairState>,
    /// A round is to begin.
    wake: Notify,
    /// Ends the round that this node drives.
    stop: Notify,
    /// Questions of drivers that are being answered.
    questions: AtomicUsize,
    /// Rounds that were given up, which may be every second.
    given_up: LogLimit,
    /// Damaged records, of which a store may be full.
    damaged: LogLimit,
    /// What is counted.
    pub metrics: RepairMetrics,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct RepairMetrics {
    /// Bytes of records scanned.
    pub scanned_bytes: AtomicU64,
    /// Damaged records found by scans.
    pub damaged: AtomicU64,
    /// Records given to nodes that lacked them, by this node as a driver.
    pub copied: AtomicU64,
    /// Their bytes.
    pub copied_bytes: AtomicU64,
    /// Rounds driven by this node to their end.
    pub rounds: AtomicU64,
    /// Of these, those that all nodes took part in.
    pub whole_rounds: AtomicU64,
}

/// Rounds that are shown after their end.
const ROUNDS_KEPT: usize = 20;

#[derive(Default)]
struct RepairState {
    part: Option<Part>,
    /// The greatest round received, also once it is over.
    newest: Option<RoundId>,
    /// When a frame of a round last came, by the boot clock.
    heard_at: Duration,
    /// The number of the last round that was asked for here.
    wanted: u64,
    /// Rounds driven here to their end.
    driven: u64,
    /// Since when this node is known to rebuild.
    rebuilding: Option<Rebuilding>,
    /// The round that this node drives.
    driving: Option<RoundProgress>,
    /// The last rounds driven here to their end, newest first.
    rounds: VecDeque<Summary>,
    /// Why the last scan of this node's store ended before its end.
    unscannable: Option<String>,
}

/// A moment, by both clocks.
#[derive(Clone, Copy)]
struct Rebuilding {
    boot: Duration,
    wall_ms: u64,
}

/// The round that this node takes part in.
struct Part {
    round: RoundId,
    pass: ScanPass,
    sums: Sums,
    selection: Option<Arc<[LeafSet]>>,
}

/// How far the node's own scan is: for the sums, then for the list.
#[derive(Clone, Copy)]
struct ScanPass {
    scanned: u64,
    /// What there is to scan: first the store's estimate, then what the first scan has found; zero where that is
    /// unknown.
    records: u64,
}

enum Sums {
    Making,
    Made(Arc<Trees>),
    Failed,
}

/// What a round does, in this order.
const PHASES: [&str; 5] = ["begin", "sum up", "compare", "copy", "end"];

/// How far a round is that this node drives.
#[derive(Clone, Copy, Debug)]
pub struct RoundProgress {
    round: RoundId,
    phase: &'static str,
    listed: u64,
    copied: u64,
}

/// How a round ended that this node drove.
#[derive(Clone, Debug)]
pub struct Summary {
    round: RoundId,
    took: Duration,
    /// Nodes that did not take part to the end, by their URLs.
    missing: Vec<String>,
    differing: u64,
    copied: u64,
    unsettled: usize,
    proven: usize,
    /// By an operator, before its end.
    is_stopped: bool,
}

impl Summary {
    /// Whether all nodes took part and nothing is left to differ.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.unsettled == 0 && !self.is_stopped
    }
}

/// A question that is being answered.
pub struct Admitted(Arc<AntiEntropy>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.questions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AntiEntropy {
    /// No round yet. `now` is by the boot clock.
    #[must_use]
    pub fn new(settings: RepairSettings, now: Duration) -> Self {
        let state = RepairState { heard_at: now, ..RepairState::default() };
        Self {
            settings,
            state: Mutex::new(state),
            wake: Notify::new(),
            stop: Notify::new(),
            questions: AtomicUsize::new(0),
            given_up: LogLimit::default(),
            damaged: LogLimit::default(),
            metrics: RepairMetrics::default(),
        }
    }

    /// How far rounds lie behind the clocks.
    #[must_use]
    pub fn lag(&self) -> Duration {
        self.settings.lag
    }

    /// Room for one more question of a driver, until this is dropped; nothing if too many are being answered.
    pub fn admit(self: &Arc<Self>) -> Option<Admitted> {
        let before = self.questions.fetch_add(1, Ordering::Relaxed);
        Some(Admitted(self.clone())).filter(|_| before < QUESTIONS_MAX)
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, RepairState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks this node to drive a round, begun after now. Its number.
    pub fn want(&self) -> u64 {
        let mut state = self.state();
        // The one under way has begun before.
        let next = state.driven + 1 + u64::from(state.driving.is_some());
        state.wanted = state.wanted.max(next);
        drop(state);
        self.wake.notify_one();
        next
    }

    /// Stops the round that this node drives: its name, if it drives one. What was copied stays, and nothing is proven.
    pub fn stop_round(&self) -> Option<String> {
        let driving = self.state().driving?;
        // Not kept for a round that begins later.
        self.stop.notify_waiters();
        Some(name(driving.round))
    }

    /// How far the round is that this node drives, if it drives one.
    #[must_use]
    pub fn show_driving(&self) -> Value {
        self.state().show_driving()
    }

    /// Why this node's store cannot be scanned, so that every round does without it; nothing if it can, or if no
    /// round has tried since the start.
    #[must_use]
    pub fn unscannable(&self) -> Option<String> {
        self.state().unscannable.clone()
    }

    /// What this node shows of rounds.
    #[must_use]
    pub fn show(&self) -> Value {
        let state = self.state();
        let driving = state.show_driving();
        let rounds: Vec<Value> = state.rounds.iter().map(show_round).collect();
        json!({
            "wanted": state.wanted,
            "driven": state.driven,
            "driving": driving,
            "last": rounds.first(),
            "rounds": rounds,
        })
    }
}

fn show_round(round: &Summary) -> Value {
    json!({
        "round": name(round.round),
        "clean": round.is_clean(),
        "stopped": round.is_stopped,
        "seconds": round.took.as_secs_f64(),
        "missing": round.missing,
        "differing": round.differing,
        "copied": round.copied,
        "partitions_unsettled": round.unsettled,
        "partitions_proven": round.proven,
    })
}

impl RepairState {
    /// The oldest makes room.
    fn keep_round(&mut self, round: Summary) {
        self.rounds.truncate(ROUNDS_KEPT - 1);
        self.rounds.push_front(round);
    }

    fn show_driving(&self) -> Value {
        let Some(progress) = self.driving else { return Value::Null };
        let step = PHASES.iter().position(|phase| *phase == progress.phase).map_or(0, |index| index + 1);
        let pass = self.part.as_ref().filter(|part| part.round == progress.round).map(|part| part.pass);
        let is_scan = matches!(progress.phase, "sum up" | "copy");
        let share = pass.filter(|pass| is_scan && pass.records > 0).map(|pass| {
            #[expect(clippy::cast_precision_loss, reason = "a share, for people")]
            let share = pass.scanned as f64 / pass.records as f64;
            share.min(1.0)
        });
        json!({
            "round": name(progress.round),
            "phase": progress.phase,
            "step": step,
            "steps": PHASES.len(),
            "share": share,
            "listed": progress.listed,
            "copied": progress.copied,
        })
    }
}

fn name(round: RoundId) -> String {
    format!("{:016x}", round.until.raw())
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}
