//! Length-prefixed, big-endian: `u32 length | u8 type | body`, where `length` counts type and body.
//!
//! ```text
//! operation (16): u8 op (1 put, 2 get, 3 delete) | u16 key length | key | u8 ack | u8 from (0: the default)
//!                 | u32 ttl (0: none) | u8 content-type length | content type | value
//! outcome (17):   u16 status | version 12 (zeros: none) | u64 expires_ms (0: none)
//!                 | u8 content-type length | content type | value, or problem as JSON
//! ```

use bytes::{Buf, BufMut, Bytes};
use kvorum_core::Version;

use super::item::{ItemAction, ItemAnswer, OPERATIONS_MAX, Payload, RawItem};
use crate::error::HttpError;
use crate::numbers::QuorumNumbers;

const OPERATION: u8 = 16;
const OUTCOME: u8 = 17;
const PUT: u8 = 1;
const GET: u8 = 2;
const DELETE: u8 = 3;

/// Reads all operations.
///
/// # Errors
/// [`HttpError::BatchItem`], which names the frame.
pub(super) fn parse(body: &Bytes) -> Result<Vec<RawItem>, HttpError> {
    let (mut rest, mut items) = (body.clone(), Vec::new());
    while rest.has_remaining() {
        if items.len() == OPERATIONS_MAX {
            return Err(HttpError::BatchTooLarge);
        }
        let place = items.len() + 1;
        let wrong =
            |reason: &'static str| HttpError::BatchItem { place: format!("frame {place}"), reason: reason.into() };
        items.push(item(&mut rest).map_err(wrong)?);
    }
    Ok(items)
}

fn item(rest: &mut Bytes) -> Result<RawItem, &'static str> {
    const SHORT: &str = "it ends before its fields do";
    let length = rest.try_get_u32().map_err(|_| "its length is not whole")?;
    let length = usize::try_from(length).ok().filter(|length| *length <= rest.len()).ok_or("it ends early")?;
    let mut frame = rest.split_to(length);
    if frame.try_get_u8() != Ok(OPERATION) {
        return Err("its type is not 16, an operation");
    }
    let op = frame.try_get_u8().map_err(|_| SHORT)?;
    let key_length = usize::from(frame.try_get_u16().map_err(|_| SHORT)?);
    let key = take(&mut frame, key_length).ok_or(SHORT)?;
    let numbers = [frame.try_get_u8(), frame.try_get_u8()].map(|number| number.map(u32::from));
    let [Ok(ack), Ok(from)] = numbers else { return Err(SHORT) };
    let given = |number: u32| Some(number).filter(|number| *number > 0);
    let ttl = frame.try_get_u32().map_err(|_| SHORT)?;
    let content_type_length = usize::from(frame.try_get_u8().map_err(|_| SHORT)?);
    let content_type = take(&mut frame, content_type_length).ok_or(SHORT)?;
    let action = match op {
        PUT => ItemAction::Put { value: frame, content_type: Some(content_type).filter(|text| !text.is_empty()) },
        GET | DELETE if !(frame.is_empty() && content_type.is_empty()) => {
            return Err("only a put has a value and a content type");
        }
        GET => ItemAction::Get,
        DELETE => ItemAction::Delete,
        _ => return Err("its operation is not 1, 2 or 3"),
    };
    let quorum = QuorumNumbers { ack: given(ack), from: given(from) };
    Ok(RawItem { key, action, quorum, ttl: given(ttl).map(u64::from) })
}

fn take(frame: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= frame.len()).then(|| frame.split_to(length))
}

/// Appends an answer.
pub(super) fn write(answer: &ItemAnswer<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u32(0);
    out.put_u8(OUTCOME);
    out.put_u16(answer.status);
    out.put_slice(&answer.version.unwrap_or(Version::ZERO).encode());
    out.put_u64(answer.expires_ms.unwrap_or(0));
    let content_type = answer.content_type.unwrap_or_default();
    out.put_u8(u8::try_from(content_type.len()).expect("a stored content type has at most 255 bytes"));
    out.put_slice(content_type);
    match answer.payload {
        Payload::Nothing => {}
        Payload::Value(bytes) | Payload::Problem(bytes) => out.put_slice(bytes),
    }
    let length = u32::try_from(out.len() - start - 4).expect("an answer is at most 8 MiB");
    out.get_mut(start..start + 4).expect("it was put there").copy_from_slice(&length.to_be_bytes());
}
