//! The frames of a scan, as docs/reference/http.md has them: big-endian, `u32 length | u8 type | body`, where `length`
//! counts type and body. What is longer than the longest record, or anything else, is an error before it is kept.

use std::io::{self, Read};

use serde_json::Value;

const RECORD: u8 = 1;
const MARK: u8 = 2;
const TRAILER: u8 = 3;
const EXPIRES: u8 = 1;
const CONTENT_TYPE: u8 = 2;
const LEFT_OUT: u8 = 4;
/// Of the largest value that a node can be set to take (`limits.value_bytes_max`), a key, and what else a record has.
pub(super) const FRAME_BYTES_MAX: usize = (256 << 20) + 2048 + 512;

/// What a scan is answered with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScanFrame {
    Record(RecordFrame),
    /// The token behind all records before it.
    Mark(String),
    Trailer(ScanTrailer),
}

/// A whole record's frame, with its length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordFrame(Vec<u8>);

/// What a record's frame has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordFields<'a> {
    pub(super) key: &'a [u8],
    pub(super) version: &'a [u8; 12],
    pub(super) expires_ms: Option<u64>,
    pub(super) content_type: Option<&'a [u8]>,
    /// None where it was left out.
    pub(super) value: Option<&'a [u8]>,
}

/// How an answer ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScanTrailer {
    pub(super) complete: bool,
    /// Records of this answer, and the XXH3-128 of their frames.
    pub(super) count: u64,
    pub(super) digest: u128,
    /// The token to go on with; none at the end.
    pub(super) after: Option<String>,
    /// Partitions that are missing, as ranges of numbers.
    pub(super) missing: Vec<String>,
}

/// Reads the next frame.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`]: this is no scan. Others: of `body`, or it ended before the trailer.
pub(super) fn read_frame(body: &mut impl Read) -> io::Result<ScanFrame> {
    let mut frame = vec![0; 4];
    body.read_exact(&mut frame).map_err(without_trailer)?;
    let length = frame.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    if length > FRAME_BYTES_MAX {
        return Err(no_scan(&format!("a frame of {length} bytes")));
    }
    // Memory is taken as bytes come, not as they are announced.
    let read = body.take(length as u64).read_to_end(&mut frame).map_err(without_trailer)?;
    if read < length {
        return Err(without_trailer(io::ErrorKind::UnexpectedEof.into()));
    }
    let whole = match frame.get(4..).and_then(<[u8]>::split_first) {
        Some((&RECORD, _)) => RecordFrame::new(frame).map(ScanFrame::Record),
        Some((&MARK, token)) => text(token).map(ScanFrame::Mark),
        Some((&TRAILER, body)) => trailer(body).map(ScanFrame::Trailer),
        Some((other, _)) => return Err(no_scan(&format!("a frame of type {other}"))),
        None => None,
    };
    whole.ok_or_else(|| no_scan("a frame whose fields do not fit its length"))
}

impl RecordFrame {
    fn new(frame: Vec<u8>) -> Option<Self> {
        fields(&frame).is_some().then_some(Self(frame))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn fields(&self) -> RecordFields<'_> {
        fields(&self.0).expect("it had them when it was made")
    }
}

fn fields(frame: &[u8]) -> Option<RecordFields<'_>> {
    let (key_length, rest) = frame.get(5..)?.split_first_chunk::<2>()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*key_length)))?;
    let (version, rest) = rest.split_first_chunk::<12>()?;
    let (&flags, mut rest) = rest.split_first()?;
    let mut expires_ms = None;
    if flags & EXPIRES != 0 {
        let (millis, behind) = rest.split_first_chunk::<8>()?;
        (expires_ms, rest) = (Some(u64::from_be_bytes(*millis)), behind);
    }
    let mut content_type = None;
    if flags & CONTENT_TYPE != 0 {
        let (length, behind) = rest.split_first()?;
        let (name, behind) = behind.split_at_checked(usize::from(*length))?;
        (content_type, rest) = (Some(name), behind);
    }
    let value = (flags & LEFT_OUT == 0).then_some(rest);
    let is_known = flags <= EXPIRES | CONTENT_TYPE | LEFT_OUT && (value.is_some() || rest.is_empty());
    is_known.then_some(RecordFields { key, version, expires_ms, content_type, value })
}

fn trailer(body: &[u8]) -> Option<ScanTrailer> {
    let (complete, rest) = body.split_first()?;
    let (count, rest) = rest.split_first_chunk::<8>()?;
    let (_bytes, rest) = rest.split_first_chunk::<8>()?;
    let (digest, rest) = rest.split_first_chunk::<16>()?;
    let (token_length, rest) = rest.split_first_chunk::<2>()?;
    let (token, coverage) = rest.split_at_checked(usize::from(u16::from_be_bytes(*token_length)))?;
    let coverage: Value = serde_json::from_slice(coverage).ok()?;
    let mut missing = Vec::new();
    let segments = coverage.as_array()?.iter();
    for range in segments.filter_map(|segment| segment.get("missing")?.as_array()).flatten().filter_map(Value::as_str) {
        if !missing.iter().any(|known| known == range) {
            missing.push(range.to_owned());
        }
    }
    Some(ScanTrailer {
        complete: match complete {
            0 => false,
            1 => true,
            _ => return None,
        },
        count: u64::from_be_bytes(*count),
        digest: u128::from_be_bytes(*digest),
        after: Some(text(token)?).filter(|token| !token.is_empty()),
        missing,
    })
}

fn text(token: &[u8]) -> Option<String> {
    std::str::from_utf8(token).ok().map(str::to_owned)
}

fn no_scan(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the answer is no scan: it has {what}"))
}

fn without_trailer(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the answer ended without its trailer"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::{FRAME_BYTES_MAX, RecordFields, ScanFrame, ScanTrailer, read_frame};

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 1).unwrap();
        [&length.to_be_bytes()[..], &[kind], body].concat()
    }

    fn read(bytes: &[u8]) -> Result<ScanFrame, ErrorKind> {
        read_frame(&mut &bytes[..]).map_err(|error| error.kind())
    }

    /// A record of every field.
    fn full() -> Vec<u8> {
        let head = [&[0, 1][..], b"k", &[7; 12], &[3], &9u64.to_be_bytes(), &[4], b"text"].concat();
        frame(1, &[&head[..], b"value"].concat())
    }

    fn trailer(complete: u8, token: &str) -> Vec<u8> {
        let coverage = br#"[{"missing":["0-2"]},{"start":"b"},{"missing":["0-2","9"]}]"#;
        let numbers = [&[complete][..], &5u64.to_be_bytes(), &60u64.to_be_bytes(), &7u128.to_be_bytes()].concat();
        let length = u16::try_from(token.len()).unwrap().to_be_bytes();
        frame(3, &[&numbers[..], &length, token.as_bytes(), coverage].concat())
    }

    #[test]
    fn each_frame_is_read_and_a_record_is_kept_whole() {
        let record = full();
        let Ok(ScanFrame::Record(read_record)) = read(&record) else { panic!("no record") };
        assert_eq!(read_record.bytes(), record);
        let fields = RecordFields {
            key: b"k",
            version: &[7; 12],
            expires_ms: Some(9),
            content_type: Some(b"text"),
            value: Some(b"value"),
        };
        assert_eq!(read_record.fields(), fields);
        let bare = frame(1, &[&[0, 1][..], b"k", &[7; 12], &[4]].concat());
        let Ok(ScanFrame::Record(bare)) = read(&bare) else { panic!("no record") };
        assert_eq!(bare.fields(), RecordFields { expires_ms: None, content_type: None, value: None, ..fields });
        assert_eq!(read(&frame(2, b"token")), Ok(ScanFrame::Mark("token".into())));
        let missing = vec!["0-2".to_owned(), "9".to_owned()];
        let end = ScanTrailer { complete: true, count: 5, digest: 7, after: None, missing };
        assert_eq!(read(&trailer(1, "")), Ok(ScanFrame::Trailer(end)));
        let Ok(ScanFrame::Trailer(limited)) = read(&trailer(0, "token")) else { panic!("no trailer") };
        assert_eq!((limited.complete, limited.after.as_deref()), (false, Some("token")));
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_is_a_broken_answer_and_not_a_wrong_one() {
        for whole in [full(), frame(2, b"token"), trailer(1, "")] {
            for cut in 0..whole.len() {
                assert_eq!(read(&whole[..cut]), Err(ErrorKind::UnexpectedEof), "{cut} of {}", whole.len());
            }
        }
    }

    #[test]
    fn what_is_too_long_of_no_type_or_does_not_fit_its_length_is_no_scan() {
        let long = u32::try_from(FRAME_BYTES_MAX + 1).unwrap();
        let unknown_flag = frame(1, &[&[0, 1][..], b"k", &[7; 12], &[8]].concat());
        let left_out_and_there = frame(1, &[&[0, 1][..], b"k", &[7; 12], &[4], b"value"].concat());
        let key_beyond = frame(1, &[&[0xff, 0xff][..], b"k", &[7; 12], &[0]].concat());
        for wrong in [
            long.to_be_bytes().to_vec(),
            0u32.to_be_bytes().to_vec(),
            frame(4, b""),
            frame(1, b""),
            unknown_flag,
            left_out_and_there,
            key_beyond,
            frame(2, b"\xff"),
            frame(3, b""),
            trailer(2, ""),
            b"<!DOCTYPE html>".to_vec(),
        ] {
            assert_eq!(read(&wrong), Err(ErrorKind::InvalidData), "{wrong:?}");
        }
    }
}
