//! A second's figures: the difference of two pages `GET /v0/stats` of each node.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::every_node::NodeTrouble;

/// What was asked for: the methods of requests for one key, and all else together.
const KINDS: [&str; 4] = ["GET", "PUT", "DELETE", "other"];
/// The class of requests that are for no one key.
const OTHER_CLASS: &str = "other";

/// What a node said before and says now.
pub(super) struct NodePage {
    pub(super) name: String,
    pub(super) before: Option<Value>,
    pub(super) page: Result<Value, NodeTrouble>,
}

/// All nodes, at one moment.
pub(super) struct ClusterFrame {
    pub(super) at_ms: u64,
    /// What works, in words.
    pub(super) verdict: String,
    pub(super) nodes: Vec<TopNode>,
    pub(super) all: SecondStats,
}

/// One node.
pub(super) struct TopNode {
    pub(super) name: String,
    /// `up`, `not ready`, `rebuilding`, or why there are no figures.
    pub(super) state: &'static str,
    pub(super) trouble: Option<NodeTrouble>,
    /// None where it did not answer.
    pub(super) stats: Option<SecondStats>,
    /// What the other nodes keep for it, and the age of the oldest of it.
    pub(super) hints: u64,
    pub(super) hints_oldest_s: f64,
}

/// What happened between two pages. Empty before there are two.
#[derive(Default)]
pub(super) struct SecondStats {
    /// Requests a second by kind.
    pub(super) rates: BTreeMap<&'static str, f64>,
    /// Answers a second by status.
    pub(super) statuses: BTreeMap<String, f64>,
    /// How many requests of a kind took at most so many microseconds, and longer than the bucket before.
    pub(super) times: BTreeMap<&'static str, BTreeMap<u64, u64>>,
    pub(super) in_flight: f64,
    pub(super) connections: f64,
}

/// The figures of all nodes; what they mean is still to be said.
pub(super) fn cluster_frame(pages: Vec<NodePage>) -> ClusterFrame {
    let now: Vec<&Value> = pages.iter().filter_map(|node| node.page.as_ref().ok()).collect();
    let at_ms = now.iter().filter_map(|page| page.get("at_ms")?.as_u64()).max().unwrap_or_default();
    let hints = hints_for(&now);
    let mut all = SecondStats::default();
    let mut nodes = Vec::with_capacity(pages.len());
    for NodePage { name, before, page } in pages {
        let (hints, hints_oldest_s) = hints.get(&name).copied().unwrap_or_default();
        let (state, trouble, stats) = match page {
            Ok(page) => {
                let stats = second(before.as_ref(), &page);
                all.add(&stats);
                let (state, trouble) = health(&page);
                (state, trouble, Some(stats))
            }
            Err(trouble) => (trouble.state, Some(trouble), None),
        };
        nodes.push(TopNode { name, state, trouble, stats, hints, hints_oldest_s });
    }
    ClusterFrame { at_ms, verdict: String::new(), nodes, all }
}

/// Whether a node that answers takes part, and if not, why.
fn health(page: &Value) -> (&'static str, Option<NodeTrouble>) {
    if page.get("ready").and_then(Value::as_bool) == Some(false) {
        let reason = page.get("reason").and_then(Value::as_str).unwrap_or("it does not say why");
        return ("not ready", Some(NodeTrouble::new("not ready", reason)));
    }
    let votes = page.get("metrics").and_then(|metrics| metrics.get("node_votes"));
    if votes.and_then(Value::as_f64).unwrap_or_default() == 0.0 {
        let why = "its answers do not count yet: `kvorum status` says how far it is";
        return ("rebuilding", Some(NodeTrouble::new("rebuilding", why)));
    }
    ("up", None)
}

/// Values of a metric: its labels, and the number behind them. What is zero may be missing.
fn values<'a>(page: &'a Value, name: &str) -> Vec<(&'a [Value], f64)> {
    match page.get("metrics").and_then(|metrics| metrics.get(name)) {
        Some(Value::Array(rows)) => {
            let row = |row: &'a Value| {
                let (value, labels) = row.as_array()?.split_last()?;
                Some((labels, value.as_f64()?))
            };
            rows.iter().filter_map(row).collect()
        }
        Some(value) => value.as_f64().map(|value| (&[][..], value)).into_iter().collect(),
        None => Vec::new(),
    }
}

fn sum(page: &Value, name: &str) -> f64 {
    values(page, name).iter().map(|(_, value)| value).sum()
}

/// By the name of a node: how many hints all others keep for it, and the age of the oldest.
fn hints_for(pages: &[&Value]) -> BTreeMap<String, (u64, f64)> {
    let mut hints: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for page in pages {
        let peer = |labels: &[Value]| {
            let index = usize::try_from(labels.first()?.as_u64()?).ok()?;
            Some(page.get("peers")?.get(index)?.as_str()?.to_owned())
        };
        for (labels, count) in values(page, "hints_pending") {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of 53 bits")]
            let count = count.max(0.0) as u64;
            if let Some(peer) = peer(labels) {
                hints.entry(peer).or_default().0 += count;
            }
        }
        for (labels, seconds) in values(page, "hints_oldest_seconds") {
            if let Some(peer) = peer(labels) {
                let oldest = &mut hints.entry(peer).or_default().1;
                *oldest = oldest.max(seconds);
            }
        }
    }
    hints
}

/// What a node did between two of its pages; of a node that was started between them nothing is known.
fn second(before: Option<&Value>, now: &Value) -> SecondStats {
    let mut stats = SecondStats {
        in_flight: sum(now, "http_requests_in_flight"),
        connections: sum(now, "http_connections"),
        ..SecondStats::default()
    };
    let uptime = |page: &Value| page.get("uptime_s").and_then(Value::as_f64).unwrap_or_default();
    let at_ms = |page: &Value| page.get("at_ms").and_then(Value::as_f64).unwrap_or_default();
    let Some(before) = before.filter(|before| uptime(before) <= uptime(now)) else { return stats };
    let seconds = (at_ms(now) - at_ms(before)) / 1000.0;
    if seconds <= 0.0 {
        return stats;
    }
    for (page, sign) in [(now, 1.0), (before, -1.0)] {
        for (labels, value) in values(page, "http_requests_total") {
            if let Some(status) = labels.get(1).and_then(Value::as_str) {
                *stats.statuses.entry(status.to_owned()).or_default() += sign * value / seconds;
            }
        }
    }
    stats.statuses.retain(|_, rate| *rate > 0.0);
    let earlier = times(before);
    for (kind, mut counts) in times(now) {
        for (end, count) in earlier.get(kind).into_iter().flatten() {
            if let Some(now) = counts.get_mut(end) {
                *now = now.saturating_sub(*count);
            }
        }
        counts.retain(|_, count| *count > 0);
        #[expect(clippy::cast_precision_loss, reason = "of a second")]
        let count = counts.values().sum::<u64>() as f64;
        stats.rates.insert(kind, count / seconds);
        stats.times.insert(kind, counts);
    }
    stats
}

/// Counts by kind and by the greatest value of their bucket.
fn times(page: &Value) -> BTreeMap<&'static str, BTreeMap<u64, u64>> {
    let mut times: BTreeMap<&'static str, BTreeMap<u64, u64>> =
        KINDS.iter().map(|kind| (*kind, BTreeMap::new())).collect();
    let histogram = page.get("histograms").and_then(|all| all.get("http_request_duration_seconds"));
    let rows = histogram.and_then(|histogram| histogram.get("values")).and_then(Value::as_array);
    for row in rows.into_iter().flatten().filter_map(Value::as_array) {
        let [method, class, _, counts] = row.as_slice() else { continue };
        let is_of_key = class.as_str() != Some(OTHER_CLASS);
        let kind = KINDS.iter().find(|kind| is_of_key && method.as_str() == Some(kind)).unwrap_or(&OTHER_CLASS);
        for pair in counts.as_array().into_iter().flatten() {
            let number = |at: usize| pair.get(at).and_then(Value::as_u64);
            let (Some(bucket), Some(count)) = (number(0), number(1)) else { continue };
            let index = usize::try_from(bucket).unwrap_or(usize::MAX);
            let end = page.get("bounds").and_then(|bounds| bounds.get(index)).and_then(Value::as_u64);
            *times.entry(kind).or_default().entry(end.unwrap_or(u64::MAX)).or_default() += count;
        }
    }
    times
}

impl SecondStats {
    fn add(&mut self, other: &Self) {
        for (kind, rate) in &other.rates {
            *self.rates.entry(kind).or_default() += rate;
        }
        for (status, rate) in &other.statuses {
            *self.statuses.entry(status.clone()).or_default() += rate;
        }
        for (kind, counts) in &other.times {
            let sums = self.times.entry(kind).or_default();
            counts.iter().for_each(|(end, count)| *sums.entry(*end).or_default() += count);
        }
        self.in_flight += other.in_flight;
        self.connections += other.connections;
    }

    /// The milliseconds that this many of a thousand requests did not exceed, to the end of their bucket.
    pub(super) fn quantile_ms(&self, kind: &str, of_1000: u64) -> Option<f64> {
        let counts = self.times.get(kind)?;
        let total: u64 = counts.values().sum();
        let rank = (total.saturating_mul(of_1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        let (end, _) = counts.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        })?;
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a request")]
        let millis = *end as f64 / 1000.0;
        Some(millis)
    }

    fn json(&self) -> Value {
        let quantiles = |of_1000| -> BTreeMap<&str, f64> {
            let kinds = KINDS.iter().filter(|kind| **kind != OTHER_CLASS);
            kinds.filter_map(|kind| Some((*kind, self.quantile_ms(kind, of_1000)?))).collect()
        };
        let rates: BTreeMap<&str, f64> = self.rates.iter().map(|(kind, rate)| (*kind, hundredths(*rate))).collect();
        let statuses = self.statuses.iter().map(|(status, rate)| (status.as_str(), hundredths(*rate)));
        json!({"rates": rates, "statuses": statuses.collect::<BTreeMap<_, _>>(), "p50_ms": quantiles(500), "p99_ms": quantiles(990),
            "in_flight": self.in_flight, "connections": self.connections})
    }
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

impl ClusterFrame {
    /// As `-o json` has it.
    pub(super) fn json(&self) -> Value {
        let node = |node: &TopNode| {
            json!({"node": node.name, "state": node.state, "why": node.trouble.as_ref().map(|trouble| &trouble.why),
                "hints": node.hints, "hints_oldest_s": node.hints_oldest_s,
                "second": node.stats.as_ref().map(SecondStats::json)})
        };
        json!({"at_ms": self.at_ms, "verdict": self.verdict, "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "all": self.all.json()})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{NodePage, cluster_frame};
    use crate::every_node::NodeTrouble;

    /// A page two seconds of uptime after `at_ms` 0: GETs by bucket, answers by status.
    fn page(at_ms: u64, gets: &Value, statuses: &Value) -> Value {
        json!({"node": "http://a:1", "cluster": "c", "at_ms": at_ms, "uptime_s": 2 + at_ms / 1000, "ready": true,
            "peers": ["http://b:1", "http://c:1"],
            "metrics": {"node_votes": 1, "http_connections": 3, "http_requests_total": statuses,
                "hints_pending": [[1, 14203]], "hints_oldest_seconds": [[1, 40.5]]},
            "labels": {"http_requests_total": ["method", "status"]},
            "bounds": [100, 200, 400, 800],
            "histograms": {"http_request_duration_seconds": {"labels": ["method", "class"], "values": [
                ["GET", "quorum", 1, gets], ["GET", "below", 1, [[0, 10]]], ["GET", "other", 1, [[3, at_ms]]],
                ["POST", "other", 1, [[3, 5]]]]}}})
    }

    fn node(name: &str, before: Option<Value>, page: Result<Value, NodeTrouble>) -> NodePage {
        NodePage { name: name.into(), before, page }
    }

    #[test]
    fn rates_and_quantiles_are_of_what_came_between_two_pages() {
        let before = page(0, &json!([[0, 5], [3, 7]]), &json!([["GET", "200", 12]]));
        let now =
            page(2000, &json!([[0, 5], [1, 98], [2, 2], [3, 7]]), &json!([["GET", "200", 112], ["PUT", "504", 2]]));
        let frame = cluster_frame(vec![
            node("http://a:1", Some(before), Ok(now)),
            node("http://c:1", None, Err(NodeTrouble::new("silent", "no answer"))),
        ]);
        let stats = frame.nodes[0].stats.as_ref().unwrap();
        assert_eq!((stats.rates["GET"], stats.rates["PUT"], stats.rates["other"]), (50.0, 0.0, 1000.0));
        assert_eq!(
            stats.statuses.iter().map(|(status, rate)| (status.as_str(), *rate)).collect::<Vec<_>>(),
            [("200", 50.0), ("504", 1.0)]
        );
        assert_eq!((stats.quantile_ms("GET", 500), stats.quantile_ms("GET", 990)), (Some(0.2), Some(0.4)));
        assert_eq!(stats.quantile_ms("PUT", 500), None);
        assert_eq!((frame.nodes[1].hints, frame.nodes[1].hints_oldest_s), (14_203, 40.5));
        let all = frame.json();
        assert_eq!(
            (&all["at_ms"], &all["all"]["rates"]["GET"], &all["nodes"][1]["state"]),
            (&json!(2000), &json!(50.0), &json!("silent"))
        );
        assert_eq!((&all["nodes"][1]["second"], &all["nodes"][1]["why"]), (&Value::Null, &json!("no answer")));
    }

    #[test]
    fn a_node_that_was_started_anew_or_has_been_asked_once_has_no_rates() {
        let young = page(0, &json!([[0, 5]]), &json!([]));
        let old = page(9000, &json!([[0, 500]]), &json!([]));
        for before in [None, Some(old), Some(young.clone())] {
            let frame = cluster_frame(vec![node("http://a:1", before, Ok(young.clone()))]);
            assert!(frame.nodes[0].stats.as_ref().unwrap().rates.is_empty());
            assert_eq!(frame.nodes[0].state, "up");
        }
    }

    #[test]
    fn a_node_without_a_vote_or_that_is_not_ready_is_not_up() {
        let mut page = page(0, &json!([]), &json!([]));
        page["metrics"]["node_votes"] = Value::Null;
        assert_eq!(cluster_frame(vec![node("a", None, Ok(page.clone()))]).nodes[0].state, "rebuilding");
        page["ready"] = json!(false);
        page["reason"] = json!("it drains");
        let frame = cluster_frame(vec![node("a", None, Ok(page)), node("b", None, Ok(json!({})))]);
        assert_eq!(frame.nodes[0].state, "not ready");
        assert_eq!(frame.nodes[0].trouble.as_ref().unwrap().why, "it drains");
    }
}
