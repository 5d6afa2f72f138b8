//! Scans over the cluster: every key of a range as a stream, in either of two forms, with marks to go on from and a
//! trailer that says what there was. An answer without its trailer is broken.

mod body;
mod coverage;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod request;
mod serve;
pub(crate) mod tally;
mod token;
mod writer;

pub(crate) use body::{ScanBody, ScanBroken};

#[cfg(test)]
#[path = "../tests/scan.rs"]
mod tests;
