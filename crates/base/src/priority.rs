//! What goes first where there are not processors enough: requests.
//!
//! Threads without requests have a weaker claim (setpriority(2)), each by itself: on Linux a priority is a thread's.

use std::sync::Once;

/// A third of the usual share, for work that no request waits for and that must go on all the same: writes wait in the
/// end for a flush that does not, and others for the engine's locks.
pub const WORK: i32 = 5;
/// The weakest that there is, for what only reads.
pub const SCANS: i32 = 19;

/// Lowers the priority of the calling thread. One that is lower already, because the process was started so, stays.
/// Where the system refuses, which is logged once, nothing else depends on it.
pub fn lower_to(nice: i32) {
    let own = rustix::process::getpriority_process(None);
    if own.is_ok_and(|own| own < nice)
        && let Err(error) = rustix::process::setpriority_process(None, nice)
    {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            tracing::warn!(%error, "work in the background takes as much of the processor as requests");
        });
    }
}
