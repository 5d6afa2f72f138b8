//! A value ends when its time has come, give or take what clocks may differ.

use std::time::Duration;

use crate::history::ClientOutcome;

/// What is known of a read of a value that ends, in milliseconds of the true time.
#[derive(Clone, Copy, Debug)]
pub struct ReadOfEnding {
    /// When the value ends.
    pub expires_ms: u64,
    /// When the read began.
    pub began_ms: u64,
    /// When it was answered.
    pub ended_ms: u64,
    /// How far a node's clock may be from the true time.
    pub slack: Duration,
}

/// Looks at one answer.
///
/// # Errors
/// If the value was there for too long, or not for long enough.
pub fn check(outcome: ClientOutcome, read: ReadOfEnding) -> Result<(), String> {
    let slack_ms = u64::try_from(read.slack.as_millis()).expect("a short time");
    match outcome {
        ClientOutcome::Found(_) if read.began_ms > read.expires_ms + slack_ms => {
            Err(format!("expiry: still there: {outcome:?}, {read:?}"))
        }
        ClientOutcome::Ended(..) if read.ended_ms + slack_ms < read.expires_ms => {
            Err(format!("expiry: ended early: {outcome:?}, {read:?}"))
        }
        _ => Ok(()),
    }
}
