//! The read machine against a plain specification (`spec.rs`), through everything that can happen
//! (`explore.rs`): every order of every mix of answers, failures, hedges and answers to write-backs.
//!
//! Up to three replicas: three versions with each of two GC watermarks, two versions with three GC watermarks. With
//! four and five the states multiply: two versions with each of two GC watermarks; and for five, where replicas that
//! differ only in name are explored once, three versions without hedge, and below `ack=5` without refused write-backs.
//! The rest is left to chance in `quorum_histories`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub
)]

mod explore;
mod spec;

use explore::{Explorer, Scenario};

/// Two versions, older and newer, of records that ask for `from` replicas.
fn two(from: u8) -> Vec<(u64, usize)> {
    vec![(2, usize::from(from)), (4, usize::from(from))]
}

fn three(from: u8) -> Vec<(u64, usize)> {
    [two(from), vec![(6, usize::from(from))]].concat()
}

fn run(scenario: &Scenario) {
    let explored = Explorer::run(scenario);
    println!("{} states, endings {:?}: {scenario:?}", explored.states(), explored.endings);
    assert!(explored.endings.iter().all(|count| *count > 0), "some ending never came: {scenario:?}");
}

/// Every set of `ack` of `from` replicas, with every choice of one of them.
fn every_first(ack: u8, from: u8) -> Vec<(Vec<u8>, u8)> {
    let sets = (0..1_u32 << from).filter(|set| set.count_ones() == u32::from(ack));
    let ranks = sets.map(|set| (0..from).filter(|rank| set >> rank & 1 == 1).collect::<Vec<u8>>());
    ranks.flat_map(|first| first.clone().into_iter().map(move |rank| (first.clone(), rank))).collect()
}

#[test]
fn up_to_three_replicas_everything() {
    for from in 1..=3 {
        for ack in 1..=from {
            run(&Scenario::new(ack, from, &three(from), &[0]));
            run(&Scenario::new(ack, from, &three(from), &[5]));
            run(&Scenario { tombstones: vec![4], ..Scenario::new(ack, from, &two(from), &[0, 3, 5]) });
        }
    }
}

#[test]
fn whoever_is_asked_first() {
    for from in 1..=3 {
        for ack in 1..=from {
            for (first, record_from) in every_first(ack, from) {
                run(&Scenario { first, record_from, ..Scenario::new(ack, from, &two(from), &[0, 3]) });
            }
        }
        // `coordinator.read_fanout = "all"`.
        let everybody = (0..from).collect();
        run(&Scenario { first: everybody, ..Scenario::new(1, from, &two(from), &[0, 3]) });
    }
}

#[test]
fn four_replicas() {
    for ack in 1..=4 {
        run(&Scenario::new(ack, 4, &two(4), &[0]));
        run(&Scenario::new(ack, 4, &two(4), &[3]));
    }
}

#[test]
fn five_replicas() {
    for ack in 1..=5 {
        let renaming = Scenario { renaming: true, ..Scenario::new(ack, 5, &two(5), &[0]) };
        run(&renaming);
        run(&Scenario { gc_watermarks: vec![3], tombstones: vec![2], ..renaming.clone() });
        run(&Scenario { versions: three(5), refusals: ack == 5, hedge: false, ..renaming });
    }
}

#[test]
fn records_that_ask_for_fewer_or_more_replicas_than_the_reader() {
    for ack in 1..=3 {
        for older in 1..=4 {
            for newer in 1..=4 {
                run(&Scenario::new(ack, 3, &[(2, older), (4, newer)], &[3]));
            }
        }
    }
    for (older, newer) in [(5, 1), (2, 3), (1, 4)] {
        for ack in [3, 5] {
            let scenario = Scenario::new(ack, 5, &[(2, older), (4, newer)], &[0]);
            run(&Scenario { renaming: true, ..scenario });
        }
    }
}

#[test]
fn what_nobody_asked_for_changes_nothing() {
    for from in 1..=3 {
        for ack in 1..=from {
            run(&Scenario { noise: true, ..Scenario::new(ack, from, &two(from), &[0, 3]) });
        }
    }
}

/// A key with the replicas 0 to `from`, which are to be `next`: new ones have the ranks behind.
fn moving(ack: u8, from: u8, next: &[u8], versions: &[(u64, usize)], gc_watermarks: &[u64]) -> Scenario {
    let all = u8::max(from, next.iter().max().unwrap() + 1);
    let first = (0..all).collect();
    Scenario { next: next.to_vec(), first, ..Scenario::new(ack, from, versions, gc_watermarks) }
}

#[test]
fn keys_that_move() {
    // One of each is replaced, by itself and in any place.
    for (from, next) in [(1, vec![1]), (2, vec![0, 2]), (2, vec![2, 1]), (2, vec![2, 0])] {
        for ack in 1..=from {
            for gc_watermarks in [[0], [3]] {
                run(&moving(ack, from, &next, &two(from), &gc_watermarks));
                let ends_with_deletion = moving(ack, from, &next, &two(from), &gc_watermarks);
                run(&Scenario { tombstones: vec![4], noise: true, ..ends_with_deletion });
            }
        }
    }
    // A key gets another copy, or loses one, and all of its replicas are replaced.
    run(&moving(2, 2, &[0, 1, 2], &two(2), &[3]));
    run(&moving(2, 3, &[0, 1], &two(3), &[3]));
    run(&moving(2, 2, &[2, 3], &two(2), &[3]));
    run(&moving(1, 1, &[0, 1, 2], &two(1), &[3]));
    run(&moving(3, 4, &[0, 1], &two(4), &[3]));
    // {A, B, C} becomes {A, B, D}.
    for ack in 1..=3 {
        run(&Scenario { hedge: false, ..moving(ack, 3, &[0, 1, 3], &two(3), &[3]) });
    }
    // What is stored for fewer moves with the first places.
    run(&moving(2, 2, &[2, 0], &[(2, 1), (4, 2)], &[3]));
}

/// Both groups have what suffices of either alone: none that comes is needed.
#[test]
fn those_that_stay_suffice() {
    let stay = Scenario { first: vec![0, 1], hedge: false, ..moving(2, 3, &[0, 1, 3], &two(3), &[0]) };
    run(&stay);
}
