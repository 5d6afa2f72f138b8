//! Where other threads leave results for a shard: one lock and one wake-up for a whole batch.
//!
//! Bounded by what put the work there: every event answers one admitted request.

use std::sync::{Arc, PoisonError};

use crate::commit::{Done, Sink, Ticket};
use crate::replica::Held;
use crate::sync::{Mutex, Notify};

/// A result for a shard.
pub enum Event {
    /// The commit thread is done with something.
    Commit(Done),
    /// The read pool has looked.
    Read {
        /// What the shard gave with the question.
        ticket: Ticket,
        /// What it found.
        held: Held,
    },
}

/// The mailbox of one shard.
#[derive(Default)]
pub struct Mailbox {
    events: Mutex<Vec<Event>>,
    wake: Notify,
}

impl Mailbox {
    /// Leaves results; wakes the shard if its box was empty.
    pub fn post(&self, new: impl IntoIterator<Item = Event>) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = events.is_empty();
        events.extend(new);
        let wake = was_empty && !events.is_empty();
        drop(events);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Waits until there is something, and swaps it into `taken`, which is empty. Cancel safe.
    pub async fn take(&self, taken: &mut Vec<Event>) {
        loop {
            std::mem::swap(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner), taken);
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
    fn deliver(&mut self, shard: u16, done: &mut Vec<Done>) {
        if let Some(mailbox) = self.0.get(usize::from(shard)) {
            mailbox.post(done.drain(..).map(Event::Commit));
        }
    }
}
