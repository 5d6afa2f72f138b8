//! What a [`Link`](super::link::Link) needs of a connection: TCP's, or a simulated network's.

use std::future::Future;
use std::io::Result;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Two streams of bytes. Dropping it ends both.
pub trait Transport {
    /// Writes what there is room for.
    ///
    /// # Errors
    /// [`std::io::ErrorKind::WouldBlock`] if there is none: then [`Transport::poll_write_ready`] waits for some. Any
    /// other is the end.
    fn try_write(&self, bytes: &[u8]) -> Result<usize>;

    /// Waits until a write is worth a try.
    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<Result<()>>;

    /// Appends what is there to the room in `input`; 0 at the end of the stream. Keeps nothing between polls.
    fn poll_read(&mut self, context: &mut Context<'_>, input: &mut BytesMut) -> Poll<Result<usize>>;

    /// Ends both directions, and wakes what waits for one of them.
    fn shutdown(&self);
}

impl Transport for TcpStream {
    fn try_write(&self, bytes: &[u8]) -> Result<usize> {
        Self::try_write(self, bytes)
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        Self::poll_write_ready(self, context)
    }

    fn poll_read(&mut self, context: &mut Context<'_>, input: &mut BytesMut) -> Poll<Result<usize>> {
        // Unlike `try_read`, it takes a read that left room for one that has emptied the socket.
        pin!(self.read_buf(input)).poll(context)
    }

    fn shutdown(&self) {
        // It may be gone already.
        let _ = rustix::net::shutdown(self, rustix::net::Shutdown::Both);
    }
}
