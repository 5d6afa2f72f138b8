//! What each of the five is.

use std::time::Duration;

use crate::knee::Effort;

/// What a rate must meet to be a knee.
pub const OBJECTIVE_P99_MS: f64 = 50.0;

/// One of the five.
#[derive(Debug)]
pub struct Scenario {
    /// As on the command line.
    pub name: &'static str,
    /// What the report measured.
    pub title: &'static str,
    /// What is done otherwise here, in sentences.
    pub about: &'static str,
    /// With how much the report measured, for how long and over what, as far as it states that.
    pub published: &'static str,
    /// Of the runs of the report: those that stand beside them take as long. Of several, the longest.
    pub published_duration: Duration,
    /// One after the other.
    pub groups: &'static [Group],
}

/// Clusters that run at the same time, and what is done with them.
#[derive(Debug)]
pub struct Group {
    /// One, or two that are compared.
    pub clusters: &'static [Cluster],
    /// Copies of a key, where not one on every node.
    pub from: Option<u8>,
    /// Of the generator, to the coordinator.
    pub connections: usize,
    /// What is written first.
    pub data: Data,
    /// In order.
    pub stages: &'static [Stage],
}

/// Nodes with their settings.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// Names it in reports and directories.
    pub name: &'static str,
    /// How many.
    pub nodes: u8,
    /// Variables of their environment.
    pub settings: &'static [(&'static str, &'static str)],
}

/// What is written first.
#[derive(Clone, Copy, Debug)]
pub enum Data {
    /// So many keys as [`Scale`] says, each with 100 bytes.
    Keys,
    /// Values of 1,000 bytes, several times the memory that each node may use.
    Memory {
        /// Of each node, by its control group.
        limit_bytes: u64,
    },
}

/// What is done with the clusters of a group.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// On each of them: the knee, runs at it, at half of it and at the report's rates, and profiles of the coordinator
    /// at the first two.
    Knee {
        /// As on the command line.
        workload: &'static str,
    },
    /// The second against the first, in turns.
    Compare {
        /// As on the command line.
        workload: &'static str,
        /// Requests a second.
        rate: u64,
    },
}

const MIXED: &str = "mixed:put=50,get=50";

const fn knee(workload: &'static str) -> Stage {
    Stage::Knee { workload }
}

/// The knees that every scenario has somewhere.
const ALL_KNEES: &[Stage] = &[knee("put"), knee("get"), knee(MIXED)];
const PUT_AND_GET: &[Stage] = &[knee("put"), knee("get")];

const fn cluster(name: &'static str, nodes: u8) -> Cluster {
    Cluster { name, nodes, settings: &[] }
}

/// As in the reports.
const CONNECTIONS: usize = 64;
/// Of the generator.
pub const THREADS: usize = 1;

const fn group(clusters: &'static [Cluster], stages: &'static [Stage]) -> Group {
    Group { clusters, from: None, connections: CONNECTIONS, data: Data::Keys, stages }
}

const MANY_CONNECTIONS: Cluster =
    Cluster { name: "3-nodes-256", nodes: 3, settings: &[("KVORUM_RUNTIME_SHARDS", "2")] };
const LITTLE_MEMORY: &[(&str, &str)] = &[("KVORUM_MEMORY_BYTES", "64MiB"), ("KVORUM_SCRUB_RATE", "0")];

/// All of them, in the order in which `all` runs them.
pub static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "async-fanout",
        title: "Asynchronous fan-out over 1, 2, 3, 4, 5 and 10 nodes",
        about: "ack/from are the defaults, as in the report: 1/1, 2/2, 2/3, 3/4, 3/5, 6/10. All nodes share one \
                machine with the generator, so more nodes share the same processors. There are 64 connections, and \
                each node has its share of the cores as shards, at least one; `3-nodes-256` has 256, and two shards \
                in each node, as a node on two cores has by default.",
        published: "GET of 1.2 GB on each node, runs of 30 s, 64 connections",
        published_duration: Duration::from_secs(30),
        groups: &[
            group(&[cluster("1-node", 1)], PUT_AND_GET),
            group(&[cluster("2-nodes", 2)], PUT_AND_GET),
            group(&[cluster("3-nodes", 3)], ALL_KNEES),
            Group { connections: 256, ..group(&[MANY_CONNECTIONS], PUT_AND_GET) },
            group(&[cluster("4-nodes", 4)], PUT_AND_GET),
            group(&[cluster("5-nodes", 5)], PUT_AND_GET),
            group(&[cluster("10-nodes", 10)], PUT_AND_GET),
        ],
    },
    Scenario {
        name: "sync-vs-async",
        title: "Two ways of waiting, compared percentile by percentile at 2,000/s",
        about: "The report compared a blocking with an asynchronous client between nodes. kvorum has no blocking one; \
                its own two choices are compared: `durability=fsync` against `os` under PUT, and `read_fanout=all` \
                against `hedged` under GET. Both clusters of a pair run at the same time, and take turns.",
        published: "data of a size that is not told, runs of 5 minutes, 64 connections",
        published_duration: Duration::from_secs(300),
        groups: &[
            group(
                &[
                    Cluster { name: "fsync", nodes: 3, settings: &[("KVORUM_DURABILITY", "fsync")] },
                    Cluster { name: "os", nodes: 3, settings: &[("KVORUM_DURABILITY", "os")] },
                ],
                &[Stage::Compare { workload: "put", rate: 2_000 }, knee("put"), knee(MIXED)],
            ),
            group(
                &[
                    Cluster { name: "all", nodes: 3, settings: &[("KVORUM_COORDINATOR_READ_FANOUT", "all")] },
                    Cluster { name: "hedged", nodes: 3, settings: &[("KVORUM_COORDINATOR_READ_FANOUT", "hedged")] },
                ],
                &[Stage::Compare { workload: "get", rate: 2_000 }, knee("get")],
            ),
        ],
    },
    Scenario {
        name: "sharding",
        title: "One copy of each key on three nodes",
        about: "Every request goes to one coordinator, which passes two of three on. Evenness is counted in records \
                and bytes per node.",
        published: "one copy of 500 MB, runs of 1 minute, 64 connections of 1 thread",
        published_duration: Duration::from_secs(60),
        groups: &[Group { from: Some(1), ..group(&[cluster("3-nodes", 3)], ALL_KNEES) }],
    },
    Scenario {
        name: "quorum",
        title: "Three nodes in separate processes, 2/3",
        about: "",
        published: "517 MB on each node and 1.92 GB for the mix, runs of 1 minute, 64 connections of 4 threads",
        published_duration: Duration::from_secs(60),
        groups: &[group(&[cluster("3-nodes", 3)], ALL_KNEES)],
    },
    Scenario {
        name: "larger-than-memory",
        title: "Three replicas with more data than memory",
        about: "The report's nodes shared 6 GB of memory, and each had 4 GB of data. Here each node may use a limit of \
                its own, which the kernel enforces and which the pages that it caches of files count towards. Scrub is \
                off, so that blocks are counted that requests need.",
        published: "4 GB on each of three nodes, which share 6 GB of memory and 4 cores, runs of 10 to 20 s, 64 \
                    connections of 64 threads",
        published_duration: Duration::from_secs(20),
        groups: &[Group {
            data: Data::Memory { limit_bytes: 192 << 20 },
            ..group(
                &[Cluster { name: "3-nodes", nodes: 3, settings: LITTLE_MEMORY }],
                &[knee("get"), knee("put"), knee(MIXED)],
            )
        }],
    },
];

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Of the runs that decide: confirmations of searches, from which probes follow, and those of comparisons.
    pub duration: Duration,
    /// Before it.
    pub warmup: Duration,
    /// How thoroughly knees are searched for.
    pub effort: Effort,
    /// Runs of each side of a comparison.
    pub pairs: usize,
    /// Of each profile.
    pub profile_seconds: u64,
    /// Keys, where data is not measured in memory.
    pub keys: u64,
    /// Data in multiples of each node's memory, where it is.
    pub memory_times: u64,
    /// For compaction to catch up with a fill, at most.
    pub settle_max: Duration,
    /// Whether this is to show that it works, and not to be quoted.
    pub is_quick: bool,
}

impl Scale {
    /// Of the runs that stand beside published figures: as long as those, or in a try as all others.
    #[must_use]
    pub fn counted(&self, scenario: &Scenario) -> Duration {
        if self.is_quick { self.duration } else { scenario.published_duration }
    }

    /// Of a measurement: `duration` of each run that decides, 5 s if none is given.
    #[must_use]
    pub fn full(duration: Option<Duration>) -> Self {
        let duration = duration.unwrap_or(Duration::from_secs(5));
        Self {
            duration,
            warmup: Duration::from_millis(500).min(duration),
            effort: Effort::Brief,
            pairs: 8,
            profile_seconds: (duration.as_secs() * 4 / 5).clamp(1, 30),
            keys: 200_000,
            memory_times: 4,
            settle_max: Duration::from_secs(60),
            is_quick: false,
        }
    }

    /// Of a try: all five in five minutes on two cores.
    #[must_use]
    pub fn quick(duration: Option<Duration>) -> Self {
        let duration = duration.unwrap_or(Duration::from_millis(250));
        Self {
            duration,
            warmup: Duration::from_millis(50).min(duration),
            effort: Effort::Rough,
            profile_seconds: 1,
            keys: 10_000,
            memory_times: 1,
            settle_max: Duration::from_secs(10),
            is_quick: true,
            ..Self::full(None)
        }
    }
}

impl Data {
    /// Keys, and the bytes of each value.
    #[must_use]
    pub fn keys_and_value_bytes(self, scale: &Scale) -> (u64, u64) {
        match self {
            Self::Keys => (scale.keys, 100),
            Self::Memory { limit_bytes } => (limit_bytes * scale.memory_times / 1_000, 1_000),
        }
    }
}

/// `put`, `get` or `mixed`: a workload without its shares.
#[must_use]
pub fn short_name(workload: &str) -> &str {
    workload.split(':').next().unwrap_or(workload)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SCENARIOS, Scale, Stage, short_name};
    use crate::scenario::published;
    use crate::workload::Workload;

    #[test]
    fn what_stands_beside_a_published_figure_takes_as_long_and_a_try_does_not() {
        let full = Scale::full(Some(Duration::from_secs(7)));
        let seconds = SCENARIOS.iter().map(|scenario| full.counted(scenario).as_secs()).collect::<Vec<_>>();
        assert_eq!(seconds, [30, 300, 60, 60, 20]);
        assert_eq!(full.duration.as_secs(), 7, "searches and pairs");
        let quick = Scale::quick(None);
        assert!(SCENARIOS.iter().all(|scenario| quick.counted(scenario) == quick.duration));
    }

    #[test]
    fn every_scenario_finds_knees_and_has_published_figures() {
        for scenario in SCENARIOS {
            let stages: Vec<&Stage> = scenario.groups.iter().flat_map(|group| group.stages).collect();
            for wanted in ["put", "get", "mixed"] {
                let is_found =
                    |stage: &Stage| matches!(stage, Stage::Knee { workload } if short_name(workload) == wanted);
                assert!(stages.iter().any(|stage| is_found(stage)), "{}: no knee of {wanted}", scenario.name);
            }
            for stage in &stages {
                let (Stage::Knee { workload } | Stage::Compare { workload, .. }) = stage;
                assert!(workload.parse::<Workload>().is_ok(), "{workload}");
            }
            assert!(published::figures(scenario.name).next().is_some(), "{}", scenario.name);
            for group in scenario.groups {
                let compares = group.stages.iter().any(|stage| matches!(stage, Stage::Compare { .. }));
                assert_eq!(group.clusters.len(), if compares { 2 } else { 1 }, "{}", scenario.name);
            }
        }
        let nodes: Vec<u8> = SCENARIOS[0].groups.iter().map(|group| group.clusters[0].nodes).collect();
        assert_eq!(nodes, [1, 2, 3, 3, 4, 5, 10]);
    }
}
