//! A client for one request: HTTP/1.1 over one connection, blocking.
//!
//! A range's records are its chunks, whose borders HTTP libraries do not tell; that, and that nothing
//! here needs a runtime, is why the few lines are our own. Memory is bounded: a head has 16 KiB, a
//! body streams. A timeout is the longest silence of the network, at any point.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use kvorum_node::config::NodeUrl;

use crate::outcome::Unreachable;

const HEAD_BYTES_MAX: u64 = 16 << 10;
const KEY_BYTES_MAX: u64 = 2048;

/// What is asked.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Path and query, encoded.
    pub(crate) target: &'a str,
    /// Whether the answer shall carry a receipt.
    pub(crate) trace: bool,
    pub(crate) body: &'a [u8],
}

/// A status, its headers, and a body that is still to be read.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    framing: Framing,
    stream: BufReader<TcpStream>,
}

/// Where a body ends.
enum Framing {
    Length(u64),
    Chunked,
    Close,
}

/// Sends one request and reads the head of its answer.
///
/// # Errors
/// [`Unreachable`]: no connection, no answer in time, or not HTTP.
pub(crate) fn send(url: &NodeUrl, timeout: Duration, request: &Request<'_>) -> Result<Answer, Unreachable> {
    let exchange = || {
        let mut stream = connect(url, timeout)?;
        let sent = write_request(&mut stream, url, request);
        // A refusal may come before the whole value was taken: the answer counts, if there is one.
        read_head(BufReader::new(stream)).map_err(|error| sent.err().unwrap_or(error))
    };
    exchange().map_err(|cause| Unreachable { url: url.to_string(), cause })
}

/// Each byte of an id that is not plainly harmless becomes `%XX`.
pub(crate) fn percent_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

fn connect(url: &NodeUrl, timeout: Duration) -> io::Result<TcpStream> {
    let address = url.address();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for socket in (address.host(), address.port()).to_socket_addrs()? {
        match TcpStream::connect_timeout(&socket, timeout) {
            Ok(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn write_request(stream: &mut TcpStream, url: &NodeUrl, request: &Request<'_>) -> io::Result<()> {
    let mut head =
        format!("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", request.method, request.target, url.address());
    if request.trace {
        head.push_str("Kvorum-Trace: 1\r\n");
    }
    if ["PUT", "POST"].contains(&request.method) {
        head.push_str(&format!("Content-Length: {}\r\n", request.body.len()));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(request.body)
}

fn not_http() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP/1.1")
}

fn read_line(stream: &mut impl BufRead, budget: &mut u64) -> io::Result<String> {
    let mut line = Vec::new();
    let read = stream.take(*budget).read_until(b'\n', &mut line)?;
    *budget -= u64::try_from(read).expect("a length fits 64 bits");
    match line.pop() {
        None if *budget > 0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
        Some(b'\n') => String::from_utf8(line).map(|line| line.trim_end().to_owned()).map_err(|_| not_http()),
        _ => Err(not_http()),
    }
}

fn read_head(mut stream: BufReader<TcpStream>) -> io::Result<Answer> {
    loop {
        let mut budget = HEAD_BYTES_MAX;
        let line = read_line(&mut stream, &mut budget)?;
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
        let status = status.ok_or_else(not_http)?;
        let mut headers = Vec::new();
        loop {
            let line = read_line(&mut stream, &mut budget)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(not_http)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if status >= 200 {
            let framing = framing(&headers)?;
            return Ok(Answer { status, headers, framing, stream });
        }
    }
}

fn framing(headers: &[(String, String)]) -> io::Result<Framing> {
    let find = |name: &str| headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
    match (find("transfer-encoding"), find("content-length")) {
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        (Some(_), _) => Err(not_http()),
        (None, Some(length)) => length.parse().map(Framing::Length).map_err(|_| not_http()),
        (None, None) => Ok(Framing::Close),
    }
}

impl Answer {
    /// A header's value, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// Copies the whole body.
    ///
    /// # Errors
    /// Of the network (also if the body ends early), or of `out`.
    pub(crate) fn copy_body(&mut self, out: &mut impl Write) -> io::Result<()> {
        match self.framing {
            Framing::Length(length) => copy_exactly(&mut self.stream, length, out),
            Framing::Close => io::copy(&mut self.stream, out).map(drop),
            Framing::Chunked => self.each_chunk(|stream, length| copy_exactly(stream, length, out)),
        }
    }

    /// Copies a range: each chunk, which is a key, a newline and a value, as a key, a tab, a value and a newline.
    ///
    /// # Errors
    /// Of the network (also if the body ends early or is not a range), or of `out`.
    pub(crate) fn copy_records(&mut self, out: &mut impl Write) -> io::Result<()> {
        if !matches!(self.framing, Framing::Chunked) {
            return self.copy_body(out);
        }
        self.each_chunk(|stream, length| {
            let mut key = Vec::new();
            let read = stream.take(length.min(KEY_BYTES_MAX + 1)).read_until(b'\n', &mut key)?;
            if key.pop() != Some(b'\n') {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is not a range"));
            }
            out.write_all(&key)?;
            out.write_all(b"\t")?;
            copy_exactly(stream, length - u64::try_from(read).expect("a length fits 64 bits"), out)?;
            out.write_all(b"\n")
        })
    }

    fn each_chunk(&mut self, mut take: impl FnMut(&mut BufReader<TcpStream>, u64) -> io::Result<()>) -> io::Result<()> {
        loop {
            let line = read_line(&mut self.stream, &mut HEAD_BYTES_MAX.clone())?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length = u64::from_str_radix(digits, 16).map_err(|_| not_http())?;
            if length == 0 {
                return Ok(());
            }
            take(&mut self.stream, length)?;
            if !read_line(&mut self.stream, &mut HEAD_BYTES_MAX.clone())?.is_empty() {
                return Err(not_http());
            }
        }
    }
}

fn copy_exactly(stream: &mut impl Read, length: u64, out: &mut impl Write) -> io::Result<()> {
    if io::copy(&mut stream.take(length), out)? == length {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer ended early"))
    }
}
