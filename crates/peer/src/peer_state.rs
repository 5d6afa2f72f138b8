//! What a node knows of another while it runs.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use kvorum_base::log_limit::LogLimit;
use kvorum_base::sync::Mutex;
use kvorum_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use kvorum_core::backpressure::Backpressure;
use kvorum_core::node::DirectoryId;

use crate::hellos::Hellos;

/// What is known of one node, over all shards. It stays when the node has left: what is under way still asks.
pub struct PeerState {
    /// Where it listens.
    pub url: Box<str>,
    /// Connections that it has made to this node, over all shards.
    pub inbound: AtomicUsize,
    /// Connections that are up now, over all shards.
    pub links: AtomicU32,
    /// Recent round trip, in microseconds; 0 before the first.
    pub latency_us: AtomicU64,
    /// How far its wall clock is ahead of ours, in milliseconds.
    pub(crate) clock_offset_ms: AtomicI64,
    /// The data directory that it has shown in this run.
    pub(crate) directory: Mutex<Option<DirectoryId>>,
    /// The newest layout that it is known to know.
    pub(crate) epoch: AtomicU64,
    /// It came back with another directory than the one remembered, or with less than it had.
    pub rebuilding: AtomicBool,
    /// What it asks coordinators to refuse; of this node, what it asks for itself.
    backpressure: AtomicU32,
    /// Connections made.
    pub connects: AtomicU64,
    /// Connections that it or we refused in the handshake.
    pub refusals: AtomicU64,
    /// Connections closed for what came over them.
    pub protocol_errors: AtomicU64,
    /// Its hellos to this node.
    pub hellos: Hellos,
    /// For what it does wrong.
    pub log: LogLimit,
    /// Why there is no connection.
    pub trouble: Mutex<Option<String>>,
}

impl fmt::Debug for PeerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerState").field("url", &self.url).finish_non_exhaustive()
    }
}

impl PeerState {
    /// Of a node that has not been met yet.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            inbound: AtomicUsize::new(0),
            links: AtomicU32::new(0),
            latency_us: AtomicU64::new(0),
            clock_offset_ms: AtomicI64::new(0),
            directory: Mutex::default(),
            epoch: AtomicU64::new(0),
            rebuilding: AtomicBool::new(false),
            backpressure: AtomicU32::new(0),
            connects: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            protocol_errors: AtomicU64::new(0),
            hellos: Hellos::default(),
            log: LogLimit::default(),
            trouble: Mutex::default(),
        }
    }

    /// How far its wall clock is ahead, in milliseconds, as far as it was measured.
    #[must_use]
    pub fn clock_offset_ms(&self) -> i64 {
        self.clock_offset_ms.load(Ordering::Relaxed)
    }

    /// What it asks coordinators to refuse of the writes that it takes part in.
    #[must_use]
    pub fn backpressure(&self) -> Backpressure {
        let level = self.backpressure.load(Ordering::Relaxed);
        Backpressure::from_level(u8::try_from(level).unwrap_or(u8::MAX))
    }

    /// Takes what is in its pongs, or what this node's own store reports.
    pub fn note_backpressure(&self, asked: Backpressure) {
        self.backpressure.store(u32::from(asked.level()), Ordering::Relaxed);
    }
}
