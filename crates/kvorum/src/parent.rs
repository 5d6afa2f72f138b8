//! A node and the process that started it (`kvorum dev`): orders come over a pipe on stdin, and the node ends with it.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use anyhow::{Context, Result};
use kvorum_base::clock::{SystemTime, TimeSource};
use kvorum_base::faults::{Faults, NoOrder};
use kvorum_base::log_limit::LogLimit;
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};

/// Longest order; what is longer is none.
const LINE_BYTES_MAX: u64 = 64;

/// Ends this process with its parent, and takes its orders until then.
///
/// A process that was stopped (SIGSTOP) does not see the end of stdin, so the death of the parent has it go on. If the
/// parent is dead before that is arranged, stdin has ended already. Nothing is killed: the node drains.
pub(crate) fn follow() -> Result<Arc<Faults>> {
    set_parent_process_death_signal(Some(Signal::CONT)).context("cannot follow the process that started this one")?;
    let faults = Arc::new(Faults::default());
    let given = faults.clone();
    let watch = move || {
        obey(io::stdin().lock(), &given);
        // There is always a process that is this one.
        let _ = kill_process(getpid(), Signal::TERM);
    };
    std::thread::Builder::new().name("stdin".into()).spawn(watch).context("a thread to watch stdin")?;
    Ok(faults)
}

/// Takes orders until there will be none. An error is the end as well.
fn obey(mut orders: impl BufRead, faults: &Faults) {
    let not_understood = LogLimit::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        match orders.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let is_whole = line.ends_with(b"\n");
        let obeyed = match std::str::from_utf8(&line) {
            Ok(order) if is_whole => faults.obey(order),
            _ => Err(NoOrder),
        };
        if !is_whole && orders.skip_until(b'\n').is_err() {
            return;
        }
        let order = String::from_utf8_lossy(&line);
        match obeyed {
            Ok(()) => tracing::info!(order = order.trim(), "ordered by the parent"),
            Err(error) => {
                if let Some(left_out) = not_understood.due(SystemTime.boot()) {
                    tracing::warn!(order = order.trim(), %error, left_out, "a line on stdin is ignored");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_orders_are_passed_over_however_long() {
        let faults = Faults::default();
        let long = "x".repeat(100_000);
        obey(format!("slow 5\n\n{long}\nslow 99999\n\u{e9}\nslow 7\nslow 9").as_bytes(), &faults);
        assert_eq!(faults.delay(), Some(std::time::Duration::from_millis(7)), "the last line did not end");
    }
}
