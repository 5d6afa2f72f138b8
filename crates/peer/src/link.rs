//! One connection between two nodes: what waits to be written, and how it is written.
//!
//! Frames are appended to one buffer and leave it in one `write` for all that gathered during a turn of
//! the shard: the [`Flusher`] runs after every task that was ready. Large frames go out in chunks between
//! the small ones, few of them at once. What waits is bounded: [`Link::send`] refuses when it is too much,
//! and [`Link::answer`], which never does, is bounded by what was asked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use kvorum_core::frame::{self, Frame, INTERLEAVED_MAX, LargeFrame, Message, OpenBundle};
use kvorum_core::quorum::{Failure, Held, ReadAnswer};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::transport::Transport;

/// What is buffered at least before the next chunk of a large frame is added.
const WRITE_BYTES: usize = 64 * 1024;
/// A buffer that grew beyond this is given back once it is empty.
const KEEP_BYTES: usize = 256 * 1024;
/// Room for incoming bytes that is made at a time; many small reads share it.
const READ_BYTES: usize = 32 * 1024;
/// With less room than this, more is made before the next read.
const READ_ROOM_MIN: usize = 4 * 1024;

/// How an attempt to write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    All,
    Blocked,
    Broken,
}

/// Whether a message goes in a frame of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// It does.
    Alone,
    /// Together with others of its batch, if it is small.
    Together,
}

#[derive(Default)]
struct Outgoing {
    small: BytesMut,
    /// At the end of `small`: what takes the next message that goes together with others.
    bundle: Option<OpenBundle>,
    /// The first [`INTERLEAVED_MAX`] may have begun, the others have not.
    large: VecDeque<LargeFrame>,
    large_bytes: usize,
}

impl Outgoing {
    fn bytes(&self) -> usize {
        self.small.len() + self.large_bytes
    }

    fn add(&mut self, frame: &Frame, grouping: Grouping) {
        if grouping == Grouping::Together {
            let bundle = self.bundle.get_or_insert_with(|| OpenBundle::begin(&mut self.small));
            if bundle.push(frame, &mut self.small) {
                return;
            }
            // It is full, or this message is too long for any.
            self.seal_bundle();
            let mut next = OpenBundle::begin(&mut self.small);
            if next.push(frame, &mut self.small) {
                self.bundle = Some(next);
                return;
            }
            next.seal(&mut self.small);
        }
        self.seal_bundle();
        if let Some(large) = frame::encode(frame, &mut self.small) {
            self.large_bytes += large.bytes_left();
            self.large.push_back(large);
        }
    }

    fn seal_bundle(&mut self) {
        if let Some(bundle) = self.bundle.take() {
            bundle.seal(&mut self.small);
        }
    }

    /// Adds chunks of the large frames that are under way, in turn, until there is enough for one write.
    fn add_chunks(&mut self) {
        while self.small.len() < WRITE_BYTES
            && let Some(mut large) = self.large.pop_front()
        {
            let before = large.bytes_left();
            let more = large.next_chunk(&mut self.small);
            self.large_bytes -= before - large.bytes_left();
            if more {
                // Behind the others that have begun, before those that have to wait for one to end.
                self.large.insert(self.large.len().min(INTERLEAVED_MAX - 1), large);
            }
        }
    }
}

/// One upgraded connection. Lives as long as its reader task; `close` ends that.
pub struct Link {
    /// Borrowed within one poll or call only.
    stream: RefCell<Box<dyn Transport>>,
    outgoing: RefCell<Outgoing>,
    queue_bytes_max: usize,
    /// In the flusher's list.
    dirty: Cell<bool>,
    /// Wakes the writer task after a write would have blocked.
    blocked: Notify,
    /// Wakes what waits for the queue to shrink.
    drained: Notify,
    closed: Cell<bool>,
    /// Bytes came in or went out since this was last looked at.
    has_moved: Cell<bool>,
    /// The last read filled the room that there was.
    was_full: Cell<bool>,
    flusher: Rc<Flusher>,
}

impl Link {
    /// Takes an upgraded connection.
    pub fn new(stream: Box<dyn Transport>, queue_bytes_max: usize, flusher: Rc<Flusher>) -> Rc<Self> {
        Rc::new(Self {
            stream: RefCell::new(stream),
            outgoing: RefCell::default(),
            queue_bytes_max,
            dirty: Cell::new(false),
            blocked: Notify::new(),
            drained: Notify::new(),
            closed: Cell::new(false),
            has_moved: Cell::new(true),
            was_full: Cell::new(false),
            flusher,
        })
    }

    /// Queues a frame; it is written at the end of the shard's turn, or with the first `WRITE_BYTES`.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] after the connection broke; [`Failure::Overloaded`] when `queue_bytes_max`
    /// bytes are waiting already. Large frames do not count: what they share is charged to the node's memory for
    /// large values.
    pub fn send(self: &Rc<Self>, frame: &Frame, grouping: Grouping) -> Result<(), Failure> {
        if !self.closed.get() && self.outgoing.borrow().small.len() >= self.queue_bytes_max {
            return Err(Failure::Overloaded);
        }
        self.answer(frame, grouping)
    }

    /// Queues a frame however much waits already: for answers of a few bytes, without which the peer would wait in
    /// vain. There are no more of them than questions taken, and [`Link::is_congested`] shows when to take no more.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] after the connection broke.
    pub fn answer(self: &Rc<Self>, frame: &Frame, grouping: Grouping) -> Result<(), Failure> {
        if self.closed.get() {
            return Err(Failure::Unreachable);
        }
        let mut outgoing = self.outgoing.borrow_mut();
        let before = outgoing.small.len();
        outgoing.add(frame, grouping);
        let is_worth_a_write = before < WRITE_BYTES && outgoing.small.len() >= WRITE_BYTES;
        drop(outgoing);
        if is_worth_a_write {
            // A turn with thousands of requests would fill the queue to a peer that reads.
            self.flush_or_hand_over();
        }
        if !self.dirty.replace(true) {
            self.flusher.add(self.clone());
        }
        Ok(())
    }

    /// Sends an answer. Without room for a record, `Overloaded` goes out instead. A link that broke loses it, and the
    /// coordinator sees the end.
    pub fn reply(self: &Rc<Self>, answer: &Frame, grouping: Grouping) {
        let sent = match answer.message {
            Message::ReadAnswer(ReadAnswer::Held(Held::Record(_))) => self.send(answer, grouping),
            _ => self.answer(answer, grouping),
        };
        if sent == Err(Failure::Overloaded) {
            let message = Message::ReadAnswer(ReadAnswer::Failed(Failure::Overloaded));
            let _ = self.answer(&Frame { message, ..*answer }, grouping);
        }
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.outgoing.borrow().bytes()
    }

    /// Whether so much is queued that nothing more should be taken from this peer.
    pub fn is_congested(&self) -> bool {
        self.queued_bytes() >= self.queue_bytes_max / 2
    }

    /// Waits until the link is not congested, or closed. Cancel safe.
    pub async fn until_uncongested(&self) {
        while !self.closed.get() && self.is_congested() {
            self.drained.notified().await;
        }
    }

    /// Ends the connection: both its tasks return.
    pub fn close(&self) {
        self.closed.set(true);
        self.stream.borrow().shutdown();
        self.blocked.notify_one();
        self.drained.notify_one();
    }

    /// Whether `close` was called or a write failed.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Closes the link once nothing has moved on it in either direction for `limit` to twice as long; whether
    /// that is what ended it. Returns late after another end: it holds nothing meanwhile.
    pub async fn close_when_silent(link: Weak<Self>, limit: Duration) -> bool {
        let mut ticks = tokio::time::interval(limit);
        // A process that was stopped has missed ticks, not bytes.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match link.upgrade() {
                Some(link) if !link.is_closed() => {
                    if link.is_silent() {
                        link.close();
                        return true;
                    }
                }
                _ => return false,
            }
        }
    }

    /// Whether nothing has moved since this was last asked.
    fn is_silent(&self) -> bool {
        !self.has_moved.replace(false)
    }

    /// Reads what is there into `input`; `Ok(false)` at the end of the stream or after `close`.
    /// Cancel safe.
    pub async fn read(&self, input: &mut BytesMut) -> std::io::Result<bool> {
        if self.was_full.replace(false) {
            // There is more, and others wait: among them the flusher, with the answers to what came before.
            tokio::task::yield_now().await;
        }
        if input.capacity() - input.len() < READ_ROOM_MIN {
            input.reserve(READ_BYTES);
        }
        let room = input.capacity() - input.len();
        let count = poll_fn(|context| self.stream.borrow_mut().poll_read(context, input)).await?;
        self.was_full.set(count == room);
        self.has_moved.set(true);
        Ok(count > 0 && !self.closed.get())
    }

    fn flush(&self) -> Flushed {
        self.dirty.set(false);
        let mut outgoing = self.outgoing.borrow_mut();
        let outgoing = &mut *outgoing;
        outgoing.seal_bundle();
        let flushed = loop {
            outgoing.add_chunks();
            if outgoing.small.is_empty() {
                if outgoing.small.capacity() > KEEP_BYTES {
                    outgoing.small = BytesMut::new();
                }
                break Flushed::All;
            }
            match self.stream.borrow().try_write(&outgoing.small) {
                Ok(written) => {
                    outgoing.small.advance(written);
                    self.has_moved.set(true);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break Flushed::Blocked,
                Err(_) => break Flushed::Broken,
            }
        };
        if outgoing.bytes() < self.queue_bytes_max / 2 {
            self.drained.notify_waiters();
        }
        flushed
    }

    fn flush_or_hand_over(&self) {
        match self.flush() {
            Flushed::All => {}
            Flushed::Blocked => self.blocked.notify_one(),
            Flushed::Broken => self.close(),
        }
    }

    /// Writes on after a write that would have blocked, until the connection is closed.
    pub async fn write_when_blocked(self: Rc<Self>) {
        loop {
            self.blocked.notified().await;
            loop {
                if self.closed.get() {
                    return;
                }
                let writable = poll_fn(|context| self.stream.borrow().poll_write_ready(context)).await;
                if writable.is_err() {
                    return self.close();
                }
                match self.flush() {
                    Flushed::All => break,
                    Flushed::Blocked => {}
                    Flushed::Broken => return self.close(),
                }
            }
        }
    }
}

/// Writes all links that something was queued on, once per turn of the shard.
#[derive(Default)]
pub struct Flusher {
    dirty: RefCell<Vec<Rc<Link>>>,
    wake: Notify,
}

impl Flusher {
    fn add(&self, link: Rc<Link>) {
        let mut dirty = self.dirty.borrow_mut();
        dirty.push(link);
        if dirty.len() == 1 {
            self.wake.notify_one();
        }
    }

    /// The shard's flusher task. Runs until it is dropped.
    pub async fn run(self: Rc<Self>) {
        let mut links = Vec::new();
        loop {
            self.wake.notified().await;
            std::mem::swap(&mut *self.dirty.borrow_mut(), &mut links);
            for link in links.drain(..) {
                link.flush_or_hand_over();
            }
        }
    }
}

#[cfg(test)]
#[path = "link/tests.rs"]
pub(super) mod tests;
