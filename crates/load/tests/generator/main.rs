//! The generator against real listeners: what a run counts, the method of the open loop, bad targets.
//!
//! A new test goes to the file of its subject. None asserts how fast anything is; ratios belong to `bench/agreement`.

mod bad_targets;
mod batches;
mod debt;
mod method;
mod nodes_and_files;
mod soak;
mod support;
mod workloads;
