//! What requests have for a peer while its dial is awaited: kept until that has ended, sent then or failed.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use kvorum_core::frame::{CHUNK_BYTES, Message};
use kvorum_core::quorum::Failure;

/// What a message takes beside its record.
const MESSAGE_BYTES: usize = 256;

/// A question that waits.
pub(super) struct Question {
    pub(super) id: u64,
    pub(super) epoch: u64,
    pub(super) message: Message,
    /// When it was asked, since boot.
    pub(super) asked: Duration,
}

/// The questions that wait for one dial.
#[derive(Default)]
pub(super) struct AwaitingDial {
    questions: RefCell<Vec<Question>>,
    bytes: Cell<usize>,
}

impl AwaitingDial {
    /// Keeps a question.
    ///
    /// # Errors
    /// [`Failure::Overloaded`] when `bytes_max` bytes are waiting already.
    pub(super) fn push(&self, question: Question, bytes_max: usize) -> Result<(), Failure> {
        if self.bytes.get() >= bytes_max {
            return Err(Failure::Overloaded);
        }
        let record_bytes = match &question.message {
            // A longer one is charged to the node's memory for large values for as long as it is held.
            Message::Store { record, .. } if record.len() <= CHUNK_BYTES => record.len(),
            _ => 0,
        };
        self.bytes.set(self.bytes.get() + MESSAGE_BYTES + record_bytes);
        self.questions.borrow_mut().push(question);
        Ok(())
    }

    /// All of them, in the order in which they came; none is left.
    pub(super) fn take(&self) -> Vec<Question> {
        self.bytes.set(0);
        self.questions.take()
    }
}
