//! What the five reports measured, as data. Latencies in ms, rates per second; what a report does not state is none.
//!
//! Source: the reports of five implementations of the protocol in Java (2020, 2022, 2024), each loaded by wrk2.

/// When it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedRate {
    /// At what the report calls its knee.
    Knee,
    /// At this rate.
    Rate,
}

/// One line of a report.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The principal that it belongs to.
    pub scenario: &'static str,
    /// Nodes of the cluster.
    pub nodes: u8,
    /// `put`, `get` or `mixed`.
    pub workload: &'static str,
    /// When.
    pub at: PublishedRate,
    /// Asked for.
    pub rate: u64,
    /// What the report adds; empty if nothing.
    pub note: &'static str,
    /// Mean, p50, p90, p99, p99.9, max.
    pub latency_ms: [Option<f64>; 6],
}

/// Amounts on each node that a report counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// The principal that it belongs to.
    pub scenario: &'static str,
    /// What was counted.
    pub what: &'static str,
    /// On each node.
    pub per_node: &'static [f64],
}

/// Those of a scenario, in the order of its report.
pub fn figures(scenario: &str) -> impl Iterator<Item = &'static Figure> {
    FIGURES.iter().filter(move |figure| figure.scenario == scenario)
}

/// Whether the report of a scenario found a knee of this workload.
#[must_use]
pub fn has_knee(scenario: &str, workload: &str) -> bool {
    figures(scenario)
        .any(|figure| figure.at == PublishedRate::Knee && figure.workload == super::catalog::short_name(workload))
}

/// What a report counted on each node.
pub fn counted(scenario: &str) -> impl Iterator<Item = &'static Counted> {
    COUNTED.iter().filter(move |counted| counted.scenario == scenario)
}

const UNKNOWN: [Option<f64>; 6] = [None; 6];

const fn fan_out(nodes: u8, workload: &'static str, rate: u64, latency_ms: [Option<f64>; 6]) -> Figure {
    Figure { scenario: "async-fanout", nodes, workload, at: PublishedRate::Knee, rate, note: "", latency_ms }
}

const fn of_three(
    scenario: &'static str,
    workload: &'static str,
    at: PublishedRate,
    rate: u64,
    note: &'static str,
    latency_ms: [Option<f64>; 6],
) -> Figure {
    Figure { scenario, nodes: 3, workload, at, rate, note, latency_ms }
}

/// p50, p99, p99.9 and max.
const fn four(p50: f64, p99: f64, p999: f64, max: f64) -> [Option<f64>; 6] {
    [None, Some(p50), None, Some(p99), Some(p999), Some(max)]
}

const LARGER: &str = "larger-than-memory";
const GET_OF_THREE: [Option<f64>; 6] = [Some(16.9), None, Some(35.0), Some(64.2), None, Some(86.5)];

static FIGURES: &[Figure] = &[
    fan_out(1, "put", 70_000, UNKNOWN),
    fan_out(2, "put", 30_000, [Some(0.92), None, Some(1.33), None, None, Some(11.8)]),
    fan_out(3, "put", 15_000, [Some(1.23), None, Some(1.98), Some(4.25), Some(6.07), Some(9.34)]),
    fan_out(4, "put", 10_000, UNKNOWN),
    fan_out(5, "put", 10_000, UNKNOWN),
    fan_out(10, "put", 5_000, [Some(33.6), None, Some(53.5), None, None, Some(81.9)]),
    fan_out(1, "get", 100, UNKNOWN),
    fan_out(2, "get", 100, UNKNOWN),
    fan_out(3, "get", 100, GET_OF_THREE),
    fan_out(4, "get", 100, UNKNOWN),
    fan_out(5, "get", 100, UNKNOWN),
    fan_out(10, "get", 100, UNKNOWN),
    of_three(
        "sync-vs-async",
        "put",
        PublishedRate::Rate,
        2_000,
        "blocking, 532/s achieved",
        four(2.02, 3.66, 5_260.0, 10_100.0),
    ),
    of_three(
        "sync-vs-async",
        "put",
        PublishedRate::Rate,
        2_000,
        "asynchronous, 376/s achieved",
        four(2.00, 3.64, 8.32, 16.0),
    ),
    of_three(
        "sync-vs-async",
        "get",
        PublishedRate::Rate,
        2_000,
        "blocking, 2,000/s achieved",
        [None, Some(3.21), None, Some(23.4), Some(48.8), None],
    ),
    of_three(
        "sync-vs-async",
        "get",
        PublishedRate::Rate,
        2_000,
        "asynchronous, 765/s achieved",
        [None, Some(2.04), None, Some(6.80), Some(8.86), None],
    ),
    Figure {
        scenario: "sharding",
        nodes: 1,
        workload: "put",
        at: PublishedRate::Knee,
        rate: 40_000,
        note: "unsharded",
        latency_ms: UNKNOWN,
    },
    of_three(
        "sharding",
        "put",
        PublishedRate::Knee,
        10_000,
        "passing on costs 16 times a local write",
        [None, Some(13.2), None, Some(111.0), None, Some(207.0)],
    ),
    of_three(
        "sharding",
        "get",
        PublishedRate::Knee,
        10_000,
        "twice the unsharded rate",
        [None, Some(18.0), None, Some(138.0), None, Some(274.0)],
    ),
    of_three("quorum", "put", PublishedRate::Rate, 60_000, "36,567/s achieved, at 13 s of latency", UNKNOWN),
    of_three("quorum", "put", PublishedRate::Rate, 25_000, "", four(1.27, 3.20, 4.40, 8.03)),
    of_three("quorum", "put", PublishedRate::Knee, 31_500, "", four(1.63, 4.61, 8.77, 12.3)),
    of_three("quorum", "get", PublishedRate::Rate, 30_000, "9,999/s achieved", UNKNOWN),
    of_three("quorum", "get", PublishedRate::Knee, 8_000, "", four(1.60, 4.67, 6.16, 10.4)),
    of_three("quorum", "mixed", PublishedRate::Rate, 8_000, "", four(1.29, 4.27, 6.42, 16.5)),
    of_three(LARGER, "put", PublishedRate::Rate, 3_000, "", [None, Some(1.38), None, Some(1_450.0), None, None]),
    of_three(LARGER, "put", PublishedRate::Knee, 2_500, "", four(1.36, 4.69, 7.71, 15.6)),
    of_three(LARGER, "get", PublishedRate::Knee, 100, "with timeouts", [None, None, None, Some(2_000.0), None, None]),
    of_three(
        LARGER,
        "get",
        PublishedRate::Rate,
        200,
        "62 timeouts, 135 errors",
        [None, Some(185.0), None, Some(2_770.0), None, None],
    ),
];

static COUNTED: &[Counted] = &[
    Counted { scenario: "sharding", what: "tables, murmur3", per_node: &[27.0, 26.0, 29.0] },
    Counted { scenario: "sharding", what: "%, SHA-1, the attempt before", per_node: &[70.0, 30.0] },
];
