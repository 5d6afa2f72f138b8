//! What the commit logic has done, until it is on disk.

use std::sync::{Arc, Mutex, PoisonError};

use kvorum_storage::commit::{Completion, Sink};

/// Keeps what the commit logic has done until it is on disk.
#[derive(Clone, Default)]
pub(crate) struct Outbox(pub(crate) Arc<Mutex<Vec<Completion>>>);

impl Sink for Outbox {
    fn deliver(&mut self, _: u16, done: &mut Vec<Completion>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(done);
    }
}
