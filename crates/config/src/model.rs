//! All settings, checked.

use std::path::PathBuf;
use std::time::Duration;

use kvorum_core::quorum::{Quorum, majority};

use crate::values::{
    Address, AuditedData, ByteSize, Count, DurabilitySetting, HostNames, LogFormat, LogLevel, MetricsReaders, NodeUrl,
    Percent, ReadFanout, Zone,
};

/// All settings of a node, checked. Made by [`load`](crate::load).
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients and peers connect to.
    pub listen: Address,
    /// This node's own entry of `members`.
    pub own: NodeUrl,
    /// All nodes of the cluster, this one included, sorted by URL, each once.
    pub members: Vec<ClusterMember>,
    /// Where this node keeps what it stores.
    pub data_dir: PathBuf,
    /// When a write counts as stored.
    pub durability: DurabilitySetting,
    /// What caches, write buffers and queues share.
    pub memory_bytes: ByteSize,
    /// Replicas addressed and answers required where a request says neither.
    pub quorum: Quorum,
    /// Threads.
    pub runtime: RuntimeSection,
    /// Requests on their way through this node.
    pub coordinator: CoordinatorSection,
    /// Farthest that this node's clock may be from most of its peers' before it fences itself.
    pub clock_skew_max: Duration,
    /// What clients may ask of this node.
    pub limits: LimitsSection,
    /// Browsers.
    pub http: HttpSection,
    /// Keys of clients.
    pub auth: AuthSection,
    /// What is written of refusals and orders.
    pub audit: AuditSection,
    /// Whether the node may be open to all that reaches it.
    pub is_insecure: bool,
    /// Connections to the other nodes.
    pub peer: PeerSection,
    /// The queue of writes, and what is remembered of accepted ones.
    pub commit: CommitSection,
    /// What scans over the cluster may take.
    pub scan: ScanSection,
    /// Whether clients may have scripts run.
    pub has_scripts: bool,
    /// From how long on a request is kept as slow.
    pub slow_threshold: Duration,
    /// Bytes that are verified in a second; zero if only on request.
    pub scrub_rate: ByteSize,
    /// What is kept for nodes that are away.
    pub hints: HintsSection,
    /// Rounds of anti-entropy.
    pub repair: RepairSection,
    /// Log lines.
    pub log: LogSection,
    /// Where operators take profiles, on the loopback interface; none: nowhere.
    pub admin_listen: Option<Address>,
    pub(crate) named: Named,
}

/// A node of the cluster. The same on every node, or they refuse each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMember {
    /// Its name and address.
    pub url: NodeUrl,
    /// Its share of the data, relative to the others'.
    pub weight: Count,
    /// Where it stands, if zones are used.
    pub zone: Option<Zone>,
}

/// `runtime.*`
#[derive(Clone, Copy, Debug, Default)]
pub struct RuntimeSection {
    /// Threads that serve connections.
    pub shards: Count,
    /// Threads for reads that need the disk.
    pub read_threads: Count,
    /// What flushes and compactions each take of as many cores as there are shards while requests come, of a hundred.
    /// Scans have a quarter of it, copying in repair half.
    pub background_cpu_percent: Count,
}

impl RuntimeSection {
    /// What each kind of background work has of one core while requests come, of a hundred. A machine loses a part of
    /// itself, not of a core, so it counts by shards.
    #[must_use]
    pub fn background_percent_of_a_core(&self) -> u32 {
        u32::try_from(self.background_cpu_percent.get() * self.shards.get()).unwrap_or(u32::MAX).min(100)
    }
}

/// `coordinator.*`
#[derive(Clone, Copy, Debug, Default)]
pub struct CoordinatorSection {
    /// Which replicas a read asks first.
    pub read_fanout: ReadFanout,
    /// For the whole request, both attempts of a write included.
    pub deadline: Duration,
    /// Part of the requests that may be hedged because a replica is slow.
    pub hedge_budget: Percent,
    /// Requests in flight, per shard.
    pub requests_max: Count,
    /// Bytes of large values that are held for requests, on all shards.
    pub request_bytes_max: ByteSize,
}

/// `limits.*`
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitsSection {
    /// Longest value.
    pub value_bytes_max: ByteSize,
    /// For how long a value lives where the request does not say, in whole seconds; none: without end.
    pub ttl_default: Option<Duration>,
    /// For a request's head and body to arrive.
    pub request_read_timeout: Duration,
    /// For the next request on a connection.
    pub idle_timeout: Duration,
    /// For a client to take any of an answer that waits for it.
    pub write_timeout: Duration,
    /// A second, which a client has to take of an answer that waits for it; 0: any.
    pub answer_rate_min: ByteSize,
    /// Connections of clients, per shard.
    pub connections_max: Count,
    /// Connections of one address; none: a quarter of all.
    pub connections_per_address: Option<Count>,
    /// What a range reads at once: about this much per range is in memory.
    pub scan_page_bytes: ByteSize,
}

/// `scan.*`
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanSection {
    /// Bytes that scans, queries and scripts through this node hold, on all shards.
    pub memory_bytes: ByteSize,
    /// Bytes a second that this node reads for them; none: no limit.
    pub rate: Option<ByteSize>,
}

/// `auth.*`
#[derive(Clone, Debug, Default)]
pub struct AuthSection {
    /// Where keys and roles are; none: clients need no key.
    pub file: Option<PathBuf>,
    /// Who may read `/metrics`.
    pub metrics: MetricsReaders,
}

/// `audit.*`
#[derive(Clone, Debug, Default)]
pub struct AuditSection {
    /// Where it is written; none: nowhere.
    pub file: Option<PathBuf>,
    /// Which requests for data.
    pub data: AuditedData,
    /// Where the secret is under which names of keys stand there.
    pub secret_file: Option<PathBuf>,
    /// Whether requests are refused while lines have no room.
    pub is_strict: bool,
}

/// `http.*`
#[derive(Clone, Debug, Default)]
pub struct HttpSection {
    /// The node's names.
    pub allowed_hosts: HostNames,
    /// Origins whose pages may use the node, in lower case.
    pub allowed_origins: Vec<String>,
}

/// `peer.*`
#[derive(Clone, Debug, Default)]
pub struct PeerSection {
    /// For a connection and its handshake.
    pub connect_timeout: Duration,
    /// Longest pause between two attempts to connect.
    pub reconnect_delay_max: Duration,
    /// Bytes of frames that may wait to be sent, per connection. Large values do not count: see `LargeValues`.
    pub queue_bytes_max: ByteSize,
    /// Connections of each peer to this node.
    pub links_max: Count,
    /// Where the cluster's secret is; none: peers need none.
    pub secret_file: Option<PathBuf>,
    /// Whether a peer without the secret is taken all the same.
    pub secret_optional: bool,
}

/// `commit.*`
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitSection {
    /// Writes waiting for the commit thread.
    pub queue_records_max: Count,
    /// Their bytes.
    pub queue_bytes_max: ByteSize,
    /// Accepted versions remembered.
    pub recent_versions_max: Count,
}

/// `hints.*`
#[derive(Clone, Copy, Debug, Default)]
pub struct HintsSection {
    /// Bytes for each node; none: nothing is kept.
    pub bytes_max: ByteSize,
    /// How long.
    pub age_max: Duration,
    /// Bytes a second that are delivered to each node.
    pub rate: ByteSize,
}

/// `repair.*`
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairSection {
    /// From the end of one automatic round to the begin of the next.
    pub interval: Duration,
    /// Bytes that one node reads from its disk, and copies as the driver of a round, in a second.
    pub rate: ByteSize,
}

/// `log.*`
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSection {
    /// The shape of a line.
    pub format: LogFormat,
    /// The least important line that is written.
    pub level: LogLevel,
}

/// What was said about the cluster and its memory, before it is put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    pub(crate) cluster: Vec<NodeUrl>,
    pub(crate) advertise: Option<NodeUrl>,
    pub(crate) from: Option<Count>,
    pub(crate) zones: Vec<(NodeUrl, Zone)>,
    pub(crate) weights: Vec<(NodeUrl, Count)>,
    /// Where none: a share of `memory_bytes`.
    pub(crate) request_bytes_max: Option<ByteSize>,
    pub(crate) scan_memory_bytes: Option<ByteSize>,
    pub(crate) peer_queue_bytes_max: Option<ByteSize>,
    pub(crate) commit_queue_bytes_max: Option<ByteSize>,
    pub(crate) recent_versions_max: Option<Count>,
}

impl Config {
    /// Connections that one address may have, over all shards.
    #[must_use]
    pub fn connections_per_address(&self) -> usize {
        let all = self.limits.connections_max.get() * self.runtime.shards.get();
        self.limits.connections_per_address.map_or((all / 4).max(1), Count::get)
    }

    /// Before the table of settings has filled it. Every field is set by the table or by `identity`.
    pub(crate) fn blank() -> Self {
        Self {
            listen: Address::default(),
            own: NodeUrl::default(),
            members: Vec::new(),
            data_dir: PathBuf::new(),
            durability: DurabilitySetting::default(),
            memory_bytes: ByteSize::default(),
            quorum: Quorum::new(majority(1), 1).expect("one of one is allowed"),
            runtime: RuntimeSection::default(),
            coordinator: CoordinatorSection::default(),
            clock_skew_max: Duration::ZERO,
            limits: LimitsSection::default(),
            http: HttpSection::default(),
            auth: AuthSection::default(),
            audit: AuditSection::default(),
            is_insecure: false,
            peer: PeerSection::default(),
            commit: CommitSection::default(),
            scan: ScanSection::default(),
            has_scripts: false,
            slow_threshold: Duration::ZERO,
            scrub_rate: ByteSize::default(),
            hints: HintsSection::default(),
            repair: RepairSection::default(),
            log: LogSection::default(),
            admin_listen: None,
            named: Named::default(),
        }
    }
}
