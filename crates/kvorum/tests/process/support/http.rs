//! A small blocking HTTP/1.1 client that hides nothing: raw bytes in, statuses, headers and chunks out.
//! It never retries and never reconnects behind the test's back within one exchange.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One answer, as it came.
#[derive(Clone)]
pub struct Response {
    pub version: String,
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The body's chunks, if it came in chunks.
    pub chunks: Option<Vec<Vec<u8>>>,
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body: String = self.text().chars().take(1_000).collect();
        write!(f, "{} {} {} {:?} {body}", self.version, self.status, self.reason, self.headers)
    }
}

impl Response {
    /// The header's only value.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let first = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} came twice: {self:?}");
        first
    }

    /// The version, which must be a quoted opaque string.
    #[track_caller]
    pub fn etag(&self) -> String {
        let tag = self.header("etag").unwrap_or_else(|| panic!("no ETag: {self:?}"));
        assert!(tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"'), "ETag {tag} is not a strong quoted one");
        tag.to_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the server closes the connection after this.
    pub fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// Checks that this is `status` with an RFC 9457 body, and gives the body.
    #[track_caller]
    pub fn problem(&self, status: u16) -> serde_json::Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert!(self.header("date").is_some(), "no Date: {self:?}");
        let body = self.json();
        assert_eq!(body["status"], status, "{body}");
        for member in ["type", "title", "detail"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "no {member}: {body}");
        }
        body
    }
}

/// One keep-alive connection; opened when needed, dropped when either side closes.
pub struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
    /// Received and not yet consumed.
    buffer: Vec<u8>,
    timeout: Duration,
    /// Goes with every request, if there is one.
    key: Option<String>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: None, buffer: Vec::new(), timeout: Duration::from_secs(20), key: None }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Longest wait for the next byte.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Shows this key with every request.
    pub fn key(mut self, key: Option<&str>) -> Self {
        self.key = key.map(str::to_owned);
        self
    }

    /// The socket, connected if it is not.
    pub fn stream(&mut self) -> io::Result<&mut TcpStream> {
        if self.stream.is_none() {
            let stream = TcpStream::connect_timeout(&self.address, self.timeout)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(self.timeout))?;
            stream.set_write_timeout(Some(self.timeout))?;
            self.buffer.clear();
            self.stream = Some(stream);
        }
        Ok(self.stream.as_mut().expect("connected above"))
    }

    pub fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Writes bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream()?.write_all(bytes)
    }

    /// One exchange. An error leaves the connection closed.
    pub fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> io::Result<Response> {
        let bearer = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let own = bearer.iter().map(|bearer| ("Authorization", bearer.as_str()));
        let headers: Vec<(&str, &str)> = headers.iter().copied().chain(own).collect();
        let request = request(method, target, &headers, body);
        let result = self.write(&request).and_then(|()| self.receive(method));
        if result.is_err() {
            self.stream = None;
        }
        result
    }

    /// The next final answer to a request of `method`; `100 Continue` is passed over.
    pub fn receive(&mut self, method: &str) -> io::Result<Response> {
        loop {
            let response = self.receive_any(method)?;
            if response.status != 100 {
                return Ok(response);
            }
        }
    }

    /// The next answer, interim ones included.
    pub fn receive_any(&mut self, method: &str) -> io::Result<Response> {
        let mut response = self.head()?;
        let length =
            response.header("content-length").map(|text| text.parse::<usize>().map_err(invalid)).transpose()?;
        let chunked = response.header("transfer-encoding").is_some_and(|value| value == "chunked");
        let empty = method == "HEAD" || response.status < 200 || matches!(response.status, 204 | 304);
        if !empty && chunked {
            let chunks = self.chunks()?;
            response.body = chunks.concat();
            response.chunks = Some(chunks);
        } else if !empty {
            response.body = match length {
                Some(length) => self.take(length)?,
                None => self.rest()?,
            };
        }
        if response.closes() {
            self.stream = None;
        }
        Ok(response)
    }

    /// Reads the status line and the headers.
    pub fn head(&mut self) -> io::Result<Response> {
        let line = self.line()?;
        let mut parts = line.splitn(3, ' ');
        let version = parts.next().unwrap_or_default().to_owned();
        let status = parts.next().unwrap_or_default().parse().map_err(invalid)?;
        let reason = parts.next().unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(Response { version, status, reason, headers, body: Vec::new(), chunks: None });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid(&line))?;
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    fn chunks(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut chunks = Vec::new();
        while let Some(chunk) = self.chunk()? {
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    /// The next chunk; none after the last.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16).map_err(invalid)?;
        let chunk = self.take(size)?;
        match self.line()?.is_empty() {
            true if size == 0 => Ok(None),
            true => Ok(Some(chunk)),
            false => Err(invalid("a chunk is longer than it says")),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.buffer.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(invalid);
            }
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? != 0 {}
        self.stream = None;
        Ok(std::mem::take(&mut self.buffer))
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 64 * 1024];
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let got = stream.read(&mut piece)?;
        self.buffer.extend_from_slice(&piece[..got]);
        Ok(got)
    }

    /// Waits until the server closes, and returns whether it sent nothing more before that.
    pub fn closed_silently(&mut self) -> bool {
        loop {
            match self.fill() {
                Ok(0) => return self.buffer.is_empty(),
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset && self.buffer.is_empty(),
            }
        }
    }

    // The shorthands of most tests: an error of the connection fails the test.

    #[track_caller]
    pub fn ok(&mut self, method: &str, target: &str, body: Option<&[u8]>) -> Response {
        self.with(method, target, &[], body)
    }

    #[track_caller]
    pub fn with(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Response {
        self.send(method, target, headers, body).unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.ok("GET", target, None)
    }

    /// Checks for `200` and gives the value.
    #[track_caller]
    pub fn value(&mut self, target: &str) -> Vec<u8> {
        let response = self.get(target);
        assert_eq!(response.status, 200, "GET {target}: {response:?}");
        response.body
    }

    #[track_caller]
    pub fn put(&mut self, target: &str, value: &[u8]) -> Response {
        let response = self.ok("PUT", target, Some(value));
        assert_eq!(response.status, 201, "PUT {target}: {response:?}");
        response
    }

    /// Checks that a PUT is refused for want of a key.
    #[track_caller]
    pub fn put_refused(&mut self, target: &str) {
        self.ok("PUT", target, Some(b"v")).problem(401);
    }

    #[track_caller]
    pub fn delete(&mut self, target: &str) -> Response {
        let response = self.ok("DELETE", target, None);
        assert_eq!(response.status, 202, "DELETE {target}: {response:?}");
        response
    }

    #[track_caller]
    pub fn absent(&mut self, target: &str) -> Response {
        let response = self.get(target);
        response.problem(404);
        response
    }
}

/// A request's bytes.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Vec<u8> {
    let mut out = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
    for (name, value) in headers {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if let Some(body) = body {
        out.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.unwrap_or_default());
    out
}

/// `/v0/entity?id=…` of any bytes.
pub fn entity(id: impl AsRef<[u8]>) -> String {
    format!("/v0/entity?id={}", encode(id.as_ref()))
}

/// The same with `ack` of `from`.
pub fn entity_at(id: impl AsRef<[u8]>, ack: usize, from: usize) -> String {
    format!("{}&ack={ack}&from={from}", entity(id))
}

/// Every byte that is not unreserved as `%XX`.
pub fn encode(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    bytes.iter().map(|&byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
