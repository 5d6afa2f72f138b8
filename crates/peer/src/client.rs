//! The coordinator's side of a peer connection: it connects, reconnects with back-off and jitter, and
//! hands answers to the shard's [`FrameHandler`].
//!
//! A peer that is down costs a request nothing: [`PeerClient::send`] fails at once. When a connection
//! ends, every request that waited on it fails at once, too. But while a dial is *awaited*, what is sent waits for its
//! end: the first since this node's start, and the first since the peer's own hello. Such a dial begins at once,
//! whatever the back-off.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use kvorum_base::outstanding::Outstanding;
use kvorum_core::frame::{Decoder, Frame, Message, NO_EPOCH};
use kvorum_core::node::{DirectoryId, NodeId};
use kvorum_core::quorum::{Failure, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::{Hlc, Key};
use kvorum_storage::data_dir::Run;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::context::PeerContext;
use super::dial::{ConnectError, Dialled};
use super::error::{HandshakeError, ProtocolError};
use super::first_dials::FirstDial;
use super::handler::FrameHandler;
use super::handshake;
use super::handshake::Hello;
use super::hellos::{HelloSeen, Hellos};
use super::link::{Grouping, Link};
use super::pending::{AwaitingDial, Question};
use super::request_id::background_number;
use crate::membership::RemembersUs;
use crate::peer_state::PeerState;

/// The id of frames that belong to no request.
const NO_REQUEST: u64 = u64::MAX;
/// How often an open connection is asked for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// How often, besides, while this node is new and not known to enough peers.
const INTRODUCTION_INTERVAL: Duration = Duration::from_millis(50);
/// A connection on which so many pings in a row have brought nothing is closed. Counted instead of timed: a
/// shard that was stopped itself has not asked meanwhile.
const UNHEARD_PINGS_MAX: u32 = 3;
/// The first delay before connecting again; doubled up to `peer.reconnect_delay_max`. Also the least from one dial's
/// begin to the next, however often the peer sends a hello.
pub const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(20);
/// A connection that lived for so long was none of a peer that takes connections and drops them.
const LASTING: Duration = Duration::from_secs(1);
/// Reads under way at a peer that rank as one. Two reads at two peers are two sends, two wake-ups and two answers, and
/// at one peer one of each (decision 0039); more than these are shared out again.
const READS_TOGETHER: u32 = 16;

/// When a request goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// On the connection that there is.
    Now,
    /// On the next one, perhaps to another run of the peer.
    Deferred,
}

/// One shard's connection to one peer.
pub struct PeerClient {
    node: NodeId,
    state: Arc<PeerState>,
    /// Whether the node has left.
    gone: watch::Sender<bool>,
    context: Rc<PeerContext>,
    /// Up while there is one.
    link: RefCell<Option<Rc<Link>>>,
    /// The peer has not lost what it acknowledged, as far as is known here. The peer's answers show it too: this
    /// decides only which is asked first.
    votes: Cell<bool>,
    /// The peer's identity on this connection, or while this dial runs.
    met: Cell<Option<(DirectoryId, Run)>>,
    /// How many hellos of the peer had counted when the dial began that has ended last.
    settled: Cell<Option<u64>>,
    /// What waits for the dial that is awaited.
    pending: AwaitingDial,
    /// Until the first dial has ended.
    first_dial: Cell<Option<FirstDial>>,
    reads: Outstanding,
    /// Exponentially weighted mean of the time to answer a read, in microseconds.
    read_us: Cell<u32>,
    /// When the last ping went out.
    pinged_at: Cell<Duration>,
    /// Pings since the last byte came in.
    unheard_pings: Cell<u32>,
}

/// How long to wait before the next attempt to connect.
struct BackOff {
    next: Duration,
    max: Duration,
}

impl BackOff {
    /// After a connection that lived for `lived`, which is zero if it was refused.
    fn after(&mut self, lived: Duration) -> Duration {
        if lived >= LASTING {
            self.next = RECONNECT_DELAY_MIN;
        }
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        delay
    }
}

impl PeerClient {
    /// A client for `node`, not connected yet. Its node waits for the first dial, if that is given, before it is ready.
    #[must_use]
    pub fn new(node: NodeId, context: Rc<PeerContext>, first_dial: Option<FirstDial>) -> Rc<Self> {
        Rc::new(Self {
            node,
            state: context.membership.peer(node),
            gone: watch::Sender::new(false),
            context,
            link: RefCell::default(),
            votes: Cell::new(false),
            met: Cell::default(),
            settled: Cell::default(),
            pending: AwaitingDial::default(),
            first_dial: Cell::new(first_dial),
            reads: Outstanding::default(),
            read_us: Cell::new(0),
            pinged_at: Cell::default(),
            unheard_pings: Cell::new(0),
        })
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.link.borrow().is_some()
    }

    /// Whether it has not lost what it had acknowledged.
    #[must_use]
    pub fn votes(&self) -> bool {
        self.votes.get()
    }

    /// Whether a read has gone unanswered for longer than `delay`: then it is not asked first.
    #[must_use]
    pub fn is_suspect(&self, now: Duration, delay: Duration) -> bool {
        self.reads.is_overdue(now, delay)
    }

    /// How long a read is likely to take here, for comparison: recent latency times the queue
    /// (the ranking of Suresh et al., "C3", 2015, reduced to what a client sees). The queue counts by
    /// `READS_TOGETHER`, so that the reads of a shard's turn go to one peer and not in turn to all of them.
    #[must_use]
    pub fn cost(&self) -> u64 {
        u64::from(self.read_us.get() + 1) * u64::from(self.reads.count() / READS_TOGETHER + 1)
    }

    /// What is known of the peer, over all shards.
    #[must_use]
    pub fn state(&self) -> &PeerState {
        &self.state
    }

    /// The node has left: its connection ends, and there is no other.
    pub fn leave(&self) {
        self.gone.send_replace(true);
    }

    async fn until_gone(&self) {
        // It fails if there is no sender: this client is one.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Whether there is no connection, and the dial that is awaited has not ended.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        !self.is_up() && !*self.gone.borrow() && self.settled.get() != Some(self.state.hellos.count())
    }

    /// Sends a request by the layout of this epoch. One of a client is deferred while a dial is awaited, and fails with it.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] without a connection, [`Failure::Overloaded`] if too much waits already.
    pub fn send(&self, id: u64, epoch: u64, message: Message, grouping: Grouping) -> Result<Sent, Failure> {
        let link = self.link.borrow();
        let Some(link) = link.as_ref() else { return self.defer(id, epoch, message) };
        let is_read = matches!(message, Message::Read { non_voting: false, .. });
        link.send(&Frame { id, epoch, hlc: self.context.clock.reading(), message }, grouping)?;
        if is_read {
            self.reads.asked(|| self.context.clock.boot());
        }
        Ok(Sent::Now)
    }

    fn defer(&self, id: u64, epoch: u64, message: Message) -> Result<Sent, Failure> {
        let is_of_client =
            matches!(message, Message::Store { non_voting: false, .. } | Message::Read { non_voting: false, .. });
        if !is_of_client || !self.is_awaited() {
            return Err(Failure::Unreachable);
        }
        let question = Question { id, epoch, message, asked: self.context.clock.boot() };
        self.pending.push(question, self.context.settings.queue_bytes_max)?;
        Ok(Sent::Deferred)
    }

    /// Asks for a record, or for its version.
    ///
    /// # Errors
    /// As [`PeerClient::send`].
    pub fn read(&self, id: u64, epoch: u64, key: &Key, wanted: Wanted, grouping: Grouping) -> Result<Sent, Failure> {
        self.send(id, epoch, Message::Read { key: key.clone(), wanted, non_voting: false }, grouping)
    }

    /// Takes note of how long a read took, or has already taken.
    pub fn note_read(&self, took: Duration) {
        let sample = u32::try_from(took.as_micros()).unwrap_or(u32::MAX / 2).min(u32::MAX / 2);
        let before = self.read_us.get();
        self.read_us.set(if before == 0 { sample } else { before - before / 8 + sample / 8 });
    }

    /// Keeps a connection to the peer, until that has [left](Self::leave).
    pub async fn run(self: Rc<Self>, handler: Rc<dyn FrameHandler>) {
        let hellos = &self.state.hellos;
        let mut back_off = BackOff { next: RECONNECT_DELAY_MIN, max: self.context.settings.reconnect_delay_max };
        loop {
            let (begun, heard) = (self.context.clock.boot(), hellos.heard());
            self.met.set(None);
            let dialled = tokio::select! {
                biased;
                () = self.until_gone() => return self.give_up(&*handler),
                dialled = self.connect() => dialled,
                () = self.outdated(hellos, heard, begun) => continue,
            };
            self.settled.set(Some(heard.count));
            let lived = match dialled {
                Ok((link, input, votes)) => {
                    let connected = self.context.clock.boot();
                    self.serve(&*handler, link, input, votes).await;
                    self.context.clock.boot().saturating_sub(connected)
                }
                Err(error) => {
                    self.note_trouble(&error);
                    self.give_up(&*handler);
                    Duration::ZERO
                }
            };
            tokio::select! {
                biased;
                () = self.until_gone() => return self.give_up(&*handler),
                () = self.rest(hellos, begun, lived, &mut back_off) => {}
            }
        }
    }

    /// Returns once there is a hello that this dial, which began at `begun` after the hellos of `heard`, is not an
    /// answer to: it may be on its way to a peer that was not there, and a new one is quicker.
    async fn outdated(&self, hellos: &Hellos, heard: HelloSeen, begun: Duration) {
        let mut known = heard;
        loop {
            hellos.until_more_than(known.count).await;
            tokio::time::sleep((begun + RECONNECT_DELAY_MIN).saturating_sub(self.context.clock.boot())).await;
            known = hellos.heard();
            if self.met.get().map(|(_, run)| run.id) != known.run {
                return;
            }
        }
    }

    /// Waits before the next dial, after one that began at `begun` and a connection that `lived` for so long: until the
    /// peer's hello, or for as long as the back-off takes.
    async fn rest(&self, hellos: &Hellos, begun: Duration, lived: Duration, back_off: &mut BackOff) {
        let delay = back_off.after(lived);
        // Half of the delay is random, so that peers of a restarted node do not come in step.
        let random = u32::from(u8::try_from(self.context.clock.boot().subsec_nanos() >> 4 & 0xff).expect("eight bits"));
        tokio::select! {
            biased;
            () = hellos.until_more_than(self.settled.get().unwrap_or(0)) => {
                back_off.next = RECONNECT_DELAY_MIN;
                tokio::time::sleep((begun + RECONNECT_DELAY_MIN).saturating_sub(self.context.clock.boot())).await;
            }
            () = tokio::time::sleep(delay / 2 + delay * random / 512) => {}
        }
    }

    /// A dial has failed: so has what waited for it, unless the peer's hello has come since it began.
    fn give_up(&self, handler: &dyn FrameHandler) {
        drop(self.first_dial.take());
        if !self.is_awaited() {
            self.pending.take().into_iter().for_each(|question| self.fail(handler, question, Failure::Unreachable));
        }
    }

    /// There is a connection: sends what waited for it, but for what is past its deadline.
    fn send_pending(&self, handler: &dyn FrameHandler) {
        // A peer that has yet to look at this node's proof does not dial it yet: its first pong shows that it has.
        if self.context.secret.is_none() {
            drop(self.first_dial.take());
        }
        let now = self.context.clock.boot();
        for question in self.pending.take() {
            let is_late = now > question.asked + self.context.settings.deadline;
            let sent = if is_late {
                Err(Failure::Unreachable)
            } else {
                self.send(question.id, question.epoch, question.message.clone(), Grouping::Alone)
            };
            if let Err(failure) = sent {
                self.fail(handler, question, failure);
            }
        }
    }

    fn fail(&self, handler: &dyn FrameHandler, question: Question, failure: Failure) {
        let message = match question.message {
            Message::Store { .. } => Message::StoreAnswer(StoreAnswer::Failed(failure)),
            _ => Message::ReadAnswer(ReadAnswer::Failed(failure)),
        };
        let answer = Frame { id: question.id, epoch: NO_EPOCH, hlc: Hlc::ZERO, message };
        handler.on_answer(self.node, answer).expect("a failure is an answer");
    }

    fn note_trouble(&self, error: &ConnectError) {
        let peer = &self.state;
        if matches!(error, ConnectError::Refused(_) | ConnectError::Stranger(_)) {
            peer.refusals.fetch_add(1, Ordering::Relaxed);
        }
        let text = error.to_string();
        let mut trouble = peer.trouble.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Once for every new reason, and from one shard: not once for every attempt.
        if trouble.as_deref() != Some(text.as_str()) {
            tracing::warn!(peer = &*peer.url, reason = text, "no connection to peer");
            *trouble = Some(text);
        }
    }

    async fn connect(&self) -> Result<(Rc<Link>, BytesMut, bool), ConnectError> {
        let mut ours = Hello::ours(&self.context.membership, self.context.settings.deadline_ms(), self.node);
        ours.nonce = self.context.secret.as_ref().map(|secret| secret.nonce());
        let dialling = self.context.dial.dial(&self.state.url, &ours);
        let Dialled { transport, hello, input } = tokio::time::timeout(self.context.settings.connect_timeout, dialling)
            .await
            .map_err(|_| ConnectError::Timeout)??;
        // Before anything else that the answer says is believed.
        let proof = match &self.context.secret {
            Some(secret) => secret.check_answer(&ours, &hello)?,
            None => None,
        };
        let node = hello.check(&self.context.membership, self.context.settings.deadline_ms())?;
        if node != self.node {
            return Err(HandshakeError::Unknown(hello.url).into());
        }
        self.met.set(Some((hello.directory, hello.run)));
        // The other shards need not wait for their next attempt to find that it is there.
        self.state.hellos.note(hello.run.id, self.context.clock.boot(), self.context.settings.reconnect_delay_max);
        let link = Link::new(transport, self.context.settings.queue_bytes_max, self.context.flusher.clone());
        // At once: what follows may wait for the disk, and the peer does not wait long.
        if let Some(proof) = proof {
            let frame = Frame {
                id: NO_REQUEST,
                epoch: NO_EPOCH,
                hlc: self.context.clock.reading(),
                message: Message::Proof(proof),
            };
            link.send(&frame, Grouping::Alone).map_err(|_| ConnectError::Io(std::io::ErrorKind::BrokenPipe.into()))?;
        }
        let votes = exchange_hello(&self.context, node, hello).await.map_err(ConnectError::NotRemembered)?;
        Ok((link, input, votes))
    }

    async fn serve(&self, handler: &dyn FrameHandler, link: Rc<Link>, input: BytesMut, votes: bool) {
        let peer = &self.state;
        peer.connects.fetch_add(1, Ordering::Relaxed);
        let was_alone = peer.links.fetch_add(1, Ordering::Relaxed) == 0;
        *peer.trouble.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        // Each shard has its connection: logged once for the node.
        let (url, index) = (&*peer.url, self.context.shard);
        if was_alone {
            tracing::info!(peer = url, votes, "connected to peer");
        } else {
            tracing::debug!(peer = url, votes, shard = index, "another shard connected to peer");
        }
        self.votes.set(votes);
        self.reads.forget();
        self.unheard_pings.set(0);
        self.pinged_at.set(self.context.clock.boot());
        handler.on_connected(self.node);
        *self.link.borrow_mut() = Some(link.clone());
        self.send_pending(handler);
        tokio::select! {
            biased;
            () = self.until_gone() => {}
            () = self.take_answers(handler, &link, input) => {}
            () = self.ping(&link) => {}
            () = self.ping_until_serving(&link) => {}
            () = link.clone().write_when_blocked() => {}
        }
        link.close();
        *self.link.borrow_mut() = None;
        // A peer that ended it before its first pong has refused.
        drop(self.first_dial.take());
        let heard = peer.hellos.heard();
        // Unless it has restarted since, it is the peer itself that has gone.
        if heard.run.is_none() || heard.run == self.met.get().map(|(_, run)| run.id) {
            self.settled.set(Some(heard.count));
        }
        self.reads.forget();
        if peer.links.fetch_sub(1, Ordering::Relaxed) == 1 {
            tracing::info!(peer = url, "peer connection ended");
        } else {
            tracing::debug!(peer = url, shard = index, "peer connection of one shard ended");
        }
        handler.on_disconnected(self.node);
        self.context.membership.write_notes_now();
    }

    async fn ping(&self, link: &Rc<Link>) {
        let mut ticks = tokio::time::interval(PING_INTERVAL);
        // Ticks that were missed while this node was stopped are not made up for: the peer needs time to answer.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.unheard_pings.get() >= UNHEARD_PINGS_MAX {
                tracing::warn!(peer = &*self.state.url, "peer is silent");
                return;
            }
            self.unheard_pings.set(self.unheard_pings.get() + 1);
            self.send_ping(link);
        }
    }

    /// While this node waits for its peers to remember it, a second is long.
    async fn ping_until_serving(&self, link: &Rc<Link>) {
        let membership = &self.context.membership;
        while !membership.is_serving() {
            tokio::time::sleep(INTRODUCTION_INTERVAL).await;
            self.send_ping(link);
        }
        std::future::pending().await
    }

    fn send_ping(&self, link: &Rc<Link>) {
        self.pinged_at.set(self.context.clock.boot());
        let message = Message::Ping { wall_ms: self.context.clock.wall_ms() };
        // A full queue is a sign of silence as well; the next tick decides.
        let frame = Frame { id: NO_REQUEST, epoch: NO_EPOCH, hlc: self.context.clock.reading(), message };
        let _ = link.send(&frame, Grouping::Alone);
    }

    async fn take_answers(&self, handler: &dyn FrameHandler, link: &Rc<Link>, mut input: BytesMut) {
        let mut decoder = Decoder::new(self.context.settings.frame_bytes_max, self.context.settings.partial_bytes_max);
        loop {
            loop {
                match decoder.decode(&mut input) {
                    Ok(None) => break,
                    Ok(Some(frame)) => {
                        self.context.observe(&self.state, frame.hlc);
                        if let Err(error) = self.take(handler, frame) {
                            return self.close_for(&error);
                        }
                    }
                    Err(error) => return self.close_for(&error.into()),
                }
            }
            match link.read(&mut input).await {
                Ok(true) => self.unheard_pings.set(0),
                Ok(false) | Err(_) => return,
            }
        }
    }

    fn close_for(&self, error: &ProtocolError) {
        self.context.membership.note_protocol_error(self.node, error, self.context.clock.boot());
    }

    fn take(&self, handler: &dyn FrameHandler, frame: Frame) -> Result<(), ProtocolError> {
        match frame.message {
            Message::Pong { wall_ms, sequence, remembers_you, rebuilt, epoch, backpressure }
                if background_number(frame.id).is_none() =>
            {
                self.take_pong(wall_ms);
                self.state.note_backpressure(backpressure);
                self.context.membership.note_epoch(self.node, epoch);
                if let Some((directory, run)) = self.met.get().filter(|_| rebuilt) {
                    self.context.membership.note_rebuilt(self.node, directory, run, sequence);
                    self.votes.set(true);
                }
                if let Some((_, run)) = self.met.get() {
                    let remembers = if remembers_you { RemembersUs::Yes } else { RemembersUs::NotYet };
                    self.context.membership.note_sequence(self.node, run.id, sequence, remembers);
                }
                Ok(())
            }
            Message::ReadAnswer(_) if background_number(frame.id).is_none() => {
                self.reads.answered(self.context.clock.boot());
                handler.on_answer(self.node, frame)
            }
            _ => handler.on_answer(self.node, frame),
        }
    }

    fn take_pong(&self, wall_ms: u64) {
        drop(self.first_dial.take());
        let round_trip = self.context.clock.boot().saturating_sub(self.pinged_at.get());
        self.state.latency_us.store(u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let half_ms = i64::try_from(round_trip.as_millis() / 2).unwrap_or(0);
        let theirs = i64::try_from(wall_ms).unwrap_or(i64::MAX);
        let ours = i64::try_from(self.context.clock.wall_ms()).unwrap_or(i64::MAX);
        self.context.membership.note_clock_offset(self.node, theirs.saturating_add(half_ms).saturating_sub(ours));
        // An idle peer's latency follows its pings, so that a slow one gets another chance.
        if self.reads.count() == 0 {
            self.note_read(round_trip);
        }
    }
}

/// Notes the peer's identity on the read pool, since that may wait for the disk. Whether its answers count.
async fn exchange_hello(context: &PeerContext, node: NodeId, hello: Hello) -> Result<bool, String> {
    let (send, receive) = tokio::sync::oneshot::channel();
    let membership = context.membership.clone();
    let job = move || {
        // The receiver is gone if the connection is.
        let _ = send.send(handshake::register_peer(&membership, node, &hello).map_err(|error| error.to_string()));
    };
    context.pool.submit(Box::new(job)).map_err(|_| "the read pool is full".to_owned())?;
    receive.await.map_err(|_| "the read pool stopped".to_owned())?
}

#[cfg(test)]
#[path = "client/tests.rs"]
mod tests;
