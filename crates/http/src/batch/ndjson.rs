//! One JSON object a line.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use super::item::{ItemAction, ItemAnswer, OPERATIONS_MAX, Payload, RawItem};
use crate::error::HttpError;
use crate::json_members::{etag_into, number_into, text_into};
use crate::numbers::QuorumNumbers;

/// A string of the line where it can be shared, and one of its own where it has escapes. (Serde shares no `Cow` inside
/// an `Option`.)
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationLine<'a> {
    #[serde(borrow)]
    op: Text<'a>,
    key: Option<Text<'a>>,
    key_base64: Option<Text<'a>>,
    value: Option<Text<'a>>,
    value_base64: Option<Text<'a>>,
    content_type: Option<Text<'a>>,
    ttl: Option<u64>,
    ack: Option<u64>,
    from: Option<u64>,
}

/// Reads all operations.
///
/// # Errors
/// [`HttpError::BatchItem`], which names the line.
pub(super) fn parse(body: &Bytes) -> Result<Vec<RawItem>, HttpError> {
    let mut items = Vec::new();
    for (number, line) in (1..).zip(body.split(|byte| *byte == b'\n')) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if items.len() == OPERATIONS_MAX {
            return Err(HttpError::BatchTooLarge);
        }
        let wrong = |reason: String| HttpError::BatchItem { place: format!("line {number}"), reason };
        let line: OperationLine<'_> = serde_json::from_slice(line).map_err(|error| wrong(without_place(&error)))?;
        items.push(item(body, line).map_err(|reason| wrong(reason.to_owned()))?);
    }
    Ok(items)
}

fn item(body: &Bytes, line: OperationLine<'_>) -> Result<RawItem, &'static str> {
    let key = bytes(body, line.key, line.key_base64).map_err(|wrong| match wrong {
        Wrong::Both => "`key` and `key_base64` exclude each other",
        Wrong::Base64 => "`key_base64` is not base64",
    })?;
    let key = key.ok_or("`key` or `key_base64` is required")?;
    let value = bytes(body, line.value, line.value_base64).map_err(|wrong| match wrong {
        Wrong::Both => "`value` and `value_base64` exclude each other",
        Wrong::Base64 => "`value_base64` is not base64",
    })?;
    let content_type = line.content_type.map(|text| shared(body, text.0));
    let action = match (&*line.op.0, value, content_type) {
        ("put", Some(value), content_type) => ItemAction::Put { value, content_type },
        ("put", None, _) => return Err("a put has `value` or `value_base64`"),
        ("get", None, None) => ItemAction::Get,
        ("delete", None, None) => ItemAction::Delete,
        ("get" | "delete", _, _) => return Err("`value` and `content_type` are members of a put"),
        _ => return Err("`op` is `put`, `get` or `delete`"),
    };
    let quorum = QuorumNumbers { ack: line.ack.map(number), from: line.from.map(number) };
    Ok(RawItem { key, action, quorum, ttl: line.ttl })
}

/// What is out of range stays so.
fn number(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

enum Wrong {
    Both,
    Base64,
}

fn bytes(body: &Bytes, text: Option<Text<'_>>, base64: Option<Text<'_>>) -> Result<Option<Bytes>, Wrong> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(Wrong::Both),
        (Some(text), None) => Ok(Some(shared(body, text.0))),
        (None, Some(base64)) => STANDARD.decode(&*base64.0).map(|bytes| Some(bytes.into())).map_err(|_| Wrong::Base64),
        (None, None) => Ok(None),
    }
}

fn shared(body: &Bytes, text: Cow<'_, str>) -> Bytes {
    match text {
        Cow::Borrowed(text) => body.slice_ref(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    }
}

/// The message without the place inside the line, which is given in lines of the body. It repeats names and texts of
/// the line, which may be long.
fn without_place(error: &serde_json::Error) -> String {
    const CHARACTERS_MAX: usize = 200;
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    message.chars().take(CHARACTERS_MAX).collect()
}

/// Appends an answer.
pub(super) fn write(answer: &ItemAnswer<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"status\":");
    number_into(u64::from(answer.status), out);
    out.push(b',');
    text_into("key", answer.key, out);
    if let Some(version) = answer.version {
        etag_into(version, out);
    }
    if let Some(expires_ms) = answer.expires_ms {
        out.extend_from_slice(b",\"expires_ms\":");
        number_into(expires_ms, out);
    }
    if let Some(content_type) = answer.content_type {
        out.push(b',');
        text_into("content_type", content_type, out);
    }
    match answer.payload {
        Payload::Nothing => {}
        Payload::Value(value) => {
            out.push(b',');
            text_into("value", value, out);
        }
        Payload::Problem(problem) => {
            out.extend_from_slice(b",\"problem\":");
            out.extend_from_slice(problem.trim_ascii_end());
        }
    }
    out.extend_from_slice(b"}\n");
}
