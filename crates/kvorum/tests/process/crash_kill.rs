//! `kill -9` under load: nothing acknowledged is lost, nothing read goes back.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::history::{INITIAL, Operation, violation};
use crate::support::random::Random;
use crate::support::{Client, Cluster, entity, entity_at, wait_for};

const WRITERS: usize = 12;
const ROUNDS: usize = 20;
/// Keys that all writers fight for; few, so that writes to them really are concurrent.
const SHARED: usize = 24;

/// What the clients have seen: the history of every shared key, and every acknowledged key of one write.
struct Seen {
    begin: Instant,
    next_value: AtomicU64,
    shared: Vec<Mutex<Vec<Operation>>>,
    /// Values whose keys are `once-VALUE`.
    once: Mutex<Vec<u64>>,
    /// Refused writes of keys that nobody else writes: none, while a majority is up.
    refused: Mutex<Vec<String>>,
    /// Refused requests to the shared keys: with a replica away, two writes that meet may leave neither with
    /// a majority, and the contract then says 504.
    contended: AtomicU64,
}

impl Seen {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            next_value: AtomicU64::new(INITIAL + 1),
            shared: (0..SHARED).map(|_| Mutex::new(Vec::new())).collect(),
            once: Mutex::new(Vec::new()),
            refused: Mutex::new(Vec::new()),
            contended: AtomicU64::new(0),
        }
    }

    fn value(&self) -> u64 {
        self.next_value.fetch_add(1, Ordering::Relaxed)
    }

    /// One write of a shared key, recorded with what is known of its outcome.
    fn write(&self, client: &mut Client, slot: usize) {
        let (value, start) = (self.value(), self.begin.elapsed());
        let result = client.send("PUT", &shared(slot), &[], Some(value.to_string().as_bytes()));
        let end = match result.map(|response| response.status) {
            Ok(201) => Some(self.begin.elapsed()),
            // Sent to nobody, the contract says: whoever reads it has found a defect.
            Ok(503) => return count(&self.contended),
            _ => {
                count(&self.contended);
                None
            }
        };
        self.shared[slot].lock().unwrap().push(Operation { value, is_write: true, start, end });
    }

    fn read(&self, client: &mut Client, slot: usize) {
        let start = self.begin.elapsed();
        let value = match client.send("GET", &shared(slot), &[], None) {
            Ok(response) if response.status == 200 => response.text().parse().expect("a value that was written"),
            Ok(response) if response.status == 404 => INITIAL,
            _ => return count(&self.contended),
        };
        let end = Some(self.begin.elapsed());
        self.shared[slot].lock().unwrap().push(Operation { value, is_write: false, start, end });
    }

    fn write_once(&self, client: &mut Client) {
        let value = self.value();
        match client.send("PUT", &once(value), &[], Some(value.to_string().as_bytes())) {
            Ok(response) if response.status == 201 => self.once.lock().unwrap().push(value),
            other => self.refused.lock().unwrap().push(format!("{other:?}")),
        }
    }

    /// One writer: a mix of everything through random nodes until it is told to stop.
    fn work(&self, addresses: &[SocketAddr], seed: u64, stop: &AtomicBool) {
        let mut random = Random::new(seed);
        let mut clients: Vec<Client> =
            addresses.iter().map(|&address| Client::new(address).timeout(Duration::from_secs(10))).collect();
        while !stop.load(Ordering::Relaxed) {
            let client = &mut clients[random.below(addresses.len() as u64) as usize];
            let slot = random.below(SHARED as u64) as usize;
            match random.below(3) {
                0 => self.write(client, slot),
                1 => self.read(client, slot),
                _ => self.write_once(client),
            }
        }
    }

    /// Every acknowledged key of one write, from index `from` on, is there.
    fn check_once(&self, cluster: &Cluster, from: usize) -> usize {
        let values = self.once.lock().unwrap();
        let mut clients = cluster.clients();
        for (number, &value) in values[from..].iter().enumerate() {
            let read = clients[number % cluster.len()].value(&once(value));
            assert_eq!(read, value.to_string().as_bytes(), "an acknowledged write was lost");
        }
        values.len()
    }

    /// Reads every shared key through every node and checks all that was ever seen of it.
    fn check_shared(&self, cluster: &Cluster) {
        for mut client in cluster.clients() {
            (0..SHARED).for_each(|slot| self.read(&mut client, slot));
        }
        for (slot, history) in self.shared.iter().enumerate() {
            if let Some(text) = violation(&history.lock().unwrap()) {
                panic!("key {slot} is not linearizable: {text}");
            }
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn shared(slot: usize) -> String {
    entity(format!("shared-{slot}"))
}

fn once(value: u64) -> String {
    entity(format!("once-{value}"))
}

/// Lets the writers work through `nodes` while `disturb` does its thing, then stops them.
fn under_load(seen: &Seen, addresses: &[SocketAddr], random: &mut Random, disturb: impl FnOnce()) {
    let (stop, started) = (AtomicBool::new(false), Barrier::new(WRITERS + 1));
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            let seed = random.next();
            let (stop, started) = (&stop, &started);
            scope.spawn(move || {
                started.wait();
                seen.work(addresses, seed, stop);
            });
        }
        started.wait();
        // Also when `disturb` panics: the scope waits for the writers.
        let _stop = StopOnDrop(&stop);
        disturb();
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until `writes` more values have been written than when it was called.
fn after_writes(seen: &Seen, writes: u64) {
    let goal = seen.next_value.load(Ordering::Relaxed) + writes;
    wait_for("the writers get on", || (seen.next_value.load(Ordering::Relaxed) >= goal).then_some(()));
}

#[test]
fn killing_all_nodes_20_times_loses_no_acknowledged_write() {
    let mut random = Random::new(Random::seed());
    let mut cluster = Cluster::start(3);
    let addresses: Vec<SocketAddr> = (0..3).map(|index| cluster.node(index).address).collect();
    let seen = Seen::new();
    let mut checked = 0;
    for round in 0..ROUNDS {
        let writes = random.below(1_500);
        under_load(&seen, &addresses, &mut random, || {
            after_writes(&seen, writes);
            cluster.kill_all();
        });
        cluster.spawn_all();
        cluster.wait_whole();
        let before = checked;
        checked = seen.check_once(&cluster, checked);
        seen.check_shared(&cluster);
        eprintln!("round {round}: killed after {writes} more writes, {} acknowledged keys are there", checked - before);
    }
    assert_eq!(seen.check_once(&cluster, 0), checked);
    assert!(checked > ROUNDS * 50, "only {checked} writes were acknowledged: this shows nothing");
}

/// Writers use two nodes while something happens to the third: nobody may notice, and nothing may be lost.
fn unnoticed(rounds: usize, disturb: fn(&mut Cluster, &Seen, usize)) {
    let mut random = Random::new(Random::seed());
    let mut cluster = Cluster::start(3);
    let seen = Seen::new();
    let mut checked = 0;
    for round in 0..rounds {
        let victim = random.below(3) as usize;
        let others: Vec<SocketAddr> =
            (0..3).filter(|&index| index != victim).map(|index| cluster.node(index).address).collect();
        let before = random.below(500);
        under_load(&seen, &others, &mut random, || {
            after_writes(&seen, before);
            disturb(&mut cluster, &seen, victim);
            after_writes(&seen, 500);
        });
        cluster.wait_whole();
        checked = seen.check_once(&cluster, checked);
        seen.check_shared(&cluster);
        eprintln!("round {round}: {checked} keys are there, {:?} conflicts were refused", seen.contended);
        let refused = seen.refused.lock().unwrap();
        assert!(refused.is_empty(), "{} errors while node {victim} was away: {:?}", refused.len(), refused.first());
    }
    assert_eq!(seen.check_once(&cluster, 0), checked);
}

#[test]
fn killing_one_node_at_a_time_is_not_even_noticed_by_the_clients_of_the_others() {
    unnoticed(6, |cluster, seen, victim| {
        cluster.kill(victim);
        after_writes(seen, 500);
        cluster.restart(victim);
    });
}

#[test]
fn pausing_one_node_at_a_time_is_not_even_noticed_by_the_clients_of_the_others() {
    unnoticed(3, |cluster, seen, victim| {
        cluster.pause(victim);
        after_writes(seen, 500);
        cluster.resume(victim);
    });
}

fn restamps(cluster: &Cluster) -> f64 {
    (0..cluster.len()).map(|index| cluster.metric(index, "kvorum_coordinator_restamps_total")).sum()
}

#[test]
fn writes_of_one_key_through_all_nodes_are_never_refused_after_a_start() {
    let mut cluster = Cluster::start(3);
    for round in 0..3 {
        let mut clients = cluster.clients();
        for number in 0..2_000 {
            let key = entity_at("contended", 2 + number / 2 % 2, 3);
            if number % 2 == 0 {
                clients[number % 3].put(&key, b"v");
            } else {
                clients[number % 3].delete(&key);
            }
        }
        eprintln!("round {round}: {} writes were stamped again", restamps(&cluster));
        cluster.kill_all();
        cluster.spawn_all();
        cluster.wait_whole();
    }
}

#[test]
fn deletes_that_were_acknowledged_stay_after_killing_all() {
    let mut cluster = Cluster::start(3);
    let key = |number: usize| entity(format!("k{number}"));
    for round in 0..3 {
        let mut clients = cluster.clients();
        for number in 0..100 {
            clients[number % 3].put(&key(number), b"v");
            clients[(number + round) % 3].delete(&key(number));
        }
        cluster.kill_all();
        cluster.spawn_all();
        cluster.wait_whole();
        let mut clients = cluster.clients();
        for number in 0..100 {
            clients[(number + 1) % 3].absent(&key(number));
        }
    }
}
