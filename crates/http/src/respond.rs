//! Answers as HTTP: statuses, headers and bodies, and nothing about why.

use std::fmt::Write as _;
use std::io::Write as _;

use bytes::{BufMut, Bytes};
use httpdate::HttpDate;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use kvorum_core::{Record, Version};
use kvorum_replication::coordinator::Receipt;

use super::body::ResponseBody;
use super::error::{HttpError, NOT_ENOUGH_REPLICAS};
use super::problem;
use super::problem::PROBLEM_JSON;
use super::range::RangeBody;

/// An answer that is not an error.
#[derive(Debug)]
pub(super) enum SuccessResponse {
    Stored {
        version: Version,
        receipt: Option<Receipt>,
    },
    Deleted {
        version: Version,
        receipt: Option<Receipt>,
    },
    Value {
        record: Record,
        receipt: Option<Receipt>,
    },
    NotModified {
        version: Version,
        receipt: Option<Receipt>,
    },
    Range(Box<RangeBody>),
    Page {
        content_type: &'static str,
        content: Bytes,
    },
    /// A round of anti-entropy will be driven, with this number.
    Begun {
        round: u64,
    },
    SwitchProtocols(HeaderMap),
}

/// An error, and whether the connection can still be understood after it.
#[derive(Debug)]
pub(super) struct ErrorResponse {
    pub error: HttpError,
    pub framing: Framing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Kept,
    Lost,
}

/// What of the request shapes the form of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub traced: bool,
    /// An answer to HTTP/1.0 says that the connection ends.
    pub one_shot: bool,
}

static KVORUM_REPLICAS: HeaderName = HeaderName::from_static("kvorum-replicas");
static SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Puts an answer into HTTP. `headers` is any empty map: the request's own saves an allocation.
pub(super) fn response(
    answer: Result<SuccessResponse, ErrorResponse>,
    mut headers: HeaderMap,
    form: Form,
) -> Response<ResponseBody> {
    debug_assert!(headers.is_empty(), "the answer starts without headers");
    let mut reason = None;
    let (status, body) = match answer {
        Ok(answer) => success(answer, &mut headers, form),
        Err(ErrorResponse { error, framing }) => {
            if framing == Framing::Lost {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            let (status, body) = failure(&error, &mut headers, form);
            if status == StatusCode::GATEWAY_TIMEOUT {
                reason = Some(hyper::ext::ReasonPhrase::from_static(NOT_ENOUGH_REPLICAS.as_bytes()));
            }
            (status, ResponseBody::whole(body.into()))
        }
    };
    let mut response = Response::new(body);
    if form.one_shot {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        // Else hyper adds `keep-alive` where the client has asked for it.
        *response.version_mut() = hyper::Version::HTTP_10;
    }
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(reason) = reason {
        response.extensions_mut().insert(reason);
    }
    response
}

fn success(answer: SuccessResponse, headers: &mut HeaderMap, form: Form) -> (StatusCode, ResponseBody) {
    match answer {
        SuccessResponse::Stored { version, receipt } => {
            versioned(headers, version, receipt.as_ref(), form);
            (StatusCode::CREATED, ResponseBody::empty())
        }
        SuccessResponse::Deleted { version, receipt } => {
            versioned(headers, version, receipt.as_ref(), form);
            (StatusCode::ACCEPTED, ResponseBody::empty())
        }
        SuccessResponse::NotModified { version, receipt } => {
            versioned(headers, version, receipt.as_ref(), form);
            (StatusCode::NOT_MODIFIED, ResponseBody::empty())
        }
        SuccessResponse::Value { record, receipt } => {
            versioned(headers, record.version(), receipt.as_ref(), form);
            headers.insert(header::LAST_MODIFIED, last_modified(record.version()));
            headers.insert(header::CONTENT_TYPE, content_type(&record));
            (StatusCode::OK, ResponseBody::whole(record.payload()))
        }
        SuccessResponse::Range(range) => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(OCTETS));
            (StatusCode::OK, ResponseBody::Range(range))
        }
        SuccessResponse::Page { content_type, content } => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            (StatusCode::OK, ResponseBody::whole(content))
        }
        SuccessResponse::Begun { round } => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            (StatusCode::ACCEPTED, ResponseBody::whole(format!("{{\"round\": {round}}}\n").into()))
        }
        SuccessResponse::SwitchProtocols(peer) => {
            *headers = peer;
            (StatusCode::SWITCHING_PROTOCOLS, ResponseBody::empty())
        }
    }
}

fn failure(error: &HttpError, headers: &mut HeaderMap, form: Form) -> (StatusCode, Vec<u8>) {
    let problem = error.problem();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    match error {
        HttpError::NotFound { deleted: Some(version), .. } => {
            headers.insert(header::ETAG, etag(*version));
        }
        HttpError::MethodNotAllowed { allow } => {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        _ => {}
    }
    if let Some(seconds) = problem.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(u16::from(seconds.get())));
    }
    if let Some(receipt) = error.receipt().filter(|_| form.traced) {
        traced(headers, receipt);
    }
    (problem.status, problem::document(&problem))
}

/// An error as raw bytes, for a connection on which hyper cannot answer; it says that it closes.
pub(super) fn raw(error: &HttpError, wall: std::time::SystemTime) -> Vec<u8> {
    let mut headers = HeaderMap::new();
    let (status, body) = failure(error, &mut headers, Form { traced: false, one_shot: true });
    let mut raw = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for (name, value) in &headers {
        raw.extend_from_slice(name.as_str().as_bytes());
        raw.extend_from_slice(b": ");
        raw.extend_from_slice(value.as_bytes());
        raw.extend_from_slice(b"\r\n");
    }
    let date = httpdate::fmt_http_date(wall);
    let rest = format!("content-length: {}\r\nconnection: close\r\ndate: {date}\r\n\r\n", body.len());
    raw.extend_from_slice(rest.as_bytes());
    raw.extend_from_slice(&body);
    raw
}

const OCTETS: &str = "application/octet-stream";

fn versioned(headers: &mut HeaderMap, version: Version, receipt: Option<&Receipt>, form: Form) {
    headers.insert(header::ETAG, etag(version));
    if let Some(receipt) = receipt.filter(|_| form.traced) {
        traced(headers, receipt);
    }
}

/// The version as an entity tag: the text of its `Display` in quotes, written by hand because every
/// answer has one.
pub(super) fn etag(version: Version) -> HeaderValue {
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    let digits = version.encode().map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    let (hlc, incarnation) = digits.as_flattened().split_at(16);
    let mut tag = [0; 2 * Version::BYTES + 3];
    let mut rest = tag.as_mut_slice();
    for part in [b"\"", hlc, b"-", incarnation, b"\""] {
        rest.put_slice(part);
    }
    HeaderValue::from_bytes(&tag).expect("hexadecimal digits are visible characters")
}

fn last_modified(version: Version) -> HeaderValue {
    // The calendar of HTTP ends with the year 9999.
    let millis = version.hlc.millis().min(253_402_300_799_000);
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
    // Into room of its own, because every answer with a value has one: a `String` would grow, and be copied.
    let mut text = [0; "Thu, 01 Jan 1970 00:00:00 GMT".len()];
    write!(text.as_mut_slice(), "{}", HttpDate::from(time)).expect("every date has this length");
    HeaderValue::from_bytes(&text).expect("a date is visible characters")
}

fn content_type(record: &Record) -> HeaderValue {
    let octets = HeaderValue::from_static(OCTETS);
    record.content_type().map_or(octets.clone(), |stored| HeaderValue::from_bytes(stored).unwrap_or(octets))
}

fn traced(headers: &mut HeaderMap, receipt: &Receipt) {
    let (mut timing, mut replicas) = (String::new(), String::new());
    for (rank, replica) in receipt.replicas.iter().enumerate() {
        let separator = if rank == 0 { "" } else { ", " };
        let _ = write!(timing, "{separator}r{rank};desc=\"{}\"", replica.node);
        if let Some(micros) = replica.micros {
            let _ = write!(timing, ";dur={}.{:03}", micros / 1000, micros % 1000);
        }
        let _ = write!(replicas, "{separator}{}={}", replica.node, replica.outcome);
        if let Some(version) = replica.version {
            let _ = write!(replicas, "@{version}");
        }
    }
    // A node whose URL cannot stand in a header is left out of it, with its fellows.
    if let (Ok(timing), Ok(replicas)) = (HeaderValue::try_from(timing), HeaderValue::try_from(replicas)) {
        headers.insert(SERVER_TIMING.clone(), timing);
        headers.insert(KVORUM_REPLICAS.clone(), replicas);
    }
}

/// Whether one of the `If-None-Match` fields names this version.
pub(super) fn none_match_fails(headers: &HeaderMap, version: Version) -> bool {
    let current = etag(version);
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .flat_map(|field| field.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .any(|tag| {
            // The comparison is the weak one (RFC 9110, 13.1.2).
            tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == current.as_bytes()
        })
}
