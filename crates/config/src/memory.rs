//! What the node's own buffers may hold. All of it follows from `memory_bytes` where the settings do not say.
//!
//! The store takes eleven sixteenths of `memory_bytes` ([`MemoryBudget`]). The rest is shared out here, in sixteenths, and
//! each share is enforced where it is used. A share is never so small that the longest value does not fit; what that
//! adds, in a node with little memory, comes out of [`BEYOND_BYTES`].

use kvorum_core::frame::INTERLEAVED_MAX;
use kvorum_core::hints::Delivered;
use kvorum_storage::budget::MemoryBudget;

use super::identity::OVERHEAD_BYTES;
use super::model::Config;
use super::values::{ByteSize, Count};

/// What code, stacks, allocator and the buffers of connections may take beyond `memory_bytes`.
const CODE_AND_CONNECTIONS_BYTES: u64 = 48 << 20;
/// What the node may take beyond `memory_bytes`.
const BEYOND_BYTES: u64 = 128 << 20;
/// An accepted version in a set at its emptiest, with its part of one that is kept for later.
const RECENT_VERSION_BYTES: u64 = 24;
/// Small frames that wait for a peer, at least: those of many requests in one turn of a shard.
const PEER_QUEUE_BYTES_MIN: u64 = 256 << 10;
/// High-water marks of the stripes, counts of their changes, and each shard's scratch.
const FIXED_BYTES: u64 = 4 << 20;
/// The part of `memory_bytes` that hints may take which wait to be written.
const HINT_QUEUE_PART: u64 = 64;
/// Hints that one delivery has read, and their copies on the way.
const HINT_WINDOW_BYTES: u64 = 1 << 20;
/// Sums of a round of anti-entropy: those of one stored `from`, and those of four.
const REPAIR_BYTES: std::ops::RangeInclusive<u64> = 2 << 20..=8 << 20;
/// The least that a node looks at for a page of a scan, and how many pages of each node a scan holds.
const SCAN_PAGE_BYTES_MIN: u64 = 32 << 10;
const SCAN_PAGES: u64 = 2;
/// Scans that have room at once where their pages are as long as they can be.
const SCANS_AT_ONCE: u64 = 4;
/// What a query holds beside its pages.
const QUERY_BYTES: u64 = 4 << 20;
/// Bytes of one commit at most. It is written as one batch, which is a copy of its records.
const BATCH_BYTES_MAX: usize = 16 << 20;

impl Config {
    /// Gives every buffer that no setting bounds its share.
    pub(super) fn share_memory(&mut self) {
        let sixteenth = self.memory_bytes.0 / 16;
        let value = self.limits.value_bytes_max.0 + OVERHEAD_BYTES;
        let named = &self.named;
        // A node has to have room for what its peers send it of theirs, too.
        let requests = (sixteenth / (self.peers() + 1)).max(2 * value);
        self.coordinator.request_bytes_max = named.request_bytes_max.unwrap_or(ByteSize(requests));
        let scans = sixteenth.max(self.scan_bytes_min());
        self.scan.memory_bytes = named.scan_memory_bytes.unwrap_or(ByteSize(scans));
        self.commit.queue_bytes_max = named.commit_queue_bytes_max.unwrap_or(ByteSize(sixteenth.max(2 * value)));
        let per_link = (sixteenth / self.links().max(1)).max(PEER_QUEUE_BYTES_MIN);
        self.peer.queue_bytes_max = named.peer_queue_bytes_max.unwrap_or(ByteSize(per_link));
        let recent = u32::try_from(sixteenth / 2 / RECENT_VERSION_BYTES).unwrap_or(u32::MAX);
        self.commit.recent_versions_max = named.recent_versions_max.unwrap_or(Count::at_least_one(recent));
    }

    /// The most that caches and buffers hold by their limits, if the peers have the same. Large values that
    /// are on their way from a peer are charged there.
    #[must_use]
    pub fn bounded_bytes(&self) -> u64 {
        let store = MemoryBudget::new(self.memory_bytes.get()).map_or(0, |budget| budget.cache + budget.records);
        let requests = self.coordinator.request_bytes_max.0;
        let commit = self.commit.queue_bytes_max.0;
        let recent = self.commit.recent_versions_max.get() as u64 * RECENT_VERSION_BYTES;
        let peers = self.peers() * requests + self.links() * self.peer.queue_bytes_max.0;
        store as u64
            + requests
            + commit
            + self.batch_bytes_max() as u64
            + peers
            + recent
            + self.scan.memory_bytes.0
            + self.hint_bytes()
            + self.repair_bytes_max() as u64
            + FIXED_BYTES
    }

    /// What one query needs.
    pub(super) fn scan_bytes_min(&self) -> u64 {
        QUERY_BYTES + (self.peers() + 1) * SCAN_PAGES * SCAN_PAGE_BYTES_MIN
    }

    /// About how many bytes a node looks at for one page of a scan: fewer where a scan has pages of many nodes.
    #[must_use]
    pub fn scan_page_bytes(&self, most: usize) -> usize {
        let (memory, pages) = (self.scan.memory_bytes.0, (self.peers() + 1) * SCAN_PAGES);
        let of_a_query = memory.saturating_sub(QUERY_BYTES) / pages;
        ByteSize((memory / pages / SCANS_AT_ONCE).min(of_a_query).max(SCAN_PAGE_BYTES_MIN)).get().min(most)
    }

    /// Bytes of hints that wait to be written. Large values among them stay charged to the memory for those, most
    /// of which is left to requests.
    #[must_use]
    pub fn hint_queue_bytes_max(&self) -> usize {
        let bytes = (self.memory_bytes.0 / HINT_QUEUE_PART).min(self.coordinator.request_bytes_max.0 / 4);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Hints that wait, those that are being written, and what each delivery remembers.
    fn hint_bytes(&self) -> u64 {
        let delivery = Delivered::BYTES_MAX as u64 + HINT_WINDOW_BYTES;
        let waiting = self.hint_queue_bytes_max() as u64;
        if self.peers() == 0 || self.hints.bytes_max.0 == 0 { 0 } else { waiting + self.peers() * delivery }
    }

    /// Bytes of the sums that this node makes for a round of anti-entropy.
    #[must_use]
    pub fn repair_bytes_max(&self) -> usize {
        ByteSize((self.memory_bytes.0 / 32).clamp(*REPAIR_BYTES.start(), *REPAIR_BYTES.end())).get()
    }

    /// Bytes of one commit, unless it has a single record.
    #[must_use]
    pub fn batch_bytes_max(&self) -> usize {
        (self.commit.queue_bytes_max.get() / 2).min(BATCH_BYTES_MAX)
    }

    /// Bytes of messages of peers that are not whole: as much as those peers may have on their way, with the same
    /// settings, and never less than the longest messages of one connection.
    #[must_use]
    pub fn unfinished_bytes_max(&self) -> usize {
        let messages = INTERLEAVED_MAX as u64 * (self.limits.value_bytes_max.0 + OVERHEAD_BYTES);
        ByteSize((self.peers() * self.coordinator.request_bytes_max.0).max(messages)).get()
    }

    /// By how much the limits allow more than `memory_bytes` and what may come on top of it.
    #[must_use]
    pub fn excess_bytes(&self) -> Option<ByteSize> {
        let allowed = self.memory_bytes.0 + BEYOND_BYTES - CODE_AND_CONNECTIONS_BYTES;
        self.bounded_bytes().checked_sub(allowed).filter(|excess| *excess > 0).map(ByteSize)
    }

    fn peers(&self) -> u64 {
        (self.named.cluster.len() as u64).saturating_sub(1)
    }

    /// Connections with peers: each shard, and the background shard, has one to and one from each.
    fn links(&self) -> u64 {
        2 * (self.runtime.shards.get() as u64 + 1) * self.peers()
    }
}
