//! Frames between peers: messages as bytes on a connection.
//!
//! ```text
//! length u32 | id u64 | opcode u8 | flags u8 | hlc u64 | checksum u32 | payload of `length` bytes
//! ```
//!
//! Big-endian. `checksum` is the low half of XXH3-64 over the payload and the header before it, so a
//! flipped bit on the way breaks the connection instead of becoming a message.
//!
//! A payload over [`CHUNK_BYTES`] travels as chunks: frames of the same id, opcode, flags and hlc, all
//! full and flagged `MORE` but the last, so that frames of small messages can go in between. Within one
//! direction of a connection an id therefore belongs to one message at a time, and at most
//! [`INTERLEAVED_MAX`] messages are unfinished.
//!
//! Every length is checked against its limit before anything is kept for it. What arrives whole is
//! shared with the buffer it was read into, never copied: a key or record that outlives its request
//! should be copied, or it keeps that buffer alive. Record bytes are *not* checked here: they carry
//! a digest of their own ([`crate::record`]).

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::backpressure::Backpressure;
use crate::key::{KEY_BYTES_MAX, Key};
use crate::quorum::{Current, Failure, Held, ReadAnswer, StoreAnswer, Wanted};
use crate::record::RECORD_OVERHEAD_MAX;
use crate::version::{Hlc, Version};

/// Longest payload of one frame; a longer one travels in several.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// Most large messages under way at once in one direction of a connection: a sender begins the next when one
/// is done, and a receiver has room for so many of the longest.
pub const INTERLEAVED_MAX: usize = 4;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = UNSUMMED + 4;
/// Bytes that a message adds to the value it carries at most: the key, and the record around the value.
pub const PAYLOAD_OVERHEAD_MAX: usize = 2 + KEY_BYTES_MAX + RECORD_OVERHEAD_MAX;
/// Bytes before the checksum.
const UNSUMMED: usize = 4 + 8 + 1 + 1 + 8;

const STORE: u8 = 1;
const READ: u8 = 2;
const STORE_ANSWER: u8 = 3;
const READ_ANSWER: u8 = 4;
const PING: u8 = 5;
const PONG: u8 = 6;
const REPAIR_REQUEST: u8 = 7;
const REPAIR_ANSWER: u8 = 8;
const PROOF: u8 = 9;

/// Longest payload of a [`Message::Proof`].
pub const PROOF_BYTES_MAX: usize = 64;

/// More chunks of this message follow. Only of what may be large: [`STORE`] and [`READ_ANSWER`].
const MORE: u8 = 1;
/// On [`STORE`].
const REPAIR: u8 = 1 << 1;
/// On [`READ`].
const VERSION_ONLY: u8 = 1 << 2;
/// On [`READ`]; goes with [`VERSION_ONLY`].
const AT_CLOCK: u8 = 1 << 1;
/// On [`STORE`] and [`READ`].
const NON_VOTING: u8 = 1 << 3;
/// On [`PONG`].
const REMEMBERS_YOU: u8 = 1 << 1;
const REBUILT: u8 = 1 << 4;
/// On [`PONG`]: three bits, and their place.
const BACKPRESSURE: u8 = 0b111 << BACKPRESSURE_SHIFT;
const BACKPRESSURE_SHIFT: u32 = 5;

/// The first byte of a [`STORE_ANSWER`].
mod stored {
    pub(super) const ACCEPTED: u8 = 0;
    pub(super) const STALE: u8 = 1;
    pub(super) const STALE_UNKNOWN: u8 = 2;
    pub(super) const FAILED: u8 = 3;
}

/// The first byte of a [`READ_ANSWER`].
mod found {
    pub(super) const RECORD: u8 = 0;
    pub(super) const VERSION: u8 = 1;
    pub(super) const ABSENT: u8 = 2;
    pub(super) const FAILED: u8 = 3;
}

/// The first byte of a [`Current`].
mod current {
    pub(super) const RECORD: u8 = 0;
    pub(super) const GC_WATERMARK: u8 = 1;
}

/// The messages between peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Store a record.
    Store {
        /// Of this key.
        key: Key,
        /// Its encoded bytes, unchecked.
        record: Bytes,
        /// A write-back or repair, which fences let through.
        repair: bool,
        /// The answer counts for no quorum: a node without a vote gives its own as well.
        non_voting: bool,
    },
    /// Read a record.
    Read {
        /// Of this key.
        key: Key,
        /// The version will do.
        wanted: Wanted,
        /// As in [`Message::Store`].
        non_voting: bool,
    },
    /// The answer to [`Message::Store`].
    StoreAnswer(StoreAnswer),
    /// The answer to [`Message::Read`].
    ReadAnswer(ReadAnswer<Bytes>),
    /// Are you there, and what is the time?
    Ping {
        /// The sender's wall clock, in milliseconds since 1970.
        wall_ms: u64,
    },
    /// The answer to [`Message::Ping`].
    Pong {
        /// The sender's wall clock, in milliseconds since 1970.
        wall_ms: u64,
        /// How far its store is durable, counted from above what it had ever lost.
        sequence: u64,
        /// It remembers durably, from a handshake that it dialled, the directory that the asking node said it has.
        remembers_you: bool,
        /// It votes, and has got back what it had once lost.
        rebuilt: bool,
        /// What it asks its coordinators to refuse.
        backpressure: Backpressure,
    },
    /// The driver of a round of anti-entropy asks: see [`crate::repair::wire`].
    Repair(Bytes),
    /// The answer to [`Message::Repair`].
    RepairAnswer(Bytes),
    /// The caller has the cluster's secret: the first message, where both have one.
    Proof(Bytes),
}

/// A message with what goes along with every one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Chosen for the request, repeated in the answer.
    pub id: u64,
    /// The sender's hybrid logical clock.
    pub hlc: Hlc,
    /// The message.
    pub message: Message,
}

/// Why bytes from a peer are not frames. None can be recovered from: the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame or a message longer than its limit.
    #[error("a frame or message is over its limit")]
    TooLong,
    /// The bytes are not those that were sent.
    #[error("a frame's checksum does not match")]
    Checksum,
    /// A message unknown to this build.
    #[error("unknown opcode {0}")]
    Opcode(u8),
    /// A flag that this message does not have.
    #[error("unknown flags {0:#04x}")]
    Flags(u8),
    /// A payload that is too short, too long or out of range for its opcode.
    #[error("malformed payload")]
    Payload,
    /// A chunk that does not continue its message, or is not full.
    #[error("a chunk out of place")]
    Chunk,
    /// Too much of messages that have not arrived whole.
    #[error("too many bytes of unfinished messages")]
    Unfinished,
}

/// Everything in the header but the length and the checksum: the same for all chunks of a message,
/// apart from [`MORE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    id: u64,
    opcode: u8,
    flags: u8,
    hlc: Hlc,
}

impl Head {
    /// Writes the header over the first [`HEADER_BYTES`] of `frame`, the rest of which is its payload.
    fn seal(self, frame: &mut [u8]) {
        let (header, payload) =
            frame.split_first_chunk_mut::<HEADER_BYTES>().expect("the header's place was left free");
        assert!(payload.len() <= CHUNK_BYTES, "no frame is longer than a chunk");
        let length = u32::try_from(payload.len()).expect("a chunk's length fits");
        let mut rest = header.as_mut_slice();
        rest.put_u32(length);
        rest.put_u64(self.id);
        rest.put_u8(self.opcode);
        rest.put_u8(self.flags);
        rest.put_u64(self.hlc.raw());
        let (unsummed, sum) = header.split_at_mut(UNSUMMED);
        sum.copy_from_slice(&checksum(unsummed, payload).to_be_bytes());
    }
}

/// Chained by the seed, as in [`crate::record`].
fn checksum(unsummed: &[u8], payload: &[u8]) -> u32 {
    let hash = xxh3_64_with_seed(unsummed, xxh3_64(payload));
    u32::try_from(hash & u64::from(u32::MAX)).expect("the low half fits")
}

/// Appends a frame to `out`; if its payload is over [`CHUNK_BYTES`], appends nothing and returns
/// what will give it piece by piece.
#[must_use = "a large frame must be sent chunk by chunk"]
pub fn encode(frame: &Frame, out: &mut BytesMut) -> Option<LargeFrame> {
    let start = out.len();
    out.put_bytes(0, HEADER_BYTES);
    let (opcode, flags, body) = put_fields(&frame.message, out);
    let head = Head { id: frame.id, opcode, flags, hlc: frame.hlc };
    let fields = out.get(start + HEADER_BYTES..).expect("the header's place was left free");
    if fields.len() + body.map_or(0, Bytes::len) > CHUNK_BYTES {
        let body = body.cloned().expect("fields alone are short: a key is the longest");
        let large = LargeFrame { head, fields: Bytes::copy_from_slice(fields), body };
        out.truncate(start);
        return Some(large);
    }
    out.put_slice(body.map_or(&[], |bytes| bytes));
    head.seal(out.get_mut(start..).expect("out has only grown"));
    None
}

/// Appends all of the payload but its body, which is what may be large. Gives opcode, flags and body.
fn put_fields<'a>(message: &'a Message, out: &mut BytesMut) -> (u8, u8, Option<&'a Bytes>) {
    match message {
        Message::Store { key, record, repair, non_voting } => {
            let key = key.as_bytes();
            out.put_u16(u16::try_from(key.len()).expect("a key's length fits"));
            out.put_slice(key);
            (STORE, flag(*repair, REPAIR) | flag(*non_voting, NON_VOTING), Some(record))
        }
        Message::Read { key, wanted, non_voting } => {
            out.put_slice(key.as_bytes());
            let wanted = match wanted {
                Wanted::Record => 0,
                Wanted::Version => VERSION_ONLY,
                Wanted::VersionAtClock => VERSION_ONLY | AT_CLOCK,
            };
            (READ, wanted | flag(*non_voting, NON_VOTING), None)
        }
        Message::StoreAnswer(answer) => {
            put_store_answer(*answer, out);
            (STORE_ANSWER, 0, None)
        }
        Message::ReadAnswer(answer) => (READ_ANSWER, 0, put_read_answer(answer, out)),
        Message::Ping { wall_ms } => {
            out.put_u64(*wall_ms);
            (PING, 0, None)
        }
        Message::Pong { wall_ms, sequence, remembers_you, rebuilt, backpressure } => {
            out.put_u64(*wall_ms);
            out.put_u64(*sequence);
            let flags = flag(*remembers_you, REMEMBERS_YOU) | flag(*rebuilt, REBUILT);
            (PONG, flags | backpressure.level() << BACKPRESSURE_SHIFT, None)
        }
        Message::Repair(payload) => {
            out.put_slice(payload);
            (REPAIR_REQUEST, 0, None)
        }
        Message::RepairAnswer(payload) => {
            out.put_slice(payload);
            (REPAIR_ANSWER, 0, None)
        }
        Message::Proof(payload) => {
            out.put_slice(payload);
            (PROOF, 0, None)
        }
    }
}

fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

fn put_store_answer(answer: StoreAnswer, out: &mut BytesMut) {
    let (tag, holds) = match answer {
        StoreAnswer::Accepted => return out.put_u8(stored::ACCEPTED),
        StoreAnswer::Failed(failure) => return out.put_slice(&[stored::FAILED, failure.code()]),
        StoreAnswer::Stale(holds) => (stored::STALE, holds),
        StoreAnswer::StaleUnknown(holds) => (stored::STALE_UNKNOWN, holds),
    };
    let kind = match holds {
        Current::Record(_) => current::RECORD,
        Current::GcWatermark(_) => current::GC_WATERMARK,
    };
    out.put_slice(&[tag, kind]);
    out.put_slice(&holds.version().encode());
}

fn put_read_answer<'a>(answer: &'a ReadAnswer<Bytes>, out: &mut BytesMut) -> Option<&'a Bytes> {
    match answer {
        ReadAnswer::Held(Held::Record(record)) => {
            out.put_u8(found::RECORD);
            return Some(record);
        }
        ReadAnswer::Version { version, from } => {
            assert!(*from > 0, "a record is wanted by at least one replica");
            out.put_u8(found::VERSION);
            out.put_slice(&version.encode());
            out.put_u8(*from);
        }
        ReadAnswer::Held(Held::Absent { gc_watermark }) => {
            out.put_u8(found::ABSENT);
            out.put_slice(&gc_watermark.encode());
        }
        ReadAnswer::Failed(failure) => out.put_slice(&[found::FAILED, failure.code()]),
    }
    None
}

/// The unsent rest of a large message, sharing its bytes.
#[derive(Debug)]
pub struct LargeFrame {
    head: Head,
    fields: Bytes,
    body: Bytes,
}

impl LargeFrame {
    /// Appends the next chunk to `out`; whether more follow. To be called until none does.
    pub fn next_chunk(&mut self, out: &mut BytesMut) -> bool {
        let start = out.len();
        out.reserve(HEADER_BYTES + CHUNK_BYTES.min(self.bytes_left()));
        out.put_bytes(0, HEADER_BYTES);
        let fields = self.fields.split_to(self.fields.len().min(CHUNK_BYTES));
        let body = self.body.split_to(self.body.len().min(CHUNK_BYTES - fields.len()));
        assert!(!body.is_empty(), "no chunk comes after the last");
        out.put_slice(&fields);
        out.put_slice(&body);
        let more = self.bytes_left() > 0;
        let head = Head { flags: self.head.flags | if more { MORE } else { 0 }, ..self.head };
        head.seal(out.get_mut(start..).expect("out has only grown"));
        more
    }

    /// Payload bytes not yet sent.
    #[must_use]
    pub fn bytes_left(&self) -> usize {
        self.fields.len() + self.body.len()
    }
}

/// Reads the frames of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    payload_bytes_max: usize,
    partial_bytes_max: usize,
    /// Bytes held in `partial`.
    partial_bytes: usize,
    /// Messages of which the last chunk has not come, by id. As each has at least one full chunk,
    /// the bound on their bytes bounds their number too.
    partial: BTreeMap<u64, Partial>,
}

#[derive(Debug)]
struct Partial {
    head: Head,
    payload: BytesMut,
}

impl Decoder {
    /// Takes messages of at most `payload_bytes_max`, and holds at most `partial_bytes_max` of those
    /// that have not arrived whole (in buffers that may be twice that size). A sender that interleaves
    /// more than that loses the connection; room for [`INTERLEAVED_MAX`] of the longest is enough.
    #[must_use]
    pub fn new(payload_bytes_max: usize, partial_bytes_max: usize) -> Self {
        Self { payload_bytes_max, partial_bytes_max, partial_bytes: 0, partial: BTreeMap::new() }
    }

    /// Takes the next whole message off the front of `input`; `None` if more bytes are needed, which
    /// are never more than one frame's: [`HEADER_BYTES`] and [`CHUNK_BYTES`].
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are no frame; every later call fails as well, or is meaningless.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        while let Some((head, payload)) = self.next_frame(input)? {
            if let Some((head, payload)) = self.assemble(head, payload)? {
                let message = parse(head, payload)?;
                return Ok(Some(Frame { id: head.id, hlc: head.hlc, message }));
            }
        }
        Ok(None)
    }

    /// Takes one frame off the front of `input` if it is there whole, and checks its sum and flags.
    fn next_frame(&self, input: &mut BytesMut) -> Result<Option<(Head, Bytes)>, FrameError> {
        let Some(mut header) = input.get(..HEADER_BYTES) else { return Ok(None) };
        let length = usize::try_from(header.get_u32()).map_err(|_| FrameError::TooLong)?;
        if length > CHUNK_BYTES.min(self.payload_bytes_max) {
            return Err(FrameError::TooLong);
        }
        let Some(payload) = input.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
        let head = Head {
            id: header.get_u64(),
            opcode: header.get_u8(),
            flags: header.get_u8(),
            hlc: Hlc::from_raw(header.get_u64()),
        };
        let unsummed = input.get(..UNSUMMED).expect("the header is there");
        if checksum(unsummed, payload) != header.get_u32() {
            return Err(FrameError::Checksum);
        }
        let known = match head.opcode {
            STORE => MORE | REPAIR | NON_VOTING,
            READ => VERSION_ONLY | AT_CLOCK | NON_VOTING,
            READ_ANSWER => MORE,
            PONG => REMEMBERS_YOU | REBUILT | BACKPRESSURE,
            STORE_ANSWER | PING | REPAIR_REQUEST | REPAIR_ANSWER | PROOF => 0,
            unknown => return Err(FrameError::Opcode(unknown)),
        };
        if head.flags & !known != 0 {
            return Err(FrameError::Flags(head.flags));
        }
        let mut frame = input.split_to(HEADER_BYTES + length);
        frame.advance(HEADER_BYTES);
        Ok(Some((head, frame.freeze())))
    }

    /// Gives the message that this frame completes, if it does, with its whole payload.
    fn assemble(&mut self, head: Head, chunk: Bytes) -> Result<Option<(Head, Bytes)>, FrameError> {
        let more = head.flags & MORE != 0;
        let head = Head { flags: head.flags & !MORE, ..head };
        let known = self.partial.get(&head.id);
        if !more && known.is_none() {
            return Ok(Some((head, chunk)));
        }
        let in_place = known.is_none_or(|partial| partial.head == head);
        let right_size = if more { chunk.len() == CHUNK_BYTES } else { !chunk.is_empty() };
        if !in_place || !right_size {
            return Err(FrameError::Chunk);
        }
        if known.map_or(0, |partial| partial.payload.len()) + chunk.len() > self.payload_bytes_max {
            return Err(FrameError::TooLong);
        }
        if self.partial_bytes + chunk.len() > self.partial_bytes_max {
            return Err(FrameError::Unfinished);
        }
        if more {
            self.partial_bytes += chunk.len();
            let partial = self.partial.entry(head.id).or_insert_with(|| Partial { head, payload: BytesMut::new() });
            partial.payload.extend_from_slice(&chunk);
            return Ok(None);
        }
        let mut whole = self.partial.remove(&head.id).expect("this chunk continues it").payload;
        self.partial_bytes -= whole.len();
        whole.extend_from_slice(&chunk);
        Ok(Some((head, whole.freeze())))
    }

    /// Bytes held of messages that have not arrived whole.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.partial_bytes
    }
}

fn parse(head: Head, mut payload: Bytes) -> Result<Message, FrameError> {
    match head.opcode {
        STORE => {
            let key_length = usize::from(payload.try_get_u16().map_err(|_| FrameError::Payload)?);
            if key_length > payload.len() {
                return Err(FrameError::Payload);
            }
            let key = parse_key(payload.split_to(key_length))?;
            let is_set = |flag| head.flags & flag != 0;
            Ok(Message::Store { key, record: payload, repair: is_set(REPAIR), non_voting: is_set(NON_VOTING) })
        }
        READ => {
            let is_set = |flag| head.flags & flag != 0;
            let wanted = match (is_set(VERSION_ONLY), is_set(AT_CLOCK)) {
                (false, false) => Wanted::Record,
                (true, false) => Wanted::Version,
                (true, true) => Wanted::VersionAtClock,
                (false, true) => return Err(FrameError::Flags(head.flags)),
            };
            Ok(Message::Read { key: parse_key(payload)?, wanted, non_voting: is_set(NON_VOTING) })
        }
        STORE_ANSWER => parse_store_answer(&payload).map(Message::StoreAnswer),
        READ_ANSWER => parse_read_answer(payload).map(Message::ReadAnswer),
        PING => parse_u64(&payload).map(|wall_ms| Message::Ping { wall_ms }),
        PONG => {
            let (wall_ms, sequence) = payload.split_at_checked(8).ok_or(FrameError::Payload)?;
            let (wall_ms, sequence) = (parse_u64(wall_ms)?, parse_u64(sequence)?);
            let backpressure = Backpressure::from_level(head.flags >> BACKPRESSURE_SHIFT);
            let is_set = |flag| head.flags & flag != 0;
            let (remembers_you, rebuilt) = (is_set(REMEMBERS_YOU), is_set(REBUILT));
            Ok(Message::Pong { wall_ms, sequence, remembers_you, rebuilt, backpressure })
        }
        REPAIR_REQUEST => Ok(Message::Repair(payload)),
        REPAIR_ANSWER => Ok(Message::RepairAnswer(payload)),
        PROOF if payload.len() <= PROOF_BYTES_MAX => Ok(Message::Proof(payload)),
        PROOF => Err(FrameError::Payload),
        unknown => Err(FrameError::Opcode(unknown)),
    }
}

fn parse_key(bytes: Bytes) -> Result<Key, FrameError> {
    Key::new(bytes).map_err(|_| FrameError::Payload)
}

fn parse_u64(payload: &[u8]) -> Result<u64, FrameError> {
    payload.try_into().map(u64::from_be_bytes).map_err(|_| FrameError::Payload)
}

fn parse_version(bytes: &[u8]) -> Result<Version, FrameError> {
    bytes.try_into().map(Version::decode).map_err(|_| FrameError::Payload)
}

fn parse_store_answer(payload: &[u8]) -> Result<StoreAnswer, FrameError> {
    match *payload {
        [stored::ACCEPTED] => Ok(StoreAnswer::Accepted),
        [stored::STALE, ref holds @ ..] => parse_current(holds).map(StoreAnswer::Stale),
        [stored::STALE_UNKNOWN, ref holds @ ..] => parse_current(holds).map(StoreAnswer::StaleUnknown),
        [stored::FAILED, code] => Failure::from_code(code).map(StoreAnswer::Failed).ok_or(FrameError::Payload),
        _ => Err(FrameError::Payload),
    }
}

fn parse_current(bytes: &[u8]) -> Result<Current, FrameError> {
    match *bytes {
        [current::RECORD, ref version @ ..] => parse_version(version).map(Current::Record),
        [current::GC_WATERMARK, ref version @ ..] => parse_version(version).map(Current::GcWatermark),
        _ => Err(FrameError::Payload),
    }
}

fn parse_read_answer(mut payload: Bytes) -> Result<ReadAnswer<Bytes>, FrameError> {
    match *payload {
        [found::RECORD, ..] => {
            payload.advance(1);
            Ok(ReadAnswer::Held(Held::Record(payload)))
        }
        [found::VERSION, ref version @ .., from] if from > 0 => {
            parse_version(version).map(|version| ReadAnswer::Version { version, from })
        }
        [found::ABSENT, ref gc_watermark @ ..] => {
            parse_version(gc_watermark).map(|gc_watermark| ReadAnswer::Held(Held::Absent { gc_watermark }))
        }
        [found::FAILED, code] => Failure::from_code(code).map(ReadAnswer::Failed).ok_or(FrameError::Payload),
        _ => Err(FrameError::Payload),
    }
}
