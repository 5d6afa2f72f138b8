//! Which client or peer a request is of, and what it may do.
//!
//! Pure but for [`private_file`]: no clock, no randomness, no sockets, no logging. Time is an argument. Read in this
//! order: [`hash`], [`api_key`], [`rights`], [`prefix`], [`role`], [`file`](mod@file), [`table`], [`rate`],
//! [`failures`], [`audit`], [`peer_secret`].

pub mod api_key;
pub mod audit;
pub mod failures;
pub mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod hash;
pub mod peer_secret;
pub mod prefix;
pub mod private_file;
pub mod rate;
pub mod rights;
pub mod role;
pub mod table;
