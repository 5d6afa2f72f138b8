//! What goes on in the background: repair, hints, and rounds of anti-entropy that end in dropped tombstones.
//! Played at once and atomically, one small step at a time: docs/explanation/repair.md says what the real one must
//! amount to.

use kvorum_core::Record;
use kvorum_core::quorum::replica::Origin;
use kvorum_core::version::Version;

use crate::chance::Chance;
use crate::history::World;
use crate::node::Node;

impl World {
    /// One replica gives another what it holds.
    pub fn repair(&mut self) {
        let (from, to) = (self.chance.index(self.nodes.len()), self.chance.index(self.nodes.len()));
        if let Some(record) = self.nodes[from].record.clone() {
            let answer = self.store(to, &record, Origin::Repair);
            self.note(|| format!("repair {} from {from} at {to}: {answer:?}", record.version()));
        }
    }

    /// A hint of some write is delivered, however old.
    pub fn deliver_hint(&mut self) {
        if self.timestamped.is_empty() {
            return;
        }
        let record = self.timestamped[self.chance.index(self.timestamped.len())].clone();
        let to = self.chance.index(self.nodes.len());
        let answer = self.store(to, &record, Origin::Client);
        self.note(|| format!("hint of {} at {to}: {answer:?}", record.version()));
    }

    /// One step of a round: a fence, perhaps a watermark, or a dropped tombstone.
    pub fn anti_entropy(&mut self) {
        if self.chance.below(3) == 0 {
            // Up to some write, perhaps one that is still under way: the worst choice of W.
            let timestamps = self.timestamped.len();
            let proposed =
                self.timestamped.get(self.chance.index(timestamps.max(1))).map_or(Version::ZERO, Record::version);
            raise_fence(&mut self.nodes, proposed, &mut self.chance);
            raise_watermark(&mut self.nodes);
        } else {
            let at = self.chance.index(self.nodes.len());
            self.nodes[at].drop_tombstone(self.without);
        }
        let show =
            |node: &Node| format!("{:?} fence {} gc watermark {}", node.current(), node.fence, node.gc_watermark);
        let shown: Vec<String> = self.nodes.iter().map(show).collect();
        self.note(|| format!("anti-entropy: {shown:#?}"));
    }
}

/// One replica promises to accept no straggler up to W. A new W, the `proposed`, only when all have promised
/// the last.
fn raise_fence(nodes: &mut [Node], proposed: Version, chance: &mut Chance) {
    let highest = nodes.iter().map(|node| node.fence).max().unwrap_or(Version::ZERO);
    let agreed = nodes.iter().all(|node| node.fence == highest);
    let at = chance.index(nodes.len());
    nodes[at].raise_fence(if agreed { highest.max(proposed) } else { highest });
}

/// If everything up to the fence of all is the same everywhere, that is proven from now on.
fn raise_watermark(nodes: &mut [Node]) {
    let fence = nodes.iter().map(|node| node.fence).min().unwrap_or(Version::ZERO);
    let proven = nodes.iter().map(|node| node.watermark).min().unwrap_or(Version::ZERO);
    let version = |node: &Node| node.record.as_ref().map_or(Version::ZERO, Record::version);
    let compared: Vec<&Node> = nodes.iter().filter(|node| version(node) <= fence).collect();
    let is_deleted = |record: &Record| record.is_deleted(|| proven.hlc.millis());
    let gone = |node: &Node| node.record.as_ref().is_none_or(is_deleted) && version(node) <= proven;
    let same = |one: &Node, other: &Node| version(one) == version(other) || (gone(one) && gone(other));
    if compared.iter().all(|node| same(node, compared[0])) {
        for node in nodes {
            node.watermark = node.watermark.max(fence);
        }
    }
}
