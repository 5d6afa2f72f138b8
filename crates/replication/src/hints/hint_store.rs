//! Keeps hints: the task of the background shard that writes what the shards hand over, holds the bounds, and
//! starts a hint sender for each other node.
//!
//! Everything here runs on one thread; what may block on the disk is done by the read pool, one thing at a time.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::Clock;
use kvorum_base::cpu_share::CpuShare;
use kvorum_base::value_memory::LargeValues;
use kvorum_core::hints::{Backlog, BucketId, OverBound, Size};
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_peer::membership::Membership;
use kvorum_peer::peers::Peers;
use kvorum_storage::{HintChange, PageLimit, Store, StoreError};
use tokio::sync::Notify;

use super::names;
use super::names::{Name, TargetId};
use super::{Dropped, Hint, HintQueue};
use crate::anti_entropy::AntiEntropy;
use crate::background_rpc::BackgroundRpc;
use crate::background_scan::BackgroundScan;
use crate::pinned_layout::ShardLayout;

/// Bytes that are written at once: the commits of clients' writes wait for no more.
const WRITE_BYTES: usize = 256 << 10;
/// Until a store that holds writes back is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The hints kept for one node.
pub(super) struct HintTarget {
    pub(super) node: NodeId,
    pub(super) id: TargetId,
    /// The node has left.
    pub(super) is_gone: Cell<bool>,
    pub(super) backlog: RefCell<Backlog>,
}

/// What the hint store and its hint senders work with.
pub struct HintStoreParts {
    /// The node's clock.
    pub clock: Arc<Clock>,
    /// The nodes.
    pub membership: Arc<Membership>,
    /// Where keys belong.
    pub layout: Rc<ShardLayout>,
    /// Does what may block on the disk.
    pub pool: ReadPool,
    /// Reads what is kept.
    pub scan: BackgroundScan,
    /// Charges deliveries while requests come.
    pub cpu_share: CpuShare,
    /// The node's memory for large values.
    pub large_values: Arc<LargeValues>,
    /// Makes up for what was dropped.
    pub anti_entropy: Arc<AntiEntropy>,
    /// The other nodes.
    pub peers: Rc<Peers>,
    /// Delivers.
    pub rpc: Rc<BackgroundRpc>,
    /// Where hints are kept.
    pub store: Arc<dyn Store>,
    /// Where they come from.
    pub queue: Arc<HintQueue>,
}

/// Keeps hints, and has hint senders deliver them.
pub struct HintStore {
    pub(super) parts: HintStoreParts,
    pub(super) targets: RefCell<Vec<Rc<HintTarget>>>,
    /// What is to be dropped from the store: at most each bucket once.
    drops: RefCell<Vec<Range<Bytes>>>,
    /// There are drops.
    pub(super) changed: Notify,
}

/// One more hint, or several, for one target.
struct Added {
    node: NodeId,
    bucket: BucketId,
    more: Size,
}

impl HintStore {
    /// Nothing is loaded yet.
    #[must_use]
    pub fn new(parts: HintStoreParts) -> Rc<Self> {
        Rc::new(Self { parts, targets: RefCell::default(), drops: RefCell::default(), changed: Notify::new() })
    }

    /// Goes over to the nodes of a layout: what is kept for nodes that have left is dropped. Those that have come.
    pub(super) fn follow(&self, layout: &Layout) -> Vec<Rc<HintTarget>> {
        let own = self.parts.membership.own();
        let mut targets = self.targets.borrow_mut();
        targets.retain(|target| {
            let stays = layout.node(target.node).is_some();
            if !stays {
                target.is_gone.set(true);
                self.parts.queue.count_dropped(Dropped::NoReplica, target.backlog.borrow().pending().hints);
                self.drops.borrow_mut().push(target.id.range());
                self.parts.queue.note_pending(target.node, Size::default(), None);
            }
            stays
        });
        let is_known = |node: &NodeId| targets.iter().any(|target| target.node == *node);
        let come = layout.ids().filter(|node| *node != own && !is_known(node));
        let target = |node| {
            let backlog = RefCell::new(Backlog::new(self.parts.queue.settings().bounds));
            Rc::new(HintTarget { node, id: TargetId::of(node), is_gone: Cell::new(false), backlog })
        };
        let come: Vec<_> = come.map(target).collect();
        targets.extend(come.iter().cloned());
        come
    }

    pub(super) fn target(&self, node: NodeId) -> Option<Rc<HintTarget>> {
        self.targets.borrow().iter().find(|target| target.node == node).cloned()
    }

    /// What an earlier run has kept; what it kept for nodes that are gone is dropped.
    pub(super) async fn load(&self) {
        let targets = self.targets.borrow().clone();
        let by_url: Vec<_> = targets.iter().map(|target| TargetId::of_url(&self.url_of(target))).collect();
        let heir = |id| targets.iter().zip(&by_url).find(|(_, by_url)| **by_url == id).map(|(target, _)| target);
        let mut sizes = self.load_sizes().await;
        if sizes.iter().any(|(id, ..)| heir(*id).is_some()) {
            for (id, bucket, size) in sizes {
                if let Some(target) = heir(id) {
                    self.take_over(id, target, bucket, size).await;
                }
            }
            sizes = self.load_sizes().await;
        }
        for (id, bucket, size) in sizes {
            if let Some(target) = targets.iter().find(|target| target.id == id) {
                target.backlog.borrow_mut().restore(bucket, size);
            } else if heir(id).is_none() {
                self.parts.queue.count_dropped(Dropped::NoReplica, size.hints);
                self.drops.borrow_mut().push(id.range());
            }
        }
        self.drops.borrow_mut().dedup();
        targets.iter().for_each(|target| self.note_pending(target));
    }

    async fn load_sizes(&self) -> Vec<(TargetId, BucketId, Size)> {
        let store = self.parts.store.clone();
        match self.parts.pool.run(move || load_sizes(&*store)).await {
            Some(Ok(sizes)) => sizes,
            Some(Err(error)) => {
                tracing::error!(%error, "cannot read the hints of an earlier run");
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn url_of(&self, target: &HintTarget) -> Box<str> {
        self.parts.membership.peer(target.node).url.clone()
    }

    /// Gives a bucket that was named by its target's URL, in a data directory of a format below 4, the name of now. What
    /// is interrupted by the node's stop begins anew at the next start; what fails is dropped.
    async fn take_over(&self, old: TargetId, target: &HintTarget, bucket: BucketId, size: Size) {
        let size_of_bucket = HintChange::Put(names::size(target.id, bucket), names::encode_size(size));
        let Range { mut start, end } = names::hints(old, bucket);
        while !self.parts.membership.is_draining() {
            let (store, from, to) = (self.parts.store.clone(), start.clone(), end.clone());
            let limit = PageLimit { records: usize::MAX, bytes: WRITE_BYTES };
            let page = match self.parts.pool.run(move || store.scan_hints(&from, &to, limit)).await {
                Some(Ok(page)) => page,
                Some(Err(error)) => {
                    tracing::error!(%error, "cannot read the hints of an earlier format: their bucket is dropped");
                    return self.drop_old(old, target, bucket, (Dropped::Damaged, size));
                }
                None => return,
            };
            let renamed = page.records.iter().filter_map(|(name, record)| match names::parse(name) {
                Some(Name::Hint(_, _, key)) => {
                    Some(HintChange::Keep(names::hint(target.id, bucket, &key), record.clone()))
                }
                _ => None,
            });
            let mut changes: Vec<_> = renamed.chain([size_of_bucket.clone()]).collect();
            let next = page.records.last().filter(|_| page.more).map(|(name, _)| [name, &[0][..]].concat().into());
            if next.is_none() {
                changes.push(HintChange::Drop(names::bucket(old, bucket)));
            }
            if !self.apply(changes.into()).await {
                if !self.parts.membership.is_draining() {
                    self.drop_old(old, target, bucket, (Dropped::Store, size));
                }
                return;
            }
            match next {
                Some(next) => start = next,
                None => return,
            }
        }
    }

    /// Drops a bucket that cannot be taken over: a round makes up for it.
    fn drop_old(&self, old: TargetId, target: &HintTarget, bucket: BucketId, (why, size): (Dropped, Size)) {
        self.parts.queue.count_dropped(why, size.hints);
        self.parts.queue.note_missed(target.node);
        self.drops.borrow_mut().push(names::bucket(old, bucket));
    }

    fn note_pending(&self, target: &HintTarget) {
        let backlog = target.backlog.borrow();
        self.parts.queue.note_pending(target.node, backlog.pending(), backlog.oldest_ms());
    }

    pub(super) fn drop_excess(&self) {
        let now_ms = self.parts.clock.wall_ms();
        for target in &*self.targets.borrow() {
            loop {
                let excess = target.backlog.borrow_mut().drop_excess(now_ms);
                let Some((bucket, size, why)) = excess else { break };
                let why = match why {
                    OverBound::Bytes => Dropped::Bytes,
                    OverBound::Age => Dropped::Age,
                };
                self.parts.queue.count_dropped(why, size.hints);
                self.parts.queue.note_missed(target.node);
                self.drops.borrow_mut().push(names::bucket(target.id, bucket));
            }
            self.note_pending(target);
        }
    }

    /// `more` of a bucket was delivered, or left out.
    pub(super) fn note_delivered(&self, target: &HintTarget, bucket: BucketId, more: Size) {
        target.backlog.borrow_mut().note_delivered(bucket, more);
        self.note_pending(target);
    }

    /// Removes a bucket that was delivered, or cannot be.
    pub(super) fn forget(&self, target: &HintTarget, bucket: BucketId) {
        if target.backlog.borrow_mut().remove(bucket).is_some() {
            self.drops.borrow_mut().push(names::bucket(target.id, bucket));
            self.changed.notify_one();
        }
        self.note_pending(target);
    }

    pub(super) async fn write_all(&self) {
        loop {
            let hints = self.parts.queue.take(WRITE_BYTES);
            if hints.is_empty() && self.drops.borrow().is_empty() {
                return;
            }
            let is_written = self.write(hints).await;
            self.drop_excess();
            if !is_written {
                return;
            }
        }
    }

    /// Writes hints, and drops what is to be dropped; whether the store took it.
    async fn write(&self, hints: Vec<Hint>) -> bool {
        let drops = self.drops.take();
        let (mut changes, added) = self.changes(hints);
        changes.extend(drops.iter().cloned().map(HintChange::Drop));
        let is_written = self.apply(changes.into()).await;
        for Added { node, more, .. } in added {
            let Some(target) = self.target(node) else { continue };
            target.backlog.borrow_mut().end_write(is_written.then_some(more));
            if is_written {
                self.parts.queue.target(node).kept.fetch_add(more.hints, Ordering::Relaxed);
            } else {
                self.parts.queue.count_dropped(Dropped::Store, more.hints);
                self.parts.queue.note_missed(node);
            }
            self.note_pending(&target);
        }
        if !is_written {
            self.drops.borrow_mut().extend(drops);
        }
        is_written
    }

    fn changes(&self, hints: Vec<Hint>) -> (Vec<HintChange>, Vec<Added>) {
        let (now_ms, own) = (self.parts.clock.wall_ms(), self.parts.membership.own());
        let mut changes = Vec::new();
        let mut added: Vec<Added> = Vec::new();
        for Hint { key, record, owed } in hints {
            let bytes = u64::try_from(key.as_bytes().len() + record.bytes().len()).unwrap_or(u64::MAX);
            // What this node does not take as a replica it does not take as a hint either.
            for node in owed.iter().filter(|node| **node != own) {
                let Some(target) = self.target(*node) else {
                    self.parts.queue.count_dropped(Dropped::NoReplica, 1);
                    continue;
                };
                let bucket = target.backlog.borrow_mut().begin_write(now_ms);
                changes.push(HintChange::Keep(names::hint(target.id, bucket, &key), record.bytes().clone()));
                let one = Size { hints: 1, bytes };
                match added.iter_mut().find(|added| added.node == *node) {
                    Some(added) => added.more = added.more.plus(one),
                    None => added.push(Added { node: *node, bucket, more: one }),
                }
            }
        }
        for Added { node, bucket, more } in &added {
            let Some(target) = self.target(*node) else { continue };
            let size = target.backlog.borrow().size_with(*more);
            changes.push(HintChange::Put(names::size(target.id, *bucket), names::encode_size(size)));
        }
        (changes, added)
    }

    /// Waits for as long as the store holds writes back, unless the node is stopping.
    async fn apply(&self, changes: Arc<[HintChange]>) -> bool {
        loop {
            let (store, changes) = (self.parts.store.clone(), changes.clone());
            match self.parts.pool.run(move || store.change_hints(&changes)).await {
                Some(Ok(())) => return true,
                Some(Err(StoreError::Busy)) if !self.parts.membership.is_draining() => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                Some(Err(_)) | None => return false,
            }
        }
    }
}

/// The buckets of all targets, in their order. One step for each: what lies in them is passed over.
fn load_sizes(store: &dyn Store) -> Result<Vec<(TargetId, BucketId, Size)>, StoreError> {
    let mut sizes = Vec::new();
    let mut start = Bytes::new();
    loop {
        let page = store.scan_hints(&start, &[0xff; 32], PageLimit { records: 1, bytes: 1 })?;
        let Some((name, value)) = page.records.into_iter().next() else { return Ok(sizes) };
        start = match names::parse(&name) {
            Some(Name::Size(target, bucket)) => {
                sizes.push((target, bucket, names::decode_size(&value).unwrap_or_default()));
                names::bucket(target, bucket).end
            }
            // A bucket is written with its size.
            Some(Name::Hint(target, bucket, _)) => {
                sizes.push((target, bucket, Size::default()));
                names::bucket(target, bucket).end
            }
            None => [&name, &[0][..]].concat().into(),
        };
    }
}
