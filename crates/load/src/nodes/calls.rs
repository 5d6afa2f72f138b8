//! System calls, counted by the kernel where it tells: a tracepoint on each thread of the processes.

use std::fs;
use std::time::{Duration, Instant};

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};

use super::proc::Process;
use crate::numbers::float;

/// What is entered with each call; where tracefs is, and where it was before Linux 4.1.
const IDS: [&str; 2] = [
    "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
    "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
];
/// Each has a descriptor.
const THREADS_MAX: usize = 128;
const TIME_MIN: Duration = Duration::from_millis(100);

/// Counts from when it is made until it is asked or dropped.
pub(super) struct Calls {
    begin: Instant,
    threads: Vec<Counter>,
}

impl Calls {
    /// Of all threads that there are. None where the kernel does not tell: it takes tracefs, and `CAP_PERFMON` or root.
    pub(super) fn of(processes: &[Process]) -> Option<Self> {
        let id = IDS.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())?;
        let mut builder = Builder::new(Tracepoint::with_id(id));
        builder.any_cpu().include_kernel();
        let mut threads = Vec::new();
        for thread in processes.iter().flat_map(Process::threads).take(THREADS_MAX) {
            match builder.observe_pid(thread).build() {
                Ok(counter) => threads.push(counter),
                // It has ended.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                Err(_) => return None,
            }
        }
        // To make them takes longer than to begin with all.
        let begin = Instant::now();
        threads.iter_mut().try_for_each(Counter::enable).ok()?;
        (!threads.is_empty() && threads.len() < THREADS_MAX).then_some(Self { begin, threads })
    }

    /// None if they were counted for too short a time.
    pub(super) fn per_second(mut self) -> Option<f64> {
        let time = self.begin.elapsed().as_secs_f64();
        if time < TIME_MIN.as_secs_f64() {
            return None;
        }
        let counts: std::io::Result<Vec<u64>> = self.threads.iter_mut().map(Counter::read).collect();
        Some(float(counts.ok()?.iter().sum::<u64>()) / time)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::{Calls, TIME_MIN};
    use crate::nodes::proc::listening_on;

    /// Needs root.
    #[test]
    fn calls_are_counted_where_the_kernel_tells() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let begin = Instant::now();
        let Some(calls) = Calls::of(&listening_on(&[listener.local_addr().unwrap()])) else {
            eprintln!("SKIPPED: to count system calls takes tracefs and CAP_PERFMON");
            return;
        };
        let mut made = 0_u32;
        while begin.elapsed() < 2 * TIME_MIN {
            let _ = rustix::process::getppid();
            made += 1;
        }
        let (per_second, time) = (calls.per_second().unwrap(), begin.elapsed());
        // They were counted for no longer than that; threads of other tests make some, too.
        assert!(made > 1000 && per_second >= f64::from(made) / time.as_secs_f64(), "{per_second} {made} {time:?}");
    }
}
