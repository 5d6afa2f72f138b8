//! One run of the same load against kvorum, etcd or Redis: `bench/peers/run` starts the servers and calls this.
//!
//! The only argument is a plan in JSON ([`plan::Plan`]). The only output is a report in JSON ([`report::Report`]).
//!
//! Promises: the three protocols share everything but the bytes on the wire. That is one thread, one event loop, one
//! request under way on a connection, the same keys and values, and the same clock. A run ends when its time is over,
//! whatever the servers do.
//!
//! Does not promise: to survive the loss of a connection. The run ends then, without a report. Nor to find what a
//! server does at less than all that it can: this is a closed loop, and `kvorum bench` has open ones.

mod drive;
mod error;
mod plan;
mod processes;
mod protocol;
mod report;

use std::process::ExitCode;

use error::DriveError;
use plan::Plan;

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
