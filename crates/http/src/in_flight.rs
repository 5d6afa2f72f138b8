//! Requests in flight.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Semaphore;

use crate::io::SharedBuffers;
use crate::metrics::HttpMetrics;
use crate::watch::{ConnectionPhase, ConnectionWatch};

/// A request in flight, until its answer, or the last of its stream, is handed to the connection.
pub(crate) struct InFlightGuard {
    pub(crate) watch: Rc<ConnectionWatch>,
    pub(crate) shared: Rc<SharedBuffers>,
    pub(crate) room: Rc<Semaphore>,
    pub(crate) has_room: Cell<bool>,
    pub(crate) metrics: Arc<HttpMetrics>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.watch.enter(ConnectionPhase::Idle, self.shared.now.get());
        if self.has_room.get() {
            self.room.add_permits(1);
        }
        self.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
