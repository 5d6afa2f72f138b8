//! `kvorum-sim`: runs seeds, and replays one.
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use kvorum_sim::run::run;
use kvorum_sim::trace::TraceText;
use kvorum_sim::world::RunReport;

/// Runs simulated clusters with faults, and checks what they promise.
#[derive(Parser)]
struct Arguments {
    /// Replay this one run.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run these seeds.
    #[arg(long, value_parser = parse_range, default_value = "0..300")]
    seeds: Range<u64>,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Plant this defect.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutant: Option<String>,
    /// Plant each defect in turn, or the one named, and say which of the seeds notices it, and which story.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutants: bool,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let bounds = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    bounds.filter(|range| !range.is_empty()).ok_or_else(|| "give the first seed and the end, as 0..300".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "mutants")]
    {
        use kvorum_core::mutant::{DEFECTS, plant};
        if arguments.mutants {
            return notice_all(&arguments.seeds, arguments.mutant.as_deref());
        }
        if let Some(name) = &arguments.mutant {
            let mut mutants = DEFECTS.iter().map(|defect| defect.mutant);
            let Some(mutant) = mutants.find(|mutant| format!("{mutant:?}") == *name) else {
                let names: Vec<_> = DEFECTS.iter().map(|defect| defect.mutant).collect();
                eprintln!("no such mutant; there are {names:?}");
                return ExitCode::FAILURE;
            };
            plant(Some(mutant));
        }
    }
    let seeds = arguments.seed.map_or(arguments.seeds, |seed| seed..seed + 1);
    let is_one = seeds.end - seeds.start == 1;
    let begin = Instant::now();
    let mut total = Total::default();
    for seed in seeds {
        let report = run(seed, if arguments.trace { TraceText::Printed } else { TraceText::Omitted });
        if is_one || report.violation.is_some() {
            print(&report);
        }
        total.add(&report);
    }
    total.print(begin.elapsed().as_secs_f64());
    if total.violations > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Of all runs.
#[derive(Default)]
struct Total {
    runs: u32,
    violations: u32,
    faults: u64,
    disturbed: u64,
    requests: u64,
    succeeded: u64,
    layouts: u64,
}

impl Total {
    fn add(&mut self, report: &RunReport) {
        self.runs += 1;
        self.violations += u32::from(report.violation.is_some());
        self.faults += report.faults;
        self.disturbed += report.disturbed;
        self.requests += report.requests;
        self.succeeded += report.succeeded;
        self.layouts += u64::try_from(report.layouts).expect("few");
    }

    fn print(&self, seconds: f64) {
        let Self { runs, violations, faults, disturbed, requests, succeeded, layouts } = *self;
        let mean = |count: u64| count / u64::from(runs);
        println!(
            "{runs} seeds in {seconds:.1} s, {:.1} a second; mean of a seed: {} faults, {} disturbed frames, {} requests \
             of which {}% succeed, {} layouts; {violations} violations",
            f64::from(runs) / seconds,
            mean(faults),
            mean(disturbed),
            mean(requests),
            succeeded * 100 / requests.max(1),
            mean(layouts),
        );
    }
}

fn print(report: &RunReport) {
    let RunReport { seed, trace_hash, faults, disturbed, requests, .. } = report;
    println!(
        "seed {seed}: trace {trace_hash:016x}, {faults} faults, {disturbed} disturbed frames, {requests} requests"
    );
    if let Some(violation) = &report.violation {
        println!("VIOLATION: {violation}\nreplay with: kvorum-sim --seed {seed} --trace");
    }
}

#[cfg(feature = "mutants")]
fn story<T>(run: fn(u64) -> Result<T, String>) -> impl Fn(u64) -> Result<(), String> {
    move |seed| run(seed).map(|_| ())
}

/// A line for each mutant: how many seeds it takes, and what was violated.
#[cfg(feature = "mutants")]
fn notice_all(seeds: &Range<u64>, only: Option<&str>) -> ExitCode {
    use kvorum_sim::stories::{deletions, endings, losses};
    type Story = Box<dyn Fn(u64) -> Result<(), String>>;
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = 0;
    for mutant in kvorum_core::mutant::DEFECTS.iter().map(|defect| defect.mutant) {
        if only.is_some_and(|only| format!("{mutant:?}") != only) {
            continue;
        }
        kvorum_core::mutant::plant(Some(mutant));
        let stories: [(_, Story); 3] = [
            ("deletions", Box::new(story(deletions::run))),
            ("endings", Box::new(story(endings::run))),
            ("losses", Box::new(story(losses::run))),
        ];
        for (name, story) in stories {
            if let Some((seed, what)) = (0..20).find_map(|seed| story(seed).err().map(|what| (seed, what))) {
                println!("{mutant:?}: story of {name}, after {} seeds: {what}", seed + 1);
            }
        }
        let noticed =
            seeds.clone().find_map(|seed| run(seed, TraceText::Omitted).violation.map(|violation| (seed, violation)));
        match noticed {
            Some((seed, violation)) => {
                let what = violation.lines().next().unwrap_or_default();
                println!("{mutant:?}: after {} seeds: {what}", seed - seeds.start + 1);
            }
            None => {
                missed += 1;
                println!("{mutant:?}: NOT NOTICED in {} seeds", seeds.end - seeds.start);
            }
        }
    }
    if missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
