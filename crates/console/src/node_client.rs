//! Requests to nodes: HTTP/1.1 over one connection that is kept, each with a deadline and a limit.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, Response};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::body::ConsoleBody;
use crate::settings::ConsoleNode;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// No connection.
    Unreachable(std::io::Error),
    /// The connection broke, or what came over it is no HTTP.
    Broken(hyper::Error),
    /// The answer is over its limit.
    TooLong,
    /// The deadline has passed.
    Late,
}

impl NoAnswer {
    /// In words, behind the node's name.
    pub(crate) fn words(&self, deadline: Duration) -> String {
        match self {
            Self::Unreachable(error) => {
                let error = error.to_string();
                let cause = error.split(" (os error").next().unwrap_or_default().to_lowercase();
                format!("takes no connection ({cause}): is it running, and is the address right?")
            }
            Self::Broken(error) if error.is_parse() => "does not speak HTTP/1.1: check the address".to_owned(),
            Self::Broken(error) => format!("broke the connection off ({error})"),
            Self::TooLong => "sent an answer that is too long: check the address".to_owned(),
            Self::Late => {
                format!("did not answer within {} ms: it is paused, overloaded or cut off", deadline.as_millis())
            }
        }
    }
}

/// An answer with all of its body.
#[derive(Debug)]
pub(crate) struct WholeAnswer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// The requests to one node.
#[derive(Debug)]
pub(crate) struct NodeClient {
    node: Arc<ConsoleNode>,
    /// `Bearer …`
    authorization: Option<HeaderValue>,
    kept: Option<Kept>,
}

/// A connection, and the task that drives it.
#[derive(Debug)]
struct Kept {
    sender: SendRequest<ConsoleBody>,
    task: AbortHandle,
}

impl NodeClient {
    pub(crate) fn new(node: Arc<ConsoleNode>, authorization: Option<HeaderValue>) -> Self {
        Self { node, authorization, kept: None }
    }

    /// A GET, with all of its answer's body, within a deadline. Where the connection broke since the last request, it is
    /// asked again over another.
    pub(crate) async fn get(
        &mut self,
        target: &str,
        bytes_max: usize,
        deadline: Duration,
    ) -> Result<WholeAnswer, NoAnswer> {
        let was_kept = self.kept.is_some();
        let attempts = async {
            match self.attempt("GET", target, Bytes::new(), bytes_max).await {
                Err(NoAnswer::Broken(error)) if was_kept && !error.is_parse() => {
                    self.forget();
                    self.attempt("GET", target, Bytes::new(), bytes_max).await
                }
                outcome => outcome,
            }
        };
        let outcome = timeout(deadline, attempts).await.unwrap_or(Err(NoAnswer::Late));
        if outcome.is_err() {
            self.forget();
        }
        outcome
    }

    /// A PUT or DELETE, sent once.
    pub(crate) async fn change(
        &mut self,
        method: &str,
        target: &str,
        body: Bytes,
        deadline: Duration,
    ) -> Result<WholeAnswer, NoAnswer> {
        const ANSWER_BYTES_MAX: usize = 64 << 10;
        let outcome = timeout(deadline, self.attempt(method, target, body, ANSWER_BYTES_MAX)).await;
        let outcome = outcome.unwrap_or(Err(NoAnswer::Late));
        if outcome.is_err() {
            self.forget();
        }
        outcome
    }

    async fn attempt(
        &mut self,
        method: &str,
        target: &str,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<WholeAnswer, NoAnswer> {
        let request = Request::builder().method(method).uri(target).body(ConsoleBody::whole(body));
        let answer = self.send(request.expect("a target of our own")).await?;
        let (head, incoming) = answer.into_parts();
        let body = gather(incoming, bytes_max).await?;
        Ok(WholeAnswer { status: head.status.as_u16(), body })
    }

    /// Sends a request, and returns the head of its answer, whose body may go on. No deadline.
    pub(crate) async fn send(&mut self, mut request: Request<ConsoleBody>) -> Result<Response<Incoming>, NoAnswer> {
        let host = HeaderValue::from_str(&self.node.address).expect("an address is plain text");
        request.headers_mut().insert(HOST, host);
        if let Some(key) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, key.clone());
        }
        let mut kept = match self.kept.take() {
            Some(kept) if !kept.sender.is_closed() => kept,
            _ => connect(&self.node.address).await?,
        };
        kept.sender.ready().await.map_err(NoAnswer::Broken)?;
        let answer = kept.sender.send_request(request);
        // Also while it waits: a request that is given up ends its connection.
        self.kept = Some(kept);
        answer.await.map_err(NoAnswer::Broken)
    }

    /// Ends the connection, with whatever is under way on it.
    pub(crate) fn forget(&mut self) {
        if let Some(kept) = self.kept.take() {
            kept.task.abort();
        }
    }
}

async fn connect(address: &str) -> Result<Kept, NoAnswer> {
    let stream = TcpStream::connect(address).await.map_err(NoAnswer::Unreachable)?;
    let socket = crate::socket::ConsoleSocket::new(stream);
    let (sender, connection) =
        Builder::new().max_buf_size(64 << 10).handshake(socket).await.map_err(NoAnswer::Broken)?;
    let task = tokio::spawn(async move {
        // Whoever waits for an answer is told.
        let _ = connection.await;
    });
    Ok(Kept { sender, task: task.abort_handle() })
}

/// All of a body of at most `bytes_max`.
pub(crate) async fn gather(mut body: Incoming, bytes_max: usize) -> Result<Bytes, NoAnswer> {
    let mut whole = BytesMut::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(data) = frame.map_err(NoAnswer::Broken)?.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(NoAnswer::TooLong);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}
