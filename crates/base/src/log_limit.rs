//! Lines of the log that others can cause at will: one now and then, with how often it was left out.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::Mutex;

/// The least time between two lines of one cause.
const EVERY: Duration = Duration::from_secs(10);

/// One cause.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    last: Option<Duration>,
    left_out: u64,
}

impl LogLimit {
    /// Whether the line is due, `now` since boot: then how many were left out since the last one.
    pub fn due(&self, now: Duration) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.last.is_some_and(|last| now.saturating_sub(last) < EVERY) {
            said.left_out += 1;
            return None;
        }
        said.last = Some(now);
        Some(std::mem::take(&mut said.left_out))
    }
}

#[cfg(test)]
mod tests {
    use crate::log_limit::*;

    #[test]
    fn one_line_is_said_for_all_of_ten_seconds() {
        let limit = LogLimit::default();
        assert_eq!(limit.due(Duration::from_secs(5)), Some(0));
        for ms in 0..9_999 {
            assert_eq!(limit.due(Duration::from_millis(5_000 + ms)), None);
        }
        assert_eq!(limit.due(Duration::from_secs(15)), Some(9_999));
        assert_eq!(limit.due(Duration::from_secs(25)), Some(0));
    }
}
