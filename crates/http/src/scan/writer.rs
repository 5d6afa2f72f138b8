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
use kvorum_core::Record;
use kvorum_replication::cluster_scan::ScannedRecord;

use super::tally::{ScanEnding, ScanTally};
use crate::json_members::{etag_into, number_into, text_into};
use crate::media::RecordForm;

const MARK: u8 = 2;
const TRAILER: u8 = 3;

/// Writes one answer.
pub(super) struct ScanWriter {
    form: RecordForm,
    /// What is not yet taken.
    pub(super) out: Vec<u8>,
    pub(super) tally: ScanTally,
}

impl ScanWriter {
    pub(super) fn new(form: RecordForm) -> Self {
        Self { form, out: Vec::new(), tally: ScanTally::default() }
    }

    /// The digest is over frames in both forms, so that both agree.
    pub(super) fn record(&mut self, found: &ScannedRecord) {
        let record = found.content.record();
        let (value, content_type) = (record.map(Record::payload), record.and_then(Record::content_type));
        let head = self.tally.add(found, content_type, value.as_deref());
        match self.form {
            RecordForm::Frames => {
                self.out.extend_from_slice(head);
                self.out.extend_from_slice(value.as_deref().unwrap_or_default());
            }
            RecordForm::Ndjson => self.line(found, content_type, value.as_deref()),
        }
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

    pub(super) fn trailer(&mut self, ending: &ScanEnding) {
        match self.form {
            RecordForm::Frames => {
                let trailer = self.tally.trailer(ending);
                let (count, bytes, digest) = (self.tally.count, self.tally.bytes, self.tally.digest());
                self.frame(TRAILER, |out| {
                    let token = trailer.after.unwrap_or_default();
                    out.put_u8(u8::from(trailer.complete));
                    out.put_u64(count);
                    out.put_u64(bytes);
                    out.put_u128(digest);
                    out.put_u16(u16::try_from(token.len()).expect("a token is little longer than a key"));
                    out.put_slice(token.as_bytes());
                    serde_json::to_writer(out, trailer.coverage).expect("it can be written as JSON");
                });
            }
            RecordForm::Ndjson => {
                let trailer = self.tally.trailer(ending);
                serde_json::to_writer(&mut self.out, &trailer).expect("it can be written as JSON");
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
