//! What a scan is asked for.

use bytes::Bytes;
use kvorum_core::quorum::Quorum;
use kvorum_core::scan::page::ScanValues;
use kvorum_replication::cluster_scan::OnMissing;

/// What a client wants scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanRequest {
    /// The first key; empty for the first of all.
    pub(crate) start: Bytes,
    /// The first key that is left out.
    pub(crate) end: Option<Bytes>,
    pub(crate) quorum: Quorum,
    /// Most records.
    pub(crate) limit: Option<u32>,
    pub(crate) values: ScanValues,
    pub(crate) on_missing: OnMissing,
    /// The token to go on from, as it was sent.
    pub(crate) after: Option<Bytes>,
}

/// The first key behind all that begin with `prefix`; none if there is no such key.
pub(crate) fn behind(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end.into())
}
