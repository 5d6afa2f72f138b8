//! What is kept for a node that is away, what of it goes first, and how fast it is delivered.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_core::hints::{Backlog, BacklogBounds, BucketId, Delivered, OverBound, SendPace, Size};
use kvorum_core::{Hlc, Incarnation, KeyHash, Version};
use proptest::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE_MS: u64 = 60_000;
const ROOM: BacklogBounds = BacklogBounds { bytes_max: 1 << 30, age_max: HOUR };

fn write(backlog: &mut Backlog, now_ms: u64, hints: u64, bytes: u64) -> BucketId {
    let id = backlog.begin_write(now_ms);
    backlog.end_write(Some(Size { hints, bytes }));
    id
}

#[test]
fn what_was_delivered_is_not_pending_and_takes_its_room_until_its_bucket_goes() {
    let mut backlog = Backlog::new(BacklogBounds { bytes_max: 1000, age_max: Duration::from_secs(60) });
    let id = backlog.begin_write(1);
    backlog.end_write(Some(Size { hints: 3, bytes: 30 }));
    assert_eq!(backlog.next_to_deliver(), Some(id));
    backlog.note_delivered(id, Size { hints: 2, bytes: 20 });
    assert_eq!((backlog.pending(), backlog.size().hints), (Size { hints: 1, bytes: 10 }, 3));
    backlog.note_delivered(id, Size { hints: 2, bytes: 20 });
    assert_eq!(
        backlog.pending(),
        Size::default(),
        "what an interrupted delivery goes through again is no less than none"
    );
    backlog.remove(id);
    assert_eq!((backlog.pending(), backlog.size()), (Size::default(), Size::default()));
}

#[test]
fn what_is_kept_within_a_minute_shares_a_bucket() {
    let mut backlog = Backlog::new(ROOM);
    let first = write(&mut backlog, 5, 1, 10);
    assert_eq!(write(&mut backlog, 5 + MINUTE_MS - 1, 1, 10), first);
    let second = write(&mut backlog, 5 + MINUTE_MS, 1, 10);
    assert!(second > first);
    assert_eq!(backlog.size_of(first), Size { hints: 2, bytes: 20 });
    assert_eq!(backlog.size(), Size { hints: 3, bytes: 30 });
}

#[test]
fn a_bucket_that_is_delivered_gets_no_more() {
    let mut backlog = Backlog::new(ROOM);
    let first = write(&mut backlog, 5, 1, 10);
    assert_eq!(backlog.next_to_deliver(), Some(first));
    let second = write(&mut backlog, 5, 1, 10);
    assert!(second > first, "in the same millisecond, too");
    assert_eq!(backlog.next_to_deliver(), Some(second), "the newest comes first");
    assert_eq!(backlog.remove(second), Some(Size { hints: 1, bytes: 10 }));
    assert_eq!(backlog.next_to_deliver(), Some(first));
}

#[test]
fn a_bucket_that_is_being_written_is_neither_delivered_nor_dropped() {
    let mut backlog = Backlog::new(BacklogBounds { bytes_max: 10, age_max: HOUR });
    let written = backlog.begin_write(0);
    assert_eq!(backlog.next_to_deliver(), None);
    backlog.end_write(Some(Size { hints: 1, bytes: 11 }));
    let next = backlog.begin_write(0);
    assert!(next > written, "the first was full");
    assert_eq!(backlog.next_to_deliver(), Some(written));
    assert_eq!(backlog.drop_excess(0), Some((written, Size { hints: 1, bytes: 11 }, OverBound::Bytes)));
    assert_eq!(backlog.drop_excess(100 * MINUTE_MS), None);
    backlog.end_write(None);
    assert_eq!(backlog.next_to_deliver(), None, "nothing was written");
}

#[test]
fn the_clock_may_go_back() {
    let mut backlog = Backlog::new(ROOM);
    backlog.restore(BucketId(1_000_000), Size { hints: 1, bytes: 1 });
    assert!(write(&mut backlog, 5, 1, 1) > BucketId(1_000_000));
    assert_eq!(backlog.drop_excess(5), None);
}

#[test]
fn over_its_age_the_oldest_goes_and_the_younger_stays() {
    let mut backlog = Backlog::new(ROOM);
    let first = write(&mut backlog, 1, 1, 1);
    let second = write(&mut backlog, 10 * MINUTE_MS, 1, 1);
    assert_eq!(backlog.drop_excess(1 + 61 * MINUTE_MS), None, "its youngest may be an hour old, and no more");
    let dropped = backlog.drop_excess(2 + 61 * MINUTE_MS).unwrap();
    assert_eq!((dropped.0, dropped.2), (first, OverBound::Age));
    assert_eq!(backlog.drop_excess(2 + 61 * MINUTE_MS), None);
    assert_eq!(backlog.next_to_deliver(), Some(second));
}

#[derive(Clone, Debug)]
enum Step {
    Write { after_ms: u64, hints: u64, bytes: u64, is_written: bool },
    Deliver,
    Excess,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..90_000_u64, 1..9_u64, 0..60_u64, prop::bool::weighted(0.9))
            .prop_map(|(after_ms, hints, bytes, is_written)| Step::Write { after_ms, hints, bytes, is_written }),
        1 => Just(Step::Deliver),
        2 => Just(Step::Excess),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every hint that was written is kept, delivered or dropped, once; what is kept is within the bounds; the
    /// newest is delivered and the oldest dropped.
    #[test]
    fn nothing_is_lost_unseen(steps in prop::collection::vec(step(), 1..200)) {
        let bounds = BacklogBounds { bytes_max: 400, age_max: 10 * Duration::from_secs(60) };
        let mut backlog = Backlog::new(bounds);
        let mut kept: BTreeMap<BucketId, Size> = BTreeMap::new();
        let mut now_ms = 0;
        for step in steps {
            match step {
                Step::Write { after_ms, hints, bytes, is_written } => {
                    now_ms += after_ms;
                    let id = backlog.begin_write(now_ms);
                    let more = Size { hints, bytes };
                    let with = kept.get(&id).copied().unwrap_or_default().plus(more);
                    prop_assert_eq!(backlog.size_with(more), with);
                    backlog.end_write(is_written.then_some(more));
                    if is_written {
                        kept.insert(id, with);
                    }
                }
                Step::Deliver => {
                    let newest = kept.keys().next_back().copied();
                    prop_assert_eq!(backlog.next_to_deliver(), newest);
                    if let Some(newest) = newest {
                        prop_assert_eq!(backlog.remove(newest), kept.remove(&newest));
                    }
                }
                Step::Excess => {
                    while let Some((id, size, _)) = backlog.drop_excess(now_ms) {
                        prop_assert_eq!(kept.keys().next().copied(), Some(id), "the oldest goes");
                        prop_assert_eq!(kept.remove(&id), Some(size));
                    }
                    prop_assert!(backlog.size().bytes <= bounds.bytes_max);
                }
            }
            let sum = kept.values().fold(Size::default(), |sum, size| sum.plus(*size));
            prop_assert_eq!(backlog.size(), sum);
        }
    }
}

fn version(number: u64) -> Version {
    Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(1) }
}

fn hash(number: u64) -> KeyHash {
    kvorum_core::Key::new(number.to_be_bytes().to_vec().into()).unwrap().hash()
}

#[test]
fn the_newest_version_delivered_is_remembered_of_a_bounded_number_of_keys() {
    let mut delivered = Delivered::default();
    delivered.note(hash(1), version(5));
    delivered.note(hash(1), version(3));
    assert_eq!(delivered.newest(hash(1)), Some(version(5)));
    assert_eq!(delivered.newest(hash(2)), None);
    (10..1_000_000).for_each(|number| delivered.note(hash(number), version(1)));
    delivered.note(hash(1), version(6));
    assert_eq!(delivered.newest(hash(1)), Some(version(6)));
    assert_eq!(delivered.newest(hash(999_999)), None, "there is no room for all");
    delivered.clear();
    assert_eq!(delivered.newest(hash(1)), None);
}

const MIB: usize = 1 << 20;

/// Bytes that go within `seconds`, in pieces of 64 KiB, when each is answered within `latency`.
fn sent(pace: &mut SendPace, begin: Duration, seconds: u64, latency: Duration) -> usize {
    let (mut now, mut bytes) = (begin, 0);
    while now < begin + Duration::from_secs(seconds) {
        now += pace.take(now, 64 << 10);
        bytes += 64 << 10;
        now += Duration::from_millis(1);
        pace.note(now, latency);
    }
    bytes
}

#[test]
fn bytes_go_at_the_rate() {
    let mut pace = SendPace::new(8 * MIB as u64);
    let bytes = sent(&mut pace, HOUR, 10, Duration::from_millis(5));
    assert!((78 * MIB..=82 * MIB).contains(&bytes), "{bytes}");
}

#[test]
fn the_rate_halves_while_answers_are_late_and_recovers() {
    let mut pace = SendPace::new(8 * MIB as u64);
    sent(&mut pace, HOUR, 1, Duration::from_millis(5));
    assert_eq!(pace.rate(), 8 * MIB as u64);
    let late = Duration::from_millis(200);
    pace.note(HOUR + Duration::from_secs(2), late);
    assert_eq!(pace.rate(), 4 * MIB as u64);
    pace.note(HOUR + Duration::from_millis(2_010), late);
    assert_eq!(pace.rate(), 4 * MIB as u64, "one answer of many that were late together is enough");
    pace.note(HOUR + Duration::from_millis(2_100), late);
    assert_eq!(pace.rate(), 2 * MIB as u64);
    sent(&mut pace, HOUR + Duration::from_secs(3), 2, late);
    assert_eq!(pace.rate(), MIB as u64 / 8, "it never stops");
    sent(&mut pace, HOUR + Duration::from_secs(10), 5, Duration::from_millis(5));
    assert_eq!(pace.rate(), 8 * MIB as u64);
}

#[test]
fn a_pause_saves_up_a_tenth_of_a_second_and_no_more() {
    let mut pace = SendPace::new(MIB as u64);
    assert_eq!(pace.take(HOUR, MIB / 10), Duration::ZERO);
    assert!(pace.try_take(HOUR, MIB));
    assert!(!pace.try_take(HOUR, 1));
    assert!(pace.take(HOUR, 1) >= Duration::from_millis(990));
}
