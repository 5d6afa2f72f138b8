//! How many small records per second the commit thread makes durable, and what each costs.
//!
//! `cargo run --release -p kvorum-engine-rocksdb --example commit_rate -- DIR [SECONDS [IN_FLIGHT [os]]]`
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_precision_loss, missing_docs)]

use std::sync::mpsc;
use std::sync::{Arc, atomic::Ordering};
use std::time::{Duration, Instant, SystemTime};

use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::cpu_share::CpuShare;
use kvorum_core::key::Key;
use kvorum_core::record::Record;
use kvorum_core::version::{Hlc, Incarnation, Version};
use kvorum_engine_rocksdb::RocksStore;
use kvorum_storage::budget::MemoryBudget;
use kvorum_storage::commit::queue::TurnTime;
use kvorum_storage::commit::{
    CommitConfig, CommitThread, Committer, Completion, CompletionToken, QueueLimits, Sink, Submission, Work,
};
use kvorum_storage::data_dir::{ClusterId, DataDir};
use kvorum_storage::{Durability, Store};

struct Channel(mpsc::SyncSender<usize>);

impl Sink for Channel {
    fn deliver(&mut self, _: u16, done: &mut Vec<Completion>) {
        let _ = self.0.send(done.len());
        done.clear();
    }
}

fn wall_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// CPU seconds of the whole process, RocksDB's threads included.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn work(number: u64, timestamp: Hlc) -> Work {
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let key = Key::new(format!("{random:020}").into()).unwrap();
    let version = Version { hlc: timestamp, incarnation: Incarnation(1) };
    let record = Record::value(&key, version, 3, None, &[b'v'; 100]).bytes().clone();
    let hash = key.hash();
    Work::Store(Submission {
        key,
        hash,
        version,
        record,
        repair: false,
        epoch: 0,
        token: CompletionToken { shard: 0, id: number },
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let seconds = arguments.get(2).map_or(5, |text| text.parse().unwrap());
    let in_flight = arguments.get(3).map_or(64, |text| text.parse().unwrap());
    let durability = if arguments.get(4).is_some() { Durability::Os } else { Durability::Fsync };
    let directory = DataDir::open(std::path::Path::new(&arguments[1]), ClusterId(1)).unwrap();
    let store =
        Arc::new(RocksStore::open_in(&directory, MemoryBudget::new(512 << 20).unwrap(), CpuShare::whole()).unwrap().0);
    let commits = store.commit_micros();
    let config = CommitConfig {
        retention: Duration::from_secs(5),
        recent_entries_max: 1 << 20,
        skew_max: Duration::from_secs(60),
        bound_lead: Duration::from_secs(1),
        batch_bytes_max: 16 << 20,
        durability,
    };
    let begin = Instant::now();
    let committer = Committer::new(Arc::clone(&store), config, begin.elapsed()).unwrap();
    let metrics = committer.metrics();
    let (pool, _pool_threads) = ReadPool::start(2, 100).unwrap();
    let (sender, answers) = mpsc::sync_channel(1 << 16);
    let limits = QueueLimits { works_max: 1 << 16, bytes_max: 64 << 20 };
    let now = move || TurnTime { boot: begin.elapsed(), wall_ms: wall_ms() };
    let (queue, thread) = CommitThread::start(committer, limits, pool, Channel(sender), now).unwrap();

    let (mut number, mut timestamp, mut answered) = (0, Hlc::ZERO, 0);
    let mut works = Vec::new();
    let mut wanted = in_flight;
    let before = cpu();
    let mut second = 1;
    while begin.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..wanted {
            timestamp = timestamp.tick(wall_ms());
            number += 1;
            works.push(work(number, timestamp));
        }
        queue.submit_all(&mut works);
        assert!(works.is_empty());
        wanted = answers.recv().unwrap();
        answered += wanted;
        if begin.elapsed() > Duration::from_secs(second) {
            second += 1;
            let stats = store.stats();
            eprintln!(
                "{answered} {} L0, {} pending, {:?}",
                stats.level0_files, stats.compaction_pending_bytes, stats.stall
            );
        }
    }
    let rate = answered as f64 / begin.elapsed().as_secs_f64();
    let cost = (cpu() - before) * 1e6 / answered as f64;
    let (batch, commit) = (metrics.batch_works.snapshot(), commits.snapshot());
    println!("{rate:.0} records/s, {cost:.1} us CPU each, batches of {:.0}", batch.sum as f64 / batch.count() as f64);
    println!("commit p50 {} p99 {} p99.9 {} us", commit.quantile(0.5), commit.quantile(0.99), commit.quantile(0.999));
    println!("point reads {}, stalls {}", metrics.point_reads.load(Ordering::Relaxed), store.stats().stalls);
    drop(thread.stop());
}
