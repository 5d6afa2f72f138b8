//! Batches: many operations in one request, in either of two forms. What is wrong with the body is an error of the whole
//! request, which then has had no effect; what is wrong with one operation is that operation's answer.

mod frames;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod item;
mod ndjson;
mod serve;

use std::collections::HashSet;

use bytes::Bytes;
use kvorum_core::Key;
use kvorum_core::key::KeyError;
use kvorum_core::quorum::Quorum;
use kvorum_core::record::CONTENT_TYPE_BYTES_MAX;

use self::item::{ItemAction, ItemAnswer, OPERATIONS_MAX, RawItem};
use crate::bad_request::BadRequest;
use crate::error::HttpError;
use crate::media::RecordForm;
use crate::numbers::{QuorumNumbers, ReplicationDefaults, ttl_s};

/// Longest body, and longest answer.
pub(crate) const BATCH_BYTES_MAX: usize = 8 << 20;
/// What an answer may take beside its key and its value: its status, its version, and a problem.
const ANSWER_BYTES: usize = 1024;

fn parse(form: RecordForm, body: &Bytes) -> Result<Vec<RawItem>, HttpError> {
    match form {
        RecordForm::Ndjson => ndjson::parse(body),
        RecordForm::Frames => frames::parse(body),
    }
}

/// An operation that can be carried out, or what is wrong with it alone.
#[derive(Debug)]
struct Item {
    /// As it was sent.
    key: Bytes,
    request: Result<ItemRequest, HttpError>,
}

#[derive(Debug)]
struct ItemRequest {
    key: Key,
    quorum: Quorum,
    action: ItemAction,
    ttl_s: Option<u32>,
}

/// Reads a batch. `quorum` is that of the request's query, for operations that say nothing.
///
/// # Errors
/// What is wrong with the whole.
fn read(
    form: RecordForm,
    body: &Bytes,
    quorum: QuorumNumbers,
    defaults: ReplicationDefaults,
    value_bytes_max: usize,
) -> Result<Vec<Item>, HttpError> {
    let raw = parse(form, body)?;
    if raw.len() > OPERATIONS_MAX {
        return Err(HttpError::BatchTooLarge);
    }
    let mut keys = HashSet::with_capacity(raw.len());
    for (place, item) in (1..).zip(&raw) {
        if !keys.insert(&item.key) {
            return Err(HttpError::DuplicateKey { place });
        }
    }
    let item = |raw: RawItem| Item { key: raw.key.clone(), request: request(raw, quorum, defaults, value_bytes_max) };
    Ok(raw.into_iter().map(item).collect())
}

fn request(
    raw: RawItem,
    quorum: QuorumNumbers,
    defaults: ReplicationDefaults,
    value_bytes_max: usize,
) -> Result<ItemRequest, HttpError> {
    let key = Key::new(raw.key).map_err(|error| match error {
        KeyError::Empty => BadRequest::EmptyId,
        KeyError::TooLong => BadRequest::LongId,
    })?;
    let quorum = raw.quorum.or(quorum).within(defaults)?;
    let mut ttl = None;
    if let ItemAction::Put { value, content_type } = &raw.action {
        if content_type.as_ref().is_some_and(|text| text.len() > CONTENT_TYPE_BYTES_MAX) {
            return Err(BadRequest::LongContentType.into());
        }
        if value.len() > value_bytes_max {
            return Err(HttpError::ValueTooLarge { bytes_max: value_bytes_max });
        }
        ttl = match raw.ttl {
            Some(seconds) => Some(ttl_s(u32::try_from(seconds).unwrap_or(u32::MAX))?),
            None => defaults.ttl_s,
        };
    } else if raw.ttl.is_some() {
        return Err(BadRequest::UnknownParameter("ttl".to_owned()).into());
    }
    Ok(ItemRequest { key, quorum, action: raw.action, ttl_s: ttl })
}

/// The answers, which do not grow over [`BATCH_BYTES_MAX`].
struct AnswerWriter {
    form: RecordForm,
    out: Vec<u8>,
    /// Room that the answers still to come need at least.
    reserved: usize,
}

impl AnswerWriter {
    fn new<'a>(form: RecordForm, keys: impl Iterator<Item = &'a [u8]>) -> Self {
        Self { form, out: Vec::new(), reserved: keys.map(least).sum() }
    }

    /// Whether a value of so many bytes has room, beside the least that all others need.
    fn has_room(&self, key: &[u8], value: usize) -> bool {
        let written = match self.form {
            // As base64, or with many bytes escaped: its writer knows, but this bound is enough.
            RecordForm::Ndjson => value + value / 2,
            RecordForm::Frames => value,
        };
        self.out.len() + self.reserved + written <= BATCH_BYTES_MAX.max(least(key))
    }

    /// Whether no more values have room, however short.
    fn is_full(&self) -> bool {
        self.out.len() + self.reserved >= BATCH_BYTES_MAX
    }

    fn push(&mut self, answer: &ItemAnswer<'_>) {
        self.reserved = self.reserved.saturating_sub(least(answer.key));
        match self.form {
            RecordForm::Ndjson => ndjson::write(answer, &mut self.out),
            RecordForm::Frames => frames::write(answer, &mut self.out),
        }
    }
}

fn least(key: &[u8]) -> usize {
    key.len() * 4 / 3 + ANSWER_BYTES
}

#[cfg(test)]
#[path = "../tests/batch.rs"]
mod tests;
