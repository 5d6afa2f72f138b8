//! The table of what graphs can show: each series with its title, its unit, how it is computed and its query.

use serde_json::{Value, json};

use crate::formula::{Formula, StatsInterval};
use crate::stats::{NodeStats, Select};

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeriesRow {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// `1/s`, `s`, `B`, `B/s`, or `1` for numbers and shares.
    pub(crate) unit: &'static str,
    pub(crate) formula: Formula,
}

const fn all(metric: &'static str) -> Select {
    Select { metric, labels: &[] }
}

const fn of(metric: &'static str, labels: &'static [(&'static str, &'static str)]) -> Select {
    Select { metric, labels }
}

const fn row(id: &'static str, title: &'static str, unit: &'static str, formula: Formula) -> SeriesRow {
    SeriesRow { id, title, unit, formula }
}

const REQUESTS: &str = "http_request_duration_seconds";
/// Requests for keys; the others are batches, scans and pages.
const KEYS: &str = "!other";

/// Requests of a method and a class.
const fn requests(labels: &'static [(&'static str, &'static str)]) -> Select {
    of(REQUESTS, labels)
}

/// Histograms of time are in microseconds.
const fn quantile(permille: u16, histogram: Select) -> Formula {
    Formula::Quantile { permille, unit: 1e-6, histogram }
}

const fn p50(id: &'static str, title: &'static str, labels: &'static [(&'static str, &'static str)]) -> SeriesRow {
    row(id, title, "s", quantile(500, requests(labels)))
}

const fn p99(id: &'static str, title: &'static str, labels: &'static [(&'static str, &'static str)]) -> SeriesRow {
    row(id, title, "s", quantile(990, requests(labels)))
}

const STATUS: &str = "http_requests_total";
const NOT_ENOUGH: &str = "coordinator_not_enough_replicas_total";
const FLUSHED: Select = all("store_flushed_bytes_total");
const COMPACTED: Select = all("store_compacted_bytes_total");
const HITS: Select = all("store_cache_hits_total");

/// All of them.
pub(crate) const SERIES: &[SeriesRow] = &[
    // Requests.
    row("gets", "GETs", "1/s", Formula::Count(requests(&[("method", "GET"), ("class", KEYS)]))),
    row("puts", "PUTs", "1/s", Formula::Count(requests(&[("method", "PUT"), ("class", KEYS)]))),
    row("deletes", "DELETEs", "1/s", Formula::Count(requests(&[("method", "DELETE"), ("class", KEYS)]))),
    row("others", "Batches, scans and pages", "1/s", Formula::Count(requests(&[("class", "other")]))),
    row("requests", "Requests", "1/s", Formula::Rate(&[all(STATUS)])),
    row("status_2xx", "Answers 2xx and 304", "1/s", Formula::Rate(&[of(STATUS, &[("status", "2..|3..")])])),
    row("status_404", "Answers 404", "1/s", Formula::Rate(&[of(STATUS, &[("status", "404")])])),
    row(
        "status_4xx",
        "Answers 4xx but 404",
        "1/s",
        Formula::Rate(&[of(STATUS, &[("status", "400|401|403|405|406|408|409|41.|42.|43.")])]),
    ),
    row("status_503", "Answers 503", "1/s", Formula::Rate(&[of(STATUS, &[("status", "503")])])),
    row("status_504", "Answers 504", "1/s", Formula::Rate(&[of(STATUS, &[("status", "504")])])),
    row("errors", "Answers 5xx", "1/s", Formula::Rate(&[of(STATUS, &[("status", "5..")])])),
    row("batch_operations", "Operations of batches", "1/s", Formula::Rate(&[all("http_batch_operations_total")])),
    row("in_flight", "Requests being served", "1", Formula::Gauge(all("http_requests_in_flight"))),
    row("connections", "Open connections", "1", Formula::Gauge(all("http_connections"))),
    row("shed", "Turned away for lack of room", "1/s", Formula::Rate(&[all("http_shed_total")])),
    // How long they take.
    p50("get_p50", "GET, p50", &[("method", "GET"), ("class", KEYS)]),
    p99("get_p99", "GET, p99", &[("method", "GET"), ("class", KEYS)]),
    p50("put_p50", "PUT, p50", &[("method", "PUT"), ("class", KEYS)]),
    p99("put_p99", "PUT, p99", &[("method", "PUT"), ("class", KEYS)]),
    p50("delete_p50", "DELETE, p50", &[("method", "DELETE"), ("class", KEYS)]),
    p99("delete_p99", "DELETE, p99", &[("method", "DELETE"), ("class", KEYS)]),
    p50("get_quorum_p50", "GET at a quorum, p50", &[("method", "GET"), ("class", "quorum")]),
    p99("get_quorum_p99", "GET at a quorum, p99", &[("method", "GET"), ("class", "quorum")]),
    p50("get_below_p50", "GET below a quorum, p50", &[("method", "GET"), ("class", "below")]),
    p99("get_below_p99", "GET below a quorum, p99", &[("method", "GET"), ("class", "below")]),
    p50("get_all_p50", "GET at all replicas, p50", &[("method", "GET"), ("class", "all")]),
    p99("get_all_p99", "GET at all replicas, p99", &[("method", "GET"), ("class", "all")]),
    p50("put_quorum_p50", "PUT at a quorum, p50", &[("method", "PUT"), ("class", "quorum")]),
    p99("put_quorum_p99", "PUT at a quorum, p99", &[("method", "PUT"), ("class", "quorum")]),
    p50("put_below_p50", "PUT below a quorum, p50", &[("method", "PUT"), ("class", "below")]),
    p99("put_below_p99", "PUT below a quorum, p99", &[("method", "PUT"), ("class", "below")]),
    p50("put_all_p50", "PUT at all replicas, p50", &[("method", "PUT"), ("class", "all")]),
    p99("put_all_p99", "PUT at all replicas, p99", &[("method", "PUT"), ("class", "all")]),
    // Consistency.
    row(
        "not_enough_reads",
        "Replicas that reads lacked",
        "1/s",
        Formula::Rate(&[of(NOT_ENOUGH, &[("operation", "read")])]),
    ),
    row(
        "not_enough_writes",
        "Replicas that writes lacked",
        "1/s",
        Formula::Rate(&[of(NOT_ENOUGH, &[("operation", "write")])]),
    ),
    row("restamps", "Writes started over", "1/s", Formula::Rate(&[all("coordinator_restamps_total")])),
    row("write_backs", "Write-backs by reads", "1/s", Formula::Rate(&[all("coordinator_write_backs_total")])),
    row("read_repairs", "Read repairs", "1/s", Formula::Rate(&[all("coordinator_read_repairs_total")])),
    row("mends", "Damaged records replaced", "1/s", Formula::Rate(&[all("coordinator_mends_total")])),
    row("hedges", "Hedged reads", "1/s", Formula::Rate(&[all("coordinator_hedges_total")])),
    row("stale_answers", "Stores refused as stale", "1/s", Formula::Rate(&[all("coordinator_stale_answers_total")])),
    row("delayed_behind", "Writes held back", "1/s", Formula::Rate(&[all("coordinator_delayed_behind_total")])),
    row("refused_behind", "Writes refused for debt", "1/s", Formula::Rate(&[all("coordinator_refused_behind_total")])),
    row("operations", "Operations under way", "1", Formula::Gauge(all("coordinator_operations"))),
    // Peers.
    row("peer_latency", "Slowest round trip to a peer", "s", Formula::Largest(all("peer_latency_seconds"))),
    row("clock_offset", "Largest clock offset", "s", Formula::Largest(all("peer_clock_offset_seconds"))),
    row("peer_connections", "Connections to peers", "1", Formula::Gauge(all("peer_connections"))),
    // Hints and repair.
    row("hints_pending", "Hints kept", "1", Formula::Gauge(all("hints_pending"))),
    row("hints_bytes", "Bytes of hints", "B", Formula::Gauge(all("hints_pending_bytes"))),
    row("hints_oldest", "Age of the oldest hint", "s", Formula::Largest(all("hints_oldest_seconds"))),
    row("hints_kept", "Hints written", "1/s", Formula::Rate(&[all("hints_kept_total")])),
    row("hints_delivered", "Hints delivered", "1/s", Formula::Rate(&[all("hints_delivered_total")])),
    row("hints_dropped", "Hints dropped", "1/s", Formula::Rate(&[all("hints_dropped_total")])),
    row(
        "watermark_age",
        "Age of the watermark",
        "s",
        Formula::Since(of("repair_watermark_seconds", &[("bound", "lowest")])),
    ),
    row("unproven", "Partitions unproven", "1", Formula::Gauge(all("repair_unproven_partitions"))),
    row("repair_copied", "Records copied by repair", "1/s", Formula::Rate(&[all("repair_copied_records_total")])),
    row("repair_scanned", "Bytes compared by repair", "B/s", Formula::Rate(&[all("repair_scanned_bytes_total")])),
    row("scrub_records", "Records verified by scrub", "1/s", Formula::Rate(&[all("scrub_records_total")])),
    row("scrub_damaged", "Records found damaged by scrub", "1/s", Formula::Rate(&[all("scrub_damaged_total")])),
    // Storage.
    row("commit_p50", "Commit, p50", "s", quantile(500, all("commit_sync_duration_seconds"))),
    row("commit_p99", "Commit, p99", "s", quantile(990, all("commit_sync_duration_seconds"))),
    row("commits", "Commits", "1/s", Formula::Rate(&[all("commit_commits_total")])),
    row("committed_records", "Records written", "1/s", Formula::Rate(&[all("commit_records_total")])),
    row("commit_queue", "Writes that wait for a commit", "1", Formula::Gauge(all("commit_queue_works"))),
    row("compaction_pending", "Bytes to compact", "B", Formula::Gauge(all("store_compaction_pending_bytes"))),
    row("level0_files", "Files of level 0", "1", Formula::Gauge(all("store_level0_files"))),
    row("memtable_bytes", "Bytes in write buffers", "B", Formula::Gauge(all("store_memtable_bytes"))),
    row(
        "stalled",
        "Share of time that commits were held back",
        "1",
        Formula::Rate(&[all("store_stall_seconds_total")]),
    ),
    row("backpressure", "How much writes shall be held back", "1", Formula::Gauge(all("store_backpressure"))),
    row("flushed", "Flushed", "B/s", Formula::Rate(&[FLUSHED])),
    row("compacted", "Compacted", "B/s", Formula::Rate(&[COMPACTED])),
    row("written", "Given to the engine", "B/s", Formula::Rate(&[all("store_written_bytes_total")])),
    row(
        "write_amplification",
        "Write amplification",
        "1",
        Formula::Share { of: &[FLUSHED, COMPACTED], in_all: &[all("store_written_bytes_total")] },
    ),
    row(
        "cache_hits",
        "Share of blocks found in the cache",
        "1",
        Formula::Share { of: &[HITS], in_all: &[HITS, all("store_cache_misses_total")] },
    ),
    row("cache_used", "Block cache", "B", Formula::Gauge(all("store_cache_used_bytes"))),
    row("record_cache_used", "Record cache", "B", Formula::Gauge(all("store_record_cache_used_bytes"))),
    row("table_bytes", "Bytes of tables", "B", Formula::Gauge(all("store_table_bytes"))),
    row("records", "Records, estimated", "1", Formula::Gauge(all("store_records"))),
    row("disk_free", "Disk free", "B", Formula::Gauge(all("store_disk_free_bytes"))),
    row("disk_total", "Size of the disk", "B", Formula::Gauge(all("store_disk_total_bytes"))),
    // The process.
    row("cpu", "Processors in use", "1", Formula::Rate(&[all("process_cpu_seconds_total")])),
    row("resident", "Resident memory", "B", Formula::Gauge(all("process_resident_memory_bytes"))),
    row("allocated", "Allocated", "B/s", Formula::Rate(&[all("allocated_bytes_total")])),
    row("read_pool_depth", "Reads that wait for a thread", "1", Formula::Gauge(all("read_pool_depth"))),
    row("voting_partitions", "Partitions that it votes for", "1", Formula::Gauge(all("node_voting_partitions"))),
];

/// Where a series is in the table.
pub(crate) fn position(id: &str) -> Option<usize> {
    SERIES.iter().position(|row| row.id == id)
}

/// The number of each series now; NaN where it is not known.
pub(crate) fn values(now: &NodeStats, interval: Option<&StatsInterval<'_>>) -> Vec<f32> {
    let interval = interval.filter(|interval| interval.is_one_run() && interval.seconds > 0.0);
    #[expect(clippy::cast_possible_truncation, reason = "seven digits are more than a graph shows")]
    let one = |row: &SeriesRow| row.formula.value(now, interval).map_or(f32::NAN, |value| value as f32);
    SERIES.iter().map(one).collect()
}

/// The table, as JSON.
pub(crate) fn table() -> Value {
    let one =
        |row: &SeriesRow| json!({ "id": row.id, "title": row.title, "unit": row.unit, "promql": row.formula.promql() });
    SERIES.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_series_has_an_id_a_title_and_a_unit_of_its_own() {
        let ids: HashSet<&str> = SERIES.iter().map(|row| row.id).collect();
        let titles: HashSet<&str> = SERIES.iter().map(|row| row.title).collect();
        assert_eq!((ids.len(), titles.len()), (SERIES.len(), SERIES.len()));
        for row in SERIES {
            assert!(row.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'));
            assert!(["1", "1/s", "s", "B", "B/s"].contains(&row.unit), "{}", row.id);
            assert_eq!(position(row.id).map(|at| SERIES[at].id), Some(row.id));
        }
    }

    #[test]
    fn a_node_that_says_little_has_numbers_where_zero_is_meant_and_none_else() {
        let stats = |uptime: u32| {
            let text = format!(r#"{{"cluster":"a","uptime_s":{uptime},"at_ms":1,"metrics":{{}}}}"#);
            NodeStats::parse(text.as_bytes()).unwrap()
        };
        let (before, now) = (stats(1), stats(2));
        let interval = StatsInterval { before: &before, now: &now, seconds: 1.0 };
        let values = values(&now, Some(&interval));
        let at = |id| values[position(id).unwrap()];
        assert_eq!((at("requests"), at("hints_pending"), at("gets")), (0.0, 0.0, 0.0));
        assert!(at("get_p99").is_nan() && at("cache_hits").is_nan() && at("watermark_age").is_nan());
    }

    #[test]
    fn the_shares_of_statuses_do_not_overlap() {
        let text = r#"{"cluster":"a","uptime_s":UP,"at_ms":1,"metrics":{"http_requests_total":
            [["GET","200",N],["GET","304",N],["GET","404",N],["GET","400",N],["PUT","503",N],["PUT","504",N]]},
            "labels":{"http_requests_total":["method","status"]}}"#;
        let stats = |up: &str, n: &str| NodeStats::parse(text.replace("UP", up).replace('N', n).as_bytes()).unwrap();
        let (before, now) = (stats("1", "0"), stats("2", "10"));
        let values = values(&now, Some(&StatsInterval { before: &before, now: &now, seconds: 1.0 }));
        let at = |id| values[position(id).unwrap()];
        assert_eq!((at("requests"), at("status_2xx"), at("status_404"), at("errors")), (60.0, 20.0, 10.0, 20.0));
        assert_eq!(at("status_4xx"), 10.0);
    }
}
