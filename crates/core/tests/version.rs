//! The hybrid logical clock and the order of versions.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use kvorum_core::{Hlc, Incarnation, Version};
use proptest::prelude::*;

fn version(hlc: u64, incarnation: u32) -> Version {
    Version { hlc: Hlc::from_raw(hlc), incarnation: Incarnation(incarnation) }
}

#[test]
fn a_tick_follows_the_wall_when_it_is_ahead_and_counts_when_it_is_not() {
    let start = Hlc::from_millis(1000);
    assert_eq!(start.tick(2000), Hlc::from_millis(2000));
    for wall_ms in [0, 999, 1000] {
        assert_eq!(start.tick(wall_ms).raw(), start.raw() + 1);
    }
    assert_eq!(Hlc::ZERO.tick(0), Hlc::from_raw(1), "no reading is the zero");
}

#[test]
fn a_full_counter_carries_into_the_milliseconds() {
    let full = Hlc::from_raw(Hlc::from_millis(1000).raw() | 0xffff);
    assert_eq!(full.millis(), 1000);
    assert_eq!(full.tick(1000), Hlc::from_millis(1001));
    assert_eq!(full.next(), Hlc::from_millis(1001));
}

#[test]
fn milliseconds_beyond_48_bits_do_not_count() {
    assert_eq!(Hlc::from_millis(1 << 48 | 5), Hlc::from_millis(5));
    assert_eq!(Hlc::from_millis((1 << 48) - 1).millis(), (1 << 48) - 1);
}

#[test]
#[should_panic(expected = "10889")]
fn the_clock_ends_rather_than_goes_back() {
    let _ = Hlc::from_raw(u64::MAX).next();
}

#[test]
fn the_incarnation_decides_between_equal_timestamps() {
    assert!(version(1, 9) < version(2, 0));
    assert!(version(2, 0) < version(2, 1));
    assert!(Version::ZERO < version(0, 1));
    assert_eq!(Version::default(), Version::ZERO);
}

#[test]
fn a_version_is_shown_in_hexadecimal_of_one_width() {
    assert_eq!(Version::ZERO.to_string(), "0000000000000000-00000000");
    assert_eq!(version(0x0123_4567_89ab_cdef, 0x0123_4567).to_string(), "0123456789abcdef-01234567");
}

proptest! {
    #[test]
    fn ticks_only_rise_and_never_lag_the_wall(
        start in 0..u64::MAX / 2,
        walls in proptest::collection::vec(0..1_u64 << 40, 1..100),
    ) {
        let mut clock = Hlc::from_raw(start);
        for wall_ms in walls {
            let next = clock.tick(wall_ms);
            prop_assert!(next > clock);
            prop_assert!(next.millis() >= wall_ms);
            prop_assert!(next == clock.next() || next == Hlc::from_millis(wall_ms));
            clock = next;
        }
    }

    #[test]
    fn the_encoding_keeps_the_order_and_survives_a_round_trip(
        (a, b) in (any::<u64>(), any::<u64>()),
        (i, j) in (any::<u32>(), any::<u32>()),
        same in any::<bool>(),
    ) {
        let (left, right) = (version(a, i), version(if same { a } else { b }, j));
        prop_assert_eq!(left.cmp(&right), left.encode().cmp(&right.encode()));
        prop_assert_eq!(left.to_string().cmp(&right.to_string()), left.cmp(&right));
        prop_assert_eq!(Version::decode(left.encode()), left);
        prop_assert_eq!(Hlc::from_raw(left.hlc.raw()), left.hlc);
    }
}
