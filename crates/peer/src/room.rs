//! How much of a node its peers may take, all shards together: connections, and bytes of messages that are not whole.
//! Anything that reaches the port may call, so both are bounded before it is known what calls.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use crate::peer_state::PeerState;
use kvorum_base::sync::atomic::{AtomicUsize, Ordering};
use kvorum_base::sync::{Mutex, MutexGuard};

/// Connections that have not shown what they are: by a proof of the cluster's secret, or without one by a first frame.
pub const UNPROVEN_MAX: usize = 64;

/// Those of one address, this machine's own programs excepted: one stranger leaves room for peers. All shards of a peer
/// call at once.
pub const UNPROVEN_OF_ADDRESS_MAX: usize = UNPROVEN_MAX / 2;

/// What the peers of a node take now, and may take.
#[derive(Debug)]
pub struct PeerRoom {
    links_max: usize,
    /// Addresses of the unproven; none where a connection has none that counts.
    unproven: Mutex<Vec<Option<IpAddr>>>,
    unfinished: AtomicUsize,
    unfinished_max: usize,
}

/// Why a connection is closed for what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPeerRoom {
    /// `peer.links_max`
    #[error("the peer has as many connections as it may have")]
    Links,
    /// [`UNPROVEN_MAX`], [`UNPROVEN_OF_ADDRESS_MAX`]
    #[error("as many connections as may be have not shown what they are")]
    Unproven,
    /// The node's share of memory for that.
    #[error("as many bytes of unfinished messages as may be are held")]
    Unfinished,
}

impl PeerRoom {
    /// Each node may have `links_max` connections, and all together `unfinished_max` bytes of messages that are not
    /// whole.
    #[must_use]
    pub fn new(links_max: usize, unfinished_max: usize) -> Arc<Self> {
        Arc::new(Self { links_max, unproven: Mutex::new(Vec::new()), unfinished: AtomicUsize::new(0), unfinished_max })
    }

    /// Room for another connection that says that it is of `peer`, until it is dropped. It counts as one of that node's
    /// when it has proven that.
    ///
    /// # Errors
    /// [`NoPeerRoom::Unproven`]
    pub fn enter(self: &Arc<Self>, peer: Arc<PeerState>, address: Option<IpAddr>) -> Result<PeerSlot, NoPeerRoom> {
        let address = address.map(|address| address.to_canonical()).filter(|address| !address.is_loopback());
        let mut unproven = self.unproven();
        let of_address = unproven.iter().filter(|other| address.is_some() && **other == address).count();
        if unproven.len() >= UNPROVEN_MAX || of_address >= UNPROVEN_OF_ADDRESS_MAX {
            return Err(NoPeerRoom::Unproven);
        }
        unproven.push(address);
        Ok(PeerSlot { room: self.clone(), peer, address, is_unproven: Cell::new(true), unfinished: Cell::new(0) })
    }

    fn unproven(&self) -> MutexGuard<'_, Vec<Option<IpAddr>>> {
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of messages that are not whole.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.unfinished.load(Ordering::Relaxed)
    }
}

/// The room of one connection.
#[derive(Debug)]
pub struct PeerSlot {
    room: Arc<PeerRoom>,
    peer: Arc<PeerState>,
    address: Option<IpAddr>,
    is_unproven: Cell<bool>,
    unfinished: Cell<usize>,
}

impl PeerSlot {
    /// The node at its other end, as that says.
    #[must_use]
    pub fn peer(&self) -> &PeerState {
        &self.peer
    }

    /// Whether the connection has not shown yet what it is.
    #[must_use]
    pub fn is_unproven(&self) -> bool {
        self.is_unproven.get()
    }

    /// It has, and counts as one of its node's from now on.
    ///
    /// # Errors
    /// [`NoPeerRoom::Links`]: it is to be closed.
    pub fn prove(&self) -> Result<(), NoPeerRoom> {
        if !self.is_unproven.replace(false) {
            return Ok(());
        }
        self.leave_unproven();
        let links = self.peer.inbound.fetch_add(1, Ordering::Relaxed);
        if links >= self.room.links_max { Err(NoPeerRoom::Links) } else { Ok(()) }
    }

    fn leave_unproven(&self) {
        let mut unproven = self.room.unproven();
        if let Some(place) = unproven.iter().position(|address| *address == self.address) {
            unproven.swap_remove(place);
        }
    }

    /// The connection now holds so many bytes of messages that are not whole.
    ///
    /// # Errors
    /// [`NoPeerRoom::Unfinished`]: it is to be closed. To wait could take for ever, if all wait for each other.
    pub fn hold(&self, bytes: usize) -> Result<(), NoPeerRoom> {
        let before = self.unfinished.replace(bytes);
        if bytes == before {
            return Ok(());
        }
        if bytes < before {
            self.room.unfinished.fetch_sub(before - bytes, Ordering::Relaxed);
            return Ok(());
        }
        let all = self.room.unfinished.fetch_add(bytes - before, Ordering::Relaxed) + bytes - before;
        if all > self.room.unfinished_max { Err(NoPeerRoom::Unfinished) } else { Ok(()) }
    }
}

impl Drop for PeerSlot {
    fn drop(&mut self) {
        if self.is_unproven.get() {
            self.leave_unproven();
        } else {
            self.peer.inbound.fetch_sub(1, Ordering::Relaxed);
        }
        self.room.unfinished.fetch_sub(self.unfinished.get(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use crate::peer_state::PeerState;
    use crate::room::{NoPeerRoom, PeerRoom, PeerSlot, UNPROVEN_MAX, UNPROVEN_OF_ADDRESS_MAX};

    #[test]
    fn few_may_be_unproven_and_fewer_of_one_address() {
        let room = PeerRoom::new(100, 1000);
        let peer = Arc::new(PeerState::new("http://a:1"));
        let enter = |address: &str| room.enter(peer.clone(), Some(address.parse().unwrap()));
        let stranger: Vec<PeerSlot> = (0..UNPROVEN_OF_ADDRESS_MAX).map(|_| enter("10.0.0.1").unwrap()).collect();
        assert_eq!(enter("::ffff:10.0.0.1").unwrap_err(), NoPeerRoom::Unproven);
        assert!(enter("10.0.0.2").is_ok(), "another address has room");
        let local: Vec<PeerSlot> =
            (UNPROVEN_OF_ADDRESS_MAX..UNPROVEN_MAX).map(|_| enter("127.0.0.1").unwrap()).collect();
        assert_eq!(enter("10.0.0.2").unwrap_err(), NoPeerRoom::Unproven);
        assert_eq!(peer.inbound.load(Ordering::Relaxed), 0, "what has proven nothing is no connection of the node's");
        drop(stranger);
        assert!(enter("10.0.0.1").is_ok());
        drop(local);
        assert!(room.unproven().is_empty());
    }

    #[test]
    fn each_peer_has_its_connections() {
        let room = PeerRoom::new(3, 1000);
        let peers = ["http://a:1", "http://b:1"].map(|url| Arc::new(PeerState::new(url)));
        let enter = |node: usize| room.enter(peers[node].clone(), None).unwrap();
        let links_of_0 = || peers[0].inbound.load(Ordering::Relaxed);
        let links: Vec<PeerSlot> = (0..3).map(|_| enter(0)).collect();
        for link in links.iter().chain(&links) {
            assert_eq!(link.prove(), Ok(()), "proven once or twice");
        }
        assert_eq!(enter(0).prove(), Err(NoPeerRoom::Links));
        assert_eq!(enter(1).prove(), Ok(()));
        assert_eq!(links_of_0(), 3, "what was refused has left nothing");
        drop(links);
        assert_eq!((links_of_0(), room.unproven().len()), (0, 0));
    }

    #[test]
    fn unfinished_bytes_are_counted_for_all_connections() {
        let room = PeerRoom::new(10, 1000);
        let peer = || Arc::new(PeerState::new("http://a:1"));
        let [one, other] = [0, 1].map(|_| room.enter(peer(), None).unwrap());
        assert_eq!((one.hold(600), other.hold(400), other.hold(401)), (Ok(()), Ok(()), Err(NoPeerRoom::Unfinished)));
        assert_eq!(one.hold(100), Ok(()));
        assert_eq!(other.hold(900), Ok(()));
        drop(other);
        assert_eq!(room.unfinished(), 100);
        drop(one);
        assert_eq!(room.unfinished(), 0);
    }
}
