//! How much reads send to replicas that are behind.

use std::cell::RefCell;

use kvorum_core::hints::Pace;

/// Bytes a second, per shard, that reads send to replicas which are behind.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// One shard's budget for read repair.
pub(super) struct ReadRepair(pub(super) RefCell<Pace>);

impl Default for ReadRepair {
    fn default() -> Self {
        Self(RefCell::new(Pace::new(BYTES_PER_SECOND)))
    }
}
