//! The socket as hyper sees it, with answers gathered into one write.
//!
//! hyper can aggregate pipelined answers itself (`pipeline_flush`), but then holds an answer back for
//! as long as its buffer has a part of the next request, and buffers a streamed body without limit.
//! Here hyper's flush does nothing; the connection's task calls [`Socket::poll_flush`] after each poll of
//! hyper, so all answers that were ready go out in one system call and none waits for another request.
//! What hyper sends at once and is large goes to the socket without a copy.
//!
//! Heads get the header lines that all answers have ([`AnswerLines`]). hyper begins a head only where nothing of the
//! answer before is left to write, keeps it apart from the body, and offers it first; it is taken whole. So where an
//! answer's head is due, the first slice is a head. What hyper answers itself, to what is no HTTP, has none due.
//!
//! Reads go through one buffer per shard: hyper's own cannot be lent to the socket without `unsafe`, and
//! the copy is of what the kernel has just put into the processor's cache.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::rt::ReadBufCursor;
use kvorum_base::faults::Faults;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::answer_lines::AnswerLines;
use super::watch::{CoarseClock, ConnectionWatch};

/// Bytes of answers that are gathered before a write.
const GATHER_BYTES: usize = 16 * 1024;
const SCRATCH_BYTES: usize = 64 * 1024;
/// Slices of one write: what is gathered, and a few of hyper's.
const LARGE_SLICES: usize = 8;

/// What the connections of a shard share: one is polled at a time.
#[derive(Debug)]
pub(super) struct SharedBuffers {
    /// What the node has been given of them.
    faults: Option<Arc<Faults>>,
    scratch: RefCell<Box<[u8]>>,
    /// An empty gathering buffer for the next connection with something to write.
    spare: RefCell<Vec<u8>>,
    pub now: Cell<CoarseClock>,
}

impl SharedBuffers {
    pub(super) fn new(faults: Option<Arc<Faults>>) -> Self {
        Self {
            faults,
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            spare: RefCell::default(),
            now: Cell::default(),
        }
    }
}

/// A socket, and what is waiting to go out.
#[derive(Debug)]
pub(super) struct Socket {
    stream: RefCell<TcpStream>,
    gathered: RefCell<Gathered>,
    /// Read before, by a hyper connection that has been taken apart.
    unread: RefCell<Bytes>,
    /// Whether hyper has written anything since a head began.
    answered: Cell<bool>,
    watch: Rc<ConnectionWatch>,
    shared: Rc<SharedBuffers>,
}

#[derive(Debug, Default)]
struct Gathered {
    bytes: Vec<u8>,
    sent: usize,
    /// Of a node that was ordered to be slow.
    late: Option<Box<LateAnswers>>,
}

/// Where answers begin that are not due, and when they are.
#[derive(Debug)]
struct LateAnswers {
    heads: VecDeque<(usize, Instant)>,
    sleep: Pin<Box<Sleep>>,
}

impl Gathered {
    /// An answer begins at the end of what is gathered.
    #[cold]
    fn delay_next(&mut self, delay: Duration) {
        let due = Instant::now() + delay;
        let fresh = || Box::new(LateAnswers { heads: VecDeque::new(), sleep: Box::pin(sleep_until(due)) });
        self.late.get_or_insert_with(fresh).heads.push_back((self.bytes.len(), due));
    }

    /// Up to where it may go out by now. The task is woken when more may.
    #[inline]
    fn due(&mut self, cx: &mut Context<'_>) -> usize {
        if self.late.is_none() { self.bytes.len() } else { self.due_of_late(cx) }
    }

    #[cold]
    fn due_of_late(&mut self, cx: &mut Context<'_>) -> usize {
        let Some(late) = &mut self.late else { return self.bytes.len() };
        while let Some((head, due)) = late.heads.front().copied() {
            late.sleep.as_mut().reset(due);
            if late.sleep.as_mut().poll(cx).is_pending() {
                return head;
            }
            late.heads.pop_front();
        }
        self.late = None;
        self.bytes.len()
    }
}

impl Socket {
    pub(super) fn new(stream: TcpStream, watch: Rc<ConnectionWatch>, shared: Rc<SharedBuffers>) -> Self {
        Self {
            stream: RefCell::new(stream),
            gathered: RefCell::default(),
            unread: RefCell::default(),
            answered: Cell::new(false),
            watch,
            shared,
        }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }

    /// Ready when there is a byte to read, or the end. It looks instead of trusting the readiness, which
    /// a new socket is given in advance.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut byte = [0];
        self.stream.borrow().poll_peek(cx, &mut ReadBuf::new(&mut byte)).map_ok(|_| ())
    }

    /// Whether nothing waits to go out, and nothing has come that was not read. It asks the system, which also has what
    /// came a moment ago.
    pub(super) fn is_quiet(&self) -> bool {
        let peek = || rustix::net::recv(&*self.stream.borrow(), &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.gathered.borrow().bytes.is_empty() && peek().is_err_and(|error| error == rustix::io::Errno::AGAIN)
    }

    /// Puts bytes back in front of what the socket has.
    pub(super) fn unread(&self, bytes: Bytes) {
        *self.unread.borrow_mut() = bytes;
    }

    pub(super) fn has_answered(&self) -> bool {
        self.answered.get()
    }

    /// Adds an answer to what is waiting to go out.
    pub(super) fn say(&self, answer: &[u8]) {
        self.begin_answer().bytes.extend_from_slice(answer);
    }

    #[inline]
    fn begin_answer(&self) -> RefMut<'_, Gathered> {
        let mut gathered = self.gather();
        if let Some(faults) = &self.shared.faults
            && let Some(delay) = faults.delay()
        {
            gathered.delay_next(delay);
        }
        gathered
    }

    fn gather(&self) -> RefMut<'_, Gathered> {
        let mut gathered = self.gathered.borrow_mut();
        if gathered.bytes.capacity() == 0 {
            gathered.bytes = self.shared.spare.take();
        }
        gathered
    }

    /// Adds a head, with its lines at its end. Before it there may be a `100 Continue`.
    fn say_head(&self, head: &[u8], lines: AnswerLines) {
        let bytes = &mut self.begin_answer().bytes;
        let (head, end) = head.split_at(head.len().saturating_sub(2));
        debug_assert!(head.ends_with(b"\r\n") && end == b"\r\n", "a head comes whole");
        bytes.extend_from_slice(head);
        if end == b"\r\n" {
            lines.write(bytes);
        }
        bytes.extend_from_slice(end);
    }

    /// Reads and drops; ready when the peer has sent everything.
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = self.shared.scratch.borrow_mut();
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    pub(super) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx)
    }

    /// Writes what is waiting; ready when nothing is.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.gathered.borrow_mut();
        let due = gathered.due(cx);
        while let Some(rest) = gathered.bytes.get(gathered.sent..due).filter(|rest| !rest.is_empty()) {
            let written = ready!(self.poll_socket(cx, |stream, cx| poll_send(&stream, cx, rest)))?;
            gathered.sent += written;
        }
        if gathered.late.is_some() {
            self.watch.blocked(self.shared.now.get());
            return Poll::Pending;
        }
        if gathered.bytes.capacity() > 0 {
            let Gathered { mut bytes, .. } = std::mem::take(&mut *gathered);
            bytes.clear();
            self.shared.spare.replace(bytes);
        }
        Poll::Ready(Ok(()))
    }

    /// One write. Its outcome is noted for the sweeper.
    fn poll_socket(
        &self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match write(Pin::new(&mut *self.stream.borrow_mut()), cx) {
            Poll::Pending => {
                self.watch.blocked(self.shared.now.get());
                Poll::Pending
            }
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(written)) => {
                self.watch.sent(written, self.shared.now.get());
                Poll::Ready(Ok(written))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }

    /// Ready when `bytes` more can be gathered; else what is gathered goes out first.
    fn poll_room(&self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<()>> {
        if self.gathered.borrow().bytes.len() + bytes > GATHER_BYTES {
            self.poll_flush(cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    /// Writes what is too much to be gathered, behind what is gathered and without a copy. A head is gathered all the
    /// same.
    fn poll_large(&self, cx: &mut Context<'_>, mut slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        if let Some(lines) = self.watch.take_head()
            && let Some((head, rest)) = slices.split_first()
        {
            self.say_head(head, lines);
            (taken, slices) = (head.len(), rest);
        }
        if self.gathered.borrow().late.is_some() {
            // What follows an answer that is not due is not either.
            match self.poll_flush(cx) {
                Poll::Ready(flushed) => flushed?,
                Poll::Pending if taken > 0 => return Poll::Ready(Ok(taken)),
                Poll::Pending => return Poll::Pending,
            }
        }
        loop {
            let gathered = self.gathered.borrow();
            let waiting = gathered.bytes.get(gathered.sent..).unwrap_or_default();
            let before = waiting.len();
            let mut all = [IoSlice::new(&[]); LARGE_SLICES];
            let parts = std::iter::once(waiting).chain(slices.iter().map(|slice| &**slice));
            all.iter_mut().zip(parts).for_each(|(place, part)| *place = IoSlice::new(part));
            let written = match self.poll_socket(cx, |stream, cx| stream.poll_write_vectored(cx, &all)) {
                Poll::Ready(written) => written?,
                // With the rest hyper comes again.
                Poll::Pending if taken > 0 => return Poll::Ready(Ok(taken)),
                Poll::Pending => return Poll::Pending,
            };
            drop(gathered);
            self.gathered.borrow_mut().sent += written.min(before);
            if written >= before {
                ready!(self.poll_flush(cx))?;
            }
            taken += written.saturating_sub(before);
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
        }
    }
}

/// A write. Not libc's, which has no frame pointer: most of what an answer costs is below it, and would have no caller
/// in a profile.
fn poll_send(stream: &TcpStream, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        let send = || Ok(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)?);
        match stream.try_io(Interest::WRITABLE, send) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return Poll::Ready(sent),
        }
    }
}

/// hyper's handle to the wire.
#[derive(Clone, Debug)]
pub(super) struct Io(pub Rc<Socket>);

impl hyper::rt::Read for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let wire = &self.0;
        let mut unread = wire.unread.borrow_mut();
        if !unread.is_empty() {
            let taken = unread.len().min(buffer.remaining());
            buffer.put_slice(&unread.split_to(taken));
            return Poll::Ready(Ok(()));
        }
        let mut scratch = wire.shared.scratch.borrow_mut();
        let length = scratch.len().min(buffer.remaining());
        let mut read = ReadBuf::new(scratch.get_mut(..length).unwrap_or_default());
        ready!(Pin::new(&mut *wire.stream.borrow_mut()).poll_read(cx, &mut read))?;
        if !read.filled().is_empty() {
            if wire.watch.received(wire.shared.now.get()) {
                wire.answered.set(false);
            }
            buffer.put_slice(read.filled());
        }
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wire = &self.0;
        wire.answered.set(true);
        let total = slices.iter().map(|slice| slice.len()).sum();
        if total > GATHER_BYTES {
            return wire.poll_large(cx, slices);
        }
        ready!(wire.poll_room(cx, total))?;
        let mut slices = slices.iter();
        if let Some(lines) = wire.watch.take_head() {
            wire.say_head(slices.next().map_or(&[], |head| head), lines);
        }
        let mut gathered = wire.gather();
        slices.for_each(|slice| gathered.bytes.extend_from_slice(slice));
        drop(gathered);
        Poll::Ready(Ok(total))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing: the connection's task flushes, once for all answers that are ready.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Nothing: the connection's task decides how the connection ends.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
