//! A kvorum node: HTTP, coordinator, peers, replica, store, and `node.rs`, which wires them together.
//!
//! Read in this order: [`http`], [`coordinator`], [`peer`], [`replica`], [`commit`], [`store`], [`hints`].

pub mod anti_entropy;
pub mod backup;
pub mod calls;
pub mod clock;
pub mod commit;
pub mod config;
pub mod coordinator;
pub mod data_dir;
mod exposition;
pub mod hints;
pub mod histogram;
pub mod http;
#[cfg(all(test, feature = "interleavings"))]
mod interleavings;
pub mod large_values;
pub mod log_limit;
pub mod mailbox;
pub mod membership;
pub mod metrics;
pub mod node;
mod pages;
pub mod peer;
pub mod read_pool;
pub mod replica;
mod runtime;
pub mod scrub;
pub mod shard;
pub mod store;
mod sync;
