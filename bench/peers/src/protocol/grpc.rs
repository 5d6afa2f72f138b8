//! etcd: gRPC, unary calls over HTTP/2, as its own clients send them.
//!
//! By hand, because it is little: the client chooses what it sends, and of the answers' headers nothing has to be
//! decoded. A call that failed has no message (its status is in the trailers), and one that succeeded has one. Headers
//! that repeat are sent as indices of the dynamic table, as every HPACK encoder does.
//! Source: RFC 9113 (HTTP/2), RFC 7541 (HPACK), the gRPC document "gRPC over HTTP2", etcd's `rpc.proto` and `kv.proto`.

use super::{Ending, Protocol};
use crate::error::DriveError;
use crate::plan::Task;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD_BYTES: usize = 9;
/// The longest payload that a server may send, since the settings do not allow more.
const FRAME_BYTES_MAX: usize = 16_384;
/// Of a connection, until the server says otherwise.
const WINDOW_BYTES: i64 = 65_535;
/// What the server may send before its window is raised.
const RECEIVE_WINDOW_BYTES: u32 = 1 << 30;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Of DATA and HEADERS; of SETTINGS and PING the same bit is ACK.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

const SETTING_HEADER_TABLE: u16 = 1;

/// One frame of a stream of bytes.
struct H2Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'a [u8],
}

impl<'a> H2Frame<'a> {
    /// The first, if it is whole.
    fn first(bytes: &'a [u8]) -> Result<Option<Self>, DriveError> {
        let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
        let [a, b, c, kind, flags, stream @ ..] = *head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        if length > FRAME_BYTES_MAX {
            return Err(DriveError::Malformed("an HTTP/2 frame that is longer than allowed"));
        }
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        Ok(rest.get(..length).map(|payload| Self { kind, flags, stream, payload }))
    }

    fn bytes(&self) -> usize {
        FRAME_HEAD_BYTES + self.payload.len()
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The 31 bits that a window is widened by.
    fn increment(&self) -> Result<u32, DriveError> {
        let bytes = self.payload.first_chunk().ok_or(DriveError::Malformed("a window update that is too short"))?;
        Ok(u32::from_be_bytes(*bytes) & 0x7fff_ffff)
    }
}

fn push_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("requests are short").to_be_bytes();
    out.extend_from_slice(length.get(1..).unwrap_or_default());
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

fn push_widening(out: &mut Vec<u8>, bytes: u32) {
    push_frame(out, WINDOW_UPDATE, 0, 0, &bytes.to_be_bytes());
}

pub(crate) struct Grpc {
    task: Task,
    value_bytes: usize,
    /// The headers of the first call, which fill the dynamic table, and of all later ones, which refer to it.
    first_headers: Vec<u8>,
    later_headers: Vec<u8>,
    stream: u32,
    under_way: bool,
    /// Of the answer, with the prefix of gRPC.
    message: Vec<u8>,
    /// How many bytes the server takes on this connection.
    send_window: i64,
    /// Bytes received since the server's window was raised.
    received: u32,
    body: Vec<u8>,
}

/// A literal that enters the dynamic table, by an index of the static table or with a name of its own.
fn push_literal(block: &mut Vec<u8>, name: HeaderName, value: &str) {
    match name {
        HeaderName::Static(index) => block.push(0x40 | index),
        HeaderName::Own(text) => {
            block.push(0x40);
            push_text(block, text);
        }
    }
    push_text(block, value);
}

enum HeaderName {
    Static(u8),
    Own(&'static str),
}

/// A string without Huffman's code.
fn push_text(block: &mut Vec<u8>, text: &str) {
    block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("headers are short"));
    block.extend_from_slice(text.as_bytes());
}

impl Grpc {
    pub(crate) fn new(authority: &str, task: Task) -> Self {
        let path = if task.writes() { "/etcdserverpb.KV/Put" } else { "/etcdserverpb.KV/Range" };
        // `:method: POST` and `:scheme: http`, which are in the static table.
        let fixed = [0x83, 0x86];
        let mut first_headers = fixed.to_vec();
        push_literal(&mut first_headers, HeaderName::Static(4), path);
        push_literal(&mut first_headers, HeaderName::Static(1), authority);
        push_literal(&mut first_headers, HeaderName::Static(31), "application/grpc");
        push_literal(&mut first_headers, HeaderName::Own("te"), "trailers");
        // The newest entry has the lowest index, 62.
        let later_headers = [&fixed[..], &[0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62]].concat();
        Self {
            task,
            value_bytes: 0,
            first_headers,
            later_headers,
            stream: 0,
            under_way: false,
            message: Vec::new(),
            send_window: WINDOW_BYTES,
            received: 0,
            body: Vec::new(),
        }
    }

    fn take_frame(&mut self, frame: &H2Frame<'_>, out: &mut Vec<u8>) -> Result<Option<Ending>, DriveError> {
        let is_mine = self.under_way && frame.stream == self.stream;
        match frame.kind {
            DATA => self.take_data(frame, out)?,
            HEADERS if is_mine && frame.has(END_STREAM) => return Ok(Some(self.end())),
            RST_STREAM if is_mine => {
                self.message.clear();
                return Ok(Some(self.end()));
            }
            SETTINGS if !frame.has(ACK) => {
                check_settings(frame.payload)?;
                push_frame(out, SETTINGS, ACK, 0, &[]);
            }
            PING if !frame.has(ACK) => push_frame(out, PING, ACK, 0, frame.payload),
            GOAWAY => return Err(DriveError::Malformed("the server goes away")),
            WINDOW_UPDATE if frame.stream == 0 => self.send_window += i64::from(frame.increment()?),
            // Among them windows of streams, which are all larger than a request.
            _ => {}
        }
        Ok(None)
    }

    fn take_data(&mut self, frame: &H2Frame<'_>, out: &mut Vec<u8>) -> Result<(), DriveError> {
        if frame.has(PADDED) || frame.has(END_STREAM) {
            return Err(DriveError::Malformed("a padded answer, or one without trailers"));
        }
        if self.under_way && frame.stream == self.stream {
            self.message.extend_from_slice(frame.payload);
        }
        self.received += u32::try_from(frame.payload.len()).expect("frames are short");
        if self.received > RECEIVE_WINDOW_BYTES / 2 {
            push_widening(out, self.received);
            self.received = 0;
        }
        Ok(())
    }

    fn end(&mut self) -> Ending {
        self.under_way = false;
        let message = message(&self.message);
        let done = if self.task.writes() {
            message.is_some_and(|message| field(message, 1).is_some())
        } else {
            let value = message.and_then(|message| field(field(message, 2)?, 5));
            value.is_some_and(|value| value.len() == self.value_bytes)
        };
        if done { Ending::Done } else { Ending::Refused }
    }
}

/// The table that the requests refer to must be as large as it is by default.
fn check_settings(payload: &[u8]) -> Result<(), DriveError> {
    let (settings, _) = payload.as_chunks::<6>();
    let shrinks = settings.iter().any(|[a, b, value @ ..]| {
        u16::from_be_bytes([*a, *b]) == SETTING_HEADER_TABLE && u32::from_be_bytes(*value) < 4096
    });
    if shrinks { Err(DriveError::Malformed("a header table that is smaller than by default")) } else { Ok(()) }
}

/// Without gRPC's prefix: a byte for compression, which is not asked for, and the length.
fn message(bytes: &[u8]) -> Option<&[u8]> {
    let (prefix, message) = bytes.split_first_chunk::<5>()?;
    let [compressed, length @ ..] = *prefix;
    (compressed == 0 && usize::try_from(u32::from_be_bytes(length)).ok()? == message.len()).then_some(message)
}

/// A number of Protocol Buffers, and what follows.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = bytes.iter().take(10).position(|byte| *byte < 0x80)? + 1;
    let (number, rest) = bytes.split_at_checked(length)?;
    let value = number.iter().rev().fold(0_u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, rest))
}

/// The first field of this number in a message, if it is one with a length.
fn field(mut bytes: &[u8], wanted: u64) -> Option<&[u8]> {
    while !bytes.is_empty() {
        let (tag, rest) = varint(bytes)?;
        bytes = match tag & 7 {
            0 => varint(rest)?.1,
            1 => rest.get(8..)?,
            2 => {
                let (length, rest) = varint(rest)?;
                let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                if tag >> 3 == wanted {
                    return Some(value);
                }
                rest
            }
            5 => rest.get(4..)?,
            _ => return None,
        };
    }
    None
}

fn push_field(body: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    body.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        body.push(0x80 | u8::try_from(length & 0x7f).expect("seven bits"));
        length >>= 7;
    }
    body.push(u8::try_from(length).expect("seven bits"));
    body.extend_from_slice(bytes);
}

impl Protocol for Grpc {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        push_frame(out, SETTINGS, 0, 0, &[]);
        push_widening(out, RECEIVE_WINDOW_BYTES);
    }

    fn request(&mut self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Result<(), DriveError> {
        self.value_bytes = value.len();
        self.body.clear();
        self.body.extend_from_slice(&[0; 5]);
        // The key and the value of a PutRequest; the key of a RangeRequest, whose defaults are one key, linearizable.
        push_field(&mut self.body, 1, key);
        if self.task.writes() {
            push_field(&mut self.body, 2, value);
        }
        let length = u32::try_from(self.body.len() - 5).expect("requests are short").to_be_bytes();
        self.body.iter_mut().skip(1).zip(length).for_each(|(place, byte)| *place = byte);
        let bytes = i64::try_from(self.body.len()).expect("requests are short");
        if bytes > self.send_window || self.body.len() > FRAME_BYTES_MAX {
            return Err(DriveError::Malformed("the flow-control window is used up"));
        }
        self.send_window -= bytes;
        let headers = if self.stream == 0 { &self.first_headers } else { &self.later_headers };
        // Odd numbers, in order.
        self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
        push_frame(out, HEADERS, END_HEADERS, self.stream, headers);
        push_frame(out, DATA, END_STREAM, self.stream, &self.body);
        self.message.clear();
        self.under_way = true;
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Option<Ending>), DriveError> {
        let mut taken = 0;
        while let Some(frame) = H2Frame::first(bytes.get(taken..).unwrap_or_default())? {
            taken += frame.bytes();
            if let Some(ending) = self.take_frame(&frame, out)? {
                return Ok((taken, Some(ending)));
            }
        }
        Ok((taken, None))
    }
}

#[cfg(test)]
mod tests {
    use super::super::endings;
    use super::*;

    /// An answer with this message, if any, and trailers.
    fn answer(stream: u32, message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if !message.is_empty() {
            push_frame(&mut out, HEADERS, END_HEADERS, stream, b"headers");
            let length = u8::try_from(message.len()).unwrap();
            push_frame(&mut out, DATA, 0, stream, &[&[0, 0, 0, 0, length], message].concat());
        }
        push_frame(&mut out, HEADERS, END_HEADERS | END_STREAM, stream, b"trailers");
        out
    }

    /// A RangeResponse with a header and one pair.
    fn range(value: &[u8]) -> Vec<u8> {
        let (mut pair, mut response) = (Vec::new(), Vec::new());
        push_field(&mut pair, 1, b"key");
        pair.extend_from_slice(&[2 << 3, 0xac, 0x02, 3 << 3, 1]);
        push_field(&mut pair, 5, value);
        push_field(&mut response, 1, &[1 << 3, 9]);
        push_field(&mut response, 2, &pair);
        response
    }

    #[test]
    fn a_call_is_done_when_a_message_came() {
        let mut stream = Vec::new();
        push_frame(&mut stream, SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]);
        stream.extend(answer(1, &[1 << 3 | 2, 0]));
        push_frame(&mut stream, PING, 0, 0, b"12345678");
        push_frame(&mut stream, WINDOW_UPDATE, 0, 0, &100_u32.to_be_bytes());
        stream.extend(answer(3, b""));
        push_frame(&mut stream, RST_STREAM, 0, 5, &[0; 4]);
        let mut replies = Vec::new();
        push_frame(&mut replies, SETTINGS, ACK, 0, &[]);
        push_frame(&mut replies, PING, ACK, 0, b"12345678");
        for piece in 1..stream.len() + 1 {
            let (found, out) = endings(&mut Grpc::new("h", Task::Put), &stream, piece).unwrap();
            assert_eq!(found, [Ending::Done, Ending::Refused, Ending::Refused], "pieces of {piece}");
            assert_eq!(out, replies);
        }
    }

    #[test]
    fn a_read_is_done_when_the_value_has_its_length() {
        let stream = [answer(1, &range(b"value")), answer(3, &range(b"valu")), answer(5, &[1 << 3 | 2, 0])].concat();
        let found = endings(&mut Grpc::new("h", Task::Get), &stream, 7).unwrap().0;
        assert_eq!(found, [Ending::Done, Ending::Refused, Ending::Refused]);
    }

    #[test]
    fn the_server_is_not_sent_more_than_it_takes() {
        let mut grpc = Grpc::new("h", Task::Put);
        let (value, mut out) = ([0; 10_000], Vec::new());
        for _ in 0..6 {
            grpc.request(&mut out, b"key", &value).unwrap();
        }
        assert!(grpc.request(&mut out, b"key", &value).is_err());
    }

    #[test]
    fn what_the_server_may_not_send_is_refused() {
        let mut shrinking = Vec::new();
        push_frame(&mut shrinking, SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 9]);
        let mut leaving = Vec::new();
        push_frame(&mut leaving, GOAWAY, 0, 0, &[0; 8]);
        for bad in [&shrinking[..], &leaving, &[0xff; 9]] {
            assert!(endings(&mut Grpc::new("h", Task::Put), bad, 99).is_err());
        }
    }

    #[test]
    fn later_calls_refer_to_the_headers_of_the_first() {
        let mut grpc = Grpc::new("h:1", Task::Get);
        let mut out = Vec::new();
        grpc.request(&mut out, b"k", b"").unwrap();
        grpc.request(&mut out, b"k", b"").unwrap();
        let frames: Vec<(u8, u32, usize)> = std::iter::from_fn(|| {
            let frame = H2Frame::first(&out).unwrap()?;
            let (found, bytes) = ((frame.kind, frame.stream, frame.payload.len()), frame.bytes());
            out.drain(..bytes);
            Some(found)
        })
        .collect();
        assert_eq!(frames.iter().map(|frame| (frame.0, frame.1)).collect::<Vec<_>>(), [(1, 1), (0, 1), (1, 3), (0, 3)]);
        assert_eq!(frames[2].2, 6);
    }
}
