//! Delivers the hints for one node, while there is a connection to it: from the newest bucket to the oldest, a page at
//! a time. A page's answers are all in before the next is sent, which is the window; a bucket is removed when all of it
//! was answered. What is interrupted goes on where it was.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use kvorum_core::hints::{BucketId, Delivered, Size};
use kvorum_core::node::NodeId;
use kvorum_core::quorum::{Failure, StoreAnswer};
use kvorum_core::{Key, Record};
use kvorum_storage::{Page, PageLimit, StoreError};

use super::Dropped;
use super::hint_pace::HintPace;
use super::hint_store::{HintStore, HintTarget};
use super::names;
use super::names::Name;
use crate::background_rpc::BackgroundRpc;

/// How often a hint sender looks whether there is something to deliver, and a connection.
const LOOK: Duration = Duration::from_millis(200);
/// A page: the most that is under way to a node; a larger record goes alone. More would make longer commits there, for
/// which clients' commits wait; fewer would make more syncs (decision 0041).
const WINDOW: PageLimit = PageLimit { records: 128, bytes: 256 << 10 };
/// For the answers to a page.
const ANSWERS_MAX: Duration = Duration::from_secs(10);
/// Between attempts that fail: doubled up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// While the queue to the target is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// Where the delivery of a bucket stands.
struct DeliveryPosition {
    bucket: BucketId,
    next: Bytes,
}

struct HintSender {
    hint_store: Rc<HintStore>,
    target: Rc<HintTarget>,
    pace: HintPace,
    delivered: Delivered,
    place: Option<DeliveryPosition>,
}

/// Why a page was not delivered: it will be tried again.
struct Interrupted;

/// Delivers to one node, until that has left.
pub(super) async fn run(hint_store: Rc<HintStore>, target: Rc<HintTarget>) {
    let pace = HintPace::new(hint_store.parts.queue.settings().rate, hint_store.parts.cpu_share.clone());
    let mut sender = HintSender { hint_store, target, pace, delivered: Delivered::default(), place: None };
    let mut pause = PAUSE_MIN;
    let mut is_away = true;
    // When a round is asked for, after its return.
    let mut round_at = None;
    while !sender.target.is_gone.get() {
        sender.metrics().rate.store(sender.pace.rate(), Ordering::Relaxed);
        let is_up = sender.is_up();
        let (was_away, now) = (std::mem::replace(&mut is_away, !is_up), sender.hint_store.parts.clock.boot());
        if was_away && is_up {
            // Rounds lie behind the clocks: this one covers all that was written until now.
            round_at = Some(now + sender.hint_store.parts.anti_entropy.lag());
        }
        if !is_up || !sender.find_place() {
            if is_up && round_at.take_if(|at| *at <= now).is_some() {
                sender.make_up_for_dropped();
            }
            tokio::time::sleep(LOOK).await;
            continue;
        }
        match sender.deliver_page().await {
            Ok(()) => pause = PAUSE_MIN,
            Err(Interrupted) => {
                sender.pace.slow_down(sender.hint_store.parts.clock.boot());
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

impl HintSender {
    /// A node without a vote takes hints as well.
    fn is_up(&self) -> bool {
        self.hint_store.parts.peers.get(self.target.node).is_some_and(|peer| peer.is_up())
    }

    /// What was dropped while the node was away comes to it by a round now. (Not by one for each hint that is dropped
    /// while it is there, and slow.)
    fn make_up_for_dropped(&self) {
        if self.metrics().missed.swap(false, Ordering::Relaxed) {
            tracing::info!(
                peer = &*self.hint_store.parts.membership.peer(self.target.node).url,
                "hints were dropped: a round makes up for them"
            );
            self.hint_store.parts.anti_entropy.want();
        }
    }

    /// Whether there is something to deliver. What is newer than the bucket under way waits for its turn.
    fn find_place(&mut self) -> bool {
        if self.place.is_none() {
            let bucket = self.target.backlog.borrow_mut().next_to_deliver();
            self.place =
                bucket.map(|bucket| DeliveryPosition { bucket, next: names::hints(self.target.id, bucket).start });
            if bucket.is_none() {
                self.delivered.clear();
            }
        }
        self.place.is_some()
    }

    async fn deliver_page(&mut self) -> Result<(), Interrupted> {
        let Some(DeliveryPosition { bucket, next }) = &self.place else { return Ok(()) };
        let (bucket, next) = (*bucket, next.clone());
        let end = names::hints(self.target.id, bucket).end;
        let store = self.hint_store.parts.store.clone();
        let page = match self.hint_store.parts.scan.run(move |_| store.scan_hints(&next, &end, WINDOW)).await {
            Some(Ok(page)) => page,
            Some(Err(StoreError::Corrupt(error))) => {
                tracing::error!(error, "hints are damaged: their bucket is dropped");
                let size = self.target.backlog.borrow().size_of(bucket);
                self.hint_store.parts.queue.count_dropped(Dropped::Damaged, size.hints);
                self.hint_store.parts.anti_entropy.want();
                Page::default()
            }
            Some(Err(_)) | None => return Err(Interrupted),
        };
        let last = page.records.last().map(|(name, _)| name.clone());
        let bytes = page.records.iter().map(|(name, bytes)| name.len() - names::HEAD + bytes.len()).sum::<usize>();
        let size = Size { hints: page.records.len() as u64, bytes: bytes as u64 };
        self.send(page.records).await?;
        match (last, page.more) {
            (Some(last), true) => {
                self.hint_store.note_delivered(&self.target, bucket, size);
                self.place = Some(DeliveryPosition { bucket, next: [&last, &[0][..]].concat().into() });
            }
            _ => {
                self.hint_store.forget(&self.target, bucket);
                self.place = None;
            }
        }
        Ok(())
    }

    /// Sends a page when its time has come, and waits for all its answers.
    async fn send(&mut self, page: Vec<(Bytes, Bytes)>) -> Result<(), Interrupted> {
        let hint_store = self.hint_store.clone();
        let mut owed = Vec::with_capacity(page.len());
        for (name, bytes) in page {
            let Some((key, record)) = self.owed(&name, bytes) else { continue };
            // Charged for as long as it is on its way, as every large record is.
            let record = hint_store.parts.large_values.keep(record).map_err(|_| Interrupted)?;
            owed.push((key, record));
        }
        let wait = self.pace.take(hint_store.parts.clock.boot(), &owed);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let mut asked = Vec::with_capacity(owed.len());
        for (key, record) in owed {
            let answer = send_one(&hint_store.parts.rpc, self.target.node, &key, &record).await?;
            asked.push((key, record.version(), answer));
        }
        let sent = hint_store.parts.clock.boot();
        for (key, version, answer) in asked {
            let answer = tokio::time::timeout(ANSWERS_MAX, answer).await.map_err(|_| Interrupted)?;
            match answer {
                answer if answer.settles(version) => {
                    self.metrics().delivered.fetch_add(1, Ordering::Relaxed);
                    self.delivered.note(key.hash(), version);
                }
                // Behind its fence: hints are not how this gets there.
                StoreAnswer::StaleUnknown(_) => self.hint_store.parts.queue.count_dropped(Dropped::Refused, 1),
                // What it holds is damaged, perhaps for long, and the other hints do not wait for that.
                StoreAnswer::Failed(Failure::Corrupt) => {
                    self.hint_store.parts.queue.count_dropped(Dropped::Refused, 1);
                    self.hint_store.parts.queue.note_missed(self.target.node);
                }
                _ => return Err(Interrupted),
            }
        }
        let now = hint_store.parts.clock.boot();
        self.pace.note(now, now.saturating_sub(sent));
        Ok(())
    }

    /// The write that a hint is for, if it is still to be delivered; why not is counted.
    fn owed(&self, name: &Bytes, bytes: Bytes) -> Option<(Key, Record)> {
        let Some(Name::Hint(_, _, key)) = names::parse(name) else { return None };
        let Ok(record) = Record::decode(&key, bytes) else {
            self.hint_store.parts.queue.count_dropped(Dropped::Damaged, 1);
            return None;
        };
        if !self.is_replica_of(&key, &record) {
            self.hint_store.parts.queue.count_dropped(Dropped::NoReplica, 1);
            return None;
        }
        match self.delivered.newest(key.hash()) {
            Some(newest) if newest > record.version() => {
                self.metrics().superseded.fetch_add(1, Ordering::Relaxed);
                None
            }
            // Answered before the rest of its page was interrupted.
            Some(newest) if newest == record.version() => None,
            _ => Some((key, record)),
        }
    }

    /// It was when the hint was kept; weights and zones may have been changed since.
    fn is_replica_of(&self, key: &Key, record: &Record) -> bool {
        let layout = self.hint_store.parts.layout.pin();
        layout
            .preference_list(key.hash().partition())
            .iter()
            .take(usize::from(record.from()))
            .any(|node| *node == self.target.node)
    }

    fn metrics(&self) -> Arc<super::TargetMetrics> {
        self.hint_store.parts.queue.target(self.target.node)
    }
}

/// Sends one, as soon as there is room for it; the future inside is the answer.
async fn send_one<'a>(
    rpc: &'a BackgroundRpc,
    target: NodeId,
    key: &Key,
    record: &Record,
) -> Result<impl Future<Output = StoreAnswer> + use<'a>, Interrupted> {
    loop {
        match rpc.hint(target, key, record) {
            Ok(answer) => return Ok(answer),
            Err(Failure::Overloaded) => tokio::time::sleep(QUEUE_PAUSE).await,
            Err(_) => return Err(Interrupted),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kvorum_core::{Hlc, Incarnation, Version};

    use super::*;
    use crate::coordinator::tests::rig::{Rig, Settings, run};
    use crate::hints::names::TargetId;

    #[test]
    fn a_hint_for_a_node_that_is_no_replica_is_dropped() {
        run(async {
            let rig = Rig::start(3, Settings::default()).await;
            let layout = rig.shard.membership.layout();
            let hint_store = rig.shard.hint_store();
            hint_store.follow(&layout);
            let (key, hlc) = (Key::new("k".into()).unwrap(), Hlc::from_millis(7));
            let record = Record::value(&key, Version { hlc, incarnation: Incarnation(7) }, 2, None, b"value");
            let mut dropped = 0;
            for (rank, node) in layout.preference_list(key.hash().partition()).iter().enumerate() {
                let Some(target) = hint_store.target(*node) else { continue };
                let pace = HintPace::new(1, hint_store.parts.cpu_share.clone());
                let delivered = Delivered::default();
                let sender = HintSender { hint_store: hint_store.clone(), target, pace, delivered, place: None };
                let name = names::hint(TargetId::of(*node), BucketId(1), &key);
                let is_owed = sender.owed(&name, record.bytes().clone()).is_some();
                assert_eq!(is_owed, rank < 2);
                dropped += u64::from(!is_owed);
                assert_eq!(rig.hints.dropped(Dropped::NoReplica), dropped);
            }
        });
    }
}
