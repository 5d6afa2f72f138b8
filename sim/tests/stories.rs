//! The stories of `sim/src/stories`.

use kvorum_sim::stories::{deletions, endings, losses, strangers};

/// Rounds of deletions altogether.
const DELETIONS_MIN: u64 = 1000;
/// Seeds of strangers: a third of them without a secret, with one, and with one that was stolen.
const STRANGERS: u64 = 30;
/// Seeds of losses.
const LOSSES: u64 = 20;
/// Seeds of endings.
const ENDINGS: u64 = 40;

#[test]
fn no_deleted_key_comes_back() {
    let mut total = deletions::DeletionsDone::default();
    for seed in 0..DELETIONS_MIN / deletions::ROUNDS {
        let done = deletions::run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        total.rounds += done.rounds;
        total.restored += done.restored;
        total.deleted += done.deleted;
    }
    println!("{total:?}");
    assert!(total.rounds >= DELETIONS_MIN && total.restored > total.rounds / 20, "{total:?}");
}

#[test]
fn nothing_that_calls_in_the_name_of_a_node_changes_anything() {
    for seed in 0..STRANGERS {
        strangers::run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn what_has_ended_has_ended_for_good_and_takes_no_space() {
    for seed in 0..ENDINGS {
        endings::run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn nothing_is_lost_with_a_disk() {
    for seed in 0..LOSSES {
        losses::run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}
