//! What a replica holds for a key.

use kvorum_core::quorum::Failure;
use kvorum_core::{Record, Version};

/// What this replica holds for a key, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// This record.
    Record(Record),
    /// None; its partition's GC watermark.
    Absent {
        /// A deletion of everything up to here.
        gc_watermark: Version,
    },
    /// Counts for nothing.
    Failed(Failure),
}
