//! More is written than the disks can merge: writers are slowed down before the engine stops them, nothing fails that
//! was sent, reads go on, and it ends by itself (decision 0061).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::random::Random;
use crate::support::{Cluster, entity, wait_until, wait_within};

const WRITERS: usize = 8;
/// Few keys, so that the data stays small however long it takes.
const KEYS: u64 = 60;
const VALUE_BYTES: usize = 1_000_000;
/// For a debt to grow, and to be paid.
const LONG: Duration = Duration::from_secs(120);

/// Stops the writers, also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes until it is told to stop. What is refused had no effect, and says so.
fn write(cluster: &Cluster, seed: u64, stop: &AtomicBool, written: &AtomicU64) {
    let mut random = Random::new(seed);
    let mut client = cluster.client(0).timeout(LONG);
    let value = random.bytes(VALUE_BYTES);
    while !stop.load(Ordering::Relaxed) {
        let response = client.ok("PUT", &entity(format!("k{}", random.below(KEYS))), Some(&value));
        if response.status == 201 {
            written.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let problem = response.problem(503);
        assert!(response.header("retry-after").is_some() && !response.closes(), "{response:?}");
        assert!(problem["detail"].as_str().unwrap().contains("had no effect"), "{problem}");
    }
}

#[test]
fn writers_whom_the_disks_cannot_follow_are_slowed_down_and_nothing_fails() {
    // With little memory tables are small: a debt is soon large, and soon paid.
    let cluster = Cluster::with(3, &[("KVORUM_MEMORY_BYTES", "64MiB"), ("KVORUM_REPAIR_INTERVAL", "24h")]);
    cluster.client(0).put(&entity("read"), b"all the time");
    let delayed = || cluster.metric(0, "kvorum_coordinator_delayed_behind_total");
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for seed in 0..WRITERS as u64 {
            let (cluster, stop, written) = (&cluster, &stop, &written);
            scope.spawn(move || write(cluster, seed, stop, written));
        }
        let mut reader = cluster.client(0);
        wait_within(LONG, "writers are slowed down for what the stores owe", || {
            assert_eq!(reader.value(&entity("read")), b"all the time");
            (delayed() > 0.0).then_some(())
        });
        let before = written.load(Ordering::Relaxed);
        wait_until("they go on", || written.load(Ordering::Relaxed) > before + 40);
        assert_eq!(reader.value(&entity("read")), b"all the time");
    });
    wait_within(LONG, "the debt is paid", || {
        (0..3).all(|index| cluster.metric(index, "kvorum_store_backpressure") == 0.0).then_some(())
    });
    let mut client = cluster.client(0);
    // Peers tell of it once a second.
    wait_until("no write waits", || {
        let before = delayed();
        client.put(&entity("k"), b"v");
        delayed() == before
    });
}
