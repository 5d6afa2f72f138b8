//! How the store and the node share their memory.

const MIB: usize = 1 << 20;

/// How `memory_bytes` is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// RocksDB's cache: blocks, indexes, filters and the write buffers, which are charged to it.
    pub cache: usize,
    /// The part of `cache` that write buffers may take.
    pub write_buffers: usize,
    /// One memtable: four of them fill `write_buffers`, so that one can be flushed while others fill.
    pub memtable: usize,
    /// Whole records in front of the engine.
    pub records: usize,
    /// What is left for the node's own buffers: connections, queues, marks, recent versions.
    pub node_buffers: usize,
}

impl MemoryBudget {
    /// The least `memory_bytes`.
    pub const BYTES_MIN: usize = 64 * MIB;

    /// A quarter for the node, an eighth for records, a quarter for write buffers, the rest for blocks; nothing if
    /// `memory_bytes` is below [`MemoryBudget::BYTES_MIN`].
    #[must_use]
    pub fn new(memory_bytes: usize) -> Option<Self> {
        (memory_bytes >= Self::BYTES_MIN).then(|| {
            let quarter = memory_bytes / 4;
            let records = quarter / 2;
            Self {
                cache: memory_bytes - quarter - records,
                write_buffers: quarter,
                memtable: quarter / 4,
                records,
                node_buffers: quarter,
            }
        })
    }

    /// That of the node at `position` in the cluster's list: every second and third of three has smaller memtables, so
    /// that replicas, which are given the same writes, do not all flush at the same moment (decision 0036).
    #[must_use]
    pub fn at(self, position: usize) -> Self {
        Self { memtable: self.memtable - self.memtable / 6 * (position % 3), ..self }
    }
}
