//! From a request's method and target to what it asks for: pure, and the only place that reads a query.
//!
//! The rules are those of the HTTP contract: parameters are `application/x-www-form-urlencoded` over
//! arbitrary bytes, one that comes twice or that the path does not define is refused, and the older
//! spelling `replicas=ack/from` excludes the newer one. A target without escapes, which is nearly every
//! one, costs one copy of the key and nothing else.

use std::borrow::Cow;

use bytes::Bytes;
use hyper::Method;
use kvorum_core::Key;
use kvorum_core::key::{KEY_BYTES_MAX, KeyError};
use kvorum_core::scan::page::ScanValues;
use kvorum_replication::cluster_scan::OnMissing;

use super::bad_request::BadRequest;
use super::error::HttpError;
use super::numbers::{QuorumNumbers, ReplicationDefaults, ttl_s};
use super::routes::{Action, Resource, Verb, route};
use super::scan::request::{ScanRequest, behind};

/// Reads a request's method and target: the path is judged first, then the method, then the parameters.
///
/// # Errors
/// What the client did wrong.
pub(super) fn parse(
    method: &Method,
    path: &str,
    query: Option<&str>,
    defaults: ReplicationDefaults,
) -> Result<Action, HttpError> {
    let query = query.unwrap_or_default().as_bytes();
    let route = route(path).ok_or(BadRequest::UnknownPath)?;
    let not_allowed = || HttpError::MethodNotAllowed { allow: route.allow };
    match &route.target {
        Resource::Entity => {
            let verb = match *method {
                Method::PUT => Verb::Put,
                Method::GET | Method::HEAD => Verb::Get,
                Method::DELETE => Verb::Delete,
                _ => return Err(not_allowed()),
            };
            Ok(entity(verb, query, defaults)?)
        }
        Resource::Range => match *method {
            Method::GET | Method::HEAD => Ok(range(query)?),
            _ => Err(not_allowed()),
        },
        Resource::Scan => match *method {
            Method::GET | Method::HEAD => Ok(Action::Scan(Box::new(scan(query, &SCAN, defaults)?))),
            _ => Err(not_allowed()),
        },
        Resource::Query => match *method {
            Method::POST => {
                let ScanRequest { quorum, on_missing, .. } = scan(query, &QUERY, defaults)?;
                Ok(Action::Query { quorum, on_missing })
            }
            _ => Err(not_allowed()),
        },
        Resource::Script => match *method {
            Method::POST => Ok(Action::Script(Box::new(scan(query, &SCRIPT, defaults)?))),
            _ => Err(not_allowed()),
        },
        Resource::Layout => match *method {
            Method::GET | Method::HEAD => Ok(layout(query)?),
            _ => Err(not_allowed()),
        },
        Resource::Batch => match *method {
            Method::POST => Ok(batch(query)?),
            _ => Err(not_allowed()),
        },
        Resource::Page { read, begin, end } => {
            let action = match *method {
                Method::GET | Method::HEAD => read.as_ref(),
                Method::POST => begin.as_ref(),
                Method::DELETE => end.as_ref(),
                _ => None,
            };
            without_parameters(query, action.ok_or_else(not_allowed)?)
        }
    }
}

fn without_parameters(query: &[u8], action: &Action) -> Result<Action, HttpError> {
    match parameters(query).next() {
        None => Ok(action.clone()),
        Some((name, _)) => Err(unknown(&decode(name)?).into()),
    }
}

fn entity(verb: Verb, query: &[u8], defaults: ReplicationDefaults) -> Result<Action, BadRequest> {
    let (mut id, mut ack, mut from, mut replicas, mut ttl) = (None, None, None, None, None);
    for (name, value) in parameters(query) {
        match &*decode(name)? {
            b"id" => once(&mut id, "id", value)?,
            b"ack" => once(&mut ack, "ack", value)?,
            b"from" => once(&mut from, "from", value)?,
            b"replicas" => once(&mut replicas, "replicas", value)?,
            b"ttl" if verb == Verb::Put => once(&mut ttl, "ttl", value)?,
            other => return Err(unknown(other)),
        }
    }
    let key = key(id.ok_or(BadRequest::MissingId)?)?;
    let quorum = match replicas {
        None => {
            let number = |raw: Option<&[u8]>, name| raw.map(|raw| decimal(&decode(raw)?, name)).transpose();
            QuorumNumbers { ack: number(ack, "ack")?, from: number(from, "from")? }
        }
        Some(_) if ack.is_some() || from.is_some() => return Err(BadRequest::MixedSpellings),
        Some(raw) => older_spelling(raw)?,
    };
    let ttl_s = match ttl {
        Some(raw) => Some(ttl_s(decimal(&decode(raw)?, "ttl")?)?),
        None => defaults.ttl_s.filter(|_| verb == Verb::Put),
    };
    Ok(Action::Entity { verb, key, quorum: quorum.within(defaults)?, ttl_s })
}

fn layout(query: &[u8]) -> Result<Action, BadRequest> {
    let mut id = None;
    for (name, value) in parameters(query) {
        match &*decode(name)? {
            b"id" => once(&mut id, "id", value)?,
            other => return Err(unknown(other)),
        }
    }
    Ok(Action::Layout { key: id.map(key).transpose()? })
}

fn batch(query: &[u8]) -> Result<Action, BadRequest> {
    let (mut ack, mut from) = (None, None);
    for (name, value) in parameters(query) {
        match &*decode(name)? {
            b"ack" => once(&mut ack, "ack", value)?,
            b"from" => once(&mut from, "from", value)?,
            other => return Err(unknown(other)),
        }
    }
    let number = |raw: Option<&[u8]>, name| raw.map(|raw| decimal(&decode(raw)?, name)).transpose();
    Ok(Action::Batch { quorum: QuorumNumbers { ack: number(ack, "ack")?, from: number(from, "from")? } })
}

/// What the paths that scan know. Of a query, its body says the range.
const SCAN: [&[u8]; 9] = [b"prefix", b"start", b"end", b"limit", b"values", b"ack", b"from", b"partial", b"after"];
const SCRIPT: [&[u8]; 6] = [b"prefix", b"start", b"end", b"ack", b"from", b"partial"];
const QUERY: [&[u8]; 3] = [b"ack", b"from", b"partial"];

fn scan(query: &[u8], known: &[&[u8]], defaults: ReplicationDefaults) -> Result<ScanRequest, BadRequest> {
    let (mut prefix, mut start, mut end, mut limit, mut values) = (None, None, None, None, None);
    let (mut ack, mut from, mut partial, mut after) = (None, None, None, None);
    for (name, value) in parameters(query) {
        let name = decode(name)?;
        if !known.contains(&&*name) {
            return Err(unknown(&name));
        }
        match &*name {
            b"prefix" => once(&mut prefix, "prefix", value)?,
            b"start" => once(&mut start, "start", value)?,
            b"end" => once(&mut end, "end", value)?,
            b"limit" => once(&mut limit, "limit", value)?,
            b"values" => once(&mut values, "values", value)?,
            b"ack" => once(&mut ack, "ack", value)?,
            b"from" => once(&mut from, "from", value)?,
            b"partial" => once(&mut partial, "partial", value)?,
            b"after" => once(&mut after, "after", value)?,
            other => return Err(unknown(other)),
        }
    }
    let (start, end) = match (prefix, start, end) {
        (None, None, None) if known == QUERY => (Bytes::new(), None),
        (Some(prefix), None, None) => {
            let prefix = bound(prefix)?;
            let end = behind(&prefix);
            (prefix, end)
        }
        (None, Some(start), end) => {
            let end = end.map(bound).transpose()?;
            let (start, is_end_empty) = (bound(start)?, end.as_ref().is_some_and(Bytes::is_empty));
            if start.is_empty() || is_end_empty {
                return Err(BadRequest::EmptyBound);
            }
            (start, end)
        }
        _ => return Err(BadRequest::ScanRange),
    };
    let number = |raw: Option<&[u8]>, name| raw.map(|raw| decimal(&decode(raw)?, name)).transpose();
    let limit = number(limit, "limit")?;
    if limit == Some(0) {
        return Err(BadRequest::Limit);
    }
    let quorum = QuorumNumbers { ack: number(ack, "ack")?, from: number(from, "from")? }.within(defaults)?;
    let values = if flag(values, "values")? == Some(false) { ScanValues::LeftOut } else { ScanValues::Wanted };
    let on_missing = if flag(partial, "partial")? == Some(true) { OnMissing::LeaveOut } else { OnMissing::End };
    let after = after.map(bytes_of).transpose()?;
    Ok(ScanRequest { start, end, quorum, limit, values, on_missing, after })
}

/// A bound of a scan.
fn bound(raw: &[u8]) -> Result<Bytes, BadRequest> {
    let bytes = bytes_of(raw)?;
    if bytes.len() > KEY_BYTES_MAX { Err(BadRequest::LongBound) } else { Ok(bytes) }
}

/// `0` or `1`.
fn flag(raw: Option<&[u8]>, name: &'static str) -> Result<Option<bool>, BadRequest> {
    match raw {
        None => Ok(None),
        Some(b"0") => Ok(Some(false)),
        Some(b"1") => Ok(Some(true)),
        Some(_) => Err(BadRequest::NotAFlag(name)),
    }
}

fn range(query: &[u8]) -> Result<Action, BadRequest> {
    let (mut start, mut end) = (None, None);
    for (name, value) in parameters(query) {
        match &*decode(name)? {
            b"start" => once(&mut start, "start", value)?,
            b"end" => once(&mut end, "end", value)?,
            other => return Err(unknown(other)),
        }
    }
    let bound = |raw: &[u8], empty: BadRequest| {
        let bytes = bytes_of(raw)?;
        if bytes.is_empty() { Err(empty) } else { Ok(bytes) }
    };
    let start = bound(start.unwrap_or_default(), BadRequest::MissingStart)?;
    let end = end.map(|raw| bound(raw, BadRequest::EmptyEnd)).transpose()?;
    Ok(Action::Range { start, end })
}

/// The raw names and values, without the empty pieces that a stray `&` leaves.
fn parameters(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|&byte| byte == b'&').filter(|piece| !piece.is_empty()).map(|piece| {
        let mut halves = piece.splitn(2, |&byte| byte == b'=');
        (halves.next().unwrap_or_default(), halves.next().unwrap_or_default())
    })
}

fn once<'q>(slot: &mut Option<&'q [u8]>, name: &'static str, value: &'q [u8]) -> Result<(), BadRequest> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(BadRequest::Repeated(name)),
    }
}

fn unknown(name: &[u8]) -> BadRequest {
    let name = name.get(..name.len().min(64)).unwrap_or_default();
    BadRequest::UnknownParameter(String::from_utf8_lossy(name).into_owned())
}

// Every request for an entity comes here, and the compiler would not for a function with two callers.
#[inline(always)]
fn key(raw: &[u8]) -> Result<Key, BadRequest> {
    // Each byte of a key takes three at most, so what is longer need not be decoded to be refused.
    if raw.len() > 3 * KEY_BYTES_MAX {
        return Err(BadRequest::LongId);
    }
    Key::new(bytes_of(raw)?).map_err(|error| match error {
        KeyError::Empty => BadRequest::EmptyId,
        KeyError::TooLong => BadRequest::LongId,
    })
}

/// The decoded bytes, copied out of the connection's read buffer, which they would otherwise keep alive.
fn bytes_of(raw: &[u8]) -> Result<Bytes, BadRequest> {
    Ok(match decode(raw)? {
        Cow::Borrowed(plain) => Bytes::copy_from_slice(plain),
        Cow::Owned(decoded) => Bytes::from(decoded),
    })
}

/// Decodes `application/x-www-form-urlencoded`, strictly: a `%` without two hexadecimal digits is an error.
fn decode(raw: &[u8]) -> Result<Cow<'_, [u8]>, BadRequest> {
    if !raw.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(Cow::Borrowed(raw));
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.iter().copied();
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                let value = high.zip(low).map(|(high, low)| high << 4 | low).ok_or(BadRequest::Escape)?;
                u8::try_from(value).expect("two hexadecimal digits make a byte")
            }
            plain => plain,
        });
    }
    Ok(Cow::Owned(decoded))
}

fn older_spelling(raw: &[u8]) -> Result<QuorumNumbers, BadRequest> {
    let decoded = decode(raw)?;
    let mut halves = decoded.splitn(2, |&byte| byte == b'/');
    let (ack, from) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    Ok(QuorumNumbers { ack: Some(decimal(ack, "replicas")?), from: Some(decimal(from, "replicas")?) })
}

/// Decimal digits alone; what does not fit is out of range anyway.
fn decimal(digits: &[u8], name: &'static str) -> Result<u32, BadRequest> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BadRequest::NotANumber(name));
    }
    let number = digits.iter().fold(0u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    Ok(number)
}

#[cfg(test)]
#[path = "tests/request.rs"]
mod tests;
