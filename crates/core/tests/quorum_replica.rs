//! The replica's decision, against every combination of its arguments.
#![allow(missing_docs)]

use kvorum_core::quorum::replica::{Decision, KnownVersion, Origin, Recent, decide};
use kvorum_core::quorum::{Current, StoreAnswer};
use kvorum_core::version::{Hlc, Incarnation, Version};

fn version(number: u64) -> Version {
    Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(7) }
}

/// The rules as docs/explanation/consistency.md states them, one after the other.
fn specified(v: Version, origin: Origin, current: Current, fence: Version, recent: Recent) -> Decision {
    let older_than_record = matches!(current, Current::Record(held) if v < held);
    let at_or_below_gc_watermark = matches!(current, Current::GcWatermark(gc_watermark) if v <= gc_watermark);
    let refused = older_than_record || at_or_below_gc_watermark;
    if current == Current::Record(v) || (refused && recent == Recent::Accepted) {
        Decision::Answer(StoreAnswer::Accepted)
    } else if refused && recent == Recent::Unsure {
        Decision::Answer(StoreAnswer::StaleUnknown(current))
    } else if refused {
        Decision::Answer(StoreAnswer::Stale(current))
    } else if origin == Origin::Client && v <= fence {
        Decision::Answer(StoreAnswer::StaleUnknown(current))
    } else {
        Decision::Apply
    }
}

/// Calls `check` with every combination of version, origin, current, fence and memory over 0 to 4.
fn every_case(mut check: impl FnMut(Version, Origin, Current, Version, Recent)) {
    for v in 1..=4 {
        for held in 0..=4 {
            for current in [Current::Record(version(held)), Current::GcWatermark(version(held))] {
                for fence in 0..=4 {
                    for origin in [Origin::Client, Origin::Repair] {
                        for recent in [Recent::Accepted, Recent::NotAccepted, Recent::Unsure] {
                            check(version(v), origin, current, version(fence), recent);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_rules_hold_in_their_order() {
    every_case(|v, origin, current, fence, recent| {
        // What was accepted lately is not newer than what is held.
        if recent == Recent::Accepted && v > current.version() {
            return;
        }
        let decision = decide(v, origin, KnownVersion::Exactly(current), fence, || recent);
        assert_eq!(
            decision,
            specified(v, origin, current, fence, recent),
            "{v} {origin:?} {current:?} {fence} {recent:?}"
        );
    });
}

#[test]
fn a_mark_decides_as_the_exact_current_would_or_asks_for_it() {
    every_case(|v, origin, current, fence, recent| {
        for mark in 0..=4 {
            // The mark's promise: nothing newer is held, was accepted, or is the GC watermark.
            let mark = version(mark);
            if current.version() > mark || (recent == Recent::Accepted && v > mark) {
                continue;
            }
            let exact = decide(v, origin, KnownVersion::Exactly(current), fence, || recent);
            match decide(v, origin, KnownVersion::AtMost(mark), fence, || {
                panic!("memory is not asked before the lookup")
            }) {
                Decision::LookUp => assert!(v <= mark || (origin == Origin::Client && v <= fence), "a needless lookup"),
                decision => assert_eq!(decision, exact),
            }
        }
    });
}

#[test]
fn memory_is_asked_only_for_what_is_not_newer() {
    let held = KnownVersion::Exactly(Current::Record(version(2)));
    let decision =
        decide(version(3), Origin::Client, held, Version::ZERO, || panic!("a newer version needs no memory"));
    assert_eq!(decision, Decision::Apply);
}
