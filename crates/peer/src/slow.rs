//! A connection whose frames leave late, for the failure lab of `kvorum dev`. Nodes that are no part of one do not have it.
//!
//! What the link writes waits in a line, each write until its time, and goes out in order. The line is bounded: while it
//! is full the connection takes no more, as one over a long way would, and the link's own bounds hold.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{ErrorKind, Result};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use kvorum_base::faults::Faults;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::transport::Transport;

/// Bytes that wait on one connection.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// A connection of a node with faults.
struct SlowTcp {
    reader: OwnedReadHalf,
    waiting: Rc<Waiting>,
    faults: Arc<Faults>,
    /// Writes what is due, as long as there is the connection.
    task: JoinHandle<()>,
}

struct Waiting {
    writer: OwnedWriteHalf,
    line: RefCell<VecDeque<(Instant, Bytes)>>,
    bytes: Cell<usize>,
    /// A write has failed.
    is_broken: Cell<bool>,
    /// Something was put in the empty line.
    came: Notify,
    /// Waits for room in the line.
    waker: RefCell<Option<Waker>>,
}

/// The transport of a connection of this node. To be called in a `LocalSet`.
pub fn transport(stream: TcpStream, faults: Option<&Arc<Faults>>) -> Box<dyn Transport> {
    match faults {
        Some(faults) => Box::new(SlowTcp::new(stream, faults.clone())),
        None => Box::new(stream),
    }
}

impl SlowTcp {
    fn new(stream: TcpStream, faults: Arc<Faults>) -> Self {
        let (reader, writer) = stream.into_split();
        let waiting = Rc::new(Waiting {
            writer,
            line: RefCell::default(),
            bytes: Cell::new(0),
            is_broken: Cell::new(false),
            came: Notify::new(),
            waker: RefCell::default(),
        });
        let task = tokio::task::spawn_local(waiting.clone().run());
        Self { reader, waiting, faults, task }
    }
}

impl Drop for SlowTcp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Waiting {
    async fn run(self: Rc<Self>) {
        loop {
            let first = self.line.borrow().front().map(|(due, _)| *due);
            let Some(due) = first else {
                self.came.notified().await;
                continue;
            };
            tokio::time::sleep_until(due).await;
            if self.write_first().await.is_err() {
                self.is_broken.set(true);
                self.end();
            }
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
            if self.is_broken.get() {
                return;
            }
        }
    }

    async fn write_first(&self) -> Result<()> {
        loop {
            let Some(mut rest) = self.line.borrow().front().map(|(_, bytes)| bytes.clone()) else { return Ok(()) };
            if rest.is_empty() {
                self.line.borrow_mut().pop_front();
                return Ok(());
            }
            match self.writer.try_write(&rest) {
                Ok(written) => {
                    rest.advance(written);
                    self.bytes.set(self.bytes.get() - written);
                    if let Some((_, bytes)) = self.line.borrow_mut().front_mut() {
                        *bytes = rest;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writer.writable().await?,
                Err(error) => return Err(error),
            }
        }
    }

    fn end(&self) {
        // It may be gone already.
        let _ = rustix::net::shutdown(self.writer.as_ref(), rustix::net::Shutdown::Both);
    }
}

impl Transport for SlowTcp {
    fn try_write(&self, bytes: &[u8]) -> Result<usize> {
        let waiting = &self.waiting;
        if waiting.is_broken.get() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let delay = self.faults.delay();
        let mut line = waiting.line.borrow_mut();
        if line.is_empty() && delay.is_none() {
            return waiting.writer.try_write(bytes);
        }
        let room = WAITING_BYTES_MAX.saturating_sub(waiting.bytes.get());
        let taken = bytes.get(..room).unwrap_or(bytes);
        if taken.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        if line.is_empty() {
            waiting.came.notify_one();
        }
        line.push_back((Instant::now() + delay.unwrap_or_default(), Bytes::copy_from_slice(taken)));
        waiting.bytes.set(waiting.bytes.get() + taken.len());
        Ok(taken.len())
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let waiting = &self.waiting;
        if waiting.line.borrow().is_empty() || waiting.is_broken.get() {
            return waiting.writer.as_ref().poll_write_ready(context);
        }
        if waiting.bytes.get() < WAITING_BYTES_MAX {
            return Poll::Ready(Ok(()));
        }
        waiting.waker.replace(Some(context.waker().clone()));
        Poll::Pending
    }

    fn poll_read(&mut self, context: &mut Context<'_>, input: &mut BytesMut) -> Poll<Result<usize>> {
        pin!(self.reader.read_buf(input)).poll(context)
    }

    fn shutdown(&self) {
        self.waiting.end();
        if let Some(waker) = self.waiting.waker.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
#[path = "slow/tests.rs"]
mod tests;
