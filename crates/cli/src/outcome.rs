//! How a command ended, as its exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::printable::printable_lines;

/// The exit codes. Scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitOutcome {
    /// It was done.
    Done = 0,
    /// There is no such key, or (`dev`) a node died before all were ready.
    NotFound = 1,
    /// The command line, a setting or the request itself is wrong; a node refused to start.
    Usage = 2,
    /// Fewer replicas answered than `--ack`.
    NotEnoughReplicas = 3,
    /// The node cannot be reached, or refused.
    Refused = 4,
}

impl ExitOutcome {
    /// Prints what went wrong on stderr, unless its reader is gone, and finds its exit code.
    pub fn of_error(error: anyhow::Error) -> Self {
        let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if io == Some(io::ErrorKind::BrokenPipe) {
            return Self::Done;
        }
        // Where it cannot be said the exit code says it.
        let _ = writeln!(io::stderr(), "kvorum: {}", printable_lines(&format!("{error:#}")));
        if error.is::<Unreachable>() { Self::Refused } else { Self::Usage }
    }
}

impl From<ExitOutcome> for ExitCode {
    fn from(outcome: ExitOutcome) -> Self {
        Self::from(outcome as u8)
    }
}

/// No answer, or not a whole one.
#[derive(Debug)]
pub struct Unreachable {
    /// The node's URL.
    pub url: String,
    /// Why.
    pub cause: io::Error,
}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "request to {} failed: {}", self.url, self.cause)
    }
}

impl std::error::Error for Unreachable {}
