//! Clients that work at quorum while something happens to the nodes, and what they have seen.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::history::{INITIAL, Operation, violation};
use super::random::Random;
use super::{Client, Cluster, entity, wait_for};

const CLIENTS: usize = 12;
/// Keys that all clients fight for; few, so that writes to them really are concurrent.
pub const SHARED: usize = 24;

/// What the clients have seen: the history of every shared key, and every acknowledged key of one write.
pub struct Seen {
    begin: Instant,
    /// What requests to the shared keys ask for.
    quorum: &'static str,
    /// How long the values of keys of one write are, besides a number.
    once_bytes: usize,
    next_value: AtomicU64,
    shared: Vec<Mutex<Vec<Operation>>>,
    /// Values whose keys are `once-VALUE`.
    once: Mutex<Vec<u64>>,
    /// Failed connections, and refused writes of keys that no other client writes: none, while a majority is up. One of
    /// them.
    pub refused: Mutex<Option<String>>,
    /// Refused requests to the shared keys: with a replica away, two concurrent writes may leave neither with a
    /// majority, and the contract then says 504.
    pub contended: AtomicU64,
    /// Writes of which it is not known whether they took effect.
    pub unknown: AtomicU64,
}

impl Seen {
    pub fn new() -> Self {
        Self::with("")
    }

    /// Clients whose keys of one write have values of so many bytes.
    pub fn with_bytes(once_bytes: usize) -> Self {
        Self { once_bytes, ..Self::new() }
    }

    /// Clients that ask for other than the default numbers of replicas.
    pub fn with(quorum: &'static str) -> Self {
        Self {
            begin: Instant::now(),
            quorum,
            once_bytes: 0,
            next_value: AtomicU64::new(INITIAL + 1),
            shared: (0..SHARED).map(|_| Mutex::new(Vec::new())).collect(),
            once: Mutex::new(Vec::new()),
            refused: Mutex::new(None),
            contended: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
        }
    }

    fn shared_key(&self, slot: usize) -> String {
        entity(format!("shared-{slot}")) + self.quorum
    }

    fn value(&self) -> u64 {
        self.next_value.fetch_add(1, Ordering::Relaxed)
    }

    /// The number, and what no compressor shortens.
    fn once_value(&self, value: u64) -> Vec<u8> {
        let mut bytes = value.to_string().into_bytes();
        bytes.extend(Random::new(value).bytes(self.once_bytes));
        bytes
    }

    /// One write of a shared key, or its deletion, recorded with what is known of its outcome.
    fn write(&self, client: &mut Client, slot: usize, value: u64, ttl_s: Option<u64>) {
        let text = value.to_string();
        let (method, body) = if value == INITIAL { ("DELETE", None) } else { ("PUT", Some(text.as_bytes())) };
        let ttl = ttl_s.map_or_else(String::new, |ttl_s| format!("&ttl={ttl_s}"));
        let start = self.elapsed();
        let status = client.send(method, &(self.shared_key(slot) + &ttl), &[], body).map(|response| response.status);
        self.note_write(slot, value, ttl_s, start, status.ok());
    }

    fn note_write(&self, slot: usize, value: u64, ttl_s: Option<u64>, start: Duration, status: Option<u16>) {
        let end = match status {
            Some(201 | 202) => Some(self.elapsed()),
            // Sent to no replica, the contract says: a read that finds it shows a defect.
            Some(503) => return count(&self.contended),
            _ => {
                count(&self.contended);
                count(&self.unknown);
                None
            }
        };
        let mut history = self.shared[slot].lock().unwrap();
        history.push(Operation { value, is_write: true, start, end });
        if ttl_s.is_some() {
            // It ends by itself, or something else is written first.
            history.push(Operation { value: INITIAL, is_write: true, start, end: None });
        }
    }

    fn read(&self, client: &mut Client, slot: usize) {
        let start = self.elapsed();
        let answer = client.send("GET", &self.shared_key(slot), &[], None).ok();
        self.note_read(slot, start, answer.map(|response| (response.status, response.text())));
    }

    fn note_read(&self, slot: usize, start: Duration, answer: Option<(u16, String)>) {
        let value = match &answer {
            Some((200, text)) => Some(text.as_str()),
            Some((404, _)) => None,
            _ => return count(&self.contended),
        };
        self.note_value(slot, start..self.elapsed(), value);
    }

    /// A read of a shared key in this time, with what it found.
    pub fn note_value(&self, slot: usize, time: Range<Duration>, value: Option<&str>) {
        let value = value.map_or(INITIAL, |text| text.parse().expect("a value that was written"));
        let read = Operation { value, is_write: false, start: time.start, end: Some(time.end) };
        self.shared[slot].lock().unwrap().push(read);
    }

    /// Since the clients' common beginning.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Values that were acknowledged under `once-VALUE`, so far.
    pub fn acknowledged(&self) -> Vec<u64> {
        self.once.lock().unwrap().clone()
    }

    /// Some of all that in one request: each operation is recorded as if it had been one.
    fn batch(&self, client: &mut Client, random: &mut Random) {
        let first = random.below(SHARED as u64) as usize;
        let slots: Vec<usize> = (0..8).map(|number| (first + number) % SHARED).collect();
        let operations: Vec<(usize, Option<u64>, Option<u64>)> = slots
            .into_iter()
            .map(|slot| match random.below(10) {
                0..=3 => (slot, Some(self.value()), None),
                4 => (slot, Some(self.value()), Some(1 + random.below(3))),
                5 => (slot, Some(INITIAL), None),
                _ => (slot, None, None),
            })
            .collect();
        let line = |(slot, value, ttl): &(usize, Option<u64>, Option<u64>)| {
            let key = format!("shared-{slot}");
            match (value, ttl) {
                (None, _) => json!({"op": "get", "key": key}),
                (Some(INITIAL), _) => json!({"op": "delete", "key": key}),
                (Some(value), None) => json!({"op": "put", "key": key, "value": value.to_string()}),
                (Some(value), ttl) => json!({"op": "put", "key": key, "value": value.to_string(), "ttl": ttl}),
            }
        };
        let body: String = operations.iter().map(|operation| format!("{}\n", line(operation))).collect();
        let target = format!("/v0/batch{}", self.quorum.replacen('&', "?", 1));
        let start = self.elapsed();
        let answer = client.send("POST", &target, &[], Some(body.as_bytes())).ok();
        let is_whole = answer.as_ref().is_some_and(|answer| answer.status == 200);
        let refused = answer.as_ref().map(|answer| answer.status);
        let lines: Vec<Value> = answer.filter(|_| is_whole).map_or_else(Vec::new, |answer| {
            answer.text().lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
        });
        assert!(!is_whole || lines.len() == operations.len(), "an answer for each operation");
        for (place, (slot, value, ttl_s)) in operations.into_iter().enumerate() {
            let status = lines.get(place).map_or(refused, |line| line["status"].as_u64().map(|status| status as u16));
            match value {
                Some(value) => self.note_write(slot, value, ttl_s, start, status),
                None => {
                    let found = lines.get(place).and_then(|line| line["value"].as_str()).unwrap_or_default();
                    self.note_read(slot, start, status.map(|status| (status, found.to_owned())));
                }
            }
        }
    }

    fn write_once(&self, client: &mut Client) {
        let value = self.value();
        match client.send("PUT", &once(value), &[], Some(&self.once_value(value))) {
            Ok(response) if response.status == 201 => self.once.lock().unwrap().push(value),
            other => *self.refused.lock().unwrap() = Some(format!("{other:?}")),
        }
    }

    /// One client: a mix of everything through random nodes until it is over.
    fn work(&self, addresses: &[SocketAddr], timeout: Duration, seed: u64, is_over: &dyn Fn() -> bool) {
        let mut random = Random::new(seed);
        let mut clients: Vec<Client> = addresses.iter().map(|&address| Client::new(address).timeout(timeout)).collect();
        while !is_over() {
            let client = &mut clients[random.below(addresses.len() as u64) as usize];
            if let Err(error) = client.stream() {
                *self.refused.lock().unwrap() = Some(error.to_string());
                // Nothing was sent. The node may be dead for a while.
                thread::park_timeout(Duration::from_millis(1));
                continue;
            }
            let slot = random.below(SHARED as u64) as usize;
            match random.below(14) {
                0..=1 => self.write(client, slot, self.value(), None),
                2 => self.write(client, slot, self.value(), Some(1 + random.below(3))),
                3 => self.write(client, slot, INITIAL, None),
                4..=7 => self.read(client, slot),
                8..=9 => self.batch(client, &mut random),
                _ => self.write_once(client),
            }
        }
    }

    /// Lets clients work through the nodes at `addresses` while `disturb` does its thing, then stops them. They wait
    /// `timeout` for an answer.
    pub fn under_load<T>(
        &self,
        addresses: &[SocketAddr],
        timeout: Duration,
        random: &mut Random,
        disturb: impl FnOnce() -> T,
    ) -> T {
        let work = |seed, is_over: &dyn Fn() -> bool| self.work(addresses, timeout, seed, is_over);
        while_clients_work(CLIENTS, random, work, disturb)
    }

    /// Waits until `writes` more values have been written than when it was called.
    pub fn after_writes(&self, writes: u64) {
        let goal = self.next_value.load(Ordering::Relaxed) + writes;
        wait_for("the clients get on", || (self.next_value.load(Ordering::Relaxed) >= goal).then_some(()));
    }

    /// Every acknowledged key of one write, from index `from` on, is there. How many there are, with those before.
    pub fn check_once(&self, cluster: &Cluster, from: usize) -> usize {
        let values = self.once.lock().unwrap();
        let mut clients = cluster.clients();
        for (number, &value) in values[from..].iter().enumerate() {
            let read = clients[number % cluster.len()].value(&once(value));
            assert!(read == self.once_value(value), "the acknowledged write {value} was lost");
        }
        values.len()
    }

    /// Reads every shared key through every node and checks all that was ever seen of it.
    pub fn check_shared(&self, cluster: &Cluster) {
        for mut client in cluster.clients() {
            (0..SHARED).for_each(|slot| self.read(&mut client, slot));
        }
        assert_eq!(self.violation(), None);
    }

    /// Why the history of some key is not linearizable.
    pub fn violation(&self) -> Option<String> {
        let check = |(slot, history): (usize, &Mutex<Vec<Operation>>)| {
            // A copy: clients may be at work.
            let history = history.lock().unwrap().clone();
            violation(&history).map(|text| format!("key {slot} is not linearizable: {text}"))
        };
        self.shared.iter().enumerate().find_map(check)
    }

    /// The number of recorded operations on each shared key.
    pub fn lengths(&self) -> Vec<usize> {
        self.shared.iter().map(|history| history.lock().unwrap().len()).collect()
    }
}

/// Runs so many clients while `disturb` does its thing, then stops them. Each is given a seed, and is to end once the
/// function that it is given says so.
pub fn while_clients_work<T>(
    clients: usize,
    random: &mut Random,
    work: impl Fn(u64, &dyn Fn() -> bool) + Sync,
    disturb: impl FnOnce() -> T,
) -> T {
    let (stop, started) = (AtomicBool::new(false), Barrier::new(clients + 1));
    thread::scope(|scope| {
        for _ in 0..clients {
            let seed = random.next();
            let (work, stop, started) = (&work, &stop, &started);
            scope.spawn(move || {
                started.wait();
                work(seed, &|| stop.load(Ordering::Relaxed));
            });
        }
        started.wait();
        // Also when `disturb` panics: the scope waits for the clients.
        let _stop = StopOnDrop(&stop);
        disturb()
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn once(value: u64) -> String {
    entity(format!("once-{value}"))
}
