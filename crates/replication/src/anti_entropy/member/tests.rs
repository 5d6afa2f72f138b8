//! What a scan costs others: on a shard with a store in memory, in virtual time, the jobs of both pools run by the
//! test.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;

use kvorum_base::cpu_share::cpu_time;
use kvorum_core::node::NodeId;
use kvorum_core::{Hlc, Incarnation};
use kvorum_storage::{Batch, Durability};
use tokio::task::JoinHandle;

use super::*;
use crate::background_scan::{YIELD, YIELDS_MAX};
use crate::coordinator::tests::rig::{Rig, Settings, run};

const ROUND: RoundId = RoundId { until: Hlc::from_millis(1000), driver: NodeId(0) };
const VALUE_BYTES: usize = 4096;

fn key(number: usize) -> Key {
    Key::new(format!("k{number:05}").into()).unwrap()
}

/// A node alone with so many records.
async fn node(records: usize) -> Rig {
    let rig = Rig::start(1, Settings { read_threads: 0, ..Settings::default() }).await;
    let version = Version { hlc: Hlc::from_millis(1), incarnation: Incarnation(1) };
    let mut batch = Batch::default();
    for number in 0..records {
        let record = Record::value(&key(number), version, 1, None, &[b'x'; VALUE_BYTES]);
        batch.put(key(number), record.bytes().clone());
    }
    rig.store.commit(&batch, Durability::Fsync).unwrap();
    tokio::time::pause();
    rig
}

fn scan(rig: &Rig) -> JoinHandle<()> {
    rig.shard.anti_entropy.enter(ROUND, 0, Duration::ZERO).unwrap();
    tokio::task::spawn_local(rig.shard.member.clone().sum_up(ROUND))
}

/// Runs the pages of the scan until it is over.
async fn end(rig: &Rig, scan: JoinHandle<()>) -> Arc<Trees> {
    let pool = rig.shard.scans.clone();
    let worker = tokio::task::spawn_local(async move {
        loop {
            (pool.next().await)();
        }
    });
    scan.await.unwrap();
    worker.abort();
    rig.shard.anti_entropy.trees(ROUND).unwrap()
}

fn a_clients_read(rig: &Rig) {
    assert!(rig.shard.pool.submit(Box::new(|| {})).is_ok());
}

#[test]
fn a_scan_waits_while_reads_of_clients_wait() {
    run(async {
        let rig = node(10).await;
        (0..3).for_each(|_| a_clients_read(&rig));
        let scan = scan(&rig);
        for _ in 0..YIELDS_MAX / 4 {
            tokio::time::sleep(YIELD).await;
            assert_eq!(rig.shard.scans.depth(), 0, "its page is not asked for");
        }
        for _ in 0..3 {
            (rig.shard.pool.next().await)();
        }
        assert_eq!(rig.shard.pool.depth(), 0);
        assert!(end(&rig, scan).await.classes().any(|class| class == 1), "it went on");
    });
}

#[test]
fn reads_of_clients_that_never_end_do_not_hold_a_scan_up_for_ever() {
    run(async {
        let rig = node(10).await;
        a_clients_read(&rig);
        let scan = scan(&rig);
        let begin = tokio::time::Instant::now();
        while rig.shard.scans.depth() == 0 {
            assert!(begin.elapsed() < 3 * YIELD * YIELDS_MAX, "its page is asked for by now");
            tokio::time::sleep(YIELD).await;
        }
        end(&rig, scan).await;
    });
}

#[test]
fn a_scan_rests_for_what_is_not_its_share_while_requests_come() {
    const WORK: Duration = Duration::from_millis(20);
    run(async {
        let rig = node(1).await;
        rig.shard.cpu_share.note_request();
        let scan = rig.shard.scan.clone();
        let scan = tokio::task::spawn_local(async move { scan.run(|_| work_for(WORK)).await });
        (rig.shard.scans.next().await)();
        let rested = std::time::Instant::now();
        let worked = scan.await.unwrap().unwrap();
        assert!(rested - worked >= 7 * WORK, "a quarter of half a core is its share: {:?}", rested - worked);
    });
}

#[test]
fn a_scan_reads_no_faster_than_repair_rate() {
    run(async {
        let rig = node(768).await;
        let begin = tokio::time::Instant::now();
        let scan = scan(&rig);
        end(&rig, scan).await;
        let took = begin.elapsed().as_secs_f64();
        let bytes = rig.shard.anti_entropy.metrics.scanned_bytes.load(Ordering::Relaxed);
        assert!(bytes >= 768 * VALUE_BYTES as u64);
        let rate = rig.shard.anti_entropy.settings.rate as f64;
        // Nothing is waited for after the last page.
        let least = (bytes as f64 - (PART.bytes + 2 * VALUE_BYTES) as f64) / rate;
        let most = bytes as f64 / rate + 0.5;
        assert!((least..most).contains(&took), "{bytes} bytes at {rate} in a second took {took} s of virtual time");
    });
}

#[test]
fn of_many_damaged_records_each_is_counted_and_few_are_logged() {
    run(async {
        let rig = node(50).await;
        assert!((0..20).all(|number| rig.store.corrupt(&key(number), 0)));
        let scan = scan(&rig);
        let trees = end(&rig, scan).await;
        assert!(trees.marked().count() > 0);
        let anti_entropy = &rig.shard.anti_entropy;
        assert_eq!(anti_entropy.metrics.damaged.load(Ordering::Relaxed), 20);
        let later = rig.shard.clock.boot() + Duration::from_secs(10);
        assert_eq!(anti_entropy.damaged.due(later), Some(19), "were left out");
    });
}

/// Has this thread work for so long; when that ended.
fn work_for(time: Duration) -> std::time::Instant {
    let begin = cpu_time();
    while cpu_time().saturating_sub(begin) < time {
        std::hint::spin_loop();
    }
    std::time::Instant::now()
}
