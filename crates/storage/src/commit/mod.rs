//! The one writer of the store: decides for each record whether it is newer than what is here, and commits
//! the winners of everything that arrived meanwhile at once.
//!
//! [`queue`] owns the thread and its bounds, [`committer`] the logic (no threads, no clocks: the simulator
//! runs it), [`stripe_high_water`] and [`recent`] what must be known of the past without a look at the disk.

pub mod committer;
pub mod metrics;
pub mod overlay;
mod promises;
pub mod queue;
pub mod recent;
pub mod stripe_high_water;
mod work;

pub use committer::{BOUND_LEAD, CommitConfig, Committer, NeedsDisk, RETENTION_MARGIN};
pub use metrics::CommitMetrics;
pub use promises::forget_promises;
pub use queue::{CommitQueue, CommitRunner, CommitThread, QueueLimits};
pub use work::{Completion, CompletionToken, Prefetch, Promise, Sink, Submission, Work};
