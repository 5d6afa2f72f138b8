//! Watches the store's debt to its disk, for coordinators.
//!
//! On the background shard: a look takes a lock of the engine, so the read pool does it. What it finds goes to this
//! node's coordinators at once and to its peers with the next pong ([`kvorum_core::backpressure`]).

use std::sync::Arc;
use std::time::Duration;

use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::task::BoxedTask;
use kvorum_peer::membership::Membership;
use kvorum_storage::Store;

/// Between two looks. A store's debt changes within seconds.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Looks until the node stops.
pub fn run(membership: Arc<Membership>, pool: ReadPool, store: Arc<dyn Store>) -> BoxedTask {
    Box::pin(async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let looked = store.clone();
            let Some(asked) = pool.run(move || looked.backpressure()).await else { return };
            let own = membership.own_state();
            if asked != own.backpressure() {
                tracing::debug!(level = asked.level(), "backpressure of this node's store");
            }
            own.note_backpressure(asked);
        }
    })
}
