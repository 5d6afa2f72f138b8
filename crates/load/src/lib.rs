//! Load for HTTP stores, and what it shows: `kvorum bench`.
//!
//! Owns the generator ([`run`]), what is sent ([`workload`]), what is measured ([`record`]), how it is reported
//! ([`report`]), and what is made of several runs: [`knee`], [`compare`], [`fill`], or of a long one:
//! [`soak`](mod@soak). The five published measurements are described in [`scenario`].
//!
//! Promises: in an open loop a request is *due* at a time that depends on nothing but the rate, and its latency
//! runs from that time, so a server that stalls cannot hide it (coordinated omission). What was due and never sent
//! is counted; where the generator itself was too slow it says so. Answers that are no success, lost connections
//! and timeouts are counted apart from latencies. Everything is bounded: a connection has at most `pipeline`
//! requests under way, the queue of due requests is arithmetic, a request has a limit, and every run ends.
//!
//! Does not promise: that a server is measured which shares its processors with the generator. The figures then are
//! of both; see `docs/explanation/how-it-is-measured.md`.
//!
//! Source: Gil Tene, "How NOT to Measure Latency" and wrk2, for the open loop and the shape of the output.

mod numbers;
mod random;

pub mod client;
pub mod compare;
pub mod fill;
pub mod knee;
pub mod nodes;
pub mod record;
pub mod report;
pub mod run;
pub mod scenario;
pub mod soak;
pub mod target;
pub mod workload;

use std::io;

/// What a load test can fail with before or instead of a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options contradict each other, or a saved run is not one.
    #[error("{0}")]
    Usage(String),
    /// A target does not take connections, before anything was measured.
    #[error("{target} cannot be reached: {cause}")]
    Unreachable {
        /// Its URL.
        target: String,
        /// What connecting to it failed with.
        cause: io::Error,
    },
    /// The target answers, and not as it must: a fill that cannot be completed, a server that does not start.
    #[error("{0}")]
    Refused(String),
    /// The generator's own system calls fail, or a report cannot be written.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: String,
        /// What it failed with.
        cause: io::Error,
    },
}

impl Error {
    /// For `map_err`: what was tried when it failed.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |cause| Self::System { what, cause }
    }
}
