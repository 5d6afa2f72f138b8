//! What is stored for a key, as bytes.
//!
//! ```text
//! format u8 | flags u8 | from u8 | version 12 B | [expires_ms u64] | [length u8 + content type] | digest u64 | payload
//! ```
//!
//! Big-endian. `digest` is XXH3-64 over payload, header and key: it is computed where the record
//! enters the cluster and checked wherever the record is used, so that a flipped bit in memory, on the
//! wire or on disk becomes an error and never an answer.

use bytes::{BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::key::Key;
use crate::version::Version;

/// The format that this build writes.
const FORMAT: u8 = 1;
const TOMBSTONE: u8 = 1;
const EXPIRES: u8 = 1 << 1;
const CONTENT_TYPE: u8 = 1 << 2;
/// Bytes before the optional fields.
const FIXED: usize = 3 + Version::BYTES;
const DIGEST: usize = 8;
/// Bytes that a record adds to its payload at most.
pub const RECORD_OVERHEAD_MAX: usize = FIXED + 8 + 1 + CONTENT_TYPE_BYTES_MAX + DIGEST;
/// Longest content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;

/// Why bytes are not a record of this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Ends before its fields do.
    #[error("the record is truncated")]
    Truncated,
    /// Written by a newer build.
    #[error("the record has the unknown format {0}")]
    Format(u8),
    /// A flag unknown to this build, or a field out of range.
    #[error("the record's header is malformed")]
    Header,
    /// The bytes are not those that were written, or belong to another key.
    #[error("the record's digest does not match")]
    Digest,
}

/// A checked record: its bytes, and where their parts are. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    bytes: Bytes,
    version: Version,
    expires_ms: Option<u64>,
    /// Where the content type begins and ends, if there is one.
    content_type: Option<(usize, usize)>,
    payload_at: usize,
}

impl Record {
    /// A value, timestamped. `from` is how many replicas shall hold it.
    /// A `content_type` of more than [`CONTENT_TYPE_BYTES_MAX`] bytes is an error of the caller.
    ///
    /// # Panics
    /// If `content_type` is too long or `from` is 0, which the edge has refused.
    #[must_use]
    pub fn value(key: &Key, version: Version, from: u8, content_type: Option<&[u8]>, payload: &[u8]) -> Self {
        Self::build(key, version, from, 0, None, content_type, payload)
    }

    /// As [`Record::value`], but that the value ends at `expires_ms`, in milliseconds since 1970.
    ///
    /// # Panics
    /// As [`Record::value`].
    #[must_use]
    pub fn expiring(
        key: &Key,
        version: Version,
        from: u8,
        expires_ms: Option<u64>,
        content_type: Option<&[u8]>,
        payload: &[u8],
    ) -> Self {
        Self::build(key, version, from, 0, expires_ms, content_type, payload)
    }

    /// A deletion, timestamped.
    ///
    /// # Panics
    /// If `from` is 0, which the edge has refused.
    #[must_use]
    pub fn tombstone(key: &Key, version: Version, from: u8) -> Self {
        Self::build(key, version, from, TOMBSTONE, None, None, &[])
    }

    /// The same record of the same key with another version.
    #[must_use]
    pub fn with_version(&self, key: &Key, version: Version) -> Self {
        let flags = if self.is_tombstone() { TOMBSTONE } else { 0 };
        Self::build(key, version, self.from(), flags, self.expires_ms, self.content_type(), self.payload_slice())
    }

    fn build(
        key: &Key,
        version: Version,
        from: u8,
        kind: u8,
        expires_ms: Option<u64>,
        content_type: Option<&[u8]>,
        payload: &[u8],
    ) -> Self {
        assert!(from > 0, "a record is wanted by at least one replica");
        let mut out = BytesMut::with_capacity(FIXED + DIGEST + 9 + content_type.map_or(0, <[u8]>::len) + payload.len());
        let flags = kind
            | if expires_ms.is_some() { EXPIRES } else { 0 }
            | if content_type.is_some() { CONTENT_TYPE } else { 0 };
        out.put_slice(&[FORMAT, flags, from]);
        out.put_slice(&version.encode());
        if let Some(at) = expires_ms {
            out.put_u64(at);
        }
        let content_type_range = content_type.map(|text| {
            out.put_u8(u8::try_from(text.len()).expect("the edge refuses content types over 255 bytes"));
            let begin = out.len();
            out.put_slice(text);
            (begin, out.len())
        });
        out.put_u64(digest(key, &out, payload));
        let payload_at = out.len();
        out.put_slice(payload);
        Self { bytes: out.freeze(), version, expires_ms, content_type: content_type_range, payload_at }
    }

    /// Checks `bytes` as the record of `key` and takes them without copying.
    ///
    /// # Errors
    /// [`RecordError`] if a single bit of them or of the key differs from what was written.
    pub fn decode(key: &Key, bytes: Bytes) -> Result<Self, RecordError> {
        let parts = RecordHeader::parse(&bytes)?;
        let head = bytes.get(..parts.digest_at).ok_or(RecordError::Truncated)?;
        let payload_at = parts.digest_at + DIGEST;
        let payload = bytes.get(payload_at..).ok_or(RecordError::Truncated)?;
        if parts.flags & TOMBSTONE != 0 && !payload.is_empty() {
            return Err(RecordError::Header);
        }
        if digest(key, head, payload) != parts.digest {
            return Err(RecordError::Digest);
        }
        Ok(Self {
            version: parts.version,
            expires_ms: parts.expires_ms,
            content_type: parts.content_type,
            payload_at,
            bytes,
        })
    }

    /// The version that the bytes claim, without checking the digest: for a record that is known
    /// to be damaged, and for compaction filters.
    #[must_use]
    pub fn claimed_version(bytes: &[u8]) -> Option<Version> {
        RecordHeader::parse(bytes).ok().map(|parts| parts.version)
    }

    /// The `from` that encoded bytes claim to be stored with, be they damaged: to find the record's other replicas.
    #[must_use]
    pub fn claimed_from(bytes: &[u8]) -> Option<u8> {
        RecordHeader::parse(bytes).ok().and_then(|_| bytes.get(2).copied())
    }

    /// When encoded bytes claim that their value ends.
    #[must_use]
    pub fn claimed_expiry(bytes: &[u8]) -> Option<u64> {
        RecordHeader::parse(bytes).ok().and_then(|parts| parts.expires_ms)
    }

    /// Whether the bytes claim to be a deletion, or to expire, without checking the digest.
    #[must_use]
    pub fn claims_an_end(bytes: &[u8]) -> bool {
        bytes.get(1).is_some_and(|flags| flags & (TOMBSTONE | EXPIRES) != 0)
    }

    /// The encoded bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same record with its bytes in another owner's keeping, which must not change them.
    #[must_use]
    pub fn kept_by(self, keep: impl FnOnce(Bytes) -> Bytes) -> Self {
        let length = self.bytes.len();
        let bytes = keep(self.bytes);
        assert_eq!(bytes.len(), length, "the bytes stay what they were");
        Self { bytes, ..self }
    }

    /// When and where it was timestamped.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// How many replicas shall hold it.
    #[must_use]
    pub fn from(&self) -> u8 {
        self.bytes.get(2).copied().expect("a checked record has its fixed fields")
    }

    /// Whether it is a deletion.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.bytes.get(1).copied().expect("a checked record has its fixed fields") & TOMBSTONE != 0
    }

    /// When its value ends, in milliseconds since 1970; none where it has no end.
    #[must_use]
    pub fn expires_ms(&self) -> Option<u64> {
        self.expires_ms
    }

    /// Whether there is no value at `now_ms`: a deletion, or expired. The clock is asked only if it can matter.
    #[must_use]
    pub fn is_deleted(&self, now_ms: impl FnOnce() -> u64) -> bool {
        self.is_tombstone() || self.expires_ms.is_some_and(|at| at <= now_ms())
    }

    /// The stored content type.
    #[must_use]
    pub fn content_type(&self) -> Option<&[u8]> {
        self.content_type.and_then(|(begin, end)| self.bytes.get(begin..end))
    }

    /// The value, sharing the record's bytes.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(self.payload_at..)
    }

    fn payload_slice(&self) -> &[u8] {
        self.bytes.get(self.payload_at..).expect("a checked record has its payload")
    }
}

/// The header's fields, before the digest is checked.
struct RecordHeader {
    flags: u8,
    version: Version,
    expires_ms: Option<u64>,
    content_type: Option<(usize, usize)>,
    digest_at: usize,
    digest: u64,
}

impl RecordHeader {
    fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let (&[format, flags, from], rest) = bytes.split_first_chunk::<3>().ok_or(RecordError::Truncated)?;
        if format != FORMAT {
            return Err(RecordError::Format(format));
        }
        if flags & !(TOMBSTONE | EXPIRES | CONTENT_TYPE) != 0 || from == 0 {
            return Err(RecordError::Header);
        }
        let (version, mut rest) = rest.split_first_chunk::<{ Version::BYTES }>().ok_or(RecordError::Truncated)?;
        let mut at = FIXED;
        let mut expires_ms = None;
        if flags & EXPIRES != 0 {
            let (field, tail) = rest.split_first_chunk::<8>().ok_or(RecordError::Truncated)?;
            expires_ms = Some(u64::from_be_bytes(*field));
            (rest, at) = (tail, at + 8);
        }
        let mut content_type = None;
        if flags & CONTENT_TYPE != 0 {
            let (&length, tail) = rest.split_first().ok_or(RecordError::Truncated)?;
            let length = usize::from(length);
            rest = tail.get(length..).ok_or(RecordError::Truncated)?;
            content_type = Some((at + 1, at + 1 + length));
            at += 1 + length;
        }
        let (field, _) = rest.split_first_chunk::<DIGEST>().ok_or(RecordError::Truncated)?;
        Ok(Self {
            flags,
            version: Version::decode(*version),
            expires_ms,
            content_type,
            digest_at: at,
            digest: u64::from_be_bytes(*field),
        })
    }
}

/// One hash chained over the three parts by its seed: the streaming form costs five times as much on
/// short records.
fn digest(key: &Key, head: &[u8], payload: &[u8]) -> u64 {
    xxh3_64_with_seed(key.as_bytes(), xxh3_64_with_seed(head, xxh3_64(payload)))
}
