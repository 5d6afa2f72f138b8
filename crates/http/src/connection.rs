//! One client connection, from its first byte to its last.
//!
//! ```text
//! parked ── readable ──→ hyper ── idle for a while ──→ parked
//!    │                     │ └── upgraded ──→ the peer's side takes the socket
//!    └─ idle for too long  └── done, overdue or draining ──→ farewell ──→ closed
//! ```
//!
//! A parked connection holds neither hyper's buffers (16 KiB) nor a request's future. Farewell is: the
//! last words are written, the write side is shut, and what the client still sends is read and dropped for a moment;
//! closing a socket with unread bytes would reset it and take the answer along.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::service::service_fn;
use tokio::net::TcpStream;

use super::api::Entities;
use super::bad_request::BadRequest;
use super::error::HttpError;
use super::io::{Io, Socket};
use super::metrics::count;
use super::respond;
use super::service::handle;
use super::shard::HelloHeaders;
use super::shard::HttpShard;
use super::watch::{ConnectionPhase, ConnectionWatch, Verdict};

/// What follows a stretch of HTTP.
enum AfterHttp {
    Park {
        unread: Bytes,
    },
    Upgrade {
        unread: Bytes,
    },
    /// Last words, perhaps.
    Farewell(Option<HttpError>),
    /// There is no client to say farewell to.
    Gone,
}

/// Serves a connection until it ends or is handed over.
pub(super) async fn run<E: Entities>(stream: TcpStream, watch: Rc<ConnectionWatch>, shard: Rc<HttpShard<E>>) {
    let hello = HelloHeaders::default();
    let wire = Rc::new(Socket::new(stream, Rc::clone(&watch), shard.shared()));
    loop {
        if !parked(&wire, &watch, &shard).await {
            return;
        }
        match serve(&wire, &watch, &shard, &hello).await {
            AfterHttp::Park { unread } if unread.is_empty() => watch.change(ConnectionPhase::Parked),
            AfterHttp::Park { unread } => {
                // The next head has begun in the same packet as the last request.
                watch.change(ConnectionPhase::Head);
                wire.unread(unread);
            }
            AfterHttp::Upgrade { unread } => {
                let wire = Rc::into_inner(wire).expect("hyper's handle went with hyper");
                let (hello, answer) = hello.take().expect("an upgrade follows a hello");
                return shard.peers().upgraded(wire.into_stream(), unread, hello, answer);
            }
            AfterHttp::Farewell(error) => return farewell(&wire, &watch, &shard, error).await,
            AfterHttp::Gone => return,
        }
    }
}

/// Waits for a first byte; false if the connection shall end.
async fn parked<E: Entities>(wire: &Socket, watch: &ConnectionWatch, shard: &HttpShard<E>) -> bool {
    if watch.phase() != ConnectionPhase::Parked {
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
    watch.change(ConnectionPhase::Idle);
    readable
}

/// Lets hyper serve requests until one of them, the client or the sweeper ends it.
async fn serve<E: Entities>(
    wire: &Rc<Socket>,
    watch: &Rc<ConnectionWatch>,
    shard: &Rc<HttpShard<E>>,
    hello: &HelloHeaders,
) -> AfterHttp {
    // hyper begins anew.
    let _unwritten = watch.take_head();
    let service = service_fn(|request| handle(Rc::clone(shard), Rc::clone(watch), Rc::clone(hello), request));
    let mut connection = shard.protocol().serve_connection(Io(Rc::clone(wire)), service);
    let mut outcome = None;
    let stop = poll_fn(|cx| {
        let drains = match watch.poll_verdict(cx) {
            None => false,
            Some(Verdict::Drain) => true,
            Some(verdict) => return Poll::Ready(StopReason::Told(verdict)),
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
            // A client that keeps the connection for later has no answer due: it need not notice the end first.
            if watch.is_idle() && wire.is_quiet() {
                return Poll::Ready(StopReason::Told(Verdict::Drain));
            }
            // A request that has just come is answered, and the answer is written.
            watch.tell_later(Verdict::Drain);
        }
        match flushed {
            Poll::Ready(Err(_)) => Poll::Ready(StopReason::Cut),
            Poll::Ready(Ok(())) => outcome.take().map_or(Poll::Pending, |result| Poll::Ready(StopReason::Done(result))),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    let unread = connection.into_parts().read_buf;
    match stop {
        StopReason::Cut => AfterHttp::Gone,
        StopReason::Done(Ok(())) if hello.borrow().is_some() => AfterHttp::Upgrade { unread },
        StopReason::Done(Ok(())) => AfterHttp::Farewell(None),
        StopReason::Done(Err(error)) => broken(&error, wire, shard),
        StopReason::Told(verdict) => {
            shard.note(verdict);
            match verdict {
                Verdict::Park => AfterHttp::Park { unread },
                Verdict::TimedOut => AfterHttp::Farewell(Some(HttpError::Timeout)),
                Verdict::Drain | Verdict::IdleOver | Verdict::NotReading | Verdict::LingerOver => AfterHttp::Gone,
            }
        }
    }
}

/// Why hyper is not polled any more.
enum StopReason {
    Told(Verdict),
    Done(hyper::Result<()>),
    /// The socket failed.
    Cut,
}

/// hyper has given up on the connection.
fn broken<E: Entities>(error: &hyper::Error, wire: &Socket, shard: &HttpShard<E>) -> AfterHttp {
    if !error.is_parse() {
        return AfterHttp::Gone;
    }
    count(&shard.metrics().malformed);
    // hyper answers most of what it cannot parse, but not, for one, the preface of HTTP/2.
    AfterHttp::Farewell((!wire.has_answered()).then(|| BadRequest::Malformed.into()))
}

/// Writes the last words, and gives the client the time to read them.
pub(super) async fn farewell<E: Entities>(
    wire: &Socket,
    watch: &ConnectionWatch,
    shard: &HttpShard<E>,
    error: Option<HttpError>,
) {
    if let Some(error) = error {
        wire.say(&respond::raw(&error, shard.wall()));
    }
    watch.enter(ConnectionPhase::Closing, shard.now());
    poll_fn(|cx| match watch.poll_verdict(cx) {
        None | Some(Verdict::Drain) => poll_farewell(wire, cx).map(|_| ()),
        Some(verdict) => {
            shard.note(verdict);
            Poll::Ready(())
        }
    })
    .await;
}

fn poll_farewell(wire: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    ready!(wire.poll_flush(cx))?;
    ready!(wire.poll_shutdown(cx))?;
    wire.poll_discard(cx)
}
