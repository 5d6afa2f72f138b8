//! How much reads send to replicas that are behind.

use std::cell::RefCell;

use kvorum_core::hints::HintPace;

/// Bytes a second, per shard, that reads send to replicas which are behind.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// One shard's budget for read repair.
pub(super) struct ReadRepair(pub(super) RefCell<HintPace>);

impl Default for ReadRepair {
    fn default() -> Self {
        Self(RefCell::new(HintPace::new(BYTES_PER_SECOND)))
    }
}
