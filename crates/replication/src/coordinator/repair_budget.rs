//! How much reads send to replicas that are behind.

use std::cell::RefCell;

use kvorum_core::hints::SendPace;

/// Bytes a second, per shard, that reads send to replicas which are behind.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// One shard's budget for read repair. It notes no latencies, so its rate is constant.
pub(super) struct ReadRepair(pub(super) RefCell<SendPace>);

impl Default for ReadRepair {
    fn default() -> Self {
        Self(RefCell::new(SendPace::new(BYTES_PER_SECOND)))
    }
}
