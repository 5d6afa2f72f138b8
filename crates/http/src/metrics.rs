//! What a shard counts about HTTP. Written by its shard alone, read to render metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::{Method, StatusCode};
use kvorum_base::histogram::Histogram;
use kvorum_core::quorum::Quorum;

/// Methods that are counted apart.
pub const METHODS: [&str; 5] = ["GET", "HEAD", "PUT", "DELETE", "other"];
/// Statuses that are counted apart; any other is counted under the last.
pub const STATUSES: [u16; 25] = [
    200, 201, 202, 404, 304, 101, 204, 400, 401, 403, 405, 406, 408, 409, 413, 415, 421, 422, 426, 429, 431, 501, 503,
    504, 500,
];

/// Index into [`METHODS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MethodLabel(usize);

impl MethodLabel {
    pub(super) fn of(method: &Method) -> Self {
        Self(match *method {
            Method::GET => 0,
            Method::HEAD => 1,
            Method::PUT => 2,
            Method::DELETE => 3,
            _ => 4,
        })
    }
}

/// Classes of requests whose times are counted apart, in the order of [`RequestClass`].
pub(crate) const CLASSES: [&str; 4] = ["other", "below", "quorum", "all"];

/// How many of its replicas a request waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestClass {
    /// It is not about one key.
    #[default]
    Other,
    /// Less than a majority.
    Below,
    /// A majority, not all.
    Quorum,
    /// All.
    All,
}

impl RequestClass {
    #[inline]
    pub(super) fn of(quorum: Quorum) -> Self {
        if quorum.required() == quorum.replicas() {
            Self::All
        } else if quorum.is_quorum() {
            Self::Quorum
        } else {
            Self::Below
        }
    }
}

/// Counters of one shard.
#[derive(Debug, Default)]
pub struct HttpMetrics {
    requests: [[AtomicU64; STATUSES.len()]; METHODS.len()],
    latency: [[Histogram; CLASSES.len()]; METHODS.len()],
    /// Connections open now.
    pub connections: AtomicU64,
    /// Connections ever taken.
    pub connections_total: AtomicU64,
    /// Requests in flight now, streams included.
    pub in_flight: AtomicU64,
    /// Heads or bodies that did not come in time.
    pub request_timeouts: AtomicU64,
    /// Connections closed because nothing came.
    pub idle_timeouts: AtomicU64,
    /// Connections closed because the peer did not read.
    pub write_timeouts: AtomicU64,
    /// Heads that could not be parsed or were too large.
    pub malformed: AtomicU64,
    /// Connections and requests turned away for lack of room.
    pub shed: AtomicU64,
    /// Operations of batches.
    pub batch_operations: AtomicU64,
    /// Requests that ran into a defect.
    pub defects: AtomicU64,
    /// Ranges broken off because a record could not be read.
    pub ranges_broken: AtomicU64,
}

impl HttpMetrics {
    /// A batch of so many operations.
    pub(super) fn batched(&self, operations: usize) {
        self.batch_operations.fetch_add(operations as u64, Ordering::Relaxed);
    }

    /// One answer.
    pub(super) fn answered(&self, method: MethodLabel, class: RequestClass, status: StatusCode, after: Duration) {
        let status = STATUSES.iter().position(|&known| known == status.as_u16()).unwrap_or(STATUSES.len() - 1);
        if let Some(counter) = self.requests.get(method.0).and_then(|counters| counters.get(status)) {
            count(counter);
        }
        if let Some(latency) = self.latency.get(method.0).and_then(|classes| classes.get(class as usize)) {
            latency.record(u64::try_from(after.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// Method, status and count of all answers so far.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, u16, u64)> {
        METHODS.iter().zip(&self.requests).flat_map(|(method, counters)| {
            STATUSES.iter().zip(counters).map(|(status, counter)| (*method, *status, counter.load(Ordering::Relaxed)))
        })
    }

    /// Method, class and time to the answer's head.
    pub fn latencies(&self) -> impl Iterator<Item = (&'static str, &'static str, &Histogram)> {
        METHODS.iter().zip(&self.latency).flat_map(|(method, classes)| {
            CLASSES.iter().zip(classes).map(|(class, histogram)| (*method, *class, histogram))
        })
    }
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
