//! Crowds and bad manners: 10,000 idle connections, garbage, slow readers and writers. Others are unaffected.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::support::http::request;
use crate::support::random::Random;
use crate::support::{Client, Cluster, entity, wait_within};

const MIB: u64 = 1024 * 1024;
const IDLE: usize = 10_000;

/// As many connections as the machine's limit on open files allows, at most [`IDLE`].
fn idle_connections(cluster: &Cluster) -> Vec<TcpStream> {
    let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = usize::try_from(open_files.saturating_sub(2_000)).unwrap_or(IDLE);
    if room < IDLE {
        eprintln!("ONLY {room} OF {IDLE} IDLE CONNECTIONS: the limit of open files is {open_files}");
    }
    let address = cluster.node(0).address;
    (0..room.min(IDLE)).map(|_| TcpStream::connect(address).expect("a connection")).collect()
}

/// A client that behaves, and counts what it got done until `stop` is set.
fn honest(cluster: &Cluster, number: usize, stop: &AtomicBool, done: &AtomicU64) {
    let mut client = cluster.client(0).timeout(Duration::from_secs(30));
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let (target, value) = (entity(format!("honest-{number}-{}", round % 50)), format!("value {round}"));
        client.put(&target, value.as_bytes());
        assert_eq!(client.value(&target), value.as_bytes());
        done.fetch_add(1, Ordering::Relaxed);
        round += 1;
    }
}

/// Bytes that are not requests, on ever new connections.
fn garbage(cluster: &Cluster, stop: &AtomicBool) {
    let mut random = Random::new(5);
    while !stop.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(cluster.node(0).address) {
            let length = random.below(20_000) as usize;
            let _refused = stream.write_all(&random.bytes(length));
        }
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// Half requests, bodies that trickle, answers that are not read: held open until `stop` is set.
fn slow(cluster: &Cluster, stop: &AtomicBool) {
    let half_head = request("GET", &entity("big"), &[], None);
    let half_body = request("PUT", &entity("never"), &[], Some(&[1; 1_000_000]));
    let mut held: Vec<Client> = Vec::new();
    for number in 0..150 {
        let mut client = cluster.client(0);
        let _refused = match number % 3 {
            0 => client.write(&half_head[..half_head.len() / 2]),
            1 => client.write(&half_body[..500_000]),
            _ => client.write(&half_head.repeat(3)),
        };
        held.push(client);
    }
    while !stop.load(Ordering::Relaxed) {
        for client in &mut held {
            let _closed = client.write(b"x");
        }
        thread::park_timeout(Duration::from_millis(100));
    }
}

#[test]
fn crowds_and_bad_manners_leave_others_alone_and_memory_bounded() {
    let settings = [("KVORUM_DURABILITY", "os"), ("KVORUM_LIMITS_REQUEST_READ_TIMEOUT", "3s")];
    let cluster = Cluster::with(1, &settings);
    cluster.client(0).put(&entity("big"), &vec![7; 4_000_000]);
    let idle = idle_connections(&cluster);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..4 {
            let (cluster, stop, done) = (&cluster, &stop, &done);
            scope.spawn(move || honest(cluster, number, stop, done));
        }
        scope.spawn(|| garbage(&cluster, &stop));
        scope.spawn(|| slow(&cluster, &stop));
        let goal = 5_000;
        let reached = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_within(Duration::from_secs(60), "the honest clients get 5,000 writes and reads done", || {
                (done.load(Ordering::Relaxed) >= goal).then_some(())
            });
        }));
        stop.store(true, Ordering::Relaxed);
        reached.unwrap();
    });
    let peak = cluster.memory(0, "VmHWM");
    eprintln!("with {} idle connections and bad manners: at most {} MiB", idle.len(), peak / MIB);
    assert!(peak <= (64 + 128) * MIB, "took {} MiB", peak / MIB);
    cluster.client(0).absent(&entity("never"));
}
