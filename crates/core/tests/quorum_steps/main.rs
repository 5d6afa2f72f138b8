//! Random histories of one key while it moves: its layout changes in steps, over the production code of write, read and
//! replica, with a monitor of linearizability; and that the monitor notices when any one rule is taken away.
//!
//! A layout opens a step, and the step flips or is aborted. Each coordinator and each replica knows another layout.
//! Bars, passes and flips are not production code yet: here they follow the model that decision 0075 was checked with.
//!
//! Left out: values that end, GC watermarks and fences, hints, clean-up, requests below a quorum, disks that are lost.
//! `quorum_histories` has the first three where no key moves.
//!
//! A violation prints its seed and its history. `QUORUM_SEED=n` plays that one history again and prints it.
//! `KVORUM_TEST_HISTORIES=n` plays so many.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub
)]

#[path = "../quorum_histories/chance.rs"]
mod chance;
mod coordinator;
mod driver;
mod history;
mod layouts;
#[path = "../quorum_histories/monitor.rs"]
mod monitor;
mod replica;
mod without;

use std::ops::Range;

use history::{Happened, play};
use without::Without;

/// Histories of the normal suite.
const HISTORIES: u64 = 150_000;
/// Histories within which a missing rule must show.
const HISTORIES_UNTIL_NOTICED: u64 = 50_000;
/// The same where it is rare that it matters: after a flip that waited for nothing, nodes that are not synced abstain.
const RARE_UNTIL_NOTICED: u64 = 200_000;

fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    if let Some(seed) = number("QUORUM_SEED") {
        println!("{}", play(seed, Without::Nothing, true).log.join("\n"));
        return seed..seed + 1;
    }
    0..number("KVORUM_TEST_HISTORIES").unwrap_or(HISTORIES)
}

#[test]
fn every_history_is_linearizable_and_ends_in_a_readable_key() {
    let (mut happened, seeds) = (Happened::default(), seeds());
    for seed in seeds.clone() {
        let ended = play(seed, Without::Nothing, false);
        if !ended.linearizable || !ended.live {
            let log = play(seed, Without::Nothing, true).log.join("\n");
            panic!("seed {seed}: linearizable {}, live {}:\n{log}", ended.linearizable, ended.live);
        }
        happened += ended.happened;
    }
    println!("{} histories: {happened:?}", seeds.end - seeds.start);
    let least = if seeds.end - seeds.start >= HISTORIES { 100 } else { 0 };
    assert!(happened.each().iter().all(|count| *count >= least), "something hardly ever happened: {happened:?}");
}

#[test]
fn every_missing_rule_is_noticed() {
    for without in Without::ALL {
        let is_rare = without == Without::SyncBeforeFlip;
        let mut stuck = 0;
        let noticed = (0..if is_rare { RARE_UNTIL_NOTICED } else { HISTORIES_UNTIL_NOTICED }).find(|seed| {
            let ended = play(*seed, without, false);
            stuck += u64::from(!ended.live);
            !ended.linearizable
        });
        println!("without {without:?}: seed {noticed:?}, {stuck} histories before it ended without a readable key");
        assert!(noticed.is_some(), "no history misses {without:?}");
    }
}
