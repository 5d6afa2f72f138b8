//! The HTTP side of one shard: its connections, its limits, its counters.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use kvorum_base::faults::Faults;
use kvorum_base::log_limit::LogLimit;
use kvorum_base::value_memory::{FREE_BYTES, LargeValues};
use kvorum_base::waits;
use slab::Slab;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::api::{Admin, AuditLog, Entities, PeerUpgrade, Scans, Scripts};
use crate::error::{HttpError, RequestId, Shed};
use crate::gate::{Gate, RangePermit};
use crate::in_flight::InFlightGuard;
use crate::io::SharedBuffers;
use crate::metrics::{HttpMetrics, count};
use crate::numbers::ReplicationDefaults;
use crate::range::{PageRoom, RangeBody, Ranges};
use crate::settings::HttpSettings;
use crate::shares::{ClientShares, Share};
use crate::watch::{CoarseClock, ConnectionPhase, ConnectionWatch, SWEEP_EVERY, Verdict};

/// Largest request head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Largest single read of a body.
const READ_BYTES_MAX: usize = 64 * 1024;
/// How long a request waits for room among those in flight before it is shed. A refusal costs a quarter of what serving
/// costs; given at once, it brings the next request at once, and little is left for those that are served.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(30);

/// What a shard's HTTP works with.
pub struct HttpParts<E> {
    /// Serves entities.
    pub entities: Rc<E>,
    /// Reads pages of ranges.
    pub ranges: Rc<dyn Ranges>,
    /// Scans the cluster.
    pub scans: Box<dyn Scans>,
    /// Runs scripts; nothing where they are off.
    pub scripts: Option<Rc<dyn Scripts>>,
    /// The node's own pages.
    pub admin: Rc<dyn Admin>,
    /// Takes peers.
    pub peers: Rc<dyn PeerUpgrade>,
    /// Looks at keys, if the node has any.
    pub gate: Option<Rc<Gate>>,
    /// Writes down what was asked for, if there is an audit.
    pub audit: Option<Rc<dyn AuditLog>>,
    /// The node's memory for large values.
    pub large_values: Arc<LargeValues>,
    /// What clients hold of it.
    pub shares: Arc<ClientShares>,
    /// Counters, which the node renders.
    pub metrics: Arc<HttpMetrics>,
    /// The wall clock.
    pub wall: Rc<dyn Fn() -> SystemTime>,
    /// What the node has been given of them.
    pub faults: Option<Arc<Faults>>,
    /// Different for each shard and start, so that request ids are.
    pub request_id_seed: u64,
}

/// The HTTP side of one shard.
pub struct HttpShard<E> {
    pub(crate) parts: HttpParts<E>,
    pub(crate) settings: HttpSettings,
    pub(crate) protocol: http1::Builder,
    pub(crate) shared: Rc<SharedBuffers>,
    pub(crate) started: Instant,
    pub(crate) connections: RefCell<Slab<Rc<ConnectionWatch>>>,
    /// Addresses of those that are only for peers.
    pub(crate) peer_seats: RefCell<Vec<IpAddr>>,
    /// For requests that cost something; given out in the order in which they came.
    pub(crate) room: Rc<Semaphore>,
    pub(crate) refusals: Cell<usize>,
    pub(crate) next_request_id: Cell<u64>,
    pub(crate) draining: Cell<bool>,
    pub(crate) gone: Notify,
    pub(crate) broken_ranges: Rc<LogLimit>,
}

/// The headers of a peer that is being let in, and those of its answer.
pub(crate) type HelloHeaders = Rc<RefCell<Option<(HeaderMap, HeaderMap)>>>;

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
            shared: Rc::new(SharedBuffers::new(parts.faults.clone())),
            parts,
            room: Rc::new(Semaphore::new(settings.requests_max)),
            settings,
            protocol,
            started: Instant::now(),
            connections: RefCell::default(),
            peer_seats: RefCell::default(),
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
            self.shared.now.set(CoarseClock(self.started.elapsed()));
            for (_, watch) in &*self.connections.borrow() {
                if self.draining.get() && matches!(watch.phase(), ConnectionPhase::Parked | ConnectionPhase::Idle) {
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

    pub(crate) fn busy(&self, watch: &Rc<ConnectionWatch>) -> InFlightGuard {
        watch.change(ConnectionPhase::Serving);
        count(&self.parts.metrics.in_flight);
        InFlightGuard {
            watch: Rc::clone(watch),
            shared: Rc::clone(&self.shared),
            room: Rc::clone(&self.room),
            taken: Cell::new(0),
            metrics: Arc::clone(&self.parts.metrics),
            class: Cell::default(),
            authenticated: RefCell::default(),
            share: RefCell::default(),
        }
    }

    /// Gives the request room among those in flight, as that of so many requests, if there is some.
    pub(crate) fn admit_at_once(&self, busy: &InFlightGuard, requests: usize) -> bool {
        let requests = requests.min(self.settings.requests_max);
        let permits = u32::try_from(requests).expect("at most a batch");
        let Ok(room) = self.room.try_acquire_many(permits) else { return false };
        room.forget();
        busy.taken.set(requests);
        true
    }

    /// The same, if need be after a wait. Cancel safe.
    pub(crate) async fn admit(&self, busy: &InFlightGuard, requests: usize) -> Result<(), HttpError> {
        if self.admit_at_once(busy, requests) {
            return Ok(());
        }
        let requests = requests.min(self.settings.requests_max);
        let permits = u32::try_from(requests).expect("at most a batch");
        let wait = tokio::time::timeout(ROOM_WAIT_MAX, self.room.acquire_many(permits));
        // Boxed: few requests come here, and all of them would be larger.
        let Ok(Ok(room)) = Box::pin(waits::queue("room", wait)).await else { return Err(self.shed(Shed::Requests)) };
        room.forget();
        busy.taken.set(requests);
        Ok(())
    }

    pub(crate) fn shed(&self, reason: Shed) -> HttpError {
        count(&self.parts.metrics.shed);
        HttpError::Shed(reason)
    }

    pub(crate) fn defect(&self, reason: &str) -> HttpError {
        let request_id = RequestId(self.next_request_id.get());
        self.next_request_id.set(request_id.0.wrapping_add(1));
        count(&self.parts.metrics.defects);
        tracing::error!(%request_id, reason, "request failed by a defect");
        HttpError::Defect { request_id }
    }

    /// A range as of now, not yet opened, with room for its pages: of the node, and in a client's share.
    pub(crate) fn range_until(
        &self,
        end: Option<Bytes>,
        permit: Option<Box<RangePermit>>,
        share: Option<Box<Share>>,
    ) -> Result<RangeBody, HttpError> {
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
        let room = PageRoom::new(room, share);
        Ok(RangeBody::new(source, end, page_bytes, room, on_broken, permit))
    }

    /// Counts why a connection ends.
    pub(crate) fn note(&self, verdict: Verdict) {
        let metrics = &self.parts.metrics;
        match verdict {
            Verdict::TimedOut => count(&metrics.request_timeouts),
            Verdict::IdleOver => count(&metrics.idle_timeouts),
            Verdict::NotReading => count(&metrics.write_timeouts),
            Verdict::Park | Verdict::LingerOver | Verdict::Drain => {}
        }
    }

    pub(crate) fn defaults(&self) -> ReplicationDefaults {
        let layout = self.parts.scans.layout();
        let nodes = u8::try_from(layout.nodes().len()).expect("at most NODES_MAX");
        let from = if layout.epoch() == 0 { self.settings.founding_copies } else { layout.copies() };
        ReplicationDefaults { from, nodes, ttl_s: self.settings.default_ttl_s }
    }

    pub(crate) fn wall(&self) -> SystemTime {
        (self.parts.wall)()
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        milliseconds(self.wall())
    }

    /// The wall clock, in milliseconds, for what outlives a request.
    pub(crate) fn wall_clock(&self) -> impl Fn() -> u64 + use<E> {
        let wall = Rc::clone(&self.parts.wall);
        move || milliseconds(wall())
    }

    pub(crate) fn now(&self) -> CoarseClock {
        self.shared.now.get()
    }

    pub(crate) fn shared(&self) -> Rc<SharedBuffers> {
        Rc::clone(&self.shared)
    }

    pub(crate) fn settings(&self) -> &HttpSettings {
        &self.settings
    }

    pub(crate) fn protocol(&self) -> &http1::Builder {
        &self.protocol
    }

    pub(crate) fn large_values(&self) -> &Arc<LargeValues> {
        &self.parts.large_values
    }

    pub(crate) fn shares(&self) -> &Arc<ClientShares> {
        &self.parts.shares
    }

    pub(crate) fn entities(&self) -> &E {
        &self.parts.entities
    }

    /// Where scripts run; nowhere where they are off.
    pub(crate) fn scripts(&self) -> Option<&dyn Scripts> {
        self.parts.scripts.as_deref()
    }

    pub(crate) fn scans(&self) -> &dyn Scans {
        &*self.parts.scans
    }

    pub(crate) fn admin(&self) -> &dyn Admin {
        &*self.parts.admin
    }

    pub(crate) fn peers(&self) -> &dyn PeerUpgrade {
        &*self.parts.peers
    }

    pub(crate) fn audit(&self) -> Option<&dyn AuditLog> {
        self.parts.audit.as_deref()
    }

    pub(crate) fn gate(&self) -> Option<&Rc<Gate>> {
        self.parts.gate.as_ref()
    }

    pub(crate) fn metrics(&self) -> &HttpMetrics {
        &self.parts.metrics
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
