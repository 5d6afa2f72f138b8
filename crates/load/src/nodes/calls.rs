//! System calls, counted by the kernel where it can: a tracepoint on each thread of the processes.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::proc::ProcDir;
use crate::numbers::float;

/// Where tracefs is mounted.
const TRACEFS: &str = "/sys/kernel/tracing";
/// There: what is entered with each call.
const ID: &str = "events/raw_syscalls/sys_enter/id";
/// Each has a descriptor.
const THREADS_MAX: usize = 128;
const TIME_MIN: Duration = Duration::from_millis(100);

/// Counts from when it is made until it is asked or dropped.
pub(super) struct Calls {
    begin: Instant,
    threads: Vec<Counter>,
}

impl Calls {
    /// Of all threads that there are. None where the kernel does not count, for which it takes root, or tracefs and
    /// `CAP_PERFMON`; or where there is no time for it until `end`.
    pub(super) fn until(end: Instant, processes: &[ProcDir]) -> Option<Self> {
        if processes.is_empty() || end.saturating_duration_since(Instant::now()) < TIME_MIN {
            return None;
        }
        let id = fs::read_to_string(Path::new(TRACEFS).join(ID)).or_else(|_| read_unmounted(ID)).ok()?;
        let id = id.trim().parse().ok()?;
        let mut builder = Builder::new(Tracepoint::with_id(id));
        builder.any_cpu().include_kernel();
        let mut threads = Vec::new();
        for thread in processes.iter().flat_map(ProcDir::threads).take(THREADS_MAX) {
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

/// A file of tracefs where it is not mounted: of a mount that has no place, and is gone with this. Root can.
fn read_unmounted(path: &str) -> io::Result<String> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    io::read_to_string(File::from(openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::{Calls, TIME_MIN};
    use crate::nodes::proc::listening_on;

    /// Needs root.
    #[test]
    fn calls_are_counted_where_the_kernel_tells() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let begin = Instant::now();
        let processes = listening_on(&[listener.local_addr().unwrap()]);
        assert!(Calls::until(begin, &processes).is_none(), "there is no time for it");
        let Some(calls) = Calls::until(begin + Duration::from_secs(60), &processes) else {
            eprintln!("SKIPPED: to count system calls takes root, or tracefs and CAP_PERFMON");
            return;
        };
        // From here on: to have them counted may take as long on a busy machine.
        let (mut made, counted) = (0_u32, Instant::now());
        while counted.elapsed() < 2 * TIME_MIN {
            let _ = rustix::process::getppid();
            made += 1;
        }
        let (per_second, time) = (calls.per_second().unwrap(), begin.elapsed());
        // They were counted for no longer than since the begin; threads of other tests make some, too.
        assert!(made > 1000 && per_second >= f64::from(made) / time.as_secs_f64(), "{per_second} {made} {time:?}");
    }
}
