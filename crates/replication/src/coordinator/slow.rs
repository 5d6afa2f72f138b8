//! Requests that took long, and where their time went.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvorum_core::Version;
use kvorum_core::key::KeyHash;
use kvorum_core::node::NodeId;
use kvorum_core::quorum::Quorum;

/// Requests that a shard keeps.
const REQUESTS_MAX: usize = 128;

/// A request that took long.
#[derive(Clone, Debug)]
pub struct SlowRequest {
    /// When it was decided, in milliseconds since 1970.
    pub at_ms: u64,
    /// From when the coordinator took it to its decision.
    pub took: Duration,
    /// Before it was sent to replicas: for its cluster, or for the debt of replicas' stores.
    pub queued: Duration,
    /// `GET`, `PUT` or `DELETE`.
    pub operation: &'static str,
    /// Of the key, which is not kept.
    pub hash: KeyHash,
    /// How many replicas had to answer.
    pub quorum: Quorum,
    /// Of the answer: 504 where too few answered.
    pub status: u16,
    /// What each replica had done by then.
    pub replicas: Vec<SlowReplica>,
}

/// One replica's part in it.
#[derive(Clone, Copy, Debug)]
pub struct SlowReplica {
    /// Which one.
    pub node: NodeId,
    /// As in a receipt.
    pub outcome: &'static str,
    /// As in a receipt.
    pub version: Option<Version>,
    /// Until its answer, from when the coordinator took the request.
    pub took: Option<Duration>,
}

/// The last requests of one shard that took at least so long.
#[derive(Debug)]
pub struct SlowLog {
    threshold: Duration,
    /// Oldest first.
    requests: Mutex<VecDeque<Arc<SlowRequest>>>,
}

impl SlowLog {
    /// Without requests.
    #[must_use]
    pub fn new(threshold: Duration) -> Self {
        Self { threshold, requests: Mutex::default() }
    }

    /// Whether a request is kept.
    #[inline]
    pub(super) fn is_slow(&self, took: Duration) -> bool {
        took >= self.threshold
    }

    /// The oldest request makes room.
    pub(super) fn note(&self, request: SlowRequest) {
        let request = Arc::new(request);
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.len() == REQUESTS_MAX {
            requests.pop_front();
        }
        requests.push_back(request);
    }

    /// Oldest first. Shared, not copied: the shard waits for the lock.
    #[must_use]
    pub fn requests(&self) -> Vec<Arc<SlowRequest>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Default for SlowLog {
    /// For tests and simulations.
    fn default() -> Self {
        Self::new(Duration::from_millis(100))
    }
}
