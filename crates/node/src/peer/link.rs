//! One connection between two nodes: what waits to be written, and how it is written.
//!
//! Frames are appended to one buffer and leave it in one `write` for all that gathered during a turn of
//! the shard: the [`Flusher`] runs after every task that was ready. Large frames go out in chunks between
//! the small ones. The buffer is bounded: a peer that does not read gets [`Failure::Overloaded`] frames.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Buf, BytesMut};
use kvorum_core::frame::{self, Frame, LargeFrame};
use kvorum_core::quorum::Failure;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// What is buffered at least before the next chunk of a large frame is added.
const WRITE_BYTES: usize = 64 * 1024;
/// A buffer that grew beyond this is given back once it is empty.
const KEEP_BYTES: usize = 256 * 1024;

/// How an attempt to write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    All,
    Blocked,
    Broken,
}

#[derive(Default)]
struct Outgoing {
    small: BytesMut,
    large: VecDeque<LargeFrame>,
    large_bytes: usize,
}

/// One upgraded connection. Lives as long as its reader task; `close` ends that.
pub struct Link {
    stream: TcpStream,
    outgoing: RefCell<Outgoing>,
    queue_bytes_max: usize,
    /// In the flusher's list.
    dirty: Cell<bool>,
    /// Wakes the writer task after a write would have blocked.
    blocked: Notify,
    /// Wakes who waits for the queue to shrink.
    drained: Notify,
    closed: Cell<bool>,
    close: Notify,
    flusher: Rc<Flusher>,
}

impl Link {
    /// Takes an upgraded connection.
    pub fn new(stream: TcpStream, queue_bytes_max: usize, flusher: Rc<Flusher>) -> Rc<Self> {
        Rc::new(Self {
            stream,
            outgoing: RefCell::default(),
            queue_bytes_max,
            dirty: Cell::new(false),
            blocked: Notify::new(),
            drained: Notify::new(),
            closed: Cell::new(false),
            close: Notify::new(),
            flusher,
        })
    }

    /// Queues a frame; it is written at the end of the shard's turn.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] after the connection broke; [`Failure::Overloaded`] when `queue_bytes_max`
    /// bytes are waiting already.
    pub fn send(self: &Rc<Self>, frame: &Frame) -> Result<(), Failure> {
        if self.closed.get() {
            return Err(Failure::Unreachable);
        }
        let mut outgoing = self.outgoing.borrow_mut();
        // Large frames share bytes that are charged to the node's memory for large values.
        if outgoing.small.len() >= self.queue_bytes_max {
            return Err(Failure::Overloaded);
        }
        if let Some(large) = frame::encode(frame, &mut outgoing.small) {
            outgoing.large_bytes += large.bytes_left();
            outgoing.large.push_back(large);
        }
        drop(outgoing);
        if !self.dirty.replace(true) {
            self.flusher.add(self.clone());
        }
        Ok(())
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        let outgoing = self.outgoing.borrow();
        outgoing.small.len() + outgoing.large_bytes
    }

    /// Waits while so much is queued that nothing more should be read from this peer. Cancel safe.
    pub async fn until_uncongested(&self) {
        while !self.closed.get() && self.queued_bytes() >= self.queue_bytes_max / 2 {
            self.drained.notified().await;
        }
    }

    /// Ends the connection: both its tasks return.
    pub fn close(&self) {
        self.closed.set(true);
        self.close.notify_waiters();
        self.blocked.notify_one();
        self.drained.notify_one();
    }

    /// Whether `close` was called or a write failed.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Reads what is there into `input`; `Ok(false)` at the end of the stream or after `close`.
    /// Cancel safe.
    pub async fn read(&self, input: &mut BytesMut) -> std::io::Result<bool> {
        loop {
            if self.closed.get() {
                return Ok(false);
            }
            tokio::select! {
                biased;
                () = self.close.notified() => return Ok(false),
                ready = self.stream.readable() => ready?,
            }
            input.reserve(WRITE_BYTES / 2);
            match self.stream.try_read_buf(input) {
                Ok(count) => return Ok(count > 0),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&self) -> Flushed {
        self.dirty.set(false);
        let mut outgoing = self.outgoing.borrow_mut();
        let outgoing = &mut *outgoing;
        loop {
            while outgoing.small.len() < WRITE_BYTES
                && let Some(mut large) = outgoing.large.pop_front()
            {
                let before = large.bytes_left();
                let more = large.next_chunk(&mut outgoing.small);
                outgoing.large_bytes -= before - large.bytes_left();
                if more {
                    outgoing.large.push_back(large);
                }
            }
            if outgoing.small.is_empty() {
                if outgoing.small.capacity() > KEEP_BYTES {
                    outgoing.small = BytesMut::new();
                }
                self.drained.notify_waiters();
                return Flushed::All;
            }
            match self.stream.try_write(&outgoing.small) {
                Ok(written) => outgoing.small.advance(written),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Flushed::Blocked,
                Err(_) => return Flushed::Broken,
            }
        }
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
                let writable = tokio::select! {
                    () = self.close.notified() => return,
                    writable = self.stream.writable() => writable,
                };
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
