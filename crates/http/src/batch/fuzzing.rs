//! Bodies of batches, in either form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes};
use kvorum_fuzzing::byte;
use serde_json::{Map, Value};

use super::item::{ItemAction, OPERATIONS_MAX, RawItem};
use super::{parse, read};
use crate::error::HttpError;
use crate::media::RecordForm;
use crate::numbers::{QuorumNumbers, ReplicationDefaults, TTL_S_MAX};

const DEFAULTS: ReplicationDefaults = ReplicationDefaults { from: 3, nodes: 5, ttl_s: None };
/// Small, so that it is reached.
const VALUE_BYTES_MAX: usize = 64;

/// A body in the form that the first byte says.
pub fn batches(mut data: &[u8]) {
    let form = if byte(&mut data).is_multiple_of(2) { RecordForm::Ndjson } else { RecordForm::Frames };
    let body = Bytes::copy_from_slice(data);
    match parse(form, &body) {
        Ok(items) => {
            assert!(items.len() <= OPERATIONS_MAX, "more than a batch may have");
            if form == RecordForm::Frames {
                assert_eq!(frames(&items), body, "the same operations in other bytes");
            }
            if let Some(lines) = lines(&items) {
                assert_eq!(parse(RecordForm::Ndjson, &lines).ok().as_ref(), Some(&items), "it reads otherwise");
            }
        }
        Err(error) => refused(&error),
    }
    let Ok(items) = read(form, &body, QuorumNumbers::default(), DEFAULTS, VALUE_BYTES_MAX) else { return };
    for item in items {
        let request = match item.request {
            Ok(request) => request,
            Err(error) => {
                refused(&error);
                continue;
            }
        };
        let quorum = request.quorum;
        assert!(1 <= quorum.required() && quorum.required() <= quorum.replicas(), "acks out of bounds");
        assert!(quorum.replicas() <= DEFAULTS.nodes, "replicas that there are not");
        let is_put = matches!(&request.action, ItemAction::Put { value, .. } if value.len() <= VALUE_BYTES_MAX);
        let is_bare = matches!(request.action, ItemAction::Get | ItemAction::Delete);
        let is_life = request.ttl_s.is_none_or(|ttl_s| is_put && (1..=TTL_S_MAX).contains(&ttl_s));
        assert!((is_put || is_bare) && is_life && request.key.as_bytes() == item.key, "{request:?}");
    }
}

fn refused(error: &HttpError) {
    let problem = error.problem();
    assert!(problem.status.is_client_error(), "{} for what a client did", problem.status);
    assert!(problem.detail.len() < 1000, "a refusal is a sentence: {}", problem.detail);
}

/// The body in frames, of numbers that were in frames.
fn frames(items: &[RawItem]) -> Vec<u8> {
    let mut out = Vec::new();
    let small = |number: Option<u32>| u8::try_from(number.unwrap_or(0)).expect("it was a byte");
    for item in items {
        let (op, value, content_type) = match &item.action {
            ItemAction::Put { value, content_type } => (1, &value[..], content_type.as_deref().unwrap_or_default()),
            ItemAction::Get => (2, &[][..], &[][..]),
            ItemAction::Delete => (3, &[][..], &[][..]),
        };
        let length = 1 + 1 + 2 + item.key.len() + 1 + 1 + 4 + 1 + content_type.len() + value.len();
        out.put_u32(u32::try_from(length).expect("an input is short"));
        out.put_slice(&[16, op]);
        out.put_u16(u16::try_from(item.key.len()).expect("its length was two bytes"));
        out.put_slice(&item.key);
        out.put_slice(&[small(item.quorum.ack), small(item.quorum.from)]);
        out.put_u32(u32::try_from(item.ttl.unwrap_or(0)).expect("it was four bytes"));
        out.put_u8(u8::try_from(content_type.len()).expect("its length was a byte"));
        out.put_slice(content_type);
        out.put_slice(value);
    }
    out
}

/// The body in lines; none where a content type is no text, which it may be in a frame only.
fn lines(items: &[RawItem]) -> Option<Bytes> {
    let mut out = Vec::new();
    for item in items {
        let mut line = Map::new();
        let mut text = |name: &str, bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => line.insert(name.to_owned(), text.into()),
            Err(_) => line.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
        };
        text("key", &item.key);
        let op = match &item.action {
            ItemAction::Put { value, content_type } => {
                text("value", value);
                if let Some(content_type) = content_type {
                    text("content_type", std::str::from_utf8(content_type).ok()?.as_bytes());
                }
                "put"
            }
            ItemAction::Get => "get",
            ItemAction::Delete => "delete",
        };
        line.insert("op".into(), op.into());
        let numbers = [("ack", item.quorum.ack), ("from", item.quorum.from)];
        let numbers = numbers.map(|(name, number)| (name, number.map(u64::from)));
        for (name, number) in numbers.into_iter().chain([("ttl", item.ttl)]) {
            if let Some(number) = number {
                line.insert(name.to_owned(), number.into());
            }
        }
        out.extend_from_slice(Value::Object(line).to_string().as_bytes());
        out.push(b'\n');
    }
    Some(out.into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn batches() {
        kvorum_fuzzing::holds("batches", super::batches);
    }
}
