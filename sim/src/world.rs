//! One run: a cluster, its clients, what goes wrong, and what is looked at.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvorum_core::layout::{Layout, WantedNode};
use kvorum_core::quorum::majority;
use kvorum_peer::membership::VoteState;
use kvorum_replication::shard::FanOut;
use kvorum_storage::commit::QueueLimits;
use kvorum_storage::memory::Fault;
use kvorum_storage::{HealthState, Store};

use crate::calls::Guard;
use crate::chance::SimRandom;
use crate::history::{ClientOutcome, History};
use crate::invariants::one_layout::Layouts;
use crate::invariants::{Stored, acknowledged, amnesia, converged, copies, linearizable, promised};
use crate::machine::{Crash, Environment, Machine, MachinePlan};
use crate::network::{Network, Noise};
use crate::time::MachineTime;
use crate::trace::{Trace, TraceText};

/// How long a cluster has to come up, with nothing wrong.
const START_MAX: Duration = Duration::from_secs(10);
/// How often a round is asked for then.
const ROUND_INTERVAL: Duration = Duration::from_secs(5);
/// After that anti-entropy has so long.
const CONVERGENCE_MAX: Duration = Duration::from_secs(60);
/// All nodes have connected to all others after so long without faults.
const MEETING: Duration = Duration::from_secs(6);
/// Between two looks at what is bounded.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Keys of a run: every fourth is read and written with any number of acks.
const KEYS: usize = 8;
/// How long most clients use the same key.
const KEY_TURN: Duration = Duration::from_secs(3);
/// The longest that a slow disk takes.
const DISK_MS_MAX: Duration = Duration::from_millis(250);

/// What is known of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Which.
    pub seed: u64,
    /// Of all events.
    pub trace_hash: u64,
    /// Faults made.
    pub faults: u64,
    /// Frames dropped, doubled or strayed.
    pub disturbed: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Of these, answered with success.
    pub succeeded: u64,
    /// Layouts that nodes knew.
    pub layouts: usize,
    /// What did not hold, with the history of the keys.
    pub violation: Option<String>,
}

/// Everything that a run consists of.
pub struct World {
    /// Of all that is random.
    pub seed: u64,
    /// Of all that happens.
    pub trace: Arc<Trace>,
    /// How the nodes are set up.
    pub plan: MachinePlan,
    /// The nodes.
    pub machines: Vec<Rc<Machine>>,
    /// What connects them.
    pub network: Rc<Network>,
    /// The keys.
    pub keys: Vec<KeyPlan>,
    /// What clients saw.
    pub history: RefCell<History>,
    /// Faults so far.
    pub faults: Cell<u64>,
    /// When no more are made.
    pub faults_end: Duration,
    /// What was made is undone, for good.
    pub is_healed: Cell<bool>,
    /// How long clients think.
    pub plan_think_ms: Range<u64>,
    /// The longest that a slow disk takes.
    pub disk_ms_max: Duration,
    /// What nodes knew of layouts.
    pub(crate) layouts: RefCell<Layouts>,
    stored: Arc<Mutex<Stored>>,
    pub(crate) clients: usize,
    values: Cell<u64>,
    violation: RefCell<Option<String>>,
}

/// A key as its clients use it.
#[derive(Clone, Copy, Debug)]
pub struct KeyPlan {
    /// Replicas that its writers address; and its readers, if it is checked for linearizability.
    pub from: u8,
    /// All requests are quorum requests with this `from`.
    pub is_quorum: bool,
}

impl World {
    pub(crate) fn new(seed: u64, text: TraceText, directory: &Path) -> Self {
        let mut chance = SimRandom::new(seed, 1);
        let nodes = chance.weighted(&[(3, 1), (7, 2), (50, 3), (15, 4), (25, 5)]);
        let plan = plan(&mut chance, nodes);
        let keys = keys(&mut chance, nodes);
        Self::with(seed, text, directory, chance, plan, keys)
    }

    /// The same as [`World::calm`], with clocks that may differ by much, and with a secret if it is asked for.
    pub(crate) fn guarded(seed: u64, directory: &Path, guard: Guard) -> Self {
        let mut chance = SimRandom::new(seed, 5);
        let mut plan = calm_plan(&mut chance);
        (plan.skew_max, plan.guard, plan.has_background) = (Duration::from_secs(60), guard, false);
        let nodes = plan.urls.len();
        let from = |chance: &mut SimRandom| u8::try_from(3 + chance.index(nodes - 2)).expect("few nodes");
        let keys = (0..KEYS).map(|_| KeyPlan { from: from(&mut chance), is_quorum: true }).collect();
        Self::with(seed, TraceText::Omitted, directory, chance, plan, keys)
    }

    /// Three nodes or more, of which one may be away, and nothing that is cramped.
    pub(crate) fn calm(seed: u64, directory: &Path) -> Self {
        let mut chance = SimRandom::new(seed, 5);
        let plan = calm_plan(&mut chance);
        let nodes = plan.urls.len();
        let from = |chance: &mut SimRandom| u8::try_from(3 + chance.index(nodes - 2)).expect("few nodes");
        let keys = (0..KEYS).map(|_| KeyPlan { from: from(&mut chance), is_quorum: true }).collect();
        Self::with(seed, TraceText::Omitted, directory, chance, plan, keys)
    }

    fn with(
        seed: u64,
        text: TraceText,
        directory: &Path,
        mut chance: SimRandom,
        plan: MachinePlan,
        keys: Vec<KeyPlan>,
    ) -> Self {
        let nodes = plan.urls.len();
        let trace = Arc::new(Trace::new(text));
        let usual = Noise::none(*chance.pick(&[2, 10, 40]));
        // One more place than nodes: from there strangers call.
        let network = Network::new(nodes + 1, usual, SimRandom::new(seed, 2), trace.clone());
        let stored: Arc<Mutex<Stored>> = Arc::default();
        let has_drift = chance.happens(300);
        let around = Environment { network: network.clone(), trace: trace.clone(), stored: stored.clone() };
        let machine = |index| {
            let time = MachineTime::new(tokio::time::Instant::now());
            if has_drift {
                time.set_rate(950 + chance.below(100));
            }
            let chance = SimRandom::new(seed, 100 + u64::try_from(index).expect("few nodes"));
            Machine::new(index, plan.clone(), around.clone(), chance, directory, time)
        };
        let machines = (0..nodes).map(machine).collect();
        Self {
            seed,
            trace,
            plan,
            machines,
            network,
            keys,
            history: RefCell::default(),
            faults: Cell::new(0),
            faults_end: Duration::from_secs(15 + chance.below(15)),
            is_healed: Cell::new(false),
            plan_think_ms: 0..*chance.pick(&[20, 100, 300]),
            disk_ms_max: DISK_MS_MAX,
            layouts: RefCell::default(),
            stored,
            clients: 3 + chance.index(3),
            values: Cell::new(0),
            violation: RefCell::default(),
        }
    }

    /// Starts all nodes, and waits until they vote.
    pub(crate) async fn start(&self) {
        tokio::task::spawn_local(self.network.clone().run());
        self.machines.iter().for_each(Machine::start);
        self.begin().await;
    }

    /// Ends all nodes.
    pub(crate) fn stop(&self) {
        self.machines.iter().for_each(|machine| machine.crash(Crash::Process));
        self.network.clear();
    }

    /// The first violation so far.
    pub(crate) fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    /// The first start: every node votes before anything goes wrong, so that none has a past without a note of it.
    pub(crate) async fn begin(&self) {
        let all_vote = || self.machines.iter().all(|machine| machine.vote_state() == Some(VoteState::Voting));
        while !all_vote() {
            if self.trace.now() > START_MAX {
                return self.violated(Err("answered: a cluster did not come up".to_owned()));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        self.machines.iter().for_each(|machine| machine.note_vote());
    }

    /// For a while most clients use the same key; then it is another's turn.
    pub fn draw_key(&self, chance: &mut SimRandom) -> usize {
        if chance.happens(250) {
            return chance.index(self.keys.len());
        }
        let turn = self.trace.now().as_millis() / KEY_TURN.as_millis();
        usize::try_from(turn).expect("runs are short") % self.keys.len()
    }

    /// Values are counted, so no two writes have the same.
    pub fn next_value(&self) -> u64 {
        self.values.set(self.values.get() + 1);
        self.values.get()
    }

    /// Keeps the first violation.
    pub fn violated(&self, result: Result<(), String>) {
        if let Err(violation) = result {
            self.trace.event(&violation);
            self.violation.borrow_mut().get_or_insert(violation);
        }
    }

    /// Undoes everything that was made to go wrong, but for what was lost.
    pub(crate) async fn heal(&self) {
        self.is_healed.set(true);
        self.trace.event("healed");
        self.network.heal();
        for machine in &self.machines {
            machine.set_fault(Fault::None);
            machine.set_disk_ms(2);
            machine.time.set_wall(0);
            machine.resume();
            if !machine.is_up() {
                machine.start();
            }
        }
        tokio::time::sleep(MEETING).await;
        for machine in &self.machines {
            if machine.disk().health() == HealthState::Poisoned {
                machine.crash(Crash::Process);
                machine.start();
            }
        }
    }

    /// Waits until anti-entropy has made all replicas the same.
    pub(crate) async fn converge(&self) {
        let (layout, machines) = (&self.plan.layout, &self.machines);
        let differs =
            |number: &usize| !converged::is_converged(self.seed, *number, self.keys[*number].from, layout, machines);
        let begin = self.trace.now();
        let mut asked = begin;
        self.machines[0].want_round();
        while let Some(number) = (0..self.keys.len()).find(differs) {
            if self.trace.now() - begin > CONVERGENCE_MAX {
                return self.violated(Err(format!("converged: replicas of key {number} still differ")));
            }
            if self.trace.now() - asked > ROUND_INTERVAL {
                asked = self.trace.now();
                self.machines[0].want_round();
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// A key whose one replica has lost its disk is lost with it.
    fn is_forgotten(&self, number: usize, plan: KeyPlan) -> bool {
        let key = crate::history::key(self.seed, number);
        let first = self.plan.layout.preference_list(key.hash().partition()).first();
        plan.from == 1 && first.is_some_and(|node| self.machines[node.0 as usize].has_lost.get())
    }

    pub(crate) fn has_quorum(&self, number: usize, plan: KeyPlan) -> bool {
        let key = crate::history::key(self.seed, number);
        let replicas = self.plan.layout.preference_list(key.hash().partition());
        let votes = replicas
            .iter()
            .take(usize::from(plan.from))
            .filter(|node| self.machines[node.0 as usize].vote_state() == Some(VoteState::Voting));
        votes.count() >= usize::from(majority(plan.from))
    }

    pub(crate) fn check_all(&self) {
        let history = self.history.borrow();
        let (layout, machines) = (&self.plan.layout, &self.machines);
        self.violated(self.stored.lock().unwrap_or_else(PoisonError::into_inner).check());
        machines.iter().for_each(|machine| self.violated(amnesia::check_at_the_end(machine)));
        for (number, plan) in self.keys.iter().enumerate() {
            if plan.is_quorum && !self.is_forgotten(number, *plan) {
                let checked = linearizable::check(history.of_key(number));
                let checked = checked.and_then(|()| promised::check(history.of_key(number)));
                self.violated(checked.map_err(|what| format!("key {number}: {what}")));
            }
            self.violated(converged::check_watermark(self.seed, number, layout, machines));
            self.violated(copies::check(self.seed, number, plan.from, layout, machines));
        }
        self.violated(acknowledged::check(self.seed, layout, machines, &history));
    }

    pub(crate) fn report(&self) -> RunReport {
        let history = self.history.borrow();
        let succeeded = history.operations.iter().filter(|operation| {
            matches!(operation.outcome, ClientOutcome::Written(_) | ClientOutcome::Found(_) | ClientOutcome::Ended(..))
        });
        let violation = self.violation.borrow().clone().map(|mut text| {
            for number in 0..self.keys.len() {
                write!(text, "\nkey {number}, {:?}:", self.keys[number]).expect("text takes all");
                for operation in history.of_key(number) {
                    write!(text, "\n  {operation}").expect("text takes all");
                }
            }
            text
        });
        RunReport {
            seed: self.seed,
            trace_hash: self.trace.hash(),
            faults: self.faults.get(),
            disturbed: self.network.disturbed(),
            requests: u64::try_from(history.operations.len()).expect("a length fits"),
            succeeded: u64::try_from(succeeded.count()).expect("a length fits"),
            layouts: self.layouts.borrow().count(),
            violation,
        }
    }
}

fn calm_plan(chance: &mut SimRandom) -> MachinePlan {
    let nodes = 3 + chance.index(3);
    let roomy = |plan: &MachinePlan| plan.queue.works_max > 3;
    std::iter::repeat_with(|| plan(chance, nodes)).find(roomy).expect("some are")
}

fn plan(chance: &mut SimRandom, nodes: usize) -> MachinePlan {
    let urls: Rc<[String]> = (0..nodes).map(|node| format!("http://node-{node}:8080")).collect();
    let founders = urls.iter().cloned().map(WantedNode::at).collect();
    let layout = Arc::new(Layout::founding(founders).expect("a layout of a few nodes"));
    // Some runs are cramped, so that every bound is reached.
    let is_cramped = chance.happens(250);
    let value_bytes_max = 1 << 20;
    MachinePlan {
        layout,
        urls,
        deadline: Duration::from_secs(1),
        fan_out: if chance.happens(250) { FanOut::All } else { FanOut::Hedged },
        skew_max: Duration::from_secs(5),
        queue: if is_cramped {
            QueueLimits { works_max: 3, bytes_max: 100 * 1024 }
        } else {
            QueueLimits { works_max: 1000, bytes_max: 4 << 20 }
        },
        recent_entries_max: *chance.pick(&[1, 2, 40, 10_000]),
        jobs_max: if is_cramped { 4 } else { 1000 },
        lingering_max: if is_cramped { 2 } else { 100 },
        value_bytes_max,
        peer_queue_bytes_max: if is_cramped { 4 * 1024 } else { value_bytes_max },
        large_bytes_max: if is_cramped { 200 * 1024 } else { 16 << 20 },
        has_background: chance.happens(400),
        fence_lag: Duration::from_millis(*chance.pick(&[1500, 1500, 100, 0])),
        guard: Guard::Open,
    }
}

fn keys(chance: &mut SimRandom, nodes: usize) -> Vec<KeyPlan> {
    let nodes = u8::try_from(nodes).expect("few nodes");
    let mut from = || match nodes {
        1..=3 if chance.happens(850) => nodes,
        4.. if chance.happens(800) => *chance.pick(&[3, nodes]),
        _ => u8::try_from(1 + chance.below(u64::from(nodes))).expect("few nodes"),
    };
    (0..KEYS).map(|number| KeyPlan { from: from(), is_quorum: number % 4 != 3 }).collect()
}
