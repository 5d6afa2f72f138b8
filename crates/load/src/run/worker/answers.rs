//! What an answer means, for the counts and for the keys.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{InFlightRequest, RequestContent, Worker};
use crate::record::{RequestFailure, record};
use crate::run::answer::ReceivedResponse;
use crate::workload::ClientOperation;

/// The status of a target without room.
const NO_ROOM: u16 = 503;
/// Keys whose write failed that are remembered.
const FAILED_KEYS_MAX: usize = 100_000;

/// What a whole answer says of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerVerdict {
    Success,
    /// With this status: of a batch, that of its first operation that failed.
    Refused(u16),
    /// It does not have one outcome for each operation, or is a scan without its trailer.
    Broken(RequestFailure),
}

impl Worker {
    /// An answer is whole.
    pub(super) fn take_answer(&mut self, id: usize, answer: ReceivedResponse, now: Instant) {
        let connection = self.connection(id);
        let Some(flight) = connection.flights.pop_front() else { return };
        connection.answered += 1;
        if now.saturating_duration_since(flight.sent) >= self.job.timeout {
            return self.take_late(id, &flight, now);
        }
        let counts = self.counts_answer(&flight);
        if counts {
            self.tally.status(answer.status);
        }
        if self.has_second(id, &flight, answer.status) {
            return;
        }
        let verdict = self.judge(id, &flight, answer.status, now);
        self.flights -= 1;
        self.ended(id, &flight, verdict == AnswerVerdict::Success);
        if counts {
            self.count_answer(verdict, &flight, now);
        }
        self.release(id, now);
    }

    /// Whether the answer is that to the first of two requests; the second goes out.
    fn has_second(&mut self, id: usize, flight: &InFlightRequest, status: u16) -> bool {
        let RequestContent::One { operation: ClientOperation::Modify, key, second: false } = flight.content else {
            return false;
        };
        if !self.job.workload.accepts(status) {
            return false;
        }
        let connection = self.connections.get_mut(id).expect("connections are made once and never dropped");
        let requests = self.job.requests.get(connection.target).expect("every target has its requests");
        requests.put(&mut connection.out, key, &self.job.values);
        let content = RequestContent::One { operation: ClientOperation::Modify, key, second: true };
        connection.flights.push_back(InFlightRequest { content, ..*flight });
        self.dirty.push(id);
        true
    }

    /// What an answer says of its request. What it says of single operations is counted.
    fn judge(&mut self, id: usize, flight: &InFlightRequest, status: u16, now: Instant) -> AnswerVerdict {
        match flight.content {
            RequestContent::Batch(_) if status >= 400 => AnswerVerdict::Refused(status),
            RequestContent::Batch(operations) => self.judge_batch(id, flight, operations, now),
            RequestContent::One { operation: ClientOperation::Scan, .. }
                if status < 400 && !self.connection(id).answers.is_whole_scan() =>
            {
                AnswerVerdict::Broken(RequestFailure::NoTrailer)
            }
            RequestContent::One { operation, .. } if self.job.workload.accepts(status) => {
                if self.counts_answer(flight) {
                    let is_in_time = now <= self.timeline.last;
                    self.tally.succeed_at(operation, now - flight.due, is_in_time);
                }
                AnswerVerdict::Success
            }
            RequestContent::One { .. } => AnswerVerdict::Refused(status),
        }
    }

    fn judge_batch(&mut self, id: usize, flight: &InFlightRequest, operations: usize, now: Instant) -> AnswerVerdict {
        let (counts, is_in_time) = (self.counts_answer(flight), now <= self.timeline.last);
        let connection = self.connections.get_mut(id).expect("connections are made once and never dropped");
        let outcomes = connection.answers.outcomes().filter(|outcomes| outcomes.len() == operations);
        let Some(outcomes) = outcomes else { return AnswerVerdict::Broken(RequestFailure::Protocol) };
        let workload = &self.job.workload;
        for ((operation, _), status) in connection.batched.iter().zip(outcomes).filter(|_| counts) {
            self.tally.outcome(*status);
            if workload.accepts(*status) {
                self.tally.succeed_at(*operation, now - flight.due, is_in_time);
            }
        }
        let failed = outcomes.iter().find(|status| !workload.accepts(**status));
        failed.map_or(AnswerVerdict::Success, |status| AnswerVerdict::Refused(*status))
    }

    /// Counts a request that was answered.
    fn count_answer(&mut self, verdict: AnswerVerdict, flight: &InFlightRequest, now: Instant) {
        let latency = now - flight.due;
        match verdict {
            AnswerVerdict::Success => {
                self.tally.succeed(latency, now - flight.sent);
                self.tally.in_time += u64::from(now <= self.timeline.last);
                record(&mut self.interval_at(now).latency, latency);
            }
            AnswerVerdict::Refused(status) => {
                self.tally.refuse(status, latency);
                let interval = self.interval_at(now);
                interval.errors += 1;
                if status == NO_ROOM {
                    record(&mut interval.shed, latency);
                }
            }
            AnswerVerdict::Broken(failure) => {
                self.tally.fail(failure);
                self.interval_at(now).errors += 1;
            }
        }
    }

    /// What a request's end means for its keys. Those of a batch have failed if one of them has: all are written again.
    pub(super) fn ended(&mut self, id: usize, flight: &InFlightRequest, success: bool) {
        match flight.content {
            RequestContent::One { operation, key, .. } => self.ended_at(operation, key, success),
            RequestContent::Batch(operations) => {
                for _ in 0..operations {
                    let (operation, key) =
                        self.connection(id).batched.pop_front().expect("it stays until its request ends");
                    self.ended_at(operation, key, success);
                }
            }
        }
        if success {
            self.job.done.fetch_add(flight.content.operations(), Ordering::Relaxed);
        }
    }

    fn ended_at(&mut self, operation: ClientOperation, key: u64, success: bool) {
        if operation == ClientOperation::Insert {
            self.job.keys.inserted(key, success);
        }
        if !success && self.job.operations_max.is_some() && self.failed_keys.len() < FAILED_KEYS_MAX {
            self.failed_keys.push(key);
        }
    }
}
