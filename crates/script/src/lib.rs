//! Clients' scripts, each in a process of its own.
//!
//! Inside the node nothing would contain a script: `pcall` swallows what interrupts it, and `string.find` meets no
//! interrupt at all. So the *process* is the sandbox: the kernel ends it after a second of processor time, the node after
//! five seconds, and nothing can be opened in it. [`ScriptWorkers`] is the node's side. It starts a process for each call,
//! feeds it, reads its answer with a bound, and never waits longer than its deadline. [`worker_main`] is that process.
//!
//! Not promised: that two calls see one state. Each starts anew, so a script's globals live for one call.

mod child;
mod limits;
mod wire;
mod worker;
mod workers;

pub use limits::{
    CPU_SECONDS_MAX, DEPTH_MAX, MEMORY_BYTES_MAX, MESSAGE_BYTES_MAX, OUTPUT_BYTES_MAX, SOURCE_BYTES_MAX,
    VALUE_BYTES_MAX, WAIT_MAX, WALL_MAX, WORKERS_MAX,
};
pub use wire::ScriptRecord;
pub use worker::worker_main;
pub use workers::{ScriptPair, ScriptWorkers, WorkerError};
