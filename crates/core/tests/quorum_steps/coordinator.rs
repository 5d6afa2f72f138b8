//! What coordinators do: the production machines, each operation with the layout that it began with.

use std::collections::VecDeque;

use kvorum_core::Record;
use kvorum_core::quorum::read::{Clocks, Read, ReadCommand};
use kvorum_core::quorum::step::{Groups, MovingQuorum, StepWrite, StepWriteStep, Tick, TickStep};
use kvorum_core::quorum::write::{Attempt, Write, WriteOutcome, WriteStep};
use kvorum_core::quorum::{Failure, Held, Quorum, Rank, ReadAnswer, ReplicaSet, StoreAnswer};
use kvorum_core::version::{Hlc, Incarnation, Version};

use crate::history::{FrameBody, StepHistory};
use crate::layouts::{KeyLayout, NODES, count};
use crate::monitor::{NOTHING, Value};
use crate::replica::key;
use crate::without::Without;

pub struct StepOperation {
    pub client: usize,
    pub started: u64,
    coordinator: usize,
    layout: KeyLayout,
    /// The nodes that it asks, by rank.
    ranks: Vec<usize>,
    was_refused: bool,
    pub kind: OperationKind,
}

// A history has a dozen: their size does not matter.
#[allow(clippy::large_enum_variant)]
pub enum OperationKind {
    Write { machine: StepWriting, value: Value, number: usize },
    Read { machine: StepReading, hedge_at: Option<u64> },
}

pub enum StepWriting {
    /// The key stays where it is.
    Still(Write),
    /// It moves: the question first, then the write.
    Asking(Tick),
    Moving(StepWrite),
}

// As above.
#[allow(clippy::large_enum_variant)]
pub enum StepReading {
    Still(Read),
    Moving(Read<MovingQuorum>),
}

/// No value has an end, so the coordinator's clock does not matter.
fn clocks(replica: Hlc) -> Clocks<'static> {
    Clocks { replica, own: &|| Hlc::ZERO }
}

impl StepReading {
    fn start(&mut self, sink: &mut dyn FnMut(ReadCommand)) {
        match self {
            Self::Still(read) => read.start(sink),
            Self::Moving(read) => read.start(sink),
        }
    }

    fn on_hedge(&mut self, sink: &mut dyn FnMut(ReadCommand)) {
        match self {
            Self::Still(read) => read.on_hedge(sink),
            Self::Moving(read) => read.on_hedge(sink),
        }
    }

    fn on_held(&mut self, rank: Rank, answer: ReadAnswer<Record>, hlc: Hlc, sink: &mut dyn FnMut(ReadCommand)) {
        match self {
            Self::Still(read) => read.on_read(rank, answer, clocks(hlc), sink),
            Self::Moving(read) => read.on_read(rank, answer, clocks(hlc), sink),
        }
    }

    fn on_stored(
        &mut self,
        rank: Rank,
        (version, answer): (Version, StoreAnswer),
        hlc: Hlc,
        sink: &mut dyn FnMut(ReadCommand),
    ) {
        match self {
            Self::Still(read) => read.on_store(rank, version, answer, clocks(hlc), sink),
            Self::Moving(read) => read.on_store(rank, version, answer, clocks(hlc), sink),
        }
    }
}

impl StepOperation {
    fn rank(&self, node: usize) -> Rank {
        let place = self.ranks.iter().position(|asked| *asked == node).expect("an answer of a node that was asked");
        Rank(u8::try_from(place).unwrap())
    }
}

/// What a write to a key that moves counts.
fn counted(layout: KeyLayout, without: Without) -> (Groups, Quorum) {
    let next = KeyLayout::stable(layout.next.unwrap_or(layout.now));
    match without {
        Without::WriteNeedsNext => (KeyLayout::stable(layout.now).groups(), KeyLayout::stable(layout.now).quorum()),
        Without::WriteNeedsNow => {
            let ranks: ReplicaSet = layout.next_ranks().iter().copied().collect();
            (Groups::new(ranks, ranks), next.quorum())
        }
        _ => (layout.groups(), layout.quorum()),
    }
}

impl StepHistory {
    fn begin(&mut self, client: usize, coordinator: usize, layout: KeyLayout, kind: OperationKind) -> usize {
        let number = self.operations.len();
        let (ranks, epoch) = (layout.ranks(), self.epochs[coordinator]);
        let operation =
            StepOperation { client, started: self.now, coordinator, layout, ranks, was_refused: false, kind };
        self.operations.push(Some(operation));
        self.pinned.push(epoch);
        number
    }

    pub fn begin_write(&mut self, client: usize, coordinator: usize, deletes: bool) {
        let value = if deletes { NOTHING } else { Value::try_from(self.operations.len() + 1).unwrap() };
        let number = self.monitor.write_begins(value);
        let layout = self.chain[self.epochs[coordinator]];
        let machine = match layout.next {
            Some(_) => StepWriting::Asking(Tick::new(layout.groups())),
            None => StepWriting::Still(Write::new(layout.quorum())),
        };
        let operation = self.begin(client, coordinator, layout, OperationKind::Write { machine, value, number });
        let epoch = self.epochs[coordinator];
        self.note(|| format!("#{operation} client {client} writes {value} in epoch {epoch}"));
        if layout.next.is_none() {
            self.stamp_and_send(operation, Attempt::FIRST, Hlc::ZERO);
        } else if self.without == Without::Tick {
            self.begin_step_write(operation, Hlc::ZERO);
        } else {
            self.send_to_all(operation, &FrameBody::Tick);
        }
    }

    fn send_to_all(&mut self, operation: usize, body: &FrameBody) {
        let Some(ranks) = self.operations[operation].as_ref().map(|operation| operation.ranks.clone()) else { return };
        for node in ranks {
            self.send(operation, node, body.clone());
        }
    }

    /// Gives a write a version, which is above this reading.
    fn stamp_and_send(&mut self, operation: usize, attempt: Attempt, above: Hlc) -> Version {
        let Some(StepOperation { coordinator, kind: OperationKind::Write { value, .. }, .. }) =
            self.operations[operation]
        else {
            unreachable!("only a write that is under way gets a version");
        };
        let clock = &mut self.clocks[coordinator];
        *clock = above.max(*clock).next();
        let version = Version { hlc: *clock, incarnation: Incarnation(u32::try_from(coordinator).unwrap() + 1) };
        // So many that it belongs to all of the key's replicas, however many there are.
        let from = u8::try_from(NODES).unwrap();
        let record = match value {
            NOTHING => Record::tombstone(&key(), version, from),
            value => Record::value(&key(), version, from, None, &[value]),
        };
        self.note(|| format!("#{operation} is {version}"));
        self.send_to_all(operation, &FrameBody::Store { attempt: Some(attempt), record });
        version
    }

    fn begin_step_write(&mut self, number: usize, above: Hlc) {
        let version = self.stamp_and_send(number, Attempt::FIRST, above);
        let without = self.without;
        if let Some(StepOperation { layout, kind: OperationKind::Write { machine, .. }, .. }) =
            self.operations[number].as_mut()
        {
            let (groups, quorum) = counted(*layout, without);
            *machine = StepWriting::Moving(StepWrite::new(groups, quorum, version));
        }
    }

    pub fn on_ticked(&mut self, number: usize, node: usize, reading: Option<Hlc>) {
        let Some(operation) = self.operations[number].as_mut() else { return };
        let rank = operation.rank(node);
        operation.was_refused |= reading.is_none();
        let OperationKind::Write { machine: StepWriting::Asking(tick), .. } = &mut operation.kind else { return };
        match tick.on_answer(rank, reading) {
            TickStep::Wait => {}
            TickStep::Stamp { above } => self.begin_step_write(number, above),
            TickStep::Hopeless => self.end_unanswered(number),
        }
    }

    pub fn on_stored(&mut self, number: usize, node: usize, attempt: Attempt, answer: StoreAnswer) {
        let Some(operation) = self.operations[number].as_mut() else { return };
        let rank = operation.rank(node);
        operation.was_refused |= answer == StoreAnswer::Failed(Failure::NotServing);
        let OperationKind::Write { machine, .. } = &mut operation.kind else { return };
        match machine {
            StepWriting::Asking(_) => {}
            StepWriting::Still(write) => match write.on_answer(attempt, rank, answer) {
                WriteStep::Wait => {}
                WriteStep::Done(outcome) => self.end_written(number, outcome),
                WriteStep::RetryWithHigherTimestamp { above } => {
                    let attempt = write.retried();
                    self.happened.timestamp_retries += 1;
                    self.stamp_and_send(number, attempt, above.hlc);
                }
                WriteStep::Hopeless => self.end_unanswered(number),
            },
            StepWriting::Moving(write) => match write.on_answer(rank, answer) {
                StepWriteStep::Wait => {}
                StepWriteStep::Done(outcome) => self.end_written(number, outcome),
                StepWriteStep::Hopeless => self.end_unanswered(number),
            },
        }
    }

    pub fn begin_read(&mut self, client: usize, coordinator: usize) {
        let layout = self.chain[self.epochs[coordinator]];
        self.monitor.read_begins(client);
        let asked = match (layout.next, self.without) {
            (Some(_), Without::ReadNeedsNext) => KeyLayout::stable(layout.now),
            (Some(next), Without::ReadNeedsNow) => KeyLayout::stable(next),
            _ => layout,
        };
        let quorum = asked.quorum();
        let first = self.first_asked(asked);
        let members: Vec<Rank> = first.iter().collect();
        let record_from = self.chance.pick(&members);
        let mut machine = match asked.next {
            None => StepReading::Still(Read::new(quorum, first, record_from)),
            Some(_) => {
                let moving = MovingQuorum::new(quorum, count(asked.now), asked.next_ranks());
                StepReading::Moving(Read::new(moving, first, record_from))
            }
        };
        let mut commands = VecDeque::new();
        machine.start(&mut |command| commands.push_back(command));
        let hedge_at = Some(self.now + self.chance.below(40));
        let operation = self.begin(client, coordinator, asked, OperationKind::Read { machine, hedge_at });
        let epoch = self.epochs[coordinator];
        self.note(|| format!("#{operation} client {client} reads in epoch {epoch}"));
        self.carry_out(operation, commands);
    }

    /// All, or as many in a random order as are needed.
    fn first_asked(&mut self, layout: KeyLayout) -> ReplicaSet {
        let groups = layout.groups();
        let mut left: Vec<Rank> = groups.all().iter().collect();
        let asks_all = self.chance.happens(500);
        let mut first = ReplicaSet::EMPTY;
        while !left.is_empty() && (asks_all || !groups.are_majorities(first)) {
            let at = self.chance.index(left.len());
            first.insert(left.swap_remove(at));
        }
        first
    }

    fn with_read(&mut self, number: usize, act: impl FnOnce(&mut StepReading, &mut dyn FnMut(ReadCommand))) {
        if let Some(StepOperation { kind: OperationKind::Read { machine, .. }, .. }) = self.operations[number].as_mut()
        {
            let mut commands = VecDeque::new();
            act(machine, &mut |command| commands.push_back(command));
            self.carry_out(number, commands);
        }
    }

    pub fn hedge(&mut self, number: usize) {
        self.with_read(number, StepReading::on_hedge);
    }

    pub fn on_held(&mut self, number: usize, node: usize, answer: ReadAnswer<Record>, hlc: Hlc) {
        let Some(operation) = self.operations[number].as_mut() else { return };
        let rank = operation.rank(node);
        operation.was_refused |= matches!(answer, ReadAnswer::Failed(Failure::NotServing));
        self.with_read(number, |read, sink| read.on_held(rank, answer, hlc, sink));
    }

    pub fn on_written_back(&mut self, number: usize, node: usize, version: Version, answer: StoreAnswer, hlc: Hlc) {
        let Some(operation) = self.operations[number].as_mut() else { return };
        let rank = operation.rank(node);
        operation.was_refused |= answer == StoreAnswer::Failed(Failure::NotServing);
        self.with_read(number, |read, sink| read.on_stored(rank, (version, answer), hlc, sink));
    }

    fn carry_out(&mut self, number: usize, commands: VecDeque<ReadCommand>) {
        for command in commands {
            let Some(operation) = self.operations[number].as_ref() else { return };
            let node = |rank: Rank| operation.ranks[usize::from(rank.0)];
            match command {
                ReadCommand::Ask { rank, wanted } => {
                    let node = node(rank);
                    self.send(number, node, FrameBody::Read { wanted });
                }
                ReadCommand::Store { rank, record } => {
                    let node = node(rank);
                    self.happened.write_backs += 1;
                    self.send(number, node, FrameBody::Store { attempt: None, record });
                }
                ReadCommand::Done(outcome, _) => self.end_read(number, &outcome),
                ReadCommand::Hopeless => self.end_unanswered(number),
            }
        }
    }

    /// Answers carry clocks, in histories where coordinators listen.
    pub fn hear(&mut self, number: usize, hlc: Hlc) {
        if let Some(operation) = self.operations[number].as_ref().filter(|_| self.settings.clocks_are_heard) {
            let clock = &mut self.clocks[operation.coordinator];
            *clock = hlc.max(*clock);
        }
    }

    fn end_answered(&mut self, number: usize) -> StepOperation {
        let operation = self.operations[number].take().expect("an operation ends once");
        self.happened.answered += 1;
        self.happened.answered_in_steps += u64::from(operation.layout.next.is_some());
        self.happened.answered_behind += u64::from(self.pinned[number] + 1 < self.chain.len());
        operation
    }

    fn end_written(&mut self, number: usize, outcome: WriteOutcome) {
        let OperationKind::Write { number: write, .. } = self.end_answered(number).kind else {
            unreachable!("only a write is written");
        };
        self.note(|| format!("#{number} is {outcome:?}"));
        self.happened.overwritten += u64::from(outcome == WriteOutcome::Overwritten);
        self.monitor.write_succeeds(write);
    }

    fn end_read(&mut self, number: usize, outcome: &Held<Record>) {
        let client = self.end_answered(number).client;
        let value = match outcome {
            Held::Record(record) => record.payload().first().copied().unwrap_or(NOTHING),
            Held::Absent { .. } => NOTHING,
        };
        self.note(|| format!("#{number} answers {value}"));
        self.monitor.read_answers(client, value);
    }

    pub fn end_unanswered(&mut self, number: usize) {
        let Some(operation) = self.operations[number].take() else { return };
        self.note(|| format!("#{number} ends without an answer"));
        self.happened.unanswered += 1;
        self.happened.refused_for_their_epoch += u64::from(operation.was_refused);
        match operation.kind {
            OperationKind::Write { .. } => self.unknown_writes += 1,
            OperationKind::Read { .. } => self.monitor.read_ends(operation.client),
        }
    }
}
