//! A kvorum node: `node.rs` and `runtime.rs` wire its parts together and own its threads.

mod audit;
mod exposition;
mod founding;
mod guards;
mod handover;
pub mod node;
mod pages;
mod profile;
mod reload;
mod requests;
mod runtime;
pub mod secrets;
mod start_error;
mod view;
mod work;
