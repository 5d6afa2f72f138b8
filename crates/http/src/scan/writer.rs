//! Records, marks and the trailer, in either form. Frames are big-endian, `u32 length | u8 type | body`, where `length`
//! counts type and body:
//!
//! ```text
//! record (1):  u16 key length | key | version 12 | u8 flags (1 expires, 2 content type, 4 value left out)
//!              | [u64 expires_ms] | [u8 length + content type] | value
//! mark (2):    token
//! trailer (3): u8 complete | u64 count | u64 bytes | digest 16 | u16 token length (0: at the end) | token
//!              | coverage as JSON
//! ```

use bytes::BufMut;
use kvorum_replication::cluster_scan::ScannedRecord;
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use crate::json_members::{etag_into, number_into, text_into};
use crate::media::RecordForm;

const RECORD: u8 = 1;
const MARK: u8 = 2;
const TRAILER: u8 = 3;
const EXPIRES: u8 = 1;
const CONTENT_TYPE: u8 = 2;
const LEFT_OUT: u8 = 4;

/// How a scan ended.
#[derive(Debug)]
pub(super) struct Trailer<'a> {
    /// It is whole.
    pub(super) complete: bool,
    /// The token to go on from; none at the end.
    pub(super) after: Option<&'a str>,
    /// Who answered for what.
    pub(super) coverage: &'a Value,
    /// Partitions that are not whole.
    pub(super) missing: &'a Value,
}

/// Writes one answer.
pub(super) struct ScanWriter {
    form: RecordForm,
    /// What is not yet taken.
    pub(super) out: Vec<u8>,
    digest: Xxh3,
    /// Records, and bytes of their keys and values.
    pub(super) count: u64,
    bytes: u64,
    /// A record's frame but for its value, in use again for each.
    head: Vec<u8>,
}

impl ScanWriter {
    pub(super) fn new(form: RecordForm) -> Self {
        Self { form, out: Vec::new(), digest: Xxh3::new(), count: 0, bytes: 0, head: Vec::new() }
    }

    /// The digest is over frames in both forms, so that both agree.
    pub(super) fn record(&mut self, found: &ScannedRecord) {
        let value = found.record.as_ref().map(kvorum_core::Record::payload);
        let content_type = found.record.as_ref().and_then(kvorum_core::Record::content_type);
        let payload = value.as_deref().unwrap_or_default();
        self.frame_head(found, content_type, value.is_none(), payload.len());
        self.digest.update(&self.head);
        self.digest.update(payload);
        self.count += 1;
        self.bytes += (found.key.as_bytes().len() + payload.len()) as u64;
        match self.form {
            RecordForm::Frames => {
                self.out.extend_from_slice(&self.head);
                self.out.extend_from_slice(payload);
            }
            RecordForm::Ndjson => self.line(found, content_type, value.as_deref()),
        }
    }

    /// The digest of the records so far.
    pub(super) fn digest(&self) -> u128 {
        self.digest.digest128()
    }

    fn frame_head(&mut self, found: &ScannedRecord, content_type: Option<&[u8]>, is_left_out: bool, payload: usize) {
        let (key, head) = (found.key.as_bytes(), &mut self.head);
        head.clear();
        head.put_u32(0);
        head.put_u8(RECORD);
        head.put_u16(u16::try_from(key.len()).expect("a key has at most 2048 bytes"));
        head.put_slice(key);
        head.put_slice(&found.version.encode());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let expires = flag(found.expires_ms.is_some(), EXPIRES);
        head.put_u8(expires | flag(content_type.is_some(), CONTENT_TYPE) | flag(is_left_out, LEFT_OUT));
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

    fn line(&mut self, found: &ScannedRecord, content_type: Option<&[u8]>, value: Option<&[u8]>) {
        let out = &mut self.out;
        out.push(b'{');
        text_into("key", found.key.as_bytes(), out);
        etag_into(found.version, out);
        if let Some(expires_ms) = found.expires_ms {
            out.extend_from_slice(b",\"expires_ms\":");
            number_into(expires_ms, out);
        }
        if let Some(content_type) = content_type {
            out.push(b',');
            text_into("content_type", content_type, out);
        }
        if let Some(value) = value {
            out.push(b',');
            text_into("value", value, out);
        }
        out.extend_from_slice(b"}\n");
    }

    pub(super) fn mark(&mut self, token: &str) {
        match self.form {
            RecordForm::Frames => self.frame(MARK, |out| out.extend_from_slice(token.as_bytes())),
            RecordForm::Ndjson => {
                self.out.extend_from_slice(b"{\"mark\":\"");
                self.out.extend_from_slice(token.as_bytes());
                self.out.extend_from_slice(b"\"}\n");
            }
        }
    }

    pub(super) fn trailer(&mut self, trailer: &Trailer<'_>) {
        let (count, bytes, digest) = (self.count, self.bytes, self.digest());
        match self.form {
            RecordForm::Frames => self.frame(TRAILER, |out| {
                let token = trailer.after.unwrap_or_default();
                out.put_u8(u8::from(trailer.complete));
                out.put_u64(count);
                out.put_u64(bytes);
                out.put_u128(digest);
                out.put_u16(u16::try_from(token.len()).expect("a token is little longer than a key"));
                out.put_slice(token.as_bytes());
                serde_json::to_writer(out, trailer.coverage).expect("it can be written as JSON");
            }),
            RecordForm::Ndjson => {
                let line = TrailerLine {
                    complete: trailer.complete,
                    count,
                    bytes,
                    digest: format!("{digest:032x}"),
                    after: trailer.after,
                    coverage: trailer.coverage,
                    missing: Some(trailer.missing)
                        .filter(|missing| missing.as_array().is_some_and(|all| !all.is_empty())),
                };
                serde_json::to_writer(&mut self.out, &line).expect("it can be written as JSON");
                self.out.push(b'\n');
            }
        }
    }

    fn frame(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        self.out.put_u32(0);
        self.out.put_u8(kind);
        body(&mut self.out);
        let length = u32::try_from(self.out.len() - start - 4).expect("it is short");
        self.out.get_mut(start..start + 4).expect("it was put there").copy_from_slice(&length.to_be_bytes());
    }
}

#[derive(serde::Serialize)]
struct TrailerLine<'a> {
    complete: bool,
    count: u64,
    bytes: u64,
    digest: String,
    after: Option<&'a str>,
    coverage: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a Value>,
}
