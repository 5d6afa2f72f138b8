//! Scans over the cluster, coordinated: asks nodes for pages, merges them, and reads what they do not agree on.
//!
//! A [`ClusterScan`] is pulled by its reader: no more is asked for than one page of each node in advance. What it holds
//! is reserved from one budget when it is opened. A node that fails is left out from then on: the rest is planned anew
//! from behind the last key that was given, so no key is given twice, and none is left out.
//!
//! The rules are those of [`kvorum_core::scan`]. A key that its replicas do not agree on is read by the coordinator, as
//! a client would. Where work is to be done beside the data ([`derivation`]), providers give what it derives of their
//! records, and the coordinator derives the same of the records that it reads.
//!
//! Cancel safety: [`ClusterScan::next`] may be dropped and called again; what was read is not lost. Dropping the scan
//! gives up all that is under way.

mod budget;
pub mod derivation;
mod page_reader;
mod pages;
mod scanner;

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_core::key::least_behind;
use kvorum_core::layout::Layout;
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::{Expiry, Failure, Held};
use kvorum_core::scan::merge::{MergeStep, MergedKey, ScanMerge};
use kvorum_core::scan::page::{PAGE_BYTES_MAX, ScanHolding, ScanValues};
use kvorum_core::scan::plan::ScanPlan;
use kvorum_core::scan::verdict::{CoverAnswer, ScanVerdict, verdict};
use kvorum_core::{Key, Record, Version};

use crate::coordinator::batch::{BatchAction, BatchOperation};
use crate::coordinator::{Outcome, ReadResult, Refused};
use crate::pinned_layout::PinnedLayout;
use budget::Reservation;
pub use budget::{ScanBudget, ScanSettings};
pub(crate) use page_reader::PageReader;
use pages::Pages;
use scanner::key_bytes;
pub use scanner::{MissingReplicas, OnMissing, ScanRefused, ScanSpec, Scanner};

/// Keys that are decided before the first of them is given: those that need a read are read together.
const DECIDED_MAX: usize = 128;
/// Pages of a node that a scan holds: the one that is merged, and the next.
const PAGES_OF_NODE: usize = 2;
/// Bytes of keys without a value that are passed before the position is given, each with [`PASSED_KEY_BYTES`] beside.
const PASSED_BYTES: usize = 64 * 1024;
/// How often what there was no room for is asked for again, and how long after.
const ATTEMPTS_MAX: u32 = 100;
const RETRY: Duration = Duration::from_millis(20);
/// About what a deletion takes beside its key.
const PASSED_KEY_BYTES: usize = 32;

/// A record of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedRecord {
    /// Its key.
    pub key: Key,
    /// Its version.
    pub version: Version,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// What of it is wanted.
    pub content: ScannedContent,
}

/// What a scan gives of a record beside its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScannedContent {
    /// Nothing.
    Version,
    /// The whole of it.
    Record(Record),
    /// What was derived of it; nothing of what is of no interest to the work.
    Derived(Option<Bytes>),
}

impl ScannedContent {
    /// The record, where values are wanted.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        if let Self::Record(record) = self { Some(record) } else { None }
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// A record.
    Record(ScannedRecord),
    /// None for now: [`ClusterScan::position`] has moved on.
    Passed,
    /// The range has ended.
    End,
    /// Too few replicas answer, from behind [`ClusterScan::position`] on.
    Missing(MissingReplicas),
}

/// From which key on which plan held.
#[derive(Clone, Debug)]
pub struct ScanSegment {
    /// The first key of it; empty for the begin.
    pub start: Bytes,
    /// Which nodes answer for which partitions.
    pub plan: Rc<ScanPlan>,
}

/// A scan under way.
pub struct ClusterScan {
    scanner: Rc<Scanner>,
    /// It holds for the whole scan.
    layout: PinnedLayout,
    spec: ScanSpec,
    plan: Rc<ScanPlan>,
    merge: ScanMerge,
    pages: Pages,
    failed: BTreeSet<NodeId>,
    /// One of them had no room.
    is_busy: bool,
    /// What is decided, until all of it is read.
    unread: Vec<Decided>,
    items: VecDeque<ScannedRecord>,
    /// The last key that was decided, and the last up to which all was given.
    decided: Option<Bytes>,
    given: Option<Bytes>,
    segments: Vec<ScanSegment>,
    missing: PartitionSet,
    /// How it ends once `items` are given.
    ending: Option<ScanStep>,
    room: Reservation,
    /// The part of it that is for its own.
    pages_bytes: usize,
}

/// What is needed for the next key.
enum Needed {
    /// Nothing: what was passed can be given.
    Nothing,
    Page,
    /// There is none.
    End,
}

/// A key that is decided.
enum Decided {
    Item(ScannedRecord),
    /// To be read.
    Unread(Key),
}

impl ClusterScan {
    /// Begins a scan.
    ///
    /// # Errors
    /// [`ScanRefused`].
    pub fn open(scanner: &Rc<Scanner>, spec: ScanSpec) -> Result<Self, ScanRefused> {
        let layout = scanner.layout();
        let bytes = layout.nodes().len() * PAGES_OF_NODE * scanner.budget.page_bytes;
        let room = scanner.budget.reserve(bytes).ok_or(ScanRefused::NoRoom)?;
        let failed = BTreeSet::new();
        let plan = scanner.plan(&layout, &spec, &failed);
        if spec.on_missing == OnMissing::End && !plan.missing().is_empty() {
            return Err(ScanRefused::Missing(scanner.missing(&layout, &plan, &spec, &failed)));
        }
        let mut scan = Self {
            scanner: Rc::clone(scanner),
            layout,
            plan: Rc::new(plan),
            merge: ScanMerge::new([]),
            pages: Pages::default(),
            failed,
            is_busy: false,
            unread: Vec::new(),
            items: VecDeque::new(),
            decided: None,
            given: None,
            segments: Vec::new(),
            missing: PartitionSet::default(),
            ending: None,
            room,
            pages_bytes: bytes,
            spec,
        };
        scan.begin_plan();
        Ok(scan)
    }

    /// Counts what its user holds beside it, out of the same memory, as far as it was ever most; whether there is room.
    pub fn hold(&mut self, bytes: usize) -> bool {
        self.room.grow_to(self.pages_bytes + bytes)
    }

    /// The last key up to which everything was given: from behind it another scan may go on.
    #[must_use]
    pub fn position(&self) -> Option<&Bytes> {
        self.given.as_ref()
    }

    /// Which nodes have answered for which partitions, from which key on.
    #[must_use]
    pub fn segments(&self) -> &[ScanSegment] {
        &self.segments
    }

    /// Where its keys belong.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Partitions that were left out.
    #[must_use]
    pub fn missing(&self) -> &PartitionSet {
        &self.missing
    }

    /// What comes next. Cancel safe. Nothing follows [`ScanStep::End`] and [`ScanStep::Missing`].
    pub async fn next(&mut self) -> ScanStep {
        loop {
            if let Some(step) = self.ready() {
                return step;
            }
            self.advance().await;
        }
    }

    /// What comes next, if that is known.
    pub fn ready(&mut self) -> Option<ScanStep> {
        if let Some(item) = self.items.pop_front() {
            self.given = Some(key_bytes(&item.key));
            return Some(ScanStep::Record(item));
        }
        if self.given != self.decided {
            self.given.clone_from(&self.decided);
            return Some(ScanStep::Passed);
        }
        self.ending.clone()
    }

    /// Goes on, at least by the next page that comes or the next reads; what that brings is [`ClusterScan::ready`].
    /// Cancel safe.
    pub async fn advance(&mut self) {
        if !self.unread.is_empty() {
            return self.take_unread().await;
        }
        self.check_own_vote();
        let (decided, needed) = self.decide_some();
        if !decided.is_empty() {
            self.unread = decided;
            return self.take_unread().await;
        }
        match needed {
            Needed::Nothing => {}
            Needed::Page => self.take_page().await,
            Needed::End => self.ending = Some(ScanStep::End),
        }
    }

    /// A vote that this node has lost since the plan was made counts for nothing: what it gave may be older than what
    /// it once had.
    fn check_own_vote(&mut self) {
        let own = self.scanner.membership.own();
        let is_lost = self.scanner.membership.abstains().is_some() && {
            let part = self.plan.part(own);
            let mut asked = part.provides.iter().chain(part.witnesses.iter());
            asked.any(|partition| self.scanner.membership.abstains_for(partition).is_some())
        };
        if is_lost {
            self.plan_without(own);
        }
    }

    /// Decides keys until a page is needed, enough are decided or passed, or the range ends: what is needed then.
    fn decide_some(&mut self) -> (Vec<Decided>, Needed) {
        let (mut decided, mut passed_bytes) = (Vec::new(), 0);
        loop {
            if decided.len() >= DECIDED_MAX {
                return (decided, Needed::Nothing);
            }
            let needed = match self.merge.step() {
                MergeStep::Key(merged) => {
                    let key = key_bytes(&merged.key);
                    decided.extend(self.decide(merged));
                    if decided.is_empty() {
                        passed_bytes += key.len() + PASSED_KEY_BYTES;
                        self.decided = Some(key);
                    }
                    if passed_bytes < PASSED_BYTES {
                        continue;
                    }
                    Needed::Nothing
                }
                MergeStep::Await => Needed::Page,
                MergeStep::End => Needed::End,
            };
            if decided.is_empty()
                && let Some(passed) = self.merge.passed().map(key_bytes)
                && self.decided.as_ref().is_none_or(|decided| *decided < passed)
            {
                self.decided = Some(passed);
            }
            return (decided, needed);
        }
    }

    fn decide(&self, merged: MergedKey) -> Option<Decided> {
        let MergedKey { key, holdings } = merged;
        let cover = self.plan.cover(key.hash().partition());
        let answers: Vec<CoverAnswer<'_>> = cover
            .iter()
            .filter_map(|member| {
                let said = holdings.iter().find(|said| said.node == member.node)?;
                let (holding, gc_watermark, clock) = (said.holding.as_ref(), said.gc_watermark, said.clock);
                Some(CoverAnswer { rank: member.rank, holding, gc_watermark, clock })
            })
            .collect();
        match verdict(self.spec.quorum, &answers, || self.scanner.clock.present()) {
            ScanVerdict::Skip => None,
            ScanVerdict::Send => {
                let holding = answers.first().and_then(|provider| provider.holding);
                Some(sent(key.clone(), holding, &self.spec.values).map_or(Decided::Unread(key), Decided::Item))
            }
            // A partition that no node is asked for is left out.
            ScanVerdict::Read if cover.is_empty() => None,
            ScanVerdict::Read => Some(Decided::Unread(key)),
        }
    }

    /// Reads what must be read, and queues all in order. Where a read fails the scan goes no further, or leaves the key's
    /// partition out.
    async fn take_unread(&mut self) {
        let keys: Vec<Key> = self.unread.iter().filter_map(Decided::to_read).cloned().collect();
        let mut answers = self.find_all(keys).await.into_iter();
        for decided in std::mem::take(&mut self.unread) {
            match &decided {
                Decided::Item(item) => self.items.push_back(item.clone()),
                Decided::Unread(key) => match answers.next() {
                    Some(Ok(found)) => self.items.extend(found),
                    _ if self.spec.on_missing == OnMissing::LeaveOut => {
                        self.missing.insert(key.hash().partition());
                    }
                    answer => {
                        let partitions = [key.hash().partition()].into_iter().collect();
                        let is_busy = matches!(answer, Some(Err(Refused::Overloaded)));
                        let missing = MissingReplicas { partitions, nodes: BTreeSet::new(), is_busy };
                        self.ending = Some(ScanStep::Missing(missing));
                        return;
                    }
                },
            }
            self.decided = Some(key_of(&decided));
        }
    }

    /// Reads keys, and derives of what was read what the scan asks for. Cancel safe.
    async fn find_all(&self, keys: Vec<Key>) -> Vec<Result<Option<ScannedRecord>, Refused>> {
        let answers = self.read_all(keys.clone()).await;
        let found = keys.into_iter().zip(answers).map(|(key, answer)| answer.map(|found| found_by_read(key, &found)));
        let mut found: Vec<Result<Option<ScannedRecord>, Refused>> = found.collect();
        let records = || found.iter().filter_map(|found| found.as_ref().ok()?.as_ref());
        let derived = match &self.spec.values {
            ScanValues::Wanted => return found,
            ScanValues::LeftOut => None,
            ScanValues::Derived(work) => {
                let whole = records().filter_map(|found| Some((found.key.clone(), found.content.record()?.clone())));
                match self.derive_all(work, whole.collect()).await {
                    Ok(derived) => Some(derived),
                    Err(_) => return found.iter().map(|_| Err(Refused::Overloaded)).collect(),
                }
            }
        };
        let mut derived = derived.map(Vec::into_iter);
        for found in found.iter_mut().flatten().flatten() {
            found.content = match &mut derived {
                None => ScannedContent::Version,
                Some(derived) => ScannedContent::Derived(derived.next().flatten()),
            };
        }
        found
    }

    /// What work derives of records, as many at once as a page may have, so that it costs what a page costs. Cancel safe.
    async fn derive_all(&self, work: &Bytes, records: Vec<(Key, Record)>) -> Result<Vec<Option<Bytes>>, Failure> {
        let mut derived = Vec::with_capacity(records.len());
        let mut rest = &records[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|(_, record)| {
                bytes += record.bytes().len();
                bytes <= PAGE_BYTES_MAX
            });
            let (part, behind) = rest.split_at(fit.count().max(1));
            let mut attempts = 0;
            let part = loop {
                let answer = self.scanner.reader.derive(work.clone(), part.to_vec()).await;
                attempts += 1;
                if answer != Err(Failure::Overloaded) || attempts == ATTEMPTS_MAX {
                    break answer?;
                }
                tokio::time::sleep(RETRY).await;
            };
            derived.extend(part);
            rest = behind;
        }
        Ok(derived)
    }

    /// Reads keys, as a client would: all at once, and one after another those for which there was no room. Cancel safe.
    async fn read_all(&self, keys: Vec<Key>) -> Vec<Result<ReadResult, Refused>> {
        let mut results = Vec::with_capacity(keys.len());
        if keys.is_empty() {
            return results;
        }
        let answers = self.batch_of_reads(&keys).await;
        for (key, answer) in keys.into_iter().zip(answers) {
            let mut answer = answer;
            for _ in 0..ATTEMPTS_MAX {
                if !matches!(answer, Err(Refused::Overloaded)) {
                    break;
                }
                tokio::time::sleep(RETRY).await;
                answer = self.batch_of_reads(std::slice::from_ref(&key)).await.pop().unwrap_or(answer);
            }
            results.push(answer);
        }
        results
    }

    /// An answer for each key.
    async fn batch_of_reads(&self, keys: &[Key]) -> Vec<Result<ReadResult, Refused>> {
        let quorum = self.spec.quorum;
        let reads = keys.iter().map(|key| BatchOperation { key: key.clone(), quorum, action: BatchAction::Get });
        match self.scanner.coordinator.batch(reads.collect()).await {
            Ok(outcomes) => {
                let found = |outcome| match outcome {
                    Outcome::Found(found) => found,
                    Outcome::Written(_) => unreachable!("a read was sent"),
                };
                outcomes.into_iter().map(|outcome| outcome.map(found)).collect()
            }
            Err(refused) => keys.iter().map(|_| Err(refused.clone())).collect(),
        }
    }

    /// Asks for pages that are awaited, and takes the next one that comes.
    async fn take_page(&mut self) {
        let awaited: Vec<NodeId> = self.merge.awaited().map(|(node, _)| node).collect();
        for node in awaited {
            self.pages.ask(&self.scanner, self.layout.epoch(), &self.spec, &self.plan, node);
        }
        match self.pages.next(&self.merge).await {
            Ok((node, page, clock)) => {
                let next = page.frontier.clone();
                if self.merge.push(node, page, clock).is_err() {
                    return self.plan_without(node);
                }
                if let Some(frontier) = next {
                    self.pages.go_on(node, &frontier);
                    self.pages.ask(&self.scanner, self.layout.epoch(), &self.spec, &self.plan, node);
                }
            }
            Err((node, failure)) => {
                self.is_busy |= failure == Failure::Overloaded;
                self.plan_without(node);
            }
        }
    }

    /// Plans the rest without a node.
    fn plan_without(&mut self, node: NodeId) {
        if is_on(Mutant::ScanGoesOnFurther) {
            self.decided = self.decided.take().max(self.pages.furthest());
        }
        self.failed.insert(node);
        let plan = self.scanner.plan(&self.layout, &self.spec, &self.failed);
        if self.spec.on_missing == OnMissing::End && !plan.missing().is_empty() {
            let missing = self.scanner.missing(&self.layout, &plan, &self.spec, &self.failed);
            self.ending = Some(ScanStep::Missing(MissingReplicas { is_busy: self.is_busy, ..missing }));
            return;
        }
        self.plan = Rc::new(plan);
        self.begin_plan();
    }

    fn begin_plan(&mut self) {
        let start =
            self.decided.as_ref().map_or_else(|| self.spec.start.clone(), |decided| least_behind(decided).into());
        let nodes: Vec<NodeId> = self.layout.ids().filter(|node| !self.plan.part(*node).is_empty()).collect();
        self.pages = Pages::from(start.clone());
        self.merge = ScanMerge::new(nodes);
        self.missing.extend(self.plan.missing().iter());
        self.segments.push(ScanSegment { start, plan: Rc::clone(&self.plan) });
    }
}

impl Decided {
    fn to_read(&self) -> Option<&Key> {
        if let Self::Unread(key) = self { Some(key) } else { None }
    }
}

fn key_of(decided: &Decided) -> Bytes {
    match decided {
        Decided::Item(item) => key_bytes(&item.key),
        Decided::Unread(key) => key_bytes(key),
    }
}

/// What a provider holds, as it is given; nothing where its bytes are no record.
fn sent(key: Key, holding: Option<&ScanHolding>, values: &ScanValues) -> Option<ScannedRecord> {
    match (holding?, values) {
        (ScanHolding::Record(bytes), ScanValues::Wanted) => {
            let record = Record::decode(&key, bytes.clone()).ok()?;
            let (version, expires_ms) = (record.version(), record.expires_ms());
            Some(ScannedRecord { key, version, expires_ms, content: ScannedContent::Record(record) })
        }
        (ScanHolding::Value { version, expires_ms, .. }, ScanValues::LeftOut) => {
            let content = ScannedContent::Version;
            Some(ScannedRecord { key, version: *version, expires_ms: *expires_ms, content })
        }
        (ScanHolding::Value { version, expires_ms, .. }, ScanValues::Derived(_)) => {
            let content = ScannedContent::Derived(None);
            Some(ScannedRecord { key, version: *version, expires_ms: *expires_ms, content })
        }
        (ScanHolding::Derived { version, expires_ms, derived, .. }, ScanValues::Derived(_)) => {
            let content = ScannedContent::Derived(Some(derived.clone()));
            Some(ScannedRecord { key, version: *version, expires_ms: *expires_ms, content })
        }
        // It is not what was asked for: a read decides.
        (ScanHolding::Record(_) | ScanHolding::Value { .. } | ScanHolding::Derived { .. }, _) => None,
        (ScanHolding::Deletion { .. } | ScanHolding::Damaged, _) => None,
    }
}

/// What a read has found.
fn found_by_read(key: Key, found: &ReadResult) -> Option<ScannedRecord> {
    let Held::Record(record) = &found.value else { return None };
    if record.is_tombstone() || found.expiry == Expiry::Passed {
        return None;
    }
    let (version, expires_ms) = (record.version(), record.expires_ms());
    Some(ScannedRecord { key, version, expires_ms, content: ScannedContent::Record(record.clone()) })
}
