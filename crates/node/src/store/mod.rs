//! Pages of a scan.

use bytes::Bytes;

/// How much a page may hold.
#[derive(Clone, Copy, Debug)]
pub struct PageLimit {
    /// Records at most.
    pub records: usize,
    /// Bytes at most, but always one record.
    pub bytes: usize,
}

/// Records in key order, undecoded.
#[derive(Clone, Debug)]
pub struct Page {
    /// Key and raw record.
    pub records: Vec<(Bytes, Bytes)>,
    /// Whether the range goes on after the last of them.
    pub more: bool,
}
