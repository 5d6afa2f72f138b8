//! Every request is answered in its time, and once everything works again, with success.

use std::time::Duration;

use crate::history::{ClientAction, ClientOutcome, RecordedOperation};

/// What a sweep of deadlines, and clocks that run a little apart, may add.
const SLACK: Duration = Duration::from_millis(200);
/// A write waits for its timestamp before its deadline begins: at most for so many commits.
const COMMITS_BEFORE_A_STAMP: u32 = 8;

/// Looks at a request that took so long at a node that was not paused meanwhile, whose disk needs up to `disk`.
///
/// # Errors
/// If it took too long.
pub fn check(operation: &RecordedOperation, took: Duration, deadline: Duration, disk: Duration) -> Result<(), String> {
    let timestamp = if operation.action == ClientAction::Get { Duration::ZERO } else { disk * COMMITS_BEFORE_A_STAMP };
    if took <= deadline + deadline / 10 + timestamp + SLACK {
        return Ok(());
    }
    Err(format!("answered: after {took:?}: {operation}"))
}

/// Looks at a request after everything was healed, of whose replicas enough vote.
///
/// # Errors
/// If it did not succeed.
pub fn check_at_the_end(operation: &RecordedOperation) -> Result<(), String> {
    match operation.outcome {
        ClientOutcome::Written(_) | ClientOutcome::Found(_) | ClientOutcome::Ended(..) => Ok(()),
        ClientOutcome::Refused | ClientOutcome::Unknown => Err(format!("answered: not after healing: {operation}")),
    }
}
