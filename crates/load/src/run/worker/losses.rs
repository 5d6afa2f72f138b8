//! What becomes of connections that fail, and of requests that have no answer.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{ConnectionState, InFlightRequest, PAUSE, RunPhase, TICK, Worker};
use crate::numbers::count;
use crate::record::RequestFailure;

impl Worker {
    /// An answer that came over its time, and before the tick that would have given its connection up.
    pub(super) fn take_late(&mut self, id: usize, flight: &InFlightRequest, now: Instant) {
        self.flights -= 1;
        self.ended(id, flight, false);
        if self.counts_loss(flight) {
            self.tally.timeouts += 1;
            self.interval_at(now).errors += 1;
        }
        self.release(id, now);
    }

    /// The connection is of no use any more: what was under way on it failed, by a timeout if no failure is given.
    pub(super) fn lose(&mut self, id: usize, failure: Option<RequestFailure>) {
        let now = Instant::now();
        let measured = self.is_measured();
        let connection = self.connection(id);
        // One that never answered is not tried again at once.
        let pause = if connection.answered > 0 { Duration::ZERO } else { PAUSE };
        let flights = connection.abandon(now + pause);
        if let Some(alone @ (RequestFailure::Connect | RequestFailure::Unasked)) = failure
            && measured
        {
            self.tally.fail(alone);
            self.interval_at(now).errors += 1;
        }
        for flight in flights {
            self.flights -= 1;
            self.ended(id, &flight, false);
            if self.counts_loss(&flight) {
                match failure {
                    Some(failure) => self.tally.fail(failure),
                    None if now.duration_since(flight.sent) >= self.job.timeout => self.tally.timeouts += 1,
                    // Behind the one that took too long, on the same connection.
                    None => self.tally.fail(RequestFailure::Closed),
                }
                self.interval_at(now).errors += 1;
            }
        }
        if pause.is_zero() && !matches!(self.phase, RunPhase::Drain(_)) {
            self.connect(id, now);
        }
    }

    pub(super) fn connect(&mut self, id: usize, now: Instant) {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let connection = self.connections.get_mut(id).expect("connections are made once and never dropped");
        let begun = connection.connect(now).and_then(|stream| {
            epoll::add(&self.epoll, stream, EventData::new_u64(count(id)), flags).map_err(io::Error::from)
        });
        if begun.is_err() {
            self.lose(id, Some(RequestFailure::Connect));
        }
    }

    /// Ten times a second: timeouts, connections to be made again, the seconds that have passed.
    pub(super) fn tick(&mut self, now: Instant) {
        self.next_tick = now + TICK;
        let drains = matches!(self.phase, RunPhase::Drain(_));
        for id in 0..self.connections.len() {
            // Looked at each time: to connect may take long, where no port is free.
            let is_stopped = self.job.stop.load(Ordering::Relaxed);
            let timeout = self.job.timeout;
            let over = |since: Instant| now.saturating_duration_since(since) >= timeout;
            let connection = self.connection(id);
            match connection.state {
                ConnectionState::Down(until) if until <= now && !drains && !is_stopped => self.connect(id, now),
                ConnectionState::Connecting(since) if over(since) => self.lose(id, Some(RequestFailure::Connect)),
                ConnectionState::Open if connection.flights.front().is_some_and(|flight| over(flight.sent)) => {
                    self.lose(id, None)
                }
                _ => {}
            }
        }
        if self.phase != RunPhase::Warmup {
            self.interval_at(now);
        }
    }

    /// Gives up what is under way when there is no time left for it. That is within its limit still if there was an
    /// interrupt: then it is unknown whether it would have been answered.
    pub(super) fn give_up(&mut self) {
        let now = Instant::now();
        for id in 0..self.connections.len() {
            for flight in self.connection(id).abandon(now) {
                self.ended(id, &flight, false);
                let is_over = now.duration_since(flight.sent) >= self.job.timeout;
                let counts = self.counts_loss(&flight);
                self.tally.timeouts += u64::from(counts && is_over);
                self.tally.unanswered += u64::from(counts && !is_over);
                self.interval_at(now).errors += u64::from(counts && is_over);
            }
        }
    }
}
