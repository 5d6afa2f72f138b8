//! `/metrics`. All names but those of the process begin with `kvorum_`; the encoder appends `_total` to counters.

use std::fmt;
use std::sync::Arc;

use kvorum_base::histogram::{Snapshot, bounds};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::metrics;
use super::sink::{HistogramUnit, Labels, MetricSink, float, seconds};
use crate::view::NodeView;

/// Times are shown from here on in buckets of a quarter of an octave: 64 µs.
const TIME_MIN: u64 = 1 << 6;
/// Up to here: 16.8 s.
const TIME_MAX: u64 = 1 << 24;
/// Numbers are shown in buckets of an octave, up to here.
const COUNT_MAX: u64 = 1 << 16;

/// The page.
#[must_use]
pub(crate) fn text(view: &Arc<NodeView>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ProcessCollector));
    registry.sub_registry_with_prefix("kvorum").register_collector(Box::new(NodeCollector(view.clone())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string takes all text");
    text
}

struct NodeCollector(Arc<NodeView>);

impl fmt::Debug for NodeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeCollector")
    }
}

impl Collector for NodeCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        metrics::all(&mut MetricsPage(encoder), &self.0)
    }
}

#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        metrics::process(&mut MetricsPage(encoder))
    }
}

struct MetricsPage<'a>(DescriptorEncoder<'a>);

impl MetricsPage<'_> {
    fn encode(&mut self, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
        metric.encode(self.0.encode_descriptor(name, help, None, metric.metric_type())?)
    }
}

impl MetricSink for MetricsPage<'_> {
    fn counter(&mut self, name: &'static str, help: &str, value: u64) -> fmt::Result {
        self.encode(name, help, &ConstCounter::new(value))
    }

    fn seconds(&mut self, name: &'static str, help: &str, value: f64) -> fmt::Result {
        self.encode(name, help, &ConstCounter::new(value))
    }

    fn counters(
        &mut self,
        name: &'static str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let metric_type = ConstCounter::new(0_u64).metric_type();
        let mut encoder = self.0.encode_descriptor(name, help, None, metric_type)?;
        for (labels, value) in values {
            ConstCounter::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &'static str, help: &str, value: f64) -> fmt::Result {
        self.encode(name, help, &ConstGauge::new(value))
    }

    fn gauges(
        &mut self,
        name: &'static str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let metric_type = ConstGauge::new(0.0).metric_type();
        let mut encoder = self.0.encode_descriptor(name, help, None, metric_type)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn histograms(
        &mut self,
        name: &'static str,
        help: &str,
        unit: HistogramUnit,
        values: impl IntoIterator<Item = (Labels, Snapshot)>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, snapshot) in values {
            let (sum, count) = (in_unit(snapshot.sum, unit), snapshot.count());
            let buckets = shown_buckets(&snapshot, unit);
            if labels.is_empty() {
                encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            } else {
                encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }
}

fn in_unit(value: u64, unit: HistogramUnit) -> f64 {
    match unit {
        HistogramUnit::Micros => seconds(value),
        HistogramUnit::Count => float(value),
    }
}

/// The ends of the buckets that Prometheus is shown, and what each of them holds.
fn shown_buckets(snapshot: &Snapshot, unit: HistogramUnit) -> Vec<(f64, u64)> {
    let is_shown = |end: u64| match unit {
        HistogramUnit::Micros => (TIME_MIN..=TIME_MAX).contains(&end),
        HistogramUnit::Count => end.is_power_of_two() && end <= COUNT_MAX,
    };
    let mut buckets = Vec::new();
    let mut held = 0;
    for (end, count) in bounds().zip(snapshot.counts()) {
        held += count;
        if is_shown(end) {
            buckets.push((in_unit(end, unit), held));
            held = 0;
        }
    }
    buckets.push((f64::INFINITY, held));
    buckets
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kvorum_base::histogram::Histogram;

    use super::super::sink::HistogramUnit;
    use super::shown_buckets;

    #[test]
    fn buckets_of_times_end_at_clean_numbers_from_64_microseconds_to_16_seconds() {
        let histogram = Histogram::default();
        [1, 64, 65, 80, 81, 20_000_000].into_iter().for_each(|micros| histogram.record(micros));
        let buckets = shown_buckets(&histogram.snapshot(), HistogramUnit::Micros);
        let texts: Vec<String> = buckets.iter().map(|(end, count)| format!("{end} {count}")).collect();
        assert_eq!(texts.get(..4).unwrap(), ["0.000064 2", "0.00008 2", "0.000096 1", "0.000112 0"]);
        assert_eq!((buckets.len(), texts.last().unwrap().as_str()), (18 * 4 + 2, "inf 1"));
    }

    #[test]
    fn buckets_of_numbers_end_at_powers_of_two() {
        let histogram = Histogram::default();
        [1, 2, 3, 9, 1_000_000].into_iter().for_each(|count| histogram.record(count));
        let buckets = shown_buckets(&histogram.snapshot(), HistogramUnit::Count);
        let filled: Vec<(f64, u64)> = buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(1.0, 1), (2.0, 1), (4.0, 1), (16.0, 1), (f64::INFINITY, 1)]);
    }
}
