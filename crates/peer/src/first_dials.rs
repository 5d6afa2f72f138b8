//! The first dials of a node's start, which it waits for before it is ready: only then is it known which peers are
//! there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts those that have not ended.
#[derive(Clone, Debug, Default)]
pub struct FirstDials(Arc<AtomicUsize>);

/// One of them. Dropped when it has ended: connected, refused or timed out.
#[derive(Debug)]
pub struct FirstDial(Arc<AtomicUsize>);

impl FirstDials {
    /// One more, which has not ended.
    #[must_use]
    pub fn begin(&self) -> FirstDial {
        self.0.fetch_add(1, Ordering::Relaxed);
        FirstDial(self.0.clone())
    }

    /// Whether all have ended.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

impl Drop for FirstDial {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
