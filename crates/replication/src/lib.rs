//! How a node keeps copies: the coordinator of requests, the replica, hints for those that are away, rounds of
//! anti-entropy, and scrub. One [`shard`] of a node puts them together.
//!
//! Read in this order: [`coordinator`], [`replica`], [`shard`], [`hints`], [`anti_entropy`], [`scrub`],
//! [`layouts`].

pub mod anti_entropy;
pub mod background_rpc;
pub mod background_scan;
pub mod backpressure;
pub mod cluster_scan;
pub mod coordinator;
pub mod hints;
#[cfg(all(test, feature = "interleavings"))]
mod interleavings;
pub mod layouts;
pub mod operation_id;
pub mod pinned_layout;
pub mod replica;
pub mod reply;
mod scan_pace;
pub mod scrub;
pub mod shard;
