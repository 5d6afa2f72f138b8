//! Work beside the data: queries, and scripts. The coordinator scans the cluster; the node that provides a record does
//! the work on it, and sends what that gives in place of the value. What was derived of records that the scan gives, and
//! of no others, is put together here. So a query and a script are as right as the scan that carries them.

mod query;
mod script;
mod serve;

use bytes::{BufMut, Bytes, BytesMut};
use kvorum_core::scan::page::DERIVED_BYTES_MAX;

/// The longest query, and the longest script.
pub(crate) const SOURCE_BYTES_MAX: usize = 64 * 1024;

const QUERY: u8 = 1;
const SCRIPT: u8 = 2;
const ROW: u8 = 0;
const FAILED: u8 = 1;

/// What is to be done with each record, as the nodes of a scan are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanWork {
    /// A query.
    Query {
        /// From when ages count, the same for all records: the coordinator's clock, in milliseconds since 1970.
        now_ms: u64,
        /// As the client has sent it.
        body: Bytes,
    },
    /// A script.
    Script {
        /// As the client has sent it.
        source: Bytes,
    },
}

/// What came as work is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no work that this node knows")]
pub struct NoWork;

impl ScanWork {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Query { now_ms, body } => {
                out.put_u8(QUERY);
                out.put_u64(*now_ms);
                out.put_slice(body);
            }
            Self::Script { source } => {
                out.put_u8(SCRIPT);
                out.put_slice(source);
            }
        }
        out.freeze()
    }

    /// The work in bytes.
    ///
    /// # Errors
    /// [`NoWork`]
    pub fn decode(bytes: &[u8]) -> Result<Self, NoWork> {
        match bytes {
            [QUERY, rest @ ..] => {
                let (now_ms, body) = rest.split_first_chunk().ok_or(NoWork)?;
                Ok(Self::Query { now_ms: u64::from_be_bytes(*now_ms), body: Bytes::copy_from_slice(body) })
            }
            [SCRIPT, source @ ..] => Ok(Self::Script { source: Bytes::copy_from_slice(source) }),
            _ => Err(NoWork),
        }
    }
}

/// What work gives of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkResult {
    /// What the work's user puts together.
    Row(Bytes),
    /// It has failed, of which the client reads this.
    Failed(String),
}

impl WorkResult {
    /// The bytes. A row that is too long is a failure, and a long text is cut.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let (tag, content) = match self {
            Self::Row(row) if row.len() < DERIVED_BYTES_MAX => (ROW, &row[..]),
            Self::Row(_) => (FAILED, &b"what was derived of one record is over 64 KiB"[..]),
            Self::Failed(text) => (FAILED, text.as_bytes()),
        };
        let content = content.get(..content.len().min(DERIVED_BYTES_MAX - 1)).unwrap_or_default();
        let mut out = BytesMut::with_capacity(1 + content.len());
        out.put_u8(tag);
        out.put_slice(content);
        out.freeze()
    }

    /// The inverse.
    ///
    /// # Errors
    /// [`NoWork`]
    pub(crate) fn decode(mut bytes: Bytes) -> Result<Self, NoWork> {
        match bytes.first().copied() {
            Some(ROW) => Ok(Self::Row(bytes.split_off(1))),
            Some(FAILED) => Ok(Self::Failed(String::from_utf8_lossy(&bytes.split_off(1)).into_owned())),
            _ => Err(NoWork),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kvorum_core::scan::page::{DERIVED_BYTES_MAX, WORK_BYTES_MAX};

    use super::{NoWork, SOURCE_BYTES_MAX, ScanWork, WorkResult};

    #[test]
    fn work_and_its_results_survive_their_bytes() {
        let body = Bytes::from(vec![b'x'; SOURCE_BYTES_MAX]);
        for work in [ScanWork::Query { now_ms: 7, body: body.clone() }, ScanWork::Script { source: body }] {
            let bytes = work.encode();
            assert!(bytes.len() <= WORK_BYTES_MAX);
            assert_eq!(ScanWork::decode(&bytes), Ok(work));
        }
        for none in [&b""[..], b"\x01short", b"\x03"] {
            assert_eq!(ScanWork::decode(none), Err(NoWork));
        }
        for result in [WorkResult::Row("r".into()), WorkResult::Failed("why".into())] {
            assert_eq!(WorkResult::decode(result.encode()), Ok(result));
        }
        assert_eq!(WorkResult::decode(Bytes::new()), Err(NoWork));
    }

    #[test]
    fn a_row_that_is_too_long_is_a_failure() {
        let encoded = WorkResult::Row(vec![0; DERIVED_BYTES_MAX].into()).encode();
        assert!(encoded.len() <= DERIVED_BYTES_MAX);
        assert!(matches!(WorkResult::decode(encoded), Ok(WorkResult::Failed(text)) if text.contains("64 KiB")));
        let long = WorkResult::Failed("x".repeat(2 * DERIVED_BYTES_MAX)).encode();
        assert_eq!(long.len(), DERIVED_BYTES_MAX);
    }
}
