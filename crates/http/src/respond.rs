//! Answers as HTTP: statuses, headers and bodies, and nothing about why.

use std::fmt::Write as _;

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use kvorum_core::{Record, Version};
use kvorum_replication::coordinator::Receipt;

use super::answer_lines::{AnswerLines, etag};
use super::body::ResponseBody;
use super::error::{HttpError, NOT_ENOUGH_REPLICAS, NodeNames};
use super::problem;
use super::problem::PROBLEM_JSON;
use super::range::RangeBody;
use super::scan::ScanBody;
use super::shares::Share;

/// An answer that is not an error.
#[derive(Debug)]
pub(super) enum SuccessResponse {
    Stored {
        version: Version,
        expires_ms: Option<u64>,
        receipt: Option<Receipt>,
    },
    Deleted {
        version: Version,
        receipt: Option<Receipt>,
    },
    Value {
        record: Record,
        receipt: Option<Receipt>,
        /// Whose memory it takes until the client has it, if it is large.
        share: Option<Box<Share>>,
    },
    NotModified {
        record: Record,
        receipt: Option<Receipt>,
    },
    Range(Box<RangeBody>),
    Scan {
        content_type: &'static str,
        body: Box<ScanBody>,
    },
    Batch {
        content_type: &'static str,
        content: Bytes,
        share: Option<Box<Share>>,
    },
    /// Which requests a page of another, allowed origin may send.
    Preflight {
        allow: &'static str,
    },
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
    /// Whether another `Origin` may get other headers.
    pub varies: bool,
    /// What the answer calls nodes.
    pub nodes: NodeNames,
}

static KVORUM_REPLICAS: HeaderName = HeaderName::from_static("kvorum-replicas");
static SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What a page of an allowed origin may send, and read of an answer, besides what every page may.
const CORS_REQUEST_HEADERS: &str = "authorization, content-type, if-none-match, kvorum-trace";
const CORS_ANSWER_HEADERS: &str = "etag, kvorum-expires, kvorum-replicas, retry-after, server-timing";
/// Seconds for which a browser need not ask again.
const CORS_MAX_AGE: &str = "600";
/// Which lines the answer has that go past the map of headers.
pub(super) fn lines(answer: &Result<SuccessResponse, ErrorResponse>) -> AnswerLines {
    match answer {
        Ok(SuccessResponse::Value { record, .. }) => {
            AnswerLines { has_value: true, version: Some(record.version()), expires_ms: record.expires_ms() }
        }
        Ok(SuccessResponse::Range(_) | SuccessResponse::Scan { .. } | SuccessResponse::Batch { .. }) => {
            AnswerLines { has_value: true, ..AnswerLines::PLAIN }
        }
        Ok(SuccessResponse::Stored { version, expires_ms, .. }) => {
            AnswerLines { has_value: false, version: Some(*version), expires_ms: *expires_ms }
        }
        Ok(SuccessResponse::NotModified { record, .. }) => {
            AnswerLines { has_value: false, version: Some(record.version()), expires_ms: record.expires_ms() }
        }
        Ok(SuccessResponse::Deleted { version, .. })
        | Err(ErrorResponse { error: HttpError::NotFound { deleted: Some(version), .. }, .. }) => {
            AnswerLines { version: Some(*version), ..AnswerLines::PLAIN }
        }
        _ => AnswerLines::PLAIN,
    }
}

/// Puts an answer into HTTP. `headers` is any empty map: the request's own saves an allocation. `allowed` is the origin
/// whose page may read it.
pub(super) fn response(
    answer: Result<SuccessResponse, ErrorResponse>,
    mut headers: HeaderMap,
    form: Form,
    allowed: Option<HeaderValue>,
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
    if let Some(origin) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(CORS_ANSWER_HEADERS));
    }
    if form.varies {
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
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
        SuccessResponse::Stored { receipt, .. } => {
            receipted(headers, receipt.as_ref(), form);
            (StatusCode::CREATED, ResponseBody::empty())
        }
        SuccessResponse::Deleted { receipt, .. } => {
            receipted(headers, receipt.as_ref(), form);
            (StatusCode::ACCEPTED, ResponseBody::empty())
        }
        SuccessResponse::NotModified { receipt, .. } => {
            receipted(headers, receipt.as_ref(), form);
            (StatusCode::NOT_MODIFIED, ResponseBody::empty())
        }
        SuccessResponse::Value { record, receipt, share } => {
            receipted(headers, receipt.as_ref(), form);
            headers.insert(header::CONTENT_TYPE, content_type(&record));
            let payload = record.payload();
            let payload = match share {
                None => payload,
                Some(share) => share.kept_by(payload),
            };
            (StatusCode::OK, ResponseBody::whole(payload))
        }
        SuccessResponse::Range(range) => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(OCTETS));
            (StatusCode::OK, ResponseBody::Range(range))
        }
        SuccessResponse::Scan { content_type, body } => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            (StatusCode::OK, ResponseBody::Scan(body))
        }
        SuccessResponse::Batch { content_type, content, share } => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            let content = match share {
                None => content,
                Some(share) => share.kept_by(content),
            };
            (StatusCode::OK, ResponseBody::whole(content))
        }
        SuccessResponse::Preflight { allow } => {
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(allow));
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(CORS_REQUEST_HEADERS));
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(CORS_MAX_AGE));
            (StatusCode::NO_CONTENT, ResponseBody::empty())
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
    let problem = error.problem_naming(form.nodes);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    match error {
        HttpError::Auth(_) if problem.status == StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"kvorum\""));
        }
        HttpError::MethodNotAllowed { allow } => {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        _ => {}
    }
    if let Some(seconds) = problem.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(u16::from(seconds.get())));
    }
    receipted(headers, error.receipt(), form);
    (problem.status, problem::document(&problem))
}

/// An error as raw bytes, for a connection on which hyper cannot answer; it says that it closes.
pub(super) fn raw(error: &HttpError, wall: std::time::SystemTime) -> Vec<u8> {
    let mut headers = HeaderMap::new();
    let form = Form { traced: false, one_shot: true, varies: false, nodes: NodeNames::Ranks };
    let (status, body) = failure(error, &mut headers, form);
    let mut raw = format!("HTTP/1.1 {status}\r\n").into_bytes();
    AnswerLines::PLAIN.write(&mut raw);
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

fn receipted(headers: &mut HeaderMap, receipt: Option<&Receipt>, form: Form) {
    if let Some(receipt) = receipt.filter(|_| form.traced) {
        traced(headers, receipt, form.nodes);
    }
}

fn content_type(record: &Record) -> HeaderValue {
    let octets = HeaderValue::from_static(OCTETS);
    record.content_type().map_or(octets.clone(), |stored| HeaderValue::from_bytes(stored).unwrap_or(octets))
}

fn traced(headers: &mut HeaderMap, receipt: &Receipt, nodes: NodeNames) {
    let (mut timing, mut replicas) = (String::new(), String::new());
    for (rank, replica) in receipt.replicas.iter().enumerate() {
        let separator = if rank == 0 { "" } else { ", " };
        let _ = write!(timing, "{separator}r{rank}");
        if nodes == NodeNames::Urls {
            let _ = write!(timing, ";desc=\"{}\"", replica.node);
        }
        if let Some(micros) = replica.micros {
            let _ = write!(timing, ";dur={}.{:03}", micros / 1000, micros % 1000);
        }
        let _ = match nodes {
            NodeNames::Urls => write!(replicas, "{separator}{}={}", replica.node, replica.outcome),
            NodeNames::Ranks => write!(replicas, "{separator}r{rank}={}", replica.outcome),
        };
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
            tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == current
        })
}
