//! Whether this node's clock is too far from its peers' clocks.

use kvorum_base::sync::atomic::Ordering;
use kvorum_core::node::NodeId;

use super::Membership;

impl Membership {
    /// Whether the clock is too far from most peers' to accept or coordinate anything new.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Takes a measured clock offset, and fences or frees this node: fenced while more than half of the
    /// connected peers are further than `skew_max` away.
    pub fn note_clock_offset(&self, node: NodeId, offset_ms: i64) {
        self.peer(node).clock_offset_ms.store(offset_ms, Ordering::Relaxed);
        let peers: Vec<_> = self.peers().values().cloned().collect();
        let connected = || peers.iter().filter(|peer| peer.links.load(Ordering::Relaxed) > 0);
        let far = connected().filter(|peer| peer.clock_offset_ms().unsigned_abs() > self.skew_max_ms).count();
        let fenced = far * 2 > connected().count();
        if self.fenced.swap(fenced, Ordering::Relaxed) != fenced {
            if fenced {
                tracing::error!(offset_ms, "clock is too far from most peers: fenced until it is set right");
            } else {
                tracing::info!(offset_ms, "clock agrees with the peers again");
            }
        }
    }
}
