//! Stand-ins for everything around the HTTP layer.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, dead_code)]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use kvorum_base::value_memory::LargeValues;
use kvorum_core::layout::Layout;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::{Expiry, Held, Quorum};
use kvorum_core::scan::page::ScanValues;
use kvorum_core::scan::plan::ScanPlan;
use kvorum_core::version::Hlc;
use kvorum_core::{Incarnation, Key, Record, Version};
use kvorum_replication::cluster_scan::{ScanRefused, ScanSegment, ScanSpec, ScanStep, ScannedContent, ScannedRecord};
use kvorum_replication::coordinator::batch::{BatchAction, BatchOperation};
use kvorum_replication::coordinator::{
    NewValue, Outcome, ReadResult, Receipt, Refused, ReplicaReceipt, WithReceipt, WriteResult,
};
use kvorum_replication::pinned_layout::{PinnedLayout, ShardLayout};
use kvorum_storage::{Page, PageLimit};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::work::{ScanWork, WorkResult};
use crate::{
    Admin, AdminFuture, Entities, PEER_PROTOCOL, PageFuture, PageRoom, PeerRefusal, PeerUpgrade, RangeError, Ranges,
    ScanAdvance, ScanSource, Scans,
};

/// When its first value is written.
pub(super) const START_MS: u64 = 1_700_000_000_000;

/// One map, and an answer that a test can set.
pub(super) struct FakeEntities {
    pub records: RefCell<BTreeMap<Vec<u8>, Record>>,
    pub refusal: RefCell<Option<Refused>>,
    /// Of scans.
    pub scan_refused: RefCell<Option<ScanRefused>>,
    /// Requests wait while this is set.
    pub held: Cell<bool>,
    pub release: Notify,
    pub requests: Cell<u32>,
    clock: Cell<u64>,
    /// By which values end.
    pub now_ms: Cell<u64>,
    large_values: Arc<LargeValues>,
}

impl FakeEntities {
    pub(super) fn new(large_values: Arc<LargeValues>) -> Self {
        Self {
            records: RefCell::default(),
            refusal: RefCell::default(),
            scan_refused: RefCell::default(),
            held: Cell::default(),
            release: Notify::new(),
            requests: Cell::default(),
            clock: Cell::default(),
            now_ms: Cell::new(START_MS),
            large_values,
        }
    }

    async fn enter(&self) -> Result<(), Refused> {
        self.requests.set(self.requests.get() + 1);
        while self.held.get() {
            self.release.notified().await;
        }
        self.refusal.borrow().clone().map_or(Ok(()), Err)
    }

    fn timestamp(&self) -> Version {
        self.clock.set(self.clock.get() + 1);
        Version { hlc: Hlc::from_millis(START_MS + self.clock.get()), incarnation: Incarnation(7) }
    }

    pub(super) fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.records.borrow().get(key).map(|record| record.payload().to_vec())
    }

    pub(super) fn insert(&self, key: &[u8], value: &[u8]) {
        let key = Key::new(Bytes::copy_from_slice(key)).unwrap();
        let record = Record::value(&key, self.timestamp(), 1, None, value);
        self.records.borrow_mut().insert(key.as_bytes().to_vec(), record);
    }
}

pub(super) fn receipt(version: Version) -> Receipt {
    let replica =
        |node: &str, outcome, version, micros| ReplicaReceipt { node: Rc::from(node), outcome, version, micros };
    Receipt {
        replicas: vec![
            replica("http://a:1", "accepted", Some(version), Some(1234)),
            replica("http://b:2", "timeout", None, None),
        ],
    }
}

impl Entities for FakeEntities {
    async fn put(
        &self,
        key: Key,
        quorum: Quorum,
        value: NewValue<'_>,
        with: WithReceipt,
    ) -> Result<WriteResult, Refused> {
        self.enter().await?;
        let version = self.timestamp();
        let NewValue { body, content_type, ttl_s } = value;
        let expires_ms = ttl_s.map(|ttl_s| version.hlc.millis() + u64::from(ttl_s) * 1000);
        let from = quorum.replicas();
        let record = body.into_record(|value| Record::expiring(&key, version, from, expires_ms, content_type, value));
        // What is stored is no longer on its way.
        let stored = Record::decode(&key, Bytes::copy_from_slice(record.bytes()));
        let record = stored.expect("it was a record");
        self.records.borrow_mut().insert(key.as_bytes().to_vec(), record);
        Ok(WriteResult { version, expires_ms, receipt: (with == WithReceipt::Yes).then(|| receipt(version)) })
    }

    async fn batch(&self, operations: Vec<BatchOperation<'_>>) -> Result<Vec<Result<Outcome, Refused>>, Refused> {
        let mut outcomes = Vec::new();
        for BatchOperation { key, quorum, action } in operations {
            let no = WithReceipt::No;
            outcomes.push(match action {
                BatchAction::Put(value) => self.put(key, quorum, value, no).await.map(Outcome::Written),
                BatchAction::Get => self.get(key, quorum, no).await.map(Outcome::Found),
                BatchAction::Delete => self.delete(key, quorum, no).await.map(Outcome::Written),
            });
        }
        Ok(outcomes)
    }

    async fn delete(&self, key: Key, quorum: Quorum, with: WithReceipt) -> Result<WriteResult, Refused> {
        self.enter().await?;
        let version = self.timestamp();
        self.records.borrow_mut().insert(key.as_bytes().to_vec(), Record::tombstone(&key, version, quorum.replicas()));
        Ok(WriteResult { version, expires_ms: None, receipt: (with == WithReceipt::Yes).then(|| receipt(version)) })
    }

    async fn get(&self, key: Key, _: Quorum, with: WithReceipt) -> Result<ReadResult, Refused> {
        self.enter().await?;
        let record = self.records.borrow().get(key.as_bytes()).cloned();
        let record = record.map(|record| self.large_values.keep(record)).transpose();
        let record = record.map_err(|_| Refused::Overloaded)?;
        let version = record.as_ref().map_or(Version::ZERO, Record::version);
        let value = record.map_or(Held::Absent { gc_watermark: Version::ZERO }, Held::Record);
        let is_over = |record: &Record| record.expires_ms().is_some_and(|at| at <= self.now_ms.get());
        let expiry = match &value {
            Held::Record(record) if is_over(record) => Expiry::Passed,
            _ => Expiry::Ahead,
        };
        Ok(ReadResult { value, expiry, receipt: (with == WithReceipt::Yes).then(|| receipt(version)) })
    }
}

/// Pages of [`FakeEntities`].
pub(super) struct FakeRanges {
    pub entities: Rc<FakeEntities>,
    pub pages: Cell<u32>,
    pub failure: RefCell<Option<RangeError>>,
    /// The key whose raw record is given with one bit wrong.
    pub corrupt: RefCell<Option<Vec<u8>>>,
}

impl FakeRanges {
    fn read(&self, start: &[u8], end: Option<&[u8]>, limit: PageLimit) -> Result<Page, RangeError> {
        self.pages.set(self.pages.get() + 1);
        if let Some(failure) = self.failure.borrow().clone() {
            return Err(failure);
        }
        let (mut records, mut bytes) = (Vec::new(), 0);
        for (key, record) in self.entities.records.borrow().range(start.to_vec()..) {
            if end.is_some_and(|end| key.as_slice() >= end) {
                break;
            }
            if !records.is_empty() && (records.len() >= limit.records || bytes + record.bytes().len() > limit.bytes) {
                return Ok(Page { records, more: true });
            }
            let mut raw = record.bytes().to_vec();
            if self.corrupt.borrow().as_ref() == Some(key) {
                *raw.last_mut().unwrap() ^= 1;
            }
            bytes += raw.len();
            records.push((Bytes::copy_from_slice(key), Bytes::from(raw)));
        }
        Ok(Page { records, more: false })
    }
}

impl Ranges for FakeRanges {
    fn clock_ms(&self) -> u64 {
        self.entities.now_ms.get()
    }

    fn page(&self, start: Bytes, end: Option<Bytes>, limit: PageLimit, mut room: PageRoom) -> PageFuture {
        let page = self.read(&start, end.as_deref(), limit);
        Box::pin(async move {
            tokio::task::yield_now().await;
            page.and_then(|page| room.grow_to(&page).map(|()| (page, room)))
        })
    }
}

/// Scans of [`FakeEntities`] in a cluster of three nodes.
pub(super) struct FakeScans {
    entities: Rc<FakeEntities>,
    layout: PinnedLayout,
}

impl FakeScans {
    pub(super) fn new(entities: &Rc<FakeEntities>) -> Self {
        let layout = Layout::fixed_at(["a", "b", "c"].map(|name| format!("http://{name}:1"))).unwrap();
        Self { entities: Rc::clone(entities), layout: ShardLayout::new(Arc::new(layout)).pin() }
    }
}

impl Scans for FakeScans {
    fn open(&self, spec: ScanSpec) -> Result<Box<dyn ScanSource>, ScanRefused> {
        if let Some(refused) = self.entities.scan_refused.borrow().clone() {
            return Err(refused);
        }
        let records = self.entities.records.borrow();
        let is_in = |key: &[u8]| *key >= *spec.start && spec.end.as_ref().is_none_or(|end| *key < **end);
        let there = records.iter().filter(|(key, record)| is_in(key) && !record.is_tombstone());
        let scanned = there.map(|(key, record)| ScannedRecord {
            key: Key::new(Bytes::copy_from_slice(key)).unwrap(),
            version: record.version(),
            expires_ms: record.expires_ms(),
            content: match &spec.values {
                ScanValues::Wanted => ScannedContent::Record(record.clone()),
                ScanValues::LeftOut => ScannedContent::Version,
                ScanValues::Derived(work) => ScannedContent::Derived(derived(work, key, record)),
            },
        });
        let plan = Rc::new(ScanPlan::new(&self.layout, spec.quorum, |_, _| true));
        Ok(Box::new(FakeScan {
            steps: scanned.map(ScanStep::Record).chain([ScanStep::End]).collect(),
            known: None,
            position: None,
            segments: vec![ScanSegment { start: spec.start, plan }],
            missing: PartitionSet::default(),
            layout: self.layout.clone(),
        }))
    }

    fn cluster_id(&self) -> u64 {
        7
    }

    fn layout(&self) -> PinnedLayout {
        self.layout.clone()
    }

    fn clock_ms(&self) -> u64 {
        1_000_000
    }
}

/// What a node would derive for a query.
fn derived(work: &[u8], key: &[u8], record: &Record) -> Option<Bytes> {
    let Ok(ScanWork::Query { now_ms, body }) = ScanWork::decode(work) else { return None };
    let query = kvorum_query::Query::parse(&body).unwrap();
    let (value, written_ms) = (record.payload(), record.version().hlc.millis());
    let record =
        kvorum_query::QueryRecord { key, value: &value, content_type: record.content_type(), written_ms, now_ms };
    query.row(&record).map(|row| WorkResult::Row(row.into()).encode())
}

struct FakeScan {
    steps: VecDeque<ScanStep>,
    known: Option<ScanStep>,
    position: Option<Bytes>,
    segments: Vec<ScanSegment>,
    missing: PartitionSet,
    layout: PinnedLayout,
}

impl ScanSource for FakeScan {
    fn ready(&mut self) -> Option<ScanStep> {
        let step = self.known.take()?;
        if let ScanStep::Record(found) = &step {
            self.position = Some(Bytes::copy_from_slice(found.key.as_bytes()));
        }
        Some(step)
    }

    fn hold(&mut self, _: usize) -> bool {
        true
    }

    fn advance(mut self: Box<Self>) -> ScanAdvance {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.known = self.steps.pop_front();
            self as Box<dyn ScanSource>
        })
    }

    fn position(&self) -> Option<&Bytes> {
        self.position.as_ref()
    }

    fn segments(&self) -> &[ScanSegment] {
        &self.segments
    }

    fn missing(&self) -> &PartitionSet {
        &self.missing
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }
}

#[derive(Default)]
pub(super) struct FakeAdmin {
    pub unready: RefCell<Option<String>>,
}

impl FakeAdmin {
    fn say(&self) -> Result<(), String> {
        self.unready.borrow().clone().map_or(Ok(()), Err)
    }
}

impl Admin for FakeAdmin {
    fn live(&self) -> Result<(), String> {
        self.say()
    }
    fn ready(&self) -> Result<(), String> {
        self.say()
    }
    fn repair_json(&self) -> Vec<u8> {
        b"{}".to_vec()
    }
    fn begin_repair(&self) -> u64 {
        7
    }
    fn started(&self) -> Result<(), String> {
        self.say()
    }
    fn cluster_json(&self) -> Vec<u8> {
        b"{\"nodes\":[]}".to_vec()
    }
    fn scrub(&self) -> Vec<u8> {
        b"{}".to_vec()
    }
    fn backup(&self) -> AdminFuture {
        let said = self.say().map(|()| b"{}".to_vec());
        Box::pin(async move { said })
    }
    fn end_repair(&self) -> Vec<u8> {
        b"{}".to_vec()
    }

    fn end_scrub(&self) -> Vec<u8> {
        b"{}".to_vec()
    }

    fn stats_json(&self) -> Vec<u8> {
        b"{}".to_vec()
    }

    fn slow_json(&self) -> Vec<u8> {
        b"{}".to_vec()
    }

    fn hot_json(&self, names: crate::api::KeyNames) -> Vec<u8> {
        format!("{names:?}").into_bytes()
    }

    fn layout_json(&self, key: Option<&Key>) -> Vec<u8> {
        format!("{key:?}").into_bytes()
    }

    fn metrics_text(&self) -> String {
        "# EOF\n".to_owned()
    }
}

/// Keeps the peers that it was given.
#[derive(Default)]
pub(super) struct FakePeers {
    pub taken: RefCell<Vec<(TcpStream, Bytes, HeaderMap)>>,
}

impl PeerUpgrade for FakePeers {
    fn accept(&self, hello: &HeaderMap, _: IpAddr) -> Result<HeaderMap, PeerRefusal> {
        if hello.get("kvorum-cluster").is_none_or(|cluster| cluster != "ours") {
            let detail = "another cluster".to_owned();
            return Err(PeerRefusal { status: StatusCode::FORBIDDEN, title: "Stranger", detail });
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(PEER_PROTOCOL));
        headers.insert("kvorum-node", HeaderValue::from_static("b"));
        Ok(headers)
    }

    fn upgraded(&self, stream: TcpStream, read_ahead: Bytes, hello: HeaderMap, _: HeaderMap) {
        self.taken.borrow_mut().push((stream, read_ahead, hello));
    }
}
