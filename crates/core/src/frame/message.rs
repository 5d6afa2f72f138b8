//! The messages between peers, and what of a frame's payload is theirs.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::head::Head;
use crate::backpressure::Backpressure;
use crate::key::Key;
use crate::quorum::{Current, Failure, Held, ReadAnswer, StoreAnswer, Wanted};
use crate::version::{Hlc, Version};

pub(super) const STORE: u8 = 1;
pub(super) const READ: u8 = 2;
pub(super) const STORE_ANSWER: u8 = 3;
pub(super) const READ_ANSWER: u8 = 4;
const PING: u8 = 5;
const PONG: u8 = 6;
const REPAIR_REQUEST: u8 = 7;
const REPAIR_ANSWER: u8 = 8;
const PROOF: u8 = 9;
pub(super) const SCAN: u8 = 11;
pub(super) const SCAN_ANSWER: u8 = 12;
const LAYOUT: u8 = 13;
const LAYOUT_ANSWER: u8 = 14;
/// Many messages: see [`super::bundle`].
pub(super) const BUNDLE: u8 = 10;

/// Longest payload of a [`Message::Proof`].
pub const PROOF_BYTES_MAX: usize = 64;

/// More chunks of this message follow. Only of what may be large: [`STORE`], [`READ_ANSWER`],
/// [`SCAN_ANSWER`], [`LAYOUT`] and [`LAYOUT_ANSWER`].
pub(super) const MORE: u8 = 1;
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

/// The first byte of a [`SCAN_ANSWER`] and of a [`LAYOUT_ANSWER`].
const ANSWERED: u8 = 0;
const NOT_ANSWERED: u8 = 1;

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
        /// The newest layout that it knows.
        epoch: u64,
        /// What it asks its coordinators to refuse.
        backpressure: Backpressure,
    },
    /// The driver of a round of anti-entropy asks: see [`crate::repair::wire`].
    Repair(Bytes),
    /// The answer to [`Message::Repair`].
    RepairAnswer(Bytes),
    /// A scan over the cluster asks for a page: see [`crate::scan::page`].
    Scan(Bytes),
    /// The answer to [`Message::Scan`].
    ScanAnswer(Result<Bytes, Failure>),
    /// A node asks about layouts: see [`crate::chain`].
    Layout(Bytes),
    /// The answer to [`Message::Layout`].
    LayoutAnswer(Result<Bytes, Failure>),
    /// The caller has the cluster's secret: the first message, where both have one.
    Proof(Bytes),
}

/// The epoch of frames that are the same in all layouts.
pub const NO_EPOCH: u64 = 0;

/// A message with what goes along with every one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Chosen for the request, repeated in the answer.
    pub id: u64,
    /// Of a question: the layout by which it was asked. [`NO_EPOCH`] in answers, and where no layout matters.
    pub epoch: u64,
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

/// Appends all of the payload but its body, which is what may be large. Gives opcode, flags and body.
#[inline(always)]
pub(super) fn put_fields<'a>(message: &'a Message, out: &mut BytesMut) -> (u8, u8, Option<&'a Bytes>) {
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
        Message::Pong { wall_ms, sequence, remembers_you, rebuilt, epoch, backpressure } => {
            out.put_u64(*wall_ms);
            out.put_u64(*sequence);
            out.put_u64(*epoch);
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
        Message::Scan(payload) => {
            out.put_slice(payload);
            (SCAN, 0, None)
        }
        Message::ScanAnswer(answer) => (SCAN_ANSWER, 0, put_answered(answer, out)),
        Message::Layout(payload) => (LAYOUT, 0, Some(payload)),
        Message::LayoutAnswer(answer) => (LAYOUT_ANSWER, 0, put_answered(answer, out)),
        Message::Proof(payload) => {
            out.put_slice(payload);
            (PROOF, 0, None)
        }
    }
}

fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

fn put_answered<'a>(answer: &'a Result<Bytes, Failure>, out: &mut BytesMut) -> Option<&'a Bytes> {
    match answer {
        Ok(payload) => {
            out.put_u8(ANSWERED);
            Some(payload)
        }
        Err(failure) => {
            out.put_slice(&[NOT_ANSWERED, failure.code()]);
            None
        }
    }
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

/// The flags that a message of this opcode may have.
pub(super) fn known_flags(opcode: u8) -> Result<u8, FrameError> {
    match opcode {
        STORE => Ok(MORE | REPAIR | NON_VOTING),
        READ => Ok(VERSION_ONLY | AT_CLOCK | NON_VOTING),
        READ_ANSWER | SCAN_ANSWER | LAYOUT | LAYOUT_ANSWER => Ok(MORE),
        PONG => Ok(REMEMBERS_YOU | REBUILT | BACKPRESSURE),
        STORE_ANSWER | PING | REPAIR_REQUEST | REPAIR_ANSWER | PROOF | BUNDLE | SCAN => Ok(0),
        unknown => Err(FrameError::Opcode(unknown)),
    }
}

// Here and below: into the frame's own function, as most messages are not in bundles.
#[inline(always)]
pub(super) fn parse(head: Head, mut payload: Bytes) -> Result<Message, FrameError> {
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
            let mut next = || payload.try_get_u64().map_err(|_| FrameError::Payload);
            let (wall_ms, sequence, epoch) = (next()?, next()?, next()?);
            if !payload.is_empty() {
                return Err(FrameError::Payload);
            }
            let backpressure = Backpressure::from_level(head.flags >> BACKPRESSURE_SHIFT);
            let is_set = |flag| head.flags & flag != 0;
            let (remembers_you, rebuilt) = (is_set(REMEMBERS_YOU), is_set(REBUILT));
            Ok(Message::Pong { wall_ms, sequence, remembers_you, rebuilt, epoch, backpressure })
        }
        REPAIR_REQUEST => Ok(Message::Repair(payload)),
        REPAIR_ANSWER => Ok(Message::RepairAnswer(payload)),
        SCAN => Ok(Message::Scan(payload)),
        SCAN_ANSWER => parse_answered(payload).map(Message::ScanAnswer),
        LAYOUT => Ok(Message::Layout(payload)),
        LAYOUT_ANSWER => parse_answered(payload).map(Message::LayoutAnswer),
        PROOF if payload.len() <= PROOF_BYTES_MAX => Ok(Message::Proof(payload)),
        PROOF => Err(FrameError::Payload),
        unknown => Err(FrameError::Opcode(unknown)),
    }
}

fn parse_answered(mut payload: Bytes) -> Result<Result<Bytes, Failure>, FrameError> {
    match *payload {
        [ANSWERED, ..] => {
            payload.advance(1);
            Ok(Ok(payload))
        }
        [NOT_ANSWERED, code] => Failure::from_code(code).map(Err).ok_or(FrameError::Payload),
        _ => Err(FrameError::Payload),
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
