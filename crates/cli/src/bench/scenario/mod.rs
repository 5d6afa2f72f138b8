//! `bench scenario`: the five published measurements, end to end, from their descriptions in `kvorum-load`.
//!
//! Owns the processes that it starts: they are gone when it returns, and their data with them. A stage that fails is
//! named in the report and ends its group of clusters; the next group is run all the same.

mod kept;
mod limits;
mod nodes;
mod place;
mod profile;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use kept::{ReportDir, is_whole};
use kvorum_load::compare::{COMPARISON_FILE, PairedRuns, Pairing, Side, compare, live};
use kvorum_load::fill::fill;
use kvorum_load::knee::{Objective, SearchInput, knee};
use kvorum_load::nodes::figures;
use kvorum_load::report::{Document, RUN_FILE, read_document, save, write_json};
use kvorum_load::run::{Rate, RunPlan, run};
use kvorum_load::scenario::{
    ClusterReport, Data, Evenness, Group, KneeReport, OBJECTIVE_P99_MS, PairedClusters, PointReport, ProfileReport,
    SCENARIOS, Scale, Scenario, ScenarioReport, SearchPoint, Stage, StageFailure, THREADS, published, short_name,
    write_index,
};
use kvorum_load::workload::{ValueSize, Workload};
use limits::Hierarchy;
use nodes::{Order, ScenarioNodes, has_ended};
use profile::{Session, profiles};
use rustix::process::Pid;

use super::args::{ProgressForm, ScenarioArgs};
use super::lines::{Lines, bar, say, tell_turn, warn};
use crate::outcome::ExitOutcome;

/// Requests under way on one connection while data is written that is to be there.
const FILL_PIPELINE: usize = 8;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Of the run at half of a knee.
const HALF_WARMUP: Duration = Duration::from_secs(5);
const SETTLE_PERIOD: Duration = Duration::from_millis(200);
/// The clusters whose coordinator a try profiles have so many nodes.
const QUICK_PROFILES_NODES: u64 = 3;
/// How soon a dead node is noticed.
const WATCH_PERIOD: Duration = Duration::from_millis(20);

/// `kvorum bench scenario`
pub(super) fn scenario(args: &ScenarioArgs, stop: &Arc<AtomicBool>, commit: &str) -> Result<ExitOutcome> {
    if args.render {
        return render(args);
    }
    let machine = place::machine();
    // Not every path is UTF-8.
    let command: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let command = format!("kvorum {}", command.join(" "));
    let mut outcome = ExitOutcome::Done;
    args.chosen().try_for_each(|scenario| ReportDir::of(args, scenario).check(args))?;
    for scenario in args.chosen() {
        let report = ScenarioReport::new(scenario, &args.scale(), machine.clone(), commit.to_owned(), command.clone());
        match measure(args, stop, scenario, report) {
            Ok(true) => {}
            Ok(false) if outcome == ExitOutcome::Done => outcome = ExitOutcome::NotFound,
            Ok(false) => {}
            // The others are worth having all the same.
            Err(error) => {
                warn(format_args!("{}: {error:#}", scenario.name));
                outcome = ExitOutcome::Usage;
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(outcome)
}

/// Writes the reports of saved results anew.
fn render(args: &ScenarioArgs) -> Result<ExitOutcome> {
    let mut rendered = 0;
    for scenario in args.chosen() {
        let name = scenario.name;
        if ReportDir::of(args, scenario).render()? {
            say(format_args!("{name}: {}", args.out.join(name).join("report.md").display()));
            rendered += 1;
        }
    }
    if rendered == 0 {
        bail!("{} has no such report", args.out.display());
    }
    write_index(&args.out)?;
    Ok(ExitOutcome::Done)
}

/// One of them, written below `--out`. Whether all of it was done.
fn measure(args: &ScenarioArgs, stop: &Arc<AtomicBool>, scenario: &Scenario, report: ScenarioReport) -> Result<bool> {
    let kept = ReportDir::of(args, scenario);
    let dir = kept.prepare()?;
    let (scale, halt, stage) = (args.scale(), Arc::default(), String::new());
    let report = Runner { args, scale, stop, dir, scenario, report, halt, stage }.run();
    let saved = report.save(dir).map_err(Into::into).and_then(|()| kept.replace(&report));
    if saved.is_err() {
        // Its figures are not lost with its files.
        say(format_args!("{}", report.markdown()));
    }
    let indexed = write_index(&args.out);
    let at = saved?;
    indexed?;
    say(format_args!("{}: {:.0} s, {}", scenario.name, report.seconds, at.join("report.md").display()));
    if at == dir {
        warn(format_args!("{}: it is not whole, and does not replace the whole report before it", scenario.name));
    }
    Ok(is_whole(&report))
}

struct Runner<'a> {
    args: &'a ScenarioArgs,
    scale: Scale,
    stop: &'a Arc<AtomicBool>,
    dir: &'a Path,
    scenario: &'a Scenario,
    report: ScenarioReport,
    /// Ends what runs: set when the user asks for it, and when a node of the group has died.
    halt: Arc<AtomicBool>,
    /// What is being done, for the output and for the report of a failure.
    stage: String,
}

/// Sets it when it is dropped, also by a panic, so that no wait for it lasts for ever.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A cluster that runs, and its place in the report.
struct RunningCluster {
    nodes: ScenarioNodes,
    place: usize,
    plan: RunPlan,
}

impl Runner<'_> {
    fn run(mut self) -> ScenarioReport {
        let begin = Instant::now();
        for group in self.scenario.groups {
            if self.stopped() {
                break;
            }
            if let Err(error) = self.group(group)
                && !self.stopped()
            {
                let failure = StageFailure { stage: self.stage.clone(), why: format!("{error:#}") };
                warn(format_args!("{} failed: {}", failure.stage, failure.why));
                self.report.failures.push(failure);
            }
        }
        self.report.interrupted = self.stopped();
        self.report.seconds = begin.elapsed().as_secs_f64();
        self.report
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }

    /// Whether to go on to this; if so, it is printed.
    fn begin(&mut self, cluster: &str, stage: &str) -> bool {
        if self.halted() {
            return false;
        }
        self.stage = format!("{} {cluster}: {stage}", self.scenario.name);
        say(format_args!("== {}", self.stage));
        true
    }

    /// Its clusters end with it, however it does.
    fn group(&mut self, group: &Group) -> Result<()> {
        self.halt = Arc::default();
        let mut running = Vec::new();
        for cluster in group.clusters {
            self.begin(cluster.name, "start");
            running.push(self.start(cluster, group)?);
        }
        let (halt, stop, ended) = (self.halt.clone(), self.stop.clone(), AtomicBool::new(false));
        let processes: Vec<Pid> = running.iter().flat_map(|one| one.nodes.processes()).collect();
        let done = thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    if stop.load(Ordering::Relaxed) || processes.iter().any(|process| has_ended(*process)) {
                        halt.store(true, Ordering::Relaxed);
                    }
                    thread::sleep(WATCH_PERIOD);
                }
            });
            let _ends = AtEnd(&ended);
            self.stages(group, &running)
        });
        match running.iter_mut().find_map(|one| one.nodes.death()) {
            Some(death) => Err(anyhow!(death)),
            None => done,
        }
    }

    /// Ends early, and as if all were well, once `halt` is set.
    fn stages(&mut self, group: &Group, running: &[RunningCluster]) -> Result<()> {
        for one in running {
            self.fill(one)?;
        }
        for stage in group.stages {
            match stage {
                Stage::Knee { workload } => {
                    for one in running {
                        self.knee(one, workload)?;
                    }
                }
                Stage::Compare { workload, rate } => self.compare(running, workload, *rate)?,
            }
        }
        Ok(())
    }

    fn start(&mut self, cluster: &kvorum_load::scenario::Cluster, group: &Group) -> Result<RunningCluster> {
        let mut report = ClusterReport::new(cluster, group.from, group.data.keys_and_value_bytes(&self.scale));
        let process = format!("scenario-{}", std::process::id());
        let root = self.args.data_dir.join(process).join(self.scenario.name).join(cluster.name);
        let order = |memory_limit| Order { cluster, root: &root, keep: self.args.keep, memory_limit, stop: self.stop };
        let nodes = match group.data {
            Data::Keys => ScenarioNodes::start(&order(None))?,
            Data::Memory { limit_bytes } => match usable(limit_bytes) {
                Ok(hierarchy) => {
                    report.memory_limit_bytes = Some(limit_bytes);
                    ScenarioNodes::start(&order(Some((&hierarchy, limit_bytes))))?
                }
                Err(why) => {
                    let warning = format!("NO MEMORY LIMIT: {why}. The nodes may use all of the machine's memory.");
                    warn(format_args!("{warning}"));
                    self.report.warnings.push(warning);
                    ScenarioNodes::start(&order(None))?
                }
            },
        };
        let plan = self.plan(&nodes, group, &report);
        self.report.clusters.push(report);
        Ok(RunningCluster { nodes, place: self.report.clusters.len() - 1, plan })
    }

    /// What all runs of a cluster have in common: they go to one coordinator.
    fn plan(&self, nodes: &ScenarioNodes, group: &Group, report: &ClusterReport) -> RunPlan {
        RunPlan {
            targets: nodes.targets().take(1).cloned().collect(),
            api: "/v0/entity?id={key}".parse().expect("kvorum's own"),
            workload: workload("put"),
            key_order: None,
            first_key: 0,
            keys: report.keys,
            only_keys: None,
            value_size: ValueSize::Fixed(report.value_bytes),
            compressible: false,
            ack: None,
            from: group.from,
            rate: Rate::Max,
            connections: group.connections,
            threads: THREADS,
            pipeline: 1,
            batch: 1,
            duration: self.scale.duration,
            warmup: self.scale.warmup,
            grace: Duration::ZERO,
            timeout: REQUEST_TIMEOUT,
            operations_max: None,
            watch: true,
            seed: 1,
        }
    }

    fn cluster(&mut self, one: &RunningCluster) -> &mut ClusterReport {
        self.report.clusters.get_mut(one.place).expect("its place was given when it was started")
    }

    fn fill(&mut self, one: &RunningCluster) -> Result<()> {
        let (name, keys, value_bytes) = {
            let cluster = self.cluster(one);
            (cluster.name.clone(), cluster.keys, cluster.value_bytes)
        };
        if !self.begin(&name, &format!("fill with {keys} keys of {value_bytes} bytes")) {
            return Ok(());
        }
        let begin = Instant::now();
        let plan = RunPlan { pipeline: FILL_PIPELINE, ..one.plan.clone() };
        let bar = bar(keys, "{wide_bar} {pos}/{len} keys  ETA {eta}");
        let filled = fill(&plan, &self.halt, &mut |done| bar.set_position(done))?;
        bar.finish_and_clear();
        if filled.interrupted {
            return Ok(());
        }
        self.cluster(one).fill_seconds = begin.elapsed().as_secs_f64();
        self.settle(&one.nodes);
        let evenness = evenness(&one.nodes)?;
        self.cluster(one).evenness = evenness;
        Ok(())
    }

    /// Waits until compaction has caught up with the fill: it competes with what is measured. A node that is too busy
    /// with it to answer has not. What a node says of its store may be of before the fill: then it has been given more
    /// bytes than it says that it wrote.
    fn settle(&self, nodes: &ScenarioNodes) {
        let names = [
            "kvorum_store_compaction_pending_bytes",
            "kvorum_store_written_bytes_total",
            "kvorum_commit_record_bytes_total",
        ];
        let is_settled = |[pending, written, given]: [f64; 3]| pending <= 0.0 && written >= given;
        let deadline = Instant::now() + self.scale.settle_max;
        for target in nodes.targets() {
            while !figures(target, names).is_ok_and(is_settled) {
                if self.halted() || Instant::now() > deadline {
                    return;
                }
                thread::sleep(SETTLE_PERIOD);
            }
        }
    }

    /// The knee, the runs at it, at half of it and at the report's rates, and the profiles under the first two.
    fn knee(&mut self, one: &RunningCluster, of: &str) -> Result<()> {
        let name = self.cluster(one).name.clone();
        let own = format!("{name}-{}", short_name(of));
        if !self.begin(&name, short_name(of)) {
            return Ok(());
        }
        let plan = RunPlan { workload: workload(of), ..one.plan.clone() };
        let dir = self.dir.join("runs").join(&own);
        let objective: Objective = format!("p99={OBJECTIVE_P99_MS}ms").parse().expect("an objective");
        let hunt = SearchInput {
            plan: &plan,
            objective: &objective,
            effort: self.scale.effort,
            sustained: None,
            dir: Some(&dir),
            stop: &self.halt,
        };
        let (found, searched) = knee(&hunt, &mut Lines(ProgressForm::Text));
        let knee_rate = found.knee_rate;
        let mut report = KneeReport {
            workload: of.to_owned(),
            knee_rate,
            generator_limit: found.generator_limit,
            half_missed: found.half.and_then(|half| half.missed),
            knee_missed: None,
            search: found.probes.iter().map(SearchPoint::of).collect(),
            points: Vec::new(),
            profiles: Vec::new(),
        };
        let counted = match knee_rate {
            Some(rate) if searched.is_ok() && !self.scale.is_quick && published::has_knee(self.scenario.name, of) => {
                self.knee_and_half(&plan, rate, &objective, &dir, &mut report)
            }
            _ => read_points(&mut report, &dir),
        };
        let done = searched.map_err(Into::into).and(counted).and_then(|()| {
            let points = report.points.clone();
            // Right behind half the knee, so that nothing is measured beside what a higher rate has left to do.
            let mut rates = self.published_rates(one, &report).into_iter();
            let at = |rate: u64| (rate, rate.to_string(), dir.join(format!("at-{rate}")));
            let measured = rates.try_for_each(|rate| self.at(&plan, at(rate), &mut report).map(drop));
            // A try shows that profiles are taken; it need not take all of them.
            let is_shown = self.cluster(one).nodes == QUICK_PROFILES_NODES && short_name(of) != "mixed";
            if is_shown || !self.scale.is_quick {
                report.profiles = self.profiles(one, &plan, &points, &own);
            }
            measured
        });
        // A knee that was found is in the report, whatever failed after it.
        if knee_rate.is_some() || (done.is_ok() && !self.halted()) {
            self.cluster(one).knees.push(report);
        }
        done
    }

    /// Of the coordinator, at the knee and at half of it: half first, which is not to be beside what the knee has left
    /// to do. A try shows that it is done, with the knee.
    fn profiles(&self, one: &RunningCluster, plan: &RunPlan, points: &[PointReport], own: &str) -> Vec<ProfileReport> {
        let points = points.iter().take(if self.scale.is_quick { 1 } else { points.len() });
        let session = |point: &PointReport| {
            profiles(&Session {
                // Other keys than any run asked for, which caches have.
                plan: RunPlan { rate: Rate::PerSecond(point.rate_asked), seed: !point.rate_asked, ..plan.clone() },
                admin_url: one.nodes.admin_url(),
                seconds: self.scale.profile_seconds,
                report_dir: self.dir,
                dir: format!("profiles/{own}/{}", point.name),
                point: &point.name,
                stop: &self.halt,
            })
        };
        let mut taken: Vec<_> = points.rev().take_while(|_| !self.halted()).map(session).collect();
        taken.reverse();
        taken.concat()
    }

    /// Rates of the report that are sustained here, at which it has latencies to compare.
    fn published_rates(&mut self, one: &RunningCluster, knee: &KneeReport) -> Vec<u64> {
        let nodes = self.cluster(one).nodes;
        let mut rates: Vec<u64> = published::figures(self.scenario.name)
            .filter(|of| u64::from(of.nodes) == nodes && of.workload == short_name(&knee.workload))
            .filter(|of| {
                of.latency_ms.iter().any(Option::is_some) && knee.knee_rate.is_some_and(|knee| of.rate <= knee)
            })
            .map(|of| of.rate)
            .collect();
        rates.sort_unstable();
        rates.dedup();
        rates
    }

    /// At the knee and at half of it for as long as the report measured, in the place of the shorter runs of the
    /// search: half of it after a while, so that it is not measured beside what the knee has left to do.
    fn knee_and_half(
        &self,
        plan: &RunPlan,
        rate: u64,
        objective: &Objective,
        dir: &Path,
        report: &mut KneeReport,
    ) -> Result<()> {
        let knee = self.at(plan, (rate, "knee".into(), dir.join("knee")), report)?;
        report.knee_missed = knee.and_then(|run| objective.missed(&run));
        let plan = RunPlan { warmup: plan.warmup.max(HALF_WARMUP), ..plan.clone() };
        if let Some(half) = self.at(&plan, ((rate / 2).max(1), "half".into(), dir.join("half")), report)? {
            report.half_missed = objective.missed(&half);
        }
        Ok(())
    }

    /// At a rate, under a name, for as long as the report measured. Adds nothing if it was interrupted: what there was
    /// of it is not of that rate.
    fn at(
        &self,
        plan: &RunPlan,
        (rate, name, dir): (u64, String, PathBuf),
        report: &mut KneeReport,
    ) -> Result<Option<Document>> {
        if self.halted() {
            return Ok(None);
        }
        // Other keys than the search asked for, which caches have.
        let seed = plan.seed.wrapping_add(rate);
        let duration = self.scale.counted(self.scenario);
        let plan = RunPlan { rate: Rate::PerSecond(rate), seed, duration, ..plan.clone() };
        let outcome = run(&plan, &self.halt, &mut |_| {})?;
        if outcome.interrupted {
            return Ok(None);
        }
        let document = Document::new(&plan, &outcome);
        report.points.push(PointReport::of(&name, &document));
        save(&dir, &outcome, &document)?;
        Ok(Some(document))
    }

    fn compare(&mut self, running: &[RunningCluster], of: &str, rate: u64) -> Result<()> {
        let [a, b] = running else { return Err(anyhow!("a comparison is of two clusters, not {}", running.len())) };
        let names = [a, b].map(|one| self.cluster(one).name.clone());
        let nodes = self.cluster(a).nodes;
        if !self.begin(&names.join(" and "), &format!("{} at {rate}/s, in turns", short_name(of))) {
            return Ok(());
        }
        let plan = RunPlan { workload: workload(of), rate: Rate::PerSecond(rate), ..a.plan.clone() };
        let dir: PathBuf = self.dir.join("runs").join(format!("compare-{}", short_name(of)));
        let contest = PairedRuns { plan: &plan, pairs: self.scale.pairs, dir: Some(&dir), stop: &self.halt };
        let [side_a, side_b] = [a, b].map(|one| Side::Servers(one.plan.targets.clone()));
        let ([runs_a, runs_b], ended) =
            live(&contest, &side_a, &side_b, &mut |turn| tell_turn(turn, ProgressForm::Text));
        if runs_a.is_empty() {
            return Ok(ended?);
        }
        let [name_a, name_b] = &names;
        let comparison = compare([name_a, name_b], &runs_a, &runs_b, Pairing::Pairs);
        say(format_args!("{}", comparison.text().trim_end()));
        let written = write_json(&dir.join(COMPARISON_FILE), &comparison);
        self.report.contests.push(PairedClusters { workload: of.to_owned(), rate, nodes, comparison });
        Ok(ended.and(written)?)
    }
}

/// The runs that a search has saved, of a knee that it has found.
fn read_points(report: &mut KneeReport, dir: &Path) -> Result<()> {
    for point in ["knee", "half"] {
        let file = dir.join(point).join(RUN_FILE);
        if report.knee_rate.is_some() && file.is_file() {
            report.points.push(PointReport::of(point, &read_document(&file)?));
        }
    }
    Ok(())
}

fn workload(name: &str) -> Workload {
    name.parse().expect("descriptions name workloads that there are")
}

/// Where memory can be limited, tried out.
fn usable(limit_bytes: u64) -> Result<Hierarchy, String> {
    let hierarchy = Hierarchy::find()?;
    hierarchy.group(&format!("kvorum-bench-{}-try", std::process::id()), limit_bytes)?;
    Ok(hierarchy)
}

/// What each node holds, and what it was asked.
fn evenness(nodes: &ScenarioNodes) -> Result<Vec<Evenness>> {
    let names = [
        "kvorum_store_records",
        "kvorum_store_table_bytes",
        "kvorum_store_memtable_bytes",
        "kvorum_commit_records_total",
        "kvorum_http_requests_total",
    ];
    let counts = nodes.targets().map(|target| figures(target, names)).collect::<Result<Vec<_>, _>>()?;
    let of = |what: &str, value: fn(&[f64; 5]) -> f64| Evenness::of(what, counts.iter().map(value).collect());
    Ok(vec![
        of("records, estimated", |[records, ..]| *records),
        of("bytes, tables and write buffers", |[_, tables, memtables, ..]| tables + memtables),
        of("writes taken as a replica", |[.., records, _]| *records),
        of("HTTP requests", |[.., requests]| *requests),
    ])
}

impl ScenarioArgs {
    fn chosen(&self) -> impl Iterator<Item = &'static Scenario> {
        SCENARIOS.iter().filter(|scenario| self.name == "all" || self.name == scenario.name)
    }

    fn scale(&self) -> Scale {
        let scale = if self.quick { Scale::quick(self.duration) } else { Scale::full(self.duration) };
        Scale { keys: self.keys.unwrap_or(scale.keys), ..scale }
    }
}
