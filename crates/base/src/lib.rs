//! What the crates of kvorum build on: locks and their profile, the clock, pools of threads, the memory for large
//! values, histograms, faults to order. No rule of the protocol, and no I/O.

pub mod blocking_pool;
pub mod clock;
pub mod cpu_share;
pub mod faults;
pub mod histogram;
#[cfg(feature = "interleavings")]
pub mod interleavings;
pub mod log_limit;
pub mod outstanding;
pub mod priority;
pub mod sync;
pub mod task;
pub mod value_memory;
pub mod waits;
