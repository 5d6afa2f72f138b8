//! One thread of the generator: an event loop over its connections.
//!
//! It sends what is due on a connection that can take it, the one that has waited longest first; reads answers;
//! counts. It sleeps in `epoll_pwait2` until the next due time, to the nanosecond and with no slack, but has its timer
//! wake it no more often than [`Alarm`] allows. Everything a request needs is made in place: no allocation, no lock.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventFlags};
use rustix::time::Timespec;

mod answers;
mod losses;

use super::answer::ResponseParser;
use super::connection::{Connection, ConnectionState, InFlightRequest, RequestContent};
use super::cost::ThreadCost;
use super::pace::{Alarm, DueTimes, Rate, second};
use crate::numbers::{count, index};
use crate::record::{Interval, RequestFailure, Tally, record};
use crate::workload::{ClientOperation, KeySource, OperationBatch, Requests, Values, Workload};

/// How often timeouts are looked for, and connections tried again.
const TICK: Duration = Duration::from_millis(100);
/// Before a connection that never answered is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// A request that is sent later than this after it was due is counted as late.
const LATE: Duration = Duration::from_millis(1);
/// For what is under way after an interrupt.
const INTERRUPT_DRAIN: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 256 << 10;
/// Full reads of one connection in a turn: a target that never ends its answers takes no more of the others' time.
const READS_MAX: usize = 16;
const EVENTS_MAX: usize = 512;
/// How much later than asked the system may wake a thread, in ns; by default 50 µs.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;

/// What a thread is to do.
#[derive(Debug)]
pub(super) struct WorkerJob {
    pub(super) thread: u64,
    pub(super) threads: u64,
    pub(super) rate: Rate,
    pub(super) pipeline: usize,
    /// Operations of a request; over 1, each is a batch.
    pub(super) batch: usize,
    pub(super) timeout: Duration,
    /// Operations to end after, instead of a time.
    pub(super) operations_max: Option<u64>,
    /// For each connection, its target and address.
    pub(super) connections: Vec<(usize, SocketAddr)>,
    /// For each target.
    pub(super) requests: Arc<Vec<Requests>>,
    pub(super) workload: Workload,
    pub(super) values: Arc<Values>,
    pub(super) keys: KeySource,
    pub(super) stop: Arc<AtomicBool>,
    /// Operations of requests that succeeded so far, of all threads.
    pub(super) done: Arc<AtomicU64>,
}

/// When a run warms up, is measured, and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    pub(super) begin: Instant,
    pub(super) measure: Instant,
    pub(super) end: Instant,
    /// Until when what was due before the end is sent, and answers are in time.
    pub(super) last: Instant,
}

/// What a thread reports while it runs, and at its end.
#[derive(Debug)]
pub(super) enum WorkerMessage {
    /// A second of the measured time has passed; each thread reports each second once, in order.
    Second(Box<Interval>),
    /// The thread has ended: what it counted, keys whose write failed, and when it stopped sending.
    Done(Box<Tally>, Vec<u64>, Instant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPhase {
    Warmup,
    Measure,
    /// The time is over: what was due in it is still sent.
    Overtime,
    /// Nothing more is sent; until this time.
    Drain(Instant),
}

/// A thread's state.
pub(super) struct Worker {
    job: WorkerJob,
    timeline: Timeline,
    phase: RunPhase,
    pace: Option<DueTimes>,
    connections: Vec<Connection>,
    /// Those that can take a request, longest first. May hold some that cannot any more.
    free: VecDeque<usize>,
    /// Those that have something to write.
    dirty: Vec<usize>,
    /// Those that may have more to read than their turn allowed, and whether they have ended.
    unread: Vec<(usize, bool)>,
    flights: usize,
    operations_left: u64,
    /// The batch that is made.
    batch: OperationBatch,
    epoll: OwnedFd,
    next_tick: Instant,
    alarm: Alarm,
    events: Vec<Event>,
    scratch: Vec<u8>,
    tally: Tally,
    failed_keys: Vec<u64>,
    interval: Interval,
    /// The second that `interval` is of.
    second: usize,
    /// Where the measured time began, and what it cost.
    cost_begin: ThreadCost,
    cost: ThreadCost,
    notes: SyncSender<(u64, WorkerMessage)>,
}

impl Worker {
    /// Makes everything that a thread needs, and begins to connect.
    pub(super) fn new(job: WorkerJob, notes: SyncSender<(u64, WorkerMessage)>) -> io::Result<Self> {
        let now = Instant::now();
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let answers = || match job.batch {
            1 if job.workload.has(ClientOperation::Scan) => ResponseParser::with_scan_ends(),
            1 => ResponseParser::new(),
            _ => ResponseParser::with_outcomes(),
        };
        let connection = |(target, address): &_| Connection::new(*target, *address, now, answers());
        let connections = job.connections.iter().map(connection);
        let mut worker = Self {
            connections: connections.collect(),
            timeline: Timeline { begin: now, measure: now, end: now, last: now },
            // Nothing is sent before the timeline begins.
            phase: RunPhase::Drain(now),
            pace: None,
            free: VecDeque::new(),
            dirty: Vec::new(),
            unread: Vec::new(),
            flights: 0,
            operations_left: job.operations_max.unwrap_or(u64::MAX),
            batch: OperationBatch::new(job.batch),
            epoll,
            next_tick: now,
            alarm: Alarm::new(now),
            events: Vec::with_capacity(EVENTS_MAX),
            scratch: vec![0; READ_BYTES],
            tally: Tally::default(),
            failed_keys: Vec::new(),
            interval: Interval::default(),
            second: 0,
            cost_begin: ThreadCost::default(),
            // Nothing is measured yet, and nothing is where the warm-up is interrupted.
            cost: ThreadCost::default(),
            notes,
            job,
        };
        for id in 0..worker.connections.len() {
            // Where no port is free the system takes long to fail.
            if worker.job.stop.load(Ordering::Relaxed) {
                break;
            }
            worker.connect(id, now);
        }
        Ok(worker)
    }

    /// Waits until every connection is made or has failed, at most the time that a request has, or an interrupt.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + self.job.timeout;
        let undecided =
            |worker: &Self| worker.connections.iter().any(|one| matches!(one.state, ConnectionState::Connecting(_)));
        while undecided(self) && Instant::now() < deadline && !self.job.stop.load(Ordering::Relaxed) {
            self.wait(Instant::now() + TICK)?;
        }
        self.tally = Tally::default();
        Ok(())
    }

    /// Runs to the end of the timeline and of what is under way then.
    pub(super) fn run(mut self, timeline: Timeline) -> io::Result<()> {
        // Where the system refuses, requests are sent later, and that is counted.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
        self.timeline = timeline;
        self.next_tick = timeline.begin;
        self.enter(RunPhase::Warmup, timeline.begin);
        self.cost_begin = ThreadCost::now();
        loop {
            let now = Instant::now();
            self.step_phase(now);
            if let RunPhase::Drain(until) = self.phase
                && (self.flights == 0 || now >= until)
            {
                break;
            }
            if now >= self.next_tick {
                self.tick(now);
            }
            self.dispatch(now);
            self.flush();
            self.wait(self.next_wake())?;
        }
        self.finish();
        Ok(())
    }

    fn enter(&mut self, phase: RunPhase, origin: Instant) {
        self.phase = phase;
        if let Rate::PerSecond(rate) = self.job.rate {
            self.pace = Some(DueTimes::new(origin, rate, self.job.thread, self.job.threads));
        }
    }

    /// The schedule begins anew with the measured time: what the warm-up could not send is not carried into it.
    fn step_phase(&mut self, now: Instant) {
        if self.phase == RunPhase::Warmup && now >= self.timeline.measure {
            self.enter(RunPhase::Measure, self.timeline.measure);
            // A thread that had no processor until the end has waited for one all that time, and since before it.
            if now < self.timeline.end {
                self.cost_begin = ThreadCost::now();
            }
        }
        let stopped = self.job.stop.load(Ordering::Relaxed);
        if let RunPhase::Drain(until) = self.phase {
            let until = if stopped { until.min(now + INTERRUPT_DRAIN) } else { until };
            self.phase = RunPhase::Drain(until);
            return;
        }
        let all_sent = self.operations_left == 0;
        if !(stopped || all_sent || now >= self.timeline.end) {
            return;
        }
        if stopped || all_sent {
            self.timeline.end = self.timeline.end.min(now);
            self.timeline.last = self.timeline.end;
        }
        if self.phase == RunPhase::Measure {
            self.cost = self.cost_begin.until_now();
            if self.timeline.last > self.timeline.end {
                // What is due at the very end cannot have its answer sooner, however fast the target is.
                self.timeline.last += Duration::from_micros(self.tally.latency.min());
            }
            self.phase = RunPhase::Overtime;
        }
        if self.phase == RunPhase::Overtime {
            self.tally.unsent = self.pace.map_or(0, |pace| pace.unsent(self.timeline.end));
            if self.tally.unsent > 0 && now < self.timeline.last {
                return;
            }
        }
        self.phase = RunPhase::Drain(now + if stopped { INTERRUPT_DRAIN } else { self.job.timeout + TICK * 2 });
    }

    fn phase_end(&self) -> Instant {
        match self.phase {
            RunPhase::Warmup => self.timeline.measure,
            RunPhase::Measure => self.timeline.end,
            RunPhase::Overtime => self.timeline.last,
            RunPhase::Drain(until) => until,
        }
    }

    /// When there is something to do even if nothing comes.
    fn next_wake(&self) -> Instant {
        let wake = self.next_tick.min(self.phase_end());
        match &self.pace {
            Some(pace) if !self.free.is_empty() && !matches!(self.phase, RunPhase::Drain(_)) => wake.min(pace.due()),
            _ => wake,
        }
    }

    /// Hands out what is due, as far as connections can take it.
    fn dispatch(&mut self, now: Instant) {
        if matches!(self.phase, RunPhase::Drain(_)) {
            return;
        }
        while self.next_due(now).is_some() {
            let Some(id) = self.next_free() else { return };
            // All that is due and the connection can take goes out in one write.
            while let Some(due) = self.next_due(now).filter(|_| self.has_room(id)) {
                self.send(id, due, now);
            }
            self.release(id, now);
        }
    }

    /// When the next request is due, if that is now or was before: in a closed loop always now.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        let due = self.pace.as_ref().map_or(now, DueTimes::due);
        let before = if self.phase == RunPhase::Warmup { self.timeline.measure } else { self.timeline.end };
        (self.operations_left > 0 && due <= now && due < before).then_some(due)
    }

    /// Whether what is sent, and what fails, counts.
    fn is_measured(&self) -> bool {
        matches!(self.phase, RunPhase::Measure | RunPhase::Overtime)
    }

    /// Whether the measured time has begun; it has not if the warm-up was interrupted.
    fn has_measured(&self) -> bool {
        self.is_measured() || matches!(self.phase, RunPhase::Drain(_)) && self.timeline.end > self.timeline.measure
    }

    /// Whether an answer that comes now counts. A closed loop has as many requests under way when its time begins as
    /// when that ends: by when they were sent, its rate would lack an answer of each connection. What has a number of
    /// operations waits for the last of them.
    fn counts_answer(&self, flight: &InFlightRequest) -> bool {
        if self.counts_by_arrival() { self.is_measured() } else { flight.measured }
    }

    fn counts_by_arrival(&self) -> bool {
        self.pace.is_none() && self.job.operations_max.is_none()
    }

    /// Whether it counts that there is none, which is found out after the end, too.
    fn counts_loss(&self, flight: &InFlightRequest) -> bool {
        flight.measured || self.counts_answer(flight)
    }

    fn has_room(&self, id: usize) -> bool {
        self.connections.get(id).is_some_and(|one| one.has_room(self.job.pipeline))
    }

    fn next_free(&mut self) -> Option<usize> {
        loop {
            let id = self.free.pop_front()?;
            self.connection(id).queued = false;
            if self.has_room(id) {
                return Some(id);
            }
        }
    }

    /// Queues a connection if it can take a request.
    fn release(&mut self, id: usize, now: Instant) {
        if self.has_room(id) && !self.connection(id).queued {
            let connection = self.connection(id);
            connection.queued = true;
            connection.free_since = now;
            self.free.push_back(id);
        }
    }

    fn connection(&mut self, id: usize) -> &mut Connection {
        self.connections.get_mut(id).expect("connections are made once and never dropped")
    }

    /// A batch, or one operation's first request.
    fn send(&mut self, id: usize, due: Instant, now: Instant) {
        let measured = self.is_measured();
        let content = if self.job.batch > 1 { self.begin_batch(id) } else { self.begin_one(id) };
        let connection = self.connections.get_mut(id).expect("connections are made once and never dropped");
        connection.flights.push_back(InFlightRequest { content, due, sent: now, measured });
        if measured && self.pace.is_some() {
            let free_since = connection.free_since;
            record(&mut self.tally.lag, now.saturating_duration_since(due.max(free_since)));
            self.tally.late_sends += u64::from(now.saturating_duration_since(due) > LATE);
        }
        if measured {
            self.interval_at(now).sent += 1;
        }
        self.flights += 1;
        self.operations_left -= content.operations();
        self.dirty.push(id);
        if let Some(pace) = self.pace.as_mut() {
            pace.advance();
        }
    }

    fn begin_one(&mut self, id: usize) -> RequestContent {
        let operation = self.job.workload.draw(&mut self.job.keys.random);
        let key = if operation == ClientOperation::Insert { self.job.keys.fresh() } else { self.job.keys.existing() };
        let connection = self.connections.get_mut(id).expect("connections are made once and never dropped");
        let requests = self.job.requests.get(connection.target).expect("every target has its requests");
        requests.begin(&mut connection.out, operation, key, &self.job.values, &mut self.job.keys.random);
        RequestContent::One { operation, key, second: false }
    }

    /// Of fewer operations where no more are left.
    fn begin_batch(&mut self, id: usize) -> RequestContent {
        let connection = self.connections.get_mut(id).expect("connections are made once and never dropped");
        let operations = self.job.batch.min(index(self.operations_left));
        self.batch.clear();
        for _ in 0..operations {
            let drawn = self.batch.draw(&self.job.workload, &mut self.job.keys, &self.job.values);
            connection.batched.push_back(drawn);
        }
        let requests = self.job.requests.get(connection.target).expect("every target has its requests");
        requests.batch(&mut connection.out, self.batch.body());
        RequestContent::Batch(operations)
    }

    fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            match self.connection(id).flush() {
                Ok(bytes) => self.tally.bytes_written += bytes * u64::from(self.is_measured()),
                Err(_) => self.lose(id, Some(RequestFailure::Reset)),
            }
        }
        self.dirty = dirty;
    }

    /// Sleeps until something comes or it is time, and takes what came. All that came is read, and its time taken,
    /// before anything is sent again: no answer waits for the generator's own writes.
    fn wait(&mut self, until: Instant) -> io::Result<()> {
        let unread = std::mem::take(&mut self.unread);
        let now = Instant::now();
        let wake = if unread.is_empty() && until > now { self.alarm.at(until, self.phase_end()) } else { now };
        let left = wake.saturating_duration_since(now);
        let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut events = std::mem::take(&mut self.events);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(0) if !left.is_zero() => self.alarm.note(wake),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            self.take_event(index(event.data.u64()), event.flags);
        }
        self.events = events;
        for (id, ended) in unread {
            // Unless it was lost meanwhile, and is being made again.
            if matches!(self.connection(id).state, ConnectionState::Open) {
                self.read(id, ended);
            }
        }
        Ok(())
    }

    fn take_event(&mut self, id: usize, flags: EventFlags) {
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if let ConnectionState::Connecting(_) = self.connection(id).state {
            let error = self.connection(id).stream.as_ref().map(std::net::TcpStream::take_error);
            if ended || !matches!(error, Some(Ok(None))) {
                return self.lose(id, Some(RequestFailure::Connect));
            }
            if !flags.contains(EventFlags::OUT) {
                return;
            }
            self.connection(id).state = ConnectionState::Open;
            self.release(id, Instant::now());
        }
        if flags.contains(EventFlags::OUT) && !self.connection(id).out.is_empty() {
            self.dirty.push(id);
        }
        if ended || flags.contains(EventFlags::IN) {
            self.read(id, ended);
        }
    }

    /// Edge-triggered: reads all there is, if need be in several turns. Where less came than there was room for,
    /// nothing is left.
    fn read(&mut self, id: usize, ended: bool) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut reads = 0;
        while let Some(mut stream) = self.connection(id).stream.as_ref() {
            if reads == READS_MAX {
                self.unread.push((id, ended));
                break;
            }
            reads += 1;
            let received = match stream.read(&mut scratch) {
                Ok(0) => {
                    self.take_end(id);
                    break;
                }
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.lose(id, Some(RequestFailure::Reset));
                    break;
                }
            };
            self.take_bytes(id, scratch.get(..received).unwrap_or_default());
            if received < scratch.len() && !ended {
                break;
            }
        }
        self.scratch = scratch;
    }

    fn take_bytes(&mut self, id: usize, mut bytes: &[u8]) {
        let now = Instant::now();
        let counts = if self.counts_by_arrival() { self.is_measured() } else { self.has_measured() };
        self.tally.bytes_read += count(bytes.len()) * u64::from(counts);
        while !bytes.is_empty() {
            if self.connection(id).flights.is_empty() {
                return self.lose(id, Some(RequestFailure::Unasked));
            }
            let Ok((taken, answer)) = self.connection(id).answers.take(bytes) else {
                return self.lose(id, Some(RequestFailure::Protocol));
            };
            bytes = bytes.get(taken..).unwrap_or_default();
            if let Some(answer) = answer {
                self.take_answer(id, answer, now);
                if answer.closes {
                    return self.lose(id, Some(RequestFailure::Closed));
                }
            }
        }
    }

    /// The server closed the connection: an answer without a length is whole now, others are not.
    fn take_end(&mut self, id: usize) {
        if let Some(answer) = self.connection(id).answers.close() {
            self.take_answer(id, answer, Instant::now());
        }
        self.lose(id, Some(RequestFailure::Closed));
    }

    /// The counts of the current second; those of the seconds before it are reported.
    fn interval_at(&mut self, now: Instant) -> &mut Interval {
        let second = second(self.timeline.measure, now);
        while self.second < second {
            self.second += 1;
            let end = self.timeline.measure + Duration::from_secs(count(self.second));
            let mut interval = std::mem::take(&mut self.interval);
            // What was due at the very end is on its way.
            let due = end.min(self.timeline.end).checked_sub(LATE).unwrap_or(end);
            interval.unsent = self.pace.map_or(0, |pace| pace.unsent(due));
            // The receiver may be gone: then it reports nothing.
            let _ = self.notes.send((self.job.thread, WorkerMessage::Second(Box::new(interval))));
        }
        &mut self.interval
    }

    fn finish(mut self) {
        self.give_up();
        self.cost.store(&mut self.tally);
        self.interval.unsent = self.tally.unsent;
        let _ = self.notes.send((self.job.thread, WorkerMessage::Second(Box::new(self.interval))));
        let _ = self
            .notes
            .send((self.job.thread, WorkerMessage::Done(Box::new(self.tally), self.failed_keys, self.timeline.end)));
    }
}
