//! Random histories of one key over the production code of replica, write and read, with a monitor of
//! linearizability; and that the monitor notices when any one rule is taken away.
//!
//! A violation prints its seed and its history. `QUORUM_SEED=n` plays that one history again and prints it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub
)]

mod anti_entropy;
mod chance;
mod history;
mod monitor;
mod node;
mod rules;
mod settings;

use std::ops::Range;

use history::{Counts, play};
use rules::Without;

/// Histories of the normal suite.
const HISTORIES: u64 = 30_000;
/// Histories within which a missing rule must show.
const HISTORIES_UNTIL_NOTICED: u64 = 20_000;
/// The same where it is rare that it matters: since an excuse needs a majority (decision 0044), a GC watermark gives
/// one seldom; and in a quarter of the histories a deferred store must arrive after a restart.
const RARE_UNTIL_NOTICED: u64 = 100_000;

fn seeds() -> Range<u64> {
    let Ok(seed) = std::env::var("QUORUM_SEED") else { return 0..HISTORIES };
    let seed = seed.parse().expect("QUORUM_SEED is a number");
    println!("{}", play(seed, Without::Nothing, true).log.join("\n"));
    seed..seed + 1
}

#[test]
fn every_history_is_linearizable_and_ends_in_a_readable_key() {
    let mut counts = Counts::default();
    for seed in seeds() {
        let ended = play(seed, Without::Nothing, false);
        if !ended.linearizable || !ended.live {
            let log = play(seed, Without::Nothing, true).log.join("\n");
            panic!("seed {seed}: linearizable {}, live {}:\n{log}", ended.linearizable, ended.live);
        }
        counts += ended.counts;
    }
    println!("{counts:?}");
    let least = if seeds() == (0..HISTORIES) { 100 } else { 0 };
    assert!(counts.each().iter().all(|count| *count >= least), "something hardly ever happened: {counts:?}");
}

#[test]
fn every_missing_rule_is_noticed() {
    for without in Without::ALL {
        let is_rare = matches!(without, Without::GcWatermarkIsNoExcuse | Without::DeferredIsNoPromise);
        let noticed = (0..if is_rare { RARE_UNTIL_NOTICED } else { HISTORIES_UNTIL_NOTICED }).find(|seed| {
            let ended = play(*seed, without, false);
            !ended.linearizable || !ended.live
        });
        println!("without {without:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "no history misses {without:?}");
    }
}
