//! One connection of the generator: what is under way on it, what is to be written, where its answers are.
//!
//! Never blocks. Bounded: at most `pipeline` flights, whose bytes are all that `out` holds.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::answer::Answers;
use crate::workload::Operation;

/// A request that was handed to a connection and has no answer yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) operation: Operation,
    pub(super) key: u64,
    pub(super) due: Instant,
    pub(super) sent: Instant,
    /// Whether it belongs to the measured time.
    pub(super) measured: bool,
    /// Of an operation of two requests, this is the second.
    pub(super) second: bool,
}

/// What a connection can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
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
    pub(super) state: State,
    pub(super) stream: Option<TcpStream>,
    pub(super) flights: VecDeque<Flight>,
    pub(super) answers: Answers,
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
    pub(super) fn new(target: usize, address: SocketAddr, now: Instant) -> Self {
        Self {
            target,
            address,
            state: State::Down(now),
            stream: None,
            flights: VecDeque::new(),
            answers: Answers::new(),
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
        self.state = State::Connecting(now);
        self.answers = Answers::new();
        Ok(self.stream.insert(TcpStream::from(socket)))
    }

    /// Gives up the stream; its requests are returned, oldest first.
    pub(super) fn abandon(&mut self, until: Instant) -> VecDeque<Flight> {
        self.stream = None;
        self.state = State::Down(until);
        self.out.clear();
        self.written = 0;
        std::mem::take(&mut self.flights)
    }

    pub(super) fn has_room(&self, pipeline: usize) -> bool {
        self.state == State::Open && self.flights.len() < pipeline
    }

    /// Writes what can be written: how many bytes.
    pub(super) fn flush(&mut self) -> io::Result<u64> {
        let Some(stream) = self.stream.as_mut() else { return Ok(0) };
        let mut total = 0;
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    total += crate::numbers::count(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(total),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::Connection;

    #[test]
    fn what_was_answered_before_does_not_count_for_a_connection_that_cannot_begin() {
        // No stream goes to a broadcast address.
        let mut connection = Connection::new(0, ([255, 255, 255, 255], 1).into(), Instant::now());
        connection.answered = 1;
        assert!(connection.connect(Instant::now()).is_err());
        assert_eq!(connection.answered, 0);
    }
}
