//! This node's part in scans over the cluster: pages of what it stores.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_base::value_memory::LargeValues;
use kvorum_core::quorum::Failure;
use kvorum_core::scan::page::{PAGE_BYTES_MAX, PageQuestion, ScanEntry, ScanHolding, ScanPage, ScanValues};
use kvorum_core::scan::plan::NodePart;
use kvorum_core::{Key, Record, Version};
use kvorum_peer::membership::Membership;
use kvorum_storage::{PageLimit, Store, StoreError};

use crate::background_scan::BackgroundScan;

/// Records of one page at most: as many as its bytes hold where they are small.
const PAGE_RECORDS: usize = 8 * 1024;
/// Pages that a shard reads for peers at once.
const PAGES_MAX: usize = 8;

/// Reads pages on the pool of scans, behind the reads of requests.
pub(crate) struct PageReader {
    store: Arc<dyn Store>,
    scan: BackgroundScan,
    membership: Arc<Membership>,
    large_values: Arc<LargeValues>,
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
    ) -> Self {
        Self { store, scan, membership, large_values, under_way: Rc::default() }
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
        let (store, part) = (self.store.clone(), question.part.clone());
        let read = self.scan.run(move |_| read_page(&*store, &question)).await;
        let page = read.ok_or(Failure::Overloaded)?.map_err(|error| match error {
            StoreError::Corrupt(_) => Failure::Corrupt,
            _ => Failure::Disk,
        })?;
        // It may have learnt meanwhile that it lost something.
        self.check_vote(&part)?;
        Ok(page)
    }

    /// The same, as bytes that are charged to the memory for large values until they are sent.
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

fn read_page(store: &dyn Store, question: &PageQuestion) -> Result<ScanPage, StoreError> {
    // Before the scan: what is dropped while that runs is not answered for by a watermark that rose meanwhile.
    let gc_watermark = Version::last_of(store.gc_watermarks().bounds().0);
    let limit = PageLimit { records: PAGE_RECORDS, bytes: question.bytes_max.min(PAGE_BYTES_MAX) };
    let page = store.scan(&question.start, question.end.as_deref(), limit)?;
    let last = page.records.last().and_then(|(key, _)| Key::new(key.clone()).ok());
    let entries = page.records.into_iter().filter_map(|(key, record)| entry(Key::new(key).ok()?, record, question));
    Ok(ScanPage { entries: entries.collect(), gc_watermark, frontier: last.filter(|_| page.more) })
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
        Ok(record) if provides && question.values == ScanValues::Wanted => ScanHolding::Record(record.bytes().clone()),
        Ok(record) => {
            ScanHolding::Value { version: record.version(), from: record.from(), expires_ms: record.expires_ms() }
        }
    };
    Some(ScanEntry { key, holding })
}
