//! Hints: writes kept for a replica that did not confirm them. The policy alone: what is kept, for how long, how fast
//! and in which order it is delivered. `kvorum-replication` keeps and delivers.
//!
//! Hints are an optimisation: whatever is dropped here, anti-entropy finds. A hint is never an ack nor an answer,
//! and no reader sees one.
//!
//! The hints for one node lie in *buckets*, by the time at which they were kept. Within a bucket the newest
//! version of a key replaces the older ones; delivery goes from the newest bucket to the oldest and leaves out
//! what a newer one had; over a bound the oldest bucket goes.

mod backlog;
mod delivered;
mod pace;

pub use backlog::{Backlog, BacklogBounds, BucketId, OverBound, Size};
pub use delivered::Delivered;
pub use pace::SendPace;
