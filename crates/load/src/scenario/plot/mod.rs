//! The two plots of a scenario, as SVG: latency over rate with the knees, and what the scenario compares.
//!
//! Promises: light, below 100 KB each, and made from `scenario.json` alone, so that they can be drawn again.

mod bars;
mod curves;
mod svg;

use bars::{BarGroup, BarPanel, LabelledBar, bar_chart};
use curves::{CurvePanel, KneeCurve, curve_chart, thousands};

use super::catalog::{OBJECTIVE_P99_MS, short_name};
use super::published::{PublishedRate, figures};
use super::result::{ClusterReport, KneeReport, PairedClusters, ScenarioReport};
use crate::numbers::float;

/// What comparisons have of latencies, with the names that reports give them.
const PERCENTILES: [(&str, &str); 4] = [("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9")];

/// A plot and its file.
#[derive(Debug)]
pub(super) struct ScenarioPlot {
    pub(super) file: &'static str,
    /// What it shows, for a reader who cannot see it.
    pub(super) alt: String,
    pub(super) svg: String,
}

impl ScenarioReport {
    /// All that there is something to draw of.
    pub(super) fn plots(&self) -> Vec<ScenarioPlot> {
        let compared = if self.contests.is_empty() { self.knee_bars() } else { self.contest_bars() };
        self.knee_curves().into_iter().chain(compared).collect()
    }

    /// The workloads that have knees, as they are called in short.
    fn workloads(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for knee in self.clusters.iter().flat_map(|cluster| &cluster.knees) {
            if !names.contains(&short_name(&knee.workload)) {
                names.push(short_name(&knee.workload));
            }
        }
        names
    }

    fn knees_of<'a>(&'a self, workload: &str) -> impl Iterator<Item = (&'a ClusterReport, &'a KneeReport)> {
        let knees = self.clusters.iter().flat_map(|cluster| cluster.knees.iter().map(move |knee| (cluster, knee)));
        knees.filter(move |(_, knee)| short_name(&knee.workload) == workload)
    }

    fn knee_curves(&self) -> Option<ScenarioPlot> {
        let panel = |workload: &&str| {
            let curves: Vec<KneeCurve<'_>> = self
                .knees_of(workload)
                .filter(|(_, knee)| !knee.search.is_empty())
                .map(|(cluster, knee)| KneeCurve {
                    name: cluster.name.clone(),
                    points: &knee.search,
                    knee: knee.knee_rate,
                })
                .collect();
            (!curves.is_empty()).then(|| CurvePanel { title: workload.to_uppercase(), curves })
        };
        let panels: Vec<CurvePanel<'_>> = self.workloads().iter().filter_map(panel).collect();
        let title = format!("{}: p99 over rate, and the knees", self.name);
        let note = format!(
            "Each dot is a run of the search, the large one the knee. A ring missed the objective, a p99 of \
             {OBJECTIVE_P99_MS} ms (dashed)."
        );
        let svg = curve_chart(&title, &note, OBJECTIVE_P99_MS, &panels);
        let alt =
            format!("{title}: for each workload, p99 in ms over requests a second, with a curve for each cluster");
        (!panels.is_empty()).then_some(ScenarioPlot { file: "knees.svg", alt, svg })
    }

    /// Knees beside the published ones.
    fn knee_bars(&self) -> Option<ScenarioPlot> {
        let panel = |workload: &&str| {
            let mut groups: Vec<BarGroup> = Vec::new();
            let mut sizes: Vec<u64> = Vec::new();
            for (cluster, knee) in self.knees_of(workload) {
                let Some(rate) = knee.knee_rate else { continue };
                let doubt = knee.is_none_because().map(|why| format!(" {why}")).unwrap_or_default();
                let mut bars = vec![rate_bar(0, rate, &doubt)];
                // Clusters of one size differ in more than that: the first stands beside the report.
                if !sizes.contains(&cluster.nodes) {
                    bars.extend(self.published_knee(workload, cluster.nodes).map(|rate| rate_bar(1, rate, "")));
                    sizes.push(cluster.nodes);
                }
                groups.push(BarGroup { name: cluster.name.clone(), bars });
            }
            (!groups.is_empty()).then(|| BarPanel { title: workload.to_uppercase(), groups })
        };
        let panels: Vec<BarPanel> = self.workloads().iter().filter_map(panel).collect();
        let title = format!("{}: knees of kvorum and of the report, in requests a second", self.name);
        let svg = bar_chart(&title, &["kvorum".into(), "the report, on another machine".into()], &panels);
        let alt = format!("{title}; the figures are in the table above");
        (!panels.is_empty()).then_some(ScenarioPlot { file: "comparison.svg", alt, svg })
    }

    fn published_knee(&self, workload: &str, nodes: u64) -> Option<u64> {
        let of_this = |of: &&super::published::Figure| {
            u64::from(of.nodes) == nodes && of.workload == workload && of.at == PublishedRate::Knee
        };
        figures(&self.name).find(of_this).map(|of| of.rate)
    }

    /// Latencies of clusters that took turns.
    fn contest_bars(&self) -> Option<ScenarioPlot> {
        let mut series: Vec<String> = Vec::new();
        let panels: Vec<BarPanel> = self.contests.iter().map(|contest| contest_panel(contest, &mut series)).collect();
        let title = format!("{}: latencies in ms of clusters that took turns, medians of runs", self.name);
        let svg = bar_chart(&title, &series, &panels);
        let alt = format!("{title}; the figures are under Comparisons");
        (!panels.is_empty()).then_some(ScenarioPlot { file: "comparison.svg", alt, svg })
    }
}

fn rate_bar(series: usize, rate: u64, doubt: &str) -> LabelledBar {
    LabelledBar { series, value: float(rate), label: format!("{}{doubt}", thousands(rate)) }
}

fn contest_panel(contest: &PairedClusters, series: &mut Vec<String>) -> BarPanel {
    let comparison = &contest.comparison;
    let mut place = |name: &String| {
        series.iter().position(|known| known == name).unwrap_or_else(|| {
            series.push(name.clone());
            series.len() - 1
        })
    };
    let (a, b) = (place(&comparison.a), place(&comparison.b));
    let bar = |series, value| LabelledBar { series, value, label: format!("{value:.2}") };
    let groups = PERCENTILES.iter().filter_map(|(figure, name)| {
        let row = comparison.rows.iter().find(|row| row.figure == *figure)?;
        Some(BarGroup { name: (*name).into(), bars: vec![bar(a, row.a), bar(b, row.b)] })
    });
    let title = format!("{} at {}/s", short_name(&contest.workload).to_uppercase(), thousands(contest.rate));
    BarPanel { title, groups: groups.collect() }
}

#[cfg(test)]
mod tests {
    use crate::compare::{Measurement, Pairing, compare};
    use crate::report::Percentiles;
    use crate::scenario::PairedClusters;
    use crate::scenario::result::tests::report;

    #[test]
    fn a_scenario_has_its_curve_and_its_knees_beside_the_published_ones() {
        let report = report("quorum");
        let [curve, bars]: [_; 2] = report.plots().try_into().unwrap();
        assert!(curve.svg.contains(">3-nodes: 40,000/s</text>") && curve.svg.contains("a p99 of 50 ms (dashed)"));
        let rings = curve.svg.lines().find(|line| line.contains("class=\"rings\"")).unwrap();
        assert_eq!(rings.matches('M').count(), 1, "a ring for the run that missed: {rings}");
        assert!(bars.svg.contains(">40,000</text>") && bars.svg.contains(">31,500</text>"), "{}", bars.svg);
        let text = report.markdown();
        assert!(text.contains(&format!("![{}](knees.svg)", curve.alt)), "{text}");
        assert!(text.contains(&format!("![{}](comparison.svg)", bars.alt)), "{text}");
    }

    #[test]
    fn clusters_that_took_turns_are_what_a_scenario_compares() {
        let mut report = report("sync-vs-async");
        let run = |p50| {
            let latency_ms = Percentiles { p50, ..Percentiles::default() };
            [Measurement { latency_ms, ..Measurement::default() }]
        };
        let comparison = compare(["fsync", "os<>"], &run(1.5), &run(0.25), Pairing::Sets);
        report.contests.push(PairedClusters { workload: "put".into(), rate: 2_000, nodes: 3, comparison });
        let plots = report.plots();
        let bars = &plots.last().unwrap().svg;
        for told in [">PUT at 2,000/s<", ">os&lt;&gt;<", ">p50<", ">1.50<", ">0.25<"] {
            assert!(bars.contains(told), "{told} in {bars}");
        }
    }

    #[test]
    fn what_was_saved_without_a_search_has_no_curve_and_nothing_found_no_plot() {
        let mut report = report("quorum");
        report.clusters[0].knees[0].search.clear();
        let files: Vec<_> = report.plots().iter().map(|plot| plot.file).collect();
        assert_eq!(files, ["comparison.svg"]);
        report.clusters.clear();
        assert!(report.plots().is_empty());
    }

    #[test]
    fn a_plot_stays_light_however_much_is_drawn() {
        let mut report = report("async-fanout");
        let knee = &mut report.clusters[0].knees[0];
        knee.search = knee.search.repeat(10);
        report.clusters = vec![report.clusters[0].clone(); 20];
        for plot in report.plots() {
            assert!(plot.svg.len() < 100_000, "{}: {} bytes", plot.file, plot.svg.len());
        }
    }
}
