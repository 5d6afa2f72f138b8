//! A client for one request: HTTP/1.1 over one connection, blocking.
//!
//! A range's records are its chunks. HTTP libraries do not show their borders, and nothing here needs a runtime: so the
//! few lines are our own. Memory is bounded: a head has 16 KiB, a body streams, or has a limit where it is kept: see
//! [`ResponseBounds`]. An answer that is cut is [`io::ErrorKind::UnexpectedEof`], wherever that was; one that is no HTTP
//! is [`io::ErrorKind::InvalidData`].

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use kvorum_config::NodeUrl;

use crate::key_file::ClientKey;
use crate::outcome::Unreachable;
use crate::printable::printable_bytes;

const HEAD_BYTES_MAX: u64 = 16 << 10;
const KEY_BYTES_MAX: u64 = 2048;
const WRITE_BYTES_MAX: usize = 64 << 10;

/// What is asked.
pub(crate) struct ClientRequest<'a> {
    pub(crate) method: &'a str,
    /// Path and query, encoded.
    pub(crate) target: &'a str,
    /// Whether the answer shall carry a receipt.
    pub(crate) trace: bool,
    /// The type that the answer shall have, where the node can choose.
    pub(crate) accept: Option<&'a str>,
    pub(crate) body: &'a [u8],
    /// The principal that it belongs to.
    pub(crate) key: Option<&'a ClientKey>,
}

impl<'a> ClientRequest<'a> {
    /// A request with nothing but its method and target.
    pub(crate) fn of(method: &'a str, target: &'a str) -> Self {
        Self { method, target, trace: false, accept: None, body: b"", key: None }
    }
}

/// What an answer may cost.
#[derive(Clone, Copy)]
pub(crate) enum ResponseBounds {
    /// The longest silence of the network, at any point. A body may go on.
    Silence(Duration),
    /// By the deadline the answer has begun; from then on it is [`Self::Silence`].
    Begun {
        /// By then its head is there.
        deadline: Instant,
        /// The longest silence of its body.
        silence: Duration,
    },
    /// All of it, with its head and all of its framing.
    Whole {
        /// By then it is there.
        deadline: Instant,
        /// So much it has at most.
        bytes_max: u64,
    },
}

impl ResponseBounds {
    /// The silence to bear now.
    fn silence(self) -> io::Result<Duration> {
        match self {
            Self::Silence(longest) => Ok(longest),
            Self::Begun { deadline, .. } => left(deadline, "no answer came within --timeout"),
            Self::Whole { deadline, .. } => left(deadline, "the answer is not whole in time"),
        }
    }

    /// Those of the body.
    fn after_head(self) -> Self {
        if let Self::Begun { silence, .. } = self { Self::Silence(silence) } else { self }
    }
}

fn left(deadline: Instant, late: &str) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::new(io::ErrorKind::TimedOut, late)) } else { Ok(left) }
}

/// A connection whose reads and writes keep to the bounds.
struct BoundedStream {
    stream: TcpStream,
    bounds: ResponseBounds,
}

impl Read for BoundedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.bounds.silence()?))?;
        // A read that ends at the deadline has failed of that, whatever the system calls it.
        let read = self.stream.read(buffer).or_else(|error| self.bounds.silence().and(Err(error)))?;
        if let ResponseBounds::Whole { bytes_max, .. } = &mut self.bounds {
            let left = bytes_max.checked_sub(u64::try_from(read).expect("a length fits 64 bits"));
            *bytes_max = left.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"))?;
        }
        Ok(read)
    }
}

impl Write for BoundedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.bounds.silence()?))?;
        // In pieces, so that a long value keeps to a deadline as well.
        let piece = bytes.get(..bytes.len().min(WRITE_BYTES_MAX)).unwrap_or(bytes);
        self.stream.write(piece).or_else(|error| self.bounds.silence().and(Err(error)))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A status, its headers, and a body that is still to be read.
pub(crate) struct ClientResponse {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    framing: BodyEnd,
    stream: BufReader<BoundedStream>,
}

/// Where a body ends.
enum BodyEnd {
    /// After so many more bytes.
    Length(u64),
    /// With its last chunk; so many bytes are left of the one that is being read.
    Chunked(u64),
    Close,
}

/// Sends one request and reads the head of its answer.
///
/// # Errors
/// [`Unreachable`]: no connection, no answer in time, or not HTTP.
pub(crate) fn send(
    url: &NodeUrl,
    bounds: ResponseBounds,
    request: &ClientRequest<'_>,
) -> Result<ClientResponse, Unreachable> {
    let answer = bounds.silence().and_then(|longest| connect(url, longest));
    let answer = answer.and_then(|stream| exchange(stream, url, bounds, request));
    answer.map_err(|cause| Unreachable { url: url.to_string(), cause })
}

/// Sends one request over a connection and reads the head of its answer. From here on a node may have carried it out.
pub(crate) fn exchange(
    stream: TcpStream,
    url: &NodeUrl,
    bounds: ResponseBounds,
    request: &ClientRequest<'_>,
) -> io::Result<ClientResponse> {
    let mut stream = BoundedStream { stream, bounds };
    let sent = write_request(&mut stream, url, request);
    // A refusal may come before the whole value was taken: the answer counts, if there is one.
    read_head(BufReader::new(stream)).map_err(|error| sent.err().unwrap_or(error))
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

/// Connects; `longest`: for each address of the name.
pub(crate) fn connect(url: &NodeUrl, longest: Duration) -> io::Result<TcpStream> {
    let address = url.address();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for socket in (address.host(), address.port()).to_socket_addrs()? {
        match TcpStream::connect_timeout(&socket, longest) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn write_request(stream: &mut BoundedStream, url: &NodeUrl, request: &ClientRequest<'_>) -> io::Result<()> {
    let mut head =
        format!("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", request.method, request.target, url.address());
    if let Some(key) = request.key {
        head.push_str(&format!("Authorization: Bearer {}\r\n", key.text()));
    }
    if let Some(accept) = request.accept {
        head.push_str(&format!("Accept: {accept}\r\n"));
    }
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
        Some(b'\n') => String::from_utf8(line).map(|line| line.trim_end().to_owned()).map_err(|_| not_http()),
        _ if *budget > 0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
        _ => Err(not_http()),
    }
}

fn read_head(mut stream: BufReader<BoundedStream>) -> io::Result<ClientResponse> {
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
            let bounds = stream.get_ref().bounds.after_head();
            stream.get_mut().bounds = bounds;
            return Ok(ClientResponse { status, headers, framing, stream });
        }
    }
}

fn framing(headers: &[(String, String)]) -> io::Result<BodyEnd> {
    let find = |name: &str| headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
    match (find("transfer-encoding"), find("content-length")) {
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => Ok(BodyEnd::Chunked(0)),
        (Some(_), _) => Err(not_http()),
        (None, Some(length)) => length.parse().map(BodyEnd::Length).map_err(|_| not_http()),
        (None, None) => Ok(BodyEnd::Close),
    }
}

impl ClientResponse {
    /// A header's value, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// Copies the whole body.
    ///
    /// # Errors
    /// Of the network (also if the body ends early), or of `out`.
    pub(crate) fn copy_body(&mut self, out: &mut impl Write) -> io::Result<()> {
        io::copy(self, out).map(drop)
    }

    /// Copies a range: each chunk, which is a key, a newline and a value, as a printable key, a tab, a value and a newline.
    ///
    /// # Errors
    /// Of the network (also if the body ends early or is not a range), or of `out`.
    pub(crate) fn copy_records(&mut self, out: &mut impl Write) -> io::Result<()> {
        if !matches!(self.framing, BodyEnd::Chunked(_)) {
            return self.copy_body(out);
        }
        self.read_records(|key, value| {
            out.write_all(printable_bytes(key).as_bytes())?;
            out.write_all(b"\t")?;
            io::copy(value, out)?;
            out.write_all(b"\n")
        })
    }

    /// Reads a range: each chunk's key, and its value, which `each` reads to its end.
    ///
    /// # Errors
    /// Of the network (also if the body ends early or is not a range), or of `each`.
    pub(crate) fn read_records(
        &mut self,
        mut each: impl FnMut(&[u8], &mut dyn Read) -> io::Result<()>,
    ) -> io::Result<()> {
        let no_range = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not a range");
        if !matches!(self.framing, BodyEnd::Chunked(_)) {
            return Err(no_range());
        }
        while let Some(length) = self.next_chunk()? {
            let mut key = Vec::new();
            let read = (&mut self.stream).take(length.min(KEY_BYTES_MAX + 1)).read_until(b'\n', &mut key)?;
            if key.pop() != Some(b'\n') {
                return Err(no_range());
            }
            let mut value = (&mut self.stream).take(length - u64::try_from(read).expect("a length fits 64 bits"));
            each(&key, &mut value)?;
            if value.limit() > 0 {
                return Err(ended_early());
            }
            self.end_chunk()?;
        }
        Ok(())
    }

    /// The next chunk's length; none where the body ends.
    fn next_chunk(&mut self) -> io::Result<Option<u64>> {
        let line = read_line(&mut self.stream, &mut HEAD_BYTES_MAX.clone())?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16).map_err(|_| not_http())?;
        Ok(Some(length).filter(|length| *length > 0))
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        let line = read_line(&mut self.stream, &mut HEAD_BYTES_MAX.clone())?;
        if line.is_empty() { Ok(()) } else { Err(not_http()) }
    }
}

/// The body, whatever its framing. One that ends early is an error.
impl Read for ClientResponse {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if matches!(self.framing, BodyEnd::Chunked(0)) {
            self.framing = self.next_chunk()?.map_or(BodyEnd::Length(0), BodyEnd::Chunked);
        }
        let (BodyEnd::Length(left) | BodyEnd::Chunked(left)) = &mut self.framing else {
            return self.stream.read(buffer);
        };
        if *left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let read = (&mut self.stream).take(*left).read(buffer)?;
        if read == 0 {
            return Err(ended_early());
        }
        *left -= u64::try_from(read).expect("a length fits 64 bits");
        if matches!(self.framing, BodyEnd::Chunked(0)) {
            self.end_chunk()?;
        }
        Ok(read)
    }
}

fn ended_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the answer ended early")
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufRead, BufReader, ErrorKind, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::{Duration, Instant};

    use kvorum_config::node_url;

    use super::{ClientRequest, ResponseBounds, send};

    /// What a client keeps of an answer that comes in these pieces, every 20 ms.
    fn dripped(pieces: &[&str], bounds: ResponseBounds) -> io::Result<Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = node_url(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                lines.find(|line| line.as_ref().unwrap().is_empty());
                for piece in pieces {
                    if stream.write_all(piece.as_bytes()).is_err() {
                        return;
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let request =
                ClientRequest { method: "GET", target: "/", trace: false, accept: None, body: b"", key: None };
            let mut answer = send(&url, bounds, &request).map_err(|error| error.cause)?;
            let mut body = Vec::new();
            answer.copy_body(&mut body).map(|()| body)
        })
    }

    #[test]
    fn an_answer_that_drips_ends_at_its_deadline_or_for_the_patient_at_its_end() {
        let head = ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"];
        let body = ["1\r\na\r\n"; 25];
        let whole = [&head[..], &body, &["0\r\n\r\n"]].concat();
        assert_eq!(dripped(&whole, ResponseBounds::Silence(Duration::from_secs(20))).unwrap(), b"a".repeat(25));
        let endless_head = [&["HTTP/1.1 200 OK\r\n"][..], &["a: b\r\n"; 25]].concat();
        for pieces in [whole, endless_head] {
            let deadline = Instant::now() + Duration::from_millis(200);
            let error = dripped(&pieces, ResponseBounds::Whole { deadline, bytes_max: 1000 }).unwrap_err();
            assert!(error.kind() == ErrorKind::TimedOut && error.to_string().contains("not whole in time"), "{error}");
        }
    }

    #[test]
    fn an_answer_has_no_more_than_its_limit() {
        let pieces = ["HTTP/1.1 200 OK\r\n", "\r\n", "hello"];
        let get = |bytes_max| {
            dripped(&pieces, ResponseBounds::Whole { deadline: Instant::now() + Duration::from_secs(20), bytes_max })
        };
        assert_eq!(get(24).unwrap(), b"hello");
        assert!(get(23).unwrap_err().to_string().contains("too long"));
    }
}
