//! A client for single questions: blocking, one connection, kept open. For pages such as `/metrics` and for samples,
//! not for load.
//!
//! Bounded: an answer has at most 64 MiB, and the time given is for all of a question, so that a page which drips
//! without an end is none.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::Error;
use crate::run::answer::{ReceivedResponse, ResponseParser};
use crate::target::Target;

/// Of an answer, with its head and all of its framing.
const PAGE_BYTES_MAX: usize = 64 << 20;
const PIECE_BYTES: usize = 16 << 10;

/// A status and a body.
#[derive(Debug)]
pub struct PageResponse {
    /// Of the answer.
    pub status: u16,
    /// Whole.
    pub body: Vec<u8>,
}

/// One connection to one target, made when it is needed.
#[derive(Debug)]
pub struct Client {
    target: Target,
    timeout: Duration,
    stream: Option<TcpStream>,
}

impl Client {
    /// Connects when it is asked for something.
    #[must_use]
    pub fn new(target: Target, timeout: Duration) -> Self {
        Self { target, timeout, stream: None }
    }

    /// GETs a path. A connection that the server has closed meanwhile is made anew, once.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: no connection, no answer in time, or none that is whole and HTTP/1.1.
    pub fn get(&mut self, path: &str) -> Result<PageResponse, Error> {
        self.ask(format!("GET {path} HTTP/1.1\r\n{}\r\n", self.target.head_lines()).as_bytes())
    }

    /// Sends a short request that may be sent twice, and is whole. A connection that the server has closed meanwhile is
    /// made anew, once.
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<PageResponse, Error> {
        let reused = self.stream.is_some();
        let deadline = Instant::now() + self.timeout;
        self.exchange(request, deadline)
            .or_else(|error| if reused { self.exchange(request, deadline) } else { Err(error) })
            .map_err(|cause| Error::Unreachable { target: self.target.to_string(), cause })
    }

    fn exchange(&mut self, request: &[u8], deadline: Instant) -> io::Result<PageResponse> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect(deadline)?,
        };
        // Less than what the system keeps for a connection that is idle: one write.
        stream.set_write_timeout(Some(left(deadline)?))?;
        stream.write_all(request)?;
        let (page, closes) = read(&mut stream, deadline)?;
        self.stream = (!closes).then_some(stream);
        Ok(page)
    }

    fn connect(&self, deadline: Instant) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let addresses = self.target.addresses().map_err(|error| io::Error::other(error.to_string()))?;
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(deadline)?) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A page, and whether the connection is of no use behind it.
fn read(stream: &mut TcpStream, deadline: Instant) -> io::Result<(PageResponse, bool)> {
    let mut answers = ResponseParser::with_bodies();
    let (mut piece, mut received) = (vec![0; PIECE_BYTES], 0);
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let bytes = match stream.read(&mut piece) {
            Ok(count) => piece.get(..count).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The system's error where a time limit of its own has passed.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        };
        received += bytes.len();
        if received > PAGE_BYTES_MAX {
            return Err(bad("the answer is too long"));
        }
        let (taken, answer) = match bytes {
            [] => (0, Some(answers.close().ok_or(io::ErrorKind::UnexpectedEof)?)),
            bytes => answers.take(bytes).map_err(|_| bad("the answer is not HTTP/1.1"))?,
        };
        if let Some(ReceivedResponse { status, closes }) = answer {
            // What comes behind it was not asked for.
            let is_over = closes || taken < bytes.len();
            return Ok((PageResponse { status, body: answers.take_body() }, is_over));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::{Client, PageResponse};
    use crate::Error;

    /// What a client makes of these bytes, with the connection closed behind them if `closes`.
    fn get(answer: &'static [u8], closes: bool) -> Result<PageResponse, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                lines.find(|line| line.as_ref().unwrap().is_empty());
                stream.write_all(answer).unwrap();
                if !closes {
                    // Until the client goes away.
                    lines.next();
                }
            });
            Client::new(target, Duration::from_secs(20)).get("/")
        })
    }

    #[test]
    fn pages_are_read_as_any_server_frames_them() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (answer, status, body, closes) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", false),
            (&*format!("{chunked}2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n").leak(), 200, "hello", false),
            (&*format!("{chunked}0\r\n\r\n").leak(), 200, "", false),
            ("HTTP/1.1 204 No Content\r\n\r\n", 204, "", false),
            ("HTTP/1.1 304 Not Modified\r\n\r\n", 304, "", false),
            ("HTTP/1.0 404 Not Found\r\n\r\nno", 404, "no", true),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", 200, "hello", true),
        ] {
            let page = get(answer.as_bytes(), closes).unwrap();
            assert_eq!((page.status, page.body.as_slice()), (status, body.as_bytes()), "{answer}");
        }
    }

    #[test]
    fn a_page_that_drips_is_out_of_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
                // Whole at last, for a client that waits for each piece alone.
                let drips = std::iter::repeat_n("1\r\na\r\n", 100).chain(["0\r\n\r\n"]);
                for drip in drips {
                    if stream.write_all(drip.as_bytes()).is_err() {
                        return;
                    }
                    thread::sleep(Duration::from_millis(50));
                }
            });
            let page = Client::new(target, Duration::from_millis(500)).get("/");
            assert!(matches!(page, Err(Error::Unreachable { .. })), "{page:?}");
        });
    }

    #[test]
    fn what_is_no_whole_answer_is_an_error() {
        for cut in ["", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"] {
            assert!(matches!(get(cut.as_bytes(), true), Err(Error::Unreachable { .. })), "{cut}");
        }
    }
}
