//! Work beside the data, for scans.

use bytes::Bytes;
use kvorum_base::blocking_pool::ReadPool;
use kvorum_core::quorum::Failure;
use kvorum_core::{Key, Record};
use kvorum_replication::cluster_scan::derivation::Derivation;

/// Derives a record of itself: so the checker sees that what work gives travels as the value would.
pub(crate) struct RecordItself;

impl Derivation for RecordItself {
    fn derive(&self, _: &[u8], records: &[(Key, Record)]) -> Result<Vec<Option<Bytes>>, Failure> {
        Ok(records.iter().map(|(_, record)| Some(record.bytes().clone())).collect())
    }

    fn pool(&self, _: &[u8]) -> Option<&ReadPool> {
        None
    }
}
