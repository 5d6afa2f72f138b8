//! What a replica asks to refuse, and what a coordinator refuses of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::time::Duration;

use kvorum_core::backpressure::{Admission, Backpressure, WAITING_MAX};
use kvorum_core::quorum::Quorum;
use proptest::prelude::*;

fn level(level: u8) -> Backpressure {
    Backpressure::from_level(level)
}

#[test]
fn nothing_is_refused_up_to_the_begin_and_never_everything() {
    assert_eq!(Backpressure::of_debt(10, 10, 24), Backpressure::NONE);
    assert_eq!(Backpressure::of_debt(11, 10, 24), Backpressure::NONE, "half a level is none");
    assert_eq!(Backpressure::of_debt(12, 10, 24), level(1));
    assert_eq!(Backpressure::of_debt(24, 10, 24), Backpressure::MAX);
    assert_eq!(Backpressure::of_debt(u64::MAX, 10, 24), Backpressure::MAX);
    assert_eq!(Backpressure::of_debt(5, 10, 10), Backpressure::NONE);
    assert_eq!(Backpressure::of_debt(17, 10, 10), Backpressure::MAX, "no room between the bounds");
    assert!(Backpressure::MAX.refused_percent() < 100, "somebody must find out that it is over");
}

#[test]
fn a_write_meets_what_its_quorum_asks_for() {
    for (ack, replicas, met) in [
        (1, vec![7, 0, 7], 0),
        (2, vec![7, 0, 3], 3),
        (2, vec![7, 7, 0], 7),
        (3, vec![0, 0, 1], 1),
        (2, vec![5, 5, 5], 5),
        // One is away, and both others are needed.
        (2, vec![0, 4], 4),
        // It fails by itself.
        (2, vec![4], 0),
        (1, vec![], 0),
    ] {
        let quorum = Quorum::new(ack, 3).unwrap();
        let found = Backpressure::met_by(quorum, replicas.iter().map(|asked| level(*asked)));
        assert_eq!(found, level(met), "{ack} of {replicas:?}");
    }
}

#[test]
fn writers_are_slowed_down_before_anything_is_refused() {
    let levels: Vec<Backpressure> = (0..=7).map(level).collect();
    assert!(levels[0].delay(1 << 20).is_zero() && levels.iter().is_sorted_by_key(|level| level.delay(100)));
    assert!(levels.iter().is_sorted_by_key(|level| level.refused_percent()));
    let refusing = levels.iter().find(|level| level.refused_percent() > 0).unwrap();
    assert!(
        *refusing > level(1) && level(refusing.level() - 1).delay(100) == refusing.delay(100),
        "by all the delay first"
    );
    for (bytes, ms) in [(0, 30), (16_000, 30), (100_000, 210), (1 << 20, 500), (usize::MAX, 500)] {
        assert_eq!(Backpressure::MAX.delay(bytes), Duration::from_millis(ms), "{bytes} bytes");
    }
}

#[test]
fn a_few_writers_who_wait_for_their_answers_are_slowed_down_and_never_refused() {
    let mut admission = Admission::default();
    assert!((0..1000).all(|_| !admission.refuses(Backpressure::MAX, WAITING_MAX - 1)));
    assert!((0..100).any(|_| admission.refuses(Backpressure::MAX, WAITING_MAX)));
}

proptest! {
    #[test]
    fn exactly_the_share_that_is_asked_for_is_refused_and_evenly(asked in 0..=7_u8, phase in 0..100_usize) {
        let asked = level(asked);
        let mut admission = Admission::default();
        for _ in 0..phase {
            admission.refuses(level(5), WAITING_MAX);
        }
        let refused = (0..100).filter(|_| admission.refuses(asked, WAITING_MAX)).count();
        prop_assert_eq!(refused, usize::from(asked.refused_percent()));
        let window = (0..20).filter(|_| admission.refuses(asked, WAITING_MAX)).count();
        let share = usize::from(asked.refused_percent()) * 20;
        prop_assert!(window * 100 <= share + 100 && window * 100 + 100 >= share, "{} of 20", window);
    }

    #[test]
    fn more_debt_never_asks_for_less(debt in 0..1_000_u64, more in 0..1_000_u64, begin in 0..100_u64, room in 0..500_u64) {
        let of = |debt| Backpressure::of_debt(debt, begin, begin + room);
        prop_assert!(of(debt) <= of(debt + more));
    }
}
