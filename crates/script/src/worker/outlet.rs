//! What the worker has to say, and stdout.
//!
//! A write for each record would cost more than most scripts do. So answers are gathered, and the watch writes what has
//! waited for [`PAUSE`]: a record that meets a limit takes longer than that, and what was answered before it is out.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::wire::{PipeLabel, push_frame};

/// Written at once: about what a pipe takes.
const GATHERED_BYTES_MAX: usize = 32 * 1024;

/// How long an answer waits at most.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Answers that are not yet written.
#[derive(Debug, Default)]
pub(super) struct Outlet(Mutex<Vec<u8>>);

impl Outlet {
    pub(super) fn say(&self, label: PipeLabel, body: &[u8]) -> io::Result<()> {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        push_frame(&mut gathered, label, body);
        if gathered.len() < GATHERED_BYTES_MAX { Ok(()) } else { write_all(&mut gathered) }
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        write_all(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Past the buffer of std's stdout, which searches for ends of lines.
fn write_all(gathered: &mut Vec<u8>) -> io::Result<()> {
    while !gathered.is_empty() {
        let bytes = rustix::io::retry_on_intr(|| rustix::io::write(io::stdout(), gathered))?;
        gathered.drain(..bytes);
    }
    Ok(())
}
