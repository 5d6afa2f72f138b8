//! Failed authentications, by address: one with too many is refused before its key is looked at.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Failures of one address in a second, after which it is blocked.
pub const FAILURES_PER_SECOND: u32 = 5;
/// How long.
pub const BLOCKED_FOR: Duration = Duration::from_secs(10);
/// Addresses remembered. Beyond, the one whose last failure is oldest is forgotten.
const ADDRESSES_MAX: usize = 4096;
const WINDOW: Duration = Duration::from_secs(1);

/// What a request without a valid key gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAnswer {
    /// `401`.
    Unauthorized,
    /// `429`, for so long.
    TooMany(Duration),
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    window_began: Duration,
    last: Duration,
    count: u32,
    blocked_until: Duration,
}

/// Failures of the addresses that failed last. Requests with a valid key never come here.
#[derive(Debug, Default)]
pub struct FailureCounts {
    addresses: HashMap<IpAddr, Failures>,
}

impl FailureCounts {
    /// Counts a failure, at `now` on a clock that never steps back, and says how it is answered. Threads may come in
    /// another order than that in which they looked at the clock.
    pub fn note(&mut self, address: IpAddr, now: Duration) -> FailureAnswer {
        let address = network(address);
        if !self.addresses.contains_key(&address) && self.addresses.len() == ADDRESSES_MAX {
            let oldest = self.addresses.iter().min_by_key(|(_, failures)| failures.last).map(|(address, _)| *address);
            if let Some(oldest) = oldest {
                self.addresses.remove(&oldest);
            }
        }
        let fresh = Failures { window_began: now, last: now, count: 0, blocked_until: Duration::ZERO };
        let failures = self.addresses.entry(address).or_insert(fresh);
        failures.last = failures.last.max(now);
        if now < failures.blocked_until {
            return FailureAnswer::TooMany(failures.blocked_until - now);
        }
        if now.saturating_sub(failures.window_began) >= WINDOW {
            *failures = fresh;
        }
        failures.count += 1;
        if failures.count > FAILURES_PER_SECOND {
            failures.blocked_until = now + BLOCKED_FOR;
            return FailureAnswer::TooMany(BLOCKED_FOR);
        }
        FailureAnswer::Unauthorized
    }
}

/// What one client can have many of counts as one: an IPv6 network of 64 bits.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use super::{ADDRESSES_MAX, BLOCKED_FOR, FailureAnswer, FailureCounts, network};

    fn address(number: usize) -> IpAddr {
        Ipv4Addr::from_bits(u32::try_from(number).unwrap()).into()
    }

    #[test]
    fn the_sixth_failure_in_a_second_blocks_for_ten() {
        let mut counts = FailureCounts::default();
        let second = Duration::from_secs(1);
        for at in 0..5 {
            assert_eq!(counts.note(address(1), second + Duration::from_millis(at)), FailureAnswer::Unauthorized);
        }
        assert_eq!(counts.note(address(1), second), FailureAnswer::TooMany(BLOCKED_FOR));
        assert_eq!(counts.note(address(2), second), FailureAnswer::Unauthorized);
        assert_eq!(
            counts.note(address(1), 5 * second),
            FailureAnswer::TooMany(6 * second),
            "no failure makes it longer"
        );
        assert_eq!(counts.note(address(1), 11 * second), FailureAnswer::Unauthorized);
    }

    #[test]
    fn five_a_second_go_on_for_ever() {
        let mut counts = FailureCounts::default();
        for at in 0..100_u32 {
            assert_eq!(counts.note(address(1), Duration::from_millis(200) * at), FailureAnswer::Unauthorized);
        }
    }

    #[test]
    fn addresses_are_bounded_and_the_oldest_is_forgotten() {
        let mut counts = FailureCounts::default();
        for number in 0..3 * ADDRESSES_MAX {
            counts.note(address(number), Duration::from_millis(number as u64));
        }
        assert_eq!(counts.addresses.len(), ADDRESSES_MAX);
        assert!(counts.addresses.contains_key(&address(3 * ADDRESSES_MAX - 1)));
        assert!(!counts.addresses.contains_key(&address(0)));
    }

    #[test]
    fn an_address_that_is_cheap_to_have_many_of_counts_as_one() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(of("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(of("10.0.0.1"), "10.0.0.1");
    }
}
