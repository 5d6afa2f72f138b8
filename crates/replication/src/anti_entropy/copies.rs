//! What a driver does for a key that some node lacks: fetches its newest record, and sends it there.

use std::rc::Rc;
use std::time::Duration;

use kvorum_core::node::NodeId;
use kvorum_core::quorum::{Current, Failure, Held, ReadAnswer, StoreAnswer};
use kvorum_core::repair::Holding;
use kvorum_core::repair::round::{CopyPlan, Round};
use kvorum_core::{Key, PartitionId, Record, Version};

use crate::background_rpc::BackgroundRpc;
use crate::scan_pace::ScanPace;

/// For one answer of a node.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Attempts to read or store a record where there was no room for it.
const ATTEMPTS_MAX: u32 = 6;
/// Before the second attempt; doubled with each.
const RETRY: Duration = Duration::from_millis(50);
/// What became of a key that some node lacked.
pub(super) struct Copied {
    pub(super) partition: PartitionId,
    pub(super) is_settled: bool,
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// Gives nodes what they lack, on one shard.
pub(super) struct Copier {
    pub(super) own: NodeId,
    pub(super) rpc: Rc<BackgroundRpc>,
}

impl Copier {
    /// Sends the newest record of a key to all that need it.
    pub(super) async fn copy(self: Rc<Self>, pace: Rc<ScanPace>, key: Key, plan: CopyPlan) -> Copied {
        let mut copied = Copied { partition: key.hash().partition(), is_settled: false, records: 0, bytes: 0 };
        let Some(record) = self.fetch(&key, &plan).await else { return copied };
        let mut settled = 0;
        let mut refusals = Vec::new();
        for node in &plan.targets {
            pace.spend(key.as_bytes().len() + record.bytes().len()).await;
            let answer = self.give(*node, &key, &record).await;
            settled += usize::from(Round::settles(&plan.newest, answer));
            if answer == StoreAnswer::Accepted {
                copied.records += 1;
                copied.bytes += record.bytes().len();
            } else {
                refusals.push(answer);
            }
        }
        copied.is_settled = settled == plan.targets.len() || self.bury(&key, &plan, &refusals).await;
        copied
    }

    /// Deletes what is left of a key that the voters have deleted and dropped: their GC watermarks say so. Whether that
    /// is so, and done.
    async fn bury(&self, key: &Key, plan: &CopyPlan, refusals: &[StoreAnswer]) -> bool {
        let gc_watermark = |answer: &StoreAnswer| match answer {
            StoreAnswer::Stale(Current::GcWatermark(gc_watermark))
            | StoreAnswer::StaleUnknown(Current::GcWatermark(gc_watermark)) => {
                Some(*gc_watermark).filter(|gc_watermark| *gc_watermark >= plan.newest.version)
            }
            _ => None,
        };
        let gc_watermarks: Option<Vec<Version>> = refusals.iter().map(gc_watermark).collect();
        let is_refused_by_all = plan.is_doubtful && refusals.len() == plan.targets.len();
        let Some(gc_watermark) =
            gc_watermarks.and_then(|gc_watermarks| gc_watermarks.into_iter().max()).filter(|_| is_refused_by_all)
        else {
            return false;
        };
        let tombstone = Record::tombstone(key, gc_watermark, plan.newest.from);
        for holder in &plan.holders {
            if self.give(*holder, key, &tombstone).await != StoreAnswer::Accepted {
                return false;
            }
        }
        true
    }

    /// The newest record, or what has replaced it since where as many need that: from this node if it has it, or else
    /// from the first that gives it.
    async fn fetch(&self, key: &Key, plan: &CopyPlan) -> Option<Record> {
        let own = self.own;
        let Holding { version, from, .. } = plan.newest;
        let mut holders = plan.holders.clone();
        holders.sort_by_key(|node| *node != own);
        for holder in holders {
            let held = with_retries(async || {
                let read = self.rpc.read(holder, key);
                tokio::time::timeout(ANSWER_MAX, read).await.unwrap_or(ReadAnswer::Failed(Failure::Timeout))
            });
            let is_wanted =
                |record: &Record| record.version() == version || (record.version() > version && record.from() == from);
            if let ReadAnswer::Held(Held::Record(record)) = held.await
                && is_wanted(&record)
            {
                return Some(record);
            }
        }
        None
    }

    async fn give(&self, node: NodeId, key: &Key, record: &Record) -> StoreAnswer {
        let store = async || {
            let store = self.rpc.repair(node, key, record);
            tokio::time::timeout(ANSWER_MAX, store).await.unwrap_or(StoreAnswer::Failed(Failure::Timeout))
        };
        with_retries(store).await
    }
}

/// Something that there may be no room for at once.
trait MayOverload {
    fn is_overloaded(&self) -> bool;
}

impl MayOverload for ReadAnswer<Record> {
    fn is_overloaded(&self) -> bool {
        *self == Self::Failed(Failure::Overloaded)
    }
}

impl MayOverload for StoreAnswer {
    fn is_overloaded(&self) -> bool {
        *self == Self::Failed(Failure::Overloaded)
    }
}

async fn with_retries<T: MayOverload>(attempt: impl AsyncFn() -> T) -> T {
    let mut delay = RETRY;
    for _ in 1..ATTEMPTS_MAX {
        let result = attempt().await;
        if !result.is_overloaded() {
            return result;
        }
        tokio::time::sleep(delay).await;
        delay *= 2;
    }
    attempt().await
}
