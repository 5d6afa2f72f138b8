//! Frames between peers: messages as bytes on a connection.
//!
//! ```text
//! length u32 | id u64 | opcode u8 | flags u8 | epoch u64 | hlc u64 | checksum u32 | payload of `length` bytes
//! ```
//!
//! Big-endian. `checksum` is the low half of XXH3-64 over the payload and the header before it, so a
//! flipped bit on the way breaks the connection instead of becoming a message.
//!
//! A payload over [`CHUNK_BYTES`] travels as chunks: frames of the same id, opcode, flags, epoch and hlc, all
//! full and flagged `MORE` but the last, so that frames of small messages can go in between. Within one
//! direction of a connection an id therefore belongs to one message at a time, and at most
//! [`INTERLEAVED_MAX`] messages are unfinished.
//!
//! The small messages of a batch travel together, in one frame: a [bundle](OpenBundle).
//!
//! Every length is checked against its limit before anything is kept for it. What arrives whole is
//! shared with the buffer it was read into, never copied: a key or record that outlives its request
//! should be copied, or it keeps that buffer alive. Record bytes are *not* checked here: they carry
//! a digest of their own ([`crate::record`]).

mod bundle;
mod head;
mod message;

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

pub use bundle::OpenBundle;
pub use head::{CHUNK_BYTES, HEADER_BYTES};
pub use message::{Frame, FrameError, Message, NO_EPOCH, PROOF_BYTES_MAX};

use crate::key::KEY_BYTES_MAX;
use crate::record::RECORD_OVERHEAD_MAX;
use crate::version::Hlc;
use bundle::Unbundled;
use head::{Head, UNSUMMED, checksum};
use message::{BUNDLE, MORE, known_flags, parse, put_fields};

/// Most large messages under way at once in one direction of a connection: a sender begins the next when one
/// is done, and a receiver has room for so many of the longest.
pub const INTERLEAVED_MAX: usize = 4;
/// Bytes that a message adds to the value it carries at most: the key, and the record around the value.
pub const PAYLOAD_OVERHEAD_MAX: usize = 2 + KEY_BYTES_MAX + RECORD_OVERHEAD_MAX;

/// Appends a frame to `out`; if its payload is over [`CHUNK_BYTES`], appends nothing and returns
/// what will give it piece by piece.
#[must_use = "a large frame must be sent chunk by chunk"]
pub fn encode(frame: &Frame, out: &mut BytesMut) -> Option<LargeFrame> {
    let start = out.len();
    out.put_bytes(0, HEADER_BYTES);
    let (opcode, flags, body) = put_fields(&frame.message, out);
    let head = Head { id: frame.id, opcode, flags, epoch: frame.epoch, hlc: frame.hlc };
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
    /// The rest of the bundle that was received last.
    unbundled: Unbundled,
    is_from_bundle: bool,
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
        Self {
            payload_bytes_max,
            partial_bytes_max,
            partial_bytes: 0,
            partial: BTreeMap::new(),
            unbundled: Unbundled::default(),
            is_from_bundle: false,
        }
    }

    /// Takes the next whole message off the front of `input`; `None` if more bytes are needed, which
    /// are never more than one frame's: [`HEADER_BYTES`] and [`CHUNK_BYTES`].
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are no frame; every later call fails as well, or is meaningless.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if let Some(frame) = self.unbundled.next()? {
            return Ok(Some(frame));
        }
        self.is_from_bundle = false;
        while let Some((head, payload)) = self.next_frame(input)? {
            if head.opcode == BUNDLE {
                self.unbundled = Unbundled::new(head, payload)?;
                self.is_from_bundle = true;
                return self.unbundled.next();
            }
            if let Some((head, payload)) = self.assemble(head, payload)? {
                let message = parse(head, payload)?;
                return Ok(Some(Frame { id: head.id, epoch: head.epoch, hlc: head.hlc, message }));
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
            epoch: header.get_u64(),
            hlc: Hlc::from_raw(header.get_u64()),
        };
        let unsummed = input.get(..UNSUMMED).expect("the header is there");
        if checksum(unsummed, payload) != header.get_u32() {
            return Err(FrameError::Checksum);
        }
        if head.flags & !known_flags(head.opcode)? != 0 {
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

    /// Whether the message that was decoded last came with others in one frame: its answer may go so, too.
    #[must_use]
    pub fn is_from_bundle(&self) -> bool {
        self.is_from_bundle
    }

    /// Bytes held of messages that have not arrived whole.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.partial_bytes
    }
}
