//! Work beside the data: what it derives of a record travels in place of the value.

use bytes::Bytes;
use kvorum_base::blocking_pool::ReadPool;
use kvorum_core::quorum::Failure;
use kvorum_core::{Key, Record};

/// Does the work that scans ask for.
pub trait Derivation: Send + Sync {
    /// What this work derives of each of the records, in their order; nothing of what is of no interest to it. Blocks:
    /// it is called on a pool. Of no record more than
    /// [`DERIVED_BYTES_MAX`](kvorum_core::scan::page::DERIVED_BYTES_MAX).
    ///
    /// # Errors
    /// The node cannot do it now: it is asked again, as for a page for which it has no room, and is then left out.
    fn derive(&self, work: &[u8], records: &[(Key, Record)]) -> Result<Vec<Option<Bytes>>, Failure>;

    /// The pool for work that takes long; none for what runs where scans read, and gives way to requests as they do.
    fn pool(&self, work: &[u8]) -> Option<&ReadPool>;
}

/// Does none: for nodes that no such scan reaches.
#[derive(Clone, Copy, Debug)]
pub struct NoDerivation;

impl Derivation for NoDerivation {
    fn derive(&self, _: &[u8], _: &[(Key, Record)]) -> Result<Vec<Option<Bytes>>, Failure> {
        Err(Failure::Unreachable)
    }

    fn pool(&self, _: &[u8]) -> Option<&ReadPool> {
        None
    }
}
