//! How the store and the node share their memory.

const MIB: usize = 1 << 20;

/// How `memory_bytes` is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// RocksDB's cache: blocks, indexes, filters and the write buffers, which are charged to it.
    pub cache: usize,
    /// The part of `cache` that write buffers may take.
    pub write_buffers: usize,
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
            Self { cache: memory_bytes - quarter - records, write_buffers: quarter, records, node_buffers: quarter }
        })
    }

    /// One memtable: four of them fill the budget, so that one can be flushed while others fill.
    #[cfg(feature = "rocksdb")]
    pub(super) fn memtable(self) -> usize {
        self.write_buffers / 4
    }
}
