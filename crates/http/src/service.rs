//! One request: from its head to its answer.
//!
//! A request that is refused before its body is read has that body swallowed, within the limit of a
//! value, so that the connection goes on; where the client waits for `100 Continue`, or announces more
//! than the limit, the connection ends instead.

use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, Version};
use kvorum_base::value_memory::{self, FREE_BYTES};
use kvorum_core::Key;
use kvorum_core::quorum::{Expiry, Held, Quorum};
use kvorum_core::record::CONTENT_TYPE_BYTES_MAX;
use kvorum_replication::coordinator::{NewValue, ReadResult, WithReceipt, WriteResult};

use super::api::{AuditLog, Entities, KeyNames};
use super::audited::note;
use super::bad_request::BadRequest;
use super::body::{BodyError, ResponseBody, declared_length, gather, swallow};
use super::browsers::{OriginHeaders, OriginRefusal, RequestOrigin};
use super::error::{HttpError, NodeNames, Shed};
use super::front_page;
use super::gate::{AuthRefusal, Gate, RangePermit, has_key};
use super::in_flight::InFlightGuard;
use super::metrics::{MethodLabel, RequestClass};
use super::range::RangeError;
use super::request::parse;
use super::respond::{ErrorResponse, Form, Framing, SuccessResponse, lines, none_match_fails, response};
use super::routes::{Action, Need, Verb, needs_nothing, route};
use super::shard::HelloHeaders;
use super::shard::HttpShard;
use super::shares::{Holder, OverShare};
use super::watch::{ConnectionPhase, ConnectionWatch, SeatKind};
use super::whoami;

/// Where peers connect.
const PEER_PATH: &str = "/_peer";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// What `exposition/open_metrics.rs` writes.
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
    let browsers = &shard.settings().browsers;
    let form = Form {
        traced: fields.is_traced(),
        one_shot: head.version == Version::HTTP_10,
        varies: !browsers.origins.is_empty(),
        nodes: NodeNames::Urls,
    };
    let origin = browsers.judge(fields.origin_headers(&head));
    let allowed = fields.origin.filter(|_| origin == Ok(RequestOrigin::Allowed)).cloned();
    let (shard, watch) = (&*shard, &*watch);
    let exchange = Exchange { shard, watch, busy: &busy, hello: &hello, head: &head, fields, origin, body };
    let mut answer = exchange.answer().await;
    let nodes = node_names(shard, &busy);
    let principal = shard.audit().and_then(|_| principal(&busy));
    let class = busy.class.get();
    match &mut answer {
        Ok(SuccessResponse::Range(range)) => range.hold(busy),
        Ok(SuccessResponse::Scan { body, .. }) => body.hold(busy),
        _ => drop(busy),
    }
    let is_front_page = answer.is_err() && front_page::is_asked(&head);
    let mut headers = head.headers;
    headers.clear();
    watch.begin_answer(lines(&answer));
    let mut response = response(answer, headers, Form { nodes, ..form }, allowed);
    if is_front_page {
        front_page::put_into(&mut response);
    }
    shard.metrics().answered(method, class, response.status(), started.elapsed());
    if let Some(audit) = shard.audit() {
        let (status, principal) = (response.status().as_u16(), principal.as_deref());
        note(audit, shard, &head.method, &head.uri, status, principal, watch.address());
    }
    Ok(response)
}

/// Counts `bytes` of a large value as held by the request's principal or address.
pub(crate) fn hold<E: Entities>(
    busy: &InFlightGuard,
    shard: &HttpShard<E>,
    address: IpAddr,
    bytes: usize,
) -> Result<(), OverShare> {
    if bytes <= FREE_BYTES {
        return Ok(());
    }
    let holder = || principal(busy).map_or_else(|| Holder::at(address), Holder::Principal);
    let mut share = busy.share.borrow_mut();
    share.get_or_insert_with(|| Box::new(shard.shares().open(holder()))).grow_to(bytes)
}

pub(crate) fn principal(busy: &InFlightGuard) -> Option<String> {
    busy.authenticated.borrow().as_ref().map(|authenticated| authenticated.known.principal.name.clone())
}

/// Whether an answer may show what the cluster is made of.
fn node_names<E: Entities>(shard: &HttpShard<E>, busy: &InFlightGuard) -> NodeNames {
    let sees = || busy.authenticated.borrow().as_ref().is_some_and(|authenticated| authenticated.sees_status());
    if shard.gate().is_none() || sees() { NodeNames::Urls } else { NodeNames::Ranks }
}

static KVORUM_TRACE: HeaderName = HeaderName::from_static("kvorum-trace");
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What the headers of a request for an entity say, found in one pass: a request has a few of them, and to look one
/// up is to hash its name.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fields<'a> {
    hosts: usize,
    host: Option<&'a HeaderValue>,
    origin: Option<&'a HeaderValue>,
    site: Option<&'a HeaderValue>,
    authorization: Option<&'a HeaderValue>,
    authorizations: usize,
    trace: Option<&'a HeaderValue>,
    /// Whether a header makes the request conditional: those of RFC 9110, 13.1 and their extensions begin with `If-`.
    is_conditional: bool,
    has_content_range: bool,
    pub(crate) is_chunked: bool,
    /// Whether there is a transfer coding beside one `chunked`, in the same line or in another.
    pub(crate) is_coded: bool,
    pub(crate) content_type: Option<&'a HeaderValue>,
}

impl<'a> Fields<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            if name == header::HOST {
                fields.hosts += 1;
                fields.host = Some(value);
            } else if name == header::AUTHORIZATION {
                fields.authorization = Some(value);
                fields.authorizations += 1;
            } else if name == header::CONTENT_TYPE {
                fields.content_type.get_or_insert(value);
            } else if name == header::CONTENT_RANGE {
                fields.has_content_range = true;
            } else if name == header::TRANSFER_ENCODING {
                fields.is_coded |= fields.is_chunked || !value.as_bytes().eq_ignore_ascii_case(b"chunked");
                fields.is_chunked = true;
            } else if name.as_str().starts_with("if-") {
                fields.is_conditional = true;
            } else if name == header::ORIGIN {
                fields.origin.get_or_insert(value);
            } else if *name == KVORUM_TRACE {
                fields.trace.get_or_insert(value);
            } else if *name == SEC_FETCH_SITE {
                fields.site.get_or_insert(value);
            }
        }
        fields
    }

    /// Where the request comes from.
    fn origin_headers(&self, head: &'a Parts) -> OriginHeaders<'a> {
        let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
        let host = authority.or(self.host.map(HeaderValue::as_bytes));
        let bytes = |value: Option<&'a HeaderValue>| value.map(HeaderValue::as_bytes);
        OriginHeaders { host, origin: bytes(self.origin), site: bytes(self.site) }
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
pub(crate) struct Exchange<'a, E> {
    pub(crate) shard: &'a HttpShard<E>,
    pub(crate) watch: &'a ConnectionWatch,
    pub(crate) busy: &'a InFlightGuard,
    hello: &'a HelloHeaders,
    pub(crate) head: &'a Parts,
    pub(crate) fields: Fields<'a>,
    origin: Result<RequestOrigin, OriginRefusal>,
    pub(crate) body: Incoming,
}

impl<E: Entities> Exchange<'_, E> {
    async fn answer(mut self) -> Result<SuccessResponse, ErrorResponse> {
        match self.check() {
            Ok(Action::Entity { verb: Verb::Put, key, quorum, ttl_s }) => self.put(key, quorum, ttl_s).await,
            // The usual request: the others' ways are longer.
            Ok(Action::Entity { verb: Verb::Get, key, quorum, .. }) if self.body.is_end_stream() => {
                self.admit().await?;
                self.get(key, quorum).await.map_err(|error| self.after_body(error))
            }
            Ok(Action::Batch { quorum }) => Box::pin(self.batch(quorum)).await,
            Ok(Action::Query { quorum, on_missing }) => Box::pin(self.query(quorum, on_missing)).await,
            Ok(Action::Script(request)) => Box::pin(self.script(*request)).await,
            Ok(action) => {
                if !self.body.is_end_stream() {
                    self.swallow().await?;
                }
                if action.is_admitted() {
                    self.admit().await?;
                }
                self.act(action).await.map_err(|error| self.after_body(error))
            }
            Err(error) => Err(self.reject(error).await),
        }
    }

    /// Takes room among the requests in flight: not before all of this one has come, so that a client which sends
    /// slowly takes none from others.
    async fn admit(&self) -> Result<(), ErrorResponse> {
        if self.shard.admit_at_once(self.busy, 1) {
            return Ok(());
        }
        self.shard.admit(self.busy, 1).await.map_err(kept)
    }

    /// Everything that can be checked without the body.
    fn check(&self) -> Result<Action, HttpError> {
        let Parts { method, uri, version, .. } = self.head;
        if *version == Version::HTTP_11 && self.fields.hosts != 1 {
            return Err(BadRequest::Host.into());
        }
        if self.shard.audit().is_some_and(AuditLog::is_full) && !needs_nothing(uri.path()) {
            return Err(self.shard.shed(Shed::Audit));
        }
        if let SeatKind::PeersOnly(reason) = self.watch.kind()
            && uri.path() != PEER_PATH
        {
            return Err(self.shard.shed(reason));
        }
        let origin = self.origin.map_err(HttpError::Origin)?;
        if *method == Method::OPTIONS && origin == RequestOrigin::Allowed {
            let route = route(uri.path()).ok_or(BadRequest::UnknownPath)?;
            return Ok(Action::Preflight { allow: route.allow });
        }
        let action = parse(method, uri.path(), uri.query(), self.shard.defaults());
        if let Some(gate) = self.shard.gate() {
            self.pass(gate, action.as_ref().ok())?;
        }
        let action = action?;
        if let Action::Entity { verb, quorum, .. } = &action {
            self.busy.class.set(RequestClass::of(*quorum));
            self.fields.check(*verb)?;
            if *verb == Verb::Put {
                self.declared_length().map_err(|_| self.too_large())?;
            }
        }
        Ok(action)
    }

    /// Whether the request's key is accepted, has the right, and is within its limits, in this order. What cannot be
    /// parsed needs a key all the same, unless its path needs none.
    fn pass(&self, gate: &Gate, action: Option<&Action>) -> Result<(), HttpError> {
        let uri = &self.head.uri;
        let need = match action {
            Some(action) => gate.need(action),
            None if needs_nothing(uri.path()) => Need::Nothing,
            None => Need::Key,
        };
        if need == Need::Nothing {
            return Ok(());
        }
        let (fields, address) = (&self.fields, self.watch.address());
        if fields.authorization.is_none() && uri.query().is_some_and(has_key) {
            return Err(gate.refuse(AuthRefusal::InQuery, address).into());
        }
        if fields.authorizations > 1 {
            return Err(gate.refuse(AuthRefusal::Scheme, address).into());
        }
        let mut authenticated = gate.authenticate(fields.authorization, address, || self.shard.wall_ms())?;
        if let Some(action) = action {
            authenticated.authorize(action, need)?;
        }
        // What is longer is refused: a false length must not use up the principal's limit for good.
        let declared = self.body.size_hint().exact().unwrap_or_default();
        gate.admit(&mut authenticated, declared.min(self.shard.settings().value_bytes_max as u64))?;
        *self.busy.authenticated.borrow_mut() = Some(Box::new(authenticated));
        Ok(())
    }

    /// Counts bytes against the principal's limit that were not declared.
    pub(crate) fn charge(&self, bytes: impl FnOnce() -> usize) {
        let Some(gate) = self.shard.gate() else { return };
        if let Some(authenticated) = &*self.busy.authenticated.borrow() {
            gate.charge(authenticated, bytes());
        }
    }

    async fn put(&mut self, key: Key, quorum: Quorum, ttl_s: Option<u32>) -> Result<SuccessResponse, ErrorResponse> {
        let settings = self.shard.settings();
        let body = if self.body.is_end_stream() {
            value_memory::Body::default()
        } else {
            self.reading();
            let (busy, shard, watch) = (self.busy, self.shard, self.watch);
            let hold = |bytes| hold(busy, shard, watch.address(), bytes);
            match gather(&mut self.body, settings.value_bytes_max, shard.large_values(), hold).await {
                Ok(body) => body,
                Err(BodyError::NoRoom) => return Err(self.reject(self.shard.shed(Shed::Memory)).await),
                Err(BodyError::OverShare) => return Err(self.reject(self.shard.shed(Shed::Share)).await),
                Err(error @ (BodyError::TooLarge | BodyError::Broken)) => return Err(self.body_failure(error)),
            }
        };
        self.serving();
        if self.fields.is_chunked {
            self.charge(|| body.value_bytes());
        }
        self.admit().await?;
        let content_type = self.fields.content_type.map(HeaderValue::as_bytes);
        let value = NewValue { body, content_type, ttl_s };
        let written = self.shard.entities().put(key, quorum, value, self.receipt()).await;
        let WriteResult { version, expires_ms, receipt } =
            written.map_err(|refused| kept(HttpError::Refused(refused)))?;
        Ok(SuccessResponse::Stored { version, expires_ms, receipt })
    }

    /// The whole of a body that is no value, of at most `bytes_max`.
    pub(crate) async fn gather_all(
        &mut self,
        bytes_max: usize,
        too_large: fn() -> HttpError,
    ) -> Result<value_memory::Body, ErrorResponse> {
        if declared_length(&self.body, bytes_max).is_err() {
            return Err(self.reject(too_large()).await);
        }
        if self.body.is_end_stream() {
            return Ok(value_memory::Body::default());
        }
        self.reading();
        let (busy, shard, watch) = (self.busy, self.shard, self.watch);
        let hold = |bytes| hold(busy, shard, watch.address(), bytes);
        let gathered = gather(&mut self.body, bytes_max, shard.large_values(), hold).await;
        self.serving();
        match gathered {
            Ok(body) => {
                if self.fields.is_chunked {
                    self.charge(|| body.value_bytes());
                }
                Ok(body)
            }
            Err(BodyError::NoRoom) => Err(self.reject(self.shard.shed(Shed::Memory)).await),
            Err(BodyError::OverShare) => Err(self.reject(self.shard.shed(Shed::Share)).await),
            Err(BodyError::TooLarge) => Err(self.reject(too_large()).await),
            Err(BodyError::Broken) => Err(self.body_failure(BodyError::Broken)),
        }
    }

    async fn act(&self, action: Action) -> Result<SuccessResponse, HttpError> {
        let admin = self.shard.admin();
        let page = |content_type, content: Vec<u8>| SuccessResponse::Page { content_type, content: content.into() };
        let probe = |result: Result<(), String>| match result {
            Ok(()) => Ok(SuccessResponse::Page { content_type: TEXT, content: Bytes::from_static(b"ok\n") }),
            Err(detail) => Err(HttpError::Unready(self.reason(detail))),
        };
        match action {
            Action::Entity { verb: Verb::Get, key, quorum, .. } => self.get(key, quorum).await,
            Action::Entity { verb: Verb::Delete, key, quorum, .. } => {
                let deleted = self.shard.entities().delete(key, quorum, self.receipt()).await;
                let deleted = deleted.map_err(HttpError::Refused)?;
                Ok(SuccessResponse::Deleted { version: deleted.version, receipt: deleted.receipt })
            }
            Action::Entity { verb: Verb::Put, .. } => unreachable!("a PUT is answered with its body"),
            Action::Batch { .. } | Action::Query { .. } | Action::Script(_) => {
                unreachable!("it is answered with its body")
            }
            Action::Range { start, end } => self.range(start, end).await,
            Action::Scan(request) => Box::pin(self.scan(*request)).await,
            Action::Preflight { allow } => Ok(SuccessResponse::Preflight { allow }),
            Action::Status => probe(admin.started()),
            Action::Live => probe(admin.live()),
            Action::Ready => probe(admin.ready()),
            Action::Metrics => Ok(page(EXPOSITION, admin.metrics_text().into_bytes())),
            Action::Cluster => Ok(page(JSON, admin.cluster_json())),
            Action::Stats => Ok(page(JSON, admin.stats_json())),
            Action::Slow => Ok(page(JSON, admin.slow_json())),
            Action::Hot => Ok(page(JSON, admin.hot_json(self.key_names()))),
            Action::Layout { key } => Ok(page(JSON, admin.layout_json(key.as_ref()))),
            Action::Scrub => Ok(page(JSON, admin.scrub())),
            Action::Backup => Ok(page(JSON, admin.backup().await.map_err(HttpError::Unready)?)),
            Action::EndRepair => Ok(page(JSON, admin.end_repair())),
            Action::EndScrub => Ok(page(JSON, admin.end_scrub())),
            Action::Repair => Ok(page(JSON, admin.repair_json())),
            Action::BeginRepair => Ok(SuccessResponse::Begun { round: admin.begin_repair() }),
            Action::WhoAmI => Ok(page(JSON, self.whoami())),
            Action::Peer => self.peer(),
        }
    }

    /// Why a probe's answer is no, for those that may see it.
    fn reason(&self, detail: String) -> String {
        let Some(gate) = self.shard.gate() else { return detail };
        let seen = gate.look_up(self.fields.authorization, || self.shard.wall_ms());
        if seen.is_ok_and(|authenticated| authenticated.sees_status()) {
            detail
        } else {
            "not now: why is for keys with the right `status`".to_owned()
        }
    }

    fn whoami(&self) -> Vec<u8> {
        whoami::page(self.busy.authenticated.borrow().as_deref())
    }

    /// How an answer names nodes.
    pub(crate) fn nodes(&self) -> NodeNames {
        node_names(self.shard, self.busy)
    }

    /// How an answer names keys.
    fn key_names(&self) -> KeyNames {
        let authenticated = self.busy.authenticated.borrow();
        let reads_all = authenticated.as_ref().map_or(self.shard.gate().is_none(), |known| known.reads_everything());
        if reads_all { KeyNames::Shown } else { KeyNames::Hidden }
    }

    fn receipt(&self) -> WithReceipt {
        if self.fields.is_traced() { WithReceipt::Yes } else { WithReceipt::No }
    }

    async fn get(&self, key: Key, quorum: Quorum) -> Result<SuccessResponse, HttpError> {
        let found = self.shard.entities().get(key, quorum, self.receipt()).await;
        let ReadResult { value, expiry, receipt } = found.map_err(HttpError::Refused)?;
        match value {
            Held::Absent { .. } => Err(HttpError::NotFound { deleted: None, receipt }),
            Held::Record(record) if record.is_tombstone() || expiry == Expiry::Passed => {
                Err(HttpError::NotFound { deleted: Some(record.version()), receipt })
            }
            Held::Record(record)
                if self.fields.is_conditional && none_match_fails(&self.head.headers, record.version()) =>
            {
                Ok(SuccessResponse::NotModified { record, receipt })
            }
            Held::Record(record) => {
                self.charge(|| record.payload().len());
                // Until the client has taken it.
                hold(self.busy, self.shard, self.watch.address(), record.bytes().len())
                    .map_err(|OverShare| self.shard.shed(Shed::Share))?;
                Ok(SuccessResponse::Value { record, receipt, share: self.busy.share.take() })
            }
        }
    }

    async fn range(&self, start: Bytes, end: Option<Bytes>) -> Result<SuccessResponse, HttpError> {
        let permit = self.permit(&start, end.as_ref());
        let page_bytes = self.shard.settings().scan_page_bytes.max(FREE_BYTES + 1);
        hold(self.busy, self.shard, self.watch.address(), page_bytes)
            .map_err(|OverShare| self.shard.shed(Shed::Share))?;
        let mut body = self.shard.range_until(end, permit, self.busy.share.take())?;
        // The answer to HEAD needs no records.
        let opened = if self.head.method == Method::HEAD { Ok(()) } else { body.open(start).await };
        match opened {
            Ok(()) => Ok(SuccessResponse::Range(Box::new(body))),
            Err(RangeError::Overloaded) => Err(self.shard.shed(Shed::Reads)),
            Err(RangeError::NoRoom) => Err(self.shard.shed(Shed::Memory)),
            Err(RangeError::Failed(reason)) => Err(self.shard.defect(&reason)),
        }
    }

    /// Whether the request's key may read a range that only the body has named.
    pub(crate) fn authorize_range(&self, start: &Bytes, end: Option<&Bytes>) -> Result<(), HttpError> {
        let authenticated = self.busy.authenticated.borrow();
        let judged = authenticated.as_ref().map_or(Ok(()), |authenticated| authenticated.authorize_range(start, end));
        Ok(judged?)
    }

    /// What looks after a range where there are keys.
    pub(crate) fn permit(&self, start: &Bytes, end: Option<&Bytes>) -> Option<Box<RangePermit>> {
        let gate = self.shard.gate()?;
        let authenticated = self.busy.authenticated.borrow();
        let wall_ms = Box::new(self.shard.wall_clock());
        Some(Box::new(gate.permit(authenticated.as_ref()?, start, end, wall_ms)))
    }

    fn peer(&self) -> Result<SuccessResponse, HttpError> {
        let headers = &self.head.headers;
        if headers.get(header::UPGRADE).is_none_or(|offer| offer != crate::api::PEER_PROTOCOL) {
            return Err(BadRequest::UnknownPath.into());
        }
        let accepted = self.shard.peers().accept(headers, self.watch.address()).map_err(HttpError::Peer)?;
        *self.hello.borrow_mut() = Some((headers.clone(), accepted.clone()));
        Ok(SuccessResponse::SwitchProtocols(accepted))
    }

    /// An error that is known before the body is read.
    pub(crate) async fn reject(&mut self, error: HttpError) -> ErrorResponse {
        let waits = self.head.headers.contains_key(header::EXPECT);
        let framing = if self.watch.kind() != SeatKind::Any {
            // The seat is needed.
            Framing::Lost
        } else if self.body.is_end_stream() {
            Framing::Kept
        } else if waits || self.swallow().await.is_err() {
            Framing::Lost
        } else {
            Framing::Kept
        };
        ErrorResponse { error, framing }
    }

    /// An error that is known once the body is read.
    fn after_body(&self, error: HttpError) -> ErrorResponse {
        match self.watch.kind() {
            SeatKind::Any => kept(error),
            // The seat is needed.
            SeatKind::PeersOnly(_) => ErrorResponse { error, framing: Framing::Lost },
        }
    }

    async fn swallow(&mut self) -> Result<(), ErrorResponse> {
        self.reading();
        let swallowed = swallow(&mut self.body, self.shard.settings().value_bytes_max).await;
        self.serving();
        swallowed.map_err(|error| self.body_failure(error))
    }

    pub(crate) fn body_failure(&self, error: BodyError) -> ErrorResponse {
        let error = match error {
            BodyError::TooLarge => self.too_large(),
            BodyError::NoRoom => self.shard.shed(Shed::Memory),
            BodyError::OverShare => self.shard.shed(Shed::Share),
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

    pub(crate) fn reading(&self) {
        self.watch.enter(ConnectionPhase::Body, self.shard.now());
    }

    pub(crate) fn serving(&self) {
        self.watch.change(ConnectionPhase::Serving);
    }
}

pub(crate) fn kept(error: HttpError) -> ErrorResponse {
    ErrorResponse { error, framing: Framing::Kept }
}
