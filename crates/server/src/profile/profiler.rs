//! What can be asked for, what comes of it, and the one thing that takes it.

use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use kvorum_base::waits::{WaitKind, WaitWatch};

use super::sample::{Profile, ProfileRequest, Refusal, SampleKind, SamplingWait};
use super::{allocations, cpu};

/// Between two looks at whether it is still needed.
const TICK: Duration = Duration::from_millis(20);

/// Takes one profile at a time.
#[derive(Debug, Default)]
pub(crate) struct Profiler(Mutex<()>);

impl Profiler {
    /// Takes a profile. Blocks until it is complete, or not `wanted` any more, which is read all the time.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn take(&self, request: ProfileRequest, wanted: &mut dyn FnMut() -> bool) -> Result<Profile, Refusal> {
        let _only = match self.0.try_lock() {
            Ok(only) => only,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Refusal::Busy),
        };
        tracing::info!(kind = request.kind.name(), seconds = request.time.as_secs(), "profile begun");
        let begin = Instant::now();
        let mut pass = |on_tick: &mut dyn FnMut() -> Result<(), Refusal>| {
            let end = begin + request.time;
            while Instant::now() < end {
                std::thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
                if !wanted() {
                    return Err(Refusal::Unwanted);
                }
                on_tick()?;
            }
            Ok(begin.elapsed())
        };
        match request.kind {
            SampleKind::Cpu => cpu::take(request.frequency, &mut pass),
            SampleKind::Alloc => allocations::take(&mut pass),
            SampleKind::Lock => waits(&mut pass),
        }
    }
}

/// The name of a type without the names of our crates, whose modules are clear enough.
fn without_crates(name: &str) -> String {
    let mut parts = name.split("kvorum_");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("::").map_or(part, |(_, rest)| rest))
}

fn waits(pass: &mut SamplingWait<'_>) -> Result<Profile, Refusal> {
    let watch = WaitWatch::begin();
    let time = pass(&mut || Ok(()))?;
    let note = "what is idle is not waiting; the engine's own threads are not seen".to_owned();
    let mut profile = Profile { time, note, ..Profile::default() };
    for (wait, sum) in watch.end() {
        profile.samples += sum.count;
        let micros = u64::try_from(sum.time.as_micros()).unwrap_or(u64::MAX);
        let frames = match wait.what {
            WaitKind::Lock(guards) => vec![format!("lock {}", without_crates(guards)), wait.place],
            WaitKind::Queue(queue) => vec![format!("queue {queue}")],
            WaitKind::Engine(inside) => vec![format!("engine {}", wait.place), inside.to_owned()],
        };
        profile.add(std::iter::once(wait.thread.as_str()).chain(frames.iter().map(String::as_str)), micros);
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::profile::profiler::*;
    use crate::profile::sample::FREQUENCY_MAX;

    fn request(kind: SampleKind, ms: u64) -> ProfileRequest {
        ProfileRequest { kind, time: Duration::from_millis(ms), frequency: FREQUENCY_MAX }
    }

    #[test]
    fn there_is_one_profile_at_a_time_and_none_that_nobody_wants() {
        let profiler = Profiler::default();
        let mut asked = 0;
        let mut wanted = || {
            asked += 1;
            let second = profiler.take(request(SampleKind::Alloc, 1), &mut || true);
            assert!(matches!(second, Err(Refusal::Busy)), "{second:?}");
            asked < 3
        };
        let first = profiler.take(request(SampleKind::Lock, 60_000), &mut wanted);
        assert!(matches!(first, Err(Refusal::Unwanted)), "{first:?}");
        assert!(!kvorum_base::waits::is_watched(), "nothing is armed without need");
        assert!(profiler.take(request(SampleKind::Lock, 1), &mut || true).is_ok());
    }

    /// A profile in which a thread waits for a lock that is held for half of the time.
    fn profile_of_a_contended_lock() -> Profile {
        let lock = kvorum_base::sync::Mutex::new(String::new());
        std::thread::scope(|scope| {
            let mut held = Some(lock.lock().unwrap());
            let mut waiter = Some(std::thread::Builder::new().name("waiter".to_owned()));
            let begin = Instant::now();
            let mut wanted = || {
                if let Some(waiter) = waiter.take() {
                    waiter.spawn_scoped(scope, || drop(lock.lock())).unwrap();
                } else if begin.elapsed() > Duration::from_millis(200) {
                    held = None;
                }
                true
            };
            Profiler::default().take(request(SampleKind::Lock, 400), &mut wanted).unwrap()
        })
    }

    #[test]
    fn a_contended_lock_is_named_with_who_waited_and_where() {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let stacks = profile_of_a_contended_lock().stacks;
            let mut found = stacks.keys().filter(|stack| stack.starts_with("waiter;lock alloc::string::String;"));
            if found.any(|stack| stack.contains("profile/profiler.rs:")) {
                return;
            }
            // On a busy machine the thread may have begun too late.
            assert!(Instant::now() < deadline, "{stacks:?}");
        }
    }

    #[test]
    fn frames_cannot_break_the_lines() {
        let mut profile = Profile::default();
        profile.add(["a;b", "c\nd"].into_iter(), 2);
        profile.add(["e"].into_iter(), 0);
        assert_eq!(profile.stacks, BTreeMap::from([("a:b;c d".to_owned(), 2)]));
    }
}
