//! The task that keeps hints and has hint senders deliver them.

use std::rc::Rc;
use std::time::Duration;

use kvorum_base::task::BoxedTask;
use tokio::sync::oneshot;

use super::hint_sender;
use super::hint_store::{HintStore, HintTarget};

/// Hints gather for so long, so that they are written many at a time.
const GATHER: Duration = Duration::from_millis(20);
/// How often ages are looked at where nothing is kept.
const IDLE: Duration = Duration::from_secs(1);

/// Keeps and delivers until `stop` ends; then what has been handed over is written.
pub fn run(hint_store: Rc<HintStore>, mut stop: oneshot::Receiver<()>) -> BoxedTask {
    Box::pin(async move {
        let mut layouts = hint_store.parts.membership.layouts();
        let deliver_to = |come: Vec<Rc<HintTarget>>| {
            come.into_iter().for_each(|target| {
                tokio::task::spawn_local(hint_sender::run(hint_store.clone(), target));
            });
        };
        let known = layouts.borrow_and_update().clone();
        let targets = hint_store.follow(&known);
        hint_store.load().await;
        deliver_to(targets);
        loop {
            let is_over = tokio::select! {
                _ = &mut stop => true,
                Ok(()) = layouts.changed() => {
                    let known = layouts.borrow_and_update().clone();
                    deliver_to(hint_store.follow(&known));
                    false
                }
                () = hint_store.parts.queue.filled() => false,
                () = hint_store.changed.notified() => false,
                () = tokio::time::sleep(IDLE) => false,
            };
            if !is_over {
                tokio::time::sleep(GATHER).await;
            }
            hint_store.drop_excess();
            hint_store.write_all().await;
            if is_over {
                return;
            }
        }
    })
}
