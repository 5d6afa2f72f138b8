//! What can go wrong with a request, and the only mapping of it to statuses.

use std::num::NonZeroU8;
use std::time::Duration;

use hyper::StatusCode;
use kvorum_core::Version;
use kvorum_core::quorum::NODES_MAX;
use kvorum_replication::coordinator::{Receipt, Refused};
use serde_json::{Value, json};

use super::api::PeerRefusal;
use super::bad_request::BadRequest;
use super::browsers::OriginRefusal;
use super::gate::AuthRefusal;

/// Why a request is not answered with what it asked for.
#[derive(Clone, Debug)]
pub(super) enum HttpError {
    BadRequest(BadRequest),
    /// No value: never written, deleted or expired.
    NotFound {
        /// The version of the deletion, if there is a record of one.
        deleted: Option<Version>,
        receipt: Option<Receipt>,
    },
    MethodNotAllowed {
        allow: &'static str,
    },
    /// For where the request comes from.
    Origin(OriginRefusal),
    /// For whose it is.
    Auth(AuthRefusal),
    /// The head or the body did not come in time.
    Timeout,
    ValueTooLarge {
        bytes_max: usize,
    },
    /// A batch whose operation at this place, a line or a frame, cannot be read.
    BatchItem {
        place: String,
        reason: String,
    },
    /// A batch that has a key a second time, at this place.
    DuplicateKey {
        place: usize,
    },
    /// A batch of too many operations or bytes.
    BatchTooLarge,
    /// The answers of a batch leave no room for this one.
    AnswerFull,
    /// A batch in another form.
    UnsupportedMediaType,
    /// A scan in neither form.
    NotAcceptable,
    /// A query or a script that is too long.
    WorkTooLarge,
    /// A query or a script that cannot be carried out, for a reason of its own.
    Unprocessable(String),
    /// Scripts are not wanted here.
    ScriptsOff,
    /// Of a scan, before its first byte.
    TooFewReplicas {
        required: u8,
        /// Ranges of their numbers.
        partitions: Value,
        /// Those of their replicas that do not answer.
        nodes: Vec<String>,
    },
    ConditionalWrite,
    /// Of a value that came in another coding than `chunked`.
    TransferCoding,
    /// This shard has as much of something as it may have.
    Shed(Shed),
    /// A probe whose answer is no.
    Unready(String),
    Refused(Refused),
    Peer(PeerRefusal),
    /// A bug of ours.
    Defect {
        request_id: RequestId,
    },
}

/// What the shard has no more room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shed {
    Connections,
    Address,
    Audit,
    Requests,
    Memory,
    Share,
    Reads,
    Scans,
    Scripts,
    Work,
    Draining,
}

/// Names one failed request in the log and in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<AuthRefusal> for HttpError {
    fn from(refusal: AuthRefusal) -> Self {
        Self::Auth(refusal)
    }
}

impl From<BadRequest> for HttpError {
    fn from(error: BadRequest) -> Self {
        Self::BadRequest(error)
    }
}

/// An error as the client sees it.
#[derive(Debug)]
pub(super) struct Problem {
    pub status: StatusCode,
    pub title: &'static str,
    pub detail: String,
    /// Members of this kind of problem alone.
    pub members: Vec<(&'static str, Value)>,
    /// Seconds after which a retry makes sense.
    pub retry_after: Option<NonZeroU8>,
}

const RETRY_AFTER: Option<NonZeroU8> = NonZeroU8::new(1);

impl Problem {
    fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, title, detail: detail.into(), members: Vec::new(), retry_after: None }
    }

    fn unavailable(title: &'static str, detail: impl Into<String>) -> Self {
        Self { retry_after: RETRY_AFTER, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, title, detail) }
    }
}

impl HttpError {
    /// What an operator gets.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn problem(&self) -> Problem {
        self.problem_naming(NodeNames::Urls)
    }

    /// The mapping: every kind of error has exactly one status. Nodes are named so.
    pub(super) fn problem_naming(&self, nodes: NodeNames) -> Problem {
        match self {
            Self::BadRequest(error) => Problem::new(StatusCode::BAD_REQUEST, "Bad Request", error.to_string()),
            Self::NotFound { .. } => Problem::new(StatusCode::NOT_FOUND, "Not Found", "no value has this id"),
            Self::MethodNotAllowed { allow } => {
                let detail = format!("the methods of this path are {allow}");
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed", detail)
            }
            Self::Origin(refusal @ OriginRefusal::Foreign) => {
                Problem::new(StatusCode::FORBIDDEN, "Forbidden", refusal.to_string())
            }
            Self::Origin(refusal @ OriginRefusal::Misdirected) => {
                Problem::new(StatusCode::MISDIRECTED_REQUEST, "Misdirected Request", refusal.to_string())
            }
            Self::Auth(refusal) => unauthorized(refusal),
            Self::Timeout => {
                let detail = "the request was not complete in time";
                Problem::new(StatusCode::REQUEST_TIMEOUT, "Request Timeout", detail)
            }
            Self::ValueTooLarge { bytes_max } => Problem {
                members: vec![("limit", json!(bytes_max))],
                ..Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "Value Too Large",
                    format!("a value has at most {bytes_max} bytes"),
                )
            },
            Self::BatchItem { .. }
            | Self::DuplicateKey { .. }
            | Self::BatchTooLarge
            | Self::AnswerFull
            | Self::UnsupportedMediaType
            | Self::NotAcceptable
            | Self::WorkTooLarge
            | Self::Unprocessable(_)
            | Self::ScriptsOff
            | Self::TooFewReplicas { .. } => self.of_many(),
            Self::ConditionalWrite => {
                let detail = "conditional writes are not supported yet, and ignoring the condition would overwrite";
                Problem::new(StatusCode::NOT_IMPLEMENTED, "Not Implemented", detail)
            }
            Self::TransferCoding => {
                let detail = "the only transfer coding is `chunked`: send the value as it is";
                Problem::new(StatusCode::NOT_IMPLEMENTED, "Not Implemented", detail)
            }
            Self::Shed(shed) => Problem::unavailable("Overloaded", shed.detail()),
            Self::Unready(detail) => Problem::unavailable("Not Ready", detail.as_str()),
            Self::Refused(refused) => Self::refused(refused, nodes),
            Self::Peer(refusal) => Problem::new(refusal.status, refusal.title, refusal.detail.as_str()),
            Self::Defect { request_id } => Problem {
                members: vec![("request_id", json!(request_id.to_string()))],
                ..Problem::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "Internal Server Error",
                    format!("a defect; the node's log has more under request id {request_id}"),
                )
            },
        }
    }

    /// The same, of batches, scans, queries and scripts.
    fn of_many(&self) -> Problem {
        match self {
            Self::BatchItem { place, reason } => {
                Problem::new(StatusCode::BAD_REQUEST, "Bad Request", format!("{place} of the batch: {reason}"))
            }
            Self::DuplicateKey { place } => {
                let detail = format!("operation {place} of the batch has a key that one before it has");
                Problem::new(StatusCode::BAD_REQUEST, "Duplicate Key", detail)
            }
            Self::BatchTooLarge => {
                let detail = "a batch has at most 1000 operations and 8 MiB: send it in parts";
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "Batch Too Large", detail)
            }
            Self::AnswerFull => {
                let detail = "the answers of the batch are full: get this key again, alone";
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "Answer Too Large", detail)
            }
            Self::UnsupportedMediaType => {
                let detail = "a batch is `application/x-ndjson` or `application/vnd.kvorum.frames`";
                Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported Media Type", detail)
            }
            Self::NotAcceptable => {
                let detail = "a scan is answered as `application/x-ndjson` or `application/vnd.kvorum.frames`";
                Problem::new(StatusCode::NOT_ACCEPTABLE, "Not Acceptable", detail)
            }
            Self::WorkTooLarge => {
                let detail = "a query, and a script, has at most 64 KiB";
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "Work Too Large", detail)
            }
            Self::Unprocessable(detail) => {
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Unprocessable Content", detail.as_str())
            }
            Self::ScriptsOff => {
                let detail = "scripts are off: the setting `scripts.enabled` of each node allows them";
                Problem::new(StatusCode::NOT_IMPLEMENTED, "Not Implemented", detail)
            }
            Self::TooFewReplicas { required, partitions, nodes } => Problem {
                members: vec![
                    ("required", json!(required)),
                    ("partitions", partitions.clone()),
                    ("nodes", json!(nodes)),
                ],
                ..Problem::new(
                    StatusCode::GATEWAY_TIMEOUT,
                    NOT_ENOUGH_REPLICAS,
                    format!(
                        "fewer than {required} replicas of some partitions answer: `partial=1` goes on without them"
                    ),
                )
            },
            _ => unreachable!("the errors of batches, scans and work are these"),
        }
    }

    fn refused(refused: &Refused, nodes: NodeNames) -> Problem {
        match refused {
            Refused::Overloaded => Problem::unavailable("Overloaded", "a queue is full; the request had no effect"),
            Refused::Behind => Problem::unavailable(
                "Overloaded",
                "the replicas' disks are behind with what was written before; the request had no effect: write more slowly",
            ),
            Refused::CannotWrite => {
                Problem::unavailable("Cannot Write", "the node cannot write to its disk; the request had no effect")
            }
            Refused::Fenced => Problem::unavailable("Fenced", "the node's clock is off; the request had no effect"),
            Refused::NotServing => {
                let detail = "too few peers have registered this node: start those that /readyz names; \
                              the request had no effect";
                Problem::unavailable("Not Serving", detail)
            }
            Refused::NotEnough { required, acked, receipt } => Problem {
                members: vec![
                    ("required", json!(required)),
                    ("acked", json!(acked)),
                    ("replicas", replicas(receipt, nodes)),
                ],
                ..Problem::new(
                    StatusCode::GATEWAY_TIMEOUT,
                    NOT_ENOUGH_REPLICAS,
                    format!("{acked} of the {required} required replicas answered; a write may still take effect"),
                )
            },
        }
    }

    /// The receipt that a traced request gets back even where it failed.
    pub(super) fn receipt(&self) -> Option<&Receipt> {
        match self {
            Self::NotFound { receipt, .. } => receipt.as_ref(),
            Self::Refused(Refused::NotEnough { receipt, .. }) => Some(receipt),
            Self::Refused(
                Refused::Overloaded | Refused::Behind | Refused::CannotWrite | Refused::Fenced | Refused::NotServing,
            )
            | Self::BadRequest(_)
            | Self::MethodNotAllowed { .. }
            | Self::Origin(_)
            | Self::Auth(_)
            | Self::Timeout
            | Self::ValueTooLarge { .. }
            | Self::BatchItem { .. }
            | Self::DuplicateKey { .. }
            | Self::BatchTooLarge
            | Self::AnswerFull
            | Self::UnsupportedMediaType
            | Self::NotAcceptable
            | Self::WorkTooLarge
            | Self::Unprocessable(_)
            | Self::ScriptsOff
            | Self::TooFewReplicas { .. }
            | Self::ConditionalWrite
            | Self::TransferCoding
            | Self::Shed(_)
            | Self::Unready(_)
            | Self::Peer(_)
            | Self::Defect { .. } => None,
        }
    }
}

fn unauthorized(refusal: &AuthRefusal) -> Problem {
    let problem = |status, title| Problem::new(status, title, refusal.to_string());
    let too_many = |after: &Duration| {
        // Of a limit that ends with a request, at a time that is not known: a second.
        let seconds = u8::try_from(after.as_millis().div_ceil(1000).max(1)).unwrap_or(u8::MAX);
        let problem = problem(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests");
        Problem { retry_after: NonZeroU8::new(seconds), ..problem }
    };
    match refusal {
        AuthRefusal::Missing | AuthRefusal::Scheme | AuthRefusal::Malformed(_) | AuthRefusal::Key(_) => {
            problem(StatusCode::UNAUTHORIZED, "Unauthorized")
        }
        AuthRefusal::InQuery => problem(StatusCode::BAD_REQUEST, "Bad Request"),
        AuthRefusal::Forbidden { needed, .. } => {
            Problem { members: vec![("needs", json!(needed))], ..problem(StatusCode::FORBIDDEN, "Forbidden") }
        }
        AuthRefusal::Blocked { retry_after } => too_many(retry_after),
        AuthRefusal::Over(over) => {
            Problem { members: vec![("limit", json!(over.limit))], ..too_many(&over.retry_after) }
        }
    }
}

/// How nodes are named in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeNames {
    Urls,
    /// By their place among the replicas, for those that may not see what the cluster is made of.
    Ranks,
}

/// A kind of error, for the reference. A test holds the table against what is answered.
#[derive(Debug)]
pub struct ErrorKind {
    /// Its status.
    pub status: u16,
    /// Its title; the words of `type`, too.
    pub title: &'static str,
    /// When it is answered, and what it means for the request.
    pub when: &'static str,
    /// Members of its own.
    pub members: &'static [&'static str],
}

const fn kind(status: u16, title: &'static str, when: &'static str, members: &'static [&'static str]) -> ErrorKind {
    ErrorKind { status, title, when, members }
}

/// What hyper answers by itself, without a body.
pub const HEAD_TOO_LARGE: ErrorKind = kind(
    431,
    "Request Header Fields Too Large",
    "The request's head is over 16 KiB. There is no body, and the connection is closed.",
    &[],
);

/// Every kind of error that has a body.
pub static ERRORS: &[ErrorKind] = &[
    kind(
        400,
        "Bad Request",
        "`id` is empty, absent, repeated, too long or cannot be decoded. `ack` or `from` is no number or out of range. The \
         path or a parameter is unknown. The HTTP is malformed. A line or frame of a batch cannot be read. `detail` \
         says which.",
        &[],
    ),
    kind(400, "Duplicate Key", "Two operations of a batch have the same key. No operation had an effect.", &[]),
    kind(
        401,
        "Unauthorized",
        "There is a file of keys (`auth.file`), and the header `Authorization: Bearer` has no key, or one that is \
         malformed, unknown or expired. `detail` says which.",
        &[],
    ),
    kind(
        403,
        "Forbidden",
        "The key's role lacks the right in `needs`, over this key, over the whole range in one grant, or over the node. \
         It is answered before anything is looked up.",
        &["needs"],
    ),
    kind(
        403,
        "Forbidden",
        "The request comes from a page of another origin, which `http.allowed_origins` does not name.",
        &[],
    ),
    kind(404, "Not Found", "No value has this `id`: never written, deleted or expired.", &[]),
    kind(
        405,
        "Method Not Allowed",
        "The path does not have this method. The header `Allow` has those that it has.",
        &[],
    ),
    kind(
        406,
        "Not Acceptable",
        "The header `Accept` of a scan allows neither `application/x-ndjson` nor `application/vnd.kvorum.frames`.",
        &[],
    ),
    kind(408, "Request Timeout", "Head or body was not complete within `limits.request_read_timeout`.", &[]),
    kind(409, "Not A Peer", "Between nodes: a handshake that is refused.", &[]),
    kind(
        413,
        "Value Too Large",
        "The value is over `limits.value_bytes_max`, which `limit` repeats. `Content-Length`, where it is given, decides \
         before the body is read.",
        &["limit"],
    ),
    kind(413, "Batch Too Large", "A batch has over 1,000 operations, or over 8 MiB. No operation had an effect.", &[]),
    kind(
        413,
        "Answer Too Large",
        "An operation of a batch: the answers have reached 8 MiB. Get the key again, alone.",
        &[],
    ),
    kind(413, "Work Too Large", "A query, or a script, is over 64 KiB.", &[]),
    kind(
        415,
        "Unsupported Media Type",
        "A batch is `application/x-ndjson`, which is the default, or `application/vnd.kvorum.frames`.",
        &[],
    ),
    kind(
        421,
        "Misdirected Request",
        "`Host`, or the authority of a target in absolute form, is no name that `http.allowed_hosts` has.",
        &[],
    ),
    kind(
        422,
        "Unprocessable Content",
        "A query has over 10,000 groups, or holds over 4 MiB. Or a script has failed, or has taken more than it may: \
         `detail` has its message and the line.",
        &[],
    ),
    kind(
        429,
        "Too Many Requests",
        "More than five requests a second of this address had no valid key: those without one get this for ten \
         seconds.",
        &[],
    ),
    kind(
        429,
        "Too Many Requests",
        "The key's principal is over the limit of its role that `limit` names, on this node. `Retry-After` says when \
         another request may pass.",
        &["limit"],
    ),
    kind(
        500,
        "Internal Server Error",
        "A defect of the node, which has logged it under the id in `request_id`.",
        &["request_id"],
    ),
    kind(
        501,
        "Not Implemented",
        "A PUT or DELETE has a condition, which would be ignored and the value overwritten. Or a value came in another \
         transfer coding than `chunked`. Or scripts are off (`scripts.enabled`).",
        &[],
    ),
    kind(
        503,
        "Overloaded",
        "The node has as many connections, requests, reads or bytes of values as it may have, drains, or the replicas' \
         disks are behind.",
        &[],
    ),
    kind(503, "Not Ready", "A probe whose answer is no, or a backup that cannot be taken.", &[]),
    kind(503, "Cannot Write", "The node cannot write to its disk, and the other replicas are not enough.", &[]),
    kind(503, "Fenced", "The node's clock is too far from most of its peers' clocks.", &[]),
    kind(503, "Not Serving", "The node's directory is new, and a majority of its peers has not recorded it yet.", &[]),
    kind(
        504,
        NOT_ENOUGH_REPLICAS,
        "Fewer replicas than `ack` answered before `coordinator.deadline`. A write may still take effect. `required` and \
         `acked` are numbers, and `replicas` has the outcome of each.",
        &["required", "acked", "replicas"],
    ),
    kind(
        504,
        NOT_ENOUGH_REPLICAS,
        "Of a scan: fewer replicas than `ack` answer for `partitions`, which are ranges of numbers. `nodes` are those of \
         their replicas that do not.",
        &["required", "partitions", "nodes"],
    ),
];

/// Title and reason phrase of a 504.
pub(super) const NOT_ENOUGH_REPLICAS: &str = "Not Enough Replicas";

impl Shed {
    fn detail(self) -> &'static str {
        match self {
            Self::Connections => "as many connections are open as may be",
            Self::Address => "as many connections of this address are open as may be",
            Self::Audit => "as many lines of the audit are waiting as may wait; the request had no effect",
            Self::Requests => "as many requests are in flight as may be; this one had no effect",
            Self::Memory => "as many bytes of values are buffered as may be; the request had no effect",
            Self::Share => "the client holds as many bytes of large values as one may; the request had no effect",
            Self::Scans => "as many scans are under way as there is memory for",
            Self::Scripts => {
                "there is no worker for the script: as many run as may, or the node's log says why none starts"
            }
            Self::Work => "a node of the cluster has no room, or no worker, for its part of the work",
            Self::Reads => "as many reads from disk are waiting as may wait",
            Self::Draining => "the node is stopping",
        }
    }
}

fn replicas(receipt: &Receipt, nodes: NodeNames) -> Value {
    let each = receipt.replicas.iter().take(NODES_MAX).enumerate().map(|(rank, replica)| {
        json!({
            "node": match nodes {
                NodeNames::Urls => replica.node.to_string(),
                NodeNames::Ranks => format!("r{rank}"),
            },
            "outcome": replica.outcome,
            "version": replica.version.map(|version| version.to_string()),
            "micros": replica.micros,
        })
    });
    Value::Array(each.collect())
}

#[cfg(test)]
#[path = "tests/error.rs"]
mod tests;
