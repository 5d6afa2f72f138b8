//! A node's answers to the driver of a round.
//!
//! Promises: what is summed up or listed was held after the fence was durable; a round that is not the greatest
//! received gets no answer but that. Damaged records are found here as nowhere else: their leaf is listed, and repair
//! replaces them.

#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::Clock;
use kvorum_base::cpu_share::ThreadShare;
use kvorum_core::key::{PARTITIONS, least_behind};
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::{Failure, Rank};
use kvorum_core::repair::trees::{LeafSet, Trees};
use kvorum_core::repair::wire::{Cursor, LIST_BYTES, RoundRequest, RoundResponse, TREES_PER_ANSWER, Tree};
use kvorum_core::repair::{Holding, RecordKind, RoundId};
use kvorum_core::{Key, KeyHash, PartitionId, Record, Version};
use kvorum_peer::membership::Membership;
use kvorum_storage::commit::Promise;
use kvorum_storage::{GcWatermarks, PageLimit, Store, StoreError};

use super::{AntiEntropy, Part, Rebuilding, ScanPass, Sums, add};
use crate::background_scan::BackgroundScan;
use crate::replica::Replica;
use crate::replica::reply_to::ReplyTo;
use crate::scan_pace::ScanPace;

/// One page of a scan: a quarter of a millisecond where records are small, for which a request may have to wait.
const PAGE: PageLimit = PageLimit { records: 128, bytes: 32 * 1024 };
/// What is scanned for the sums before the round is looked at again.
const PART: PageLimit = PageLimit { records: 1024, bytes: 256 * 1024 };
/// Bytes that are scanned for one answer of a list.
const LIST_SCANNED_BYTES: usize = 1 << 20;
/// A driver does not wait longer for a page because of the rate.
const PACED_MAX: Duration = Duration::from_secs(5);

/// A node's part in rounds, on one shard.
pub struct Member {
    /// The node's clock.
    pub clock: Arc<Clock>,
    /// The node's identity and standing.
    pub membership: Arc<Membership>,
    /// Makes facts durable, and has the store.
    pub replica: Rc<Replica<ReplyTo>>,
    /// Does what may block on the disk.
    pub pool: ReadPool,
    /// Reads what is stored.
    pub scan: BackgroundScan,
    /// What all shards share of rounds.
    pub anti_entropy: Arc<AntiEntropy>,
}

impl Member {
    /// Answers a driver, which is the node at the other end of the connection and no other.
    pub async fn answer(self: &Rc<Self>, caller: NodeId, request: RoundRequest) -> RoundResponse {
        let anti_entropy = &self.anti_entropy;
        let round = request.round();
        let is_driver = round.driver == caller || is_on(Mutant::RoundsOfAnyCaller);
        // A driver's clock has come with its question, unless it is too far ahead: and then so is W.
        let is_past = round.until <= self.clock.reading();
        if !is_driver || !is_past || self.membership.abstains() == Some(Failure::NotServing) {
            return RoundResponse::Failed;
        }
        if let RoundRequest::Begin { round } = request {
            return self.begin(round).await;
        }
        if let Err(superseded) = anti_entropy.hear(round, self.clock.boot()) {
            return superseded;
        }
        match request {
            RoundRequest::Begin { .. } => unreachable!("answered above"),
            RoundRequest::Roots { above, .. } => match anti_entropy.trees(round) {
                Ok(trees) => match trees.classes().find(|class| *class > above) {
                    Some(class) => RoundResponse::Roots { class, roots: trees.roots(class) },
                    None => RoundResponse::NoMoreRoots,
                },
                Err(response) => response,
            },
            RoundRequest::Marked { .. } => match anti_entropy.trees(round) {
                Ok(trees) => RoundResponse::Marked(trees.marked().collect()),
                Err(response) => response,
            },
            RoundRequest::Trees { partitions, .. } => match anti_entropy.trees(round) {
                Ok(trees) => some_trees(&trees, &partitions),
                Err(response) => response,
            },
            RoundRequest::Select { leaves, .. } => {
                anti_entropy.select(round, &leaves, self.membership.abstains().is_none());
                RoundResponse::Done
            }
            RoundRequest::List { after, .. } => self.list(round, after).await,
            RoundRequest::End { proven, restored, .. } => self.end(round, proven, restored).await,
        }
    }

    async fn end(&self, round: RoundId, proven: PartitionSet, restored: PartitionSet) -> RoundResponse {
        let anti_entropy = &self.anti_entropy;
        let is_summed_up = anti_entropy.trees(round).is_ok() || is_on(Mutant::EndBeforeSums);
        anti_entropy.leave(round);
        if proven.is_empty() {
            return RoundResponse::Done;
        }
        // What this node holds has been compared with nothing.
        if !is_summed_up {
            return RoundResponse::Failed;
        }
        if self.replica.promise(Promise::GcWatermarks(proven, round.until)).await.is_err() {
            return RoundResponse::Failed;
        }
        // Not before the GC watermarks are durable: a voter that answers less than its GC watermark is as bad as one
        // that lost a write.
        if !restored.is_empty() && anti_entropy.may_restore(round, self.clock.boot(), self.clock.skew_max_ms()) {
            let (membership, stored) = (self.membership.clone(), self.replica.sequence());
            match self.pool.run(move || membership.restore(&restored, stored)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::error!(%error, "cannot end the rebuilding"),
                None => return RoundResponse::Failed,
            }
        }
        RoundResponse::Done
    }

    async fn begin(self: &Rc<Self>, round: RoundId) -> RoundResponse {
        let anti_entropy = &self.anti_entropy;
        let records = self.replica.records().stats().records;
        if let Err(superseded) = anti_entropy.enter(round, records, self.clock.boot()) {
            return superseded;
        }
        if self.replica.promise(Promise::Fence(round.until)).await.is_err() {
            anti_entropy.leave(round);
            return RoundResponse::Failed;
        }
        tokio::task::spawn_local(self.clone().sum_up(round));
        RoundResponse::Begun { votes: self.membership.abstains().is_none() }
    }

    /// Makes the trees of a round, unless a greater one comes.
    async fn sum_up(self: Rc<Self>, round: RoundId) {
        let anti_entropy = self.anti_entropy.clone();
        let pace = ScanPace::new(anti_entropy.settings.rate);
        let layout = self.membership.layout();
        let own = self.membership.own();
        let ranks = PartitionId::all().map(|partition| layout.rank_of(partition, own).unwrap_or(Rank(u8::MAX)));
        let mut scan = Some(Scan {
            store: self.replica.records().clone(),
            limit: round.version(),
            ranks: ranks.collect(),
            trees: Trees::new(anti_entropy.settings.tree_bytes_max),
            start: Vec::new(),
            damaged: Vec::new(),
        });
        while let Some(mut next) = scan.take() {
            if anti_entropy.check(round).is_err() {
                return;
            }
            let Some((result, mut next)) = self.scan.run(move |work| (next.part(work), next)).await else { return };
            anti_entropy.tell_damaged(next.damaged.drain(..), self.clock.boot());
            match result {
                Ok(Scanned { records, bytes, is_last }) => {
                    add(&anti_entropy.metrics.scanned_bytes, bytes);
                    anti_entropy.note_scanned(round, records);
                    if is_last {
                        anti_entropy.state().unscannable = None;
                        return anti_entropy.set_sums(round, Sums::Made(Arc::new(next.trees)));
                    }
                    pace.spend(bytes).await;
                    scan = Some(next);
                }
                Err(error) => {
                    anti_entropy.cannot_scan(&error);
                    return anti_entropy.set_sums(round, Sums::Failed);
                }
            }
        }
    }

    async fn list(&self, round: RoundId, cursor: Option<Cursor>) -> RoundResponse {
        let Some(selection) = self.anti_entropy.selection(round) else { return RoundResponse::Failed };
        let store = self.replica.records().clone();
        let part = move |work: &mut ThreadShare| list_page(&*store, &selection, cursor, work);
        match self.scan.run(part).await {
            Some(Ok((response, Scanned { records, bytes, .. }))) => {
                add(&self.anti_entropy.metrics.scanned_bytes, bytes);
                self.anti_entropy.note_scanned(round, records);
                let pace = ScanPace::new(self.anti_entropy.settings.rate);
                let _ = tokio::time::timeout(PACED_MAX, pace.spend(bytes)).await;
                response
            }
            Some(Err(error)) => {
                self.anti_entropy.cannot_scan(&error);
                RoundResponse::Failed
            }
            None => RoundResponse::Failed,
        }
    }
}

fn some_trees(trees: &Trees, partitions: &[PartitionId]) -> RoundResponse {
    let mut found = Vec::new();
    let mut covered = 0;
    for partition in partitions {
        let before = found.len();
        found.extend(trees.leaves(*partition).map(|(class, leaves)| Tree::new(*partition, class, leaves)));
        if found.len() > TREES_PER_ANSWER {
            found.truncate(before);
            break;
        }
        covered += 1;
    }
    RoundResponse::Trees { covered, trees: found }
}

impl AntiEntropy {
    /// Notes that this node rebuilds, if it is new. Gives when it may have its vote back at the earliest.
    pub(super) fn note_rebuilding(&self, clock: &Clock) -> Duration {
        let mut state = self.state();
        let since = state.rebuilding.get_or_insert_with(|| Rebuilding { boot: clock.boot(), wall_ms: clock.wall_ms() });
        let skew_max = Duration::from_millis(clock.skew_max_ms());
        since.boot + self.settings.retention.max(skew_max + self.settings.lag + Duration::from_millis(1))
    }

    /// Whether what the round compares reaches past everything that this node may have acknowledged before it lost it,
    /// whatever the clocks, and whether no coordinator counts on those answers any more.
    fn may_restore(&self, round: RoundId, now: Duration, skew_max_ms: u64) -> bool {
        self.state().rebuilding.is_some_and(|since| {
            now >= since.boot + self.settings.retention
                && round.until.millis() > since.wall_ms.saturating_add(skew_max_ms)
        })
    }

    /// Takes part in a round from now on, unless a greater one is known. `records` is about what is held.
    fn enter(&self, round: RoundId, records: u64, now: Duration) -> Result<(), RoundResponse> {
        let mut state = self.state();
        if let Some(newest) = state.newest.filter(|newest| *newest >= round) {
            return Err(RoundResponse::Superseded { by: newest.until });
        }
        state.newest = Some(round);
        state.heard_at = now;
        let pass = ScanPass { scanned: 0, records };
        state.part = Some(Part { round, pass, sums: Sums::Making, selection: None });
        Ok(())
    }

    fn leave(&self, round: RoundId) {
        let mut state = self.state();
        if state.part.as_ref().is_some_and(|part| part.round == round) {
            state.part = None;
        }
    }

    /// The same as [`AntiEntropy::check`] for a question of the driver, which is at work.
    fn hear(&self, round: RoundId, now: Duration) -> Result<(), RoundResponse> {
        self.check(round)?;
        self.state().heard_at = now;
        Ok(())
    }

    /// Whether this is the round that the node takes part in.
    fn check(&self, round: RoundId) -> Result<(), RoundResponse> {
        let state = self.state();
        let newest = state.newest.map_or_else(Default::default, |newest| newest.until);
        match &state.part {
            Some(part) if part.round == round => Ok(()),
            _ => Err(RoundResponse::Superseded { by: newest }),
        }
    }

    fn trees(&self, round: RoundId) -> Result<Arc<Trees>, RoundResponse> {
        match self.state().part.as_ref().filter(|part| part.round == round).map(|part| &part.sums) {
            Some(Sums::Made(trees)) => Ok(trees.clone()),
            Some(Sums::Making) => Err(RoundResponse::Summing),
            Some(Sums::Failed) | None => Err(RoundResponse::Failed),
        }
    }

    fn select(&self, round: RoundId, leaves: &[(PartitionId, LeafSet)], votes: bool) {
        let mut selection = vec![LeafSet::default(); PARTITIONS];
        for (partition, leaves) in leaves {
            if let Some(selected) = selection.get_mut(partition.index()) {
                *selected = *leaves;
            }
        }
        if let Some(part) = self.state().part.as_mut().filter(|part| part.round == round) {
            part.selection = Some(selection.into());
            // How much a node has that lost its data does not show how much there is to be listed.
            part.pass = ScanPass { scanned: 0, records: if votes { part.pass.scanned } else { 0 } };
        }
    }

    fn selection(&self, round: RoundId) -> Option<Arc<[LeafSet]>> {
        let state = self.state();
        let part = state.part.as_ref().filter(|part| part.round == round)?;
        part.selection.clone()
    }

    fn set_sums(&self, round: RoundId, sums: Sums) {
        if let Some(part) = self.state().part.as_mut().filter(|part| part.round == round) {
            part.sums = sums;
        }
    }

    /// Keeps why, until a scan has come to its end.
    fn cannot_scan(&self, error: &StoreError) {
        tracing::error!(%error, "anti-entropy cannot scan the store");
        self.state().unscannable = Some(error.to_string());
    }

    /// Counts damaged records, and logs one of them now and then.
    fn tell_damaged(&self, hashes: impl ExactSizeIterator<Item = KeyHash>, now: Duration) {
        add(&self.metrics.damaged, hashes.len());
        for hash in hashes {
            if let Some(left_out) = self.damaged.due(now) {
                tracing::error!(key_hash = hash.get(), left_out, "stored record is damaged");
            }
        }
    }

    fn note_scanned(&self, round: RoundId, records: usize) {
        if let Some(part) = self.state().part.as_mut().filter(|part| part.round == round) {
            part.pass.scanned += u64::try_from(records).unwrap_or(u64::MAX);
        }
    }
}

struct Scan {
    store: Arc<dyn Store>,
    limit: Version,
    /// This node's place, by partition.
    ranks: Vec<Rank>,
    trees: Trees,
    start: Vec<u8>,
    /// Of the last page.
    damaged: Vec<KeyHash>,
}

struct Scanned {
    records: usize,
    bytes: usize,
    is_last: bool,
}

impl Scan {
    fn part(&mut self, work: &mut ThreadShare) -> Result<Scanned, StoreError> {
        let mut scanned = Scanned { records: 0, bytes: 0, is_last: false };
        loop {
            let page = self.store.scan(&self.start, None, PAGE)?;
            for (key, record) in page.records {
                scanned.records += 1;
                scanned.bytes += key.len() + record.len();
                self.start = least_behind(&key);
                self.add(key, record);
            }
            scanned.is_last = !page.more;
            if scanned.is_last || scanned.records >= PART.records || scanned.bytes >= PART.bytes {
                return Ok(scanned);
            }
            work.pause();
        }
    }

    fn add(&mut self, key: Bytes, record: Bytes) {
        let Ok(key) = Key::new(key) else { return };
        let hash = key.hash();
        let Ok(record) = Record::decode(&key, record) else {
            self.damaged.push(hash);
            return self.trees.mark(hash);
        };
        let kind = kind(self.store.gc_watermarks(), &key, &record);
        if record.version() <= self.limit && kind != RecordKind::Droppable {
            let rank = self.ranks.get(hash.partition().index()).copied().unwrap_or(Rank(u8::MAX));
            self.trees.add(hash, record.version(), record.from(), rank);
        }
    }
}

fn kind(gc_watermarks: &GcWatermarks, key: &Key, record: &Record) -> RecordKind {
    let gc_watermark = gc_watermarks.get(key.hash().partition());
    match record.expires_ms() {
        _ if record.version() <= gc_watermark && record.is_deleted(|| gc_watermark.hlc.millis()) => {
            RecordKind::Droppable
        }
        _ if record.is_tombstone() => RecordKind::Deletion,
        Some(expires_ms) => RecordKind::ValueUntil(expires_ms),
        None => RecordKind::Value,
    }
}

/// What is held in the selected leaves behind `cursor`, until it is a page, and what was looked at for it.
fn list_page(
    store: &dyn Store,
    selection: &[LeafSet],
    cursor: Option<Cursor>,
    work: &mut ThreadShare,
) -> Result<(RoundResponse, Scanned), StoreError> {
    let mut start = cursor.map_or_else(Vec::new, |Cursor(key)| least_behind(&key));
    let (mut entries, mut listed) = (Vec::new(), 0);
    let mut scanned = Scanned { records: 0, bytes: 0, is_last: false };
    loop {
        let page = store.scan(&start, None, PAGE)?;
        for (key, record) in page.records {
            scanned.records += 1;
            scanned.bytes += key.len() + record.len();
            start = least_behind(&key);
            let last = Cursor(key.to_vec());
            let Ok(key) = Key::new(key) else { continue };
            let hash = key.hash();
            if selection.get(hash.partition().index()).is_some_and(|leaves| leaves.contains(hash)) {
                let holding = holding(store.gc_watermarks(), &key, record);
                listed += key.as_bytes().len() + size_of::<Holding>();
                entries.push((key, holding));
            }
            if listed >= LIST_BYTES {
                return Ok((RoundResponse::List { entries, next: Some(last) }, scanned));
            }
        }
        if !page.more {
            scanned.is_last = true;
            return Ok((RoundResponse::List { entries, next: None }, scanned));
        }
        if scanned.bytes >= LIST_SCANNED_BYTES {
            start.pop();
            return Ok((RoundResponse::List { entries, next: Some(Cursor(start)) }, scanned));
        }
        work.pause();
    }
}

fn holding(gc_watermarks: &GcWatermarks, key: &Key, record: Bytes) -> Holding {
    match Record::decode(key, record) {
        Ok(record) => {
            Holding { version: record.version(), from: record.from(), kind: kind(gc_watermarks, key, &record) }
        }
        Err(_) => Holding { version: Version::ZERO, from: 0, kind: RecordKind::Damaged },
    }
}
