//! Whole clusters of kvorum in one thread: the production code of coordinator, replica, peers, membership and commit
//! logic, on simulated network, time and disks, with faults, clients and a checker.
//!
//! A run follows from its seed alone: time is tokio's, paused and moved to the next timer whenever no task has anything
//! to do; tasks take the place of threads; all randomness is drawn from the seed. So what a seed has shown once it
//! shows again, with [`run::run`], and the hash over all events shows that.
//!
//! Read in this order: [`world`], [`machine`], [`network`], [`calls`], [`store`], [`clients`], [`faults`],
//! [`invariants`], [`stories`]. [`chain`] stands apart: it tries every order of the messages that decide layouts.
//!
//! What is *not* simulated: threads and their interleavings, HTTP, RocksDB, several shards on one node, and
//! TCP's promise of order (frames have fates of their own, which is harsher).

// All of it is a test.
#![allow(clippy::indexing_slicing, reason = "a broken simulator shall stop")]

pub mod calls;
pub mod chain;
pub mod chance;
pub mod clients;
pub mod faults;
pub mod history;
pub mod invariants;
pub mod machine;
pub mod network;
mod outbox;
pub mod run;
mod scan_work;
mod scans;
pub mod store;
pub mod stories;
mod tasks;
pub mod time;
pub mod trace;
pub mod world;
