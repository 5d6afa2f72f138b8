//! The task that keeps hints and has couriers deliver them.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::courier;
use super::keeper::Keeper;

/// Hints gather for so long, so that they are written many at a time.
const GATHER: Duration = Duration::from_millis(20);
/// How often ages are looked at where nothing is kept.
const IDLE: Duration = Duration::from_secs(1);

/// Keeps and delivers until `stop` ends; then what has been handed over is written.
pub async fn run(keeper: Rc<Keeper>, mut stop: oneshot::Receiver<()>) {
    keeper.load().await;
    for target in &keeper.targets {
        tokio::task::spawn_local(courier::run(keeper.clone(), target.clone()));
    }
    loop {
        let is_over = tokio::select! {
            _ = &mut stop => true,
            () = keeper.parts.queue.filled() => false,
            () = keeper.changed.notified() => false,
            () = tokio::time::sleep(IDLE) => false,
        };
        if !is_over {
            tokio::time::sleep(GATHER).await;
        }
        keeper.drop_excess();
        keeper.write_all().await;
        if is_over {
            return;
        }
    }
}
