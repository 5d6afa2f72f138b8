//! HTTP/1.1 for clients, as the contract states it, and the door through which peers come in.
//!
//! Owns the client connections of one shard: their buffers, limits, timeouts and counters. Promises that
//! a connection that is slow, idle, wrong or hostile costs a bounded amount of memory and nothing else,
//! and that a request which is answered with an error has left nothing behind unless the error says so.
//! Does not know what a key's replicas are: the answers come from [`Entities`], pages of ranges from
//! [`Ranges`], everything about the node from [`Admin`].
//!
//! Invariants: no timer and no task is started per request; nothing is allocated for a length before it
//! is compared with its limit; `error.rs` alone maps errors to statuses; what `request.rs` accepts is a
//! valid [`Key`] and valid [`Acks`].
//!
//! Read `connection.rs` for a connection's life, `service.rs` for a request's.

mod body;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "tests/fake.rs"]
mod fake;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod io;
mod metrics;
mod problem;
mod range;
mod request;
mod respond;
mod service;
mod watch;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use kvorum_core::Key;
use kvorum_core::quorum::Acks;
use slab::Slab;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

pub use self::metrics::{HttpMetrics, METHODS, STATUSES};
pub use self::range::{PageFuture, RangeError, Ranges};

use self::error::{HttpError, RequestId, Shed};
use self::io::Shared;
use self::metrics::count;
use self::range::RangeBody;
use self::request::ReplicationDefaults;
use self::watch::{Coarse, Phase, SWEEP_EVERY, Verdict, Watch};
use crate::coordinator::{Coordinator, Found, Refused, Written};
use crate::large_values::{Body, FREE_BYTES, LargeValues};
use crate::log_limit::LogLimit;
use crate::profile::waits;

/// What a connection between nodes is upgraded to.
pub const PEER_PROTOCOL: &str = "kvorum/1";
/// Largest request head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Largest single read of a body.
const READ_BYTES_MAX: usize = 64 * 1024;
/// How long a request waits for room among those in flight before it is shed. Saying no costs a quarter of what
/// serving costs; said at once, it is asked again at once, and little is left for those that are served.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(30);
/// Connections over the limit that are told so at a time; more than these are just closed.
const REFUSALS_MAX: usize = 64;

/// Limits of one shard, and what requests that do not say get.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Largest value.
    pub value_bytes_max: usize,
    /// A request's head, and then its body, must be complete within this.
    pub request_read_timeout: Duration,
    /// A connection on which nothing comes is closed after this.
    pub idle_timeout: Duration,
    /// A client that reads nothing of what waits for it is cut off after this.
    pub write_timeout: Duration,
    /// Open connections.
    pub connections_max: usize,
    /// Requests in flight, streams included.
    pub requests_max: usize,
    /// Bytes of one page of a range.
    pub scan_page_bytes: usize,
    /// Replicas of a key where the request does not say.
    pub default_from: u8,
    /// Nodes of the cluster.
    pub nodes: u8,
}

/// Single entities, as the coordinator serves them.
pub trait Entities: 'static {
    /// Stores a value at `acks.from()` replicas and waits for `acks.ack()` of them.
    fn put(
        &self,
        key: Key,
        acks: Acks,
        content_type: Option<&[u8]>,
        value: Body,
        trace: bool,
    ) -> impl Future<Output = Result<Written, Refused>>;

    /// Stores a deletion.
    fn delete(&self, key: Key, acks: Acks, trace: bool) -> impl Future<Output = Result<Written, Refused>>;

    /// The newest version among the answers of `acks.ack()` replicas.
    fn get(&self, key: Key, acks: Acks, trace: bool) -> impl Future<Output = Result<Found, Refused>>;
}

impl Entities for Coordinator {
    fn put(
        &self,
        key: Key,
        acks: Acks,
        content_type: Option<&[u8]>,
        value: Body,
        trace: bool,
    ) -> impl Future<Output = Result<Written, Refused>> {
        Self::put(self, key, acks, content_type, value, trace)
    }

    fn delete(&self, key: Key, acks: Acks, trace: bool) -> impl Future<Output = Result<Written, Refused>> {
        Self::delete(self, key, acks, trace)
    }

    fn get(&self, key: Key, acks: Acks, trace: bool) -> impl Future<Output = Result<Found, Refused>> {
        Self::get(self, key, acks, trace)
    }
}

/// Something that the node does for its operator: a page, or why there is none.
pub type AdminFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>>>>;

/// What the node says about itself. The `Err` of a probe is the detail of its 503.
pub trait Admin {
    /// `/livez`: whether a restart would not help.
    ///
    /// # Errors
    /// Why it would.
    fn live(&self) -> Result<(), String>;
    /// `/readyz`: has met its cluster, has tried to connect to all peers, not draining, able to write.
    ///
    /// # Errors
    /// Why the node is not ready.
    fn ready(&self) -> Result<(), String>;
    /// `/v0/status`: whether the node has started, though its peers may not have: those who start nodes one after another
    /// await each by this.
    ///
    /// # Errors
    /// Why the node answers no requests.
    fn started(&self) -> Result<(), String>;
    /// `/v0/cluster`.
    fn cluster_json(&self) -> Vec<u8>;
    /// `POST /v0/scrub`: begins a pass, and tells its number.
    fn scrub(&self) -> Vec<u8>;
    /// `POST /v0/backup`: takes a backup, and tells where it is. The `Err` is the detail of a 503.
    fn backup(&self) -> AdminFuture;
    /// `GET /v0/repair`.
    fn repair_json(&self) -> Vec<u8>;
    /// `POST /v0/repair`: has this node drive a round; gives its number.
    fn begin_repair(&self) -> u64;
    /// `/metrics`, of all shards.
    fn metrics_text(&self) -> String;
}

/// Connections between nodes, which begin as HTTP.
pub trait PeerUpgrade {
    /// Judges the headers of `GET /_peer` with `Upgrade: kvorum/1`; gives those of the 101, which must
    /// include `Connection: upgrade` and `Upgrade: kvorum/1`.
    ///
    /// # Errors
    /// The refusal that the peer gets.
    fn accept(&self, hello: &HeaderMap) -> Result<HeaderMap, PeerRefusal>;
    /// Takes the socket once the 101 has been written. `read_ahead` has been read from it already.
    fn upgraded(&self, stream: TcpStream, read_ahead: Bytes, hello: HeaderMap);
}

/// Why a peer is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRefusal {
    /// A status of errors.
    pub status: StatusCode,
    /// Of the problem.
    pub title: &'static str,
    /// Of the problem.
    pub detail: String,
}

/// What a shard's HTTP works with.
pub struct HttpParts<E> {
    /// Serves entities.
    pub entities: Rc<E>,
    /// Reads pages of ranges.
    pub ranges: Rc<dyn Ranges>,
    /// Speaks for the node.
    pub admin: Rc<dyn Admin>,
    /// Takes peers.
    pub peers: Rc<dyn PeerUpgrade>,
    /// The node's memory for large values.
    pub large_values: Arc<LargeValues>,
    /// Counters, which the node renders.
    pub metrics: Arc<HttpMetrics>,
    /// The wall clock.
    pub wall: Box<dyn Fn() -> SystemTime>,
    /// Random, so that request ids differ between shards and starts.
    pub request_id_seed: u64,
}

/// The HTTP side of one shard.
pub struct HttpShard<E> {
    parts: HttpParts<E>,
    settings: HttpSettings,
    protocol: http1::Builder,
    shared: Rc<Shared>,
    started: Instant,
    connections: RefCell<Slab<Rc<Watch>>>,
    /// For requests that cost something; given out in the order in which they came.
    room: Rc<Semaphore>,
    refusals: Cell<usize>,
    next_request_id: Cell<u64>,
    draining: Cell<bool>,
    gone: Notify,
    broken_ranges: Rc<LogLimit>,
}

/// The headers of a peer that is being let in.
type Hello = Rc<RefCell<Option<HeaderMap>>>;

/// Serves `stream` in a task of the current `LocalSet`, which ends with the connection; over the limit of
/// connections it is told so and closed. Cancel safe: returns at once.
pub fn serve_connection<E: Entities>(stream: TcpStream, shard: Rc<HttpShard<E>>) {
    // Answers are small and written whole; a failure shows at the first read.
    let _ = stream.set_nodelay(true);
    count(&shard.parts.metrics.connections_total);
    let refusal = if shard.draining.get() {
        Some(Shed::Draining)
    } else {
        (shard.connections.borrow().len() >= shard.settings.connections_max).then_some(Shed::Connections)
    };
    match refusal {
        None => {
            let watch = Rc::new(Watch::new(shard.now()));
            let seat = shard.seat(&watch);
            tokio::task::spawn_local(async move {
                connection::run(stream, watch, Rc::clone(&seat.shard)).await;
            });
        }
        Some(reason) => shard.refuse(stream, reason),
    }
}

impl<E: Entities> HttpShard<E> {
    /// A shard without connections.
    #[must_use]
    pub fn new(parts: HttpParts<E>, settings: HttpSettings) -> Rc<Self> {
        let mut protocol = http1::Builder::new();
        // Half-closed connections get their answers, and hyper need not probe for it during requests.
        protocol.half_close(true).max_header_size(HEAD_BYTES_MAX).max_buf_size(READ_BYTES_MAX);
        protocol.header_read_timeout(None);
        Rc::new(Self {
            next_request_id: Cell::new(parts.request_id_seed),
            parts,
            room: Rc::new(Semaphore::new(settings.requests_max)),
            settings,
            protocol,
            shared: Rc::new(Shared::new()),
            started: Instant::now(),
            connections: RefCell::default(),
            refusals: Cell::new(0),
            draining: Cell::new(false),
            gone: Notify::new(),
            broken_ranges: Rc::default(),
        })
    }

    /// Enforces the timeouts of all connections until the shard has drained; the owner spawns it once.
    pub async fn run_sweeper(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !(self.draining.get() && self.connections.borrow().is_empty()) {
            ticks.tick().await;
            self.shared.now.set(Coarse(self.started.elapsed()));
            for (_, watch) in &*self.connections.borrow() {
                if self.draining.get() && matches!(watch.phase(), Phase::Parked | Phase::Idle) {
                    watch.tell(Verdict::Drain);
                } else {
                    watch.sweep(self.now(), &self.settings);
                }
            }
        }
    }

    /// Takes no more requests: idle connections close, others finish what is in flight.
    pub fn drain(&self) {
        self.draining.set(true);
        for (_, watch) in &*self.connections.borrow() {
            watch.tell(Verdict::Drain);
        }
        self.gone.notify_waiters();
    }

    /// Resolves when the shard drains and all its connections are gone. Cancel safe.
    pub async fn drained(&self) {
        loop {
            let gone = self.gone.notified();
            if self.draining.get() && self.connections.borrow().is_empty() {
                return;
            }
            gone.await;
        }
    }

    /// Open connections, those of peers not counted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.borrow().len()
    }

    fn seat(self: &Rc<Self>, watch: &Rc<Watch>) -> Seat<E> {
        let number = self.connections.borrow_mut().insert(Rc::clone(watch));
        count(&self.parts.metrics.connections);
        Seat { shard: Rc::clone(self), number }
    }

    /// Says 503 to a connection that there is no seat for.
    fn refuse(self: Rc<Self>, stream: TcpStream, reason: Shed) {
        let error = self.shed(reason);
        if self.refusals.get() >= REFUSALS_MAX {
            return;
        }
        self.refusals.set(self.refusals.get() + 1);
        tokio::task::spawn_local(async move {
            let watch = Rc::new(Watch::new(self.now()));
            let wire = io::Wire::new(stream, Rc::clone(&watch), self.shared());
            let goodbye = connection::farewell(&wire, &watch, &self, Some(error));
            // Nobody sweeps what has no seat.
            let _ = tokio::time::timeout(Duration::from_secs(1), goodbye).await;
            self.refusals.set(self.refusals.get() - 1);
        });
    }

    fn busy(&self, watch: &Rc<Watch>) -> Busy {
        watch.change(Phase::Serving);
        count(&self.parts.metrics.in_flight);
        Busy {
            watch: Rc::clone(watch),
            shared: Rc::clone(&self.shared),
            room: Rc::clone(&self.room),
            has_room: Cell::new(false),
            metrics: Arc::clone(&self.parts.metrics),
        }
    }

    /// Gives the request room among those in flight, if need be after a wait. Cancel safe.
    async fn admit(&self, busy: &Busy) -> Result<(), HttpError> {
        let room = match self.room.try_acquire() {
            Ok(room) => room,
            // Boxed: few requests come here, and all of them would be larger.
            Err(_) => {
                let wait = tokio::time::timeout(ROOM_WAIT_MAX, self.room.acquire());
                match Box::pin(waits::queue("room", wait)).await {
                    Ok(Ok(room)) => room,
                    Ok(Err(_)) | Err(_) => return Err(self.shed(Shed::Requests)),
                }
            }
        };
        room.forget();
        busy.has_room.set(true);
        Ok(())
    }

    fn shed(&self, reason: Shed) -> HttpError {
        count(&self.parts.metrics.shed);
        HttpError::Shed(reason)
    }

    fn defect(&self, reason: &str) -> HttpError {
        let request_id = RequestId(self.next_request_id.get());
        self.next_request_id.set(request_id.0.wrapping_add(1));
        count(&self.parts.metrics.defects);
        tracing::error!(%request_id, reason, "request failed by a defect");
        HttpError::Defect { request_id }
    }

    /// A range as of now, not yet opened, with room for its pages.
    fn range_until(&self, end: Option<Bytes>) -> Result<RangeBody, HttpError> {
        let page_bytes = self.settings.scan_page_bytes;
        let room = self.large_values().charge(page_bytes.max(FREE_BYTES + 1)).map_err(|_| self.shed(Shed::Memory))?;
        let metrics = Arc::clone(&self.parts.metrics);
        let (log, started) = (Rc::clone(&self.broken_ranges), self.started);
        let on_broken = Box::new(move |reason: &str| {
            count(&metrics.ranges_broken);
            if let Some(left_out) = log.due(started.elapsed()) {
                tracing::error!(reason, left_out, "range broken off");
            }
        });
        let source = Rc::clone(&self.parts.ranges);
        Ok(RangeBody::new(source, end, page_bytes, room, self.wall_ms(), on_broken))
    }

    /// Counts why a connection ends.
    fn note(&self, verdict: Verdict) {
        let metrics = &self.parts.metrics;
        match verdict {
            Verdict::TimedOut => count(&metrics.request_timeouts),
            Verdict::IdleOver => count(&metrics.idle_timeouts),
            Verdict::NotReading => count(&metrics.write_timeouts),
            Verdict::Park | Verdict::LingerOver | Verdict::Drain => {}
        }
    }

    fn defaults(&self) -> ReplicationDefaults {
        ReplicationDefaults { from: self.settings.default_from, nodes: self.settings.nodes }
    }

    fn wall(&self) -> SystemTime {
        (self.parts.wall)()
    }

    fn wall_ms(&self) -> u64 {
        let since = self.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> Coarse {
        self.shared.now.get()
    }

    fn shared(&self) -> Rc<Shared> {
        Rc::clone(&self.shared)
    }

    fn settings(&self) -> &HttpSettings {
        &self.settings
    }

    fn protocol(&self) -> &http1::Builder {
        &self.protocol
    }

    fn large_values(&self) -> &Arc<LargeValues> {
        &self.parts.large_values
    }

    fn entities(&self) -> &E {
        &self.parts.entities
    }

    fn admin(&self) -> &dyn Admin {
        &*self.parts.admin
    }

    fn peers(&self) -> &dyn PeerUpgrade {
        &*self.parts.peers
    }

    fn metrics(&self) -> &HttpMetrics {
        &self.parts.metrics
    }
}

/// A place among the shard's connections, given up when the connection's task ends.
struct Seat<E> {
    shard: Rc<HttpShard<E>>,
    number: usize,
}

impl<E> Drop for Seat<E> {
    fn drop(&mut self) {
        self.shard.connections.borrow_mut().remove(self.number);
        self.shard.parts.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        self.shard.gone.notify_waiters();
    }
}

/// A request in flight, until its answer, or the last of its stream, is handed to the connection.
struct Busy {
    watch: Rc<Watch>,
    shared: Rc<Shared>,
    room: Rc<Semaphore>,
    has_room: Cell<bool>,
    metrics: Arc<HttpMetrics>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.watch.enter(Phase::Idle, self.shared.now.get());
        if self.has_room.get() {
            self.room.add_permits(1);
        }
        self.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
