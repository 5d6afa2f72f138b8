//! Seeds without a violation, and runs that are the same when they are run again. `kvorum-sim --seed N --trace`
//! replays one that fails. `SEEDS=1000..2000` runs others.
//!
//! `traces.txt` has the hash of each seed's trace. A change that only moves code changes none of them. One that changes
//! what nodes do, or draws other chances, changes many: then `RECORD=1` writes the file anew, with the reason in the
//! commit's message.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use kvorum_sim::run::run;
use kvorum_sim::trace::TraceText;
use kvorum_sim::world::RunReport;

/// Run in any case.
const SEEDS: std::ops::Range<u64> = 0..300;
/// Of these, so many are run twice.
const TWICE: u64 = 50;
/// What a seed must have on average, or the runs show little.
const FAULTS_MIN: u64 = 10;

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("SEEDS") else { return SEEDS };
    let bounds = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    bounds.expect("SEEDS is the first seed and the end, as 1000..2000")
}

fn checked(seed: u64) -> RunReport {
    let report = run(seed, TraceText::Omitted);
    if let Some(violation) = &report.violation {
        panic!("seed {seed}: {violation}\nreplay with: kvorum-sim --seed {seed} --trace");
    }
    report
}

fn compare_traces(reports: &[RunReport]) {
    let text: String = reports.iter().map(|report| format!("{:016x}\n", report.trace_hash)).collect();
    if std::env::var_os("RECORD").is_some() {
        std::fs::write("tests/traces.txt", &text).unwrap();
    }
    let recorded = std::fs::read_to_string("tests/traces.txt").unwrap();
    let lines = recorded.lines().zip(text.lines());
    let changed: Vec<u64> = SEEDS.zip(lines).filter(|(_, (before, now))| before != now).map(|(seed, _)| seed).collect();
    assert!(
        recorded.lines().count() == reports.len() && changed.is_empty(),
        "{} traces are not those of traces.txt (see the top of this file): seeds {:?} ...",
        changed.len(),
        &changed[..changed.len().min(10)]
    );
}

#[test]
fn no_seed_violates_anything() {
    let seeds = seeds();
    let count = seeds.end - seeds.start;
    let is_usual = seeds == SEEDS;
    let reports: Vec<RunReport> = seeds.map(checked).collect();
    if is_usual {
        compare_traces(&reports);
    }
    let sum = |figure: fn(&RunReport) -> u64| reports.iter().map(figure).sum::<u64>();
    assert!(sum(|report| report.faults) >= FAULTS_MIN * count, "too few faults");
    assert!(sum(|report| report.succeeded) * 4 >= sum(|report| report.requests), "most requests fail");
}

#[test]
fn a_seed_is_one_run() {
    for seed in SEEDS.take(usize::try_from(TWICE).expect("few")) {
        assert_eq!(checked(seed).trace_hash, checked(seed).trace_hash, "seed {seed}");
    }
}

#[test]
fn seeds_differ() {
    assert_ne!(checked(0).trace_hash, checked(1).trace_hash);
}
