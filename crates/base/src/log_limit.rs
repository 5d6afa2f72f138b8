//! Lines of the log that others can cause at will: one now and then, with how often it was left out.

use std::collections::HashMap;
use std::net::IpAddr;
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

/// A cause that each address has for itself.
#[derive(Debug, Default)]
pub struct AddressLogLimit(Mutex<AddressLines>);

/// Addresses that are told apart.
const ADDRESSES_MAX: usize = 1024;

#[derive(Debug, Default)]
struct AddressLines {
    last: HashMap<Option<IpAddr>, Duration>,
    left_out: u64,
}

impl AddressLogLimit {
    /// Whether the line is due, `now` since boot: then how many were left out since the last one, of all addresses.
    pub fn due(&self, address: Option<IpAddr>, now: Duration) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |last: &Duration| now.saturating_sub(*last) < EVERY;
        if lines.last.len() >= ADDRESSES_MAX {
            lines.last.retain(|_, last| is_recent(last));
        }
        let is_left_out = match lines.last.get(&address) {
            Some(last) => is_recent(last),
            None => lines.last.len() >= ADDRESSES_MAX,
        };
        if is_left_out {
            lines.left_out += 1;
            return None;
        }
        lines.last.insert(address, now);
        Some(std::mem::take(&mut lines.left_out))
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

    #[test]
    fn each_address_has_a_line_in_ten_seconds_and_addresses_are_bounded() {
        let limit = AddressLogLimit::default();
        let at = |ms| Duration::from_millis(ms);
        let address = |number: u32| Some(IpAddr::from(std::net::Ipv4Addr::from_bits(number)));
        assert_eq!([address(1), address(2), None].map(|address| limit.due(address, at(0))), [Some(0); 3]);
        assert_eq!((limit.due(address(1), at(9_999)), limit.due(address(1), at(10_000))), (None, Some(1)));
        let lines = (0..5_000).filter(|number| limit.due(address(*number), at(30_000)).is_some()).count();
        assert!((ADDRESSES_MAX - 3..=ADDRESSES_MAX).contains(&lines), "{lines}");
        assert!(limit.due(address(4_999), at(40_000)).is_some_and(|left_out| left_out >= 3_900));
    }
}
