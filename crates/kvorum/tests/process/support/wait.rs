//! Waiting for a condition with a deadline: the only place of the suite that pauses.

use std::time::{Duration, Instant};

/// Enough for anything that should happen soon, on a machine with two busy cores.
pub const SOON: Duration = Duration::from_secs(30);

/// Asks until there is an answer; fails the test, naming what it waited for, after `limit`.
#[track_caller]
pub fn wait_within<T>(limit: Duration, what: &str, ask: impl FnMut() -> Option<T>) -> T {
    poll(limit, Duration::from_millis(10), what, ask)
}

/// [`wait_for`], with a millisecond between two looks: for a test that has to be there first.
#[track_caller]
pub fn wait_closely<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    poll(SOON, Duration::from_millis(1), what, ask)
}

#[track_caller]
fn poll<T>(limit: Duration, pause: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} in vain: {what}");
        std::thread::park_timeout(pause);
    }
}

/// [`wait_within`] the usual limit.
#[track_caller]
pub fn wait_for<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    wait_within(SOON, what, ask)
}

/// Waits until the condition holds.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}
