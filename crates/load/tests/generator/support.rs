//! A small HTTP store on a real port, whose faults are chosen by the test.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kvorum_load::run::{Rate, RunOutcome, RunPlan, run};
use kvorum_load::workload::{Api, ValueSize};

/// A request, as the server sees it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
}

/// What a handler does with a connection.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends this and goes on.
    Bytes(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Resets it.
    Reset,
    /// Does nothing until the other side closes.
    Silence,
}

pub(crate) fn answer(status: u16, body: &[u8]) -> Reply {
    let mut bytes = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    Reply::Bytes(bytes)
}

/// A listener, and a thread for each of its connections.
pub(crate) struct Server {
    pub(crate) url: String,
    address: std::net::SocketAddr,
    closed: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closed = Arc::new(AtomicBool::new(false));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let handler = Arc::new(handler);
        let (stopped, open) = (closed.clone(), streams.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let stream = stream.unwrap();
                open.lock().unwrap().push(stream.try_clone().unwrap());
                let handler = handler.clone();
                thread::spawn(move || serve(stream, &*handler));
            }
        });
        Self { url: format!("http://{address}"), address, closed, streams }
    }

    /// Dies: refuses connections, and closes those that there are.
    pub(crate) fn die(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Each attempt wakes the listener, which then closes.
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(self.address).is_ok() {
            assert!(Instant::now() < deadline, "the listener does not close");
            thread::sleep(millis(1));
        }
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.die();
    }
}

pub(crate) fn serve(mut stream: TcpStream, handler: &dyn Fn(&Request) -> Reply) {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read(&mut reader) {
        match handler(&request) {
            Reply::Bytes(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
            Reply::Close => {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
            Reply::Reset => {
                // To take a connection's peer away resets it, whatever else has the socket (connect(2)).
                rustix::net::connect_unspec(&stream).unwrap();
                return;
            }
            Reply::Silence => {
                let _ = reader.read_to_end(&mut Vec::new());
                return;
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).ok()? == 0 {
            return None;
        }
        if header == "\r\n" {
            break;
        }
        if let Some(value) = header.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, body })
}

/// A server that keeps what it is given, and counts what it was asked.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) values: Mutex<BTreeMap<String, Vec<u8>>>,
    pub(crate) puts: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) ranges: AtomicU64,
    pub(crate) scans: AtomicU64,
    pub(crate) batches: AtomicU64,
    /// Of the largest batch.
    pub(crate) batched_max: AtomicU64,
}

impl Store {
    pub(crate) fn handle(&self, request: &Request) -> Reply {
        let key = || request.path.rsplit('=').next().unwrap().to_owned();
        match (request.method.as_str(), request.path.starts_with("/v0/entity?")) {
            ("PUT", true) => {
                self.puts.fetch_add(1, Ordering::SeqCst);
                self.values.lock().unwrap().insert(key(), request.body.clone());
                answer(201, b"")
            }
            ("GET", true) => {
                self.gets.fetch_add(1, Ordering::SeqCst);
                self.values.lock().unwrap().get(&key()).map_or_else(|| answer(404, b"no"), |value| answer(200, value))
            }
            ("DELETE", true) => {
                self.deletes.fetch_add(1, Ordering::SeqCst);
                self.values.lock().unwrap().remove(&key());
                answer(202, b"")
            }
            ("GET", false) if request.path.starts_with("/v0/entities?start=key") => {
                self.ranges.fetch_add(1, Ordering::SeqCst);
                let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\n";
                Reply::Bytes(chunks.as_bytes().to_vec())
            }
            ("GET", false) if request.path.starts_with("/v0/scan?start=key") => {
                self.scans.fetch_add(1, Ordering::SeqCst);
                scanned(&[(1, b"a record"), (3, b"the trailer")])
            }
            ("POST", false) if request.path.starts_with("/v0/batch") => self.batch(&request.body),
            _ => answer(400, b"what?"),
        }
    }

    /// Keeps what a batch puts; a key that is in it twice is an error.
    fn batch(&self, body: &[u8]) -> Reply {
        let operations = operations(body);
        self.batches.fetch_add(1, Ordering::SeqCst);
        self.batched_max.fetch_max(operations.len().try_into().unwrap(), Ordering::SeqCst);
        let keys: BTreeSet<&String> = operations.iter().map(|(_, key, _)| key).collect();
        if keys.len() < operations.len() {
            return answer(400, b"twice");
        }
        let mut values = self.values.lock().unwrap();
        let each = operations.into_iter().map(|(op, key, value)| match op {
            1 => {
                values.insert(key, value);
                (201, Vec::new())
            }
            2 => values.get(&key).map_or_else(|| (404, b"no".to_vec()), |value| (200, value.clone())),
            _ => {
                values.remove(&key);
                (202, Vec::new())
            }
        });
        answer(200, &each.flat_map(|(status, payload)| outcome(status, &payload)).collect::<Vec<u8>>())
    }
}

/// What a batch's body says: 1 put, 2 get or 3 delete, the key, and the value.
pub(crate) fn operations(mut body: &[u8]) -> Vec<(u8, String, Vec<u8>)> {
    let mut operations = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length).try_into().unwrap());
        let key_end = 4 + usize::from(u16::from_be_bytes([frame[2], frame[3]]));
        let (key, value) = (String::from_utf8(frame[4..key_end].to_vec()).unwrap(), &frame[key_end + 7..]);
        assert_eq!((frame[0], &frame[key_end..key_end + 7]), (16, &[0; 7][..]), "an operation, all else by default");
        operations.push((frame[1], key, value.to_vec()));
        body = rest;
    }
    operations
}

/// The frame of one.
pub(crate) fn outcome(status: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(24 + payload.len()).unwrap();
    [&length.to_be_bytes()[..], &[17], &status.to_be_bytes(), &[0; 21], payload].concat()
}

/// A scan's answer with frames of these types, one in a chunk.
pub(crate) fn scanned(frames: &[(u8, &[u8])]) -> Reply {
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for (kind, body) in frames {
        let length = u32::try_from(1 + body.len()).unwrap();
        let frame = [&length.to_be_bytes()[..], &[*kind], body].concat();
        bytes.extend([format!("{:x}\r\n", frame.len()).as_bytes(), &frame, b"\r\n"].concat());
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    Reply::Bytes(bytes)
}

pub(crate) fn store() -> (Arc<Store>, Server) {
    let store = Arc::new(Store::default());
    let kept = store.clone();
    (store, Server::start(move |request| kept.handle(request)))
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A short run at a low rate: how fast the machine is does not matter.
pub(crate) fn plan(url: &str, workload: &str) -> RunPlan {
    RunPlan {
        targets: url.split(',').map(|url| url.parse().unwrap()).collect(),
        api: Api::default(),
        workload: workload.parse().unwrap(),
        key_order: None,
        first_key: 0,
        keys: 100,
        only_keys: None,
        value_size: ValueSize::Fixed(20),
        compressible: false,
        ack: None,
        from: None,
        rate: Rate::PerSecond(500),
        connections: 8,
        threads: 1,
        pipeline: 1,
        batch: 1,
        duration: millis(1000),
        warmup: millis(100),
        grace: millis(0),
        timeout: millis(2000),
        operations_max: None,
        watch: false,
        seed: 1,
    }
}

pub(crate) fn go(plan: &RunPlan) -> RunOutcome {
    run(plan, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap()
}

/// A run that is stopped once a condition holds; it must, within ten seconds.
pub(crate) fn go_until(plan: &RunPlan, mut condition: impl FnMut() -> bool) -> RunOutcome {
    let stop = Arc::new(AtomicBool::new(false));
    let deadline = Instant::now() + Duration::from_secs(10);
    let outcome = run(plan, &stop, &mut |_| {
        if condition() || Instant::now() > deadline {
            stop.store(true, Ordering::SeqCst);
        }
    });
    assert!(Instant::now() < deadline, "the condition never held");
    outcome.unwrap()
}
