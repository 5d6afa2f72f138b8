//! What a store has yet to do, as reported.

use serde::{Deserialize, Serialize};

/// What a store has yet to do at a moment. What is not known is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debt {
    /// Bytes that compaction has yet to rewrite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction_pending_bytes: Option<u64>,
    /// Files not yet merged into the levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level0_files: Option<u64>,
    /// Full memtables that are in no file yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memtables_waiting: Option<u64>,
}

/// A node's debt over a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DebtRow {
    /// The debt at the end.
    pub last: Debt,
    /// The most of each during the run.
    pub most: Debt,
    /// Seconds for which the engine held writes back.
    pub stall_seconds: Option<f64>,
    /// Bytes that flushes and compactions wrote, for each byte that the engine was given.
    pub write_amplification: Option<f64>,
    /// Whether it stayed bounded; none if the run was too short, or the node did not show it all the time.
    pub bounded: Option<bool>,
    /// What grew, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grew: Vec<String>,
}

/// One way in which debt shows.
pub(super) struct Face {
    pub(super) name: &'static str,
    pub(super) of: fn(&Debt) -> Option<u64>,
    /// As much is usual between two compactions: bounded, whatever it does below that.
    pub(super) usual: u64,
}

/// What kvorum's store has at its default memory before its compactions rest no more (eight files beyond the eight that
/// begin one, or as many bytes as these stand for), and memtables of which eight are flushed together while the next
/// eight fill.
pub(super) const FACES: [Face; 3] = [
    Face { name: "bytes pending", of: |debt| debt.compaction_pending_bytes, usual: 4 << 30 },
    Face { name: "files in level 0", of: |debt| debt.level0_files, usual: 16 },
    Face { name: "memtables waiting", of: |debt| debt.memtables_waiting, usual: 24 },
];

impl Debt {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Whether there is no more than is usual between two compactions, of what is known.
    pub(super) fn is_usual(&self) -> bool {
        FACES.iter().all(|face| (face.of)(self).is_none_or(|value| value <= face.usual))
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self {
            compaction_pending_bytes: self.compaction_pending_bytes.max(other.compaction_pending_bytes),
            level0_files: self.level0_files.max(other.level0_files),
            memtables_waiting: self.memtables_waiting.max(other.memtables_waiting),
        }
    }
}
