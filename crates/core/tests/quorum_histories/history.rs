//! One random history: clients, coordinators with skewed clocks, a network that delays, drops, duplicates
//! and reorders, replicas that restart. The machines and the replica's decision are the production code.

use std::collections::VecDeque;
use std::ops::AddAssign;

use kvorum_core::Record;
use kvorum_core::quorum::read::{Clocks, Read, ReadCommand};
use kvorum_core::quorum::replica::Origin;
use kvorum_core::quorum::write::{Attempt, Write, WriteOutcome, WriteStep};
use kvorum_core::quorum::{
    Current, Expiry, Failure, Held, Quorum, Rank, ReadAnswer, ReplicaSet, StoreAnswer, Wanted, majority,
};
use kvorum_core::version::{Hlc, Incarnation, Version};

use crate::chance::Chance;
use crate::monitor::{Monitor, NOTHING, Value};
use crate::node::{Node, key};
use crate::rules::Without;
use crate::settings::Settings;

/// Everything in one history.
pub struct World {
    pub without: Without,
    pub chance: Chance,
    pub nodes: Vec<Node>,
    /// Every record that was ever sent, for hints.
    pub timestamped: Vec<Record>,
    settings: Settings,
    /// Milliseconds since the history began.
    now: u64,
    clocks: Vec<Hlc>,
    pool: Vec<Message>,
    /// By number; `None` once they have ended.
    operations: Vec<Option<Operation>>,
    monitor: Monitor,
    unknown_writes: usize,
    log: Option<Vec<String>>,
    pub counts: Counts,
}

/// What happened, to see that a suite of histories was not idle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub answered: u64,
    pub unanswered: u64,
    pub timestamp_retries: u64,
    pub overwritten: u64,
    pub write_backs: u64,
    pub refused_write_backs: u64,
    pub restarts: u64,
    pub gc_watermarks: u64,
    pub ended: u64,
    pub clocks_asked: u64,
}

impl Counts {
    pub fn each(&self) -> [u64; 10] {
        [
            self.answered,
            self.unanswered,
            self.timestamp_retries,
            self.overwritten,
            self.write_backs,
            self.refused_write_backs,
            self.restarts,
            self.gc_watermarks,
            self.ended,
            self.clocks_asked,
        ]
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.unanswered += other.unanswered;
        self.timestamp_retries += other.timestamp_retries;
        self.overwritten += other.overwritten;
        self.write_backs += other.write_backs;
        self.refused_write_backs += other.refused_write_backs;
        self.restarts += other.restarts;
        self.gc_watermarks += other.gc_watermarks;
        self.ended += other.ended;
        self.clocks_asked += other.clocks_asked;
    }
}

struct Operation {
    client: usize,
    coordinator: usize,
    started: u64,
    kind: Kind,
}

// A history has a dozen: their size does not matter.
#[allow(clippy::large_enum_variant)]
enum Kind {
    Write { machine: Write, record: Record, number: usize },
    Read { machine: Read, hedge_at: Option<u64> },
}

#[derive(Clone, Debug)]
struct Message {
    ready_at: u64,
    operation: usize,
    rank: Rank,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    /// To a replica; without an attempt it is a write-back.
    Store {
        attempt: Option<Attempt>,
        record: Record,
        deferred: bool,
    },
    Read {
        wanted: Wanted,
        hlc: Hlc,
    },
    /// To the coordinator.
    Stored {
        attempt: Option<Attempt>,
        version: Version,
        answer: StoreAnswer,
        hlc: Hlc,
    },
    Held {
        answer: ReadAnswer<Record>,
        hlc: Hlc,
    },
}

/// How a history ended.
pub struct Ended {
    pub linearizable: bool,
    /// Whether, with the faults over, a read got its answer.
    pub live: bool,
    pub counts: Counts,
    pub log: Vec<String>,
}

/// Plays the history of this seed.
pub fn play(seed: u64, without: Without, log: bool) -> Ended {
    let mut chance = Chance::new(seed);
    let settings = Settings::draw(seed, &mut chance);
    let mut world = World {
        without,
        nodes: vec![Node::new(); usize::from(settings.from)],
        timestamped: vec![],
        now: 0,
        clocks: vec![Hlc::ZERO; settings.skew_ms.len()],
        pool: vec![],
        operations: vec![],
        monitor: Monitor::new(),
        unknown_writes: 0,
        log: log.then(|| vec![format!("{settings:?}")]),
        counts: Counts::default(),
        settings,
        chance,
    };
    world.storm();
    let live = !world.monitor.is_linearizable() || world.probe();
    world.counts.gc_watermarks += world.nodes.iter().filter(|node| node.gc_watermark > Version::ZERO).count() as u64;
    Ended {
        linearizable: world.monitor.is_linearizable(),
        live,
        counts: world.counts,
        log: world.log.unwrap_or_default(),
    }
}

impl World {
    fn storm(&mut self) {
        let mut idle = 0;
        while self.now < 1500 && idle < 200 && self.monitor.is_linearizable() {
            self.now += 1;
            self.watch_timers();
            self.stir();
            let more = self.operations.len() < self.settings.operations_max && self.unknown_writes < 5;
            let free: Vec<usize> = (0..self.settings.clients).filter(|client| self.is_free(*client)).collect();
            let ready: Vec<usize> = (0..self.pool.len()).filter(|at| self.pool[*at].ready_at <= self.now).collect();
            if more && !free.is_empty() && (ready.is_empty() || self.chance.happens(120)) {
                let client = self.chance.pick(&free);
                self.invoke(client);
                idle = 0;
            } else if !ready.is_empty() {
                let at = self.chance.pick(&ready);
                self.deliver_one(at);
                idle = 0;
            } else {
                idle += 1;
                if !more && self.pool.is_empty() && free.len() == self.settings.clients {
                    return;
                }
            }
        }
    }

    /// What happens without a request.
    fn stir(&mut self) {
        if self.chance.happens(self.settings.restarts) {
            let at = self.chance.index(self.nodes.len());
            self.restart(at);
        }
        if self.chance.happens(self.settings.repairs) {
            self.repair();
        }
        if self.chance.happens(self.settings.hints) {
            self.deliver_hint();
        }
        if self.chance.happens(self.settings.gc_watermarks) {
            self.anti_entropy();
        }
        if self.settings.ends > 0 && self.chance.happens(50) {
            self.tick_node();
        }
    }

    /// Something that a node does for another key moves its clock, which is not durable by that.
    fn tick_node(&mut self) {
        let at = self.chance.index(self.nodes.len());
        let coordinator = self.chance.index(self.clocks.len());
        let wall_ms = self.wall_ms(coordinator);
        self.nodes[at].tick(wall_ms);
    }

    /// Connections end with it: what their coordinators sent to store, or was answered to that, is lost. (What readers
    /// write back may arrive all the same, as if it was sent again: its answer promises nothing.)
    fn restart(&mut self, at: usize) {
        self.nodes[at].restart();
        if self.without != Without::Connections {
            let of_writes = |body: &Body| {
                matches!(
                    body,
                    Body::Store { attempt: Some(_), deferred: false, .. } | Body::Stored { attempt: Some(_), .. }
                )
            };
            self.pool.retain(|message| usize::from(message.rank.0) != at || !of_writes(&message.body));
        }
        self.counts.restarts += 1;
        self.note(|| format!("restart of {at}"));
    }

    fn is_free(&self, client: usize) -> bool {
        self.operations.iter().flatten().all(|operation| operation.client != client)
    }

    fn watch_timers(&mut self) {
        for number in 0..self.operations.len() {
            let Some(operation) = self.operations[number].as_mut() else { continue };
            if self.now - operation.started > self.settings.deadline_ms {
                self.note(|| format!("#{number} reaches its deadline"));
                self.end_unanswered(number);
            } else if let Kind::Read { machine, hedge_at } = &mut operation.kind
                && hedge_at.is_some_and(|at| at <= self.now)
            {
                *hedge_at = None;
                let mut commands = VecDeque::new();
                machine.on_hedge(&mut |command| commands.push_back(command));
                self.carry_out(number, commands);
            }
        }
    }

    fn invoke(&mut self, client: usize) {
        let coordinator = self.chance.index(self.clocks.len());
        let (from, majority) = (self.settings.from, majority(self.settings.from));
        let spare = u64::from(from - majority) + 1;
        let more = if self.settings.acks_vary { self.chance.below(spare) } else { 0 };
        let quorum = Quorum::new(majority + u8::try_from(more).unwrap(), from).unwrap();
        if self.chance.happens(self.settings.writes) {
            let deletes = self.chance.happens(self.settings.deletes);
            self.begin_write(client, coordinator, quorum, deletes);
        } else {
            self.begin_read(client, coordinator, quorum);
        }
    }

    fn begin_write(&mut self, client: usize, coordinator: usize, quorum: Quorum, deletes: bool) {
        let value = Value::try_from(self.operations.len() + 1).unwrap();
        let value = if deletes { NOTHING } else { value };
        let number = self.monitor.write_begins(value);
        let version = self.timestamp(coordinator);
        let ends = value != NOTHING && self.settings.ends > 0 && self.chance.happens(self.settings.ends);
        let expires_ms = ends.then(|| version.hlc.millis() + self.chance.below(150));
        if ends {
            self.monitor.may_end(value);
        }
        let record = match value {
            NOTHING => Record::tombstone(&key(), version, quorum.replicas()),
            value => Record::expiring(&key(), version, quorum.replicas(), expires_ms, None, &[value]),
        };
        let machine = Write::new(quorum);
        let operation = self.operations.len();
        self.note(|| format!("#{operation} client {client} writes {value} as {version} ({quorum:?})"));
        self.begin(client, coordinator, Kind::Write { machine, record: record.clone(), number });
        self.send_to_all(operation, Attempt::FIRST, &record);
    }

    fn begin_read(&mut self, client: usize, coordinator: usize, quorum: Quorum) {
        self.monitor.read_begins(client);
        let mut first = ReplicaSet::EMPTY;
        while first.len() < quorum.required() {
            first.insert(Rank(u8::try_from(self.chance.index(self.nodes.len())).unwrap()));
        }
        let record_from = self.chance.pick(&first.iter().collect::<Vec<_>>());
        let mut machine = Read::new(quorum, first, record_from);
        let mut commands = VecDeque::new();
        machine.start(&mut |command| commands.push_back(command));
        let operation = self.operations.len();
        self.note(|| format!("#{operation} client {client} reads ({quorum:?})"));
        let hedge_at = Some(self.now + self.chance.below(40));
        self.begin(client, coordinator, Kind::Read { machine, hedge_at });
        self.carry_out(operation, commands);
    }

    fn begin(&mut self, client: usize, coordinator: usize, kind: Kind) {
        self.operations.push(Some(Operation { client, coordinator, started: self.now, kind }));
    }

    fn timestamp(&mut self, coordinator: usize) -> Version {
        let wall_ms = self.wall_ms(coordinator);
        let clock = &mut self.clocks[coordinator];
        *clock = clock.tick(wall_ms);
        Version { hlc: *clock, incarnation: Incarnation(u32::try_from(coordinator).unwrap() + 1) }
    }

    fn wall_ms(&self, coordinator: usize) -> u64 {
        // No wall clock is before 1970 because the history begins 300 ms, the greatest skew, later.
        (300 + self.now).checked_add_signed(self.settings.skew_ms[coordinator]).expect("after 1970")
    }

    fn send_to_all(&mut self, operation: usize, attempt: Attempt, record: &Record) {
        self.timestamped.push(record.clone());
        for rank in ReplicaSet::first(self.settings.from).iter() {
            let deferred = self.settings.deferrals > 0 && self.chance.happens(self.settings.deferrals);
            self.send(operation, rank, Body::Store { attempt: Some(attempt), record: record.clone(), deferred });
        }
    }

    fn send(&mut self, operation: usize, rank: Rank, body: Body) {
        let delayed = self.chance.happens(self.settings.delays) || matches!(body, Body::Store { deferred: true, .. });
        let ready_at = if delayed { self.now + self.chance.below(120) } else { self.now };
        self.pool.push(Message { ready_at, operation, rank, body });
    }

    fn deliver_one(&mut self, at: usize) {
        let duplicated = self.chance.happens(self.settings.duplicates);
        let message = if duplicated { self.pool[at].clone() } else { self.pool.swap_remove(at) };
        if !self.chance.happens(self.settings.drops) {
            let fails = self.chance.happens(self.settings.failures);
            self.deliver(message, fails);
        }
    }

    /// Delivers a message; a request whose replica `fails` may or may not be carried out.
    fn deliver(&mut self, message: Message, fails: bool) {
        let Message { operation, rank, body, .. } = message;
        let at = usize::from(rank.0);
        match body {
            Body::Store { attempt, record, deferred } => {
                let origin = if attempt.is_some() { Origin::Client } else { Origin::Repair };
                let carried_out = !fails || self.chance.happens(500);
                let answer = carried_out.then(|| self.store(at, &record, origin)).filter(|_| !fails);
                let answer = answer.unwrap_or(StoreAnswer::Failed(Failure::Disk));
                let promises = !deferred || self.without == Without::DeferredIsNoPromise;
                let answer = if promises { answer } else { answer.of_deferred() };
                let version = record.version();
                self.note(|| format!("#{operation} stores {version} at {at}: {answer:?}"));
                let hlc = self.nodes[at].clock();
                self.send(operation, rank, Body::Stored { attempt, version, answer, hlc });
            }
            Body::Read { wanted, hlc } => {
                if wanted == Wanted::VersionAtClock && self.chance.happens(self.settings.follows) {
                    self.nodes[at].follow(hlc);
                }
                let answer = if fails { ReadAnswer::Failed(Failure::Corrupt) } else { self.look(at, wanted) };
                self.note(|| format!("#{operation} reads {at}: {answer:?}"));
                let hlc = self.nodes[at].clock();
                self.send(operation, rank, Body::Held { answer, hlc });
            }
            Body::Stored { attempt, version, answer, hlc } => {
                self.hear(operation, hlc);
                match attempt {
                    Some(attempt) => self.on_stored(operation, attempt, rank, answer),
                    None => self.on_written_back(operation, rank, version, answer, hlc),
                }
            }
            Body::Held { answer, hlc } => {
                self.hear(operation, hlc);
                self.on_read(operation, rank, answer, hlc);
            }
        }
    }

    pub fn store(&mut self, at: usize, record: &Record, origin: Origin) -> StoreAnswer {
        let (now, retention) = (self.now, self.settings.deadline_ms);
        self.nodes[at].store(record, origin, now, retention, self.without)
    }

    fn look(&self, at: usize, wanted: Wanted) -> ReadAnswer<Record> {
        match self.nodes[at].record.clone() {
            Some(record) if wanted != Wanted::Record => ReadAnswer::Version { version: record.version(), from: 1 },
            Some(record) => ReadAnswer::Held(Held::Record(record)),
            None => ReadAnswer::Held(Held::Absent { gc_watermark: self.nodes[at].gc_watermark }),
        }
    }

    /// Messages carry clocks, in histories where coordinators listen.
    fn hear(&mut self, operation: usize, hlc: Hlc) {
        if let Some(operation) = self.operations[operation].as_ref().filter(|_| self.settings.clocks_are_heard) {
            let clock = &mut self.clocks[operation.coordinator];
            *clock = hlc.max(*clock);
        }
    }

    fn on_stored(&mut self, number: usize, attempt: Attempt, rank: Rank, answer: StoreAnswer) {
        let without = self.without;
        let Some(Operation { coordinator, kind: Kind::Write { machine, record, .. }, .. }) =
            self.operations[number].as_mut()
        else {
            return;
        };
        let attempt = if without == Without::CountsPerAttempt { machine.attempt() } else { attempt };
        let lies = without == Without::StaleIsNoAccept && matches!(answer, StoreAnswer::Stale(_));
        let answer = match answer {
            StoreAnswer::Stale(_) if lies => StoreAnswer::Accepted,
            StoreAnswer::Stale(gc_watermark) if without == Without::GcWatermarkIsNoExcuse => {
                StoreAnswer::Stale(Current::Record(gc_watermark.version()))
            }
            answer => answer,
        };
        match machine.on_answer(attempt, rank, answer) {
            WriteStep::Wait => {}
            WriteStep::Done(written) => self.end_written(number, written),
            WriteStep::RetryWithHigherTimestamp { .. } if without == Without::SecondAttempt => {
                self.end_written(number, WriteOutcome::Overwritten);
            }
            WriteStep::RetryWithHigherTimestamp { .. } => {
                let (coordinator, old, newest) = (*coordinator, record.clone(), machine.newest());
                let attempt = machine.retried();
                self.retry_with_higher_timestamp(number, coordinator, &old, attempt, newest);
            }
            WriteStep::Hopeless => self.end_unanswered(number),
        }
    }

    fn retry_with_higher_timestamp(
        &mut self,
        number: usize,
        coordinator: usize,
        old: &Record,
        attempt: Attempt,
        newest: Version,
    ) {
        if self.without != Without::NewerTimestamp {
            self.clocks[coordinator] = self.clocks[coordinator].max(newest.hlc);
        }
        let new = old.with_version(&key(), self.timestamp(coordinator));
        assert!(new.version() > newest || self.without == Without::NewerTimestamp, "a timestamp that cannot be beaten");
        self.counts.timestamp_retries += 1;
        self.note(|| format!("#{number} stamps again: {}", new.version()));
        self.send_to_all(number, attempt, &new);
    }

    /// A coordinator's clock, brought to the present.
    fn own_clock(&self, number: usize) -> Hlc {
        let Some(operation) = &self.operations[number] else { return Hlc::ZERO };
        self.clocks[operation.coordinator].max(Hlc::from_millis(self.wall_ms(operation.coordinator)))
    }

    fn on_read(&mut self, number: usize, rank: Rank, answer: ReadAnswer<Record>, hlc: Hlc) {
        let own = self.own_clock(number);
        if let Some(Operation { kind: Kind::Read { machine, .. }, .. }) = self.operations[number].as_mut() {
            let mut commands = VecDeque::new();
            let clocks = Clocks { replica: hlc, own: &|| own };
            machine.on_read(rank, answer, clocks, &mut |command| commands.push_back(command));
            self.carry_out(number, commands);
        }
    }

    fn on_written_back(&mut self, number: usize, rank: Rank, version: Version, answer: StoreAnswer, hlc: Hlc) {
        let own = self.own_clock(number);
        if let Some(Operation { kind: Kind::Read { machine, .. }, .. }) = self.operations[number].as_mut() {
            let refused = matches!(answer, StoreAnswer::Stale(_) | StoreAnswer::StaleUnknown(_));
            self.counts.refused_write_backs += u64::from(refused);
            let lies = self.without == Without::StaleIsNoCopy && refused;
            let answer = if lies { StoreAnswer::Accepted } else { answer };
            let mut commands = VecDeque::new();
            let clocks = Clocks { replica: hlc, own: &|| own };
            machine.on_store(rank, version, answer, clocks, &mut |command| commands.push_back(command));
            self.carry_out(number, commands);
        }
    }

    fn carry_out(&mut self, number: usize, mut commands: VecDeque<ReadCommand>) {
        while let Some(command) = commands.pop_front() {
            match command {
                ReadCommand::Ask { rank, wanted } => {
                    self.counts.clocks_asked += u64::from(wanted == Wanted::VersionAtClock);
                    let hlc = self.own_clock(number);
                    self.send(number, rank, Body::Read { wanted, hlc });
                }
                ReadCommand::Store { rank, record } if self.without == Without::WriteBack => {
                    self.on_written_back(number, rank, record.version(), StoreAnswer::Accepted, Hlc::ZERO);
                }
                ReadCommand::Store { rank, record } => {
                    self.counts.write_backs += 1;
                    self.send(number, rank, Body::Store { attempt: None, record, deferred: false });
                }
                ReadCommand::Done(outcome, expiry) => self.end_read(number, &outcome, expiry),
                ReadCommand::Hopeless => self.end_unanswered(number),
            }
        }
    }

    fn end_written(&mut self, number: usize, written: WriteOutcome) {
        let Some(Operation { kind: Kind::Write { number: write, .. }, .. }) = self.operations[number].take() else {
            unreachable!("only a write is written");
        };
        self.note(|| format!("#{number} is {written:?}"));
        self.counts.answered += 1;
        self.counts.overwritten += u64::from(written == WriteOutcome::Overwritten);
        self.monitor.write_succeeds(write);
    }

    fn end_read(&mut self, number: usize, outcome: &Held<Record>, expiry: Expiry) {
        let operation = self.operations[number].take().expect("a read ends once");
        self.counts.ended += u64::from(expiry == Expiry::Passed);
        let value = match outcome {
            Held::Record(_) if expiry == Expiry::Passed => NOTHING,
            Held::Record(record) => record.payload().first().copied().unwrap_or(NOTHING),
            Held::Absent { .. } => NOTHING,
        };
        self.note(|| format!("#{number} answers {value}"));
        self.counts.answered += 1;
        self.monitor.read_answers(operation.client, value);
    }

    fn end_unanswered(&mut self, number: usize) {
        let Some(operation) = self.operations[number].take() else { return };
        self.note(|| format!("#{number} ends without an answer"));
        self.counts.unanswered += 1;
        match operation.kind {
            Kind::Write { .. } => self.unknown_writes += 1,
            Kind::Read { .. } => self.monitor.read_ends(operation.client),
        }
    }

    /// The faults are over, one replica of three or more is down: does a read get its answer?
    fn probe(&mut self) -> bool {
        (0..self.operations.len()).for_each(|number| self.end_unanswered(number));
        self.pool.clear();
        self.settings.delays = 0;
        if self.settings.ends > 0 {
            (self.settings.clocks_are_heard, self.settings.follows) = (true, 1000);
        }
        self.now += 1;
        let spare = self.nodes.len() >= 3 && !self.has_resurrected();
        let down = spare.then(|| self.chance.index(self.nodes.len()));
        self.note(|| format!("probe with {down:?} down"));
        let (number, before) = (self.operations.len(), self.counts.answered);
        self.begin_read(0, 0, Quorum::new(majority(self.settings.from), self.settings.from).unwrap());
        while self.operations[number].is_some() && !self.pool.is_empty() {
            self.now += 1;
            let at = self.chance.index(self.pool.len());
            let message = self.pool.swap_remove(at);
            let to_replica = matches!(message.body, Body::Store { .. } | Body::Read { .. });
            if to_replica && down == Some(usize::from(message.rank.0)) {
                self.refuse(message);
            } else {
                self.deliver(message, false);
            }
        }
        self.counts.answered > before
    }

    /// Whether a slow write-back has brought a value back below another replica's GC watermark. The node that has what
    /// superseded the value must then be up: only its answer shows whether it was deleted or overwritten.
    fn has_resurrected(&self) -> bool {
        let gc_watermark = self.nodes.iter().map(|node| node.gc_watermark).max().unwrap_or(Version::ZERO);
        let values = self
            .nodes
            .iter()
            .filter_map(|node| node.record.as_ref())
            .filter(|record| !record.is_deleted(|| gc_watermark.hlc.millis()));
        values.map(Record::version).any(|version| version <= gc_watermark)
    }

    /// The connection is refused.
    fn refuse(&mut self, message: Message) {
        let failure = Failure::Unreachable;
        match message.body {
            Body::Store { record, .. } => {
                self.on_written_back(
                    message.operation,
                    message.rank,
                    record.version(),
                    StoreAnswer::Failed(failure),
                    Hlc::ZERO,
                );
            }
            _ => self.on_read(message.operation, message.rank, ReadAnswer::Failed(failure), Hlc::ZERO),
        }
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = self.log.as_mut() {
            log.push(format!("{:>5} {}", self.now, line()));
        }
    }
}
