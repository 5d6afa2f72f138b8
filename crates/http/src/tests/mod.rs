//! The contract over real sockets, with stand-ins behind it. `contract.rs`: what each request is
//! answered; `wire.rs`: limits and timeouts; `framing.rs`: heads and bodies that are read in two ways, or in none;
//! `late.rs`: a node that was ordered to be slow; `shares.rs`: the memory for large values; `ranges.rs`: streams; `request.rs`: the pure parser.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod contract;
mod framing;
mod late;
mod ranges;
mod shares;
mod wire;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use kvorum_base::faults::Faults;
use kvorum_base::value_memory::LargeValues;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fake::{FakeAdmin, FakeEntities, FakePeers, FakeRanges, FakeScans};
use super::watch::ConnectionPhase;
use super::{
    AddressSeats, BrowserRules, ClientShares, HttpMetrics, HttpParts, HttpSettings, HttpShard, IncomingStream,
    serve_connection,
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Node {
    shard: Rc<HttpShard<FakeEntities>>,
    address: SocketAddr,
    pub(crate) entities: Rc<FakeEntities>,
    ranges: Rc<FakeRanges>,
    admin: Rc<FakeAdmin>,
    peers: Rc<FakePeers>,
    metrics: Arc<HttpMetrics>,
    pub(crate) large_values: Arc<LargeValues>,
    pub(crate) shares: Arc<ClientShares>,
    /// Where connections seem to come from.
    from: Rc<Cell<Option<IpAddr>>>,
    faults: Arc<Faults>,
}

pub(crate) fn settings() -> HttpSettings {
    HttpSettings {
        value_bytes_max: 1 << 20,
        request_read_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(60),
        write_timeout: Duration::from_secs(30),
        answer_rate_min: 0,
        connections_max: 100,
        requests_max: 100,
        scan_page_bytes: 4096,
        default_ttl_s: None,
        founding_copies: 2,
        browsers: BrowserRules { own: "x".into(), ..BrowserRules::default() },
    }
}

/// Runs a test against a node of its own.
pub(crate) fn with<F: Future>(settings: HttpSettings, test: impl FnOnce(Rc<Node>) -> F) {
    with_memory(64 << 20, settings, test);
}

/// The same with so many bytes for large values.
pub(crate) fn with_memory<F: Future>(large_bytes_max: usize, settings: HttpSettings, test: impl FnOnce(Rc<Node>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let node = start(settings, large_bytes_max).await;
        tokio::time::timeout(3 * PATIENCE, test(node)).await.expect("the test ends in time");
    });
}

/// Connections of one address that is not this machine's.
const SEATS_OF_ADDRESS: usize = 20;

async fn start(settings: HttpSettings, large_bytes_max: usize) -> Rc<Node> {
    let large_values = LargeValues::new(large_bytes_max);
    let shares = ClientShares::new(large_bytes_max, settings.value_bytes_max);
    let entities = Rc::new(FakeEntities::new(large_values.clone()));
    let ranges = Rc::new(FakeRanges {
        entities: Rc::clone(&entities),
        pages: Default::default(),
        failure: RefCell::default(),
        corrupt: RefCell::default(),
    });
    let faults = Arc::new(Faults::default());
    let (admin, peers, metrics) = (Rc::<FakeAdmin>::default(), Rc::<FakePeers>::default(), Arc::default());
    let parts = HttpParts {
        entities: Rc::clone(&entities),
        ranges: Rc::<FakeRanges>::clone(&ranges),
        scans: Box::new(FakeScans::new(&entities)),
        scripts: None,
        admin: Rc::<FakeAdmin>::clone(&admin),
        peers: Rc::<FakePeers>::clone(&peers),
        gate: None,
        audit: None,
        large_values: Arc::clone(&large_values),
        shares: Arc::clone(&shares),
        metrics: Arc::clone(&metrics),
        wall: Rc::new(SystemTime::now),
        faults: Some(Arc::clone(&faults)),
        request_id_seed: 0xabc,
    };
    let shard = HttpShard::new(parts, settings);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let from: Rc<Cell<Option<IpAddr>>> = Rc::default();
    let from_address = from.clone();
    tokio::task::spawn_local(Rc::clone(&shard).run_sweeper());
    let acceptor = Rc::clone(&shard);
    tokio::task::spawn_local(async move {
        let mut seats = AddressSeats::new(SEATS_OF_ADDRESS);
        loop {
            let (stream, from) = listener.accept().await.unwrap();
            let address = from_address.get().unwrap_or(from.ip());
            let seat = seats.take(address);
            serve_connection(IncomingStream { stream, address, seat }, Rc::clone(&acceptor));
        }
    });
    Rc::new(Node { shard, address, entities, ranges, admin, peers, metrics, large_values, shares, from, faults })
}

/// Waits for a condition.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Node {
    /// From now on.
    fn clients_come_from(&self, address: &str) {
        self.from.set(Some(address.parse().unwrap()));
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), unread: Vec::new() }
    }

    /// One request on a connection of its own, which must survive it.
    pub(crate) async fn ask(&self, request: &str) -> Answer {
        let mut client = self.connect().await;
        let answer = client.ask(request).await;
        client.assert_alive().await;
        answer
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    line: String,
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
    /// The chunks' contents, where the body is chunked.
    pub(crate) chunks: Vec<Vec<u8>>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn problem(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status);
        for member in ["type", "title", "detail"] {
            assert!(problem[member].is_string(), "{problem}");
        }
        problem
    }
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a request whose first line and headers are given without `Host` and the empty line.
    pub(crate) async fn ask(&mut self, request: &str) -> Answer {
        self.ask_with(request, b"").await
    }

    pub(crate) async fn ask_with(&mut self, request: &str, body: &[u8]) -> Answer {
        let (first, rest) = request.split_once("\r\n").unwrap_or((request, ""));
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let rest = if rest.is_empty() { String::new() } else { format!("{rest}\r\n") };
        let head = format!("{first} HTTP/1.1\r\nHost: x\r\n{length}{rest}\r\n");
        self.send([head.as_bytes(), body].concat()).await;
        self.answer(request.starts_with("HEAD")).await
    }

    async fn assert_alive(&mut self) {
        assert_eq!(self.ask("GET /v0/status").await.status, 200, "the connection is kept");
    }

    /// Reads up to and including `end`.
    async fn read_through(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.unread.windows(end.len()).position(|window| window == end) {
                return self.unread.drain(..at + end.len()).collect();
            }
            assert!(self.more().await, "closed after {:?}", String::from_utf8_lossy(&self.unread));
        }
    }

    async fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            assert!(self.more().await, "closed early");
        }
        self.unread.drain(..count).collect()
    }

    /// Whether anything came.
    async fn more(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer)).await.expect("an answer in time");
        let count = read.unwrap_or(0);
        self.unread.extend_from_slice(&buffer[..count]);
        count > 0
    }

    async fn answer(&mut self, bodiless: bool) -> Answer {
        let head = String::from_utf8(self.read_through(b"\r\n\r\n").await).unwrap();
        let line = head.lines().next().unwrap().to_owned();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { line, status, head, body: Vec::new(), chunks: Vec::new() };
        assert!(status < 200 || answer.header("date").is_some(), "every answer has a date: {answer:?}");
        if bodiless || matches!(status, 100..200 | 204 | 304) {
            return answer;
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = String::from_utf8(self.read_through(b"\r\n").await).unwrap();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                let chunk = self.read_bytes(size).await;
                assert_eq!(self.read_bytes(2).await, b"\r\n");
                if size == 0 {
                    return answer;
                }
                answer.chunks.push(chunk);
            }
        }
        let length = answer.header("content-length").expect("a length").parse().unwrap();
        answer.body = self.read_bytes(length).await;
        answer
    }

    /// Waits for the end of the connection; what came before it.
    async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.unread)
    }
}
