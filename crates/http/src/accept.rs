//! Takes connections, as long as there are seats.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_auth::failures::network;
use tokio::net::TcpStream;

use crate::api::Entities;
use crate::connection;
use crate::error::Shed;
use crate::io;
use crate::metrics::count;
use crate::seats::AddressSeat;
use crate::shard::HttpShard;
use crate::watch::{ConnectionWatch, SeatKind};

/// Connections over the limit that are answered at a time; more than these are just closed.
const REFUSALS_MAX: usize = 64;

/// Connections over the limit that may still be those of peers. The others are told so once their first request is
/// here.
const PEER_SEATS: usize = 64;

/// Those of one address, this machine's own programs excepted.
pub(super) const PEER_SEATS_OF_ADDRESS: usize = PEER_SEATS / 4;

/// A connection that was taken.
pub struct IncomingStream {
    /// The connection.
    pub stream: TcpStream,
    /// Of the client.
    pub address: IpAddr,
    /// Its seat among those of its address; none if that has as many connections as it may have.
    pub seat: Option<AddressSeat>,
}

/// Serves a connection in a task of the current `LocalSet`, which ends with the connection; over the limit of
/// connections the client is told so and the connection closed. Cancel safe: returns at once.
pub fn serve_connection<E: Entities>(incoming: IncomingStream, shard: Rc<HttpShard<E>>) {
    let IncomingStream { stream, address, seat } = incoming;
    // Answers are small and written whole; a failure shows at the first read.
    let _ = stream.set_nodelay(true);
    count(&shard.parts.metrics.connections_total);
    let (peers, of_address) = shard.peer_seats(address);
    let is_full = shard.connections.borrow().len() - peers >= shard.settings.connections_max;
    let kind = match (is_full, &seat) {
        (true, _) => SeatKind::PeersOnly(Shed::Connections),
        // A peer may share its address with clients.
        (false, None) => SeatKind::PeersOnly(Shed::Address),
        (false, Some(_)) => SeatKind::Any,
    };
    let refusal = match kind {
        _ if shard.draining.get() => Some(Shed::Draining),
        SeatKind::PeersOnly(reason) if peers >= PEER_SEATS || of_address >= PEER_SEATS_OF_ADDRESS => Some(reason),
        SeatKind::PeersOnly(_) | SeatKind::Any => None,
    };
    match refusal {
        None => {
            let watch = Rc::new(ConnectionWatch::new(shard.now(), address, kind));
            let slot = shard.slot(&watch);
            tokio::task::spawn_local(async move {
                connection::run(stream, watch, Rc::clone(&slot.shard)).await;
                drop(seat);
            });
        }
        Some(reason) => shard.refuse(stream, address, reason),
    }
}

impl<E: Entities> HttpShard<E> {
    /// Connections in seats of peers, and those of one address. This machine's own programs do not count as one.
    fn peer_seats(&self, address: IpAddr) -> (usize, usize) {
        let seats = self.peer_seats.borrow();
        let address = network(address);
        let of_address = seats.iter().filter(|seat| **seat == address && !address.is_loopback()).count();
        (seats.len(), of_address)
    }

    fn slot(self: &Rc<Self>, watch: &Rc<ConnectionWatch>) -> ConnectionSlot<E> {
        let number = self.connections.borrow_mut().insert(Rc::clone(watch));
        if watch.kind() != SeatKind::Any {
            self.peer_seats.borrow_mut().push(network(watch.address()));
        }
        count(&self.parts.metrics.connections);
        ConnectionSlot { shard: Rc::clone(self), number }
    }

    /// Answers 503 on a connection that there is no slot for.
    fn refuse(self: Rc<Self>, stream: TcpStream, address: IpAddr, reason: Shed) {
        let error = self.shed(reason);
        if self.refusals.get() >= REFUSALS_MAX {
            return;
        }
        self.refusals.set(self.refusals.get() + 1);
        tokio::task::spawn_local(async move {
            let watch = Rc::new(ConnectionWatch::new(self.now(), address, SeatKind::Any));
            let wire = io::Socket::new(stream, Rc::clone(&watch), self.shared());
            let goodbye = connection::farewell(&wire, &watch, &self, Some(error));
            // What has no slot is not swept.
            let _ = tokio::time::timeout(Duration::from_secs(1), goodbye).await;
            self.refusals.set(self.refusals.get() - 1);
        });
    }
}

/// A place among the shard's connections, given up when the connection's task ends.
struct ConnectionSlot<E> {
    shard: Rc<HttpShard<E>>,
    number: usize,
}

impl<E> Drop for ConnectionSlot<E> {
    fn drop(&mut self) {
        let watch = self.shard.connections.borrow_mut().remove(self.number);
        if watch.kind() != SeatKind::Any {
            let (mut seats, address) = (self.shard.peer_seats.borrow_mut(), network(watch.address()));
            if let Some(place) = seats.iter().position(|seat| *seat == address) {
                seats.swap_remove(place);
            }
        }
        self.shard.parts.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        self.shard.gone.notify_waiters();
    }
}
