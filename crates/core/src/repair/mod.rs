//! Anti-entropy: where replicas differ, and what each of them needs.
//!
//! A *round* compares, for every partition, what its replicas hold up to a version W that lies well behind all
//! clocks. Its *driver*, any node, asks each node to raise its fence to W and to build [`trees::Trees`] over one
//! scan of its store; [`round::Round`] compares them and selects the leaves to be listed; [`merge::Merge`] puts the
//! lists together by key, and [`round::Round::plan`] returns which node needs which record. Partitions in which nothing
//! is left to differ are *proven* converged up to W: their gc watermark.
//!
//! Pure: the driver and its helpers, in the node, carry out what is decided here. [`wire`] has their messages.
//!
//! Why it is sound. After its fence a node takes nothing at or below W but repair and write-backs, which bring
//! what another replica has or had. What a node holds when it is scanned is replaced only by newer things, so a
//! record that all had when they were scanned, all have or have something newer for ever; and one that some
//! lacked is given to them, or something newer of theirs refuses it, before the partition counts as proven.
//!
//! Source: `docs/explanation/repair.md`. Trees of hashes: Merkle, "A Digital Signature Based on a
//! Conventional Encryption Function" (1987); their use between replicas: `DeCandia` et al., "Dynamo" (2007), 4.7.

pub mod merge;
pub mod round;
pub mod trees;
pub mod wire;

use serde::{Deserialize, Serialize};

use crate::node::NodeId;
use crate::version::{Hlc, Version};

/// Names a round: up to where it compares, and its driver. A node takes part in the greatest it has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoundId {
    /// W is the last version of this reading.
    pub until: Hlc,
    /// The driver.
    pub driver: NodeId,
}

impl RoundId {
    /// W.
    #[must_use]
    pub fn version(self) -> Version {
        Version::last_of(self.until)
    }
}

/// What one node holds for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Of which version; [`Version::ZERO`] if it is damaged.
    pub version: Version,
    /// How many replicas shall hold it.
    pub from: u8,
    /// What kind of record it is.
    pub kind: RecordKind,
}

/// What a record means to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordKind {
    /// A value without end.
    Value,
    /// A value until then, in milliseconds since 1970.
    ValueUntil(u64),
    /// A deletion.
    Deletion,
    /// A deletion, or a value that has ended, that the holder may drop at any time, because all replicas are proven to
    /// have had it.
    Droppable,
    /// Something that is damaged.
    Damaged,
}
