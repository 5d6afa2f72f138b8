//! Malformed requests and frames against a live node, more than a node ever gets: it answers each as it must, serves
//! others meanwhile, and is afterwards what it was before. `KVORUM_TEST_MALFORMED` says how many.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kvorum_core::frame::{Decoder, Message};
use kvorum_core::quorum::{Failure, Held, ReadAnswer, StoreAnswer};

use crate::support::impostor::{Impostor, is_closed};
use crate::support::malformed::{
    Expected, NEVER, bad_body, bad_frame, bad_head, bad_hello, bad_request, senseless_frame,
};
use crate::support::random::Random;
use crate::support::{Client, entity, wait_until};

const MIB: u64 = 1024 * 1024;
/// `memory_bytes` of these nodes, and what they may take beyond it.
const MEMORY_MAX: u64 = (64 + 128) * MIB;
/// What a node may log of all this, however many there were.
const LOG_BYTES_MAX: usize = 64 * 1024;
const ATTACKERS: u64 = 4;
/// Requests in one packet.
const BURST: usize = 8;
/// Frames before the one that ends the connection.
const FRAMES: u64 = 16;
/// Values that must be there afterwards.
const KEPT: usize = 500;

/// What was sent, and what came of it.
struct Attack<'a> {
    impostor: &'a Impostor,
    goal: u64,
    sent: AtomicU64,
    outcomes: Mutex<BTreeMap<String, u64>>,
    /// Handshakes that the node has to count as handshake errors, and connections that it has to count as broken.
    handshake_errors: AtomicU64,
    broken: AtomicU64,
}

impl Attack<'_> {
    fn note(&self, kind: &str, outcome: impl std::fmt::Display, count: u64) {
        *self.outcomes.lock().unwrap().entry(format!("{kind} {outcome}")).or_default() += count;
        self.sent.fetch_add(count, Ordering::Relaxed);
    }

    fn run(&self, mut random: Random) {
        let mut client = self.client();
        while self.sent.load(Ordering::Relaxed) < self.goal {
            match random.below(17) {
                0..2 => self.requests(&mut client, &mut random),
                2..10 => self.head(&mut random),
                10..12 => self.body(&mut random),
                12..14 => self.hello(&mut random),
                14 => self.frames(&mut random),
                15 => self.lie(&mut random),
                _ => self.abandon(&mut random),
            }
        }
    }

    fn client(&self) -> Client {
        self.impostor.cluster.client(0).timeout(Duration::from_secs(60))
    }

    /// Errors that leave the connection open, many at once.
    fn requests(&self, client: &mut Client, random: &mut Random) {
        let all: Vec<(Vec<u8>, u16)> = (0..BURST).map(|_| bad_request(random)).collect();
        client.write(&all.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect::<Vec<u8>>()).unwrap();
        for (bytes, status) in all {
            let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
            let response = client.receive("GET").unwrap_or_else(|error| panic!("{error} after {:?}", shown()));
            assert_eq!(response.status, status, "{:?}: {response:?}", shown());
            assert!(!response.closes(), "{:?}: {response:?}", shown());
            self.note("request", status, 1);
        }
    }

    fn head(&self, random: &mut Random) {
        let bytes = bad_head(random);
        let outcome = self.last_words(&bytes);
        // Chance may have left it whole, and it asks for what is not there, for the node's own pages, or another host.
        let fine = ["closed", "200", "400", "404", "405", "421", "431"].contains(&outcome.as_str());
        assert!(fine, "{outcome} after {:?}", String::from_utf8_lossy(&bytes));
        self.note("head", outcome, 1);
    }

    fn body(&self, random: &mut Random) {
        let bytes = bad_body(random);
        let outcome = self.last_words(&bytes);
        let fine = ["closed", "400", "413"].contains(&outcome.as_str());
        assert!(fine, "{outcome} after {:?}", String::from_utf8_lossy(&bytes));
        self.note("body", outcome, 1);
    }

    /// Sends all there is, and reads until the end: the status of the first answer, if there is one.
    fn last_words(&self, bytes: &[u8]) -> String {
        let mut client = self.client();
        let stream = client.stream().unwrap();
        // The node may have seen enough before all of it has come, and closed.
        let _closed_early = stream.write_all(bytes);
        let _closed_early = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer);
        let reset = end.is_err_and(|error| error.kind() != std::io::ErrorKind::ConnectionReset);
        assert!(!reset, "the connection stays open after {:?}", String::from_utf8_lossy(bytes));
        match answer.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5)) {
            Some(status) => String::from_utf8_lossy(status).into_owned(),
            None => {
                assert!(answer.is_empty(), "no HTTP: {:?}", String::from_utf8_lossy(&answer));
                "closed".to_owned()
            }
        }
    }

    /// Goes away in the middle of a head, a body or a frame.
    fn abandon(&self, random: &mut Random) {
        let (bytes, mut stream) = match random.below(4) {
            0 => (bad_frame(random).to_vec(), self.impostor.peer()),
            1 => (bad_body(random), self.client().stream().unwrap().try_clone().unwrap()),
            2 => (bad_request(random).0, self.client().stream().unwrap().try_clone().unwrap()),
            _ => (self.impostor.greeting(&[]), self.client().stream().unwrap().try_clone().unwrap()),
        };
        let part = random.below(bytes.len() as u64) as usize;
        let _closed_early = stream.write_all(&bytes[..part]);
        self.note("abandoned", "", 1);
    }

    fn hello(&self, random: &mut Random) {
        let (name, value) = bad_hello(random);
        let (_, response) = self.impostor.greet(&[(name, &value)]);
        assert!((400..500).contains(&response.status), "{name}: {value:?}: {response:?}");
        self.handshake_errors.fetch_add(1, Ordering::Relaxed);
        self.note("handshake", response.status, 1);
    }

    /// Frames that are answered and change nothing, then one that ends the connection.
    fn frames(&self, random: &mut Random) {
        let mut stream = self.impostor.peer();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut expected = BTreeMap::new();
        let mut bytes = BytesMut::new();
        for id in 1..=FRAMES {
            let (frame, answer) = senseless_frame(random, id);
            bytes.extend_from_slice(&frame);
            expected.insert(id, answer);
        }
        stream.write_all(&bytes).unwrap();
        let (mut decoder, mut input, mut piece) = (Decoder::new(1 << 20, 1 << 20), BytesMut::new(), [0; 16 * 1024]);
        while !expected.is_empty() {
            let got = stream.read(&mut piece).unwrap();
            assert!(got > 0, "closed before these were answered: {expected:?}");
            input.extend_from_slice(&piece[..got]);
            while let Some(frame) = decoder.decode(&mut input).unwrap() {
                let answer = match frame.message {
                    Message::StoreAnswer(StoreAnswer::Failed(Failure::Corrupt)) => Expected::Corrupt,
                    Message::ReadAnswer(ReadAnswer::Held(Held::Absent { .. })) => Expected::Nothing,
                    Message::Pong { .. } => Expected::Pong,
                    other => panic!("{other:?} to {:?}", expected.get(&frame.id)),
                };
                assert_eq!(Some(answer), expected.remove(&frame.id));
            }
        }
        self.note("frame", "answered", FRAMES);
        let _closed_early = stream.write_all(&bad_frame(random));
        is_closed(&mut stream);
        self.broken.fetch_add(1, Ordering::Relaxed);
        self.note("frame", "closed for", 1);
    }

    /// A handshake and frames in which nothing is malformed, and nothing true.
    fn lie(&self, random: &mut Random) {
        let any = |random: &mut Random| random.below(u64::MAX);
        let known = self.impostor.directory();
        let (claimed, own) = (format!("{:08x}", random.below(1 << 32)), self.impostor.cluster.directory(0));
        let claimed = if random.below(2) == 0 { known } else { claimed.as_str() };
        let recovered = [0, any(random), u64::MAX][random.below(3) as usize].to_string();
        let remembers = [own.as_str(), "00000001"][random.below(2) as usize];
        let sequence = [any(random), u64::MAX][random.below(2) as usize].to_string();
        let hello = [("Kvorum-Directory", claimed), ("Kvorum-Recovered", recovered.as_str())];
        let memory = [
            ("Kvorum-Remembers", remembers),
            ("Kvorum-Remembers-Run", "1"),
            ("Kvorum-Remembers-Sequence", sequence.as_str()),
        ];
        let changes = if random.below(2) == 0 { hello.to_vec() } else { [&hello[..], &memory].concat() };
        let (mut client, response) = self.impostor.greet(&changes);
        assert!([101, 409, 503].contains(&response.status), "{changes:?}: {response:?}");
        self.note("lie", response.status, 1);
        if response.status == 101 {
            let ahead = (self.impostor.wall_ms() + random.below(59_000)) << 16;
            let frames = [self.impostor.ping(ahead), self.impostor.end_of_a_round(ahead)].concat();
            // Closed, if the node has seen enough.
            let _closed_early = client.stream().unwrap().write_all(&frames);
        }
    }

    /// What another client sees meanwhile: perhaps a refusal of a busy node, never a wrong value.
    fn bystand(&self, over: &AtomicBool) -> (u64, u64) {
        let (mut client, mut served, mut refused) = (self.client(), 0, 0);
        while !over.load(Ordering::Relaxed) {
            let value = (served + refused).to_string().into_bytes();
            let put = client.ok("PUT", &entity("bystander"), Some(&value)).status;
            let get = client.get(&entity("bystander"));
            match (put, get.status) {
                (201, 200) => {
                    assert_eq!(get.body, value);
                    served += 1;
                }
                (201 | 503 | 504, 200 | 404 | 503 | 504) => refused += 1,
                other => panic!("PUT and GET are answered {other:?}"),
            }
        }
        (served, refused)
    }
}

/// The sockets that a node has open.
fn sockets(impostor: &Impostor) -> usize {
    let directory = format!("/proc/{}/fd", impostor.cluster.pid(0).as_raw_nonzero());
    let links = std::fs::read_dir(directory).unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

fn goal() -> u64 {
    std::env::var("KVORUM_TEST_MALFORMED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000)
}

#[test]
fn a_node_serves_on_through_any_number_of_malformed_requests_and_frames() {
    let impostor = Impostor::new();
    let cluster = &impostor.cluster;
    for number in 0..KEPT {
        cluster.client(0).put(&entity(format!("kept-{number}")), format!("value {number}").as_bytes());
    }
    let connections = || cluster.metric(0, "kvorum_http_connections");
    // The connection that asks is one itself.
    wait_until("nobody else is connected", || connections() <= 1.0);
    let (open, said, resident) = (sockets(&impostor), cluster.log(0).len(), cluster.memory(0, "VmRSS"));
    let watermark = || cluster.client(0).get("/v0/cluster").json()["watermark"].clone();
    let proven = watermark();

    let seed = Random::seed();
    let begin = Instant::now();
    let attack = Attack {
        impostor: &impostor,
        goal: goal(),
        sent: AtomicU64::new(0),
        outcomes: Mutex::default(),
        handshake_errors: AtomicU64::new(0),
        broken: AtomicU64::new(0),
    };
    let over = AtomicBool::new(false);
    let (served, refused) = thread::scope(|scope| {
        let bystander = scope.spawn(|| attack.bystand(&over));
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|number| {
                let attack = &attack;
                scope.spawn(move || attack.run(Random::new(seed ^ number)))
            })
            .collect();
        let ended: Vec<_> = attackers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "seed {seed}");
        bystander.join().unwrap()
    });

    let sent = attack.sent.load(Ordering::Relaxed);
    eprintln!("{sent} in {:?}: {:#?}", begin.elapsed(), attack.outcomes.lock().unwrap());
    eprintln!("meanwhile {served} pairs of PUT and GET, {refused} refusals");
    assert!(served > 0, "nobody was served meanwhile");
    as_before(&attack, open, said, resident);
    assert_eq!(watermark(), proven, "a false round has proven something");
    assert!(cluster.votes(0), "its vote was taken");
    let version = cluster.client(0).get(&entity("bystander")).etag();
    let millis = u64::from_str_radix(&version[1..17], 16).unwrap() >> 16;
    assert!(millis < impostor.wall_ms() + 10_000, "its clock was moved");
}

/// The node is what it was before the attack.
fn as_before(attack: &Attack<'_>, open: usize, said: usize, resident: u64) {
    let (impostor, cluster) = (attack.impostor, &attack.impostor.cluster);
    wait_until("its connections are gone", || cluster.metric(0, "kvorum_http_connections") <= 1.0);
    // Those to the false peer, which takes none, come and go.
    let (shards, asking) = (3, 1);
    wait_until("its sockets are closed", || sockets(impostor) <= open + shards + asking);
    for number in 0..KEPT {
        let kept = cluster.client(number % 2).value(&entity(format!("kept-{number}")));
        assert_eq!(kept, format!("value {number}").as_bytes());
    }
    impostor.still_serves("after the attack");
    cluster.client(0).absent(&entity(NEVER));
    assert!(cluster.local(0, NEVER).iter().all(|(key, _)| !key.starts_with(NEVER)), "something was stored");
    assert_eq!(cluster.metric(0, "kvorum_http_defects_total"), 0.0);
    let counted =
        |name, counter: &AtomicU64| assert!(cluster.metric(0, name) >= counter.load(Ordering::Relaxed) as f64);
    counted("kvorum_peer_strangers_total", &attack.handshake_errors);
    counted("kvorum_peer_protocol_errors_total", &attack.broken);

    let (now, peak) = (cluster.memory(0, "VmRSS"), cluster.memory(0, "VmHWM"));
    eprintln!("resident: {} MiB before, {} MiB after, at most {} MiB", resident / MIB, now / MIB, peak / MIB);
    assert!(peak <= MEMORY_MAX, "took {} MiB", peak / MIB);
    let log = cluster.log(0);
    let said = log.len() - said;
    eprintln!("logged: {said} bytes");
    assert!(said <= LOG_BYTES_MAX, "logged {said} bytes: {}", &log[log.len() - 2_000..]);
    assert!(!log.contains("panic"), "a panic in the log");
}
