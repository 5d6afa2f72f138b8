//! One request: from its head to its answer.
//!
//! A request that is refused before its body is read has that body swallowed, within the limit of a
//! value, so that the connection goes on; where the client waits for `100 Continue`, or announces more
//! than the limit, the connection ends instead.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, Version};
use kvorum_base::value_memory;
use kvorum_core::Key;
use kvorum_core::quorum::Held;
use kvorum_core::quorum::Quorum;
use kvorum_core::record::CONTENT_TYPE_BYTES_MAX;
use kvorum_replication::coordinator::{ReadResult, WithReceipt};

use super::api::Entities;
use super::body::{BodyError, ResponseBody, declared_length, gather, swallow};
use super::error::{BadRequest, HttpError, Shed};
use super::in_flight::InFlightGuard;
use super::metrics::MethodLabel;
use super::range::RangeError;
use super::request::parse;
use super::respond::{ErrorResponse, Form, Framing, SuccessResponse, none_match_fails, response};
use super::routes::{Action, Verb};
use super::shard::HelloHeaders;
use super::shard::HttpShard;
use super::watch::{ConnectionPhase, ConnectionWatch};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// What `exposition.rs` writes.
const EXPOSITION: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves one request of a connection.
pub(super) async fn handle<E: Entities>(
    shard: Rc<HttpShard<E>>,
    watch: Rc<ConnectionWatch>,
    hello: HelloHeaders,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let started = Instant::now();
    let busy = shard.busy(&watch);
    let (head, body) = request.into_parts();
    let method = MethodLabel::of(&head.method);
    let fields = Fields::of(&head.headers);
    let form = Form { traced: fields.is_traced(), one_shot: head.version == Version::HTTP_10 };
    let exchange = Exchange { shard: &shard, watch: &watch, busy: &busy, hello: &hello, head: &head, fields, body };
    let mut answer = exchange.answer().await;
    if let Ok(SuccessResponse::Range(range)) = &mut answer {
        range.hold(busy);
    }
    let mut headers = head.headers;
    headers.clear();
    let response = response(answer, headers, form);
    shard.metrics().answered(method, response.status(), started.elapsed());
    Ok(response)
}

static KVORUM_TRACE: HeaderName = HeaderName::from_static("kvorum-trace");

/// What the headers of a request for an entity say, found in one pass: a request has a few of them, and to look one
/// up is to hash its name.
#[derive(Clone, Copy, Default)]
struct Fields<'a> {
    hosts: usize,
    trace: Option<&'a HeaderValue>,
    /// Whether a header makes the request conditional: those of RFC 9110, 13.1 and their extensions begin with `If-`.
    is_conditional: bool,
    has_content_range: bool,
    is_chunked: bool,
    /// Whether there is a transfer coding beside one `chunked`, in the same line or in another.
    is_coded: bool,
    content_type: Option<&'a HeaderValue>,
}

impl<'a> Fields<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            if name == header::HOST {
                fields.hosts += 1;
            } else if name == header::CONTENT_TYPE {
                fields.content_type.get_or_insert(value);
            } else if name == header::CONTENT_RANGE {
                fields.has_content_range = true;
            } else if name == header::TRANSFER_ENCODING {
                fields.is_coded |= fields.is_chunked || !value.as_bytes().eq_ignore_ascii_case(b"chunked");
                fields.is_chunked = true;
            } else if name.as_str().starts_with("if-") {
                fields.is_conditional = true;
            } else if *name == KVORUM_TRACE {
                fields.trace.get_or_insert(value);
            }
        }
        fields
    }

    fn is_traced(&self) -> bool {
        self.trace.is_some_and(|value| value.as_bytes() == b"1")
    }

    /// What they can rule out.
    fn check(&self, verb: Verb) -> Result<(), HttpError> {
        if verb == Verb::Get {
            return Ok(());
        }
        if self.is_conditional {
            return Err(HttpError::ConditionalWrite);
        }
        if verb == Verb::Put {
            // The framing is understood, and the value would be stored as it was coded for the way.
            if self.is_coded {
                return Err(HttpError::TransferCoding);
            }
            if self.has_content_range {
                return Err(BadRequest::ContentRange.into());
            }
            if self.content_type.is_some_and(|value| value.len() > CONTENT_TYPE_BYTES_MAX) {
                return Err(BadRequest::LongContentType.into());
            }
        }
        Ok(())
    }
}

/// A request being answered.
struct Exchange<'a, E> {
    shard: &'a HttpShard<E>,
    watch: &'a ConnectionWatch,
    busy: &'a InFlightGuard,
    hello: &'a HelloHeaders,
    head: &'a Parts,
    fields: Fields<'a>,
    body: Incoming,
}

impl<E: Entities> Exchange<'_, E> {
    async fn answer(mut self) -> Result<SuccessResponse, ErrorResponse> {
        match self.check() {
            Ok(Action::Entity { verb: Verb::Put, key, quorum }) => self.put(key, quorum).await,
            Ok(action) => {
                if !self.body.is_end_stream() {
                    self.swallow().await?;
                }
                if matches!(action, Action::Entity { .. } | Action::Range { .. }) {
                    self.admit().await?;
                }
                self.act(action).await.map_err(kept)
            }
            Err(error) => Err(self.reject(error).await),
        }
    }

    /// Takes room among the requests in flight: not before all of this one has come, so that a client which sends
    /// slowly takes none from others.
    async fn admit(&self) -> Result<(), ErrorResponse> {
        self.shard.admit(self.busy).await.map_err(kept)
    }

    /// Everything that can be checked without the body.
    fn check(&self) -> Result<Action, HttpError> {
        let Parts { method, uri, version, .. } = self.head;
        if *version == Version::HTTP_11 && self.fields.hosts != 1 {
            return Err(BadRequest::Host.into());
        }
        let action = parse(method, uri.path(), uri.query(), self.shard.defaults())?;
        if let Action::Entity { verb, .. } = &action {
            self.fields.check(*verb)?;
            if *verb == Verb::Put {
                self.declared_length().map_err(|_| self.too_large())?;
            }
        }
        Ok(action)
    }

    async fn put(&mut self, key: Key, quorum: Quorum) -> Result<SuccessResponse, ErrorResponse> {
        let settings = self.shard.settings();
        let value = if self.body.is_end_stream() {
            value_memory::Body::default()
        } else {
            self.reading();
            match gather(&mut self.body, settings.value_bytes_max, self.shard.large_values()).await {
                Ok(value) => value,
                Err(BodyError::NoRoom) => return Err(self.reject(self.shard.shed(Shed::Memory)).await),
                Err(error @ (BodyError::TooLarge | BodyError::Broken)) => return Err(self.body_failure(error)),
            }
        };
        self.serving();
        self.admit().await?;
        let content_type = self.fields.content_type.map(HeaderValue::as_bytes);
        let written = self.shard.entities().put(key, quorum, content_type, value, self.receipt()).await;
        let written = written.map_err(|refused| kept(HttpError::Refused(refused)))?;
        Ok(SuccessResponse::Stored { version: written.version, receipt: written.receipt })
    }

    async fn act(&self, action: Action) -> Result<SuccessResponse, HttpError> {
        let admin = self.shard.admin();
        let page = |content_type, content: Vec<u8>| SuccessResponse::Page { content_type, content: content.into() };
        let probe = |result: Result<(), String>| match result {
            Ok(()) => Ok(SuccessResponse::Page { content_type: TEXT, content: Bytes::from_static(b"ok\n") }),
            Err(detail) => Err(HttpError::Unready(detail)),
        };
        match action {
            Action::Entity { verb: Verb::Get, key, quorum } => self.get(key, quorum).await,
            Action::Entity { verb: Verb::Delete, key, quorum } => {
                let deleted = self.shard.entities().delete(key, quorum, self.receipt()).await;
                let deleted = deleted.map_err(HttpError::Refused)?;
                Ok(SuccessResponse::Deleted { version: deleted.version, receipt: deleted.receipt })
            }
            Action::Entity { verb: Verb::Put, .. } => unreachable!("a PUT is answered with its body"),
            Action::Range { start, end } => self.range(start, end).await,
            Action::Status => probe(admin.started()),
            Action::Live => probe(admin.live()),
            Action::Ready => probe(admin.ready()),
            Action::Metrics => Ok(page(EXPOSITION, admin.metrics_text().into_bytes())),
            Action::Cluster => Ok(page(JSON, admin.cluster_json())),
            Action::Scrub => Ok(page(JSON, admin.scrub())),
            Action::Backup => Ok(page(JSON, admin.backup().await.map_err(HttpError::Unready)?)),
            Action::Repair => Ok(page(JSON, admin.repair_json())),
            Action::BeginRepair => Ok(SuccessResponse::Begun { round: admin.begin_repair() }),
            Action::Peer => self.peer(),
        }
    }

    fn receipt(&self) -> WithReceipt {
        if self.fields.is_traced() { WithReceipt::Yes } else { WithReceipt::No }
    }

    async fn get(&self, key: Key, quorum: Quorum) -> Result<SuccessResponse, HttpError> {
        let found = self.shard.entities().get(key, quorum, self.receipt()).await;
        let ReadResult { value, receipt } = found.map_err(HttpError::Refused)?;
        match value {
            Held::Absent { .. } => Err(HttpError::NotFound { deleted: None, receipt }),
            Held::Record(record) if record.is_deleted(|| self.shard.wall_ms()) => {
                Err(HttpError::NotFound { deleted: Some(record.version()), receipt })
            }
            Held::Record(record)
                if self.fields.is_conditional && none_match_fails(&self.head.headers, record.version()) =>
            {
                Ok(SuccessResponse::NotModified { version: record.version(), receipt })
            }
            Held::Record(record) => Ok(SuccessResponse::Value { record, receipt }),
        }
    }

    async fn range(&self, start: Bytes, end: Option<Bytes>) -> Result<SuccessResponse, HttpError> {
        let mut body = self.shard.range_until(end)?;
        // The answer to HEAD needs no records.
        let opened = if self.head.method == Method::HEAD { Ok(()) } else { body.open(start).await };
        match opened {
            Ok(()) => Ok(SuccessResponse::Range(Box::new(body))),
            Err(RangeError::Overloaded) => Err(self.shard.shed(Shed::Reads)),
            Err(RangeError::Failed(reason)) => Err(self.shard.defect(&reason)),
        }
    }

    fn peer(&self) -> Result<SuccessResponse, HttpError> {
        let headers = &self.head.headers;
        if headers.get(header::UPGRADE).is_none_or(|offer| offer != crate::api::PEER_PROTOCOL) {
            return Err(BadRequest::UnknownPath.into());
        }
        let accepted = self.shard.peers().accept(headers).map_err(HttpError::Peer)?;
        *self.hello.borrow_mut() = Some(headers.clone());
        Ok(SuccessResponse::SwitchProtocols(accepted))
    }

    /// An error that is known before the body is read.
    async fn reject(&mut self, error: HttpError) -> ErrorResponse {
        let waits = self.head.headers.contains_key(header::EXPECT);
        let framing = if self.body.is_end_stream() {
            Framing::Kept
        } else if waits || self.swallow().await.is_err() {
            Framing::Lost
        } else {
            Framing::Kept
        };
        ErrorResponse { error, framing }
    }

    async fn swallow(&mut self) -> Result<(), ErrorResponse> {
        self.reading();
        let swallowed = swallow(&mut self.body, self.shard.settings().value_bytes_max).await;
        self.serving();
        swallowed.map_err(|error| self.body_failure(error))
    }

    fn body_failure(&self, error: BodyError) -> ErrorResponse {
        let error = match error {
            BodyError::TooLarge => self.too_large(),
            BodyError::NoRoom => self.shard.shed(Shed::Memory),
            BodyError::Broken => BadRequest::Body.into(),
        };
        ErrorResponse { error, framing: Framing::Lost }
    }

    fn declared_length(&self) -> Result<usize, BodyError> {
        declared_length(&self.body, self.shard.settings().value_bytes_max)
    }

    fn too_large(&self) -> HttpError {
        HttpError::ValueTooLarge { bytes_max: self.shard.settings().value_bytes_max }
    }

    fn reading(&self) {
        self.watch.enter(ConnectionPhase::Body, self.shard.now());
    }

    fn serving(&self) {
        self.watch.change(ConnectionPhase::Serving);
    }
}

fn kept(error: HttpError) -> ErrorResponse {
    ErrorResponse { error, framing: Framing::Kept }
}
