//! What the commit logic has done, until the disk has said so.

use std::sync::{Arc, Mutex, PoisonError};

use kvorum_storage::commit::{Done, Sink};

/// Keeps what the commit logic has done until the disk has said so.
#[derive(Clone, Default)]
pub(crate) struct Outbox(pub(crate) Arc<Mutex<Vec<Done>>>);

impl Sink for Outbox {
    fn deliver(&mut self, _: u16, done: &mut Vec<Done>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(done);
    }
}
