//! Who holds the memory for large values: no client takes all of it, and a part of it is left to peers.
//!
//! What is counted here is charged to the memory for large values, too, and by its rules: values up to
//! [`FREE_BYTES`] are not counted. A value counts from its first byte until its answer is given, and one that is read
//! until its client has taken it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use kvorum_auth::failures::network;
use kvorum_base::value_memory::FREE_BYTES;

/// What holds values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// Who shows a key, wherever from.
    Principal(String),
    /// All clients of an address, where no keys are.
    Address(IpAddr),
    /// The machine's own programs, where no keys are: they have as much as all clients together.
    ThisMachine,
}

impl Holder {
    pub(crate) fn at(address: IpAddr) -> Self {
        if address.to_canonical().is_loopback() { Self::ThisMachine } else { Self::Address(network(address)) }
    }
}

/// What clients hold, of all shards of a node.
#[derive(Debug)]
pub struct ClientShares {
    /// Of all clients.
    all_max: usize,
    /// Of one, unless it is a single value.
    each_max: usize,
    held: Mutex<HeldBytes>,
}

#[derive(Debug, Default)]
struct HeldBytes {
    all: usize,
    by_holder: HashMap<Holder, usize>,
}

impl ClientShares {
    /// Shares of `bytes_max`: three quarters for clients, a quarter for each, and in any case one value of
    /// `value_bytes_max`.
    #[must_use]
    pub fn new(bytes_max: usize, value_bytes_max: usize) -> Arc<Self> {
        let all_max = (bytes_max - bytes_max / 4).max(value_bytes_max);
        Arc::new(Self { all_max, each_max: bytes_max / 4, held: Mutex::default() })
    }

    /// A share of `holder`'s without bytes yet.
    pub(crate) fn open(self: &Arc<Self>, holder: Holder) -> Share {
        Share { shares: Arc::clone(self), holder, bytes: 0 }
    }

    fn held(&self) -> MutexGuard<'_, HeldBytes> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn is_unused(&self) -> bool {
        let held = self.held();
        held.all == 0 && held.by_holder.is_empty()
    }
}

/// The holder, or all clients together, hold as much as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverShare;

/// Bytes of one request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<ClientShares>,
    holder: Holder,
    bytes: usize,
}

impl Share {
    /// Counts what is missing to `bytes`.
    ///
    /// # Errors
    /// There is no room in the holder's share; what is counted stays.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), OverShare> {
        if bytes <= FREE_BYTES.max(self.bytes) {
            return Ok(());
        }
        let more = bytes - self.bytes;
        let ClientShares { all_max, each_max, .. } = *self.shares;
        let mut held = self.shares.held();
        let own = held.by_holder.get(&self.holder).copied().unwrap_or_default();
        let is_only_value = own == self.bytes;
        let fits = self.holder == Holder::ThisMachine || is_only_value || own + more <= each_max;
        if !fits || held.all + more > all_max {
            return Err(OverShare);
        }
        held.all += more;
        *held.by_holder.entry(self.holder.clone()).or_default() += more;
        self.bytes = bytes;
        Ok(())
    }

    /// The same bytes, counted until the last part of them is gone.
    pub(crate) fn kept_by(self: Box<Self>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(SharedBytes { bytes, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = self.shares.held();
        held.all -= self.bytes;
        if let Some(own) = held.by_holder.get_mut(&self.holder) {
            *own -= self.bytes;
            if *own == 0 {
                held.by_holder.remove(&self.holder);
            }
        }
    }
}

struct SharedBytes {
    bytes: Bytes,
    _share: Box<Share>,
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use bytes::Bytes;

    use super::{ClientShares, FREE_BYTES, Holder, OverShare};

    fn of(address: &str) -> Holder {
        Holder::at(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn nobody_has_more_than_a_quarter_or_one_value_and_a_quarter_is_left() {
        let shares = ClientShares::new(400_000, 150_000);
        let mut one = shares.open(of("10.0.0.1"));
        assert_eq!(one.grow_to(150_000), Ok(()), "one value in any case");
        let mut second = shares.open(of("10.0.0.1"));
        assert_eq!(second.grow_to(5_000), Err(OverShare), "another of the same address");
        assert_eq!(second.grow_to(FREE_BYTES), Ok(()), "what is small is free");
        let mut other = shares.open(Holder::Principal("shop".into()));
        assert_eq!(other.grow_to(100_000), Ok(()), "somebody else");
        let mut third = shares.open(of("10.0.0.2"));
        assert_eq!(third.grow_to(60_000), Err(OverShare), "a quarter is left to peers");
        assert_eq!(third.grow_to(50_000), Ok(()));
        drop(one);
        assert_eq!(second.grow_to(100_000), Ok(()), "given back");
        drop((second, other, third));
        assert!(shares.is_unused());
    }

    #[test]
    fn a_holder_has_a_quarter_in_many_values_and_this_machine_has_all_that_clients_have() {
        let shares = ClientShares::new(400_000, 10_000);
        for (holder, count) in [(of("2001:db8::1"), 10), (of("127.0.0.1"), 30), (of("::ffff:127.0.0.1"), 30)] {
            let mut held: Vec<_> = (0..count).map(|_| shares.open(holder.clone())).collect();
            assert!(held.iter_mut().all(|share| share.grow_to(10_000).is_ok()), "{holder:?}");
            assert_eq!(shares.open(holder).grow_to(10_000), Err(OverShare));
        }
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"), "a network of 64 bits is one client's");
        assert!(shares.is_unused());
    }

    #[test]
    fn one_value_fits_however_small_the_memory() {
        let shares = ClientShares::new(10_000, 100_000);
        let mut share = Box::new(shares.open(of("10.0.0.1")));
        assert_eq!(share.grow_to(100_000), Ok(()));
        let bytes = share.kept_by(Bytes::from_static(b"value"));
        let part = bytes.slice(1..3);
        drop(bytes);
        assert!(!shares.is_unused());
        assert_eq!(&part[..], b"al");
        drop(part);
        assert!(shares.is_unused());
    }
}
