//! The register protocol by example: one test per rule that a reader of docs/explanation/consistency.md would look for.
//! Every order of every mix of answers is in `quorum_write.rs` and `quorum_read`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use bytes::Bytes;
use kvorum_core::quorum::read::{Clocks, Read, ReadCommand};
use kvorum_core::quorum::write::{Attempt, Write, WriteOutcome, WriteStep};
use kvorum_core::quorum::{Current, Failure, Held, Quorum, Rank, ReadAnswer, ReplicaSet, StoreAnswer, Wanted};
use kvorum_core::version::{Hlc, Incarnation, Version};
use kvorum_core::{Key, Record};

fn quorum(ack: u8, from: u8) -> Quorum {
    Quorum::new(ack, from).unwrap()
}

fn version(number: u64) -> Version {
    Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(7) }
}

fn record(number: u64, from: u8) -> ReadAnswer<Record> {
    let key = Key::new(Bytes::from_static(b"key")).unwrap();
    ReadAnswer::Held(Held::Record(Record::value(&key, version(number), from, None, number.to_string().as_bytes())))
}

fn deletion(number: u64, from: u8) -> ReadAnswer<Record> {
    let key = Key::new(Bytes::from_static(b"key")).unwrap();
    ReadAnswer::Held(Held::Record(Record::tombstone(&key, version(number), from)))
}

fn has(number: u64) -> ReadAnswer<Record> {
    ReadAnswer::Version { version: version(number), from: 1 }
}

fn absent(gc_watermark: u64) -> ReadAnswer<Record> {
    ReadAnswer::Held(Held::Absent { gc_watermark: version(gc_watermark) })
}

fn stale(number: u64) -> StoreAnswer {
    StoreAnswer::Stale(Current::Record(version(number)))
}

fn set(ranks: &[u8]) -> ReplicaSet {
    let mut set = ReplicaSet::EMPTY;
    for rank in ranks {
        set.insert(Rank(*rank));
    }
    set
}

/// Nothing here ends.
const CLOCKS: Clocks<'static> = Clocks { replica: Hlc::ZERO, own: &|| Hlc::ZERO };

/// A read under test: each call gives the commands that it led to, as text.
struct Reading(Read);

impl Reading {
    /// Starts a read of `ack` of `from` that asks `first`, the record from the first of them.
    fn start(ack: u8, from: u8, first: &[u8]) -> Self {
        let mut reading = Self(Read::new(quorum(ack, from), set(first), Rank(first[0])));
        let asked = collect(|sink| reading.0.start(sink));
        assert_eq!(asked.len(), first.len());
        reading
    }

    fn hears(&mut self, rank: u8, answer: ReadAnswer<Record>) -> Vec<String> {
        collect(|sink| self.0.on_read(Rank(rank), answer, CLOCKS, sink))
    }

    fn stored(&mut self, rank: u8, number: u64, answer: StoreAnswer) -> Vec<String> {
        collect(|sink| self.0.on_store(Rank(rank), version(number), answer, CLOCKS, sink))
    }

    fn hedges(&mut self) -> Vec<String> {
        collect(|sink| self.0.on_hedge(sink))
    }
}

fn collect(run: impl FnOnce(&mut dyn FnMut(ReadCommand))) -> Vec<String> {
    let mut said = Vec::new();
    run(&mut |command| said.push(show(&command)));
    said
}

fn show(command: &ReadCommand) -> String {
    match command {
        ReadCommand::Ask { rank, wanted: Wanted::Version } => format!("version? {}", rank.0),
        ReadCommand::Ask { rank, wanted: Wanted::Record } => format!("record? {}", rank.0),
        ReadCommand::Store { rank, record } => format!("store {} at {}", record.version().hlc.raw(), rank.0),
        ReadCommand::Done(Held::Record(record), _) => format!("answer {}", record.version().hlc.raw()),
        ReadCommand::Done(Held::Absent { gc_watermark }, _) => format!("absent {}", gc_watermark.hlc.raw()),
        ReadCommand::Ask { rank, wanted: Wanted::VersionAtClock } => format!("ask {} at clock", rank.0),
        ReadCommand::Hopeless => "hopeless".to_owned(),
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_write_is_done_with_the_answer_that_makes_ack() {
    let mut write = Write::new(quorum(2, 3));
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(0), StoreAnswer::Accepted), WriteStep::Wait);
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(0), StoreAnswer::Accepted), WriteStep::Wait, "a duplicate");
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(2), StoreAnswer::Accepted), WriteStep::Done(WriteOutcome::Held));
    assert_eq!(write.accepted(), set(&[0, 2]));
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(1), StoreAnswer::Accepted), WriteStep::Wait);
    assert_eq!(write.accepted(), set(&[0, 1, 2]), "late acks count");
}

#[test]
fn a_stale_replica_counts_toward_ack_but_not_toward_the_majority() {
    let mut write = Write::new(quorum(3, 3));
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(0), StoreAnswer::Accepted), WriteStep::Wait);
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(1), stale(9)), WriteStep::Wait);
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(2), StoreAnswer::Accepted), WriteStep::Done(WriteOutcome::Held));
}

#[test]
fn a_blocked_write_is_timestamped_again_once_and_then_overwritten() {
    let mut write = Write::new(quorum(2, 3));
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(0), stale(5)), WriteStep::Wait);
    assert_eq!(
        write.on_answer(Attempt::FIRST, Rank(1), stale(8)),
        WriteStep::RetryWithHigherTimestamp { above: version(8) }
    );
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(2), stale(9)), WriteStep::Wait);
    assert_eq!(write.newest(), version(9), "an answer that comes while the stamp is made raises it");
    let second = write.retried();
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(1), StoreAnswer::Accepted), WriteStep::Wait);
    assert_eq!(write.acked(), 0, "answers of the first attempt are about another version");
    assert_eq!(write.on_answer(second, Rank(2), stale(11)), WriteStep::Wait);
    assert_eq!(write.on_answer(second, Rank(0), stale(12)), WriteStep::Done(WriteOutcome::Overwritten));
}

#[test]
fn a_gc_watermark_never_excuses_a_write() {
    let mut write = Write::new(quorum(2, 2));
    let gc_watermark = StoreAnswer::Stale(Current::GcWatermark(version(5)));
    assert_eq!(
        write.on_answer(Attempt::FIRST, Rank(0), gc_watermark),
        WriteStep::RetryWithHigherTimestamp { above: version(5) }
    );
    let second = write.retried();
    assert_eq!(
        write.on_answer(second, Rank(0), gc_watermark),
        WriteStep::RetryWithHigherTimestamp { above: version(5) }
    );
    let third = write.retried();
    assert_eq!(write.on_answer(third, Rank(0), stale(6)), WriteStep::Wait);
    assert_eq!(write.on_answer(third, Rank(1), stale(7)), WriteStep::Done(WriteOutcome::Overwritten));
}

/// One of two is enough to block, and may lose its disk: what it holds that is newer is held by no other yet.
#[test]
fn a_write_is_overwritten_only_where_as_many_have_something_newer_as_would_have_held_it() {
    let failed = StoreAnswer::Failed(Failure::Unreachable);
    for (answer, step) in
        [(failed, WriteStep::Hopeless), (StoreAnswer::Accepted, WriteStep::Done(WriteOutcome::Overwritten))]
    {
        let mut write = Write::new(quorum(2, 2));
        assert_eq!(
            write.on_answer(Attempt::FIRST, Rank(0), stale(5)),
            WriteStep::RetryWithHigherTimestamp { above: version(5) }
        );
        let second = write.retried();
        assert_eq!(write.on_answer(second, Rank(0), stale(8)), WriteStep::Wait);
        assert_eq!(write.on_answer(second, Rank(1), answer), step);
    }
}

#[test]
fn a_write_that_nobody_is_left_to_accept_is_hopeless_at_once() {
    let mut write = Write::new(quorum(2, 3));
    let failed = StoreAnswer::Failed(Failure::Unreachable);
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(0), failed), WriteStep::Wait);
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(1), failed), WriteStep::Wait);
    assert_eq!(write.on_answer(Attempt::FIRST, Rank(2), StoreAnswer::Accepted), WriteStep::Hopeless);
    assert_eq!(write.acked(), 1);
}

#[test]
fn below_quorum_any_accept_does_and_a_stale_one_moves_the_clock_once() {
    let mut write = Write::new(quorum(1, 3));
    assert_eq!(
        write.on_answer(Attempt::FIRST, Rank(1), stale(5)),
        WriteStep::RetryWithHigherTimestamp { above: version(5) }
    );
    let second = write.retried();
    assert_eq!(write.on_answer(second, Rank(1), stale(6)), WriteStep::Wait);
    assert_eq!(write.on_answer(second, Rank(0), StoreAnswer::Accepted), WriteStep::Done(WriteOutcome::Held));
}

#[test]
fn a_read_asks_one_for_the_record_and_answers_what_a_majority_holds() {
    let mut read = Read::new(quorum(2, 3), set(&[1, 2]), Rank(1));
    assert_eq!(collect(|sink| read.start(sink)), ["record? 1", "version? 2"]);
    let mut read = Reading(read);
    assert_eq!(read.hears(1, record(5, 3)), NOTHING);
    assert_eq!(read.hears(2, has(5)), ["answer 5"]);
    assert_eq!(read.0.outdated(), ReplicaSet::EMPTY);
}

#[test]
fn a_hedge_asks_the_rest_and_one_of_them_for_the_record() {
    let mut read = Reading::start(3, 5, &[0, 1, 2]);
    assert_eq!(read.hears(1, has(5)), NOTHING);
    assert_eq!(read.hedges(), ["record? 3", "version? 4"]);
    assert_eq!(read.hedges(), NOTHING, "all are asked");
    assert_eq!(read.hears(4, has(5)), NOTHING);
    assert_eq!(read.hears(3, record(5, 5)), ["answer 5"], "without the slow one");
}

#[test]
fn a_hedge_asks_another_holder_where_the_record_is_slow_to_come() {
    let mut read = Reading::start(2, 3, &[0, 1, 2]);
    assert_eq!(read.hears(1, has(5)), NOTHING);
    assert_eq!(read.hears(2, has(5)), ["record? 1"], "the record's own replica is slow");
    assert_eq!(read.hedges(), ["record? 2"]);
    assert_eq!(read.hears(2, record(5, 3)), ["answer 5"]);
}

#[test]
fn a_failed_answer_triggers_the_rest_at_once() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, ReadAnswer::Failed(Failure::Unreachable)), ["record? 2"]);
    assert_eq!(read.hears(1, ReadAnswer::Failed(Failure::Unreachable)), ["hopeless"]);
}

#[test]
fn a_half_written_version_is_written_back_before_it_is_answered() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(5, 3)), NOTHING);
    assert_eq!(read.hears(1, has(6)), ["record? 1"], "the first was not the newest");
    assert_eq!(read.hears(1, record(6, 3)), ["version? 2", "store 6 at 0"], "the third may hold it");
    assert_eq!(read.hears(2, has(5)), ["store 6 at 2"]);
    assert_eq!(read.stored(2, 6, StoreAnswer::Accepted), ["answer 6"]);
    assert_eq!(read.0.outdated(), set(&[0]));
}

#[test]
fn where_a_replica_that_was_not_asked_holds_the_newest_no_write_back_is_waited_for() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(6, 3)), NOTHING);
    assert_eq!(read.hears(1, has(5)), ["version? 2", "store 6 at 1"]);
    assert_eq!(read.hears(2, has(6)), ["answer 6"]);
}

#[test]
fn a_replica_that_is_silent_when_it_is_asked_holds_no_write_back_up() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(6, 3)), NOTHING);
    assert_eq!(read.hears(1, has(5)), ["version? 2", "store 6 at 1"]);
    assert_eq!(read.stored(1, 6, StoreAnswer::Accepted), ["answer 6"]);
}

#[test]
fn a_stale_write_back_leads_to_what_is_newer() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(6, 3)), NOTHING);
    assert_eq!(read.hears(1, has(5)), ["version? 2", "store 6 at 1"]);
    assert_eq!(read.hears(2, has(4)), ["store 6 at 2"]);
    assert_eq!(read.stored(2, 6, stale(8)), ["record? 2"]);
    assert_eq!(read.stored(1, 6, StoreAnswer::Accepted), NOTHING, "a majority of the wrong version");
    assert_eq!(read.hears(2, record(8, 3)), ["store 8 at 0", "store 8 at 1"]);
    assert_eq!(read.stored(0, 8, StoreAnswer::Accepted), ["answer 8"]);
}

#[test]
fn a_read_is_hopeless_when_too_few_are_left_to_hold_the_newest() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(6, 3)), NOTHING);
    assert_eq!(read.hears(1, has(5)), ["version? 2", "store 6 at 1"]);
    assert_eq!(read.hears(2, ReadAnswer::Failed(Failure::Unreachable)), NOTHING);
    assert_eq!(read.stored(1, 6, StoreAnswer::Failed(Failure::DiskFull)), ["hopeless"]);
}

#[test]
fn nothing_here_differs_from_a_value() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(6, 3)), NOTHING);
    assert_eq!(read.hears(1, absent(2)), ["version? 2", "store 6 at 1"]);
    assert_eq!(read.stored(1, 6, StoreAnswer::Accepted), ["answer 6"]);
}

#[test]
fn nothing_anywhere_is_absent_whatever_the_gc_watermarks() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, absent(0)), NOTHING);
    assert_eq!(read.hears(1, absent(4)), ["absent 4"]);
}

#[test]
fn a_deletion_at_or_below_a_gc_watermark_is_absent() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, deletion(6, 3)), NOTHING);
    assert_eq!(read.hears(1, absent(6)), ["absent 6"]);
}

#[test]
fn who_gave_a_value_that_a_gc_watermark_has_overtaken_is_asked_again() {
    for (second, answer) in [(absent(2), "absent 6"), (deletion(6, 3), "absent 6")] {
        let mut read = Reading::start(2, 3, &[0, 1]);
        assert_eq!(read.hears(0, record(5, 3)), NOTHING);
        assert_eq!(read.hears(1, absent(6)), ["record? 0", "version? 2"]);
        assert_eq!(read.hears(0, second), [answer]);
    }
    // Overwritten above the GC watermark, by a write that the GC watermark's replica has missed: not a deletion.
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(5, 3)), NOTHING);
    assert_eq!(read.hears(1, absent(6)), ["record? 0", "version? 2"]);
    assert_eq!(read.hears(0, record(7, 3)), ["store 7 at 1"]);
    assert_eq!(read.hears(2, has(7)), ["answer 7"]);
}

#[test]
fn who_gives_an_overtaken_value_twice_counts_for_nothing() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(5, 3)), NOTHING);
    assert_eq!(read.hears(1, absent(2)), ["version? 2", "store 5 at 1"]);
    let gc_watermark = StoreAnswer::Stale(Current::GcWatermark(version(6)));
    assert_eq!(read.stored(1, 5, gc_watermark), ["record? 0"]);
    assert_eq!(read.hears(0, record(5, 3)), NOTHING);
    assert_eq!(read.hears(2, has(5)), ["record? 2"]);
    assert_eq!(read.hears(2, record(5, 3)), ["record? 2"]);
    assert_eq!(read.hears(2, record(5, 3)), ["hopeless"]);
}

#[test]
fn a_record_with_one_copy_is_held_well_enough_by_it_and_gets_no_other() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(6, 1)), NOTHING);
    // The GC watermark of a replica that need not hold the record says nothing about it.
    assert_eq!(read.hears(1, absent(9)), ["answer 6"]);
    assert_eq!(read.0.outdated(), ReplicaSet::EMPTY);
}

#[test]
fn a_copy_outside_the_records_set_makes_no_majority_but_is_brought_up_to_date() {
    let mut read = Reading::start(2, 3, &[2, 1]);
    assert_eq!(read.hears(2, record(6, 1)), NOTHING);
    assert_eq!(read.hears(1, has(5)), ["version? 0", "store 6 at 1"]);
    assert_eq!(read.stored(1, 6, StoreAnswer::Accepted), NOTHING);
    assert_eq!(read.hears(0, absent(0)), ["store 6 at 0"]);
    assert_eq!(read.stored(0, 6, StoreAnswer::Accepted), ["answer 6"]);
}

#[test]
fn a_damaged_copy_counts_as_failed_and_is_repaired_after_the_answer() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, ReadAnswer::Failed(Failure::Corrupt)), ["record? 2"]);
    assert_eq!(read.hears(2, record(6, 3)), NOTHING);
    assert_eq!(read.0.to_repair(), ReplicaSet::EMPTY, "not before the answer");
    assert_eq!(read.hears(1, has(6)), ["answer 6"]);
    assert_eq!(read.0.to_repair(), set(&[0]));
}

#[test]
fn a_holder_that_fails_counts_as_if_it_had_never_answered() {
    let mut read = Reading::start(2, 3, &[0, 1]);
    assert_eq!(read.hears(0, record(5, 3)), NOTHING);
    assert_eq!(read.hears(1, has(6)), ["record? 1"]);
    assert_eq!(read.hears(1, ReadAnswer::Failed(Failure::Unreachable)), ["version? 2"]);
    assert_eq!(read.hears(2, has(5)), ["answer 5"], "a majority without it, and the record is in hand");
}

#[test]
fn below_quorum_the_newest_of_ack_answers_is_enough_and_the_rest_is_repaired_after() {
    let mut read = Reading::start(2, 4, &[0, 1]);
    assert_eq!(read.hears(0, record(6, 4)), NOTHING);
    assert_eq!(read.hears(1, has(5)), ["answer 6"]);
    assert_eq!(read.0.outdated(), set(&[1]));
}

#[test]
fn more_than_the_inline_replicas_work_the_same() {
    let mut read = Reading::start(100, 128, &(28..128).collect::<Vec<_>>());
    assert_eq!(read.hears(28, record(5, 128)), NOTHING);
    for rank in 29..127 {
        assert_eq!(read.hears(rank, has(5)), NOTHING);
    }
    assert_eq!(read.hears(127, has(4)), ["answer 5"]);
    assert_eq!(read.0.outdated(), set(&[127]));
}

#[test]
fn a_replica_that_holds_a_write_or_something_newer_is_owed_nothing() {
    let (older, written, newer) = (version(1), version(2), version(3));
    for answer in [
        StoreAnswer::Accepted,
        StoreAnswer::Stale(Current::Record(newer)),
        StoreAnswer::StaleUnknown(Current::Record(newer)),
        StoreAnswer::StaleUnknown(Current::GcWatermark(newer)),
        // It was carried out, by a replica whose answers count for nothing.
        StoreAnswer::Failed(Failure::Rebuilding),
    ] {
        assert!(answer.settles(written), "{answer:?}");
    }
    let failures = (0..=u8::MAX).map_while(Failure::from_code).filter(|failure| *failure != Failure::Rebuilding);
    // Refused by a fence: what it holds is older.
    let behind = [StoreAnswer::StaleUnknown(Current::Record(older))];
    for answer in failures.map(StoreAnswer::Failed).chain(behind) {
        assert!(!answer.settles(written), "{answer:?}");
    }
}
