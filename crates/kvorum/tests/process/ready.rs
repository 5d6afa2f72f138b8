//! A ready node answers requests, and so do the others for it; and one that has only started has those wait that come
//! before its cluster is there (decision 0060). No request may fail here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::random::Random;
use crate::support::wait::wait_closely;
use crate::support::{Client, Cluster, entity, entity_at, number_from_environment, wait_for, wait_until};

/// So long an outage has the others' attempts to connect far apart.
const OUTAGE: Duration = Duration::from_secs(3);

/// Requests that were made, and what failed.
#[derive(Default)]
struct Tally {
    asked: AtomicU64,
    failed: Mutex<Vec<String>>,
}

impl Tally {
    fn note(&self, what: &str, answer: std::io::Result<crate::support::http::Response>, statuses: &[u16]) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if !answer.as_ref().is_ok_and(|answer| statuses.contains(&answer.status)) {
            self.failed.lock().unwrap().push(format!("{what}: {answer:?}"));
        }
    }

    /// A PUT, and a GET of it.
    fn ask(&self, what: &str, client: &mut Client, target: &str) {
        self.note(&format!("PUT {what}"), client.send("PUT", target, &[], Some(b"v")), &[201]);
        self.note(&format!("GET {what}"), client.send("GET", target, &[], None), &[200]);
    }

    #[track_caller]
    fn check(&self, least: u64) {
        let (asked, failed) = (self.asked.load(Ordering::Relaxed), self.failed.lock().unwrap());
        assert!(failed.is_empty(), "{} of {asked} failed:\n{}", failed.len(), failed.join("\n"));
        assert!(asked >= least, "only {asked} requests");
    }
}

fn answers(client: &mut Client, target: &str) -> bool {
    client.send("GET", target, &[], None).is_ok_and(|response| response.status == 200)
}

#[test]
fn a_fresh_cluster_that_is_started_node_by_node_answers_at_once() {
    let rounds = number_from_environment("KVORUM_TEST_FRESH_ROUNDS", 6);
    let tally = Tally::default();
    for round in 0..rounds {
        let mut cluster = Cluster::prepare(3, &[]);
        for index in 0..3 {
            cluster.spawn(index);
            wait_closely("the node has started", || {
                assert!(!cluster.has_exited(index), "{}", cluster.log(index));
                answers(&mut cluster.client(index), "/v0/status").then_some(())
            });
        }
        let (cluster, tally) = (&cluster, &tally);
        thread::scope(|scope| {
            for (index, ack) in [(0, 2), (1, 2), (2, 2), (0, 3), (1, 3), (2, 3)] {
                scope.spawn(move || {
                    let what = format!("{ack}/3 through node {index} in round {round}");
                    tally.ask(&what, &mut cluster.client(index), &entity_at(format!("{index} {ack}"), ack, 3));
                });
            }
        });
    }
    tally.check(12 * rounds as u64);
}

#[test]
fn what_polls_readyz_and_then_asks_gets_its_answer_through_any_node() {
    let rounds = number_from_environment("KVORUM_TEST_READY_ROUNDS", 12);
    let mut cluster = Cluster::start(3);
    let tally = Tally::default();
    for round in 0..rounds {
        let away = round % 3;
        // Connections that are there before, to more than one shard.
        let others = [(away + 1) % 3, (away + 2) % 3];
        let mut clients: Vec<(usize, Client)> = others.iter().map(|index| (*index, cluster.client(*index))).collect();
        clients.extend(others.iter().map(|index| (*index, cluster.client(*index))));
        assert!(clients.iter_mut().all(|(_, client)| answers(client, "/livez")));
        match round % 2 {
            0 => assert!(cluster.terminate(away).success()),
            _ => cluster.kill(away),
        }
        if round % 4 < 2 {
            let begin = Instant::now();
            wait_for("the outage is over", || (begin.elapsed() >= OUTAGE).then_some(()));
        }
        cluster.spawn(away);
        let mut probe = cluster.client(away);
        wait_closely("the node is ready", || answers(&mut probe, "/readyz").then_some(()));
        clients.extend([(away, probe), (away, cluster.client(away))]);
        // The first request has the least time.
        clients.rotate_left(round % 6);
        for (index, client) in &mut clients {
            let what = format!("through node {index} after the return of node {away} in round {round}");
            tally.ask(&what, client, &entity_at(format!("{round} {index}"), 3, 3));
        }
    }
    tally.check(12 * rounds as u64);
}

/// Nodes that clients may ask: each run of one has a number.
struct Open(Vec<RwLock<Option<u32>>>);

impl Open {
    /// It gets no more requests, and all of its requests are answered.
    fn close(&self, index: usize) {
        *self.0[index].write().unwrap() = None;
    }

    fn open(&self, index: usize, run: u32) {
        *self.0[index].write().unwrap() = Some(run);
    }

    /// Asks nodes that are open, one request at a time and about a thousand in a second, until `stop` is set. Its keys
    /// are its own: two concurrent writes while a replica is away may leave neither with a majority.
    fn ask(&self, cluster: &RwLock<Cluster>, tally: &Tally, number: u64, stop: &AtomicBool) {
        let mut random = Random::new(number);
        let mut clients: Vec<(u32, Client)> =
            (0..self.0.len()).map(|index| (0, cluster.read().unwrap().client(index))).collect();
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(1));
            let index = random.below(self.0.len() as u64) as usize;
            // Held until the answer is there.
            let open = self.0[index].read().unwrap();
            let Some(run) = *open else { continue };
            let (known, client) = &mut clients[index];
            if *known != run {
                (*known, *client) = (run, Client::new(client.address()));
            }
            if written == 0 || random.below(2) == 0 {
                let key = entity(format!("{number} {}", written % 100));
                tally.note(&format!("PUT through node {index}"), client.send("PUT", &key, &[], Some(b"v")), &[201]);
                written += 1;
            } else {
                let key = entity(format!("{number} {}", random.below(written.min(100))));
                tally.note(&format!("GET through node {index}"), client.send("GET", &key, &[], None), &[200]);
            }
        }
    }
}

#[test]
fn a_rolling_restart_under_load_fails_no_request() {
    let rounds = number_from_environment("KVORUM_TEST_ROLLING_ROUNDS", 6);
    let cluster = RwLock::new(Cluster::start(3));
    let open = Open((0..3).map(|_| RwLock::new(Some(0))).collect());
    let (tally, stop) = (Tally::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..6 {
            let (cluster, open, tally, stop) = (&cluster, &open, &tally, &stop);
            scope.spawn(move || open.ask(cluster, tally, number, stop));
        }
        let restarted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..rounds {
                let index = round % 3;
                let before = tally.asked.load(Ordering::Relaxed);
                wait_until("some are asked", || tally.asked.load(Ordering::Relaxed) > before + 100);
                open.close(index);
                let mut cluster = cluster.write().unwrap();
                assert!(cluster.terminate(index).success());
                cluster.spawn(index);
                cluster.wait_ready(index);
                open.open(index, u32::try_from(round).unwrap() + 1);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        restarted.unwrap();
    });
    tally.check(600);
}
