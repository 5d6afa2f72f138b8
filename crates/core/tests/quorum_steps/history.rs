//! One random history: coordinators that know an epoch each, replicas that know another, and a network that delays,
//! reorders and loses frames. What coordinators do is in `coordinator.rs`, what the steps need in `driver.rs`.

use std::ops::AddAssign;

use kvorum_core::Record;
use kvorum_core::quorum::replica::Origin;
use kvorum_core::quorum::write::Attempt;
use kvorum_core::quorum::{Failure, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::version::{Hlc, Version};

use crate::chance::Chance;
use crate::coordinator::{OperationKind, StepOperation};
use crate::driver::SourcePass;
use crate::layouts::{KeyLayout, NODES};
use crate::monitor::Monitor;
use crate::replica::MovingReplica;
use crate::without::Without;

/// What a history is like. Chances are in a thousand, per frame or per moment.
#[derive(Clone, Debug)]
pub struct StepSettings {
    pub clients: usize,
    pub operations_max: usize,
    pub steps_max: usize,
    /// Of an operation; retention is as long.
    pub deadline: u64,
    pub operations: u64,
    pub writes: u64,
    pub deletes: u64,
    pub layouts: u64,
    /// Whether steps go on in their order, besides by accident.
    pub steps_are_driven: bool,
    pub drops: u64,
    pub restarts: u64,
    /// Whether coordinators adopt the clocks that answers carry.
    pub clocks_are_heard: bool,
}

impl StepSettings {
    fn draw(chance: &mut Chance) -> Self {
        Self {
            clients: 2 + chance.index(2),
            operations_max: 5 + chance.index(8),
            steps_max: 1 + chance.index(4),
            deadline: chance.pick(&[30, 80, 200]),
            operations: chance.pick(&[8, 20, 60]),
            writes: chance.pick(&[350, 500, 700]),
            deletes: chance.pick(&[0, 0, 200]),
            layouts: chance.pick(&[60, 200, 400]),
            steps_are_driven: chance.happens(700),
            drops: chance.pick(&[0, 0, 30, 120]),
            restarts: chance.pick(&[0, 0, 2, 10]),
            clocks_are_heard: chance.happens(400),
        }
    }
}

/// What happened, to see that a suite of histories was not idle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    pub answered: u64,
    /// While the key moved, as far as the coordinator knew.
    pub answered_in_steps: u64,
    /// In an epoch that was not the newest any more.
    pub answered_behind: u64,
    pub unanswered: u64,
    /// Of those without an answer: a replica had refused their epoch.
    pub refused_for_their_epoch: u64,
    pub timestamp_retries: u64,
    pub overwritten: u64,
    pub write_backs: u64,
    pub restarts: u64,
    pub passes: u64,
    pub flips: u64,
    pub aborts: u64,
}

impl Happened {
    pub fn each(&self) -> [u64; 12] {
        [
            self.answered,
            self.answered_in_steps,
            self.answered_behind,
            self.unanswered,
            self.refused_for_their_epoch,
            self.timestamp_retries,
            self.overwritten,
            self.write_backs,
            self.restarts,
            self.passes,
            self.flips,
            self.aborts,
        ]
    }
}

impl AddAssign for Happened {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.answered_in_steps += other.answered_in_steps;
        self.answered_behind += other.answered_behind;
        self.unanswered += other.unanswered;
        self.refused_for_their_epoch += other.refused_for_their_epoch;
        self.timestamp_retries += other.timestamp_retries;
        self.overwritten += other.overwritten;
        self.write_backs += other.write_backs;
        self.restarts += other.restarts;
        self.passes += other.passes;
        self.flips += other.flips;
        self.aborts += other.aborts;
    }
}

#[derive(Clone, Debug)]
pub struct StepFrame {
    pub node: usize,
    /// The operation, or the pass.
    pub of: usize,
    pub body: FrameBody,
}

#[derive(Clone, Debug)]
pub enum FrameBody {
    // To a replica. Without an attempt a store is a write-back.
    Tick,
    Store { attempt: Option<Attempt>, record: Record },
    Read { wanted: Wanted },
    // To a coordinator.
    Ticked { reading: Option<Hlc> },
    Stored { attempt: Option<Attempt>, version: Version, answer: StoreAnswer, hlc: Hlc },
    Held { answer: ReadAnswer<Record>, hlc: Hlc },
    // Of a pass: to a replica, and to the driver.
    List,
    Listed { record: Option<Record> },
    Give { newest: Option<Record> },
    Given,
}

/// Everything in one history.
pub struct StepHistory {
    pub without: Without,
    pub chance: Chance,
    pub settings: StepSettings,
    /// Moments since the history began.
    pub now: u64,
    /// The layouts by their epochs.
    pub chain: Vec<KeyLayout>,
    pub nodes: Vec<MovingReplica>,
    pub passes: Vec<SourcePass>,
    /// The epoch that each coordinator knows, and its clock.
    pub epochs: Vec<usize>,
    pub clocks: Vec<Hlc>,
    pub pool: Vec<StepFrame>,
    /// By number; `None` once they have ended.
    pub operations: Vec<Option<StepOperation>>,
    /// The epoch that each operation began in, and that its frames carry.
    pub pinned: Vec<usize>,
    pub monitor: Monitor,
    pub unknown_writes: usize,
    pub happened: Happened,
    log: Option<Vec<String>>,
}

/// How a history ended.
pub struct StepEnded {
    pub linearizable: bool,
    /// Whether, with the faults over, a step ended and a read got its answer.
    pub live: bool,
    pub happened: Happened,
    pub log: Vec<String>,
}

/// Coordinators of a history.
const COORDINATORS: usize = 3;
/// Writes without an answer at most: each doubles what the monitor has to keep, and more.
const UNKNOWN_WRITES_MAX: usize = 5;

/// Plays the history of this seed.
pub fn play(seed: u64, without: Without, log: bool) -> StepEnded {
    let mut chance = Chance::new(seed);
    let settings = StepSettings::draw(&mut chance);
    let copies = chance.pick(&[1, 2, 3, 3, 3, 3, 4]);
    let skew = chance.pick(&[1, 2, 6]);
    let mut history = StepHistory {
        without,
        now: 0,
        chain: vec![KeyLayout::stable((1 << copies) - 1)],
        nodes: (0..NODES).map(MovingReplica::new).collect(),
        passes: vec![],
        epochs: vec![0; COORDINATORS],
        clocks: (0..COORDINATORS).map(|_| Hlc::from_raw(1 + chance.below(skew))).collect(),
        pool: vec![],
        operations: vec![],
        pinned: vec![],
        monitor: Monitor::new(),
        unknown_writes: 0,
        happened: Happened::default(),
        log: log.then(|| vec![format!("{copies} copies, {settings:?}")]),
        settings,
        chance,
    };
    history.storm();
    let live = !history.monitor.is_linearizable() || history.heal();
    StepEnded {
        linearizable: history.monitor.is_linearizable(),
        live,
        happened: history.happened,
        log: history.log.unwrap_or_default(),
    }
}

impl StepHistory {
    fn storm(&mut self) {
        while self.now < 1200 && self.monitor.is_linearizable() {
            self.now += 1;
            self.watch_timers();
            if self.chance.happens(self.settings.restarts) {
                self.restart();
            }
            let is_over = self.operations.len() >= self.settings.operations_max;
            let free: Vec<usize> = (0..self.settings.clients).filter(|client| self.is_free(*client)).collect();
            if !is_over && !free.is_empty() && self.chance.happens(self.settings.operations) {
                let client = self.chance.pick(&free);
                self.invoke(client);
            } else if self.chance.happens(self.settings.layouts) {
                self.change_layouts(true);
            } else if !self.pool.is_empty() {
                self.deliver_one();
            } else if is_over && free.len() == self.settings.clients {
                return;
            }
        }
    }

    fn invoke(&mut self, client: usize) {
        let coordinator = self.chance.index(COORDINATORS);
        if self.chance.happens(self.settings.writes) && self.unknown_writes < UNKNOWN_WRITES_MAX {
            let deletes = self.chance.happens(self.settings.deletes);
            self.begin_write(client, coordinator, deletes);
        } else {
            self.begin_read(client, coordinator);
        }
    }

    fn is_free(&self, client: usize) -> bool {
        self.operations.iter().flatten().all(|operation| operation.client != client)
    }

    fn watch_timers(&mut self) {
        for number in 0..self.operations.len() {
            let Some(operation) = self.operations[number].as_mut() else { continue };
            if self.now - operation.started > self.settings.deadline {
                self.end_unanswered(number);
            } else if let OperationKind::Read { hedge_at, .. } = &mut operation.kind
                && hedge_at.is_some_and(|at| at <= self.now)
            {
                *hedge_at = None;
                self.hedge(number);
            }
        }
    }

    /// Connections end with it: what their coordinators sent to store, or was answered to that, is lost.
    fn restart(&mut self) {
        let node = self.chance.index(NODES);
        self.nodes[node].restart(self.without);
        let of_writes = |body: &FrameBody| {
            matches!(body, FrameBody::Store { attempt: Some(_), .. } | FrameBody::Stored { attempt: Some(_), .. })
        };
        self.pool.retain(|frame| frame.node != node || !of_writes(&frame.body));
        self.happened.restarts += 1;
        self.note(|| format!("restart of {node}"));
    }

    pub fn send(&mut self, of: usize, node: usize, body: FrameBody) {
        self.pool.push(StepFrame { node, of, body });
    }

    fn deliver_one(&mut self) {
        let at = self.chance.index(self.pool.len());
        let frame = self.pool.swap_remove(at);
        if !self.chance.happens(self.settings.drops) {
            self.deliver(frame);
        }
    }

    fn deliver(&mut self, frame: StepFrame) {
        let StepFrame { node, of, body } = frame;
        match body {
            FrameBody::Tick | FrameBody::Store { .. } | FrameBody::Read { .. } => self.serve(node, of, body),
            FrameBody::Ticked { reading } => self.on_ticked(of, node, reading),
            FrameBody::Stored { attempt, version, answer, hlc } => {
                self.hear(of, hlc);
                match attempt {
                    Some(attempt) => self.on_stored(of, node, attempt, answer),
                    None => self.on_written_back(of, node, version, answer, hlc),
                }
            }
            FrameBody::Held { answer, hlc } => {
                self.hear(of, hlc);
                self.on_held(of, node, answer, hlc);
            }
            FrameBody::List | FrameBody::Listed { .. } | FrameBody::Give { .. } | FrameBody::Given => {
                self.pass_on(node, of, body);
            }
        }
    }

    /// A replica serves a frame of an operation.
    fn serve(&mut self, node: usize, of: usize, body: FrameBody) {
        let epoch = self.pinned[of];
        let replica = &mut self.nodes[node];
        let is_admitted = replica.admits(epoch, self.without);
        let is_counted = is_admitted && !replica.abstains(&self.chain);
        // These rules have no failures of their own yet. Here these two mean nothing else.
        let failure = if is_admitted { Failure::Rebuilding } else { Failure::NotServing };
        let answer = match body {
            FrameBody::Tick => FrameBody::Ticked { reading: is_admitted.then(|| replica.clock()) },
            FrameBody::Store { attempt, record } => {
                let origin = if attempt.is_some() { Origin::Client } else { Origin::Repair };
                let answer = is_admitted.then(|| replica.store(&record, origin, self.now, self.settings.deadline));
                let answer = answer.filter(|_| is_counted).unwrap_or(StoreAnswer::Failed(failure));
                FrameBody::Stored { attempt, version: record.version(), answer, hlc: replica.clock() }
            }
            FrameBody::Read { wanted } => {
                let answer = if is_counted { replica.look(wanted) } else { ReadAnswer::Failed(failure) };
                FrameBody::Held { answer, hlc: replica.clock() }
            }
            _ => unreachable!("no frame of an operation"),
        };
        self.note(|| format!("#{of} at {node}, epoch {epoch}: {answer:?}"));
        self.send(of, node, answer);
    }

    /// The faults are over, and every coordinator knows the newest layout. Two reads begin while late frames are under
    /// way. Once the step has flipped, one must be answered.
    fn heal(&mut self) -> bool {
        (0..self.operations.len()).for_each(|number| self.end_unanswered(number));
        (self.settings.drops, self.settings.restarts) = (0, 0);
        self.note(|| "healed".into());
        for _ in 0..2 {
            self.read_to_the_end();
        }
        let mut moments = 0;
        while !self.pool.is_empty() || self.chain.last().unwrap().next.is_some() {
            moments += 1;
            if moments > 20_000 {
                return false;
            }
            if self.pool.is_empty() { self.change_layouts(false) } else { self.deliver_one() }
        }
        self.read_to_the_end()
    }

    fn read_to_the_end(&mut self) -> bool {
        self.epochs.fill(self.chain.len() - 1);
        let (number, before) = (self.operations.len(), self.happened.answered);
        let coordinator = self.chance.index(COORDINATORS);
        self.begin_read(0, coordinator);
        while self.operations[number].is_some() && !self.pool.is_empty() {
            self.now += 1;
            self.deliver_one();
        }
        self.end_unanswered(number);
        self.happened.answered > before
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = self.log.as_mut() {
            log.push(format!("{:>5} {}", self.now, line()));
        }
    }
}
