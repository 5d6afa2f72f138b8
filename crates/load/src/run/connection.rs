//! One connection of the generator: what is under way on it, what is to be written, where its answers are.
//!
//! Never blocks. Bounded: at most `pipeline` flights; `out` holds their bytes, and of those that are written already
//! at most as many again, or 64 KiB. `batched` holds the operations of
//! batches: `pipeline` times what one has at most.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::answer::ResponseParser;
use crate::numbers::count;
use crate::workload::{BatchedOperation, ClientOperation};

/// So much of `out` may be written already before it is dropped.
const WRITTEN_BYTES_MAX: usize = 64 << 10;

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestContent {
    /// One operation on a key. Of an operation of two requests, this may be the second.
    One { operation: ClientOperation, key: u64, second: bool },
    /// So many operations: behind those of the requests before it, the next in the connection's `batched`.
    Batch(usize),
}

impl RequestContent {
    /// How many operations.
    pub(super) fn operations(self) -> u64 {
        match self {
            Self::One { .. } => 1,
            Self::Batch(operations) => count(operations),
        }
    }
}

/// A request that was handed to a connection and has no answer yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightRequest {
    pub(super) content: RequestContent,
    pub(super) due: Instant,
    pub(super) sent: Instant,
    /// Whether it belongs to the measured time.
    pub(super) measured: bool,
}

/// What a connection can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// Nothing before this time.
    Down(Instant),
    /// Since this time.
    Connecting(Instant),
    /// Requests.
    Open,
}

/// One connection, through all times that it is made anew.
#[derive(Debug)]
pub(super) struct Connection {
    /// Which of the targets.
    pub(super) target: usize,
    pub(super) address: SocketAddr,
    pub(super) state: ConnectionState,
    pub(super) stream: Option<TcpStream>,
    pub(super) flights: VecDeque<InFlightRequest>,
    /// The operations of its batches, oldest first.
    pub(super) batched: VecDeque<BatchedOperation>,
    pub(super) answers: ResponseParser,
    /// Answers since it was made.
    pub(super) answered: u64,
    /// Whether it waits in the queue of those that can take a request, and since when.
    pub(super) queued: bool,
    pub(super) free_since: Instant,
    /// Requests that were not written whole, and how much of them was.
    pub(super) out: Vec<u8>,
    written: usize,
}

impl Connection {
    pub(super) fn new(target: usize, address: SocketAddr, now: Instant, answers: ResponseParser) -> Self {
        Self {
            target,
            address,
            state: ConnectionState::Down(now),
            stream: None,
            flights: VecDeque::new(),
            batched: VecDeque::new(),
            answers,
            answered: 0,
            queued: false,
            free_since: now,
            out: Vec::new(),
            written: 0,
        }
    }

    /// Begins to connect: writable, or failed, once that is decided.
    pub(super) fn connect(&mut self, now: Instant) -> io::Result<&TcpStream> {
        // Also where it cannot even begin (no port or descriptor is free): else it would be tried again at once.
        self.answered = 0;
        let family = if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket: OwnedFd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.state = ConnectionState::Connecting(now);
        self.answers.restart();
        Ok(self.stream.insert(TcpStream::from(socket)))
    }

    /// Gives up the stream; its requests are returned, oldest first. The operations of its batches stay.
    pub(super) fn abandon(&mut self, until: Instant) -> VecDeque<InFlightRequest> {
        self.stream = None;
        self.state = ConnectionState::Down(until);
        self.out.clear();
        self.written = 0;
        std::mem::take(&mut self.flights)
    }

    pub(super) fn has_room(&self, pipeline: usize) -> bool {
        self.state == ConnectionState::Open && self.flights.len() < pipeline
    }

    /// Writes what can be written: how many bytes.
    pub(super) fn flush(&mut self) -> io::Result<u64> {
        let Some(stream) = self.stream.as_mut() else { return Ok(0) };
        let mut total = 0;
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.written += bytes;
                    total += count(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.drop_written();
                    return Ok(total);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(total)
    }

    /// Where there is always something left to write, `out` is never cleared. What is moved is less than what is
    /// dropped, so each byte is moved once on average.
    fn drop_written(&mut self) {
        if self.written > WRITTEN_BYTES_MAX.max(self.out.len() / 2) {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::net::sockopt;

    use super::{Connection, ResponseParser, WRITTEN_BYTES_MAX};

    #[test]
    fn what_is_written_is_not_kept_where_something_is_always_left() {
        const PIECE: usize = 1 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut connection = Connection::new(0, address, Instant::now(), ResponseParser::new());
        let stream = connection.stream.insert(TcpStream::connect(address).unwrap());
        stream.set_nonblocking(true).unwrap();
        let mut server = listener.accept().unwrap().0;
        sockopt::set_socket_send_buffer_size(&*stream, 64 << 10).unwrap();
        sockopt::set_socket_recv_buffer_size(&server, 64 << 10).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut made, mut read, mut piece) = (0, 0, vec![0; 64 << 10]);
        while read < 16 * PIECE {
            // More than the system's buffers take.
            while connection.out.len() - connection.written < PIECE {
                connection.out.extend((made..made + PIECE).map(|place| place.to_le_bytes()[1]));
                made += PIECE;
            }
            connection.flush().unwrap();
            let left = connection.out.len() - connection.written;
            assert!(left > 0 && connection.written <= WRITTEN_BYTES_MAX.max(left), "{}", connection.written);
            let count = server.read(&mut piece).unwrap();
            let is_right = |(place, byte): (usize, &u8)| *byte == (read + place).to_le_bytes()[1];
            assert!(piece.iter().take(count).enumerate().all(is_right), "behind {read} bytes");
            read += count;
        }
    }

    #[test]
    fn what_was_answered_before_does_not_count_for_a_connection_that_cannot_begin() {
        // No stream goes to a broadcast address.
        let address = ([255, 255, 255, 255], 1).into();
        let mut connection = Connection::new(0, address, Instant::now(), ResponseParser::new());
        connection.answered = 1;
        assert!(connection.connect(Instant::now()).is_err());
        assert_eq!(connection.answered, 0);
    }
}
