//! One client connection, from its first byte to its last.
//!
//! ```text
//! parked ── readable ──→ hyper ── idle for a while ──→ parked
//!    │                     │ └── upgraded ──→ the peer's side takes the socket
//!    └─ idle for too long  └── done, overdue or draining ──→ farewell ──→ closed
//! ```
//!
//! A parked connection holds neither hyper's buffers (16 KiB) nor a request's future. Farewell is: the
//! last words are written, the write side is shut, and what the client still sends is read and
//! forgotten for a moment; closing a socket with unread bytes would reset it and take the answer along.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::service::service_fn;
use tokio::net::TcpStream;

use super::api::Entities;
use super::error::{BadRequest, HttpError};
use super::io::{Io, Wire};
use super::metrics::count;
use super::respond;
use super::service::handle;
use super::shard::Hello;
use super::shard::HttpShard;
use super::watch::{Phase, Verdict, Watch};

/// What follows a stretch of HTTP.
enum End {
    Park {
        unread: Bytes,
    },
    Upgrade {
        unread: Bytes,
    },
    /// Last words, perhaps.
    Farewell(Option<HttpError>),
    /// There is nobody to say farewell to.
    Gone,
}

/// Serves a connection until it ends or is handed over.
pub(super) async fn run<E: Entities>(stream: TcpStream, watch: Rc<Watch>, shard: Rc<HttpShard<E>>) {
    let hello = Hello::default();
    let wire = Rc::new(Wire::new(stream, Rc::clone(&watch), shard.shared()));
    loop {
        if !parked(&wire, &watch, &shard).await {
            return;
        }
        match serve(&wire, &watch, &shard, &hello).await {
            End::Park { unread } if unread.is_empty() => watch.change(Phase::Parked),
            End::Park { unread } => {
                // The next head has begun in the same packet as the last request.
                watch.change(Phase::Head);
                wire.unread(unread);
            }
            End::Upgrade { unread } => {
                let wire = Rc::into_inner(wire).expect("hyper's handle went with hyper");
                let hello = hello.take().expect("an upgrade follows a hello");
                return shard.peers().upgraded(wire.into_stream(), unread, hello);
            }
            End::Farewell(error) => return farewell(&wire, &watch, &shard, error).await,
            End::Gone => return,
        }
    }
}

/// Waits for a first byte; false if the connection shall end.
async fn parked<E: Entities>(wire: &Wire, watch: &Watch, shard: &HttpShard<E>) -> bool {
    if watch.phase() != Phase::Parked {
        return true;
    }
    let readable = poll_fn(|cx| match watch.poll_verdict(cx) {
        Some(verdict) => {
            shard.note(verdict);
            Poll::Ready(false)
        }
        None => wire.poll_readable(cx).map(|ready| ready.is_ok()),
    });
    let readable = readable.await;
    watch.change(Phase::Idle);
    readable
}

/// Lets hyper serve requests until one of them, the client or the sweeper ends it.
async fn serve<E: Entities>(wire: &Rc<Wire>, watch: &Rc<Watch>, shard: &Rc<HttpShard<E>>, hello: &Hello) -> End {
    let service = service_fn(|request| handle(Rc::clone(shard), Rc::clone(watch), Rc::clone(hello), request));
    let mut connection = shard.protocol().serve_connection(Io(Rc::clone(wire)), service);
    let mut outcome = None;
    let stop = poll_fn(|cx| {
        let drains = match watch.poll_verdict(cx) {
            None => false,
            Some(Verdict::Drain) => true,
            Some(verdict) => return Poll::Ready(Stop::Told(verdict)),
        };
        let is_told = drains && !watch.is_idle();
        if is_told {
            Pin::new(&mut connection).graceful_shutdown();
        }
        if outcome.is_none()
            && let Poll::Ready(result) = Pin::new(&mut connection).poll(cx)
        {
            outcome = Some(result);
        }
        let flushed = wire.poll_flush(cx);
        if drains && !is_told && outcome.is_none() {
            // Nothing is owed to a client that keeps the connection for later: it need not notice the end first.
            if watch.is_idle() && wire.is_quiet() {
                return Poll::Ready(Stop::Told(Verdict::Drain));
            }
            // A request that has just come is answered, and what is said is written.
            watch.tell_later(Verdict::Drain);
        }
        match flushed {
            Poll::Ready(Err(_)) => Poll::Ready(Stop::Cut),
            Poll::Ready(Ok(())) => outcome.take().map_or(Poll::Pending, |result| Poll::Ready(Stop::Done(result))),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    let unread = connection.into_parts().read_buf;
    match stop {
        Stop::Cut => End::Gone,
        Stop::Done(Ok(())) if hello.borrow().is_some() => End::Upgrade { unread },
        Stop::Done(Ok(())) => End::Farewell(None),
        Stop::Done(Err(error)) => broken(&error, wire, shard),
        Stop::Told(verdict) => {
            shard.note(verdict);
            match verdict {
                Verdict::Park => End::Park { unread },
                Verdict::TimedOut => End::Farewell(Some(HttpError::Timeout)),
                Verdict::Drain | Verdict::IdleOver | Verdict::NotReading | Verdict::LingerOver => End::Gone,
            }
        }
    }
}

/// Why hyper is not polled any more.
enum Stop {
    Told(Verdict),
    Done(hyper::Result<()>),
    /// The socket failed.
    Cut,
}

/// hyper has given up on the connection.
fn broken<E: Entities>(error: &hyper::Error, wire: &Wire, shard: &HttpShard<E>) -> End {
    if !error.is_parse() {
        return End::Gone;
    }
    count(&shard.metrics().malformed);
    // hyper answers most of what it cannot parse, but not, for one, the preface of HTTP/2.
    End::Farewell((!wire.has_answered()).then(|| BadRequest::Malformed.into()))
}

/// Says the last words, and gives the client the time to hear them.
pub(super) async fn farewell<E: Entities>(wire: &Wire, watch: &Watch, shard: &HttpShard<E>, error: Option<HttpError>) {
    if let Some(error) = error {
        wire.say(&respond::raw(&error, shard.wall()));
    }
    watch.enter(Phase::Closing, shard.now());
    poll_fn(|cx| match watch.poll_verdict(cx) {
        None | Some(Verdict::Drain) => poll_farewell(wire, cx).map(|_| ()),
        Some(verdict) => {
            shard.note(verdict);
            Poll::Ready(())
        }
    })
    .await;
}

fn poll_farewell(wire: &Wire, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    ready!(wire.poll_flush(cx))?;
    ready!(wire.poll_shutdown(cx))?;
    wire.poll_discard(cx)
}
