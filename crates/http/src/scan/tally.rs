//! What the trailer of a scan says of its records: how many, how long, and their digest, which is over their frames
//! whatever form they are sent in.

use bytes::BufMut;
use kvorum_replication::cluster_scan::ScannedRecord;
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use super::coverage::{coverage, ranges};
use crate::api::ScanSource;
use crate::error::NodeNames;

const RECORD: u8 = 1;
const EXPIRES: u8 = 1;
const CONTENT_TYPE: u8 = 2;
const LEFT_OUT: u8 = 4;

/// Of the records so far.
#[derive(Default)]
pub(crate) struct ScanTally {
    digest: Xxh3,
    /// Records, and bytes of their keys and values.
    pub(crate) count: u64,
    pub(super) bytes: u64,
    /// A record's frame but for its value, in use again for each.
    head: Vec<u8>,
}

/// How a scan has ended.
pub(crate) struct ScanEnding {
    complete: bool,
    after: Option<String>,
    coverage: Value,
    missing: Value,
}

/// What a scan ends with.
#[derive(serde::Serialize)]
pub(crate) struct TrailerMembers<'a> {
    /// It is whole.
    pub(super) complete: bool,
    count: u64,
    bytes: u64,
    digest: String,
    /// The token to go on from; none at the end.
    pub(super) after: Option<&'a str>,
    /// Which nodes answered for which partitions.
    pub(super) coverage: &'a Value,
    /// Partitions that are not whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a Value>,
}

impl ScanEnding {
    /// The end of the range, or of what could be had of it: `after` is the token to go on from.
    pub(crate) fn of(source: &dyn ScanSource, after: Option<String>, names: NodeNames) -> Self {
        let missing = source.missing();
        Self {
            complete: after.is_none() && missing.is_empty(),
            after,
            coverage: coverage(source, names),
            missing: ranges(missing),
        }
    }
}

impl ScanTally {
    /// One more record. Its frame without its value.
    pub(crate) fn add(&mut self, found: &ScannedRecord, content_type: Option<&[u8]>, value: Option<&[u8]>) -> &[u8] {
        self.frame_head(found, content_type, value);
        let payload = value.unwrap_or_default();
        self.digest.update(&self.head);
        self.digest.update(payload);
        self.count += 1;
        self.bytes += (found.key.as_bytes().len() + payload.len()) as u64;
        &self.head
    }

    /// Of the records so far.
    pub(super) fn digest(&self) -> u128 {
        self.digest.digest128()
    }

    pub(crate) fn trailer<'a>(&self, ending: &'a ScanEnding) -> TrailerMembers<'a> {
        TrailerMembers {
            complete: ending.complete,
            count: self.count,
            bytes: self.bytes,
            digest: format!("{:032x}", self.digest()),
            after: ending.after.as_deref(),
            coverage: &ending.coverage,
            missing: Some(&ending.missing).filter(|missing| missing.as_array().is_some_and(|all| !all.is_empty())),
        }
    }

    fn frame_head(&mut self, found: &ScannedRecord, content_type: Option<&[u8]>, value: Option<&[u8]>) {
        let (key, head) = (found.key.as_bytes(), &mut self.head);
        let payload = value.map_or(0, <[u8]>::len);
        head.clear();
        head.put_u32(0);
        head.put_u8(RECORD);
        head.put_u16(u16::try_from(key.len()).expect("a key has at most 2048 bytes"));
        head.put_slice(key);
        head.put_slice(&found.version.encode());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let expires = flag(found.expires_ms.is_some(), EXPIRES);
        head.put_u8(expires | flag(content_type.is_some(), CONTENT_TYPE) | flag(value.is_none(), LEFT_OUT));
        if let Some(expires_ms) = found.expires_ms {
            head.put_u64(expires_ms);
        }
        if let Some(content_type) = content_type {
            head.put_u8(u8::try_from(content_type.len()).expect("a stored content type has at most 255 bytes"));
            head.put_slice(content_type);
        }
        let length = u32::try_from(head.len() - 4 + payload).expect("a value is shorter than 4 GiB");
        head.get_mut(..4).expect("it was put there").copy_from_slice(&length.to_be_bytes());
    }
}
