//! Seeds without a violation, and runs that are the same when they are run again. `kvorum-sim --seed N --trace`
//! replays one that fails. `SEEDS=1000..2000` runs others.

use kvorum_sim::world::{Report, run};

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

fn checked(seed: u64) -> Report {
    let report = run(seed, false);
    if let Some(violation) = &report.violation {
        panic!("seed {seed}: {violation}\nreplay with: kvorum-sim --seed {seed} --trace");
    }
    report
}

#[test]
fn no_seed_violates_anything() {
    let seeds = seeds();
    let count = seeds.end - seeds.start;
    let reports: Vec<Report> = seeds.map(checked).collect();
    let sum = |figure: fn(&Report) -> u64| reports.iter().map(figure).sum::<u64>();
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
