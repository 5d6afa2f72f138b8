//! The table of settings: the one place with their names, defaults and bounds.

use std::path::PathBuf;
use std::time::Duration;

use kvorum_core::quorum::NODES_MAX;

use super::model::Config;
use super::values::Count;
use super::values::{
    AuditedData, DurabilitySetting, GIB, KIB, LogFormat, LogLevel, MIB, MetricsReaders, ReadFanout, address, by_node,
    choice, cluster, count, duration, host_names, loopback, node_url, origins, percent, size, zone,
};

/// One thing that can be configured.
pub struct Setting {
    /// In the file; in the environment in capitals, after `KVORUM_`, with `_` for the dot.
    pub name: &'static str,
    /// As it would be written in the file.
    pub default: &'static str,
    /// What the value bounds, and when to change it: shown by `serve --help` and docs/reference/settings.md.
    pub doc: &'static str,
    /// Takes the value; the error is what is allowed.
    pub(super) set: fn(&mut Config, &str) -> Result<(), String>,
}

impl Setting {
    /// Its environment variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("KVORUM_{}", self.name.replace('.', "_").to_ascii_uppercase())
    }

    /// What it takes: what is said of a value that it does not take.
    #[must_use]
    pub fn allowed(&self) -> String {
        let refused = |text: &str| (self.set)(&mut Config::blank(), text).err();
        // A list may be empty, and a path be anything else.
        refused("\u{7f}").or_else(|| refused("")).unwrap_or_default()
    }
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const TEN_YEARS: Duration = Duration::from_secs(315_360_000);
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// All settings, in the order in which they are shown.
pub static SETTINGS: &[Setting] = &[
    Setting {
        name: "listen",
        default: "127.0.0.1:8080",
        doc: "Where clients and peers connect to. Beyond this machine the node takes it only with `auth.file` and, in a \
              cluster, `peer.secret_file`, or with `insecure`.",
        set: |c, text| address(text).map(|value| c.listen = value),
    },
    Setting {
        name: "insecure",
        default: "false",
        doc: "Whether the node listens beyond this machine although whoever reaches its port may do everything. For a \
              network that only its operators reach.",
        set: |c, text| boolean(text).map(|value| c.is_insecure = value),
    },
    Setting {
        name: "cluster",
        default: "",
        doc: "The URLs of all nodes, the same on every node; empty: this node alone. Of the first start: a later \
              difference counts for nothing, and is logged.",
        set: |c, text| cluster(text, NODES_MAX).map(|value| c.named.cluster = value),
    },
    Setting {
        name: "advertise",
        default: "",
        doc: "This node's own URL in `cluster`; empty: found there by `listen`. Set it where peers reach the node by \
              another address.",
        set: |c, text| optional(text, "", node_url).map(|value| c.named.advertise = value),
    },
    Setting {
        name: "data_dir",
        default: "./kvorum-data",
        doc: "Where this node keeps what it stores. One node at a time may use it.",
        set: |c, text| {
            let path = Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty());
            path.map(|path| c.data_dir = path).ok_or_else(|| "the path of a directory".into())
        },
    },
    Setting {
        name: "durability",
        default: "fsync",
        doc: "When a write counts as stored: `fsync` survives the machine, `os` only the process. With `os` a node \
              whose machine stopped is rebuilt.",
        set: |c, text| {
            choice(text, &[("fsync", DurabilitySetting::Fsync), ("os", DurabilitySetting::Os)])
                .map(|value| c.durability = value)
        },
    },
    Setting {
        name: "memory_bytes",
        default: "512MiB",
        doc: "Memory that caches, write buffers and queues share. More of it keeps more records from the disk.",
        set: |c, text| size(text, 64 * MIB, 1024 * GIB).map(|value| c.memory_bytes = value),
    },
    Setting {
        name: "runtime.shards",
        default: "cores",
        doc: "Threads that serve connections; `cores`: one per core. Fewer leave cores to others on the machine.",
        set: |c, text| {
            let value = optional(text, "cores", |text| count(text, 1, 256));
            value.map(|value| c.runtime.shards = value.unwrap_or_else(cores))
        },
    },
    Setting {
        name: "runtime.read_threads",
        default: "4",
        doc: "Threads for reads that need the disk. More of them help where the disk serves many reads at once.",
        set: |c, text| count(text, 1, 256).map(|value| c.runtime.read_threads = value),
    },
    Setting {
        name: "runtime.background_cpu_percent",
        default: "2",
        doc: "The least share, of a hundred, that flushes and compactions each have of as many cores as there are \
              shards, and of one at most, while requests arrive. Scans have a quarter of it, copies of repair half, \
              hints a part of `hints.rate`. Raise it where debt grows or rounds take too long.",
        set: |c, text| count(text, 1, 100).map(|value| c.runtime.background_cpu_percent = value),
    },
    Setting {
        name: "replication.from",
        default: "all",
        doc: "Copies of a key where the request does not say; `all`: one on every node. Lower it, to 3 say, on larger \
              clusters: no node then needs room for everything. Of the first start: later the layout's number counts.",
        set: |c, text| optional(text, "all", |text| count(text, 1, 128)).map(|value| c.named.from = value),
    },
    Setting {
        name: "layout.zones",
        default: "",
        doc: "URL=ZONE,…: replicas of a key go to different zones first. The same on every node at the first \
              start; a later difference counts for nothing, and is logged.",
        set: |c, text| {
            let allowed = "a list of URL=ZONE, such as http://10.0.0.1:8080=north";
            by_node(text, allowed, zone).map(|value| c.named.zones = value)
        },
    },
    Setting {
        name: "layout.weights",
        default: "",
        doc: "URL=WEIGHT,…: a node's share of the data, 1 where not given. The same on every node at the \
              first start; a later difference counts for nothing, and is logged.",
        set: |c, text| {
            let allowed = "a list of URL=WEIGHT from 1 to 1000, such as http://10.0.0.1:8080=2";
            by_node(text, allowed, |text| count(text, 1, 1000)).map(|value| c.named.weights = value)
        },
    },
    Setting {
        name: "coordinator.read_fanout",
        default: "hedged",
        doc: "Which replicas a read asks: `hedged`: the fastest first; `all`: all at once, which costs the nodes more.",
        set: |c, text| {
            let words = [("hedged", ReadFanout::Hedged), ("all", ReadFanout::All)];
            choice(text, &words).map(|value| c.coordinator.read_fanout = value)
        },
    },
    Setting {
        name: "coordinator.deadline",
        default: "5s",
        doc: "For a whole request, both attempts of a write included; over it: 504. The same on every node. Raise it \
              where round trips between nodes are long.",
        set: |c, text| duration(text, ms(10), MINUTE).map(|value| c.coordinator.deadline = value),
    },
    Setting {
        name: "coordinator.hedge_budget_percent",
        default: "5",
        doc: "Reads that may be hedged because a replica is slow, of a hundred; 0: none. Raise it where reads are slow \
              now and then and the nodes have processors to spare.",
        set: |c, text| percent(text).map(|value| c.coordinator.hedge_budget = value),
    },
    Setting {
        name: "coordinator.requests_max",
        default: "4096",
        doc: "Requests in flight, per shard, from their last byte on; over it a request waits up to 30 ms for room, \
              then: 503. Lower it to refuse sooner under overload.",
        set: |c, text| count(text, 1, 1 << 20).map(|value| c.coordinator.requests_max = value),
    },
    Setting {
        name: "coordinator.request_bytes_max",
        default: "auto",
        doc: "Bytes of large values that the node holds, over all shards: bodies that arrive, records that are read, \
              sent or streamed; over it: 503. Values up to 4 KiB do not count. `auto`: by memory_bytes. Raise it, and \
              memory_bytes, for many large values at once.",
        set: |c, text| {
            optional(text, "auto", |text| size(text, 64 * KIB, 64 * GIB)).map(|value| c.named.request_bytes_max = value)
        },
    },
    Setting {
        name: "clock.skew_max",
        default: "60s",
        doc: "Farthest that this node's clock may be from most of its peers'; over it the node fences itself. Raise it \
              only where clocks cannot be kept closer: a timestamp may be as far ahead.",
        set: |c, text| duration(text, SECOND, HOUR).map(|value| c.clock_skew_max = value),
    },
    Setting {
        name: "limits.value_bytes_max",
        default: "8MiB",
        doc: "Longest value; over it: 413. Raise it with memory_bytes, which holds such values while they are on their \
              way.",
        set: |c, text| size(text, 1, 256 * MIB).map(|value| c.limits.value_bytes_max = value),
    },
    Setting {
        name: "limits.ttl_default",
        default: "off",
        doc: "For how long a value lives where its PUT has no `ttl`, in whole seconds; `off`: without end. Set it where \
              all that is stored is a cache.",
        set: |c, text| optional(text, "off", whole_seconds).map(|value| c.limits.ttl_default = value),
    },
    Setting {
        name: "limits.request_read_timeout",
        default: "10s",
        doc: "For a request's head, and then its body, to arrive; over it: 408. Raise it for large values over slow \
              links.",
        set: |c, text| duration(text, ms(10), HOUR).map(|value| c.limits.request_read_timeout = value),
    },
    Setting {
        name: "limits.idle_timeout",
        default: "60s",
        doc: "For the next request on a connection; over it the connection is closed. Keep it above the idle time of a \
              load balancer in front.",
        set: |c, text| duration(text, ms(10), HOUR).map(|value| c.limits.idle_timeout = value),
    },
    Setting {
        name: "limits.write_timeout",
        default: "30s",
        doc: "For a client to take any of an answer that waits for it; over it the connection is closed. Raise it for \
              readers of ranges that pause.",
        set: |c, text| duration(text, ms(10), HOUR).map(|value| c.limits.write_timeout = value),
    },
    Setting {
        name: "limits.answer_rate_min",
        default: "16KiB",
        doc: "Bytes a second that a client has to take of what waits for it, over 30 s; under it the connection is \
              closed, because a large value stays in memory until it is taken. 0: any. Lower it for clients with slow \
              links.",
        set: |c, text| size(text, 0, GIB).map(|value| c.limits.answer_rate_min = value),
    },
    Setting {
        name: "limits.connections_max",
        default: "10000",
        doc: "Connections of clients, per shard; over it: 503. Raise it with the limit of open files.",
        set: |c, text| count(text, 1, 1 << 20).map(|value| c.limits.connections_max = value),
    },
    Setting {
        name: "limits.connections_per_address",
        default: "auto",
        doc: "Connections of one address, over all shards, programs of this machine excepted; over it: 503. `auto`: a \
              quarter of all that `limits.connections_max` allows. Raise it where all clients come through one proxy.",
        set: |c, text| {
            let value = optional(text, "auto", |text| count(text, 1, 1 << 20));
            value.map(|value| c.limits.connections_per_address = value)
        },
    },
    Setting {
        name: "limits.scan_page_bytes",
        default: "256KiB",
        doc: "What a range reads at once. Larger pages are faster, and each open range holds one.",
        set: |c, text| size(text, 4 * KIB, 16 * MIB).map(|value| c.limits.scan_page_bytes = value),
    },
    Setting {
        name: "auth.file",
        default: "",
        doc: "The TOML file of clients' keys and roles. Only its owner may read it. It is read anew within 5 s of a change, \
              and at SIGHUP; `kvorum key new` adds a key; empty: clients need none.",
        set: |c, text| optional(text, "", file).map(|value| c.auth.file = value),
    },
    Setting {
        name: "auth.metrics",
        default: "granted",
        doc: "Who may read /metrics where there is a file of keys: `granted`: those whose role has `metrics`; `open`: all. \
              Open it for a Prometheus that sends no key.",
        set: |c, text| {
            let words = [("granted", MetricsReaders::Granted), ("open", MetricsReaders::All)];
            choice(text, &words).map(|value| c.auth.metrics = value)
        },
    },
    Setting {
        name: "audit.file",
        default: "",
        doc: "Where refusals, orders of operators and changes of keys are written, a line of JSON each; empty: nowhere. It is \
              opened anew at SIGHUP.",
        set: |c, text| optional(text, "", file).map(|value| c.audit.file = value),
    },
    Setting {
        name: "audit.data",
        default: "denied",
        doc: "Which requests for data are written there: `none`, `denied`: those that were refused, `writes`: and those that \
              write, `all`. More of them cost a line each.",
        set: |c, text| {
            let words = [
                ("none", AuditedData::None),
                ("denied", AuditedData::Denied),
                ("writes", AuditedData::Writes),
                ("all", AuditedData::All),
            ];
            choice(text, &words).map(|value| c.audit.data = value)
        },
    },
    Setting {
        name: "audit.secret_file",
        default: "",
        doc: "The file with the secret under which names of keys stand in the audit, 64 hexadecimal digits; empty: they do not \
              stand there. Whoever has it can look for a key in the audit.",
        set: |c, text| optional(text, "", file).map(|value| c.audit.secret_file = value),
    },
    Setting {
        name: "audit.strict",
        default: "false",
        doc: "Whether requests are refused with 503 while more lines wait than may, 8,192, instead of being left out and \
              counted.",
        set: |c, text| boolean(text).map(|value| c.audit.is_strict = value),
    },
    Setting {
        name: "http.allowed_hosts",
        default: "auto",
        doc: "Names by which clients may reach the node, in `Host`, without ports; any other: 421, since a web page may \
              have made it point here. `auto`: the hosts of all nodes' URLs, `localhost`, and every IP address. Add the \
              name of a proxy: `auto,kvorum.example.com`.",
        set: |c, text| host_names(text).map(|value| c.http.allowed_hosts = value),
    },
    Setting {
        name: "http.allowed_origins",
        default: "",
        doc: "Origins of web pages that may use the node from a browser, such as https://console.example.com; pages of \
              any other: 403. The node's own origin always may.",
        set: |c, text| origins(text).map(|value| c.http.allowed_origins = value),
    },
    Setting {
        name: "peer.connect_timeout",
        default: "1s",
        doc: "For a connection to a peer and its handshake. Raise it where round trips take more than some 100 ms.",
        set: |c, text| duration(text, ms(10), MINUTE).map(|value| c.peer.connect_timeout = value),
    },
    Setting {
        name: "peer.reconnect_delay_max",
        default: "1s",
        doc: "Longest pause between two attempts to connect to a peer. Lower it to be sooner back after a partition.",
        set: |c, text| duration(text, ms(10), MINUTE).map(|value| c.peer.reconnect_delay_max = value),
    },
    Setting {
        name: "peer.queue_bytes_max",
        default: "auto",
        doc: "Small frames that may wait to be sent, per connection of each shard to and from each peer; over it the \
              replica counts as failed. Large values count as request_bytes_max instead. `auto`: by memory_bytes.",
        set: |c, text| {
            let value = optional(text, "auto", |text| size(text, 64 * KIB, 64 * GIB));
            value.map(|value| c.named.peer_queue_bytes_max = value)
        },
    },
    Setting {
        name: "peer.links_max",
        default: "257",
        doc: "Connections of each peer to this node; over it they are closed. A peer has one for each of its shards, and \
              one. Raise it where peers have more than 256 shards.",
        set: |c, text| count(text, 1, 1 << 16).map(|value| c.peer.links_max = value),
    },
    Setting {
        name: "peer.secret_file",
        default: "",
        doc: "The file with the cluster's secret, which peers have to prove that they have: one line of 64 hexadecimal \
              digits, or two while it is changed. Only its owner may read it. `kvorum secret new` writes one; empty: peers \
              prove nothing.",
        set: |c, text| optional(text, "", file).map(|value| c.peer.secret_file = value),
    },
    Setting {
        name: "peer.secret_optional",
        default: "false",
        doc: "Whether a peer without the secret is taken all the same. For the first of the two rolling restarts that \
              introduce a secret.",
        set: |c, text| boolean(text).map(|value| c.peer.secret_optional = value),
    },
    Setting {
        name: "commit.queue_records_max",
        default: "65536",
        doc: "Writes that wait for the commit thread; over it this replica refuses them. Lower it where they should be \
              refused sooner than a slow disk takes them.",
        set: |c, text| count(text, 1, 1 << 24).map(|value| c.commit.queue_records_max = value),
    },
    Setting {
        name: "commit.queue_bytes_max",
        default: "auto",
        doc: "Bytes of the writes that wait for the commit thread; over it this replica refuses them. `auto`: by \
              memory_bytes.",
        set: |c, text| {
            let value = optional(text, "auto", |text| size(text, 64 * KIB, 64 * GIB));
            value.map(|value| c.named.commit_queue_bytes_max = value)
        },
    },
    Setting {
        name: "commit.recent_versions_max",
        default: "auto",
        doc: "Accepted versions remembered, to distinguish late from stale answers. `auto`: by memory_bytes. Raise it \
              where kvorum_commit_unsure is 1.",
        set: |c, text| {
            let value = optional(text, "auto", |text| count(text, 1024, 1 << 28));
            value.map(|value| c.named.recent_versions_max = value)
        },
    },
    Setting {
        name: "hints.bytes_max",
        default: "1GiB",
        doc: "Bytes of writes that are kept, on disk, for each node that did not confirm them; over it the oldest are \
              dropped; 0: none are kept. Raise it for longer absences: what is dropped waits for a round of \
              anti-entropy.",
        set: |c, text| size(text, 0, 1024 * GIB).map(|value| c.hints.bytes_max = value),
    },
    Setting {
        name: "hints.age_max",
        default: "24h",
        doc: "How long hints are kept. Raise it, and hints.bytes_max, for longer absences.",
        set: |c, text| duration(text, MINUTE, MONTH).map(|value| c.hints.age_max = value),
    },
    Setting {
        name: "hints.rate",
        default: "32MiB",
        doc: "Bytes a second in which hints are delivered, to each node that is back, each hint counted as 512 bytes \
              more. Fewer while that makes the node slow. While requests arrive, `runtime.background_cpu_percent` of \
              it for each shard.",
        set: |c, text| size(text, 64 * KIB, 64 * GIB).map(|value| c.hints.rate = value),
    },
    Setting {
        name: "scan.memory_bytes",
        default: "auto",
        doc: "Bytes that scans over the cluster, queries and scripts through this node hold; over it: 503. Each holds two \
              pages of every node. `auto`: by memory_bytes. Raise it, and memory_bytes, for many of them at once.",
        set: |c, text| {
            optional(text, "auto", |text| size(text, MIB, 64 * GIB)).map(|value| c.named.scan_memory_bytes = value)
        },
    },
    Setting {
        name: "scan.rate",
        default: "0",
        doc: "Bytes a second that this node reads for scans over the cluster, queries and scripts; 0: as many as requests \
              leave it. Set it where the disk has other work.",
        set: |c, text| optional(text, "0", |text| size(text, 64 * KIB, 64 * GIB)).map(|value| c.scan.rate = value),
    },
    Setting {
        name: "scripts.enabled",
        default: "false",
        doc: "Whether clients with the right `read` may have scripts run here, each in a process of its own: two at once, \
              which take 64 MiB each beyond memory_bytes. The same on all nodes.",
        set: |c, text| boolean(text).map(|value| c.has_scripts = value),
    },
    Setting {
        name: "scrub.rate",
        default: "1MiB",
        doc: "Bytes a second that a node reads to verify what it stores; 0: only when `kvorum scrub` asks. Raise it \
              where a pass over all data should take less time.",
        set: |c, text| size(text, 0, GIB).map(|value| c.scrub_rate = value),
    },
    Setting {
        name: "slow.threshold",
        default: "100ms",
        doc: "From how long on a request is kept for `kvorum slow`, 128 of each shard. Lower it to see what usual requests \
              wait for.",
        set: |c, text| duration(text, ms(1), HOUR).map(|value| c.slow_threshold = value),
    },
    Setting {
        name: "repair.interval",
        default: "10m",
        doc: "From the end of one round of anti-entropy to the begin of the next. Deletions are dropped after a round \
              with all nodes. Raise it where a round reads much and little differs.",
        set: |c, text| duration(text, SECOND, 24 * HOUR).map(|value| c.repair.interval = value),
    },
    Setting {
        name: "repair.rate",
        default: "32MiB",
        doc: "Bytes a second that anti-entropy reads from this node's disk, and that it copies where it drives a \
              round. Raise it where rounds or rebuilding take too long.",
        set: |c, text| size(text, 64 * KIB, GIB * 16).map(|value| c.repair.rate = value),
    },
    Setting {
        name: "log.format",
        default: "auto",
        doc: "`text`, `json`, or `auto`: text on a terminal, JSON otherwise.",
        set: |c, text| {
            let words = [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
            choice(text, &words).map(|value| c.log.format = value)
        },
    },
    Setting {
        name: "log.level",
        default: "info",
        doc: "The least important line that is written.",
        set: |c, text| {
            let words = [
                ("error", LogLevel::Error),
                ("warn", LogLevel::Warn),
                ("info", LogLevel::Info),
                ("debug", LogLevel::Debug),
                ("trace", LogLevel::Trace),
            ];
            choice(text, &words).map(|value| c.log.level = value)
        },
    },
    Setting {
        name: "admin.listen",
        default: "",
        doc: "Where profiles are taken and the console has pages, on the loopback interface only; empty: nowhere.",
        set: |c, text| optional(text, "", loopback).map(|value| c.admin_listen = value),
    },
];

/// A path, not looked at.
fn file(text: &str) -> Result<PathBuf, String> {
    let path = Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty() && !text.contains('\u{7f}'));
    path.ok_or_else(|| "the path of a file".into())
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    let allowed = || "a duration of whole seconds from 1s to 87600h".to_owned();
    duration(text, SECOND, TEN_YEARS).ok().filter(|ttl| ttl.subsec_nanos() == 0).ok_or_else(allowed)
}

fn boolean(text: &str) -> Result<bool, String> {
    choice(text, &[("true", true), ("false", false)])
}

/// None where the text is the word for the default.
fn optional<T>(text: &str, none: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == none {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|allowed| if none.is_empty() { allowed } else { format!("`{none}` or {allowed}") })
}

fn cores() -> Count {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(256);
    count(&cores.to_string(), 1, 256).expect("the number of cores was bounded")
}
