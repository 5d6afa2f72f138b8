//! A socket of tokio as hyper sees it, which notes when anything last went through it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// When anything last went through a socket.
#[derive(Debug)]
pub(crate) struct LastUse {
    begin: Instant,
    millis: AtomicU64,
}

impl LastUse {
    fn note(&self) {
        self.millis.store(u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long nothing has.
    pub(crate) fn idle(&self) -> Duration {
        self.begin.elapsed().saturating_sub(Duration::from_millis(self.millis.load(Ordering::Relaxed)))
    }
}

/// The socket.
#[derive(Debug)]
pub(crate) struct ConsoleSocket {
    stream: TcpStream,
    buffer: Box<[u8]>,
    used: Arc<LastUse>,
}

impl ConsoleSocket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Without it, answers of two packets would wait for the other side's acknowledgement.
        let _ = stream.set_nodelay(true);
        let used = LastUse { begin: Instant::now(), millis: AtomicU64::new(0) };
        Self { stream, buffer: vec![0; READ_BYTES].into(), used: Arc::new(used) }
    }

    pub(crate) fn last_use(&self) -> Arc<LastUse> {
        self.used.clone()
    }
}

impl hyper::rt::Read for ConsoleSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut out: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let Self { stream, buffer, used } = self.get_mut();
        let room = out.remaining().min(buffer.len());
        let mut read = ReadBuf::new(buffer.get_mut(..room).unwrap_or_default());
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        used.note();
        out.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for ConsoleSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, used, .. } = self.get_mut();
        let written = ready!(Pin::new(stream).poll_write(cx, bytes))?;
        used.note();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
