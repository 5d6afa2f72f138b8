//! What comes from clients: the query of a request, and all that a connection can bring.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode, Uri};
use kvorum_base::value_memory::LargeValues;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use super::fake::{FakeAdmin, FakeEntities, FakeRanges};
use super::metrics::STATUSES;
use super::request::{ReplicationDefaults, parse};
use super::routes::Action;
use super::{HttpMetrics, HttpParts, HttpSettings, HttpShard, PeerRefusal, PeerUpgrade, serve_connection};

const DEFAULTS: ReplicationDefaults = ReplicationDefaults { from: 3, nodes: 5 };
/// Longer than an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A method by the first byte, and a target as hyper takes it.
pub fn queries(data: &[u8]) {
    let Some((first, target)) = data.split_first() else { return };
    let methods = [Method::GET, Method::PUT, Method::DELETE, Method::POST, Method::HEAD, Method::OPTIONS];
    let method = methods.get(usize::from(*first) % methods.len()).expect("a remainder is below the divisor");
    let Ok(uri) = Uri::try_from(target) else { return };
    match parse(method, uri.path(), uri.query(), DEFAULTS) {
        Ok(Action::Entity { verb, key, quorum }) => {
            assert!((1..=2048).contains(&key.as_bytes().len()), "a key out of bounds");
            assert!(
                1 <= quorum.required() && quorum.required() <= quorum.replicas() && quorum.replicas() <= DEFAULTS.nodes,
                "acks out of bounds"
            );
            let query = format!("from={}&id={}&ack={}", quorum.replicas(), escaped(key.as_bytes()), quorum.required());
            let again = parse(method, "/v0/entity", Some(&query), DEFAULTS);
            assert_eq!(again.ok(), Some(Action::Entity { verb, key, quorum }), "it reads otherwise");
        }
        Ok(Action::Range { start, end }) => {
            assert!(!start.is_empty() && end.as_ref().is_none_or(|end| !end.is_empty()));
            let end_query = end.as_ref().map_or_else(String::new, |end| format!("&end={}", escaped(end)));
            let query = format!("start={}{end_query}", escaped(&start));
            let again = parse(method, "/v0/entities", Some(&query), DEFAULTS);
            assert_eq!(again.ok(), Some(Action::Range { start, end }), "it reads otherwise");
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

/// There are no peers.
struct NoPeers;

impl PeerUpgrade for NoPeers {
    fn accept(&self, _: &HeaderMap) -> Result<HeaderMap, PeerRefusal> {
        Err(PeerRefusal { status: StatusCode::CONFLICT, title: "Stranger", detail: "a stranger".to_owned() })
    }
    fn upgraded(&self, _: TcpStream, _: Bytes, _: HeaderMap) {
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
            admin: Rc::<FakeAdmin>::default(),
            peers: Rc::new(NoPeers),
            large_values: large_values.clone(),
            metrics: metrics.clone(),
            wall: Box::new(SystemTime::now),
            request_id_seed: 1,
        };
        let settings = HttpSettings {
            value_bytes_max: 1 << 16,
            request_read_timeout: PATIENCE,
            idle_timeout: PATIENCE,
            write_timeout: PATIENCE,
            connections_max: 10,
            requests_max: 10,
            scan_page_bytes: 4096,
            default_from: DEFAULTS.from,
            nodes: DEFAULTS.nodes,
        };
        let shard = HttpShard::new(parts, settings);
        Self { runtime, local: LocalSet::new(), listener, shard, entities, metrics, large_values }
    }

    /// All that the other side answers to these bytes, until it closes.
    async fn exchange(&self, data: &[u8]) -> Vec<u8> {
        let address = self.listener.local_addr().expect("it listens");
        let (client, taken) = tokio::join!(TcpStream::connect(address), self.listener.accept());
        let (mut client, (served, _)) = (client.expect("a connection"), taken.expect("the same connection"));
        serve_connection(served, self.shard.clone());
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

#[cfg(test)]
mod tests {
    #[test]
    fn connections() {
        kvorum_fuzzing::holds("connections", super::connections);
    }

    #[test]
    fn queries() {
        kvorum_fuzzing::holds("queries", super::queries);
    }
}
