//! What a driver asks of the nodes, and what they answer: payloads of frames, at most [`BYTES_MAX`] long.
//!
//! Encoded with `postcard`, because it is cold and many-shaped; what is decoded is valid as far as its types go, and
//! nothing is allocated for a length that the payload does not have.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::trees::{LEAVES, LeafSet, Leaves};
use super::{Holding, RoundId};
use crate::frame::CHUNK_BYTES;
use crate::key::{Key, PartitionId};
use crate::partitions::PartitionSet;
use crate::version::Hlc;

/// Longest payload: one frame.
pub const BYTES_MAX: usize = CHUNK_BYTES;
/// Bytes of keys and holdings after which a page of a list ends.
pub const LIST_BYTES: usize = 32 * 1024;
/// Trees in one answer: with 10 bytes for each sum they fit.
pub const TREES_PER_ANSWER: usize = BYTES_MAX / (10 * LEAVES + 8);

/// What a driver asks. All but the first are refused if the node takes part in a greater round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoundRequest {
    /// Raise the fence, durably, and begin to sum up what is held.
    Begin {
        /// The round.
        round: RoundId,
    },
    /// The roots of the next class above this one, once they are there.
    Roots {
        /// The round.
        round: RoundId,
        /// The class before.
        above: u8,
    },
    /// The leaves to be listed in any case.
    Marked {
        /// The round.
        round: RoundId,
    },
    /// The trees of these partitions: as many as one answer holds, from the front.
    Trees {
        /// The round.
        round: RoundId,
        /// Whose.
        partitions: Vec<PartitionId>,
    },
    /// What to list.
    Select {
        /// The round.
        round: RoundId,
        /// By partition.
        leaves: Vec<(PartitionId, LeafSet)>,
    },
    /// The next page of the list.
    List {
        /// The round.
        round: RoundId,
        /// Where the page before ended.
        after: Option<Cursor>,
    },
    /// The round is over. These partitions are proven converged; keep that durably.
    End {
        /// The round.
        round: RoundId,
        /// Which.
        proven: PartitionSet,
        /// If the node has no vote: the partitions in which it has everything that a majority of the others has,
        /// for every stored `from`.
        restored: PartitionSet,
    },
}

/// How far a list has come: the last key that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(pub Vec<u8>);

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoundResponse {
    /// Done as asked.
    Done,
    /// The fence is durable up to here, and the sums are being made.
    Begun {
        /// Whether the node votes.
        votes: bool,
    },
    /// Not yet.
    Summing,
    /// The roots of a class.
    Roots {
        /// Which.
        class: u8,
        /// One for each partition.
        roots: Vec<u64>,
    },
    /// There is no further class.
    NoMoreRoots,
    /// The answer to [`RoundRequest::Marked`].
    Marked(Vec<(PartitionId, LeafSet)>),
    /// The answer to [`RoundRequest::Trees`].
    Trees {
        /// How many of the partitions asked for are covered.
        covered: usize,
        /// Their trees by partition and class.
        trees: Vec<Tree>,
    },
    /// A page of the list.
    List {
        /// In the order of keys.
        entries: Vec<(Key, Holding)>,
        /// Where it ends; nothing at the end of the list.
        next: Option<Cursor>,
    },
    /// The node takes part in a greater round, or has dropped this one.
    Superseded {
        /// Up to where the greatest known to it compares.
        by: Hlc,
    },
    /// It could not be done.
    Failed,
}

/// One tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Of which partition.
    pub partition: PartitionId,
    /// Of which class.
    pub class: u8,
    sums: Vec<u64>,
}

impl Tree {
    /// A tree to be sent.
    #[must_use]
    pub fn new(partition: PartitionId, class: u8, leaves: &Leaves) -> Self {
        Self { partition, class, sums: leaves.to_vec() }
    }

    /// Its leaves, if it has the right number of them.
    #[must_use]
    pub fn leaves(&self) -> Option<Leaves> {
        self.sums.as_slice().try_into().ok()
    }
}

/// A payload that is no known message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of anti-entropy")]
pub struct MalformedPayload;

impl RoundRequest {
    /// As a frame's payload.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        encode(self)
    }

    /// The inverse.
    ///
    /// # Errors
    /// [`MalformedPayload`].
    pub fn decode(payload: &[u8]) -> Result<Self, MalformedPayload> {
        decode(payload)
    }

    /// Which round it belongs to.
    #[must_use]
    pub fn round(&self) -> RoundId {
        match self {
            Self::Begin { round }
            | Self::Roots { round, .. }
            | Self::Marked { round }
            | Self::Trees { round, .. }
            | Self::Select { round, .. }
            | Self::List { round, .. }
            | Self::End { round, .. } => *round,
        }
    }
}

impl RoundResponse {
    /// As a frame's payload.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        encode(self)
    }

    /// The inverse.
    ///
    /// # Errors
    /// [`MalformedPayload`].
    pub fn decode(payload: &[u8]) -> Result<Self, MalformedPayload> {
        decode(payload)
    }
}

fn encode(message: &impl Serialize) -> Bytes {
    let bytes = postcard::to_allocvec(message).expect("plain values can be encoded");
    assert!(bytes.len() <= BYTES_MAX, "whoever makes a message keeps it short enough");
    bytes.into()
}

fn decode<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, MalformedPayload> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        _ => Err(MalformedPayload),
    }
}
