//! A kvorum node: HTTP, coordinator, peers, replica, store, and `node.rs`, which wires them together.
//!
//! Read in this order: [`http`], [`coordinator`], [`peer`], [`replica`], [`commit`], [`store`], [`hints`].

// Without the engine there is no node, but its parts are there for the fuzzer.
#![cfg_attr(not(feature = "rocksdb"), allow(dead_code))]

pub mod anti_entropy;
pub mod background_rpc;
pub mod background_scan;
pub mod backpressure;
#[cfg(feature = "rocksdb")]
pub mod backup;
pub mod backup_label;
pub mod clock;
pub mod commit;
pub mod config;
pub mod coordinator;
pub mod cpu_share;
pub mod data_dir;
#[cfg(feature = "rocksdb")]
mod exposition;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
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
#[cfg(feature = "rocksdb")]
pub mod node;
#[cfg(feature = "rocksdb")]
mod pages;
pub mod peer;
mod priority;
mod profile;
pub mod read_pool;
pub mod replica;
#[cfg(feature = "rocksdb")]
mod runtime;
pub mod scrub;
pub mod shard;
pub mod store;
mod sync;
pub mod unanswered;
