//! What a connection is doing and since when, so that one sweep per shard finds the overdue ones.
//!
//! Connections and requests start no timers: they leave a phase and a coarse time here, which costs a
//! few stores, and the sweeper compares them with the limits every [`SWEEP_EVERY`]. A limit is thus
//! enforced between one and three sweeps late, and never early.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::task::{Context, Waker};
use std::time::Duration;

use super::answer_lines::AnswerLines;
use super::error::Shed;
use super::settings::HttpSettings;

/// How often connections are looked at.
pub(super) const SWEEP_EVERY: Duration = Duration::from_millis(250);
/// An idle connection keeps its buffers for this long.
const PARK_AFTER: Duration = Duration::from_secs(2);
/// A connection in a seat of peers has so long for its first request.
const PEERS_TIMEOUT: Duration = Duration::from_secs(1);
/// Time of waiting for a client over which its rate is taken.
const RATE_OVER: Duration = Duration::from_secs(30);
/// A connection that this side ends waits this long for the other to notice.
const LINGER: Duration = Duration::from_secs(1);

/// Since the shard started, as of the last sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CoarseClock(pub Duration);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// Without buffers, waiting for a first byte.
    Parked,
    /// Between requests.
    Idle,
    /// A head has begun.
    Head,
    /// The head is there and the body is not.
    Body,
    /// The answer is being made, or streamed.
    Serving,
    /// This side has sent everything.
    Closing,
}

/// Which requests a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeatKind {
    /// All.
    Any,
    /// Those of peers: clients have taken all other seats, or those of their address.
    PeersOnly(Shed),
}

/// What the connection's task shall do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Give the buffers back.
    Park,
    /// Answer 408 and close.
    TimedOut,
    /// Close without a word: idle for too long.
    IdleOver,
    /// Close without a word: the peer does not read, or too slowly.
    NotReading,
    /// Close without a word: the farewell is sent, and its time over.
    LingerOver,
    /// Finish what is in flight, then close.
    Drain,
}

/// Shared by a connection's task, its requests and the sweeper.
#[derive(Debug)]
pub(super) struct ConnectionWatch {
    address: IpAddr,
    kind: SeatKind,
    phase: Cell<ConnectionPhase>,
    since: Cell<CoarseClock>,
    blocked_since: Cell<Option<CoarseClock>>,
    /// How long this side has waited for the client to take what is written, as far as sweeps have seen it.
    waited: Cell<Duration>,
    /// What the client has taken since that began.
    taken: Cell<usize>,
    verdict: Cell<Option<Verdict>>,
    waker: RefCell<Option<Waker>>,
    /// Of the answer whose head hyper has not written yet.
    head: Cell<Option<AnswerLines>>,
}

impl ConnectionWatch {
    pub(super) fn new(now: CoarseClock, address: IpAddr, kind: SeatKind) -> Self {
        Self {
            address,
            kind,
            phase: Cell::new(ConnectionPhase::Parked),
            since: Cell::new(now),
            blocked_since: Cell::new(None),
            waited: Cell::new(Duration::ZERO),
            taken: Cell::new(0),
            verdict: Cell::new(None),
            waker: RefCell::new(None),
            head: Cell::new(None),
        }
    }

    /// An answer goes to hyper, which writes its head next.
    pub(super) fn begin_answer(&self, lines: AnswerLines) {
        let before = self.head.replace(Some(lines));
        debug_assert!(before.is_none(), "hyper asks for an answer once it has written all of the last");
    }

    /// Of the head that hyper writes now, if one is due.
    pub(super) fn take_head(&self) -> Option<AnswerLines> {
        self.head.take()
    }

    /// Which requests it may send.
    pub(super) fn kind(&self) -> SeatKind {
        self.kind
    }

    /// Of the client.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    pub(super) fn phase(&self) -> ConnectionPhase {
        self.phase.get()
    }

    /// Between requests, with nothing left that the client does not take.
    pub(super) fn is_idle(&self) -> bool {
        self.phase.get() == ConnectionPhase::Idle && self.blocked_since.get().is_none()
    }

    pub(super) fn enter(&self, phase: ConnectionPhase, now: CoarseClock) {
        self.phase.set(phase);
        self.since.set(now);
    }

    /// From idle to parked or back, which does not make it any younger.
    pub(super) fn change(&self, phase: ConnectionPhase) {
        self.phase.set(phase);
    }

    /// Bytes came in; whether they begin a head.
    pub(super) fn received(&self, now: CoarseClock) -> bool {
        let begins = self.phase.get() == ConnectionPhase::Idle;
        if begins {
            self.enter(ConnectionPhase::Head, now);
            self.waited.set(Duration::ZERO);
            self.taken.set(0);
        }
        begins
    }

    /// `bytes` went out.
    pub(super) fn sent(&self, bytes: usize, now: CoarseClock) {
        self.taken.set(self.taken.get().wrapping_add(bytes));
        self.blocked_since.set(None);
        if self.phase.get() == ConnectionPhase::Idle {
            self.since.set(now);
        }
    }

    /// Bytes wait, because the peer does not read.
    pub(super) fn blocked(&self, now: CoarseClock) {
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(now));
        }
    }

    /// Takes the verdict, and keeps the waker for the next.
    pub(super) fn poll_verdict(&self, cx: &Context<'_>) -> Option<Verdict> {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.verdict.take()
    }

    /// Keeps the verdict for the next poll.
    pub(super) fn tell_later(&self, verdict: Verdict) {
        self.verdict.set(Some(verdict));
    }

    pub(super) fn tell(&self, verdict: Verdict) {
        self.tell_later(verdict);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Gives the connection its verdict if it is overdue.
    pub(super) fn sweep(&self, now: CoarseClock, settings: &HttpSettings) {
        let settings = match self.kind {
            SeatKind::Any => settings,
            // What takes a peer's seat does so for a moment.
            SeatKind::PeersOnly(_) => {
                &HttpSettings { request_read_timeout: PEERS_TIMEOUT, idle_timeout: PEERS_TIMEOUT, ..settings.clone() }
            }
        };
        if let Some(verdict) = overdue(self.phase.get(), self.since.get(), self.blocked_since.get(), now, settings) {
            self.tell(verdict);
        } else if self.blocked_since.get().is_some() && self.is_too_slow(settings.answer_rate_min) {
            self.tell(Verdict::NotReading);
        }
    }

    /// Whether the client has taken too little for so long, as of another sweep that found it behind. Time in which it
    /// waited for this side is not counted.
    fn is_too_slow(&self, rate_min: usize) -> bool {
        let waited = self.waited.get() + SWEEP_EVERY;
        if waited < RATE_OVER {
            self.waited.set(waited);
            return false;
        }
        self.waited.set(Duration::ZERO);
        let seconds = usize::try_from(RATE_OVER.as_secs()).unwrap_or(usize::MAX);
        self.taken.replace(0) < rate_min.saturating_mul(seconds)
    }
}

/// The rule of the sweep.
fn overdue(
    phase: ConnectionPhase,
    since: CoarseClock,
    blocked_since: Option<CoarseClock>,
    now: CoarseClock,
    settings: &HttpSettings,
) -> Option<Verdict> {
    // The noted time may be a sweep older than the event.
    let over = |since: CoarseClock, limit: Duration| now.0.saturating_sub(since.0) > limit + SWEEP_EVERY;
    let verdict = |over: bool, verdict| over.then_some(verdict);
    if let Some(blocked) = blocked_since {
        return verdict(over(blocked, settings.write_timeout), Verdict::NotReading);
    }
    match phase {
        ConnectionPhase::Parked => verdict(over(since, settings.idle_timeout), Verdict::IdleOver),
        // Parking shows whether the next head has begun; a parked connection is then closed when due.
        ConnectionPhase::Idle => verdict(over(since, PARK_AFTER.min(settings.request_read_timeout)), Verdict::Park),
        ConnectionPhase::Head | ConnectionPhase::Body => {
            verdict(over(since, settings.request_read_timeout), Verdict::TimedOut)
        }
        ConnectionPhase::Serving => None,
        ConnectionPhase::Closing => verdict(over(since, LINGER), Verdict::LingerOver),
    }
}

#[cfg(test)]
#[path = "tests/watch.rs"]
mod tests;
