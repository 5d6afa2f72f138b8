//! `kvorum-sim`: runs seeds, and replays one.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use kvorum_sim::world::{Report, run};

/// Runs simulated clusters with faults, and checks what they promise.
#[derive(Parser)]
struct Arguments {
    /// Replay this one run.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run these seeds: 0..300.
    #[arg(long, value_parser = parse_range)]
    seeds: Option<Range<u64>>,
    /// Print every event.
    #[arg(long)]
    trace: bool,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let bounds = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    bounds.filter(|range| !range.is_empty()).ok_or_else(|| "give the first seed and the end, as 0..300".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => seed..seed + 1,
        (None, seeds) => seeds.unwrap_or(0..300),
    };
    let begin = Instant::now();
    let (mut runs, mut failed) = (0_u32, 0_u32);
    let (mut faults, mut disturbed, mut requests, mut succeeded) = (0, 0, 0, 0);
    for seed in seeds.clone() {
        let report = run(seed, arguments.trace);
        if seeds.end - seeds.start == 1 || report.violation.is_some() {
            print(&report);
        }
        runs += 1;
        faults += report.faults;
        disturbed += report.disturbed;
        requests += report.requests;
        succeeded += report.succeeded;
        failed += u32::from(report.violation.is_some());
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{runs} seeds in {seconds:.1} s, {:.1} a second; a seed has {:.1} faults, {} disturbed frames and {} requests, \
         of which {}% succeed; {failed} violations",
        f64::from(runs) / seconds,
        figure(faults) / f64::from(runs),
        disturbed / u64::from(runs),
        requests / usize::try_from(runs).unwrap_or(1),
        succeeded * 100 / requests.max(1),
    );
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn figure(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

fn print(report: &Report) {
    let Report { seed, trace_hash, faults, disturbed, requests, .. } = report;
    println!(
        "seed {seed}: trace {trace_hash:016x}, {faults} faults, {disturbed} disturbed frames, {requests} requests"
    );
    if let Some(violation) = &report.violation {
        println!("VIOLATION: {violation}\nreplay with: kvorum-sim --seed {seed} --trace");
    }
}
