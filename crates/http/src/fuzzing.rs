//! What comes from clients: the query of a request, and all that a connection can bring.

mod framing;

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode, Uri};
use kvorum_base::value_memory::LargeValues;
use kvorum_core::key::KEY_BYTES_MAX;
use kvorum_core::scan::page::ScanValues;
use kvorum_fuzzing::{byte, split};
use kvorum_replication::cluster_scan::OnMissing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use self::framing::{StrictVerdict, strict};
pub use super::batch::fuzzing::batches;
use super::fake::{FakeAdmin, FakeEntities, FakeRanges, FakeScans};
use super::metrics::STATUSES;
use super::numbers::{ReplicationDefaults, TTL_S_MAX};
use super::request::parse;
use super::routes::{Action, Verb};
pub use super::scan::fuzzing::tokens;
use super::scan::request::ScanRequest;
use super::{
    AddressSeats, BrowserRules, ClientShares, HttpMetrics, HttpParts, HttpSettings, HttpShard, IncomingStream,
    OriginHeaders, PeerRefusal, PeerUpgrade, serve_connection,
};

const DEFAULTS: ReplicationDefaults = ReplicationDefaults { from: 3, nodes: 5, ttl_s: None };
/// Longer than an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A method by the first byte, and a target as hyper takes it.
pub fn queries(data: &[u8]) {
    let Some((first, target)) = data.split_first() else { return };
    let methods = [Method::GET, Method::PUT, Method::DELETE, Method::POST, Method::HEAD, Method::OPTIONS];
    let method = methods.get(usize::from(*first) % methods.len()).expect("a remainder is below the divisor");
    let Ok(uri) = Uri::try_from(target) else { return };
    match parse(method, uri.path(), uri.query(), DEFAULTS) {
        Ok(Action::Entity { verb, key, quorum, ttl_s }) => {
            assert!((1..=2048).contains(&key.as_bytes().len()), "a key out of bounds");
            assert!(
                1 <= quorum.required() && quorum.required() <= quorum.replicas() && quorum.replicas() <= DEFAULTS.nodes,
                "acks out of bounds"
            );
            assert!(
                ttl_s.is_none_or(|ttl_s| verb == Verb::Put && (1..=TTL_S_MAX).contains(&ttl_s)),
                "a life out of bounds"
            );
            let ttl = ttl_s.map_or_else(String::new, |ttl_s| format!("&ttl={ttl_s}"));
            let (ack, from) = (quorum.required(), quorum.replicas());
            let query = format!("from={from}&id={}&ack={ack}{ttl}", escaped(key.as_bytes()));
            let again = parse(method, "/v0/entity", Some(&query), DEFAULTS);
            assert_eq!(again.ok(), Some(Action::Entity { verb, key, quorum, ttl_s }), "it reads otherwise");
        }
        Ok(Action::Range { start, end }) => {
            assert!(!start.is_empty() && end.as_ref().is_none_or(|end| !end.is_empty()));
            let end_query = end.as_ref().map_or_else(String::new, |end| format!("&end={}", escaped(end)));
            let query = format!("start={}{end_query}", escaped(&start));
            let again = parse(method, "/v0/entities", Some(&query), DEFAULTS);
            assert_eq!(again.ok(), Some(Action::Range { start, end }), "it reads otherwise");
        }
        Ok(Action::Scan(request)) => {
            let again = parse(method, "/v0/scan", Some(&scan_query(&request)), DEFAULTS);
            assert_eq!(again.ok(), Some(Action::Scan(request)), "it reads otherwise");
        }
        Ok(_) => {}
        Err(error) => {
            let problem = error.problem();
            assert!(problem.status.is_client_error(), "{} for what a client did", problem.status);
            assert!(problem.detail.len() < 500, "a refusal is a sentence");
        }
    }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02x}")).collect()
}

/// A query that asks for this. A range without its first key is of a prefix.
fn scan_query(request: &ScanRequest) -> String {
    let ScanRequest { start, end, quorum, limit, values, on_missing, after } = request;
    assert!(start.len() <= KEY_BYTES_MAX && end.as_ref().is_none_or(|end| (1..=KEY_BYTES_MAX).contains(&end.len())));
    assert!(*limit != Some(0) && 1 <= quorum.required() && quorum.replicas() <= DEFAULTS.nodes);
    let bounds = match end {
        None if start.is_empty() => "prefix=".to_owned(),
        // Of a prefix that begins with nothing but the last byte, or from a key on: the same.
        None => format!("start={}", escaped(start)),
        Some(end) => format!("start={}&end={}", escaped(start), escaped(end)),
    };
    let numbers = format!("ack={}&from={}", quorum.required(), quorum.replicas());
    let limit = limit.map_or_else(String::new, |limit| format!("&limit={limit}"));
    let after = after.as_ref().map_or_else(String::new, |token| format!("&after={}", escaped(token)));
    let flags = [("values", *values == ScanValues::Wanted), ("partial", *on_missing == OnMissing::LeaveOut)];
    let flags: String = flags.iter().map(|(name, is_set)| format!("&{name}={}", u8::from(*is_set))).collect();
    format!("{bounds}&{numbers}{limit}{after}{flags}")
}

/// There are no peers.
struct NoPeers;

impl PeerUpgrade for NoPeers {
    fn accept(&self, _: &HeaderMap, _: IpAddr) -> Result<HeaderMap, PeerRefusal> {
        Err(PeerRefusal { status: StatusCode::CONFLICT, title: "Stranger", detail: "a stranger".to_owned() })
    }
    fn upgraded(&self, _: TcpStream, _: Bytes, _: HeaderMap, _: HeaderMap) {
        panic!("a stranger was taken for a peer");
    }
}

/// A shard of HTTP with stand-ins behind it, and a listener in front.
struct FuzzedShard {
    runtime: Runtime,
    local: LocalSet,
    listener: TcpListener,
    shard: Rc<HttpShard<FakeEntities>>,
    entities: Rc<FakeEntities>,
    metrics: Arc<HttpMetrics>,
    large_values: Arc<LargeValues>,
}

thread_local! {
    static DOOR: RefCell<Option<FuzzedShard>> = const { RefCell::new(None) };
}

impl FuzzedShard {
    fn open() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let large_values = LargeValues::new(1 << 20);
        let entities = Rc::new(FakeEntities::new(large_values.clone()));
        let metrics: Arc<HttpMetrics> = Arc::default();
        let ranges = FakeRanges {
            entities: entities.clone(),
            pages: Default::default(),
            failure: RefCell::default(),
            corrupt: RefCell::default(),
        };
        let parts = HttpParts {
            entities: entities.clone(),
            ranges: Rc::new(ranges),
            scans: Box::new(FakeScans::new(&entities)),
            scripts: None,
            admin: Rc::<FakeAdmin>::default(),
            peers: Rc::new(NoPeers),
            gate: None,
            audit: None,
            large_values: large_values.clone(),
            shares: ClientShares::new(1 << 20, 1 << 16),
            metrics: metrics.clone(),
            wall: Rc::new(SystemTime::now),
            faults: None,
            request_id_seed: 1,
        };
        let settings = HttpSettings {
            value_bytes_max: 1 << 16,
            request_read_timeout: PATIENCE,
            idle_timeout: PATIENCE,
            write_timeout: PATIENCE,
            answer_rate_min: 0,
            connections_max: 10,
            requests_max: 10,
            scan_page_bytes: 4096,
            default_ttl_s: None,
            founding_copies: 3,
            browsers: BrowserRules { own: "x".into(), addresses: true, ..BrowserRules::default() },
        };
        let shard = HttpShard::new(parts, settings);
        Self { runtime, local: LocalSet::new(), listener, shard, entities, metrics, large_values }
    }

    /// All that the other side answers to these bytes, until it closes.
    async fn exchange(&self, data: &[u8]) -> Vec<u8> {
        let address = self.listener.local_addr().expect("it listens");
        let (client, taken) = tokio::join!(TcpStream::connect(address), self.listener.accept());
        let (mut client, (stream, from)) = (client.expect("a connection"), taken.expect("the same connection"));
        let seat = AddressSeats::new(1).take(from.ip());
        serve_connection(IncomingStream { stream, address: from.ip(), seat }, self.shard.clone());
        let mut answer = Vec::new();
        // What was enough for a refusal need not all be read.
        let _closed_early = client.write_all(data).await;
        let _closed_early = client.shutdown().await;
        let ended = tokio::time::timeout(PATIENCE, client.read_to_end(&mut answer)).await;
        let _reset = ended.expect("the connection stays open though nothing more can come");
        // So that a million connections do not use up all ports.
        let _ = client.set_zero_linger();
        while self.metrics.connections.load(std::sync::atomic::Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        answer
    }
}

/// All bytes of one connection, in one piece.
pub fn connections(data: &[u8]) {
    DOOR.with_borrow_mut(|shard| {
        let shard = shard.get_or_insert_with(FuzzedShard::open);
        let answer = shard.local.block_on(&shard.runtime, shard.exchange(data));
        if !answer.is_empty() {
            let status = answer.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
            let status = status.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u16>().ok());
            assert!(
                status.is_some_and(|status| status == 100 || (status != 500 && STATUSES.contains(&status))),
                "{status:?} is no answer"
            );
        }
        assert_eq!(shard.metrics.defects.load(std::sync::atomic::Ordering::Relaxed), 0, "a defect");
        shard.entities.records.borrow_mut().clear();
        assert_eq!(shard.large_values.used(), 0, "memory is charged for what is gone");
    });
}

/// Header lines of a value, whole ones and such as are taken for another by some readers.
const FIELDS: [&str; 20] = [
    "Content-Length: 3",
    "Content-Length: 4",
    "Content-Length: 0",
    "Content-Length: 3, 3",
    "Content-Length: +3",
    "Content-Length: 0x3",
    "Content-Length: -1",
    "Content-Length: 18446744073709551615",
    "Content-Length: 99999999999999999999",
    "Content-Length: ",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: Chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked;q=1",
    "A: b",
    "Content-Type: text/plain",
    "Connection: keep-alive",
];

/// A value in all framings, sound ones and others: it is stored as a strict reader reads it, or not at all. What
/// follows it is not taken for a part of it.
pub fn framing(mut data: &[u8]) {
    let count = byte(&mut data) % 4;
    let number = |_| usize::from(byte(&mut data)) % FIELDS.len();
    let numbers: Vec<usize> = (0..count).map(number).collect();
    let fields: Vec<&str> = numbers.iter().filter_map(|number| FIELDS.get(*number).copied()).collect();
    let lines: String = fields.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!("PUT /v0/entity?id=framed HTTP/1.1\r\nHost: x\r\n{lines}\r\n");
    DOOR.with_borrow_mut(|shard| {
        let shard = shard.get_or_insert_with(FuzzedShard::open);
        shard.local.block_on(&shard.runtime, shard.exchange(&[head.as_bytes(), data].concat()));
        let stored = shard.entities.value(b"framed");
        match strict(&fields, data) {
            StrictVerdict::Stored(value) if value.len() <= shard.shard.settings().value_bytes_max => {
                assert_eq!(stored, Some(value), "{head:?} {data:?}");
            }
            StrictVerdict::Lenient => {}
            StrictVerdict::Stored(_) | StrictVerdict::Refused => assert_eq!(stored, None, "{head:?} {data:?}"),
        }
        shard.entities.records.borrow_mut().clear();
    });
}

/// Headers that show where a request comes from, against the rule in other words: a page passes only if its origin is
/// allowed, or is the node's own name.
pub fn origins(mut data: &[u8]) {
    let mut text = || {
        let length = usize::from(byte(&mut data) % 40);
        split(&mut data, length).to_vec()
    };
    let (host, origin, site) = (text(), text(), text());
    let given = |value: &[u8]| !value.is_empty();
    let rules = BrowserRules {
        own: "node:1".into(),
        hosts: vec!["node".into(), "localhost".into()],
        addresses: true,
        origins: vec!["https://app".into()],
    };
    let headers = OriginHeaders {
        host: Some(&host[..]).filter(|value| given(value)),
        origin: Some(&origin[..]).filter(|value| given(value)),
        site: Some(&site[..]).filter(|value| given(value)),
    };
    let verdict = rules.judge(headers);
    let host_text = String::from_utf8_lossy(&host).into_owned();
    let is_name = ["node", "localhost"].iter().any(|name| host_text.to_ascii_lowercase().starts_with(name));
    let is_address = host_text.starts_with(|first: char| first == '[' || first.is_ascii_digit());
    if verdict.is_ok() {
        assert!(host.is_empty() || is_name || is_address, "{host_text} is no name of the node");
        let is_own = !host.is_empty() && origin.ends_with(&host) && origin.starts_with(b"http");
        let is_allowed = origin.eq_ignore_ascii_case(b"https://app");
        assert!(origin.is_empty() || is_own || is_allowed, "a page of {}", String::from_utf8_lossy(&origin));
        let is_foreign = [&b"cross-site"[..], b"same-site"].contains(&&site[..]);
        assert!(!origin.is_empty() || !is_foreign, "a page of another site");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn framing() {
        kvorum_fuzzing::holds("framing", super::framing);
    }

    #[test]
    fn origins() {
        kvorum_fuzzing::holds("origins", super::origins);
    }

    #[test]
    fn connections() {
        kvorum_fuzzing::holds("connections", super::connections);
    }

    #[test]
    fn queries() {
        kvorum_fuzzing::holds("queries", super::queries);
    }
}
