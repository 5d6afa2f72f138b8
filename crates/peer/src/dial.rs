//! How a connection to a peer is made: over TCP with an upgrade of HTTP, or in a simulated network.

use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use kvorum_base::faults::Faults;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::error::HandshakeError;
use super::handshake;
use super::handshake::Hello;
use super::slow::transport;
use super::transport::Transport;

/// Longest head of a handshake's answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// As much of a refusal's body is read.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;

/// Connects to peers.
pub trait Dial {
    /// Connects to the node with this URL, and exchanges hellos. Waits without a limit of its own; dropped, it
    /// gives up.
    fn dial<'a>(&'a self, url: &'a str, ours: &'a Hello) -> Dialling<'a>;
}

/// What [`Dial::dial`] gives.
pub type Dialling<'a> = Pin<Box<dyn Future<Output = Result<Dialled, ConnectError>> + 'a>>;

/// A connection whose peer has named itself.
pub struct Dialled {
    /// The connection.
    pub transport: Box<dyn Transport>,
    /// The peer's identity, unchecked.
    pub hello: Hello,
    /// What it sent behind that.
    pub input: BytesMut,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The network's.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// There was no answer.
    #[error("no answer within the connect timeout")]
    Timeout,
    /// By the peer, for this reason.
    #[error("refused: {0}")]
    Refused(String),
    /// By this node.
    #[error("refused: {0}")]
    Stranger(#[from] HandshakeError),
    /// The disk did not take it.
    #[error("could not note the peer's identity: {0}")]
    NotRemembered(String),
}

/// Over TCP.
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    /// What the node has been given of them.
    pub faults: Option<Arc<Faults>>,
}

impl Dial for Tcp {
    fn dial<'a>(&'a self, url: &'a str, ours: &'a Hello) -> Dialling<'a> {
        Box::pin(async move {
            let authority = url.strip_prefix("http://").unwrap_or(url);
            let mut stream = TcpStream::connect(authority).await?;
            stream.set_nodelay(true)?;
            widen_on_loopback(&stream)?;
            let (hello, input) = shake_hands(&mut stream, ours, authority).await?;
            Ok(Dialled { transport: transport(stream, self.faults.as_ref()), hello, input })
        })
    }
}

/// Bytes of a receive buffer over loopback: some pages of a scan.
const LOOPBACK_BUFFER_BYTES: usize = 1 << 20;

/// Gives a connection with this machine a longer receive buffer. A segment of loopback has 64 KiB, half of the buffer
/// that a connection begins with, so what follows the first of a large message waits for the kernel's timers: some
/// 25 ms for a page of a scan. Elsewhere segments are short, and the kernel sizes buffers by what the way needs.
///
/// # Errors
/// The system's.
pub fn widen_on_loopback(stream: &TcpStream) -> std::io::Result<()> {
    if stream.peer_addr()?.ip().to_canonical().is_loopback() {
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, LOOPBACK_BUFFER_BYTES)?;
    }
    Ok(())
}

/// Sends this node's identity; returns the peer's, and what it sent behind that.
async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    ours: &Hello,
    authority: &str,
) -> Result<(Hello, BytesMut), ConnectError> {
    let mut request = format!("GET {} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\n", handshake::PATH);
    for (name, value) in &ours.headers() {
        request.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut input = BytesMut::new();
    loop {
        if stream.read_buf(&mut input).await? == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&input);
        let header = |name: &str| {
            let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            header.map(|header| header.value)
        };
        match parsed {
            Err(_) => return Err(ConnectError::Refused("the answer is no HTTP".to_owned())),
            Ok(httparse::Status::Partial) if input.len() > HEAD_BYTES_MAX => {
                return Err(ConnectError::Refused("its answer has too long a head".to_owned()));
            }
            Ok(httparse::Status::Partial) => {}
            // It is stopping, or full: as if nothing listened.
            Ok(httparse::Status::Complete(_)) if response.code == Some(503) => {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
            }
            Ok(httparse::Status::Complete(end)) if response.code == Some(101) => {
                let hello = Hello::parse(header)?;
                input.advance(end);
                return Ok((hello, input));
            }
            Ok(httparse::Status::Complete(end)) => {
                let length = header("content-length").and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
                let code = response.code.unwrap_or_default();
                input.advance(end);
                return Err(refusal(stream, code, input, length.unwrap_or(0)).await);
            }
        }
    }
}

/// The body of the peer's refusal, which begins with `body`.
async fn refusal<S: AsyncRead + Unpin>(stream: &mut S, code: u16, mut body: BytesMut, length: usize) -> ConnectError {
    while body.len() < length.min(REFUSAL_BYTES_MAX) && stream.read_buf(&mut body).await.is_ok_and(|count| count > 0) {}
    let problem = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
    let reason = match problem.get("detail").and_then(serde_json::Value::as_str) {
        Some(detail) => detail.to_owned(),
        None => String::from_utf8_lossy(&body).chars().take(500).collect(),
    };
    ConnectError::Refused(format!("{code}: {reason}"))
}

#[cfg(test)]
#[path = "dial/tests.rs"]
mod tests;
