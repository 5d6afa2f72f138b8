//! Requests in flight.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Semaphore;

use crate::gate::Authenticated;
use crate::io::SharedBuffers;
use crate::metrics::{HttpMetrics, RequestClass};
use crate::shares::Share;
use crate::watch::{ConnectionPhase, ConnectionWatch};

/// A request in flight, until its answer, or the last of its stream, is handed to the connection.
pub(crate) struct InFlightGuard {
    pub(crate) watch: Rc<ConnectionWatch>,
    pub(crate) shared: Rc<SharedBuffers>,
    pub(crate) room: Rc<Semaphore>,
    /// How much of the room it takes.
    pub(crate) taken: Cell<usize>,
    pub(crate) metrics: Arc<HttpMetrics>,
    /// Under which its time is counted.
    pub(crate) class: Cell<RequestClass>,
    /// Whose request it is, if that is known. On the heap: most requests have none where no keys are.
    pub(crate) authenticated: RefCell<Option<Box<Authenticated>>>,
    /// What it holds of the memory for large values. On the heap: most requests hold nothing.
    pub(crate) share: RefCell<Option<Box<Share>>>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.watch.enter(ConnectionPhase::Idle, self.shared.now.get());
        if self.taken.get() > 0 {
            self.room.add_permits(self.taken.get());
        }
        self.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
