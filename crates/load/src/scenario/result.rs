//! `scenario.json`: what a scenario came to, and kvorum's figures beside the report's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::catalog::{Cluster, Scale, Scenario, short_name};
use super::evenness::Evenness;
use super::published::{PublishedRate, figures};
use crate::compare::Comparison;
use crate::knee::{ACHIEVED_SHARE, Over, Point, Probe, fit};
use crate::numbers::{float, number_or_nan, sum_of_known};
use crate::report::{Document, Percentiles, RateAsked};
use crate::workload::{ClientOperation, Workload};

/// The file of [`ScenarioReport`]; beside it are `report.md` and `report.html`.
pub const SCENARIO_FILE: &str = "scenario.json";

/// Where it was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Its name.
    pub processor: String,
    /// How many the process may use.
    pub cores: u64,
    /// All of it.
    pub memory_bytes: u64,
    /// Of the kernel.
    pub system: String,
}

/// Something that could not be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageFailure {
    /// Which stage of which cluster.
    pub stage: String,
    /// Why not.
    pub why: String,
}

/// A run at a rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PointReport {
    /// `knee`, `half`, or the rate.
    pub name: String,
    /// Requests a second.
    pub rate_asked: u64,
    /// Successes a second.
    pub rate_achieved: f64,
    /// From when they were due.
    pub latency_ms: Percentiles,
    /// Errors and timeouts.
    pub errors: u64,
    /// On each node.
    pub cpu_us_per_request: Vec<Option<f64>>,
    /// Of all nodes together, from disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes_per_request: Option<f64>,
    /// Of all nodes together, from their files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_reads_per_request: Option<f64>,
    /// Replicas that were asked beyond those that `ack` needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedges_per_request: Option<f64>,
    /// Requests that were due and never sent.
    #[serde(default)]
    pub unsent: u64,
    /// Why the generator was the limit, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_limit: Option<String>,
    /// Why the latencies are partly the generator's own, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_late: Option<String>,
    /// How much of the processors the machine's host took, if it was much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen: Option<String>,
    /// In how many seconds a node's commits took long, if these were slower than the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_commits: Option<String>,
    /// Whether the stores' debt stayed bounded; none if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debt_bounded: Option<bool>,
}

/// A profile of the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProfileReport {
    /// The point it was taken at.
    pub point: String,
    /// `cpu`, `alloc` or `lock`.
    pub kind: String,
    /// Its directory, below the report's.
    pub dir: String,
    /// The frames that spent the most themselves, as far as `report.md` shows them: a line each, of the share in percent
    /// and the name. None at half of the knee.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub top: String,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Rows of a profile's table that a report keeps.
const PROFILE_ROWS: usize = 5;

impl ProfileReport {
    /// What is kept of a profile's page. The whole is a file beside the report.
    #[must_use]
    pub fn head(point: &str, page: &str) -> String {
        let rows = page.lines().filter(|line| line.starts_with('|')).skip(2);
        let rows = rows.take(if point == "knee" { PROFILE_ROWS } else { 0 });
        let frames = rows.filter_map(|row| {
            // A name may have the character that parts columns.
            let mut cells = row.trim_matches(['|', ' ']).splitn(5, '|').map(str::trim);
            Some(format!("{} {}\n", cells.next()?, cells.nth(3)?))
        });
        frames.collect()
    }

    /// The frames that spent the most themselves: the share in percent, and the name.
    pub(super) fn frames(&self) -> impl Iterator<Item = (&str, &str)> {
        self.top.lines().filter_map(|line| line.split_once(' '))
    }
}

/// What a search saw at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchPoint {
    /// Requests a second, asked for.
    pub rate: u64,
    /// From when they were due.
    #[serde(deserialize_with = "number_or_nan")]
    pub p99_ms: f64,
    /// Whether it met the objective.
    pub met: bool,
}

impl SearchPoint {
    /// Of a probe.
    #[must_use]
    pub fn of(probe: &Probe) -> Self {
        Self { rate: probe.rate_asked, p99_ms: probe.latency_ms.p99, met: probe.passed }
    }
}

/// A knee, and what was run at it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KneeReport {
    /// As on the command line.
    pub workload: String,
    /// None if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee_rate: Option<u64>,
    /// Why the generator, and not the nodes, ended the search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_limit: Option<String>,
    /// What half of it missed of the objective, if it did: then it is no knee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_missed: Option<String>,
    /// What the run at the knee missed of it, which takes longer than those that found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee_missed: Option<String>,
    /// Every run of the search, in order.
    #[serde(default)]
    pub search: Vec<SearchPoint>,
    /// At the knee, at half of it, and at the report's rates.
    pub points: Vec<PointReport>,
    /// Three for each of the first two points.
    pub profiles: Vec<ProfileReport>,
}

const GENERATOR_ENDED: &str = "where the GENERATOR ended the search";
const HALF_MISSED: &str = "where half of the knee MISSED the objective";

impl KneeReport {
    /// Why it shows nothing of the nodes, if so.
    pub(super) fn is_none_because(&self) -> Option<&'static str> {
        let half_missed = self.half_missed.as_ref().map(|_| HALF_MISSED);
        self.generator_limit.as_ref().map(|_| GENERATOR_ENDED).or(half_missed)
    }
}

/// A cluster, and what was found of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterReport {
    /// As described.
    pub name: String,
    /// How many.
    pub nodes: u64,
    /// Their environment.
    pub settings: BTreeMap<String, String>,
    /// Answers that a request needs.
    pub ack: u64,
    /// Replicas of a key.
    pub from: u64,
    /// Of each node, where the kernel held them to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// That were written first.
    pub keys: u64,
    /// Of each.
    pub value_bytes: u64,
    /// That took.
    pub fill_seconds: f64,
    /// After that.
    pub evenness: Vec<Evenness>,
    /// One for each workload.
    pub knees: Vec<KneeReport>,
}

/// Two clusters that took turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairedClusters {
    /// As on the command line.
    pub workload: String,
    /// Requests a second.
    pub rate: u64,
    /// Nodes of each.
    pub nodes: u64,
    /// What came of it.
    pub comparison: Comparison,
}

/// The whole of `scenario.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScenarioReport {
    /// Version of the tool.
    pub version: String,
    /// That it was built of.
    pub commit: String,
    /// That was started.
    pub command: String,
    /// When, in ms since 1970.
    pub started_unix_ms: u64,
    /// That it took.
    pub seconds: f64,
    /// Where.
    pub machine: MachineInfo,
    /// As on the command line.
    pub name: String,
    /// What the report measured.
    pub title: String,
    /// What is done otherwise.
    pub about: String,
    /// Of each run that stands beside a published figure.
    pub duration_s: f64,
    /// Of the confirmations of searches, and of the runs of comparisons; 0 where these took as long.
    #[serde(default)]
    pub search_s: f64,
    /// Whether it is only to show that it works.
    pub is_quick: bool,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// What a reader must know.
    pub warnings: Vec<String>,
    /// What could not be done.
    pub failures: Vec<StageFailure>,
    /// In order.
    pub clusters: Vec<ClusterReport>,
    /// In order.
    pub contests: Vec<PairedClusters>,
}

/// A line of the table that has kvorum's figures beside the report's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureRow {
    /// Nodes of the cluster.
    pub nodes: u64,
    /// `put`, `get` or `mixed`.
    pub workload: String,
    /// `report`, or kvorum and its cluster.
    pub whose: String,
    /// `knee`, `half of it`, or the rate.
    pub at: String,
    /// Requests a second, asked for.
    pub rate: f64,
    /// Mean, p50, p90, p99, p99.9, max.
    pub latency_ms: [Option<f64>; 6],
    /// What is to be added.
    pub note: String,
}

impl ScenarioReport {
    /// One that has nothing in it yet.
    #[must_use]
    pub fn new(scenario: &Scenario, scale: &Scale, machine: MachineInfo, commit: String, command: String) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            commit,
            command,
            started_unix_ms: crate::numbers::micros(now) / 1000,
            seconds: 0.0,
            machine,
            name: scenario.name.into(),
            title: scenario.title.into(),
            about: scenario.about.into(),
            duration_s: scale.counted(scenario).as_secs_f64(),
            search_s: if scale.is_quick { 0.0 } else { scale.duration.as_secs_f64() },
            is_quick: scale.is_quick,
            interrupted: false,
            warnings: Vec::new(),
            failures: Vec::new(),
            clusters: Vec::new(),
            contests: Vec::new(),
        }
    }

    /// kvorum's figures beside the report's, which come first for each size of cluster and each workload.
    #[must_use]
    pub fn beside(&self) -> Vec<FigureRow> {
        let mut kinds: Vec<(u64, String)> = Vec::new();
        let published = figures(&self.name).map(|figure| (u64::from(figure.nodes), figure.workload.to_owned()));
        let contests = self.contests.iter().map(|contest| (contest.nodes, contest.workload.clone()));
        let own = self.clusters.iter().flat_map(|cluster| {
            cluster.knees.iter().map(move |knee| (cluster.nodes, short_name(&knee.workload).to_owned()))
        });
        for kind in published.chain(contests).chain(own) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.iter().flat_map(|(nodes, workload)| self.rows(*nodes, workload)).collect()
    }

    fn rows(&self, nodes: u64, workload: &str) -> Vec<FigureRow> {
        let row = |whose: &str, at: String, rate: f64, latency_ms: [Option<f64>; 6], note: String| FigureRow {
            nodes,
            workload: workload.to_owned(),
            whose: whose.to_owned(),
            at,
            rate,
            latency_ms,
            note,
        };
        let of_report = figures(&self.name).filter(|of| u64::from(of.nodes) == nodes && of.workload == workload);
        let mut rows: Vec<FigureRow> = of_report
            .map(|of| {
                let at = if of.at == PublishedRate::Knee { "knee".to_owned() } else { per_second(of.rate) };
                row("report", at, float(of.rate), of.latency_ms, of.note.to_owned())
            })
            .collect();
        for contest in self.contests.iter().filter(|of| of.nodes == nodes && of.workload == workload) {
            for (name, achieved, latency_ms) in medians(&contest.comparison) {
                let (whose, at) = (format!("kvorum, {name}"), per_second(contest.rate));
                let missed = achieved.and_then(|achieved| missed(contest.rate, achieved));
                let notes: Vec<String> = std::iter::once("medians of the runs".to_owned()).chain(missed).collect();
                rows.push(row(&whose, at, float(contest.rate), latency_ms, notes.join("; ")));
            }
        }
        for cluster in self.clusters.iter().filter(|cluster| cluster.nodes == nodes) {
            let whose = format!("kvorum, {}", cluster.name);
            for knee in cluster.knees.iter().filter(|knee| short_name(&knee.workload) == workload) {
                if knee.points.is_empty() {
                    let why = knee.knee_rate.map_or("none was found", |_| "no run was saved");
                    rows.push(row(&whose, "knee".into(), float(knee.knee_rate.unwrap_or(0)), [None; 6], why.into()));
                }
                for point in &knee.points {
                    let mut notes = point.notes();
                    let at = match point.name.as_str() {
                        "knee" => {
                            notes.extend(knee.knee_missed.iter().map(|why| format!("MISSED for so long, {why}")));
                            notes.extend(
                                knee.generator_limit.is_some().then(|| "the generator ended the search".into()),
                            );
                            "knee".to_owned()
                        }
                        "half" => {
                            notes.extend(
                                knee.half_missed.iter().map(|why| format!("MISSED, {why}: the knee is not one")),
                            );
                            "half of it".to_owned()
                        }
                        _ => per_second(point.rate_asked),
                    };
                    rows.push(row(&whose, at, float(point.rate_asked), six(&point.latency_ms), notes.join("; ")));
                }
            }
        }
        rows
    }

    /// For each workload that has knees of at least three sizes of cluster: what bends their curve, in a line. Of
    /// clusters of one size the first counts: others differ in more than that. A knee that the generator ended, or half
    /// of which missed the objective, is on no curve of the nodes: it is left out, and named.
    #[must_use]
    pub fn what_bends(&self) -> Vec<String> {
        let mut knees: BTreeMap<&str, Vec<(Point, Option<&str>)>> = BTreeMap::new();
        for cluster in &self.clusters {
            for knee in &cluster.knees {
                let points = knees.entry(short_name(&knee.workload)).or_default();
                if let Some(rate) = knee.knee_rate
                    && points.iter().all(|(point, _)| point.n != cluster.nodes)
                {
                    points.push((Point { n: cluster.nodes, rate: float(rate) }, knee.is_none_because()));
                }
            }
        }
        let lines = knees.into_iter().filter_map(|(workload, points)| {
            let of = |why: Option<&'static str>| {
                points.iter().filter(move |(_, because)| *because == why).map(|(point, _)| *point)
            };
            let law = fit(Over::Nodes, &of(None).collect::<Vec<_>>())?;
            let (lambda, sigma, kappa) = (law.lambda, law.sigma, law.kappa);
            let without: String = [GENERATOR_ENDED, HALF_MISSED]
                .into_iter()
                .filter_map(|why| {
                    let sizes: Vec<String> = of(Some(why)).map(|point| point.n.to_string()).collect();
                    (!sizes.is_empty()).then(|| format!("; without N = {}, {why}", sizes.join(", ")))
                })
                .collect();
            Some(format!(
                "What bends {workload} (R² {:.3}, λ {lambda:.0}/s, σ {sigma:.3}, κ {kappa:.3}{without}): {}",
                law.r_squared, law.verdict
            ))
        });
        lines.collect()
    }
}

fn per_second(rate: u64) -> String {
    format!("{rate}/s")
}

fn six(latency: &Percentiles) -> [Option<f64>; 6] {
    [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max]
        .map(|ms| Some(ms).filter(|ms| !ms.is_nan()))
}

/// Of a rate that was asked and not achieved, what was.
fn missed(asked: u64, achieved: f64) -> Option<String> {
    (achieved < float(asked) * ACHIEVED_SHARE).then(|| format!("only {achieved:.0}/s achieved"))
}

/// A side's name, its rate, and what a comparison has of the six.
type Medians<'a> = (&'a str, Option<f64>, [Option<f64>; 6]);

fn medians(comparison: &Comparison) -> [Medians<'_>; 2] {
    let of = |figure: &str| comparison.rows.iter().find(|row| row.figure == figure).map(|row| (row.a, row.b));
    let names = ["mean", "p50", "p90", "p99", "p999", "max"];
    let (a, b) = (names.map(|name| of(name).map(|both| both.0)), names.map(|name| of(name).map(|both| both.1)));
    let rate = of("rate").unzip();
    [(&comparison.a, rate.0, a), (&comparison.b, rate.1, b)]
}

impl PointReport {
    /// Of a run.
    #[must_use]
    pub fn of(name: &str, run: &Document) -> Self {
        let sum = |of: fn(&crate::nodes::NodeRow) -> Option<f64>| -> Option<f64> { run.nodes.iter().map(of).sum() };
        Self {
            name: name.to_owned(),
            rate_asked: match run.rate_asked {
                RateAsked::PerSecond(rate) => rate,
                RateAsked::Word(_) => 0,
            },
            rate_achieved: run.rate_achieved,
            latency_ms: run.latency_ms,
            errors: run.failures(),
            cpu_us_per_request: run.nodes.iter().map(|node| node.cpu_us_per_request).collect(),
            disk_read_bytes_per_request: sum(|node| node.disk_read_bytes_per_request),
            block_reads_per_request: sum(|node| node.block_reads_per_request),
            hedges_per_request: sum(|node| node.hedges_per_request),
            unsent: run.unsent,
            generator_limit: run.generator.limit.clone(),
            generator_late: run.generator.late.clone(),
            stolen: run.generator.stolen(),
            slow_commits: run.slow_commits(),
            debt_bounded: run.debt_bounded,
        }
    }

    /// What a reader must know before the latencies: what was missed, and whose fault that may be.
    fn notes(&self) -> Vec<String> {
        let unsent = (self.unsent > 0).then(|| format!("{} never sent", self.unsent));
        let errors = (self.errors > 0).then(|| format!("{} errors", self.errors));
        let limit = self.generator_limit.is_some().then(|| "the GENERATOR was the limit".to_owned());
        let late = self.generator_late.is_some().then(|| "latencies are partly the generator's".to_owned());
        let achieved = missed(self.rate_asked, self.rate_achieved);
        let (stolen, slow_commits) = (self.stolen.clone(), self.slow_commits.clone());
        let debt = (self.debt_bounded == Some(false)).then(|| "debt GREW all the time".to_owned());
        [achieved, unsent, errors, debt, limit, late, stolen, slow_commits].into_iter().flatten().collect()
    }
}

impl ClusterReport {
    /// One of which nothing is known yet.
    #[must_use]
    pub fn new(cluster: &Cluster, from: Option<u8>, (keys, value_bytes): (u64, u64)) -> Self {
        let from = u64::from(from.unwrap_or(cluster.nodes));
        Self {
            name: cluster.name.into(),
            nodes: u64::from(cluster.nodes),
            settings: cluster.settings.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
            ack: from / 2 + 1,
            from,
            memory_limit_bytes: None,
            keys,
            value_bytes,
            fill_seconds: 0.0,
            evenness: Vec::new(),
            knees: Vec::new(),
        }
    }

    /// Replicas that GETs asked, for a request of this workload; none if it has no GETs, or is none.
    pub(super) fn replicas_asked(&self, workload: &str, point: &PointReport) -> Option<f64> {
        let gets = workload.parse::<Workload>().ok()?.share(ClientOperation::Get);
        let asks_all = self.settings.get("KVORUM_COORDINATOR_READ_FANOUT").is_some_and(|fanout| fanout == "all");
        let at_first = float(if asks_all { self.from } else { self.ack });
        (gets > 0.0).then(|| gets * at_first + point.hedges_per_request.unwrap_or(0.0))
    }

    /// Processor time of all nodes for a request, in µs.
    pub(super) fn cpu_us(point: &PointReport) -> Option<f64> {
        sum_of_known(point.cpu_us_per_request.iter().copied())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        ClusterReport, GENERATOR_ENDED, HALF_MISSED, KneeReport, MachineInfo, PairedClusters, PointReport,
        ProfileReport, ScenarioReport, SearchPoint,
    };
    use crate::compare::{Measurement, Pairing, compare};
    use crate::numbers::float;
    use crate::report::Percentiles;
    use crate::scenario::{SCENARIOS, Scale, Scenario};

    pub(in crate::scenario) fn scenario(name: &str) -> &'static Scenario {
        SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap()
    }

    /// A report with one knee of PUT at 40,000/s, on three nodes.
    pub(in crate::scenario) fn report(name: &str) -> ScenarioReport {
        let machine = MachineInfo { processor: "P".into(), cores: 2, memory_bytes: 1 << 30, system: "Linux 1".into() };
        let scenario = scenario(name);
        let mut report =
            ScenarioReport::new(scenario, &Scale::full(None), machine, "abc".into(), "kvorum bench".into());
        let mut cluster = ClusterReport::new(&scenario.groups[0].clusters[0], None, (1_000, 100));
        let point = |name: &str, rate: u64, p99: f64| PointReport {
            name: name.into(),
            rate_asked: rate,
            rate_achieved: float(rate),
            latency_ms: Percentiles { p50: 1.5, p99, ..Percentiles::default() },
            errors: 0,
            cpu_us_per_request: vec![Some(10.0), Some(5.0), Some(5.0)],
            disk_read_bytes_per_request: Some(0.0),
            block_reads_per_request: Some(1.0),
            hedges_per_request: Some(0.5),
            unsent: 0,
            generator_limit: None,
            generator_late: None,
            stolen: None,
            slow_commits: None,
            debt_bounded: None,
        };
        cluster.knees.push(KneeReport {
            workload: "put".into(),
            knee_rate: Some(40_000),
            generator_limit: None,
            half_missed: None,
            knee_missed: None,
            search: [(20_000, 3.0), (40_000, 9.0), (45_000, 80.0)]
                .map(|(rate, p99_ms)| SearchPoint { rate, p99_ms, met: p99_ms <= 50.0 })
                .into(),
            points: vec![point("knee", 40_000, 9.0), point("half", 20_000, 3.0), point("31500", 31_500, 4.0)],
            profiles: Vec::new(),
        });
        report.clusters.push(cluster);
        report
    }

    #[test]
    fn each_figure_of_kvorum_stands_behind_those_of_the_report_for_the_same_thing() {
        let rows = report("quorum").beside();
        let told: Vec<_> = rows.iter().map(|row| (&*row.workload, &*row.whose, &*row.at)).collect();
        let expected = [
            ("put", "report", "60000/s"),
            ("put", "report", "25000/s"),
            ("put", "report", "knee"),
            ("put", "kvorum, 3-nodes", "knee"),
            ("put", "kvorum, 3-nodes", "half of it"),
            ("put", "kvorum, 3-nodes", "31500/s"),
            ("get", "report", "30000/s"),
            ("get", "report", "knee"),
            ("mixed", "report", "8000/s"),
        ];
        assert_eq!(told, expected);
        let figures = [&rows[2], &rows[3]].map(|row| (row.rate, row.latency_ms[3]));
        assert_eq!(figures, [(31_500.0, Some(4.61)), (40_000.0, Some(9.0))]);
    }

    #[test]
    fn a_row_says_that_its_rate_was_missed_and_whose_fault_its_figures_are() {
        let mut report = report("quorum");
        let knee = &mut report.clusters[0].knees[0];
        knee.generator_limit = Some("slow".into());
        knee.points[0].rate_achieved = 39_600.0;
        knee.points[1].rate_achieved = 19_799.0;
        knee.knee_missed = Some("p99 is 70.00 ms".into());
        knee.points[0].debt_bounded = Some(false);
        knee.points[1].unsent = 12;
        knee.points[1].errors = 3;
        knee.points[1].generator_limit = Some("slow".into());
        knee.points[2].generator_late = Some("slow".into());
        knee.points[2].stolen = Some("the host took 7 % of the processors' time".into());
        let run = |rate| Measurement { rate, ..Measurement::default() };
        let comparison = compare(["A", "B"], &[run(9_000.0)], &[run(9_950.0)], Pairing::Sets);
        report.contests.push(PairedClusters { workload: "put".into(), rate: 10_000, nodes: 3, comparison });
        let rows = report.beside();
        let notes: Vec<&str> = rows.iter().filter(|row| row.whose != "report").map(|row| row.note.as_str()).collect();
        let expected = [
            "medians of the runs; only 9000/s achieved",
            "medians of the runs",
            "debt GREW all the time; MISSED for so long, p99 is 70.00 ms; the generator ended the search",
            "only 19799/s achieved; 12 never sent; 3 errors; the GENERATOR was the limit",
            "latencies are partly the generator's; the host took 7 % of the processors' time",
        ];
        assert_eq!(notes, expected);
    }

    #[test]
    fn a_report_keeps_the_head_of_a_profile_at_the_knee() {
        let rows: String = (0..9).map(|row| format!("| {row}.0 | 1 | 1.0 | 1 | `f|{row}` |\n")).collect();
        let page = format!("# cpu\n\n| self % | … |\n|--:|---|\n{rows}");
        let profile = |point: &str| ProfileReport {
            point: point.into(),
            kind: "cpu".into(),
            dir: String::new(),
            top: ProfileReport::head(point, &page),
            missing: None,
        };
        let knee = profile("knee");
        let frames: Vec<_> = knee.frames().collect();
        assert_eq!((frames.len(), frames[0], frames[4]), (5, ("0.0", "`f|0`"), ("4.0", "`f|4`")));
        assert_eq!(profile("half").top, "");
    }

    #[test]
    fn a_point_that_was_saved_without_them_says_nothing_of_them() {
        let mut point = serde_json::to_value(&report("quorum").clusters[0].knees[0].points[0]).unwrap();
        assert!(point.as_object_mut().unwrap().remove("unsent").is_some());
        for name in ["generator_limit", "generator_late", "stolen", "slow_commits"] {
            assert!(point.get(name).is_none(), "{name}: what there is none of is not written");
        }
        assert!(serde_json::from_value::<PointReport>(point).unwrap().notes().is_empty());
    }

    #[test]
    fn a_cluster_of_another_size_stands_beside_nothing_of_the_report() {
        let mut report = report("quorum");
        report.clusters[0].nodes = 7;
        let rows = report.beside();
        assert!(rows.iter().all(|row| (row.nodes == 7) == (row.whose != "report")), "{rows:?}");
        assert_eq!(rows.last().map(|row| row.nodes), Some(7));
    }

    #[test]
    fn knees_of_three_sizes_of_cluster_are_fitted() {
        let mut report = report("async-fanout");
        assert!(report.what_bends().is_empty());
        let add = |report: &mut ScenarioReport, nodes, rate| {
            let mut cluster = report.clusters[0].clone();
            cluster.nodes = nodes;
            cluster.knees[0].knee_rate = Some(rate);
            report.clusters.push(cluster);
        };
        add(&mut report, 2, 29_000);
        add(&mut report, 10, 8_000);
        let lines = report.what_bends();
        add(&mut report, 2, 90_000);
        assert_eq!(report.what_bends(), lines, "a second cluster of a size");
        assert!(
            lines.len() == 1 && lines[0].starts_with("What bends put (R² ") && lines[0].contains("each node"),
            "{lines:?}"
        );
        assert!(report.markdown().contains(&lines[0]));
    }

    #[test]
    fn a_knee_that_the_generator_ended_bends_nothing_and_is_named() {
        let mut report = report("async-fanout");
        for (nodes, rate) in [(2, 29_000), (10, 8_000), (3, 10)] {
            let mut cluster = ClusterReport { nodes, ..report.clusters[0].clone() };
            cluster.knees[0].knee_rate = Some(rate);
            report.clusters.push(cluster);
        }
        report.clusters[3].knees[0].generator_limit = Some("slow".into());
        let by_generator = report.what_bends();
        let knee = &mut report.clusters[3].knees[0];
        (knee.generator_limit, knee.half_missed) = (None, Some("p99 is 70.00 ms".into()));
        let by_half = report.what_bends();
        report.clusters.pop();
        for (lines, why) in [(by_generator, GENERATOR_ENDED), (by_half, HALF_MISSED)] {
            let said = format!("; without N = 3, {why}");
            assert!(lines[0].contains(&said), "{lines:?}");
            assert_eq!(lines[0].replace(&said, ""), report.what_bends()[0], "it counts for nothing");
        }
    }

    #[test]
    fn a_knee_half_of_which_missed_the_objective_is_told_as_none() {
        let mut report = report("quorum");
        report.clusters[0].knees[0].half_missed = Some("p99 is 70.00 ms".into());
        let rows = report.beside();
        let row = rows.iter().find(|row| row.at == "half of it").unwrap();
        assert!(row.note.contains("MISSED, p99 is 70.00 ms: the knee is not one"), "{}", row.note);
    }

    #[test]
    fn a_knee_that_was_not_found_is_told_as_such() {
        let mut report = report("quorum");
        report.clusters[0].knees[0].knee_rate = None;
        report.clusters[0].knees[0].points.clear();
        let rows = report.beside();
        let ours: Vec<_> = rows.iter().filter(|row| row.whose != "report").collect();
        assert_eq!((ours.len(), ours[0].note.as_str()), (1, "none was found"));
    }
}
