//! One worker's process, seen from the node: started, spoken to within a deadline, and reaped in every case.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::limits::WALL_MAX;
use crate::wire::PipeFrames;

/// How a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// The worker closed its stdout, and ended so.
    Ended(ExitStatus),
    /// It was killed at its deadline.
    Late,
    /// It was killed because it wrote more than any worker writes.
    Flooded,
}

/// A running worker. Dropped, it is killed and reaped.
pub(crate) struct WorkerProcess {
    process: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    deadline: Instant,
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Both fail only for a process that was reaped already.
        let _killed = self.process.kill();
        let _status = self.process.wait();
    }
}

impl WorkerProcess {
    /// Starts `program script-worker`, with nothing of this process but the three files. Its environment says only how
    /// jemalloc is to behave: with threads of its own it would try in vain to start more of them behind the filter, and
    /// spend the script's time on it.
    pub(crate) fn start(program: &Path) -> io::Result<Self> {
        let deadline = Instant::now() + WALL_MAX;
        let mut command = Command::new(program);
        command.arg0("kvorum").arg("script-worker").env_clear().current_dir("/");
        command.env("MALLOC_CONF", "background_thread:false,narenas:1,prof:false");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            unreachable!("both were asked to be pipes");
        };
        let worker = Self { process, stdin, stdout, deadline };
        rustix::io::ioctl_fionbio(&worker.stdin, true)?;
        rustix::io::ioctl_fionbio(&worker.stdout, true)?;
        Ok(worker)
    }

    /// Writes `frames` and at the same time reads what the worker says, until it ends: a worker that does not read what it
    /// is sent does not stop its answers, nor they it. The worker's stdin stays open until then, for a worker takes its
    /// end for the node's.
    pub(crate) fn converse(
        mut self,
        frames: &PipeFrames<'_>,
        answer_bytes_max: usize,
    ) -> io::Result<(Vec<u8>, Parting)> {
        let mut parts = frames.parts();
        let mut unsent = parts.next();
        let mut answer = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let Some((may_read, may_write)) = self.wait_for_pipes(unsent.is_some())? else {
                return Ok((answer, Parting::Late));
            };
            if may_write && let Some(part) = unsent {
                unsent = match written(self.stdin.write(part))? {
                    Written::Bytes(bytes) if bytes < part.len() => part.get(bytes..),
                    Written::Bytes(_) => parts.next(),
                    Written::NotRead => None,
                };
            }
            if may_read {
                match self.stdout.read(&mut buffer) {
                    Ok(0) => return Ok((answer, self.ended()?)),
                    Ok(bytes) => answer.extend_from_slice(buffer.get(..bytes).unwrap_or(&buffer)),
                    Err(error) if is_passing(&error) => {}
                    Err(error) => return Err(error),
                }
                if answer.len() > answer_bytes_max {
                    return Ok((answer, Parting::Flooded));
                }
            }
        }
    }

    /// Which pipe can go on: stdout, stdin. `None` at the deadline.
    fn wait_for_pipes(&self, wants_to_write: bool) -> io::Result<Option<(bool, bool)>> {
        let mut pipes = [PollFd::new(&self.stdout, PollFlags::IN), PollFd::new(&self.stdin, PollFlags::OUT)];
        // Without anything to write, a stdin that can be written would end every wait.
        let waited = if wants_to_write { &mut pipes[..] } else { &mut pipes[..1] };
        let Some(left) = left_until(self.deadline) else { return Ok(None) };
        match poll(waited, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [stdout, stdin] = &pipes;
        Ok(Some((!stdout.revents().is_empty(), !stdin.revents().is_empty())))
    }

    /// The status of a worker that closed its stdout; one that lives on is killed at the deadline.
    fn ended(&mut self) -> io::Result<Parting> {
        let process = pidfd_open(Pid::from_child(&self.process), PidfdFlags::empty())?;
        while let Some(left) = left_until(self.deadline) {
            let mut ends = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
            match poll(&mut ends, Some(&left)) {
                Ok(1..) => return Ok(Parting::Ended(self.process.wait()?)),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Parting::Late)
    }
}

fn left_until(deadline: Instant) -> Option<Timespec> {
    let left = deadline.saturating_duration_since(Instant::now());
    (left > Duration::ZERO).then(|| Timespec::try_from(left).ok())?
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

enum Written {
    Bytes(usize),
    /// The worker reads no more: what it said before counts.
    NotRead,
}

fn written(result: io::Result<usize>) -> io::Result<Written> {
    match result {
        Ok(bytes) => Ok(Written::Bytes(bytes)),
        Err(error) if is_passing(&error) => Ok(Written::Bytes(0)),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Written::NotRead),
        Err(error) => Err(error),
    }
}
