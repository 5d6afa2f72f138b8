//! One request to the first of several nodes that answers it.
//!
//! The next node is asked where a node cannot be connected to, or answers `503`: both say that the request had no
//! effect. All of it has one deadline. Where a connection breaks behind a request, a read is sent again to the next node
//! and a write is not: whether it took effect is not known, and the error says so.

use std::io;
use std::time::{Duration, Instant};

use kvorum_config::NodeUrl;

use crate::client::{ClientRequest, ClientResponse, ResponseBounds, connect, exchange};
use crate::key_file::ClientKey;
use crate::outcome::Unreachable;

/// For a connection, while there is another node to ask.
const CONNECT_MAX: Duration = Duration::from_secs(2);
const UNAVAILABLE: u16 = 503;

/// What a request does, and so whether it may be sent to a second node when its end is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEffect {
    /// Nothing.
    Read,
    /// It may change what is stored, or start something.
    Write,
}

/// The nodes that may answer, of which one is asked first: the first of the list, then the one that answered last.
#[derive(Debug)]
pub(crate) struct ClientNodes {
    urls: Vec<NodeUrl>,
    first: usize,
    key: Option<ClientKey>,
    timeout: Duration,
}

/// Why a node has not answered.
enum AttemptError {
    /// It was sent nothing.
    NotSent(io::Error),
    /// It may have carried the request out.
    Broken(io::Error),
}

impl ClientNodes {
    /// `urls` must not be empty.
    pub(crate) fn new(urls: Vec<NodeUrl>, key: Option<ClientKey>, timeout: Duration) -> Self {
        assert!(!urls.is_empty(), "there is a node to ask");
        Self { urls, first: 0, key, timeout }
    }

    /// The one that answered last; before that, the first.
    pub(crate) fn current(&self) -> &NodeUrl {
        self.urls.get(self.first).unwrap_or_else(|| unreachable!("`first` is the index of a node"))
    }

    /// Only the one that answered last.
    pub(crate) fn only_current(&self) -> Self {
        self.only(self.current().clone())
    }

    /// Another node, asked in the same way.
    pub(crate) fn only(&self, url: NodeUrl) -> Self {
        Self::new(vec![url], self.key.clone(), self.timeout)
    }

    /// Has the next request begin with the next node: the current one has broken off.
    pub(crate) fn pass_on(&mut self) {
        self.first = (self.first + 1) % self.urls.len();
    }

    /// Sends a request to one node after the other, until one answers; with the client's key.
    ///
    /// # Errors
    /// [`Unreachable`]: no node has answered, and why; or a write broke off.
    pub(crate) fn send(
        &mut self,
        request: &ClientRequest<'_>,
        effect: RequestEffect,
    ) -> Result<ClientResponse, Unreachable> {
        let deadline = Instant::now() + self.timeout;
        let request = ClientRequest { key: self.key.as_ref(), ..*request };
        let (mut refusal, mut failures) = (None, Vec::new());
        let count = self.urls.len();
        for (step, (index, url)) in self.urls.iter().enumerate().cycle().skip(self.first).take(count).enumerate() {
            match self.attempt(url, deadline, count - step - 1, &request) {
                Ok(answer) if answer.status == UNAVAILABLE => refusal = Some((index, answer)),
                Ok(answer) => {
                    self.first = index;
                    return Ok(answer);
                }
                Err(AttemptError::Broken(cause)) if effect == RequestEffect::Write => {
                    let text = format!("{cause}; whether it took effect is not known");
                    return Err(Unreachable { url: url.to_string(), cause: io::Error::new(cause.kind(), text) });
                }
                Err(AttemptError::NotSent(cause) | AttemptError::Broken(cause)) => {
                    failures.push(Unreachable { url: url.to_string(), cause });
                }
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        match refusal {
            // A node that says why it cannot is worth more than one that says nothing.
            Some((index, answer)) => {
                self.first = index;
                Ok(answer)
            }
            None => Err(joined(failures)),
        }
    }

    /// `others`: so many can be asked after this one.
    fn attempt(
        &self,
        url: &NodeUrl,
        deadline: Instant,
        others: usize,
        request: &ClientRequest<'_>,
    ) -> Result<ClientResponse, AttemptError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let longest = if others == 0 { left } else { left.min(CONNECT_MAX) };
        if longest.is_zero() {
            return Err(AttemptError::NotSent(io::Error::new(io::ErrorKind::TimedOut, "no time was left for it")));
        }
        let stream = connect(url, longest).map_err(AttemptError::NotSent)?;
        let bounds = ResponseBounds::Begun { deadline, silence: self.timeout };
        exchange(stream, url, bounds, request).map_err(AttemptError::Broken)
    }
}

/// The last failure, with those before it.
fn joined(failures: Vec<Unreachable>) -> Unreachable {
    let mut failures = failures.into_iter().rev();
    let last = failures.next().unwrap_or_else(|| unreachable!("one node was asked at least"));
    let others: Vec<String> = failures.map(|failure| format!("; to {}: {}", failure.url, failure.cause)).collect();
    if others.is_empty() {
        return last;
    }
    let text = format!("{}{}", last.cause, others.concat());
    Unreachable { url: last.url, cause: io::Error::new(last.cause.kind(), text) }
}
