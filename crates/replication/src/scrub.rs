//! Scrub: reads all that this node stores, page by page, verifies every record's digest, and has what is damaged
//! repaired by the other replicas.
//!
//! A damaged record is read through the coordinator: this node's own answer is a failure and the others' decide. Their
//! answer is stored here as repair stores it. So nothing here decides anything. It runs on the background shard, slowly
//! and without end, and sixteen times as fast where a pass was asked for.
//!
//! Does not promise to find damage under what the engine's cache holds: it shows when that has let it go.

use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kvorum_base::sync::Mutex;
use kvorum_base::task::BoxedTask;
use kvorum_core::quorum::{Held, Quorum, majority};
use kvorum_core::{Key, Record};
use kvorum_peer::peers::Peers;
use kvorum_storage::{Page, PageLimit, Store, StoreError, Tier};
use tokio::sync::Notify;

use crate::background_scan::BackgroundScan;
use crate::coordinator::{Coordinator, ReadResult, WithReceipt};
use crate::pinned_layout::ShardLayout;

/// What is read at a time: a quarter of a millisecond, for which a thread that wakes up may have to wait.
const PAGE: PageLimit = PageLimit { records: 128, bytes: 32 * 1024 };
/// Where a block is damaged each of its records is looked up by itself.
const DAMAGED_PAGE: PageLimit = PageLimit { records: 64, bytes: 64 * 1024 };
/// A pass that was asked for goes at so many times the rate of the others, which is taken to be at least this. Else a
/// request could have the disk read at full speed.
const ASKED_RATE_TIMES: u64 = 16;
const ASKED_RATE_OF_MIN: u64 = 1 << 20;
/// Between two automatic passes.
const PAUSE: Duration = Duration::from_secs(60);
/// Between two looks, or two attempts.
const RETRY: Duration = Duration::from_millis(100);
const STOPPING: &str = "the node is stopping";
const STOPPED: &str = "an operator stopped it";
/// Looks for the peers, and for a record that has been sent here to replace a damaged one.
const LOOKS_MAX: u32 = 50;

/// What was found so far.
#[derive(Debug, Default)]
pub struct Scrub {
    /// Bytes a second of automatic passes; zero if there are none.
    rate: u64,
    asked: Notify,
    /// Ends the pass that is made.
    stopped: Notify,
    /// Passes begun.
    pub begun: AtomicU64,
    /// Passes ended, in whatever way.
    pub ended: AtomicU64,
    /// Records read.
    pub records: AtomicU64,
    /// Their bytes, keys included.
    pub bytes: AtomicU64,
    /// Records whose digest, or whose block, was wrong.
    pub damaged: AtomicU64,
    /// Of these, records that the other replicas have replaced.
    pub repaired: AtomicU64,
    /// Why the last pass ended before the last record.
    trouble: Mutex<Option<String>>,
}

impl Scrub {
    /// Nothing was read yet; `rate` is in bytes a second.
    #[must_use]
    pub fn new(rate: u64) -> Arc<Self> {
        Arc::new(Self { rate, ..Self::default() })
    }

    /// Asks for a pass over everything, at sixteen times the rate. Its number: it is over once so many have ended.
    pub fn ask(&self) -> u64 {
        let number = self.begun.load(Ordering::Acquire) + 1;
        self.asked.notify_one();
        number
    }

    /// Stops the pass that is made: its number, if one is. The next begins by itself, as after one that ended.
    pub fn stop(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::Acquire);
        if begun == self.ended.load(Ordering::Acquire) {
            return None;
        }
        // Not kept for a pass that begins later.
        self.stopped.notify_waiters();
        Some(begun)
    }

    /// Bytes a second.
    fn rate_of(&self, reason: PassReason) -> u64 {
        match reason {
            PassReason::Due => self.rate,
            PassReason::Asked => self.rate.max(ASKED_RATE_OF_MIN).saturating_mul(ASKED_RATE_TIMES),
        }
    }

    /// Why the last pass ended before the last record, if it did.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end(&self, trouble: Option<String>) {
        if let Some(trouble) = &trouble {
            tracing::warn!(trouble, "scrub could not go on");
        }
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        self.ended.store(self.begun.load(Ordering::Acquire), Ordering::Release);
    }
}

/// What a page had.
#[derive(Debug, Default)]
struct Checked {
    records: u64,
    bytes: u64,
    damaged: Vec<Key>,
    /// Where the next begins.
    next: Option<Bytes>,
}

/// Why a pass is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassReason {
    /// It is time for one.
    Due,
    /// A request waits for it.
    Asked,
}

/// How a pass ended.
enum PassEnd {
    /// With the last record.
    Whole,
    /// Another was asked for.
    Asked,
}

/// Scrubs what a node stores, on one of its shards.
pub struct Scrubber {
    /// The other nodes, which have to be there to help.
    pub peers: Rc<Peers>,
    /// Reads what is stored.
    pub scan: BackgroundScan,
    /// Asks the others.
    pub coordinator: Coordinator,
    /// What is scrubbed.
    pub store: Arc<dyn Store>,
    /// Where keys belong.
    pub layout: Rc<ShardLayout>,
    /// What was found.
    pub scrub: Arc<Scrub>,
}

impl Scrubber {
    /// Scrubs for as long as the shard runs.
    pub fn run(self) -> BoxedTask {
        Box::pin(async move {
            let scrub = &self.scrub;
            let mut reason = PassReason::Due;
            loop {
                if reason == PassReason::Due && scrub.rate == 0 {
                    scrub.asked.notified().await;
                    reason = PassReason::Asked;
                }
                // Listens before there is a pass that could be asked to stop.
                let mut stopped = pin!(scrub.stopped.notified());
                stopped.as_mut().enable();
                scrub.begun.fetch_add(1, Ordering::AcqRel);
                let end = tokio::select! {
                    biased;
                    end = self.pass(reason) => end,
                    () = stopped => Err(STOPPED.to_owned()),
                };
                reason = match end {
                    Ok(PassEnd::Asked) => {
                        scrub.end(None);
                        PassReason::Asked
                    }
                    ended => {
                        scrub.end(ended.err());
                        let asked = tokio::time::timeout(PAUSE, scrub.asked.notified()).await;
                        if asked.is_ok() { PassReason::Asked } else { PassReason::Due }
                    }
                };
            }
        })
    }

    /// Right after a start no peer can help yet. Waits for the peers, but not for one that is away.
    async fn until_connected(&self) {
        for _ in 0..LOOKS_MAX {
            if self.peers.all().iter().all(|peer| peer.is_up()) {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn pass(&self, reason: PassReason) -> Result<PassEnd, String> {
        self.until_connected().await;
        let scrub = &self.scrub;
        let rate = scrub.rate_of(reason);
        let mut start = Bytes::new();
        loop {
            let (read_from, begin) = (self.store.clone(), start.clone());
            let checked = self.scan.run(move |_| check(&*read_from, &begin)).await.ok_or(STOPPING)?;
            let checked = checked.map_err(|error| format!("a page could not be read: {error}"))?;
            scrub.records.fetch_add(checked.records, Ordering::Relaxed);
            scrub.bytes.fetch_add(checked.bytes, Ordering::Relaxed);
            for key in checked.damaged {
                scrub.damaged.fetch_add(1, Ordering::Relaxed);
                let hash = key.hash().get();
                if self.repair(key).await? {
                    scrub.repaired.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(key_hash = hash, "a damaged record was replaced by that of the other replicas");
                } else {
                    tracing::error!(key_hash = hash, "a damaged record could not be replaced");
                }
            }
            let Some(next) = checked.next else { return Ok(PassEnd::Whole) };
            start = next;
            let pause = tokio::time::sleep(Duration::from_millis(checked.bytes.saturating_mul(1000) / rate));
            tokio::select! {
                () = pause => {}
                // A request that comes while a pass is made that was asked for waits for its end.
                () = scrub.asked.notified(), if reason == PassReason::Due => return Ok(PassEnd::Asked),
            }
        }
    }

    /// Has the other replicas replace a record; whether they have.
    async fn repair(&self, key: Key) -> Result<bool, String> {
        let (salvaged_from, damaged) = (self.store.clone(), key.clone());
        let salvaged = self.scan.run(move |_| {
            salvaged_from.forget(&damaged);
            salvaged_from.salvage(&damaged)
        });
        let nodes = u8::try_from(self.layout.pin().nodes().len()).expect("at most NODES_MAX");
        // Where the damage is in this byte no node with the record is found.
        let claimed = salvaged.await.ok_or(STOPPING)?.and_then(|bytes| Record::claimed_from(&bytes));
        let from = claimed.filter(|from| (1..=nodes).contains(from)).unwrap_or(nodes);
        let quorum = Quorum::new(majority(from), from).expect("a majority is not more than all");
        let found = self.coordinator.get(key.clone(), quorum, WithReceipt::No).await;
        let Ok(ReadResult { value: Held::Record(record), .. }) = found else { return Ok(false) };
        self.coordinator.repair_own(&key, &record);
        for _ in 0..LOOKS_MAX {
            let (store, key) = (self.store.clone(), key.clone());
            if self.scan.run(move |_| is_sound(&*store, &key)).await.ok_or(STOPPING)? {
                return Ok(true);
            }
            tokio::time::sleep(RETRY).await;
        }
        Ok(false)
    }
}

/// One page from `start` on. Blocks on the disk.
fn check(store: &dyn Store, start: &[u8]) -> Result<Checked, StoreError> {
    match store.scan(start, None, PAGE) {
        Ok(page) => Ok(judge(page, |key, record| Record::decode(key, record.clone()).is_ok())),
        // Somewhere on this page: blocks are read as they are, and every key by itself as a reader would.
        Err(StoreError::Corrupt(_)) => {
            let page = store.scan_unchecked(start, DAMAGED_PAGE)?;
            Ok(judge(page, |key, _| is_sound(store, key)))
        }
        Err(error) => Err(error),
    }
}

fn is_sound(store: &dyn Store, key: &Key) -> bool {
    match store.get(key, Tier::Disk) {
        Ok(None) => true,
        Ok(Some(record)) => Record::decode(key, record).is_ok(),
        Err(_) => false,
    }
}

fn judge(page: Page, is_sound: impl Fn(&Key, &Bytes) -> bool) -> Checked {
    let mut checked = Checked::default();
    if let Some((last, _)) = page.records.last().filter(|_| page.more) {
        let mut next = BytesMut::from(last.as_ref());
        next.put_u8(0);
        checked.next = Some(next.freeze());
    }
    for (key, record) in page.records {
        checked.records += 1;
        checked.bytes += u64::try_from(key.len() + record.len()).expect("lengths fit");
        // What is no key was never stored under it: its bytes are damaged, and what they were is lost.
        let Ok(key) = Key::new(key) else { continue };
        if !is_sound(&key, &record) {
            checked.damaged.push(key);
        }
    }
    checked
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kvorum_core::frame::Message;
    use kvorum_core::quorum::ReadAnswer;

    use crate::coordinator::FanOut;
    use crate::coordinator::tests::rig::{Rig, Settings, run, until};
    use crate::scrub::*;

    fn scrubber(rig: &Rig) -> Scrubber {
        let shard = &rig.shard;
        Scrubber {
            peers: shard.peers.clone(),
            scan: shard.scan.clone(),
            coordinator: shard.coordinator.clone(),
            store: rig.store.clone(),
            layout: shard.layout.clone(),
            scrub: Scrub::new(0),
        }
    }

    #[test]
    fn a_pass_that_was_asked_for_is_sixteen_times_as_fast_and_never_unbounded() {
        let rates = |rate| [PassReason::Due, PassReason::Asked].map(|reason| Scrub::new(rate).rate_of(reason));
        assert_eq!(rates(4 << 20), [4 << 20, 64 << 20]);
        assert_eq!(rates(0), [0, 16 << 20]);
    }

    #[test]
    fn a_record_is_repaired_though_the_others_answer_before_this_node_says_that_it_is_damaged() {
        run(async {
            let settings = Settings { fan_out: FanOut::All, ..Settings::default() };
            let mut rig = Rig::start(3, settings).await;
            let key = Key::new("k".into()).unwrap();
            let record = rig.stored_everywhere(&key).await;
            assert!(rig.store.corrupt(&key, 0));
            rig.store.make_cold(&key);
            let (release, held_up) = std::sync::mpsc::channel::<()>();
            assert!(rig.shard.pool.submit(Box::new(move || _ = held_up.recv())).is_ok());
            let (scrubber, damaged) = (scrubber(&rig), key.clone());
            let scans = rig.shard.scans.clone();
            tokio::task::spawn_local(async move {
                loop {
                    (scans.next().await)();
                }
            });
            let repaired = tokio::task::spawn_local(async move { scrubber.repair(damaged).await });
            for peer in 0..2 {
                let read = rig.next(peer).await;
                let answer = ReadAnswer::Held(Held::Record(record.bytes().clone()));
                rig.answer(peer, &read, Message::ReadAnswer(answer)).await;
            }
            until(|| rig.shard.coordinator.under_way() == 0).await;
            assert!(rig.shard.pool.depth() > 0, "this node has not answered yet");
            drop(release);
            assert_eq!(repaired.await.unwrap(), Ok(true));
            assert_eq!(rig.store.get(&key, Tier::Disk), Ok(Some(record.bytes().clone())));
        });
    }
}
