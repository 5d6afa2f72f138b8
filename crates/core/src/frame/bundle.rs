//! Many small messages in one frame: one header and one checksum for all of them.
//!
//! ```text
//! (id u64 | opcode u8 | flags u8 | length u32 | payload of `length` bytes) ×
//! ```
//!
//! is the payload of such a frame. Big-endian. What belongs to a batch travels so, in both directions. The receiver
//! takes each message as if it had come in a frame of its own, with the bundle's epoch, which all of them have, and its
//! clock: a reading at or above that of each message.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::head::{CHUNK_BYTES, HEADER_BYTES, Head};
use super::message::{
    BUNDLE, Frame, FrameError, MORE, READ, READ_ANSWER, STORE, STORE_ANSWER, known_flags, parse, put_fields,
};
use crate::version::Hlc;

/// Longest payload of a message that is put into a bundle.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Bytes before a message's payload.
const MESSAGE_HEADER_BYTES: usize = 8 + 1 + 1 + 4;

/// A bundle at the end of a buffer, to which nothing else is appended before [`OpenBundle::seal`].
#[derive(Debug)]
pub struct OpenBundle {
    start: usize,
    epoch: Option<u64>,
    hlc: Hlc,
}

impl OpenBundle {
    /// Begins one, without a message.
    #[must_use]
    pub fn begin(out: &mut BytesMut) -> Self {
        let start = out.len();
        out.put_bytes(0, HEADER_BYTES);
        Self { start, epoch: None, hlc: Hlc::ZERO }
    }

    /// Appends a message; whether it went in. One that is too long, has no room left or is of another epoch leaves `out` as it
    /// was.
    #[must_use = "what does not fit must be sent otherwise"]
    pub fn push(&mut self, frame: &Frame, out: &mut BytesMut) -> bool {
        if self.epoch.is_some_and(|epoch| epoch != frame.epoch) {
            return false;
        }
        let before = out.len();
        out.put_bytes(0, MESSAGE_HEADER_BYTES);
        let (opcode, flags, body) = put_fields(&frame.message, out);
        out.put_slice(body.map_or(&[], |bytes| bytes));
        let length = out.len() - before - MESSAGE_HEADER_BYTES;
        if length > MESSAGE_BYTES_MAX || out.len() - self.start - HEADER_BYTES > CHUNK_BYTES {
            out.truncate(before);
            return false;
        }
        let mut header = out.get_mut(before..before + MESSAGE_HEADER_BYTES).expect("it was put there");
        header.put_u64(frame.id);
        header.put_u8(opcode);
        header.put_u8(flags);
        header.put_u32(u32::try_from(length).expect("it is at most a chunk"));
        self.epoch = Some(frame.epoch);
        self.hlc = self.hlc.max(frame.hlc);
        true
    }

    /// Makes it a frame. A bundle without a message leaves nothing.
    pub fn seal(self, out: &mut BytesMut) {
        if out.len() == self.start + HEADER_BYTES {
            return out.truncate(self.start);
        }
        let head = Head { id: 0, opcode: BUNDLE, flags: 0, epoch: self.epoch.unwrap_or_default(), hlc: self.hlc };
        head.seal(out.get_mut(self.start..).expect("out has only grown"));
    }
}

/// The messages of a bundle that have not been taken.
#[derive(Debug, Default)]
pub(super) struct Unbundled {
    rest: Bytes,
    epoch: u64,
    hlc: Hlc,
}

impl Unbundled {
    pub(super) fn new(head: Head, payload: Bytes) -> Result<Self, FrameError> {
        let Head { epoch, hlc, .. } = head;
        if payload.is_empty() { Err(FrameError::Payload) } else { Ok(Self { rest: payload, epoch, hlc }) }
    }

    /// The next message; none at the end.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are no messages of a bundle.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let rest = &mut self.rest;
        if rest.len() < MESSAGE_HEADER_BYTES {
            return Err(FrameError::Payload);
        }
        let (id, opcode, flags) = (rest.get_u64(), rest.get_u8(), rest.get_u8());
        let head = Head { id, opcode, flags, epoch: self.epoch, hlc: self.hlc };
        let length = usize::try_from(rest.get_u32()).map_err(|_| FrameError::TooLong)?;
        if length > MESSAGE_BYTES_MAX {
            return Err(FrameError::TooLong);
        }
        if length > rest.len() {
            return Err(FrameError::Payload);
        }
        if ![STORE, READ, STORE_ANSWER, READ_ANSWER].contains(&head.opcode) {
            return Err(FrameError::Opcode(head.opcode));
        }
        if head.flags & !(known_flags(head.opcode)? & !MORE) != 0 {
            return Err(FrameError::Flags(head.flags));
        }
        let message = parse(head, rest.split_to(length))?;
        Ok(Some(Frame { id: head.id, epoch: self.epoch, hlc: self.hlc, message }))
    }
}
