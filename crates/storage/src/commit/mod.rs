//! The one writer of the store: decides for each record whether it is newer than what is here, and commits
//! the winners of everything that arrived meanwhile at once.
//!
//! [`queue`] owns the thread and its bounds, [`committer`] the logic (no threads, no clocks: the simulator
//! runs it), [`marks`] and [`recent`] what must be known of the past without a look at the disk.

pub mod committer;
mod facts;
pub mod marks;
pub mod metrics;
pub mod overlay;
pub mod queue;
pub mod recent;
mod work;

pub use committer::{BOUND_LEAD, Cold, CommitConfig, Committer, RETENTION_MARGIN};
pub use facts::forget_floors;
pub use metrics::CommitMetrics;
pub use queue::{CommitQueue, CommitRunner, CommitThread, QueueLimits};
pub use work::{Done, Fact, Reads, Sink, Submission, Ticket, Work};
