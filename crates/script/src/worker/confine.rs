//! What the worker takes from itself before it reads a script.
//!
//! The kernel enforces all of it, for interrupts of Lua protect nobody: a script catches them. Each is needed: the limits
//! end a script that loops and bound what it maps; without files and with few system calls left, an error in Lua's own
//! code gives no more than a script has. What fails here ends the worker: it runs confined or not at all.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getpid, set_dumpable_behavior, set_parent_process_death_signal,
    setpriority_process, setrlimit,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::outlet::{Outlet, PAUSE};
use crate::limits::{CPU_SECONDS_MAX, MAPPED_BYTES_MAX, WATCH_MAX};

/// What Rust, the allocator and Lua call once they run: memory, the two pipes, waiting, time, and the end. Without a way to
/// open, to connect, to start a process or a thread, or to look at another process.
const SYSTEM_CALLS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_ppoll,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    // Of a thread that begins: the watch, and an allocator's, may do so after the filter is there.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Takes from this process what a script has no use for.
pub(super) fn confine(outlet: &Arc<Outlet>) -> io::Result<()> {
    // Of the thread that started this process, which waits for it: see `ScriptWorkers`. The watch is for the case that
    // the node died before this call.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Of this thread, and of the watch that follows. The idle class is not in reach without unsafe code.
    setpriority_process(None, 19)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    let mapped = mapped_bytes()?;
    watch(Arc::clone(outlet))?;
    limit(Resource::As, mapped + MAPPED_BYTES_MAX)?;
    // Stdin, stdout and stderr are there already. With zero nothing could be waited for.
    limit(Resource::Nofile, 3)?;
    let seconds = Rlimit { current: Some(CPU_SECONDS_MAX), maximum: Some(CPU_SECONDS_MAX + 1) };
    setrlimit(Resource::Cpu, seconds)?;
    // Sets `no_new_privs` as well.
    seccompiler::apply_filter_all_threads(&filter().map_err(io::Error::other)?).map_err(io::Error::other)
}

fn limit(resource: Resource, to: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(to), maximum: Some(to) })?)
}

/// What the process maps now: its program and libraries, and what an allocator reserves.
fn mapped_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// A thread that writes what waits in the outlet, and ends the process when the node is gone, or at the latest after
/// [`WATCH_MAX`]: a stopped or slow node does not keep its workers alive.
fn watch(outlet: Arc<Outlet>) -> io::Result<()> {
    let deadline = Instant::now() + WATCH_MAX;
    let pause = Timespec::try_from(PAUSE).map_err(io::Error::other)?;
    let until_end = move || {
        let stdin = io::stdin();
        // No events: only that the other end was closed. The node closes it after it has read the answer.
        let mut ends = [PollFd::new(&stdin, PollFlags::empty())];
        while Instant::now() < deadline && poll(&mut ends, Some(&pause)) == Ok(0) {
            if outlet.flush().is_err() {
                break;
            }
        }
        std::process::abort();
    };
    std::thread::Builder::new().name("watch".to_owned()).stack_size(128 * 1024).spawn(until_end)?;
    Ok(())
}

/// Other calls fail with `EPERM`. A library that tries one goes on without; killing would make that a crash.
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = SYSTEM_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    // `abort` signals its own process.
    let itself = u64::from(getpid().as_raw_pid().unsigned_abs());
    let own = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, itself)?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![own])?]);
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, refused, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?.try_into()
}
