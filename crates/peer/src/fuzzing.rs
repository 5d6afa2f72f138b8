//! What comes from peers.

use bytes::{BufMut, Bytes, BytesMut};
use hyper::header::HeaderValue;
use kvorum_core::chain;
use kvorum_core::chain::{ChainAnswer, ChainRequest};
use kvorum_core::frame::{CHUNK_BYTES, Decoder, Frame, HEADER_BYTES, Message, OpenBundle, encode};
use kvorum_core::layout::Layout;
use kvorum_core::repair::wire::{RoundRequest, RoundResponse};
use kvorum_core::scan::page::{PageQuestion, ScanPage};
use kvorum_core::{Key, Record, Version};
use kvorum_fuzzing::{byte, split};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::handshake::Hello;

/// The opcode of a bundle.
const BUNDLE: u8 = 10;
/// Of the decoder that is tried: small, so that its limits are reached.
const MESSAGE_BYTES_MAX: usize = 3 * CHUNK_BYTES;
const PARTIAL_BYTES_MAX: usize = 4 * CHUNK_BYTES;

/// One connection's bytes: frames described by the input, `opcode, flags, id, length u16` and as many bytes, with a
/// right checksum unless the opcode's highest bit is set. The greatest length stands for a full chunk. They come
/// in pieces.
pub fn frames(mut data: &[u8]) {
    let piece = usize::from(byte(&mut data)) * 40 + 1;
    let mut stream = BytesMut::new();
    while !data.is_empty() && stream.len() < 2 * MESSAGE_BYTES_MAX {
        put_frame(&mut data, &mut stream);
    }
    // A long stream in some hundred pieces, a short one byte by byte if need be.
    let piece = piece.max(stream.len() / 256);
    let all = stream.freeze();
    let (mut decoder, mut input) = (Decoder::new(MESSAGE_BYTES_MAX, PARTIAL_BYTES_MAX), BytesMut::new());
    let mut done = 0;
    for part in all.chunks(piece) {
        input.extend_from_slice(part);
        loop {
            let before = input.len();
            match decoder.decode(&mut input) {
                Ok(Some(frame)) => {
                    let end = done + before - input.len();
                    taken(&frame, all.get(done..end).unwrap_or_default());
                    done = end;
                }
                Ok(None) => {
                    done += before - input.len();
                    break;
                }
                Err(_) => return,
            }
            assert!(decoder.partial_bytes() <= PARTIAL_BYTES_MAX, "more is kept than may be");
        }
        assert!(decoder.partial_bytes() <= PARTIAL_BYTES_MAX, "more is kept than may be");
        assert!(input.len() < HEADER_BYTES + CHUNK_BYTES + piece, "a whole frame waits");
    }
}

/// A bundle of messages described by the input, `id, opcode, flags, length` and as many bytes: if all of them are taken,
/// they make the same bundle.
pub fn bundles(mut data: &[u8]) {
    let mut payload = BytesMut::new();
    while !data.is_empty() && payload.len() < CHUNK_BYTES {
        payload.put_u64(u64::from(byte(&mut data)));
        payload.put_slice(split(&mut data, 2));
        let length = byte(&mut data);
        payload.put_u32(u32::from(length));
        payload.put_slice(split(&mut data, usize::from(length)));
    }
    let mut bytes = BytesMut::new();
    let head = SealedHead { id: 0, opcode: BUNDLE, flags: 0, hlc: 7, flaw: 0 };
    head.put(&payload, &mut bytes);
    let (sent, mut bundle) = (bytes.clone(), BytesMut::new());
    let mut open = OpenBundle::begin(&mut bundle);
    let mut decoder = Decoder::new(MESSAGE_BYTES_MAX, PARTIAL_BYTES_MAX);
    loop {
        match decoder.decode(&mut bytes) {
            Ok(Some(frame)) => {
                taken(&frame, &[]);
                assert!(open.push(&frame, &mut bundle), "what came in a bundle fits into one");
            }
            Ok(None) => break,
            Err(_) => return,
        }
    }
    open.seal(&mut bundle);
    assert_eq!(bundle, sent, "the same messages in other bytes");
}

/// What comes before a payload.
struct SealedHead {
    id: u8,
    opcode: u8,
    flags: u8,
    hlc: u64,
    /// What the checksum is off by.
    flaw: u32,
}

impl SealedHead {
    fn put(&self, payload: &[u8], out: &mut BytesMut) {
        let mut header = BytesMut::new();
        header.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        header.put_u64(u64::from(self.id));
        header.put_slice(&[self.opcode, self.flags]);
        header.put_u64(u64::from(self.id % 2));
        header.put_u64(self.hlc);
        let sum = xxh3_64_with_seed(&header, xxh3_64(payload)) & u64::from(u32::MAX);
        header.put_u32(u32::try_from(sum).unwrap_or_default() ^ self.flaw);
        out.extend_from_slice(&header);
        out.extend_from_slice(payload);
    }
}

fn put_frame(data: &mut &[u8], out: &mut BytesMut) {
    let (opcode, flags, id) = (byte(data), byte(data), byte(data));
    let length = u16::from_be_bytes([byte(data), byte(data)]);
    let payload =
        if length == u16::MAX { vec![byte(data); CHUNK_BYTES] } else { split(data, usize::from(length)).to_vec() };
    let (hlc, flaw) = (u64::from(id) << 40, u32::from(opcode >> 7));
    SealedHead { id, opcode: opcode & 0x7f, flags, hlc, flaw }.put(&payload, out);
}

/// A frame that was taken is the same when it is sent on, with the same bytes if it came in one piece.
fn taken(frame: &Frame, bytes: &[u8]) {
    let mut out = BytesMut::new();
    let large = encode(frame, &mut out);
    if let Some(mut large) = large {
        while large.next_chunk(&mut out) {}
    } else if bytes.len() == out.len() {
        assert_eq!(bytes, out, "the same frame in other bytes");
    }
    let mut decoder = Decoder::new(MESSAGE_BYTES_MAX, PARTIAL_BYTES_MAX);
    assert_eq!(decoder.decode(&mut out).ok().flatten().as_ref(), Some(frame), "it reads otherwise");
    assert!(out.is_empty() && decoder.partial_bytes() == 0);
    match &frame.message {
        Message::Store { key, record, .. } => record_of(key, record),
        Message::Repair(payload) | Message::RepairAnswer(payload) => repair(payload),
        Message::Scan(payload) | Message::ScanAnswer(Ok(payload)) => scan_pages(payload),
        Message::Layout(payload) | Message::LayoutAnswer(Ok(payload)) => layouts(payload),
        _ => {}
    }
}

/// A question about layouts, or its answer.
pub fn layouts(data: &[u8]) {
    if let Some(request) = chain::decode::<ChainRequest<Layout>>(data) {
        assert_eq!(chain::decode(&chain::encode(&request)), Some(request), "it reads otherwise");
    }
    if let Some(answer) = chain::decode::<ChainAnswer<Layout>>(data) {
        assert_eq!(chain::decode(&chain::encode(&answer)), Some(answer), "it reads otherwise");
    }
}

/// `key length, key` and a record's bytes; with an odd length the digest is made right.
pub fn records(mut data: &[u8]) {
    let length = byte(&mut data);
    let Ok(key) = Key::new(Bytes::copy_from_slice(split(&mut data, usize::from(length)))) else { return };
    let mut bytes = data.to_vec();
    if length % 2 == 1 {
        sign(&key, &mut bytes);
    }
    record_of(&key, &bytes.into());
}

/// Puts the right digest where the flags have it.
fn sign(key: &Key, bytes: &mut [u8]) {
    const FIXED: usize = 3 + Version::BYTES;
    let (expires, content_type) = (1 << 1, 1 << 2);
    let flags = bytes.get(1).copied().unwrap_or_default();
    let mut at = FIXED + if flags & expires == 0 { 0 } else { 8 };
    if flags & content_type != 0 {
        at += 1 + usize::from(bytes.get(at).copied().unwrap_or_default());
    }
    let Some((head, rest)) = bytes.split_at_mut_checked(at) else { return };
    let Some((digest, payload)) = rest.split_first_chunk_mut::<8>() else { return };
    let sum = xxh3_64_with_seed(key.as_bytes(), xxh3_64_with_seed(head, xxh3_64(payload)));
    *digest = sum.to_be_bytes();
}

fn record_of(key: &Key, bytes: &Bytes) {
    let (version, from) = (Record::claimed_version(bytes), Record::claimed_from(bytes));
    let ends = Record::claims_an_end(bytes);
    let Ok(record) = Record::decode(key, bytes.clone()) else { return };
    assert_eq!((version, from), (Some(record.version()), Some(record.from())));
    assert!(ends || !record.is_deleted(|| u64::MAX), "only what claims an end has one");
    assert!(record.payload().len() <= bytes.len() && record.content_type().is_none_or(|text| text.len() <= 255));
    assert!(!record.is_tombstone() || record.payload().is_empty(), "a deletion has no value");
    assert_eq!(record.with_version(key, record.version()).bytes(), bytes, "the same record in other bytes");
}

/// A driver's question, and a node's answer.
pub fn repair(payload: &[u8]) {
    if let Ok(request) = RoundRequest::decode(payload) {
        assert_eq!(RoundRequest::decode(&request.encode()).as_ref(), Ok(&request));
        let _ = request.round().version();
    }
    if let Ok(response) = RoundResponse::decode(payload) {
        assert_eq!(RoundResponse::decode(&response.encode()).as_ref(), Ok(&response));
        if let RoundResponse::Trees { trees, .. } = &response {
            trees.iter().for_each(|tree| _ = tree.leaves());
        }
    }
}

/// A scan's question for a page, and a page.
pub fn scan_pages(payload: &[u8]) {
    if let Ok(question) = PageQuestion::decode(Bytes::copy_from_slice(payload)) {
        assert_eq!(question.encode(), payload, "the same question in other bytes");
    }
    if let Ok(page) = ScanPage::decode(Bytes::copy_from_slice(payload)) {
        assert_eq!(page.encode(), payload, "the same page in other bytes");
        assert!(page.bytes() <= payload.len());
        assert!(page.entries.is_sorted_by(|one, next| one.key < next.key), "its keys do not ascend");
        let last = page.entries.last().map(|entry| &entry.key);
        assert!(page.frontier.as_ref().is_none_or(|frontier| last <= Some(frontier)), "a key behind its frontier");
    }
}

/// A handshake's headers: a line for each, the name before the first colon.
pub fn handshakes(data: &[u8]) {
    let mut headers = Vec::new();
    for line in data.split(|byte| *byte == b'\n') {
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        // Others do not get through hyper.
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.push((name.to_vec(), value));
        }
    }
    let header = |name: &'static str| {
        headers.iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value.as_bytes())
    };
    match Hello::parse(header) {
        Ok(hello) => {
            let said = hello.headers();
            let again = Hello::parse(|name| said.get(name).map(HeaderValue::as_bytes));
            assert_eq!(again, Ok(hello), "it reads otherwise");
        }
        Err(handshake_error) => assert!(handshake_error.to_string().len() < 1_000, "a refusal is a sentence"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn frames() {
        kvorum_fuzzing::holds("frames", super::frames);
    }

    #[test]
    fn bundles() {
        kvorum_fuzzing::holds("bundles", super::bundles);
    }

    #[test]
    fn handshakes() {
        kvorum_fuzzing::holds("handshakes", super::handshakes);
    }

    #[test]
    fn records() {
        kvorum_fuzzing::holds("records", super::records);
    }

    #[test]
    fn repair() {
        kvorum_fuzzing::holds("repair", super::repair);
    }

    #[test]
    fn layouts() {
        kvorum_fuzzing::holds("layouts", super::layouts);
    }

    #[test]
    fn scan_pages() {
        kvorum_fuzzing::holds("scan_pages", super::scan_pages);
    }
}
