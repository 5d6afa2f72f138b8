//! This node's part in scans over the cluster: pages of what it stores.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_base::value_memory::LargeValues;
use kvorum_core::quorum::Failure;
use kvorum_core::scan::page::{
    DERIVED_BYTES_MAX, PAGE_BYTES_MAX, PageQuestion, ScanEntry, ScanHolding, ScanPage, ScanValues, WORK_BYTES_MAX,
};
use kvorum_core::scan::plan::NodePart;
use kvorum_core::{Key, Record, Version};
use kvorum_peer::membership::Membership;
use kvorum_storage::{PageLimit, Store, StoreError};

use super::budget::ScanBudget;
use super::derivation::Derivation;
use crate::background_scan::BackgroundScan;

/// Records of one page at most: as many as its bytes hold where they are small.
const PAGE_RECORDS: usize = 8 * 1024;
/// Pages that a shard reads for peers at once.
const PAGES_MAX: usize = 8;

/// What may be derived for the shortest page.
const DERIVED_PAGE_BYTES_MIN: usize = 16 * 1024;
/// For how long the next page waits at most where this one was long, and `scan.rate` is low.
const DEBT_MAX: Duration = Duration::from_secs(5);

/// Reads pages on the pool of scans, behind the reads of requests.
pub(crate) struct PageReader {
    store: Arc<dyn Store>,
    scan: BackgroundScan,
    membership: Arc<Membership>,
    large_values: Arc<LargeValues>,
    budget: Arc<ScanBudget>,
    derivation: Arc<dyn Derivation>,
    /// Pages that peers wait for.
    under_way: Rc<Cell<usize>>,
}

/// A page that a peer waits for, until it is read.
pub(crate) struct AdmittedPage(Rc<Cell<usize>>);

impl Drop for AdmittedPage {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl PageReader {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        scan: BackgroundScan,
        membership: Arc<Membership>,
        large_values: Arc<LargeValues>,
        budget: Arc<ScanBudget>,
        derivation: Arc<dyn Derivation>,
    ) -> Self {
        Self { store, scan, membership, large_values, budget, derivation, under_way: Rc::default() }
    }

    /// Lets a peer's question in; none where too many wait.
    pub(crate) fn admit(&self) -> Option<AdmittedPage> {
        (self.under_way.get() < PAGES_MAX).then(|| {
            self.under_way.set(self.under_way.get() + 1);
            AdmittedPage(Rc::clone(&self.under_way))
        })
    }

    /// A page of this node. Cancel safe.
    ///
    /// # Errors
    /// Why there is none: also where it has no vote for a partition that it was asked for.
    pub(crate) async fn read(&self, question: PageQuestion) -> Result<ScanPage, Failure> {
        self.check_vote(&question.part)?;
        let (store, part, values) = (self.store.clone(), question.part.clone(), question.values.clone());
        let derived_max = question.bytes_max.clamp(DERIVED_PAGE_BYTES_MIN, PAGE_BYTES_MAX);
        if let Some(pace) = &self.budget.pace {
            // For the pages before: the scan takes a node that keeps it waiting for one that is gone.
            pace.settle().await;
        }
        let read = self.scan.run(move |_| read_page(&*store, &question)).await;
        let (mut page, bytes) = read.ok_or(Failure::Overloaded)??;
        if let Some(pace) = &self.budget.pace {
            pace.charge(bytes, DEBT_MAX);
        }
        if let ScanValues::Derived(work) = values {
            let records = records_of(&page);
            let derived = self.derive(work, records.clone()).await?;
            put_derived(&mut page, records.into_iter().map(|(_, record)| record).zip(derived), derived_max);
        }
        // It may have learnt meanwhile that it lost something.
        self.check_vote(&part)?;
        Ok(page)
    }

    /// What work derives of records that were read, in their order. Cancel safe.
    ///
    /// # Errors
    /// As [`Derivation::derive`].
    pub(crate) async fn derive(&self, work: Bytes, records: Vec<(Key, Record)>) -> Result<Vec<Option<Bytes>>, Failure> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let (derivation, pool) = (self.derivation.clone(), self.derivation.pool(&work).cloned());
        let derived = match pool {
            Some(pool) => pool.try_run(move || derive(&*derivation, &work, &records)).await,
            None => self.scan.run(move |_| derive(&*derivation, &work, &records)).await,
        };
        derived.ok_or(Failure::Overloaded)?
    }

    /// The same as [`PageReader::read`], as bytes that are charged to the memory for large values until they are sent.
    pub(crate) async fn read_encoded(&self, question: PageQuestion) -> Result<Bytes, Failure> {
        let encoded = self.read(question).await?.encode();
        match self.large_values.charge(encoded.len()) {
            Ok(Some(charge)) => Ok(charge.kept_by(encoded)),
            Ok(None) => Ok(encoded),
            Err(_) => Err(Failure::Overloaded),
        }
    }

    fn check_vote(&self, part: &NodePart) -> Result<(), Failure> {
        if self.membership.abstains().is_none() {
            return Ok(());
        }
        let asked = part.provides.iter().chain(part.witnesses.iter());
        asked.map(|partition| self.membership.abstains_for(partition)).find_map(|failure| failure).map_or(Ok(()), Err)
    }
}

/// A page, and how many bytes were looked at.
fn read_page(store: &dyn Store, question: &PageQuestion) -> Result<(ScanPage, usize), Failure> {
    // Before the scan: what is dropped while that runs is not answered for by a watermark that rose meanwhile.
    let gc_watermark = Version::last_of(store.gc_watermarks().bounds().0);
    let limit = PageLimit { records: PAGE_RECORDS, bytes: question.bytes_max.min(PAGE_BYTES_MAX) };
    let page = store.scan(&question.start, question.end.as_deref(), limit).map_err(|error| match error {
        StoreError::Corrupt(_) => Failure::Corrupt,
        _ => Failure::Disk,
    })?;
    let bytes = page.records.iter().map(|(key, record)| key.len() + record.len()).sum();
    let last = page.records.last().and_then(|(key, _)| Key::new(key.clone()).ok());
    let entries = page.records.into_iter().filter_map(|(key, record)| entry(Key::new(key).ok()?, record, question));
    let page = ScanPage { entries: entries.collect(), gc_watermark, frontier: last.filter(|_| page.more) };
    Ok((page, bytes))
}

/// The records of a page that was just read, and so was checked.
fn records_of(page: &ScanPage) -> Vec<(Key, Record)> {
    let record = |entry: &ScanEntry| match &entry.holding {
        ScanHolding::Record(bytes) => Some((entry.key.clone(), Record::decode(&entry.key, bytes.clone()).ok()?)),
        _ => None,
    };
    page.entries.iter().filter_map(record).collect()
}

/// Puts what was derived of a page's records in their place. A page ends where that has `bytes_max`.
fn put_derived(page: &mut ScanPage, mut derived: impl Iterator<Item = (Record, Option<Bytes>)>, bytes_max: usize) {
    let (mut bytes, mut length) = (0, 0);
    for entry in &mut page.entries {
        if bytes >= bytes_max {
            break;
        }
        length += 1;
        if !matches!(entry.holding, ScanHolding::Record(_)) {
            continue;
        }
        let (record, derived) = derived.next().expect("something was derived of each record");
        let (version, from, expires_ms) = (record.version(), record.from(), record.expires_ms());
        entry.holding = match derived {
            None => ScanHolding::Value { version, from, expires_ms },
            Some(derived) => {
                bytes += derived.len();
                ScanHolding::Derived { version, from, expires_ms, derived }
            }
        };
    }
    if length < page.entries.len() {
        page.entries.truncate(length);
        page.frontier = page.entries.last().map(|last| last.key.clone());
    }
}

fn derive(derivation: &dyn Derivation, work: &[u8], records: &[(Key, Record)]) -> Result<Vec<Option<Bytes>>, Failure> {
    if work.len() > WORK_BYTES_MAX {
        return Err(Failure::Corrupt);
    }
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let derived = derivation.derive(work, records)?;
    let is_bounded = derived.iter().flatten().all(|derived| derived.len() <= DERIVED_BYTES_MAX);
    if is_bounded && derived.len() == records.len() { Ok(derived) } else { Err(Failure::Corrupt) }
}

/// What is held for a key, if this node was asked for its partition. Nothing unchecked is given.
fn entry(key: Key, record: Bytes, question: &PageQuestion) -> Option<ScanEntry> {
    let partition = key.hash().partition();
    let provides = question.part.provides.contains(partition);
    if !provides && !question.part.witnesses.contains(partition) {
        return None;
    }
    let holding = match Record::decode(&key, record) {
        Err(_) => ScanHolding::Damaged,
        Ok(record) if record.is_tombstone() => ScanHolding::Deletion { version: record.version(), from: record.from() },
        Ok(record) if provides && question.values != ScanValues::LeftOut => ScanHolding::Record(record.bytes().clone()),
        Ok(record) => {
            ScanHolding::Value { version: record.version(), from: record.from(), expires_ms: record.expires_ms() }
        }
    };
    Some(ScanEntry { key, holding })
}
