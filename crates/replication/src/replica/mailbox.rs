//! Where other threads leave results for a shard: one lock and one wake-up for a whole batch.
//!
//! Bounded by what put the work there: every event answers one admitted request.

use kvorum_core::Record;
use kvorum_core::quorum::ReadAnswer;
use std::sync::{Arc, PoisonError};

use kvorum_base::sync::{Mutex, Notify};
use kvorum_base::waits::QueueWaits;
use kvorum_storage::commit::{Completion, CompletionToken, Sink};

/// A result for a shard.
pub enum Event {
    /// The commit thread is done with something.
    Commit(Completion),
    /// The read pool has looked.
    Read {
        /// What the shard gave with the question.
        token: CompletionToken,
        /// What it found.
        answer: ReadAnswer<Record>,
    },
}

/// The mailbox of one shard.
#[derive(Default)]
pub struct Mailbox {
    left: Mutex<Left>,
    wake: Notify,
}

#[derive(Default)]
struct Left {
    events: Vec<Event>,
    waits: QueueWaits,
}

impl Mailbox {
    /// Leaves results; wakes the shard if its box was empty.
    pub fn post(&self, new: impl IntoIterator<Item = Event>) {
        let mut guard = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let left = &mut *guard;
        left.waits.before_put(left.events.len());
        let was_empty = left.events.is_empty();
        left.events.extend(new);
        let wake = was_empty && !left.events.is_empty();
        drop(guard);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Waits until there is something, and swaps it into `taken`, which is empty. Cancel safe.
    pub async fn take(&self, taken: &mut Vec<Event>) {
        loop {
            {
                let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
                let left = &mut *left;
                left.waits.before_take("mailbox", left.events.len(), left.events.len());
                std::mem::swap(&mut left.events, taken);
            }
            if !taken.is_empty() {
                return;
            }
            self.wake.notified().await;
        }
    }
}

/// Takes what the commit thread has done to the shards, by their number.
pub struct Mailboxes(pub Vec<Arc<Mailbox>>);

impl Sink for Mailboxes {
    fn deliver(&mut self, shard: u16, done: &mut Vec<Completion>) {
        if let Some(mailbox) = self.0.get(usize::from(shard)) {
            mailbox.post(done.drain(..).map(Event::Commit));
        }
    }
}
