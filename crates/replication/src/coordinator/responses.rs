//! What answers do to requests: notes for the receipt, the state machine's step, and its commands.
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_base::clock::NoTimestamp;
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::node::NodeId;
use kvorum_core::quorum::read::{Clocks, ReadCommand};
use kvorum_core::quorum::rules;
use kvorum_core::quorum::write::WriteStep;
use kvorum_core::quorum::{Current, Expiry, Failure, Held, Rank, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::{Hlc, Key, Record, Version};

use super::api::{ReadResult, Receipt, Refused, WithReceipt, WriteResult};
use super::metrics::MissingAnswer;
use super::operation::{Operation, Outcome, StateMachine};
use super::operations::{NextStep, Operations, Response, ResponseKind, find};
use super::slow::SlowRequest;
use crate::operation_id::OperationId;
use crate::replica::reply_to::ReplyTo;
use crate::replica::{AnswerCounts, StoreReason};

impl Operations {
    /// Hands out all answers that wait, and those that come meanwhile.
    pub(super) fn handle_inbox(self: &Rc<Self>, now: Duration) {
        if self.is_handling.replace(true) {
            return;
        }
        let mut commands = self.commands.take();
        loop {
            let Some(response) = self.inbox.borrow_mut().pop_front() else { break };
            let id = OperationId::from_raw(response.id);
            match self.handle(id, now, response, &mut commands) {
                NextStep::Nothing => {}
                NextStep::RetryWithHigherTimestamp(above) => self.retry_with_higher_timestamp(id, above),
                NextStep::Commands => self.carry_out(id, now, &mut commands),
            }
        }
        self.commands.replace(commands);
        self.is_handling.set(false);
    }

    fn handle(&self, id: OperationId, now: Duration, response: Response, commands: &mut Vec<ReadCommand>) -> NextStep {
        let mut table = self.table.borrow_mut();
        let Some(operation) = find(&mut table, id) else {
            if id.generation() != 0 {
                self.metrics.late_answers.fetch_add(1, Ordering::Relaxed);
            }
            return NextStep::Nothing;
        };
        let Some(rank) = operation.rank(response.node) else { return NextStep::Nothing };
        if now > operation.deadline {
            // Past it the replicas may have dropped what they promised: the answer must not be used.
            return NextStep::Nothing;
        }
        let mut clock = response.clock;
        if response.node == self.membership.own() {
            operation.is_own_vote_counted |= response.answer.counts();
            clock = self.clock.durable_reading();
        } else if operation.is_own_vote_counted
            && !operation.is_decided
            && self.membership.abstains_for(operation.partition).is_some()
        {
            // This node has voted, and then a peer has shown that it had lost something before: what that peer answers
            // comes behind it. The vote cannot be taken back, so nothing may count beside it.
            return NextStep::Nothing;
        }
        let took = now.saturating_sub(operation.started);
        let step = match response.answer {
            ResponseKind::Stored(answer) => self.handle_stored(operation, id, rank, answer, (clock, took), commands),
            ResponseKind::Read(answer) => {
                let answer = answer.checked(|bytes| self.large_values.verified(&operation.key, bytes));
                self.note_latency(response.node, &answer, operation.waited_for(rank, now));
                self.handle_read(operation, rank, answer, (clock, took), commands)
            }
            ResponseKind::Own(answer) => self.handle_read(operation, rank, answer, (clock, took), commands),
        };
        if operation.is_decided {
            self.repair(operation, now);
        }
        let is_over = operation.is_over();
        drop(table);
        if is_over {
            self.remove(id);
        }
        step
    }

    /// Only answers that count show how fast a replica is. One that fails fast must not look fast, or it is asked first
    /// by every read.
    fn note_latency(&self, node: NodeId, answer: &ReadAnswer<Record>, took: Duration) {
        let Some(peer) = self.peers.get(node) else { return };
        if let ReadAnswer::Failed(_) = answer {
            peer.note_read(took.max(self.hedging.delay()));
        } else {
            peer.note_read(took);
            self.hedging.note(took);
        }
    }

    fn handle_stored(
        &self,
        operation: &mut Operation,
        id: OperationId,
        rank: Rank,
        answer: StoreAnswer,
        (clock, took): (Hlc, Duration),
        commands: &mut Vec<ReadCommand>,
    ) -> NextStep {
        if id.round() == operation.round {
            operation.storing.remove(rank);
        }
        let answer = if operation.deferred.contains(rank) { answer.of_deferred() } else { answer };
        let (outcome, version) = match answer {
            StoreAnswer::Accepted => ("accepted", None),
            StoreAnswer::Stale(current) => ("stale", Some(current.version())),
            StoreAnswer::StaleUnknown(current) => ("stale-unknown", Some(current.version())),
            StoreAnswer::Failed(failure) => (failure_name(failure), None),
        };
        if let StoreAnswer::Stale(Current::Record(seen)) = answer {
            self.clock.observe(seen.hlc);
            self.metrics.stale_answers.fetch_add(1, Ordering::Relaxed);
        }
        match &mut operation.machine {
            StateMachine::Write { machine, record, attempts } => {
                let Some(attempt) = attempts.named(id.round()) else { return NextStep::Nothing };
                let accepted = (answer == StoreAnswer::Accepted).then(|| record.version());
                if id.round() == operation.round && answer.settles(record.version()) {
                    operation.owed.remove(rank);
                }
                let step = machine.on_answer(attempt, rank, answer);
                if id.round() == operation.round {
                    operation.note(rank, outcome, version.or(accepted), took);
                }
                self.write_step(operation, step, took)
            }
            StateMachine::Read { machine, write_back, .. } => {
                if id.round() == operation.round {
                    let written = *write_back;
                    let clocks = Clocks { replica: clock, own: &|| self.clock.present() };
                    machine.on_store(rank, written, answer, clocks, &mut |command| commands.push(command));
                    if answer == StoreAnswer::Accepted {
                        operation.note(rank, "written-back", Some(written), took);
                    } else {
                        operation.note(rank, outcome, version, took);
                    }
                }
                NextStep::Commands
            }
        }
    }

    fn write_step(&self, operation: &mut Operation, step: WriteStep, took: Duration) -> NextStep {
        match step {
            WriteStep::Wait => NextStep::Nothing,
            WriteStep::RetryWithHigherTimestamp { above } => NextStep::RetryWithHigherTimestamp(above),
            WriteStep::Done(_) => {
                let StateMachine::Write { record, .. } = &operation.machine else { return NextStep::Nothing };
                let (version, expires_ms) = (record.version(), record.expires_ms());
                if self.metrics.slow.is_slow(took) && !operation.is_decided {
                    self.note_slow(operation, took, if record.is_tombstone() { 202 } else { 201 });
                }
                let receipt = (operation.with_receipt == WithReceipt::Yes).then(|| operation.receipt());
                operation.decide(Ok(Outcome::Written(WriteResult { version, expires_ms, receipt })));
                NextStep::Nothing
            }
            WriteStep::Hopeless => {
                self.decide_not_enough(operation);
                NextStep::Nothing
            }
        }
    }

    fn handle_read(
        &self,
        operation: &mut Operation,
        rank: Rank,
        answer: ReadAnswer<Record>,
        (clock, took): (Hlc, Duration),
        commands: &mut Vec<ReadCommand>,
    ) -> NextStep {
        let (outcome, version) = match &answer {
            ReadAnswer::Held(Held::Record(record)) => ("record", Some(record.version())),
            ReadAnswer::Version { version, .. } => ("version", Some(*version)),
            ReadAnswer::Held(Held::Absent { gc_watermark }) => ("absent", Some(*gc_watermark)),
            ReadAnswer::Failed(failure) => (failure_name(*failure), None),
        };
        if let ReadAnswer::Failed(Failure::Corrupt) = answer {
            self.metrics.corrupt_answers.fetch_add(1, Ordering::Relaxed);
        }
        operation.reading.remove(rank);
        operation.note(rank, outcome, version, took);
        if let StateMachine::Read { machine, .. } = &mut operation.machine {
            let clocks = Clocks { replica: clock, own: &|| self.clock.present() };
            machine.on_read(rank, answer, clocks, &mut |command| commands.push(command));
        }
        if operation.is_hopeless && operation.reading.is_empty() {
            self.decide_not_enough(operation);
        }
        NextStep::Commands
    }

    /// Does what a read's state machine asks for.
    pub(super) fn carry_out(self: &Rc<Self>, id: OperationId, now: Duration, commands: &mut Vec<ReadCommand>) {
        for command in commands.drain(..) {
            match command {
                ReadCommand::Ask { rank, wanted } => self.ask(id, now, rank, wanted),
                ReadCommand::Store { rank, record } => self.write_back(id, now, rank, &record),
                ReadCommand::Done(value, expiry) => self.found(id, now, value, expiry),
                ReadCommand::Hopeless => {
                    if let Some(operation) = find(&mut self.table.borrow_mut(), id) {
                        // Those asked are about to answer, unless they are slow: then the timer ends it.
                        operation.is_hopeless = true;
                        if operation.reading.is_empty() {
                            self.decide_not_enough(operation);
                        }
                    }
                }
            }
        }
    }

    fn ask(self: &Rc<Self>, id: OperationId, now: Duration, rank: Rank, wanted: Wanted) {
        let mut table = self.table.borrow_mut();
        let Some(operation) = find(&mut table, id) else { return };
        let Some(node) = operation.node(rank) else { return };
        operation.note_asked(rank, now);
        let (key, epoch) = (operation.key.clone(), operation.layout.epoch());
        drop(table);
        if node != self.membership.own() {
            let asked = match self.peers.get(node) {
                Some(peer) => peer.read(id.get(), epoch, &key, wanted, self.grouping.get()).map(|_| ()),
                None => Err(Failure::Unreachable),
            };
            if let Err(failure) = asked {
                self.post(id.get(), node, ResponseKind::Read(ReadAnswer::Failed(failure)));
            }
        } else if wanted == Wanted::VersionAtClock && !self.clock.is_present_durable() {
            let operations = self.clone();
            tokio::task::spawn_local(async move {
                match operations.make_clock_durable().await {
                    Ok(()) => operations.ask_own(id, operations.clock.boot(), &key, epoch),
                    Err(failure) => operations.post(id.get(), node, ResponseKind::Own(ReadAnswer::Failed(failure))),
                }
                operations.handle_inbox(operations.clock.boot());
            });
        } else {
            self.ask_own(id, now, &key, epoch);
        }
    }

    fn ask_own(&self, id: OperationId, now: Duration, key: &Key, epoch: u64) {
        match self.replica.read(key, epoch, AnswerCounts::InQuorum, || ReplyTo::Operation(id)) {
            Some(held) => self.post(id.get(), self.membership.own(), ResponseKind::Own(held)),
            None => self.own_disk.asked(|| now),
        }
    }

    /// Sends the newest record to a replica; every version that is written back is a round of its own.
    fn write_back(&self, id: OperationId, now: Duration, rank: Rank, record: &Record) {
        let mut table = self.table.borrow_mut();
        let Some(operation) = find(&mut table, id) else { return };
        let Some(node) = operation.node(rank) else { return };
        if let StateMachine::Read { write_back, .. } = &mut operation.machine
            && *write_back != record.version()
        {
            *write_back = record.version();
            operation.round = operation.round.wrapping_add(1);
            operation.storing = kvorum_core::quorum::ReplicaSet::EMPTY;
        }
        operation.storing.insert(rank);
        let (key, id) = (operation.key.clone(), id.with_round(operation.round));
        let epoch = operation.layout.epoch();
        drop(table);
        self.metrics.write_backs.fetch_add(1, Ordering::Relaxed);
        let age_ms = self.clock.wall_ms().saturating_sub(record.version().hlc.millis());
        self.behind.note(node, Duration::from_millis(age_ms), now);
        if let Err(failure) = self.send_store(id, epoch, node, &key, record, StoreReason::Repair) {
            self.post(id.get(), node, ResponseKind::Stored(StoreAnswer::Failed(failure)));
        }
    }

    fn found(&self, id: OperationId, now: Duration, value: Held<Record>, expiry: Expiry) {
        let mut table = self.table.borrow_mut();
        let Some(operation) = find(&mut table, id) else { return };
        let receipt = (operation.with_receipt == WithReceipt::Yes).then(|| operation.receipt());
        let took = now.saturating_sub(operation.started);
        if self.metrics.slow.is_slow(took) && !operation.is_decided {
            let is_there = matches!(&value, Held::Record(record) if !record.is_tombstone() && expiry != Expiry::Passed);
            self.note_slow(operation, took, if is_there { 200 } else { 404 });
        }
        operation.decide(Ok(Outcome::Found(ReadResult { value, expiry, receipt })));
        self.repair(operation, now);
    }

    #[cold]
    fn note_slow(&self, operation: &Operation, took: Duration, status: u16) {
        self.metrics.slow.note(SlowRequest {
            at_ms: self.clock.wall_ms(),
            took,
            queued: operation.queued,
            operation: match &operation.machine {
                StateMachine::Read { .. } => "GET",
                StateMachine::Write { record, .. } if record.is_tombstone() => "DELETE",
                StateMachine::Write { .. } => "PUT",
            },
            hash: operation.key.hash(),
            quorum: operation.quorum,
            status,
            replicas: operation.slow_replicas(),
        });
    }

    /// Counts the answers that the request lacks.
    fn note_missing(&self, operation: &Operation, receipt: &Receipt) {
        let name = match &operation.machine {
            StateMachine::Read { .. } => "read",
            StateMachine::Write { .. } => "write",
        };
        for (node, replica) in operation.replicas().iter().zip(&receipt.replicas) {
            if !matches!(replica.outcome, "accepted" | "record" | "version" | "absent" | "written-back") {
                let missing = MissingAnswer { operation: name, cause: replica.outcome, replica: *node };
                self.metrics.note_missing(missing);
            }
        }
    }

    pub(super) fn decide_not_enough(&self, operation: &mut Operation) {
        if operation.is_decided {
            return;
        }
        let (required, acked, receipt) = (operation.quorum.required(), operation.acked(), operation.receipt());
        let overloaded = failure_name(Failure::Overloaded);
        // A read has no effect, and where a replica had no room for it now there may be some later.
        if matches!(operation.machine, StateMachine::Read { .. })
            && receipt.replicas.iter().any(|replica| replica.outcome == overloaded)
        {
            return operation.decide(Err(Refused::Overloaded));
        }
        self.note_missing(operation, &receipt);
        let took = self.clock.boot().saturating_sub(operation.started);
        if self.metrics.slow.is_slow(took) {
            self.note_slow(operation, took, 504);
        }
        operation.decide(Err(Refused::NotEnough { required, acked, receipt }));
    }

    /// Starts a blocked write over with a newer timestamp; waits for the clock's bound if it must. A timestamp that
    /// replicas would refuse is not tried.
    fn retry_with_higher_timestamp(self: &Rc<Self>, id: OperationId, above: Version) {
        self.metrics.timestamp_retries.fetch_add(1, Ordering::Relaxed);
        if is_on(Mutant::RetryNotAbove) {
            return self.retry_carelessly(id);
        }
        match self.clock.timestamp(above.hlc) {
            Ok(version) => self.send_retry(id, version),
            Err(NoTimestamp::TooFarAhead) => self.give_up(id),
            Err(NoTimestamp::PastBound { .. }) => {
                let operations = self.clone();
                // Ends with the timestamp's own limits; the request's deadline goes on meanwhile.
                tokio::task::spawn_local(async move {
                    let timestamped = operations.timestamp(above.hlc).await;
                    match timestamped {
                        Ok(version) => operations.send_retry(id, version),
                        Err(_) => operations.give_up(id),
                    }
                    operations.handle_inbox(operations.clock.boot());
                });
            }
        }
    }

    /// [`Mutant::RetryNotAbove`].
    fn retry_carelessly(self: &Rc<Self>, id: OperationId) {
        let first = find(&mut self.table.borrow_mut(), id).and_then(|operation| match &operation.machine {
            StateMachine::Write { record, .. } => Some(record.version()),
            StateMachine::Read { .. } => None,
        });
        if let Some(first) = first {
            self.send_retry(id, Version { hlc: first.hlc.next(), ..first });
        }
    }

    fn give_up(&self, id: OperationId) {
        if let Some(operation) = find(&mut self.table.borrow_mut(), id) {
            self.decide_not_enough(operation);
        }
    }

    fn send_retry(self: &Rc<Self>, id: OperationId, version: Version) {
        let mut table = self.table.borrow_mut();
        let Some(operation) = find(&mut table, id).filter(|operation| !operation.is_decided) else { return };
        let StateMachine::Write { machine, record, attempts } = &mut operation.machine else { return };
        if !rules::is_above_all_seen(version, machine.newest()) {
            // An answer that came while the bound was raised showed something newer still.
            let above = machine.newest();
            drop(table);
            return self.retry_with_higher_timestamp(id, above);
        }
        // A copy, and charged as one for as long as the first is on its way.
        let Ok(retried) = self.large_values.keep(record.with_version(&operation.key, version)) else {
            return self.decide_not_enough(operation);
        };
        *record = retried;
        attempts.add(machine.retried());
        operation.round = operation.round.wrapping_add(1);
        operation.forget_notes();
        let id = id.with_round(operation.round);
        drop(table);
        self.send_write(id);
    }
}

/// A failure as receipts and metrics name it.
#[must_use]
pub fn failure_name(failure: Failure) -> &'static str {
    match failure {
        Failure::Unreachable => "unreachable",
        Failure::Timeout => "timeout",
        Failure::Overloaded => "overloaded",
        Failure::DiskFull => "disk-full",
        Failure::Disk => "disk-failed",
        Failure::Corrupt => "corrupt",
        Failure::Rebuilding => "rebuilding",
        Failure::ClockSkew => "clock-skew",
        Failure::NotServing => "not-serving",
        Failure::Epoch => "other-layout",
    }
}
