//! How a number on a graph comes from two answers of `/v0/stats`, and the same as a query of Prometheus.
//!
//! Both are made from one value, so that a page's number and its query cannot mean different things.

use crate::stats::{NodeStats, Select, matches};

/// Prometheus needs two scrapes in it; `kvorum.rules.yml` scrapes every 15 seconds.
const WINDOW: &str = "[1m]";

/// What a series is of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Formula {
    /// The sum of gauges.
    Gauge(Select),
    /// The gauge that is farthest from zero, without its sign.
    Largest(Select),
    /// How many seconds the node's clock is behind, or ahead of, a gauge that is a time; none while that is zero.
    Since(Select),
    /// What counters grow by in a second, together.
    Rate(&'static [Select]),
    /// What some counters grow by, over what others do; none while those stand.
    Share { of: &'static [Select], in_all: &'static [Select] },
    /// How many values a histogram takes in a second.
    Count(Select),
    /// A quantile, in thousandths, of what a histogram has taken; its unit is so much of the series'.
    Quantile { permille: u16, unit: f64, histogram: Select },
}

/// What is between two answers.
pub(crate) struct StatsInterval<'a> {
    pub(crate) before: &'a NodeStats,
    pub(crate) now: &'a NodeStats,
    /// By the collector's clock, which nobody sets.
    pub(crate) seconds: f64,
}

impl StatsInterval<'_> {
    /// Whether the node has not been started anew in between: its counters begin at zero then.
    pub(crate) fn is_one_run(&self) -> bool {
        // Uptimes are whole seconds, and answers take a while.
        const TOLERANCE: f64 = 2.5;
        let (before, now) = (self.before.uptime_s(), self.now.uptime_s());
        now >= before && now + TOLERANCE >= before + self.seconds
    }
}

impl Formula {
    /// Its number now. `interval`: what has passed since the answer before, if that was of the same run of the node.
    /// None where it is not known, which is another thing than zero.
    pub(crate) fn value(&self, now: &NodeStats, interval: Option<&StatsInterval<'_>>) -> Option<f64> {
        match self {
            Self::Gauge(select) => Some(now.values(*select).iter().sum()),
            Self::Largest(select) => Some(now.values(*select).iter().fold(0.0, |most, value| value.abs().max(most))),
            Self::Since(select) => {
                let at = now.values(*select).first().copied().filter(|at| *at > 0.0)?;
                Some(now.at_s() - at)
            }
            Self::Rate(selects) => Some(growth(interval?, selects)? / interval?.seconds),
            Self::Share { of, in_all } => {
                let all = growth(interval?, in_all)?;
                if all > 0.0 { Some(growth(interval?, of)? / all) } else { None }
            }
            Self::Count(select) => Some(taken(interval?, *select)?.iter().sum::<f64>() / interval?.seconds),
            Self::Quantile { permille, unit, histogram } => {
                let counts = taken(interval?, *histogram)?;
                Some(quantile(f64::from(*permille) / 1000.0, &now.bounds(), &counts)? * unit)
            }
        }
    }

    /// The query that shows the same in Prometheus, one line for each node.
    pub(crate) fn promql(&self) -> String {
        match self {
            Self::Gauge(select) => format!("sum by (instance) ({})", selector(*select, "")),
            Self::Largest(select) => format!("max by (instance) (abs({}))", selector(*select, "")),
            // Zero is that it has not been yet.
            Self::Since(select) => format!("time() - ({} > 0)", selector(*select, "")),
            Self::Rate(selects) => rates(selects),
            Self::Share { of, in_all } => format!("({}) / ({})", rates(of), rates(in_all)),
            Self::Count(select) => format!("sum by (instance) (rate({}{WINDOW}))", selector(*select, "_count")),
            Self::Quantile { permille, histogram, .. } => format!(
                "histogram_quantile({}, sum by (instance, le) (rate({}{WINDOW})))",
                f64::from(*permille) / 1000.0,
                selector(*histogram, "_bucket")
            ),
        }
    }

    /// Whether a minute shows its worst second, not its mean: of quantiles there is no mean.
    pub(crate) fn is_worst_of_minute(&self) -> bool {
        matches!(self, Self::Quantile { .. })
    }
}

/// What the counters have grown by. None where one has fallen: the node was started anew, however that went unnoticed.
fn growth(interval: &StatsInterval<'_>, selects: &[Select]) -> Option<f64> {
    let one = |select: &Select| {
        let sum = |stats: &NodeStats| stats.values(*select).iter().sum::<f64>();
        let grown = sum(interval.now) - sum(interval.before);
        (grown >= 0.0).then_some(grown)
    };
    selects.iter().map(one).sum()
}

/// What the histogram has taken, by bucket. None where one has fallen.
fn taken(interval: &StatsInterval<'_>, select: Select) -> Option<Vec<f64>> {
    let (before, now) = (interval.before.buckets(select), interval.now.buckets(select));
    if before.len() != now.len() {
        return None;
    }
    let one = |(now, before): (&f64, &f64)| (now >= before).then_some(now - before);
    now.iter().zip(&before).map(one).collect()
}

/// A quantile of what is in buckets, linear within one as Prometheus has it; none of nothing. What is over the last
/// bound counts as at it.
pub(crate) fn quantile(share: f64, bounds: &[f64], counts: &[f64]) -> Option<f64> {
    let total: f64 = counts.iter().sum();
    if total <= 0.0 {
        return None;
    }
    let rank = share * total;
    let mut below = 0.0;
    let mut lower = 0.0;
    for (upper, count) in bounds.iter().zip(counts) {
        if *count > 0.0 && below + count >= rank {
            return Some(lower + (upper - lower) * ((rank - below) / count).clamp(0.0, 1.0));
        }
        below += count;
        lower = *upper;
    }
    bounds.last().copied()
}

fn rates(selects: &[Select]) -> String {
    let one = |select: &Select| format!("sum by (instance) (rate({}{WINDOW}))", selector(*select, ""));
    selects.iter().map(one).collect::<Vec<_>>().join(" + ")
}

fn selector(select: Select, end: &str) -> String {
    let prefix = if select.metric.starts_with("process_") { "" } else { "kvorum_" };
    let labels: Vec<String> = select.labels.iter().map(|(name, wanted)| matcher(name, wanted)).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    format!("{prefix}{}{end}{labels}", select.metric)
}

fn matcher(name: &str, wanted: &str) -> String {
    let (is_not, pattern) = wanted.strip_prefix('!').map_or(("", wanted), |pattern| ("!", pattern));
    debug_assert!(matches(pattern, pattern.split('|').next().unwrap_or_default()), "a pattern of ours");
    match (is_not, pattern.contains(['.', '|'])) {
        ("", false) => format!("{name}=\"{pattern}\""),
        ("", true) => format!("{name}=~\"{pattern}\""),
        (_, false) => format!("{name}!=\"{pattern}\""),
        (_, true) => format!("{name}!~\"{pattern}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HITS: Select = Select { metric: "hits_total", labels: &[] };
    const MISSES: Select = Select { metric: "misses_total", labels: &[] };
    const TIMES: Select = Select { metric: "times", labels: &[("class", "!other")] };

    fn stats(uptime_s: u32, hits: u32, misses: u32, buckets: &str) -> NodeStats {
        let text = format!(
            r#"{{"cluster":"a","uptime_s":{uptime_s},"at_ms":10000,
                "metrics":{{"hits_total":{hits},"misses_total":{misses},"at":4,"offset":[[0,-3],[1,2]]}},
                "labels":{{"offset":["peer"]}},"bounds":[100,200,400],
                "histograms":{{"times":{{"labels":["class"],"values":[["quorum",0,{buckets}],["other",0,[[0,99]]]]}}}}}}"#
        );
        NodeStats::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_rate_is_what_counters_grow_by_in_a_second() {
        let (before, now) = (stats(10, 100, 10, "[]"), stats(12, 140, 10, "[]"));
        let interval = StatsInterval { before: &before, now: &now, seconds: 2.0 };
        assert!(interval.is_one_run());
        assert_eq!(Formula::Rate(&[HITS]).value(&now, Some(&interval)), Some(20.0));
        assert_eq!(Formula::Rate(&[HITS, MISSES]).value(&now, Some(&interval)), Some(20.0));
        let share = Formula::Share { of: &[HITS], in_all: &[HITS, MISSES] };
        assert_eq!(share.value(&now, Some(&interval)), Some(1.0));
        let nothing = Formula::Share { of: &[HITS], in_all: &[MISSES] };
        assert_eq!(nothing.value(&now, Some(&interval)), None, "of nothing there is no share");
        assert_eq!(Formula::Rate(&[HITS]).value(&now, None), None, "the first answer has no rate");
    }

    #[test]
    fn a_node_that_is_started_anew_has_no_negative_rate() {
        let (before, now) = (stats(500, 1000, 0, "[[0,50]]"), stats(1, 3, 0, "[[0,2]]"));
        let interval = StatsInterval { before: &before, now: &now, seconds: 1.0 };
        assert!(!interval.is_one_run(), "its uptime has fallen");
        for formula in [Formula::Rate(&[HITS]), Formula::Count(TIMES)] {
            assert_eq!(formula.value(&now, Some(&interval)), None, "{formula:?}");
        }
        let (before, now) = (stats(2, 1000, 0, "[]"), stats(5, 2000, 0, "[]"));
        let away = StatsInterval { before: &before, now: &now, seconds: 60.0 };
        assert!(!away.is_one_run(), "it was away, and its uptime is too short for that time");
        let paused = stats(62, 2000, 0, "[]");
        assert!(StatsInterval { before: &before, now: &paused, seconds: 60.0 }.is_one_run());
    }

    #[test]
    fn a_quantile_is_of_what_came_in_between() {
        let (before, now) = (stats(1, 0, 0, "[[0,1000]]"), stats(2, 0, 0, "[[0,1010],[1,89],[2,1]]"));
        let interval = StatsInterval { before: &before, now: &now, seconds: 1.0 };
        let quantile =
            |permille| Formula::Quantile { permille, unit: 1e-6, histogram: TIMES }.value(&now, Some(&interval));
        let near = |value: Option<f64>, micros: f64| (value.unwrap() * 1e6 - micros).abs() < 1e-6;
        assert!(near(quantile(100), 100.0) && near(quantile(990), 200.0) && near(quantile(1000), 400.0));
        assert_eq!(Formula::Count(TIMES).value(&now, Some(&interval)), Some(100.0));
    }

    #[test]
    fn a_quantile_is_never_outside_the_bucket_that_has_it() {
        let bounds = [1.0, 2.0, 4.0, 8.0];
        for counts in [[3.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 5.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0]] {
            for permille in 1..=1000 {
                let share = f64::from(permille) / 1000.0;
                let found = quantile(share, &bounds, &counts).unwrap();
                let rank = share * counts.iter().sum::<f64>();
                let mut below = 0.0;
                let bucket = counts.iter().position(|count| {
                    below += count;
                    *count > 0.0 && below >= rank
                });
                let bucket = bucket.unwrap();
                let upper = bounds[bucket.min(3)];
                let lower = if bucket == 0 { 0.0 } else { bounds[bucket - 1] };
                assert!((lower..=upper).contains(&found), "{permille} of {counts:?}: {found}");
            }
        }
        assert_eq!(quantile(0.5, &bounds, &[0.0; 5]), None);
        assert_eq!(quantile(0.5, &[], &[]), None);
    }

    #[test]
    fn gauges_need_no_answer_before() {
        let now = stats(1, 7, 0, "[]");
        assert_eq!(Formula::Gauge(HITS).value(&now, None), Some(7.0));
        assert_eq!(Formula::Largest(Select { metric: "offset", labels: &[] }).value(&now, None), Some(3.0));
        assert_eq!(Formula::Since(Select { metric: "at", labels: &[] }).value(&now, None), Some(6.0));
        let never = Formula::Since(Select { metric: "none", labels: &[] });
        assert_eq!((never.value(&now, None), never.promql().as_str()), (None, "time() - (kvorum_none > 0)"));
    }

    #[test]
    fn the_query_names_the_same_metric_and_labels() {
        let quantile = Formula::Quantile { permille: 990, unit: 1.0, histogram: TIMES };
        let expected =
            "histogram_quantile(0.99, sum by (instance, le) (rate(kvorum_times_bucket{class!=\"other\"}[1m])))";
        assert_eq!(quantile.promql(), expected);
        const STATUSES: Select = Select { metric: "r_total", labels: &[("status", "5.."), ("method", "GET")] };
        const CPU: Select = Select { metric: "process_cpu_seconds_total", labels: &[] };
        let expected = "sum by (instance) (rate(kvorum_r_total{status=~\"5..\",method=\"GET\"}[1m]))";
        assert_eq!(Formula::Rate(&[STATUSES]).promql(), expected);
        assert_eq!(Formula::Rate(&[CPU]).promql(), "sum by (instance) (rate(process_cpu_seconds_total[1m]))");
    }
}
