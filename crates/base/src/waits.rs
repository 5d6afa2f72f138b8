//! What threads wait for, while a profile is taken: locks, queues and the engine.
//!
//! Otherwise nothing is noted, and each place that could note something reads one flag. Sums are kept by thread, by
//! what was waited for and by where: as many as the code has places, times the threads.

// The checker's locks note nothing.
#![cfg_attr(feature = "interleavings", allow(dead_code))]

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static WATCHED: AtomicBool = AtomicBool::new(false);
static NOTED: Mutex<BTreeMap<Wait, WaitTotal>> = Mutex::new(BTreeMap::new());

/// What was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    /// A lock of ours, by the type that it guards.
    Lock(&'static str),
    /// By something in a queue of ours, from when it was put there to when it was taken.
    Queue(&'static str),
    /// Inside the engine: its mutex, its log, writes that it holds back.
    Engine(&'static str),
}

/// A wait's thread, cause and place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    /// The thread's name.
    pub thread: String,
    /// For what it waited.
    pub what: WaitKind,
    /// A line of the source, or a call of the engine; of a queue nothing.
    pub place: String,
}

/// How often, and how long altogether.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTotal {
    /// Waits.
    pub count: u64,
    /// Their time together.
    pub time: Duration,
}

/// Waits are noted until this is dropped. There is one at a time: the profiler's.
pub struct WaitWatch(());

impl WaitWatch {
    /// Notes waits from now on.
    #[must_use]
    pub fn begin() -> Self {
        noted().clear();
        WATCHED.store(true, Ordering::Relaxed);
        Self(())
    }

    /// All that was noted since the begin.
    #[must_use]
    pub fn end(self) -> BTreeMap<Wait, WaitTotal> {
        drop(self);
        std::mem::take(&mut *noted())
    }
}

impl Drop for WaitWatch {
    fn drop(&mut self) {
        WATCHED.store(false, Ordering::Relaxed);
    }
}

fn noted() -> MutexGuard<'static, BTreeMap<Wait, WaitTotal>> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether waits are to be noted now.
pub fn is_watched() -> bool {
    WATCHED.load(Ordering::Relaxed)
}

/// Notes that this thread, or what it took from a queue, has waited.
pub fn note(what: WaitKind, place: String, sum: WaitTotal) {
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let mut noted = noted();
    let known = noted.entry(Wait { thread, what, place }).or_default();
    known.count += sum.count;
    known.time += sum.time;
}

/// Runs what blocks on a lock that is taken, and notes it while a profile is taken.
pub fn lock<T>(guards: &'static str, place: &Location<'_>, block: impl FnOnce() -> T) -> T {
    if !is_watched() {
        return block();
    }
    let begin = Instant::now();
    let locked = block();
    note(WaitKind::Lock(guards), place.to_string(), WaitTotal { count: 1, time: begin.elapsed() });
    locked
}

/// Waits in a queue that is not ours, and notes it while a profile is taken. As cancel safe as `wait`.
pub async fn queue<T>(queue: &'static str, wait: impl Future<Output = T>) -> T {
    let begin = is_watched().then(Instant::now);
    let result = wait.await;
    if let Some(begin) = begin {
        note(WaitKind::Queue(queue), String::new(), WaitTotal { count: 1, time: begin.elapsed() });
    }
    result
}

/// The waits of all that is in one queue, kept beside it and under its lock. Their sum is the queue's length, added up
/// over time: nothing has to be kept with each of the things.
#[derive(Debug, Default)]
pub struct QueueWaits {
    changed: Option<Instant>,
    waited: Duration,
}

impl QueueWaits {
    /// To be called before the queue, of this length, gets longer.
    pub fn before_put(&mut self, length: usize) {
        if is_watched() {
            self.add(length, Instant::now());
        } else if self.changed.is_some() {
            *self = Self::default();
        }
    }

    /// To be called before `taken` are taken from the queue, of this length.
    pub fn before_take(&mut self, queue: &'static str, length: usize, taken: usize) {
        if is_watched() && taken > 0 {
            self.add(length, Instant::now());
            let count = u64::try_from(taken).unwrap_or(u64::MAX);
            note(WaitKind::Queue(queue), String::new(), WaitTotal { count, time: std::mem::take(&mut self.waited) });
        } else if self.changed.is_some() && !is_watched() {
            *self = Self::default();
        }
    }

    fn add(&mut self, length: usize, now: Instant) {
        // What was there before the watch began counts from the first change after it.
        let since = self.changed.replace(now).map_or(Duration::ZERO, |changed| now.saturating_duration_since(changed));
        self.waited += since.saturating_mul(u32::try_from(length).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use crate::waits::*;

    #[test]
    fn waits_in_a_queue_are_its_length_over_time() {
        let mut waits = QueueWaits::default();
        let at = |ms: u64| Instant::now().checked_add(Duration::from_millis(ms)).unwrap();
        let begin = at(0);
        let ms = Duration::from_millis;
        // One came at 0 and one at 10; both were taken at 30: 30 and 20.
        waits.add(0, begin);
        waits.add(1, begin + ms(10));
        waits.add(2, begin + ms(30));
        assert_eq!(waits.waited, ms(50));
    }
}
