//! What all connections of one shard share.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::Clock;
use kvorum_core::Hlc;

use super::dial::Dial;
use super::link::Flusher;
use super::proof::ClusterSecret;
use super::room::PeerRoom;
use crate::membership::Membership;
use crate::peer_state::PeerState;

/// Limits and times of connections to peers.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// The whole of a request, both attempts: no answer is awaited longer.
    pub deadline: Duration,
    /// Longest frame payload.
    pub frame_bytes_max: usize,
    /// Chunks of unfinished large frames, per connection.
    pub partial_bytes_max: usize,
    /// What may wait to be written, per connection.
    pub queue_bytes_max: usize,
    /// For connecting and the handshake.
    pub connect_timeout: Duration,
    /// The back-off's upper end.
    pub reconnect_delay_max: Duration,
}

impl PeerSettings {
    /// The deadline in milliseconds, as in the handshake.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX)
    }
}

/// What all connections of one shard share.
pub struct PeerContext {
    /// The shard's number, for logs.
    pub shard: u16,
    /// Limits and times.
    pub settings: PeerSettings,
    /// The node's clock, which every frame brings forward.
    pub clock: Arc<Clock>,
    /// The node's identity, and what is known of its peers.
    pub membership: Arc<Membership>,
    /// Remembers peers durably.
    pub pool: ReadPool,
    /// Writes the connections.
    pub flusher: Rc<Flusher>,
    /// Makes those to peers.
    pub dial: Box<dyn Dial>,
    /// What peers have to show, if anything.
    pub secret: Option<Arc<ClusterSecret>>,
    /// How much peers may take.
    pub room: Arc<PeerRoom>,
}

impl PeerContext {
    /// Moves the clock to what a frame of `peer` has shown. No further ahead of the wall clock than that peer's is
    /// known to be, and a little: else one frame could move the clock by all that clocks may differ.
    pub fn observe(&self, peer: &PeerState, seen: Hlc) {
        self.clock.observe_peer(seen, || peer.clock_offset_ms());
    }
}
