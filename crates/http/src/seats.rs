//! Connections of one address: no client takes all seats of a node.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvorum_auth::failures::network;

/// Addresses that are remembered although they have no connection, before they are forgotten.
const IDLE_MAX: usize = 1024;

/// Counts connections by address, for the thread that takes them.
#[derive(Debug)]
pub struct AddressSeats {
    max: usize,
    counts: HashMap<IpAddr, Arc<AtomicUsize>>,
    /// Addresses at which those without a connection are looked for.
    prune_at: usize,
}

/// A seat of an address, until it is dropped.
#[derive(Debug)]
pub struct AddressSeat(Option<Arc<AtomicUsize>>);

impl AddressSeats {
    /// At most `max` connections of each address.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, counts: HashMap::new(), prune_at: IDLE_MAX }
    }

    /// A seat for another connection of `address`; none if it has as many as it may have. This machine's own programs
    /// have as many as they want.
    pub fn take(&mut self, address: IpAddr) -> Option<AddressSeat> {
        if address.to_canonical().is_loopback() {
            return Some(AddressSeat(None));
        }
        if self.counts.len() >= self.prune_at {
            self.counts.retain(|_, count| count.load(Ordering::Relaxed) > 0);
            self.prune_at = self.counts.len() + IDLE_MAX;
        }
        let count = self.counts.entry(network(address)).or_default();
        // Given back in any case.
        let seat = AddressSeat(Some(Arc::clone(count)));
        (count.fetch_add(1, Ordering::Relaxed) < self.max).then_some(seat)
    }
}

impl Drop for AddressSeat {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::{AddressSeat, AddressSeats, IDLE_MAX};

    #[test]
    fn each_address_has_its_seats_and_this_machine_has_all() {
        let mut seats = AddressSeats::new(2);
        let of = |text: &str| text.parse::<IpAddr>().unwrap();
        let first: Vec<AddressSeat> = (0..2).map(|_| seats.take(of("10.0.0.1")).unwrap()).collect();
        assert!(seats.take(of("10.0.0.1")).is_none());
        assert!(seats.take(of("10.0.0.1")).is_none(), "a refusal takes none either");
        assert!(seats.take(of("10.0.0.2")).is_some());
        let _six = (seats.take(of("2001:db8::1")), seats.take(of("2001:db8::2")));
        assert!(seats.take(of("2001:db8::3")).is_none(), "a network of 64 bits is one client's");
        let own: Vec<_> = (0..100).map(|_| (seats.take(of("127.0.0.1")), seats.take(of("::1")))).collect();
        assert!(own.iter().all(|(four, six)| four.is_some() && six.is_some()));
        drop(first);
        assert!(seats.take(of("10.0.0.1")).is_some());
    }

    #[test]
    fn addresses_that_have_gone_are_forgotten() {
        let mut seats = AddressSeats::new(1);
        let held = seats.take(Ipv4Addr::new(9, 9, 9, 9).into());
        for number in 0..10 * u32::try_from(IDLE_MAX).unwrap() {
            drop(seats.take(Ipv4Addr::from_bits(0x0a00_0000 + number).into()));
            assert!(seats.counts.len() <= 2 * IDLE_MAX + 1);
        }
        assert!(seats.take(Ipv4Addr::new(9, 9, 9, 9).into()).is_none());
        drop(held);
    }
}
