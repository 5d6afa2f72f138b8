//! The one table of alerts: Prometheus' rules, their tests and `alerts.md` are written from it.

use std::fmt::Write;
use std::process::Command;

use crate::{code, hold, hold_file, table};

/// Who is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Somebody, now.
    Page,
    /// Somebody, in working hours.
    Ticket,
}

impl Severity {
    fn name(self) -> &'static str {
        if self == Self::Page { "page" } else { "ticket" }
    }
}

/// Something that an operator is told.
pub(crate) struct Alert {
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    /// What is looked at: it has data on a cluster that runs.
    pub(crate) value: &'static str,
    /// What is wrong of it.
    pub(crate) condition: &'static str,
    /// For how long that has to be so.
    pub(crate) hold: &'static str,
    /// What it means.
    pub(crate) why: &'static str,
    /// The page of `docs/how-to` that says what to do.
    pub(crate) page: &'static str,
    /// A metric in trouble, and one that is well, as values a minute apart: `promtool test rules` has the notation. ` | `
    /// is between the values of several metrics, ` or ` between cases.
    pub(crate) samples: (&'static str, &'static str, &'static str),
}

impl Alert {
    pub(crate) fn expression(&self) -> String {
        format!("{} {}", self.value, self.condition)
    }
}

use Severity::{Page, Ticket};

/// All of them, the most urgent first.
#[rustfmt::skip]
pub(crate) const ALERTS: &[Alert] = &[
    Alert { name: "KvorumNodeDown", severity: Page, value: "up{job=\"kvorum\"}", condition: "== 0", hold: "1m",
        why: "Prometheus cannot read the node. One node less for every quorum: with a second one away, requests fail.",
        page: "node-is-down", samples: ("up{job=\"kvorum\"}", "0x20", "1x20") },
    Alert { name: "KvorumNoVote", severity: Page, value: "kvorum_node_votes", condition: "== 0", hold: "1m",
        why: "The node has lost data, and its answers do not count until it is rebuilt.",
        page: "node-is-rebuilding", samples: ("kvorum_node_votes", "0x20", "1x20") },
    Alert { name: "KvorumStorePoisoned", severity: Page, value: "kvorum_store_state{state=\"poisoned\"}", condition: "== 1", hold: "0m",
        why: "A write to the log failed. The node takes no writes until a restart; look at the disk first.",
        page: "disk-fails", samples: ("kvorum_store_state{state=\"poisoned\"}", "1x20", "0x20") },
    Alert { name: "KvorumDiskFull", severity: Page, value: "kvorum_store_state{state=\"disk-full\"}", condition: "== 1", hold: "0m",
        why: "The node takes no writes until there is space.",
        page: "disk-is-full", samples: ("kvorum_store_state{state=\"disk-full\"}", "1x20", "0x20") },
    Alert { name: "KvorumDiskFillsUp", severity: Page,
        value: "predict_linear(kvorum_store_disk_free_bytes[1h], 14400)", condition: "< 0", hold: "15m",
        why: "At the rate of the last hour the disk is full within four hours.",
        page: "disk-is-full", samples: ("kvorum_store_disk_free_bytes", "1000000-10000x90", "1000000x90") },
    Alert { name: "KvorumFenced", severity: Page, value: "kvorum_node_fenced", condition: "== 1", hold: "0m",
        why: "The node's clock is too far from most peers': it refuses requests.",
        page: "clock-jumps", samples: ("kvorum_node_fenced", "1x20", "0x20") },
    Alert { name: "KvorumNotEnoughReplicas", severity: Page,
        value: "sum by (operation, cause, peer) (rate(kvorum_coordinator_not_enough_replicas_total[5m]))", condition: "> 0", hold: "1m",
        why: "Clients get 504. The labels say which peer did not answer, and why.",
        page: "node-is-down", samples: ("kvorum_coordinator_not_enough_replicas_total{operation=\"write\",cause=\"unreachable\",peer=\"http://c:8080\"}", "0+1x20", "7x20") },
    Alert { name: "KvorumWritesHeldBack", severity: Page,
        value: "rate(kvorum_coordinator_refused_behind_total[5m]) + rate(kvorum_coordinator_delayed_behind_total[5m])", condition: "> 0", hold: "5m",
        why: "More is written than the disks can merge. Clients wait, or get 503.",
        page: "size-a-node", samples: ("kvorum_coordinator_refused_behind_total | kvorum_coordinator_delayed_behind_total", "0+10x20", "5x20") },
    Alert { name: "KvorumInsecure", severity: Page, value: "kvorum_insecure", condition: "== 1", hold: "5m",
        why: "The node is on a network without keys, or without a secret between nodes.",
        page: "put-it-on-a-network", samples: ("kvorum_insecure", "1x20", "0x20") },
    Alert { name: "KvorumDefect", severity: Page, value: "increase(kvorum_http_defects_total[15m])", condition: "> 0", hold: "0m",
        why: "A request ran into a defect: report it, with the log's line.",
        page: "monitor", samples: ("kvorum_http_defects_total", "0x5 1x10", "3x20") },
    Alert { name: "KvorumPeerAway", severity: Ticket, value: "kvorum_peer_connections", condition: "== 0", hold: "5m",
        why: "A node has no connection to a peer.",
        page: "node-is-down", samples: ("kvorum_peer_connections{peer=\"http://c:8080\"}", "0x20", "4x20") },
    Alert { name: "KvorumHintsOld", severity: Ticket, value: "kvorum_hints_oldest_seconds", condition: "> 3600", hold: "5m",
        why: "Writes have been kept for a peer for over an hour. After hints.age_max they are dropped, and a round of anti-entropy brings them.",
        page: "node-is-down", samples: ("kvorum_hints_oldest_seconds{peer=\"http://c:8080\"}", "4000x20", "60x20") },
    Alert { name: "KvorumHintsDropped", severity: Ticket, value: "sum by (instance, reason) (increase(kvorum_hints_dropped_total[15m]))", condition: "> 0", hold: "0m",
        why: "A peer will not get these writes as hints: the next round of anti-entropy brings them.",
        page: "node-is-down", samples: ("kvorum_hints_dropped_total{reason=\"age\"}", "0+5x20", "9x20") },
    Alert { name: "KvorumRepairBehind", severity: Ticket,
        value: "time() - (kvorum_repair_watermark_seconds{bound=\"lowest\"} > 0)", condition: "> 21600", hold: "0m",
        why: "For six hours no round of anti-entropy has proven all partitions: a node is away, or cannot be scanned. Deletions pile up.",
        page: "run-a-repair-round", samples: ("kvorum_repair_watermark_seconds{bound=\"lowest\"}", "60x400", "60+60x400 or 0x400") },
    Alert { name: "KvorumNeverProven", severity: Ticket, value: "kvorum_repair_unproven_partitions", condition: "> 0", hold: "6h",
        why: "For six hours there have been partitions that the last proof left out, or that no round has proven yet. Deletions pile up there.",
        page: "run-a-repair-round", samples: ("kvorum_repair_unproven_partitions", "4096x400", "0x400 or 4096x300 0x100") },
    Alert { name: "KvorumUnscannable", severity: Ticket, value: "kvorum_repair_unscannable", condition: "== 1", hold: "0m",
        why: "A damaged block keeps the node out of rounds of anti-entropy.",
        page: "node-cannot-be-scanned", samples: ("kvorum_repair_unscannable", "1x20", "0x20") },
    Alert { name: "KvorumDamage", severity: Ticket,
        value: "increase(kvorum_repair_damaged_records_total[1h]) + increase(kvorum_store_corrupt_reads_total[1h]) + increase(kvorum_coordinator_corrupt_answers_total[1h]) + increase(kvorum_store_damaged_compactions_total[1h])",
        condition: "> 0", hold: "0m",
        why: "A disk or memory flips bits. What another replica has was given back.",
        page: "damaged-record", samples: ("kvorum_repair_damaged_records_total | kvorum_store_corrupt_reads_total | kvorum_coordinator_corrupt_answers_total | kvorum_store_damaged_compactions_total", "0x5 1x10", "2x20") },
    Alert { name: "KvorumClockOffset", severity: Ticket, value: "abs(kvorum_peer_clock_offset_seconds)", condition: "> 1", hold: "5m",
        why: "Clocks of two nodes are over a second apart: NTP does not work.",
        page: "clock-jumps", samples: ("kvorum_peer_clock_offset_seconds{peer=\"http://c:8080\"}", "-3x20", "0.01x20") },
    Alert { name: "KvorumSlowCommits", severity: Ticket,
        value: "histogram_quantile(0.99, sum by (instance, le) (rate(kvorum_commit_sync_duration_seconds_bucket[5m])))", condition: "> 0.1", hold: "10m",
        why: "One commit in a hundred takes over 100 ms. Every write waits for it: the disk, mostly.",
        page: "disk-fails", samples: ("kvorum_commit_sync_duration_seconds_bucket{le=\"0.016384\"} | kvorum_commit_sync_duration_seconds_bucket{le=\"0.131072\"} | kvorum_commit_sync_duration_seconds_bucket{le=\"+Inf\"}",
            "0x30 | 0x30 | 0+10x30", "0+10x30 | 0+10x30 | 0+10x30") },
    Alert { name: "KvorumCompactionBehind", severity: Ticket, value: "kvorum_store_level0_files", condition: ">= 48", hold: "5m",
        why: "Compaction cannot follow the writes: from 48 files on they are slowed down, at 96 they stop.",
        page: "size-a-node", samples: ("kvorum_store_level0_files", "60x20", "4x20") },
    Alert { name: "KvorumOverloaded", severity: Ticket, value: "rate(kvorum_http_shed_total[5m]) + rate(kvorum_read_pool_refused_total[5m])", condition: "> 0", hold: "5m",
        why: "Clients get 503 for lack of room.",
        page: "requests-are-slow", samples: ("kvorum_http_shed_total | kvorum_read_pool_refused_total", "0+10x20", "5x20") },
    Alert { name: "KvorumReadsSlow", severity: Ticket, value: "rate(kvorum_coordinator_hedges_denied_total[5m])", condition: "> 1", hold: "10m",
        why: "Reads would ask more replicas, and the budget does not allow it: replicas are slow, and not only one.",
        page: "requests-are-slow", samples: ("kvorum_coordinator_hedges_denied_total", "0+600x30", "0+6x30") },
    Alert { name: "KvorumReplicasDiffer", severity: Ticket, value: "rate(kvorum_coordinator_write_backs_total[15m])", condition: "> 10", hold: "30m",
        why: "Reads bring many keys to a majority: a node misses writes, or keys are read with a larger from than they were written with.",
        page: "run-a-repair-round", samples: ("kvorum_coordinator_write_backs_total", "0+6000x60", "0+6x60") },
    Alert { name: "KvorumKeysReloadFailed", severity: Ticket, value: "increase(kvorum_auth_failed_reloads_total[1h])", condition: "> 0", hold: "0m",
        why: "A changed file of keys is not in force. The log names its line.",
        page: "put-it-on-a-network", samples: ("kvorum_auth_failed_reloads_total", "0x5 1x10", "1x20") },
    Alert { name: "KvorumWrongKeys", severity: Ticket, value: "rate(kvorum_auth_unauthorized_total[15m])", condition: "> 1", hold: "15m",
        why: "Many requests have no key that is accepted: a client has a revoked one, or somebody tries some.",
        page: "put-it-on-a-network", samples: ("kvorum_auth_unauthorized_total", "0+600x60", "0+1x60") },
    Alert { name: "KvorumAuditGaps", severity: Ticket, value: "increase(kvorum_audit_left_out_total[1h]) + increase(kvorum_audit_failed_total[1h])", condition: "> 0", hold: "0m",
        why: "The audit lacks lines: its disk is slow or full.",
        page: "disk-is-full", samples: ("kvorum_audit_left_out_total | kvorum_audit_failed_total", "0x5 1x10", "2x20") },
    Alert { name: "KvorumUnsure", severity: Ticket, value: "kvorum_commit_unsure", condition: "== 1", hold: "15m",
        why: "commit.recent_versions_max is too small for the rate of writes.",
        page: "size-a-node", samples: ("kvorum_commit_unsure", "1x30", "0x30") },
    Alert { name: "KvorumStrangers", severity: Ticket,
        value: "increase(kvorum_peer_strangers_total[15m]) + on (instance) sum by (instance) (increase(kvorum_peer_refusals_total[15m]) + increase(kvorum_peer_protocol_errors_total[15m]))",
        condition: "> 0", hold: "15m",
        why: "Handshakes are refused, or connections broken for what came over them: wrong settings, or foreign traffic.",
        page: "monitor", samples: ("kvorum_peer_strangers_total | kvorum_peer_refusals_total | kvorum_peer_protocol_errors_total", "0+1x40", "4x40") },
];

/// A text of YAML, which JSON's are.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn rules() -> String {
    let mut text = String::from(
        "# Alerts for kvorum, written from the table in crates/kvorum/tests/reference/alerts.rs:\n\
         #   RECORD=1 cargo test --release -p kvorum --test reference\n\
         # The job that scrapes the nodes is called kvorum.\ngroups:\n  - name: kvorum\n    rules:\n",
    );
    for alert in ALERTS {
        let Alert { name, severity, hold, why, page, .. } = alert;
        let expression = quoted(&alert.expression());
        let (severity, why, page) = (severity.name(), quoted(why), quoted(&format!("docs/how-to/{page}.md")));
        write!(
            text,
            "      - alert: {name}\n        expr: {expression}\n        for: {hold}\n        labels:\n          severity: {severity}\n        \
             annotations:\n          summary: {why}\n          page: {page}\n"
        )
        .unwrap();
    }
    text
}

/// A case of `promtool test rules`: these samples of the alert's metrics, and whether it fires.
fn case(alert: &Alert, samples: &str, fires: bool) -> String {
    let mut text = String::from("  - interval: 1m\n    input_series:\n");
    let names: Vec<&str> = alert.samples.0.split(" | ").collect();
    let values: Vec<&str> = samples.split(" | ").collect();
    for (index, name) in names.iter().enumerate() {
        let instance = match name.strip_suffix('}') {
            Some(begin) => format!("{begin},instance=\"a:8080\"}}"),
            None => format!("{name}{{instance=\"a:8080\"}}"),
        };
        let values = quoted(values.get(index).unwrap_or(&values[0]));
        writeln!(text, "      - series: {}\n        values: {values}", quoted(&instance)).unwrap();
    }
    let counts = values[0].split(' ').filter_map(|part| part.rsplit('x').next()?.parse::<u32>().ok());
    let at: u32 = counts.sum();
    let firing = quoted(&format!("count(ALERTS{{alertname=\"{}\",alertstate=\"firing\"}})", alert.name));
    let expected = if fires { "\n          - labels: '{}'\n            value: 1" } else { " []" };
    writeln!(
        text,
        "    promql_expr_test:\n      - expr: {firing}\n        eval_time: {at}m\n        exp_samples:{expected}"
    )
    .unwrap();
    text
}

fn rule_tests() -> String {
    let mut text = String::from(
        "# Each alert fires for what it is about, and not for what is well.\nrule_files: [kvorum.rules.yml]\n",
    );
    text += "evaluation_interval: 1m\ntests:\n";
    for alert in ALERTS {
        text += &case(alert, alert.samples.1, true);
        alert.samples.2.split(" or ").for_each(|well| text += &case(alert, well, false));
    }
    text
}

#[test]
fn alerts_and_their_rules() {
    let rows = |severity: Severity| {
        let alerts = ALERTS.iter().filter(move |alert| alert.severity == severity);
        alerts.map(|alert| {
            let page = format!("[{0}](../how-to/{0}.md)", alert.page);
            [code(alert.name), code(&alert.expression()), alert.hold.to_owned(), alert.why.to_owned(), page]
        })
    };
    let head = ["alert", "condition", "for", "what it means", "what to do"];
    hold("alerts.md", &[("page", table(head, rows(Page))), ("ticket", table(head, rows(Ticket)))]);
    hold_file("contrib/prometheus/kvorum.rules.yml", &rules());
    hold_file("contrib/prometheus/kvorum.rules.test.yml", &rule_tests());
}

#[test]
fn each_alert_fires_for_what_it_is_about_and_not_for_what_is_well() {
    let promtool = Command::new("promtool").arg("--version").output();
    if promtool.is_err() {
        eprintln!("SKIPPED: promtool is missing (Debian: prometheus); the rules are not tested here");
        return;
    }
    let tested = Command::new("promtool")
        .args(["test", "rules", "kvorum.rules.test.yml"])
        .current_dir(crate::root().join("contrib/prometheus"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&tested.stdout).into_owned() + &String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{text}");
}
