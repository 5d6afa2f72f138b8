//! One run of the same load against kvorum, etcd or Redis: `bench/peers/run` starts the servers and calls this.
//!
//! The only argument is a plan in JSON ([`plan::Plan`]). The only output is a report in JSON ([`report::Report`]).
//!
//! Promises: the three protocols share everything but the bytes on the wire. That is one thread, one event loop, one
//! request under way on a connection, the same keys and values, and the same clock. A run ends when its time is over,
//! whatever the servers do.
//!
//! Does not promise: to survive the loss of a connection. The run ends then, without a report. Nor to find what a server
//! does at less than all that it can: this is a closed loop, and `kvorum bench` has open ones.

mod drive;
mod plan;
mod processes;
mod protocol;
mod report;

use std::io;
use std::process::ExitCode;

use plan::Plan;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
enum DriveError {
    #[error("one argument, a plan in JSON, is required")]
    Usage,
    #[error("not a plan: {0}")]
    Plan(#[from] serde_json::Error),
    #[error("{what}: {cause}")]
    System { what: &'static str, cause: io::Error },
    #[error("the server closed a connection")]
    Closed,
    #[error("not an answer: {0}")]
    Malformed(&'static str),
    #[error("the fill was not completed: {refused} refused, {missing} missing")]
    Fill { refused: u64, missing: u64 },
}

impl DriveError {
    /// For `map_err`: what was tried when it failed.
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { what, cause }
    }
}

fn main() -> ExitCode {
    match measure() {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<String, DriveError> {
    let argument = std::env::args().nth(1).ok_or(DriveError::Usage)?;
    let plan: Plan = serde_json::from_str(&argument)?;
    Ok(serde_json::to_string(&drive::run(&plan)?)?)
}
