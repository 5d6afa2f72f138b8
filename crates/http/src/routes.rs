//! What can be asked for: the one table of paths. Requests are judged by it, and docs/reference/http.md is written from
//! it.

use bytes::Bytes;
use kvorum_auth::rights::{AdminRight, DataRight};
use kvorum_core::Key;
use kvorum_core::quorum::Quorum;

use kvorum_replication::cluster_scan::OnMissing;

use crate::numbers::QuorumNumbers;
use crate::scan::request::ScanRequest;

/// What the client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Entity {
        verb: Verb,
        key: Key,
        quorum: Quorum,
        /// Of a PUT: for how many seconds the value lives.
        ttl_s: Option<u32>,
    },
    Range {
        start: Bytes,
        end: Option<Bytes>,
    },
    /// Many operations on entities.
    Batch {
        /// Of operations that say nothing.
        quorum: QuorumNumbers,
    },
    /// Keys of the cluster.
    Scan(Box<ScanRequest>),
    /// What they hold, put together; which, its body says.
    Query {
        quorum: Quorum,
        on_missing: OnMissing,
    },
    /// The same, by the client's code.
    Script(Box<ScanRequest>),
    /// What a browser asks before a page of an allowed origin sends the request itself.
    Preflight {
        allow: &'static str,
    },
    Status,
    Live,
    Ready,
    Metrics,
    Stats,
    Slow,
    Hot,
    /// Where keys are; without a key, where all are.
    Layout {
        key: Option<Key>,
    },
    Cluster,
    Backup,
    Scrub,
    Repair,
    BeginRepair,
    EndRepair,
    EndScrub,
    WhoAmI,
    Peer,
}

/// What a request needs where there is a file of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: probes, and what is no client's.
    Nothing,
    /// Any key.
    Key,
    /// A right over the key or the range.
    Data(DataRight),
    /// A right over the node.
    Admin(AdminRight),
}

impl Action {
    /// What it needs where there is a file of keys.
    pub(crate) fn need(&self) -> Need {
        match self {
            Self::Entity { verb, .. } => Need::Data(verb.right()),
            Self::Range { .. } | Self::Scan(_) | Self::Script(_) => Need::Data(DataRight::Read),
            Self::Status | Self::Live | Self::Ready | Self::Peer | Self::Preflight { .. } => Need::Nothing,
            // Each operation has needs of its own.
            Self::WhoAmI | Self::Batch { .. } | Self::Query { .. } => Need::Key,
            Self::Metrics => Need::Admin(AdminRight::Metrics),
            Self::Cluster | Self::Repair | Self::Stats | Self::Slow | Self::Hot | Self::Layout { .. } => {
                Need::Admin(AdminRight::Status)
            }
            Self::BeginRepair | Self::EndRepair => Need::Admin(AdminRight::Repair),
            Self::Scrub | Self::EndScrub => Need::Admin(AdminRight::Scrub),
            Self::Backup => Need::Admin(AdminRight::Backup),
        }
    }

    /// Whether it takes room among the requests in flight. Not what tells that there is none or why, nor what peers need.
    pub(crate) fn is_admitted(&self) -> bool {
        match self {
            Self::Status | Self::Live | Self::Ready | Self::Peer | Self::Preflight { .. } | Self::WhoAmI => false,
            Self::Stats | Self::Slow | Self::Hot | Self::Layout { .. } => false,
            // It takes as much as it needs once it is there.
            Self::Batch { .. } | Self::Query { .. } | Self::Script(_) => false,
            Self::Entity { .. }
            | Self::Range { .. }
            | Self::Scan(_)
            | Self::Metrics
            | Self::Cluster
            | Self::Backup
            | Self::Scrub
            | Self::Repair
            | Self::BeginRepair
            | Self::EndRepair
            | Self::EndScrub => true,
        }
    }
}

/// What to do with one entity. HEAD is a GET whose body hyper leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Put,
    Get,
    Delete,
}

impl Verb {
    /// The right over the key that it needs.
    pub(crate) fn right(self) -> DataRight {
        match self {
            Self::Put => DataRight::Write,
            Self::Get => DataRight::Read,
            Self::Delete => DataRight::Delete,
        }
    }
}

/// What a path stands for.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a row of a static table, which nobody copies")]
pub(crate) enum Resource {
    /// One key.
    Entity,
    /// Keys of this node.
    Range,
    /// Many keys.
    Batch,
    /// Keys of the cluster.
    Scan,
    /// What they hold, put together.
    Query,
    /// The same, by the client's code.
    Script,
    /// Where keys are.
    Layout,
    /// Something without parameters, that GET and HEAD read, POST begins and DELETE ends.
    Page { read: Option<Action>, begin: Option<Action>, end: Option<Action> },
}

/// A path: its methods, its parameters, its answers.
#[derive(Debug)]
pub struct Route {
    /// Without a query.
    pub path: &'static str,
    /// What the header `Allow` of a 405 says.
    pub allow: &'static str,
    pub(crate) target: Resource,
    /// What is there.
    pub meaning: &'static str,
    /// Of the query.
    pub parameters: &'static [Parameter],
    /// But for the errors that any path may have.
    pub answers: &'static [Answered],
}

/// A parameter of a query.
#[derive(Debug)]
pub struct Parameter {
    /// As it is written.
    pub name: &'static str,
    /// What it says, and what it is where it is not given.
    pub meaning: &'static str,
}

/// A status of a path.
#[derive(Debug)]
pub struct Answered {
    /// Those that have it, as `Allow` names them.
    pub methods: &'static str,
    /// Its code.
    pub status: u16,
    /// When, and with which body.
    pub meaning: &'static str,
}

const fn answered(methods: &'static str, status: u16, meaning: &'static str) -> Answered {
    Answered { methods, status, meaning }
}

const fn parameter(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, meaning }
}

const READ: &str = "GET, HEAD";
const BEGIN: &str = "POST";
const END: &str = "DELETE";

/// Every path. The first one is nearly all requests'.
pub static ROUTES: &[Route] = &[
    Route {
        path: "/v0/entity",
        allow: "GET, HEAD, PUT, DELETE",
        target: Resource::Entity,
        meaning: "One key and its value.",
        parameters: &[
            parameter("id", "The key: 1 to 2,048 bytes after decoding. Required."),
            parameter("ack", "How many replicas must answer. Default: a majority of `from`."),
            parameter("from", "How many replicas hold the key. Default: the setting `replication.from`."),
            parameter(
                "ttl",
                "Of a PUT: for how many seconds the value lives, 1 to 315,360,000. Default: the setting \
                 `limits.ttl_default`.",
            ),
            parameter("replicas", "The older spelling of both, `ack/from`. It excludes the newer one."),
        ],
        answers: &[
            answered("PUT", 201, "Stored by `ack` replicas. The request's body is the value, possibly empty."),
            answered("GET, HEAD", 200, "The newest version among the answers. The body is the value."),
            answered("GET, HEAD", 304, "`If-None-Match` names the newest version, or is `*`."),
            answered("DELETE", 202, "Deleted at `ack` replicas, also for a key that never existed."),
            answered("GET, HEAD", 404, "The newest version is a deletion, has expired, or no answer has the key."),
            answered("PUT", 413, "The value is over `limits.value_bytes_max`."),
            answered("PUT, DELETE", 501, "The request has a condition, and conditional writes are not supported yet."),
            answered("GET, HEAD, PUT, DELETE", 503, "The request was sent to no replica and had no effect."),
            answered(
                "GET, HEAD, PUT, DELETE",
                504,
                "Fewer than `ack` replicas answered before the deadline. A write may still take effect.",
            ),
        ],
    },
    Route {
        path: "/v0/batch",
        allow: "POST",
        target: Resource::Batch,
        meaning: "Many operations on keys, each answered as if it had been sent alone: see [batches](#batches).",
        parameters: &[
            parameter("ack", "As of an entity, for operations that say nothing."),
            parameter("from", "As of an entity, for operations that say nothing."),
        ],
        answers: &[
            answered("POST", 200, "An answer for each operation, in their order and in the form of the request."),
            answered("POST", 413, "Over 1,000 operations, or over 8 MiB."),
            answered("POST", 415, "The header `Content-Type` names another form."),
            answered("POST", 503, "No operation had an effect."),
        ],
    },
    Route {
        path: "/v0/scan",
        allow: READ,
        target: Resource::Scan,
        meaning: "Every key of a range that the cluster holds, in the order of their bytes: see [scans](#scans).",
        parameters: &[
            parameter("prefix", "Keys that begin with this; empty for all. It excludes `start` and `end`."),
            parameter("start", "The first key; not empty. Required, unless there is `prefix`."),
            parameter("end", "The first key that is left out; not empty. Default: none, to the last key."),
            parameter("limit", "Most records. Default: none."),
            parameter("values", "`0`: without values. Default: `1`."),
            parameter("ack", "As of an entity: how many replicas must answer for each key."),
            parameter("from", "As of an entity."),
            parameter("partial", "`1`: go on without partitions of which too few replicas answer. Default: `0`."),
            parameter("after", "A token of another scan of the same range, `ack` and `from`, which this one goes on."),
        ],
        answers: &[
            answered(READ, 200, "Records, marks and a trailer. Without the trailer the answer is broken."),
            answered(READ, 406, "The header `Accept` allows neither form."),
            answered(READ, 503, "As many scans are under way as there is memory for, or requests."),
            answered(READ, 504, "Too few replicas of a partition answer. Later, the trailer says so."),
        ],
    },
    Route {
        path: "/v0/query",
        allow: "POST",
        target: Resource::Query,
        meaning: "What a range of the cluster's keys holds, counted and summed where it is: see [queries](query.md).",
        parameters: &[
            parameter("ack", "As of a scan."),
            parameter("from", "As of a scan."),
            parameter("partial", "As of a scan."),
        ],
        answers: &[
            answered("POST", 200, "JSON: the groups, and the members of a scan's trailer."),
            answered("POST", 413, "The query is over 64 KiB."),
            answered("POST", 422, "Over 10,000 groups, or over 4 MiB of them."),
            answered("POST", 503, "As many scans are under way as there is memory for, or requests."),
            answered("POST", 504, "Too few replicas of a partition answer."),
        ],
    },
    Route {
        path: "/v0/script",
        allow: "POST",
        target: Resource::Script,
        meaning: "A range of the cluster's keys, mapped by a script: see [scripts](scripts.md). Off by default.",
        parameters: &[
            parameter("prefix", "As of a scan."),
            parameter("start", "As of a scan."),
            parameter("end", "As of a scan."),
            parameter("ack", "As of a scan."),
            parameter("from", "As of a scan."),
            parameter("partial", "As of a scan."),
        ],
        answers: &[
            answered("POST", 200, "A line of JSON for each pair, and the trailer of a scan."),
            answered("POST", 413, "The script is over 64 KiB."),
            answered("POST", 422, "The script has failed, or has taken more than it may."),
            answered("POST", 501, "Scripts are off."),
            answered("POST", 503, "As many scripts run as may, or scans are under way as there is memory for."),
            answered("POST", 504, "Too few replicas of a partition answer."),
        ],
    },
    Route {
        path: "/v0/entities",
        allow: READ,
        target: Resource::Range,
        meaning: "The records that this node holds, sorted by the bytes of their keys.",
        parameters: &[
            parameter("start", "The first key. Required, and not empty."),
            parameter("end", "The first key that is left out; not empty. Default: none, to the last record."),
        ],
        answers: &[
            answered(READ, 200, "One chunk for each record: the key, a newline, the value."),
            answered(READ, 503, "Too many reads wait for the disk, or there is no memory for a page."),
        ],
    },
    Route {
        path: "/v0/status",
        allow: READ,
        target: Resource::Page { read: Some(Action::Status), begin: None, end: None },
        meaning: "Whether the node answers requests, also while its peers are still starting.",
        parameters: &[],
        answers: &[
            answered(READ, 200, "It does. The body is `ok`."),
            answered(READ, 503, "The node stops, or its store takes no writes until a restart."),
        ],
    },
    Route {
        path: "/v0/cluster",
        allow: READ,
        target: Resource::Page { read: Some(Action::Cluster), begin: None, end: None },
        meaning: "The cluster as this node sees it.",
        parameters: &[],
        answers: &[answered(READ, 200, "JSON, see [the cluster's page](#the-clusters-page).")],
    },
    Route {
        path: "/v0/layout",
        allow: READ,
        target: Resource::Layout,
        meaning: "Which nodes hold which keys.",
        parameters: &[parameter("id", "A key: the answer is for it alone. Default: none, all partitions.")],
        answers: &[answered(READ, 200, "JSON, see [where keys are](#where-keys-are).")],
    },
    Route {
        path: "/v0/stats",
        allow: READ,
        target: Resource::Page { read: Some(Action::Stats), begin: None, end: None },
        meaning: "What `/metrics` has, small enough to be asked for once a second.",
        parameters: &[],
        answers: &[answered(READ, 200, "JSON, see [figures as JSON](#figures-as-json).")],
    },
    Route {
        path: "/v0/slow",
        allow: READ,
        target: Resource::Page { read: Some(Action::Slow), begin: None, end: None },
        meaning: "The last requests through this node that took at least `slow.threshold`, 128 of each shard.",
        parameters: &[],
        answers: &[answered(READ, 200, "JSON, see [slow requests](#slow-requests).")],
    },
    Route {
        path: "/v0/hot",
        allow: READ,
        target: Resource::Page { read: Some(Action::Hot), begin: None, end: None },
        meaning: "The keys and partitions that were asked for most through this node, in the last ten seconds that ended.",
        parameters: &[],
        answers: &[answered(READ, 200, "JSON, see [hot keys](#hot-keys).")],
    },
    Route {
        path: "/v0/repair",
        allow: "GET, HEAD, POST, DELETE",
        target: Resource::Page {
            read: Some(Action::Repair),
            begin: Some(Action::BeginRepair),
            end: Some(Action::EndRepair),
        },
        meaning: "Rounds of anti-entropy.",
        parameters: &[],
        answers: &[
            answered(READ, 200, "JSON, see [the page of rounds](#the-page-of-rounds)."),
            answered(BEGIN, 202, "This node will drive a round. The body is JSON: `round` is its number."),
            answered(END, 200, "JSON: `stopping` is the round that ends because this node drives it, or `null`."),
        ],
    },
    Route {
        path: "/v0/scrub",
        allow: "POST, DELETE",
        target: Resource::Page { read: None, begin: Some(Action::Scrub), end: Some(Action::EndScrub) },
        meaning: "Verification of everything that this node stores.",
        parameters: &[],
        answers: &[
            answered(BEGIN, 200, "A pass begins, or follows the one that runs. JSON: `pass` is its number."),
            answered(END, 200, "JSON: `stopping` is the number of the pass that ends, or `null`."),
        ],
    },
    Route {
        path: "/v0/backup",
        allow: BEGIN,
        target: Resource::Page { read: None, begin: Some(Action::Backup), end: None },
        meaning: "A backup of this node, in its data directory. `kvorum backup` fetches it from there.",
        parameters: &[],
        answers: &[
            answered(BEGIN, 200, "JSON: `path`, and what it is of: `cluster`, `node`, `wall_ms`, `sequence`."),
            answered(BEGIN, 503, "Another backup is being taken, the node is rebuilding, or the disk refuses."),
        ],
    },
    Route {
        path: "/v0/whoami",
        allow: READ,
        target: Resource::Page { read: Some(Action::WhoAmI), begin: None, end: None },
        meaning: "What the key of the request may do.",
        parameters: &[],
        answers: &[answered(READ, 200, "JSON, see [whose key this is](#whose-key-this-is).")],
    },
    Route {
        path: "/livez",
        allow: READ,
        target: Resource::Page { read: Some(Action::Live), begin: None, end: None },
        meaning: "Whether the process works. A supervisor restarts it where it does not.",
        parameters: &[],
        answers: &[
            answered(READ, 200, "It does. The body is `ok`."),
            answered(READ, 503, "A restart would help. `detail` says why."),
        ],
    },
    Route {
        path: "/readyz",
        allow: READ,
        target: Resource::Page { read: Some(Action::Ready), begin: None, end: None },
        meaning: "Whether a request through this node would succeed. A load balancer sends it none where not.",
        parameters: &[],
        answers: &[
            answered(READ, 200, "It would. The body is `ok`."),
            answered(READ, 503, "The node is starting, draining, or unable to write. `detail` says why."),
        ],
    },
    Route {
        path: "/metrics",
        allow: READ,
        target: Resource::Page { read: Some(Action::Metrics), begin: None, end: None },
        meaning: "Everything that the node counts: see [Metrics](metrics.md).",
        parameters: &[],
        answers: &[answered(READ, 200, "Text in the OpenMetrics format, which Prometheus reads.")],
    },
    Route {
        path: "/_peer",
        allow: READ,
        target: Resource::Page { read: Some(Action::Peer), begin: None, end: None },
        meaning: "Where peers connect. Not for clients.",
        parameters: &[],
        answers: &[
            answered("GET", 101, "The handshake is accepted, and frames follow."),
            answered(READ, 400, "The request has no `Upgrade: kvorum/4`."),
            answered("GET", 409, "The handshake is refused: `detail` says why."),
        ],
    },
];

/// Whether every request for the path is one that needs no key.
pub(crate) fn needs_nothing(path: &str) -> bool {
    let is_free = |action: &Option<Action>| action.as_ref().is_none_or(|action| action.need() == Need::Nothing);
    route(path).is_some_and(|route| match &route.target {
        Resource::Entity | Resource::Range | Resource::Batch | Resource::Scan | Resource::Query | Resource::Script => {
            false
        }
        Resource::Layout => false,
        Resource::Page { read, begin, end } => is_free(read) && is_free(begin) && is_free(end),
    })
}

/// The route of a path.
pub(crate) fn route(path: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.path == path)
}
