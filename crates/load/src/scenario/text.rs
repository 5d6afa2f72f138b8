//! `report.md`: a scenario as Markdown.

use std::fmt::Write;

use super::catalog::{SCENARIOS, THREADS, short_name};
use super::evenness::Evenness;
use super::published::counted;
use super::result::{ClusterReport, FigureRow, KneeReport, PointReport, ProfileReport, ScenarioReport};
use crate::numbers::{bytes, float};

/// Heads the table of what a request cost.
pub(crate) const COST: [&str; 9] =
    ["cluster", "ack/from", "data of a copy", "workload", "at", "CPU µs", "blocks", "per replica", "disk"];

impl ScenarioReport {
    /// The whole of `report.md`.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        self.write(&mut out).expect("a string takes everything");
        out.truncate(out.trim_end().len());
        out + "\n"
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "# {}: {}\n", self.name, self.title)?;
        writeln!(out, "{}\n", self.provenance())?;
        if !self.about.is_empty() {
            writeln!(out, "{}\n", self.about)?;
        }
        self.less().iter().try_for_each(|line| writeln!(out, "{line}\n"))?;
        for warning in self.said() {
            writeln!(out, "> **{warning}**\n")?;
        }
        writeln!(out, "## kvorum beside the report\n\n{}", beside_table(&self.beside()))?;
        for line in self.what_bends() {
            writeln!(out, "{line}\n")?;
        }
        writeln!(out, "Latencies in ms, from when requests were due.\n")?;
        self.plots().iter().try_for_each(|plot| writeln!(out, "![{}]({})\n", plot.alt, plot.file))?;
        writeln!(
            out,
            "`kvorum bench scenario {}` writes this page. Beside it are then `report.html` with curves to look into, \
             `runs/` with every run, and `profiles/` with whole tables and graphs.\n",
            self.name
        )?;
        self.what_bends().iter().try_for_each(|line| writeln!(out, "{line}\n"))?;
        if !self.contests.is_empty() {
            writeln!(out, "## Comparisons\n")?;
            for contest in &self.contests {
                let text = contest.comparison.text();
                writeln!(out, "{} at {}/s:\n\n```\n{}```\n", contest.workload, contest.rate, text)?;
            }
        }
        self.write_cost(out)?;
        self.write_evenness(out)?;
        write_profiles(out, &self.clusters)
    }

    /// Machine, commit and command, in one paragraph.
    pub(super) fn provenance(&self) -> String {
        let machine = &self.machine;
        format!(
            "{}, {} cores, {} of memory, {}; version {}, commit {}; runs of {}; took {:.0} s: `{}`",
            machine.processor,
            machine.cores,
            bytes(float(machine.memory_bytes)),
            machine.system,
            self.version,
            self.commit,
            self.durations(),
            self.seconds,
            self.command
        )
    }

    /// Of the runs beside published figures, and of the others where they are shorter.
    fn durations(&self) -> String {
        let others = if self.search_s > 0.0 {
            format!(" ({} s in searches and comparisons)", self.search_s)
        } else {
            String::new()
        };
        format!("{} s{others}", self.duration_s)
    }

    /// With how much the report measured and for how long, and with how much kvorum; none if no cluster was started.
    pub(crate) fn less(&self) -> Option<String> {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == self.name)?;
        let cluster = self.clusters.iter().max_by_key(|cluster| cluster.copy_bytes())?;
        let mut connections: Vec<usize> = scenario.groups.iter().map(|of| of.connections).collect();
        connections.sort_unstable();
        connections.dedup();
        let connections: Vec<String> = connections.iter().map(usize::to_string).collect();
        // What a process caches and what the kernel does: half leaves room for both, and for more than values.
        let (held, memory) = match cluster.memory_limit_bytes {
            Some(limit) => (cluster.copy_bytes() * cluster.from / cluster.nodes.max(1), limit),
            None => (cluster.copy_bytes() * cluster.from, self.machine.memory_bytes),
        };
        let cached =
            if held <= memory / 2 { "; all of it fits in memory, and GETs are served from caches" } else { "" };
        Some(format!(
            "Published: {}; here: one copy of {}, runs of {}, {} connections of {THREADS} thread{cached}.",
            scenario.published,
            cluster.data(),
            self.durations(),
            connections.join(" and "),
        ))
    }

    /// Everything that a reader must know before the figures.
    pub(crate) fn said(&self) -> Vec<String> {
        let quick = self.is_quick.then(|| "Quick: shows that it works; too short and too little to be quoted.".into());
        let interrupted = self.interrupted.then(|| "Interrupted: this is what there was until then.".into());
        let failures = self.failures.iter().map(|failure| format!("Failed: {}: {}", failure.stage, failure.why));
        quick.into_iter().chain(interrupted).chain(self.warnings.iter().cloned()).chain(failures).collect()
    }

    fn write_evenness(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "## Evenness\n\nAfter the fill. The most and the least as parts of the mean; 1 is even.\n")?;
        writeln!(out, "| cluster | what | most | least | per node |\n|---|---|---|---|---|")?;
        self.evenness().iter().try_for_each(|(whose, even)| write_even(out, whose, even))?;
        writeln!(out)
    }

    /// What was counted on each node, and whose it is: first what the report counted.
    pub(crate) fn evenness(&self) -> Vec<(&str, Evenness)> {
        let published = counted(&self.name).map(|of| ("report", Evenness::of(of.what, of.per_node.to_vec())));
        let own = self
            .clusters
            .iter()
            .flat_map(|cluster| cluster.evenness.iter().map(move |even| (cluster.name.as_str(), even.clone())));
        published.chain(own).collect()
    }

    fn write_cost(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "## What it cost\n")?;
        writeln!(
            out,
            "Per request, of all nodes together: processor time; blocks that came into the nodes' caches (where \
             nothing is written, those that were fetched from files; a flush or compaction brings what it writes), \
             also for each replica that GETs asked: `ack` and those that hedges asked, or `from` where reads ask all; \
             bytes that came from a disk.\n"
        )?;
        for cluster in self.clusters.iter().filter(|cluster| !cluster.settings.is_empty()) {
            let settings: Vec<String> =
                cluster.settings.iter().map(|(name, value)| format!("`{name}={value}`")).collect();
            writeln!(out, "- {}: {}", cluster.name, settings.join(", "))?;
        }
        writeln!(out, "\n| {} |\n|---|---|---|---|---|--:|--:|--:|--:|", COST.join(" | "))?;
        self.cost().iter().try_for_each(|row| writeln!(out, "| {} |", row.join(" | ")))?;
        writeln!(out)
    }

    /// What a request cost at each point, under the words of [`COST`].
    pub(crate) fn cost(&self) -> Vec<[String; 9]> {
        let knees = self.clusters.iter().flat_map(|cluster| cluster.knees.iter().map(move |knee| (cluster, knee)));
        knees.flat_map(|(cluster, knee)| knee.points.iter().map(|point| cluster.cost(knee, point))).collect()
    }
}

fn write_even(out: &mut String, cluster: &str, even: &Evenness) -> std::fmt::Result {
    let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let each: Vec<String> = even.per_node.iter().map(|value| format!("{value:.0}")).collect();
    let (most, least) = (share(even.max_over_mean), share(even.min_over_mean));
    writeln!(out, "| {cluster} | {} | {most} | {least} | {} |", even.what, each.join(" "))
}

/// Rows as Markdown.
pub(super) fn beside_table(rows: &[FigureRow]) -> String {
    let mut out = "| nodes | workload | whose | at | rate/s | mean | p50 | p90 | p99 | p99.9 | max | |\n\
                   |---|---|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n"
        .to_owned();
    for row in rows {
        let cells = row.latency_ms.map(|value| value.map_or_else(|| "-".to_owned(), figure));
        let rate = if row.rate > 0.0 { format!("{:.0}", row.rate) } else { "-".into() };
        let (nodes, workload, whose, at) = (row.nodes, &row.workload, &row.whose, &row.at);
        let (latencies, note) = (cells.join(" | "), &row.note);
        writeln!(out, "| {nodes} | {workload} | {whose} | {at} | {rate} | {latencies} | {note} |")
            .expect("a string takes everything");
    }
    out
}

/// Three digits.
fn figure(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

impl ClusterReport {
    fn copy_bytes(&self) -> u64 {
        self.keys * self.value_bytes
    }

    /// Of one copy, and what each node may use for it.
    fn data(&self) -> String {
        let limit = self.memory_limit_bytes.map(|limit| format!(", limit {} a node", bytes(float(limit))));
        bytes(float(self.copy_bytes())) + &limit.unwrap_or_default()
    }

    fn cost(&self, knee: &KneeReport, point: &PointReport) -> [String; 9] {
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
        let blocks = point.block_reads_per_request;
        let replicas = self.replicas_asked(&knee.workload, point);
        [
            self.name.clone(),
            format!("{}/{}", self.ack, self.from),
            self.data(),
            short_name(&knee.workload).to_owned(),
            point.name.clone(),
            cell(Self::cpu_us(point)),
            cell(blocks),
            cell(blocks.zip(replicas).map(|(blocks, replicas)| blocks / replicas)),
            point.disk_read_bytes_per_request.map_or_else(|| "-".to_owned(), bytes),
        ]
    }
}

fn write_profiles(out: &mut String, clusters: &[ClusterReport]) -> std::fmt::Result {
    let all = || clusters.iter().flat_map(|cluster| cluster.knees.iter().map(move |knee| (cluster, knee)));
    writeln!(out, "## Profiles of the coordinator\n")?;
    writeln!(
        out,
        "At each knee, the frames that spent the most themselves: processor time, bytes allocated, time waited for \
         locks and in queues. `profiles/` has them at half of the knee, too.\n"
    )?;
    for (cluster, knee) in all() {
        for profile in &knee.profiles {
            if let Some(why) = &profile.missing {
                writeln!(out, "> **no profile of {}, {}, {}: {why}**\n", cluster.name, knee.workload, profile.point)?;
            }
        }
    }
    for (cluster, knee) in all() {
        write_profiles_of(out, cluster, knee)?;
    }
    Ok(())
}

fn write_profiles_of(out: &mut String, cluster: &ClusterReport, knee: &KneeReport) -> std::fmt::Result {
    let at_knee = |of: &&ProfileReport| of.missing.is_none() && of.point == "knee";
    let mut profiles = knee.profiles.iter().filter(at_knee).peekable();
    if profiles.peek().is_none() {
        return Ok(());
    }
    writeln!(out, "### {} {}\n", cluster.name, short_name(&knee.workload))?;
    for profile in profiles {
        let frames: Vec<String> = profile.frames().map(|(share, name)| format!("{share} % {name}")).collect();
        writeln!(out, "- {}: {}", profile.kind, frames.join(", "))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::COST;
    use crate::scenario::result::tests::report;
    use crate::scenario::{Evenness, ProfileReport, StageFailure, short_name};

    #[test]
    fn a_report_says_what_was_not_as_it_should_be() {
        let mut report = report("sharding");
        report.is_quick = true;
        report.interrupted = true;
        report.warnings.push("no memory limit: it is not allowed".into());
        report.failures.push(StageFailure { stage: "3-nodes get".into(), why: "node 2 ended".into() });
        report.clusters[0].knees[0].profiles.push(ProfileReport {
            point: "knee".into(),
            kind: "cpu".into(),
            dir: "profiles".into(),
            top: String::new(),
            missing: Some("it cannot".into()),
        });
        let text = report.markdown();
        for said in [
            "Quick:",
            "Interrupted:",
            "no memory limit",
            "Failed: 3-nodes get: node 2 ended",
            "no profile of 3-nodes, put, knee: it cannot",
        ] {
            assert!(text.contains(&format!("> **{said}")), "{said} in {text}");
        }
    }

    #[test]
    fn a_report_says_how_much_more_and_longer_the_published_one_measured() {
        let mut report = report("quorum");
        let published = "Published: 517 MB on each node and 1.92 GB for the mix, runs of 1 minute, 64 connections of 4 \
                         threads; here: one copy of ";
        let all_cached = "; all of it fits in memory, and GETs are served from caches";
        let said = format!(
            "{published}97.66KB, runs of 60 s (5 s in searches and comparisons), 64 connections of 1 thread{all_cached}.\n"
        );
        assert!(report.markdown().contains(&said), "{}", report.markdown());
        report.clusters[0].keys = 2_000_000;
        let said =
            format!("{published}190.73MB, runs of 60 s (5 s in searches and comparisons), 64 connections of 1 thread.");
        assert_eq!(report.less(), Some(said), "three copies are more than half of a GiB");
        report.clusters[0].memory_limit_bytes = Some(400 << 20);
        let said = report.less().unwrap();
        assert!(said.contains("190.73MB, limit 400.00MB a node, runs") && said.contains(all_cached), "{said}");
        report.clusters[0].memory_limit_bytes = Some(300 << 20);
        assert!(!report.less().unwrap().contains(all_cached), "each node has a copy");
        report.clusters.clear();
        assert_eq!(report.less(), None);
    }

    #[test]
    fn evenness_stands_beside_what_the_report_counted() {
        let mut report = report("sharding");
        report.clusters[0].evenness.push(Evenness::of("records", vec![30.0, 30.0, 33.0]));
        let text = report.markdown();
        assert!(text.contains("| report | tables, murmur3 | 1.061 | 0.951 | 27 26 29 |"), "{text}");
        assert!(text.contains("| 3-nodes | records | 1.065 | 0.968 | 30 30 33 |"), "{text}");
    }

    #[test]
    fn the_page_has_what_the_text_has() {
        let dir = tempfile::tempdir().unwrap();
        let report = report("sharding");
        report.save(dir.path()).unwrap();
        let [text, page] = ["report.md", "report.html"].map(|of| std::fs::read_to_string(dir.path().join(of)).unwrap());
        let cost = ["3-nodes", "2/3", "97.66KB", "put", "knee", "20.0", "1.00", "-", "0.00B"];
        assert_eq!(report.cost()[0], cost);
        for row in [&COST, &cost] {
            assert!(text.contains(&row.join(" | ")) && page.contains(&row.join("\",\"")), "{row:?}");
        }
        let less = report.less().unwrap();
        assert!(text.contains(&less) && page.contains(&less) && page.contains("tables, murmur3"), "{page}");
    }

    #[test]
    fn blocks_are_told_for_each_replica_that_was_asked() {
        let told = |workload: &str, settings: &[(&str, &str)]| {
            let mut report = report("quorum");
            let cluster = &mut report.clusters[0];
            cluster.settings = settings.iter().map(|&(name, value)| (name.into(), value.into())).collect();
            cluster.knees[0].workload = workload.into();
            // One block and half a hedge for a request, at 2/3.
            let row = format!("| 2/3 | 97.66KB | {} | knee | 20.0 | 1.00 | ", short_name(workload));
            let text = report.markdown();
            let rest = text.split_once(&row).unwrap_or_else(|| panic!("{row} in {text}")).1;
            rest.split(' ').next().unwrap().to_owned()
        };
        assert_eq!(told("get", &[]), "0.40", "2 and a half");
        assert_eq!(told("mixed:put=50,get=50", &[]), "0.67", "half of 2, and a half");
        assert_eq!(told("put", &[]), "-", "none was asked");
        let all = ("KVORUM_COORDINATOR_READ_FANOUT", "all");
        assert_eq!(told("get", &[all]), "0.29", "3 and a half");
    }
}
