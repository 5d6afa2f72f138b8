//! A client for single questions: blocking, one connection, kept open. For pages such as `/metrics` and for samples,
//! not for load.
//!
//! Bounded: a page has at most 64 MiB, and the limit given is for each wait.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Error;
use crate::target::Target;

const PAGE_BYTES_MAX: u64 = 64 << 20;
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// A status and a body.
#[derive(Debug)]
pub struct Page {
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
    /// [`Error::Unreachable`]: no connection, no answer in time, or none that is HTTP/1.1 with a length.
    pub fn get(&mut self, path: &str) -> Result<Page, Error> {
        let reused = self.stream.is_some();
        self.exchange(path)
            .or_else(|error| if reused { self.exchange(path) } else { Err(error) })
            .map_err(|cause| Error::Unreachable { target: self.target.to_string(), cause })
    }

    fn exchange(&mut self, path: &str) -> io::Result<Page> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.target.authority());
        stream.write_all(request.as_bytes())?;
        let (page, closes) = read(&mut stream)?;
        self.stream = (!closes).then_some(stream);
        Ok(page)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let addresses = self.target.addresses().map_err(|error| io::Error::other(error.to_string()))?;
        for address in addresses {
            match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(self.timeout))?;
                    stream.set_write_timeout(Some(self.timeout))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP/1.1 with a length")
}

/// A page, and whether the server closes the connection.
fn read(stream: &mut TcpStream) -> io::Result<(Page, bool)> {
    let mut head = Vec::new();
    let mut byte = [0];
    // A byte at a time: nothing of the body may be lost, and pages are few.
    let mut reader = io::BufReader::new(stream);
    while !head.ends_with(b"\r\n\r\n") {
        if crate::numbers::count(head.len()) >= HEAD_BYTES_MAX {
            return Err(bad());
        }
        reader.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut headers);
    parsed.parse(&head).map_err(|_| bad())?;
    let find = |name: &str| parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    let text = |name: &str| find(name).and_then(|header| std::str::from_utf8(header.value).ok());
    let closes = text("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let length = match text("content-length") {
        Some(text) => text.trim().parse::<u64>().ok().filter(|length| *length <= PAGE_BYTES_MAX).ok_or_else(bad)?,
        None if closes && find("transfer-encoding").is_none() => PAGE_BYTES_MAX,
        None => return Err(bad()),
    };
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    if text("content-length").is_some() && crate::numbers::count(body.len()) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((Page { status: parsed.code.ok_or_else(bad)?, body }, closes))
}
