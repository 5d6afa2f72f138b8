//! How the store and the node share their memory.

use kvorum_core::node::NodeId;

const MIB: usize = 1 << 20;
/// Memtables are no smaller where there is more to flush.
const MEMTABLE_MIN: usize = 4 * MIB;
/// The most memtables that are flushed together.
const MERGED_MAX: usize = 8;

/// How `memory_bytes` is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// RocksDB's cache: blocks, indexes, filters and the write buffers, which are charged to it.
    pub cache: usize,
    /// The part of `cache` that write buffers may take.
    pub write_buffers: usize,
    /// What is flushed at a time, into one table: four times that fills `write_buffers`, so that one part can be
    /// flushed while others fill.
    pub table: usize,
    /// Whole records in front of the engine.
    pub records: usize,
    /// What is left for the node's own buffers: connections, queues, marks, recent versions, scans over the cluster.
    pub node_buffers: usize,
}

impl MemoryBudget {
    /// The least `memory_bytes`.
    pub const BYTES_MIN: usize = 64 * MIB;

    /// Five sixteenths for the node, an eighth for records, a quarter for write buffers, the rest for blocks; nothing if
    /// `memory_bytes` is below [`MemoryBudget::BYTES_MIN`].
    #[must_use]
    pub fn new(memory_bytes: usize) -> Option<Self> {
        (memory_bytes >= Self::BYTES_MIN).then(|| {
            let quarter = memory_bytes / 4;
            let (records, node_buffers) = (quarter / 2, quarter + quarter / 4);
            Self {
                cache: memory_bytes - node_buffers - records,
                write_buffers: quarter,
                table: quarter / 4,
                records,
                node_buffers,
            }
        })
    }

    /// That of a node: every second and third of three has smaller tables, so that replicas, which are given the same
    /// writes, do not all flush at the same moment (decision 0036).
    #[must_use]
    pub fn at(self, node: NodeId) -> Self {
        let sixths = usize::try_from(node.0 % 3).expect("below 3");
        Self { table: self.table - self.table / 6 * sixths, ..self }
    }

    /// One memtable, of those that are flushed together: the smaller, the fewer misses of the processor's caches is a
    /// write into it; but each has a log of its own, and a read looks into all (decision 0055).
    #[must_use]
    pub fn memtable(self) -> usize {
        self.table.min(self.table.div_ceil(MERGED_MAX).max(MEMTABLE_MIN))
    }

    /// How many memtables are flushed together: 1 to 8.
    #[must_use]
    pub fn merged(self) -> usize {
        self.table.div_ceil(self.memtable())
    }
}
