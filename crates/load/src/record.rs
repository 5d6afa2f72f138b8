//! What is counted while requests run.
//!
//! Latencies are of answers that are a success, in microseconds, with three significant digits from 1 µs to 60 s;
//! what takes longer counts as 60 s. Everything else is counted apart.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::numbers::micros;
use crate::workload::ClientOperation;

/// The longest latency that is distinguished, in µs.
const LATENCY_MAX_US: u64 = 60_000_000;

/// An empty histogram of latencies.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("these bounds are valid")
}

/// Why a request got no answer. Timeouts are none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestFailure {
    /// A connection could not be made; it had no request.
    Connect,
    /// The connection was reset or failed.
    Reset,
    /// The connection was closed before the answer was whole.
    Closed,
    /// What came is not HTTP/1.1, or has not one outcome for each operation of a batch.
    Protocol,
    /// A scan's answer ended without its trailer: it may lack anything.
    NoTrailer,
    /// Something came although no request was under way; it had no request.
    Unasked,
}

impl RequestFailure {
    /// As reports name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::NoTrailer => "no_trailer",
            Self::Unasked => "unasked",
        }
    }
}

/// What one thread, or all of them, have counted in the measured time.
#[derive(Clone, Debug)]
pub struct Tally {
    /// From when a request was due to the end of its answer.
    pub latency: Histogram<u64>,
    /// From when it was sent: what a generator sees that omits the wait before it.
    pub service: Histogram<u64>,
    /// How late requests were sent although a connection was free for them: the generator's own part.
    pub lag: Histogram<u64>,
    /// As `latency`, of each operation; of a batch, of those of its operations that succeeded.
    pub operations: BTreeMap<ClientOperation, Histogram<u64>>,
    /// Single operations of batches by status.
    pub outcomes: BTreeMap<u16, u64>,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Of these, those that are no success; batches by the status of the first operation that is none.
    pub refused: BTreeMap<u16, u64>,
    /// As `latency`, of answers that are no success.
    pub refusal: Histogram<u64>,
    /// Requests without an answer.
    pub failures: BTreeMap<RequestFailure, u64>,
    /// Requests without an answer within their limit.
    pub timeouts: u64,
    /// Requests sent more than 1 ms after they were due.
    pub late_sends: u64,
    /// Requests that were due and never sent.
    pub unsent: u64,
    /// Requests under way when an interrupt ended the run, before their limit had passed.
    pub unanswered: u64,
    /// Requests that succeeded before the end of the measured time, or in the grace after it; an operation of two is one.
    pub in_time: u64,
    /// The same of single operations, also where others of their batch failed.
    pub operations_in_time: u64,
    /// Bytes received.
    pub bytes_read: u64,
    /// Bytes sent.
    pub bytes_written: u64,
    /// The time of all threads, of which `busy` and `kept_waiting` are parts.
    pub thread_time: Duration,
    /// The threads' processor time.
    pub busy: Duration,
    /// How long threads were ready to run and another process had the processor; none where the system does not show
    /// it.
    pub kept_waiting: Option<Duration>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            latency: histogram(),
            service: histogram(),
            lag: histogram(),
            operations: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            statuses: BTreeMap::new(),
            refused: BTreeMap::new(),
            refusal: histogram(),
            failures: BTreeMap::new(),
            timeouts: 0,
            late_sends: 0,
            unsent: 0,
            unanswered: 0,
            in_time: 0,
            operations_in_time: 0,
            bytes_read: 0,
            bytes_written: 0,
            thread_time: Duration::ZERO,
            busy: Duration::ZERO,
            kept_waiting: Some(Duration::ZERO),
        }
    }
}

impl Tally {
    /// Operations that ended, well or badly; a batch is one.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let without =
            [RequestFailure::Connect, RequestFailure::Unasked].iter().filter_map(|failure| self.failures.get(failure));
        self.latency.len() + self.error_count() - without.sum::<u64>() + self.timeouts
    }

    /// What went wrong, timeouts apart: refused and failed requests, and what had no request.
    #[must_use]
    pub fn error_count(&self) -> u64 {
        self.refused.values().sum::<u64>() + self.failures.values().sum::<u64>()
    }

    pub(crate) fn succeed(&mut self, latency: Duration, service: Duration) {
        record(&mut self.latency, latency);
        record(&mut self.service, service);
    }

    /// A single operation has succeeded.
    pub(crate) fn succeed_at(&mut self, operation: ClientOperation, latency: Duration, is_in_time: bool) {
        record(self.operations.entry(operation).or_insert_with(histogram), latency);
        self.operations_in_time += u64::from(is_in_time);
    }

    /// A single operation of a batch was answered with this.
    pub(crate) fn outcome(&mut self, status: u16) {
        *self.outcomes.entry(status).or_default() += 1;
    }

    pub(crate) fn status(&mut self, status: u16) {
        *self.statuses.entry(status).or_default() += 1;
    }

    pub(crate) fn refuse(&mut self, status: u16, latency: Duration) {
        record(&mut self.refusal, latency);
        *self.refused.entry(status).or_default() += 1;
    }

    pub(crate) fn fail(&mut self, failure: RequestFailure) {
        *self.failures.entry(failure).or_default() += 1;
    }

    /// Adds what another thread has counted.
    pub fn add(&mut self, other: &Self) {
        let add = |into: &mut Histogram<u64>, from| into.add(from).expect("all histograms have the same bounds");
        add(&mut self.latency, &other.latency);
        add(&mut self.service, &other.service);
        add(&mut self.lag, &other.lag);
        add(&mut self.refusal, &other.refusal);
        for (operation, histogram_of) in &other.operations {
            add(self.operations.entry(*operation).or_insert_with(histogram), histogram_of);
        }
        let sum = |into: &mut BTreeMap<u16, u64>, from: &BTreeMap<u16, u64>| {
            from.iter().for_each(|(status, count)| *into.entry(*status).or_default() += count);
        };
        sum(&mut self.outcomes, &other.outcomes);
        sum(&mut self.statuses, &other.statuses);
        sum(&mut self.refused, &other.refused);
        other.failures.iter().for_each(|(failure, count)| *self.failures.entry(*failure).or_default() += count);
        self.timeouts += other.timeouts;
        self.late_sends += other.late_sends;
        self.unsent += other.unsent;
        self.unanswered += other.unanswered;
        self.in_time += other.in_time;
        self.operations_in_time += other.operations_in_time;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.thread_time += other.thread_time;
        self.busy += other.busy;
        self.kept_waiting = self.kept_waiting.zip(other.kept_waiting).map(|(ours, theirs)| ours + theirs);
    }
}

/// What happened in one second.
#[derive(Clone, Debug)]
pub struct Interval {
    /// As [`Tally::latency`], of the answers that came in this second.
    pub latency: Histogram<u64>,
    /// What ended badly, timeouts included.
    pub errors: u64,
    /// As `latency`, of those among them that were answered 503: the target had no room.
    pub shed: Histogram<u64>,
    /// Requests that were sent in it.
    pub sent: u64,
    /// Requests that were due by its end, and not sent by then.
    pub unsent: u64,
}

impl Default for Interval {
    fn default() -> Self {
        Self { latency: histogram(), errors: 0, shed: histogram(), sent: 0, unsent: 0 }
    }
}

impl Interval {
    pub(crate) fn add(&mut self, other: &Self) {
        let add = |into: &mut Histogram<u64>, from| into.add(from).expect("all histograms have the same bounds");
        add(&mut self.latency, &other.latency);
        add(&mut self.shed, &other.shed);
        self.errors += other.errors;
        self.sent += other.sent;
        self.unsent += other.unsent;
    }
}

/// Records a time in a histogram of microseconds. What is longer than the longest that is distinguished counts as that:
/// the histogram itself has room for a tenth more, which would put the longest below the long.
pub(crate) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(micros(time).min(LATENCY_MAX_US));
}
