//! Requests in flight.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Semaphore;

use crate::io::Shared;
use crate::metrics::HttpMetrics;
use crate::watch::{Phase, Watch};

/// A request in flight, until its answer, or the last of its stream, is handed to the connection.
pub(crate) struct Busy {
    pub(crate) watch: Rc<Watch>,
    pub(crate) shared: Rc<Shared>,
    pub(crate) room: Rc<Semaphore>,
    pub(crate) has_room: Cell<bool>,
    pub(crate) metrics: Arc<HttpMetrics>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.watch.enter(Phase::Idle, self.shared.now.get());
        if self.has_room.get() {
            self.room.add_permits(1);
        }
        self.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
