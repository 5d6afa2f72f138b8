//! The replica's records on disk, behind a trait with two implementations.
//!
//! Promises: a commit is atomic; after `Ok` of a synced one it survives the death of the machine, after
//! `Ok` of an unsynced one that of the process; nothing of a commit is readable before it is as durable as
//! was asked; once a log write has failed for another reason than missing space, no commit succeeds until a
//! restart. Hints lie beside the records and are not among them. Does not promise: that records are undamaged (their
//! digest says so, where they are used).
//!
//! `kvorum-engine-rocksdb` has the real one, [`memory`] its deterministic twin, which can lose what was not
//! synced. Both are held to the same suite, in that crate's `tests/store_contract.rs`.

pub mod backup_label;
pub mod budget;
pub mod commit;
pub mod data_dir;
pub mod error;
pub mod gc_watermarks;
pub mod health;
#[cfg(all(test, feature = "interleavings"))]
mod interleavings;
pub mod memory;
pub mod record_cache;
pub mod store;

pub use error::StoreError;
pub use gc_watermarks::GcWatermarks;
pub use health::{Health, HealthState, Stall};
pub use store::{Batch, Durability, HintChange, Page, PageLimit, Store, StoreStats, Tier, find};
