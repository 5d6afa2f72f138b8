//! Processor time: of the servers, from `/proc`, and of this process.

use std::fs;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// What has been used so far, or between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) servers_seconds: f64,
    pub(crate) driver: Duration,
}

impl Usage {
    pub(crate) fn now(processes: &[u32]) -> Self {
        let ticks: u64 = processes.iter().filter_map(|process| process_ticks(*process)).sum();
        Self {
            servers_seconds: ticks as f64 / clock_ticks_per_second() as f64,
            driver: Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default(),
        }
    }

    pub(crate) fn since(&self, then: &Self) -> Self {
        Self {
            servers_seconds: self.servers_seconds - then.servers_seconds,
            driver: self.driver.saturating_sub(then.driver),
        }
    }
}

/// User and system time of a process and of its children that have ended: Redis rewrites its log in a child.
fn process_ticks(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Usage;

    #[test]
    fn the_time_of_a_process_is_what_it_used() {
        let me = [std::process::id()];
        let before = Usage::now(&me);
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut spent = Usage::now(&me).since(&before);
        // Its own clock, so that a busy machine only makes this longer.
        while spent.driver < Duration::from_millis(300) && Instant::now() < deadline {
            spent = Usage::now(&me).since(&before);
        }
        assert!((spent.servers_seconds - spent.driver.as_secs_f64()).abs() < 0.1, "{spent:?}");
    }
}
