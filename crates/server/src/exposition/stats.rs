//! `/v0/stats`: the same metrics as JSON. What is zero is left out, a peer is its place in a list, and buckets are
//! numbers: a few KiB.

use std::fmt;
use std::sync::Arc;

use kvorum_base::histogram::{Snapshot, bounds};
use serde_json::{Map, Value, json};

use super::metrics;
use super::sink::{HistogramUnit, Labels, MetricSink};
use crate::view::NodeView;

/// The label whose values are places in the list of peers.
const PEER: &str = "peer";

/// The page.
#[must_use]
pub(crate) fn stats(view: &Arc<NodeView>) -> Vec<u8> {
    let membership = &view.membership;
    let peers = membership.others().into_iter().map(|node| membership.peer(node).url.to_string());
    let peers: Vec<String> = peers.collect();
    let mut page = StatsPage { peers: &peers, ..StatsPage::default() };
    metrics::process(&mut page).and_then(|()| metrics::all(&mut page, view)).expect("values take everything");
    let StatsPage { metrics, labels, histograms, .. } = page;
    let ready = view.ready();
    let page = json!({
        "node": membership.own_state().url,
        "cluster": format!("{:016x}", membership.layout().cluster()),
        "version": env!("CARGO_PKG_VERSION"),
        "commit": view.build,
        "at_ms": view.clock.wall_ms(),
        "uptime_s": view.started.elapsed().as_secs(),
        "ready": ready.is_ok(),
        "reason": ready.err(),
        "peers": peers,
        "metrics": metrics,
        "labels": labels,
        "bounds": bounds().collect::<Vec<_>>(),
        "histograms": histograms,
    });
    serde_json::to_vec(&page).expect("plain values are JSON")
}

#[derive(Default)]
struct StatsPage<'a> {
    peers: &'a [String],
    metrics: Map<String, Value>,
    labels: Map<String, Value>,
    histograms: Map<String, Value>,
}

impl StatsPage<'_> {
    fn label_values(&self, labels: &Labels) -> Vec<Value> {
        let value = |(name, value): &(&str, String)| match self.peers.iter().position(|peer| peer == value) {
            Some(place) if *name == PEER => place.into(),
            _ => value.as_str().into(),
        };
        labels.iter().map(value).collect()
    }

    fn family(&mut self, name: String, values: impl Iterator<Item = (Labels, Value)>) {
        let mut rows = Vec::new();
        for (labels, value) in values {
            if rows.is_empty() {
                self.labels.insert(name.clone(), label_names(&labels));
            }
            let mut row = self.label_values(&labels);
            row.push(value);
            rows.push(Value::Array(row));
        }
        if !rows.is_empty() {
            self.metrics.insert(name, rows.into());
        }
    }

    fn single(&mut self, name: String, value: Value) {
        if value.as_f64() != Some(0.0) {
            self.metrics.insert(name, value);
        }
    }
}

fn label_names(labels: &Labels) -> Value {
    labels.iter().map(|(name, _)| *name).collect::<Vec<_>>().into()
}

/// Whole numbers without a point.
fn number(value: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
    let whole = value as i64;
    if value.fract() == 0.0 && value.abs() < 2_f64.powi(53) { whole.into() } else { value.into() }
}

impl MetricSink for StatsPage<'_> {
    fn counter(&mut self, name: &'static str, _help: &str, value: u64) -> fmt::Result {
        self.single(format!("{name}_total"), value.into());
        Ok(())
    }

    fn seconds(&mut self, name: &'static str, _help: &str, value: f64) -> fmt::Result {
        self.single(format!("{name}_total"), number(value));
        Ok(())
    }

    fn counters(
        &mut self,
        name: &'static str,
        _help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let values = values.into_iter().filter(|(_, value)| *value > 0);
        self.family(format!("{name}_total"), values.map(|(labels, value)| (labels, value.into())));
        Ok(())
    }

    fn gauge(&mut self, name: &'static str, _help: &str, value: f64) -> fmt::Result {
        self.single(name.to_owned(), number(value));
        Ok(())
    }

    fn gauges(
        &mut self,
        name: &'static str,
        _help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let values = values.into_iter().filter(|(_, value)| *value != 0.0);
        self.family(name.to_owned(), values.map(|(labels, value)| (labels, number(value))));
        Ok(())
    }

    fn histograms(
        &mut self,
        name: &'static str,
        _help: &str,
        _unit: HistogramUnit,
        values: impl IntoIterator<Item = (Labels, Snapshot)>,
    ) -> fmt::Result {
        let (mut rows, mut names) = (Vec::new(), Value::Null);
        for (labels, snapshot) in values {
            let filled = snapshot.counts().iter().enumerate().filter(|(_, count)| **count > 0);
            let buckets: Vec<Value> = filled.map(|(bucket, count)| json!([bucket, count])).collect();
            names = label_names(&labels);
            let mut row = self.label_values(&labels);
            row.extend([snapshot.sum.into(), buckets.into()]);
            rows.push(Value::Array(row));
        }
        if !rows.is_empty() {
            self.histograms.insert(name.to_owned(), json!({ "labels": names, "values": rows }));
        }
        Ok(())
    }
}
