//! What passes between the node and a worker, over the worker's stdin and stdout.
//!
//! Frames: `u32 length | u8 label | body`, big-endian; `length` counts label and body. To the worker goes one task with
//! the source, its records or pairs, and an end. From it comes one `Ready` once the script is loaded, one answer for each
//! record or one list of pairs, and `Done`; or `Refused` with a message, and nothing after it.

use std::borrow::Cow;
use std::io::{self, Read};

use crate::limits::VALUE_BYTES_MAX;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipeLabel {
    /// Task: `map` each record. The body is the source, as for the next three.
    Map,
    /// Task: `combine` and `finish` the pairs.
    Finish,
    /// Task: only `combine` them.
    Combine,
    /// Task: only load the script.
    Check,
    /// A record.
    Record,
    /// Pairs: to the worker those of one record, from it those of a record or the whole result.
    Pairs,
    /// No more records or pairs.
    End,
    /// The script is loaded.
    Ready,
    /// The script's error for one record.
    Failed,
    /// The script's error for everything.
    Refused,
    /// The worker could not lock itself in.
    Unconfined,
    /// All was answered.
    Done,
}

const LABELS: [(PipeLabel, u8); 12] = [
    (PipeLabel::Map, 1),
    (PipeLabel::Finish, 2),
    (PipeLabel::Check, 3),
    (PipeLabel::Record, 4),
    (PipeLabel::Pairs, 5),
    (PipeLabel::End, 6),
    (PipeLabel::Combine, 7),
    (PipeLabel::Ready, 16),
    (PipeLabel::Failed, 17),
    (PipeLabel::Refused, 18),
    (PipeLabel::Unconfined, 19),
    (PipeLabel::Done, 20),
];

impl PipeLabel {
    fn byte(self) -> u8 {
        LABELS.iter().find(|(label, _)| *label == self).map_or(0, |(_, byte)| *byte)
    }

    fn of_byte(byte: u8) -> Option<Self> {
        LABELS.iter().find(|(_, other)| *other == byte).map(|(label, _)| *label)
    }
}

/// Of the length and the label.
pub(crate) const HEAD_BYTES: usize = 5;

/// A record and what surrounds it. More is no frame of a node.
const BODY_BYTES_MAX: usize = VALUE_BYTES_MAX + 1024 * 1024;

/// A record as a script is given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptRecord<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The value's type, where the client gave one.
    pub content_type: Option<&'a [u8]>,
    /// When it was written, in milliseconds since 1970.
    pub written_ms: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("all that is framed has a limit below 4 GiB").to_be_bytes()
}

fn head(label: PipeLabel, body_bytes: usize) -> [u8; HEAD_BYTES] {
    let [a, b, c, d] = length(body_bytes + 1);
    [a, b, c, d, label.byte()]
}

/// Bytes behind their length.
fn push_counted(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&length(bytes.len()));
    into.extend_from_slice(bytes);
}

fn split_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

impl<'a> ScriptRecord<'a> {
    /// All but the value, which follows.
    fn encode_head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(24 + self.key.len());
        head.extend_from_slice(&self.written_ms.to_be_bytes());
        head.extend_from_slice(&self.expires_ms.unwrap_or(0).to_be_bytes());
        push_counted(&mut head, self.key);
        push_counted(&mut head, self.content_type.unwrap_or(b""));
        head
    }

    pub(crate) fn decode(body: &'a [u8]) -> Option<Self> {
        let (written_ms, rest) = body.split_first_chunk::<8>()?;
        let (expires_ms, rest) = rest.split_first_chunk::<8>()?;
        let (key, rest) = split_counted(rest)?;
        let (content_type, value) = split_counted(rest)?;
        let expires_ms = Some(u64::from_be_bytes(*expires_ms)).filter(|moment| *moment > 0);
        let content_type = Some(content_type).filter(|text| !text.is_empty());
        Some(Self { key, value, content_type, written_ms: u64::from_be_bytes(*written_ms), expires_ms })
    }
}

/// Adds a pair to others: two texts in JSON, each behind its length.
pub(crate) fn push_pair(into: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    push_counted(into, key);
    push_counted(into, value);
}

/// Takes the first pair off.
pub(crate) fn split_pair<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (key, rest) = split_counted(bytes)?;
    let (value, rest) = split_counted(rest)?;
    *bytes = rest;
    Some((key, value))
}

/// Frames to a worker, in parts: what is large is not copied.
#[derive(Debug, Default)]
pub(crate) struct PipeFrames<'a> {
    parts: Vec<Cow<'a, [u8]>>,
}

/// What is shorter is copied, so that one write takes many.
const COPIED_BYTES_MAX: usize = 16 * 1024;

impl<'a> PipeFrames<'a> {
    fn push_bytes(&mut self, bytes: &'a [u8]) {
        match self.parts.last_mut() {
            Some(Cow::Owned(last)) if bytes.len() <= COPIED_BYTES_MAX => last.extend_from_slice(bytes),
            _ if bytes.len() <= COPIED_BYTES_MAX => self.parts.push(Cow::Owned(bytes.to_vec())),
            _ => self.parts.push(Cow::Borrowed(bytes)),
        }
    }

    fn push_owned(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            Some(Cow::Owned(last)) => last.extend_from_slice(bytes),
            _ => self.parts.push(Cow::Owned(bytes.to_vec())),
        }
    }

    pub(crate) fn push(&mut self, label: PipeLabel, body: &'a [u8]) {
        self.push_owned(&head(label, body.len()));
        self.push_bytes(body);
    }

    pub(crate) fn push_record(&mut self, record: &ScriptRecord<'a>) {
        let before = record.encode_head();
        self.push_owned(&head(PipeLabel::Record, before.len() + record.value.len()));
        self.push_owned(&before);
        self.push_bytes(record.value);
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &**part).filter(|part| !part.is_empty())
    }
}

/// Appends one frame.
pub(crate) fn push_frame(to: &mut Vec<u8>, label: PipeLabel, body: &[u8]) {
    to.extend_from_slice(&head(label, body.len()));
    to.extend_from_slice(body);
}

/// Reads one frame, its body into `body`.
pub(crate) fn read_frame(from: &mut impl Read, body: &mut Vec<u8>) -> io::Result<PipeLabel> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head)?;
    let [a, b, c, d, label] = head;
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).map_err(|_| malformed())?;
    let body_bytes = length.checked_sub(1).filter(|bytes| *bytes <= BODY_BYTES_MAX).ok_or_else(malformed)?;
    body.clear();
    body.resize(body_bytes, 0);
    from.read_exact(body)?;
    PipeLabel::of_byte(label).ok_or_else(malformed)
}

/// Takes the first frame off; `None` where it is not whole, or none.
pub(crate) fn split_frame<'a>(bytes: &mut &'a [u8]) -> Option<(PipeLabel, &'a [u8])> {
    let (frame, rest) = split_counted(bytes)?;
    let (label, body) = frame.split_first()?;
    let label = PipeLabel::of_byte(*label)?;
    *bytes = rest;
    Some((label, body))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_record_arrives_as_it_was_sent() {
        let large = vec![7; COPIED_BYTES_MAX + 1];
        let record = |value, content_type, expires_ms| ScriptRecord {
            key: b"a\xff",
            value,
            content_type,
            written_ms: 5,
            expires_ms,
        };
        let records = [record(&large, None, Some(9)), record(b"", Some(b"text/plain"), None)];
        let mut frames = PipeFrames::default();
        frames.push(PipeLabel::Map, b"source");
        records.iter().for_each(|record| frames.push_record(record));
        let bytes = frames.parts().collect::<Vec<_>>().concat();
        let (mut from, mut body) = (&bytes[..], Vec::new());
        assert_eq!(read_frame(&mut from, &mut body).unwrap(), PipeLabel::Map);
        assert_eq!(body, b"source");
        for record in records {
            assert_eq!(read_frame(&mut from, &mut body).unwrap(), PipeLabel::Record);
            assert_eq!(ScriptRecord::decode(&body), Some(record));
        }
        assert!(from.is_empty());
    }

    #[test]
    fn half_a_frame_is_none() {
        let mut bytes = Vec::new();
        push_frame(&mut bytes, PipeLabel::Failed, b"text");
        for end in 0..bytes.len() {
            assert_eq!(split_frame(&mut &bytes[..end]), None, "{end}");
        }
        let mut rest = &bytes[..];
        assert_eq!(split_frame(&mut rest), Some((PipeLabel::Failed, &b"text"[..])));
        assert!(rest.is_empty());
        assert!(read_frame(&mut &[0xff; 64][..], &mut Vec::new()).is_err(), "too long");
        assert!(read_frame(&mut &[0; 64][..], &mut Vec::new()).is_err(), "without a label");
    }
}
