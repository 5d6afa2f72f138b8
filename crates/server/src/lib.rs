//! A kvorum node: `node.rs` and `runtime.rs` wire its parts together and own its threads.

mod exposition;
mod handover;
pub mod node;
mod pages;
mod profile;
mod runtime;
mod view;
