//! Operations and their answers, in no form yet.

use bytes::Bytes;
use kvorum_core::Version;

use crate::numbers::QuorumNumbers;

/// Most operations of one batch.
pub(super) const OPERATIONS_MAX: usize = 1000;

/// An operation as it is written, not yet compared with what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawItem {
    pub(super) key: Bytes,
    pub(super) action: ItemAction,
    pub(super) quorum: QuorumNumbers,
    /// Seconds, of a put.
    pub(super) ttl: Option<u64>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ItemAction {
    Put { value: Bytes, content_type: Option<Bytes> },
    Get,
    Delete,
}

/// What became of one operation, as it is written.
#[derive(Debug)]
pub(super) struct ItemAnswer<'a> {
    pub(super) status: u16,
    pub(super) key: &'a [u8],
    pub(super) version: Option<Version>,
    pub(super) expires_ms: Option<u64>,
    pub(super) content_type: Option<&'a [u8]>,
    pub(super) payload: Payload<'a>,
}

#[derive(Debug)]
pub(super) enum Payload<'a> {
    Nothing,
    Value(&'a [u8]),
    /// A document of RFC 9457.
    Problem(&'a [u8]),
}
