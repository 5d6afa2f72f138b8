//! Every event that is posted is taken once, in the order of its sender, and no wake-up is missed.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use kvorum_base::interleavings::check;
use kvorum_core::quorum::StoreAnswer;
use kvorum_storage::commit::{Completion, CompletionToken};
use shuttle::future::block_on;
use shuttle::thread;

use crate::replica::{Event, Mailbox};

const SENDERS: u16 = 2;

fn event(sender: u16, id: u64) -> Event {
    Event::Commit(Completion::Stored { token: CompletionToken { shard: sender, id }, answer: StoreAnswer::Accepted })
}

fn token(event: &Event) -> CompletionToken {
    match event {
        Event::Commit(done) => done.token(),
        Event::Read { token, .. } => *token,
    }
}

/// Two posts from each sender, of one event and of two.
fn senders(mailbox: &Arc<Mailbox>) {
    for sender in 0..SENDERS {
        let mailbox = Arc::clone(mailbox);
        thread::spawn(move || {
            mailbox.post([event(sender, 0)]);
            mailbox.post([event(sender, 1), event(sender, 2)]);
        });
    }
}

fn note(taken: &mut Vec<Event>, seen: &mut [u64]) {
    for event in taken.drain(..) {
        let CompletionToken { shard, id } = token(&event);
        let expected = &mut seen[usize::from(shard)];
        assert_eq!(id, *expected, "out of order, lost or twice");
        *expected += 1;
    }
}

#[test]
fn what_is_posted_is_taken_once_and_in_order_and_no_wake_up_is_missed() {
    check(1, || {
        let mailbox = Arc::new(Mailbox::default());
        senders(&mailbox);
        let (mut taken, mut seen) = (Vec::new(), [0; SENDERS as usize]);
        while seen != [3; SENDERS as usize] {
            block_on(mailbox.take(&mut taken));
            assert!(!taken.is_empty());
            note(&mut taken, &mut seen);
        }
    });
}

#[test]
fn a_take_that_is_given_up_loses_nothing() {
    check(1, || {
        let mailbox = Arc::new(Mailbox::default());
        senders(&mailbox);
        let (mut taken, mut seen) = (Vec::new(), [0; SENDERS as usize]);
        for _ in 0..3 {
            // Polled once, and dropped whatever it returns.
            block_on(async {
                let mut take = pin!(mailbox.take(&mut taken));
                poll_fn(|cx| {
                    let _ = take.as_mut().poll(cx);
                    Poll::Ready(())
                })
                .await;
            });
            note(&mut taken, &mut seen);
        }
        while seen != [3; SENDERS as usize] {
            block_on(mailbox.take(&mut taken));
            note(&mut taken, &mut seen);
        }
    });
}
