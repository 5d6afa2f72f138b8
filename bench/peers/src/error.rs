//! What may go wrong.

use std::io;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriveError {
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
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { what, cause }
    }
}
