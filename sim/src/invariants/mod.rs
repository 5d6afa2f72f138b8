//! What must hold, one file for each.

pub mod acknowledged;
pub mod amnesia;
pub mod answered;
pub mod bounded;
pub mod converged;
pub mod copies;
pub mod expiry;
pub mod linearizable;
mod monotonic;
pub mod one_layout;
pub mod promised;
mod unique;

use kvorum_core::{Key, Record, Version};

/// What was committed anywhere, looked at commit by commit.
#[derive(Debug, Default)]
pub struct Stored {
    unique: unique::Unique,
    violation: Option<String>,
}

impl Stored {
    /// A node commits `record` where it held `before`.
    pub fn note(&mut self, node: usize, key: &Key, before: Version, record: &Record) {
        let checked =
            monotonic::check(node, key, before, record.version()).and_then(|()| self.unique.check(node, key, record));
        if let Err(violation) = checked {
            self.violation.get_or_insert(violation);
        }
    }

    /// The first violation, if there was one.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), String> {
        self.violation.clone().map_or(Ok(()), Err)
    }
}
