//! What the node does, for how long: profiles of its processor time, of its allocations, and of what it waits for.
//!
//! One at a time, for at most two minutes, and only where an operator has opened the admin listener. Nothing is armed
//! while none runs, but for jemalloc's own counter between samples. A profile is a sum over stacks: it holds a limited
//! number of them, and counts what it had no room for and what it could not unwind.

pub(crate) mod allocations;
pub(crate) mod console;
mod cpu;
pub(crate) mod listener;
mod profiler;
mod sample;
mod symbols;
