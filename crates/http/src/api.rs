//! What HTTP needs of the node, as traits.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use kvorum_core::Key;
use kvorum_core::layout::Layout;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::Quorum;
use kvorum_replication::cluster_scan::{ClusterScan, ScanRefused, ScanSegment, ScanSpec, ScanStep, Scanner};
use kvorum_replication::coordinator::batch::BatchOperation;
use kvorum_replication::coordinator::{Coordinator, NewValue, Outcome, ReadResult, Refused, WithReceipt, WriteResult};
use kvorum_replication::pinned_layout::PinnedLayout;
use tokio::net::TcpStream;

/// What a connection between nodes is upgraded to.
pub const PEER_PROTOCOL: &str = "kvorum/4";

/// Single entities, as the coordinator serves them.
pub trait Entities: 'static {
    /// Stores a value at `quorum.replicas()` replicas and waits for `quorum.required()` of them.
    fn put(
        &self,
        key: Key,
        quorum: Quorum,
        value: NewValue<'_>,
        receipt: WithReceipt,
    ) -> impl Future<Output = Result<WriteResult, Refused>>;

    /// Stores a deletion.
    fn delete(
        &self,
        key: Key,
        quorum: Quorum,
        receipt: WithReceipt,
    ) -> impl Future<Output = Result<WriteResult, Refused>>;

    /// Carries out many operations at once; what became of each, in their order.
    fn batch(
        &self,
        operations: Vec<BatchOperation<'_>>,
    ) -> impl Future<Output = Result<Vec<Result<Outcome, Refused>>, Refused>>;

    /// The newest version among the answers of `quorum.required()` replicas.
    fn get(&self, key: Key, quorum: Quorum, receipt: WithReceipt) -> impl Future<Output = Result<ReadResult, Refused>>;
}

impl Entities for Coordinator {
    fn put(
        &self,
        key: Key,
        quorum: Quorum,
        value: NewValue<'_>,
        receipt: WithReceipt,
    ) -> impl Future<Output = Result<WriteResult, Refused>> {
        Self::put(self, key, quorum, value, receipt)
    }

    fn delete(
        &self,
        key: Key,
        quorum: Quorum,
        receipt: WithReceipt,
    ) -> impl Future<Output = Result<WriteResult, Refused>> {
        Self::delete(self, key, quorum, receipt)
    }

    fn batch(
        &self,
        operations: Vec<BatchOperation<'_>>,
    ) -> impl Future<Output = Result<Vec<Result<Outcome, Refused>>, Refused>> {
        Self::batch(self, operations)
    }

    fn get(&self, key: Key, quorum: Quorum, receipt: WithReceipt) -> impl Future<Output = Result<ReadResult, Refused>> {
        Self::get(self, key, quorum, receipt)
    }
}

/// Scans over the cluster.
pub trait Scans {
    /// Begins one.
    ///
    /// # Errors
    /// [`ScanRefused`]
    fn open(&self, spec: ScanSpec) -> Result<Box<dyn ScanSource>, ScanRefused>;
    /// Which cluster it is of.
    fn cluster_id(&self) -> u64;
    /// The layout of now.
    fn layout(&self) -> PinnedLayout;
    /// The node's clock, in milliseconds since 1970.
    fn clock_ms(&self) -> u64;
}

/// Why a script gives nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptRefused {
    /// There is no worker for it now.
    Busy,
    /// By its own fault, of which its author reads this.
    Failed(String),
}

/// What a script gives.
pub type ScriptFuture<T> = Pin<Box<dyn Future<Output = Result<T, ScriptRefused>>>>;

/// Runs scripts of clients. What `map` emits is opaque here.
pub trait Scripts {
    /// Takes a place among the scripts that this node coordinates, until it is dropped; none where there is none.
    fn admit(&self) -> Option<Box<dyn std::any::Any>>;
    /// Whether it can be compiled, and has what a script must have.
    fn check(&self, source: Bytes) -> ScriptFuture<()>;
    /// Fewer pairs for the same, if the script combines.
    fn combine(&self, source: Bytes, emitted: Vec<Bytes>) -> ScriptFuture<Vec<Bytes>>;
    /// Lines of JSON.
    fn finish(&self, source: Bytes, emitted: Vec<Bytes>) -> ScriptFuture<Vec<u8>>;
}

/// A scan that goes on, and is given back.
pub type ScanAdvance = Pin<Box<dyn Future<Output = Box<dyn ScanSource>>>>;

/// A scan under way.
pub trait ScanSource {
    /// What comes next, if that is known.
    fn ready(&mut self) -> Option<ScanStep>;
    /// Counts what the reader holds beside it out of the same memory; whether there is room.
    fn hold(&mut self, bytes: usize) -> bool;
    /// Goes on; what that brings is [`ScanSource::ready`].
    fn advance(self: Box<Self>) -> ScanAdvance;
    /// The last key up to which everything was given.
    fn position(&self) -> Option<&Bytes>;
    /// Which nodes have answered for which partitions.
    fn segments(&self) -> &[ScanSegment];
    /// Partitions that were left out.
    fn missing(&self) -> &PartitionSet;
    /// Where its keys belong.
    fn layout(&self) -> &Layout;
}

impl Scans for Rc<Scanner> {
    fn open(&self, spec: ScanSpec) -> Result<Box<dyn ScanSource>, ScanRefused> {
        Ok(Box::new(ClusterScan::open(self, spec)?))
    }

    fn cluster_id(&self) -> u64 {
        Scanner::cluster_id(self)
    }

    fn layout(&self) -> PinnedLayout {
        Scanner::layout(self)
    }

    fn clock_ms(&self) -> u64 {
        Scanner::clock_ms(self)
    }
}

impl ScanSource for ClusterScan {
    fn ready(&mut self) -> Option<ScanStep> {
        Self::ready(self)
    }

    fn hold(&mut self, bytes: usize) -> bool {
        Self::hold(self, bytes)
    }

    fn advance(mut self: Box<Self>) -> ScanAdvance {
        Box::pin(async move {
            ClusterScan::advance(&mut self).await;
            self as Box<dyn ScanSource>
        })
    }

    fn position(&self) -> Option<&Bytes> {
        Self::position(self)
    }

    fn segments(&self) -> &[ScanSegment] {
        Self::segments(self)
    }

    fn missing(&self) -> &PartitionSet {
        Self::missing(self)
    }

    fn layout(&self) -> &Layout {
        Self::layout(self)
    }
}

/// Something that the node does for its operator: a page, or why there is none.
pub type AdminFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>>>>;

/// What the node shows of itself. The `Err` of a probe is the detail of its 503.
pub trait Admin {
    /// `/livez`: whether a restart would not help.
    ///
    /// # Errors
    /// Why it would.
    fn live(&self) -> Result<(), String>;
    /// `/readyz`: serves its cluster, has tried to connect to all peers, not draining, able to write.
    ///
    /// # Errors
    /// Why the node is not ready.
    fn ready(&self) -> Result<(), String>;
    /// `/v0/status`: whether the node has started, though its peers may not have: a script that starts nodes one after
    /// another awaits each by this.
    ///
    /// # Errors
    /// Why the node answers no requests.
    fn started(&self) -> Result<(), String>;
    /// `/v0/cluster`.
    fn cluster_json(&self) -> Vec<u8>;
    /// `POST /v0/scrub`: begins a pass, and returns its number.
    fn scrub(&self) -> Vec<u8>;
    /// `POST /v0/backup`: takes a backup, and returns where it is. The `Err` is the detail of a 503.
    fn backup(&self) -> AdminFuture;
    /// `GET /v0/repair`.
    fn repair_json(&self) -> Vec<u8>;
    /// `POST /v0/repair`: has this node drive a round; gives its number.
    fn begin_repair(&self) -> u64;
    /// `DELETE /v0/repair`: ends the round that this node drives, and says which.
    fn end_repair(&self) -> Vec<u8>;
    /// `DELETE /v0/scrub`: ends the pass that is made, and says which.
    fn end_scrub(&self) -> Vec<u8>;
    /// `/metrics`, of all shards.
    fn metrics_text(&self) -> String;
    /// `/v0/stats`: the same, as JSON.
    fn stats_json(&self) -> Vec<u8>;
    /// `/v0/slow`.
    fn slow_json(&self) -> Vec<u8>;
    /// `/v0/hot`.
    fn hot_json(&self, names: KeyNames) -> Vec<u8>;
    /// `/v0/layout`, of one key or of all.
    fn layout_json(&self, key: Option<&Key>) -> Vec<u8>;
}

/// Whether an answer may show which keys there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNames {
    /// It may: the caller may read all of them.
    Shown,
    /// It may not.
    Hidden,
}

/// A request that was answered, for the audit.
#[derive(Debug)]
pub struct AuditedRequest<'a> {
    /// Of the request.
    pub method: &'a str,
    /// Without a query.
    pub path: &'a str,
    /// Of the answer.
    pub status: u16,
    /// Whose it is, if a key was accepted.
    pub principal: Option<&'a str>,
    /// Of the client.
    pub address: IpAddr,
    /// Of the entity.
    pub key: Option<&'a [u8]>,
    /// What kind it is.
    pub kind: AuditedKind,
}

/// Kinds of requests that an audit tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditedKind {
    /// Reads keys or values.
    Read,
    /// Stores or deletes.
    Write,
    /// An operator's order.
    Order,
    /// A handshake of a peer.
    Peer,
    /// Anything else: probes, pages, what no path has.
    Other,
}

/// Writes down what was asked for and what came of it.
pub trait AuditLog {
    /// Whether requests are refused because there is no room for another line.
    fn is_full(&self) -> bool;
    /// A request was answered. Does not block.
    fn note(&self, request: &AuditedRequest<'_>);
}

/// Connections between nodes, which begin as HTTP.
pub trait PeerUpgrade {
    /// Judges the headers of `GET /_peer` with `Upgrade: kvorum/4`; gives those of the 101, which must
    /// include `Connection: upgrade` and `Upgrade: kvorum/4`.
    ///
    /// # Errors
    /// The refusal that the peer gets.
    fn accept(&self, hello: &HeaderMap, address: IpAddr) -> Result<HeaderMap, PeerRefusal>;
    /// Takes the socket once `answer`, the headers of the 101, has been written. `read_ahead` has been read from it
    /// already.
    fn upgraded(&self, stream: TcpStream, read_ahead: Bytes, hello: HeaderMap, answer: HeaderMap);
}

/// Why a peer is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRefusal {
    /// A status of errors.
    pub status: StatusCode,
    /// Of the problem.
    pub title: &'static str,
    /// Of the problem.
    pub detail: String,
}
