//! The coordinator on a shard with real parts: store in memory, commit thread, connections over loopback. Only the
//! peers are played: a test decides what they answer, and when.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod dials;
mod layouts;
pub(crate) mod rig;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvorum_core::backpressure::{Backpressure, WAITING_MAX};
use kvorum_core::frame::{Frame, Message};
use kvorum_core::node::NodeId;
use kvorum_core::quorum::{Current, Failure, Held, Quorum, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::{Hlc, Incarnation, Key, Record, Version};
use kvorum_storage::memory::Fault;
use rig::{LONG, RUN, Rig, Settings, idle_node, run, until};
use tokio::sync::oneshot;

use super::Refused;
use crate::coordinator::FanOut;
use crate::replica::reply_to::ReplyTo;

const QUORUM: (u8, u8) = (2, 3);

fn quorum((ack, from): (u8, u8)) -> Quorum {
    Quorum::new(ack, from).unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text.to_owned().into()).unwrap()
}

fn key_of(store: &Frame) -> Key {
    let Message::Store { key, .. } = &store.message else { panic!("{store:?}") };
    key.clone()
}

fn accepted() -> Message {
    Message::StoreAnswer(StoreAnswer::Accepted)
}

fn version_of(record: &Record) -> Message {
    Message::ReadAnswer(ReadAnswer::Version { version: record.version(), from: record.from() })
}

fn record_of(record: &Record) -> Message {
    Message::ReadAnswer(ReadAnswer::Held(Held::Record(record.bytes().clone())))
}

/// A record of another node, a little newer than anything timestamped so far.
fn newer(rig: &Rig, key: &Key) -> Record {
    let hlc = Hlc::from_millis(rig.shard.clock.wall_ms() + 2000);
    Record::value(key, Version { hlc, incarnation: Incarnation(77) }, 3, None, b"newer")
}

#[test]
fn a_far_future_record_costs_its_own_key_a_504_and_nothing_else() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        let begin = Instant::now();
        let far = Version { hlc: Hlc::from_millis(rig.shard.clock.wall_ms() + 3_600_000), incarnation: Incarnation(7) };
        let stale = Message::StoreAnswer(StoreAnswer::Stale(Current::Record(far)));
        let put = rig.put(&key("poisoned"), quorum(QUORUM));
        for peer in 0..2 {
            let store = rig.next(peer).await;
            rig.answer(peer, &store, stale.clone()).await;
        }
        assert!(matches!(put.await.unwrap(), Err(Refused::NotEnough { .. })));
        assert!(begin.elapsed() < LONG, "at once, not at the deadline");
        let put = rig.put(&key("other"), quorum(QUORUM));
        let store = rig.next(0).await;
        assert_eq!(key_of(&store), key("other"), "the poisoned key was not tried again");
        rig.answer(0, &store, accepted()).await;
        let written = put.await.unwrap().unwrap();
        assert!(!rig.shard.clock.is_too_far_ahead(written.version.hlc));
    });
}

#[test]
fn a_vote_that_a_node_gave_before_it_learned_that_it_had_lost_something_counts_beside_nothing() {
    run(async {
        let absent = || Message::ReadAnswer(ReadAnswer::Held(Held::Absent { gc_watermark: Version::ZERO }));
        for is_lost in [false, true] {
            let mut rig = Rig::start(3, Settings { deadline: Duration::from_millis(300), ..Settings::default() }).await;
            let (get, put) = (rig.get(&key("k"), quorum(QUORUM)), rig.put(&key("k"), quorum(QUORUM)));
            let mut asked = Vec::new();
            for _ in 0..3 {
                // One peer is asked for the read, and both to store.
                asked.push(rig.next_of_any().await);
            }
            let has_voted = || {
                let table = rig.shard.coordinator.operations.table.borrow();
                table.iter().all(|(_, operation)| operation.is_own_vote_counted)
            };
            until(has_voted).await;
            if is_lost {
                rig.shard.membership.become_rebuilding("an older copy").unwrap();
            }
            for (peer, question) in asked {
                let is_read = matches!(question.message, Message::Read { .. });
                rig.answer(peer, &question, if is_read { absent() } else { accepted() }).await;
            }
            assert_eq!((get.await.unwrap().is_err(), put.await.unwrap().is_err()), (is_lost, is_lost));
        }
    });
}

#[test]
fn as_many_writes_are_refused_as_enough_of_their_replicas_ask_for_and_no_read() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        let membership = rig.shard.membership.clone();
        let ask = |levels: [u8; 3]| {
            for (node, level) in (0..).zip(levels) {
                membership.peer(NodeId(node)).note_backpressure(Backpressure::from_level(level));
            }
        };
        ask([0, 7, 0]);
        let put = rig.put(&key("k"), quorum(QUORUM));
        for peer in 0..2 {
            let store = rig.next(peer).await;
            rig.answer(peer, &store, accepted()).await;
        }
        assert!(put.await.unwrap().is_ok(), "two of three take it");
        ask([7, 0, 7]);
        // As if so many others were delayed.
        rig.shard.coordinator.operations.delayed.set(WAITING_MAX);
        let mut refused = 0;
        for _ in 0..20 {
            let put = rig.put(&key("k"), quorum(QUORUM));
            until(|| put.is_finished() || rig.shard.coordinator.operations.under_way() > 0).await;
            if rig.shard.coordinator.operations.under_way() == 0 {
                assert_eq!(put.await.unwrap(), Err(Refused::Behind));
                refused += 1;
                continue;
            }
            for peer in 0..2 {
                let store = rig.next(peer).await;
                rig.answer(peer, &store, accepted()).await;
            }
            assert!(put.await.unwrap().is_ok());
            until(|| rig.shard.coordinator.operations.under_way() == 0).await;
        }
        assert_eq!(refused, usize::from(Backpressure::MAX.refused_percent()) / 5);
        assert!(rig.get(&key("k"), quorum((1, 3))).await.unwrap().is_ok(), "reads go on");
    });
}

#[test]
fn a_coordinator_whose_disk_refuses_succeeds_through_the_others() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        rig.store.set_fault(Fault::DiskFull);
        let mut last = Version::ZERO;
        for number in 0..3 {
            let put = rig.put(&key("k"), quorum(QUORUM));
            for peer in 0..2 {
                let store = rig.next(peer).await;
                rig.answer(peer, &store, accepted()).await;
            }
            let written = put.await.unwrap().unwrap();
            assert_eq!(written.version.incarnation, RUN, "write {number} is past the bound, which is 0");
            assert!(written.version > last);
            last = written.version;
        }
        let refused = rig.put(&key("k"), quorum((3, 3))).await.unwrap();
        assert_eq!(refused, Err(Refused::CannotWrite), "no peer was bothered");
        rig.store.set_fault(Fault::None);
        let put = rig.put(&key("k"), quorum(QUORUM));
        let store = rig.next(0).await;
        rig.answer(0, &store, accepted()).await;
        let written = put.await.unwrap().unwrap();
        assert_eq!(written.version.incarnation, RUN);
        assert!(written.version.hlc > last.hlc);
    });
}

#[test]
fn a_coordinator_whose_disk_hangs_succeeds_through_the_others() {
    run(async {
        let deadline = LONG;
        let mut rig = Rig::start(3, Settings { deadline, ..Settings::default() }).await;
        rig.store.set_fault(Fault::Hangs);
        for is_full in [false, true] {
            if is_full {
                let bound = rig.shard.clock.past_bound();
                until(|| rig.shard.replica.raise_bound(bound, ReplyTo::Durable(oneshot::channel().0)).is_err()).await;
            }
            let put = rig.put(&key("k"), quorum(QUORUM));
            for peer in 0..2 {
                let store = rig.next(peer).await;
                let Message::Store { record, .. } = &store.message else { panic!("{:?}", store.message) };
                let version = Record::decode(&key("k"), record.clone()).unwrap().version();
                assert_eq!(version.incarnation, RUN, "past the bound, which could not be raised");
                rig.answer(peer, &store, accepted()).await;
            }
            put.await.unwrap().unwrap();
            assert!(rig.shard.clock.is_waiting_for_disk(), "the node is not ready");
        }
        rig.store.set_fault(Fault::None);
        until(|| !rig.shard.clock.is_waiting_for_disk()).await;
    });
}

/// A read at a quorum, whose peers answer whatever they are asked; what this node is reported to have done for it.
async fn read_with(rig: &mut Rig, record: &Record) -> &'static str {
    let mut get = rig.get(&key("k"), quorum(QUORUM));
    let found = loop {
        tokio::select! {
            found = &mut get => break found.unwrap().unwrap(),
            (peer, question) = rig.next_of_any() => {
                let Message::Read { wanted, .. } = question.message else { panic!("{:?}", question.message) };
                let answer = if wanted == Wanted::Version { version_of(record) } else { record_of(record) };
                rig.answer(peer, &question, answer).await;
            }
        }
    };
    let own = rig.shard.membership.own_state().url.clone();
    found.receipt.unwrap().replicas.iter().find(|replica| *replica.node == *own).unwrap().outcome
}

#[test]
fn a_coordinator_whose_disk_hangs_reads_from_the_others() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        let record = rig.stored_everywhere(&key("k")).await;
        rig.store.make_cold(&key("k"));
        let (answers, gate) = std::sync::mpsc::channel::<()>();
        assert!(rig.shard.pool.submit(Box::new(move || gate.recv().unwrap_or_default())).is_ok());
        until(|| rig.shard.pool.depth() == 0).await;
        while rig.shard.coordinator.operations.hedging.can_spend() {
            rig.shard.coordinator.operations.hedging.spend();
        }
        // The first read shows it, without the budget; the second does not ask it.
        for _ in 0..2 {
            // The others, to which the rig has just connected, are tried by one read at first.
            let operations = &rig.shard.coordinator.operations;
            let is_tried = |node| !operations.behind.contains(NodeId(node), rig.shard.clock.boot());
            until(|| is_tried(1) && is_tried(2)).await;
            assert_eq!(read_with(&mut rig, &record).await, "no-answer");
            assert_eq!(rig.shard.pool.depth(), 1);
        }
        drop(answers);
        until(|| rig.shard.replica.waiting() == 0).await;
        assert_eq!(read_with(&mut rig, &record).await, "record");
    });
}

#[test]
fn a_write_that_a_full_queue_refused_was_sent_to_nobody() {
    run(async {
        let mut rig = Rig::start(1, Settings::default()).await;
        rig.put(&key("k"), quorum((1, 1))).await.unwrap().unwrap();
        rig.stop_commits();
        assert_eq!(rig.put(&key("k"), quorum((1, 1))).await.unwrap(), Err(Refused::Overloaded));
        assert_eq!(rig.metrics().unconfirmed_stores.load(Ordering::Relaxed), 0, "and leaves nothing pending");
        assert_eq!(rig.shard.coordinator.operations.under_way(), 0);
    });
}

#[test]
fn each_repair_has_an_id_of_its_own() {
    run(async {
        let mut rig = Rig::start(3, Settings { fan_out: FanOut::All, ..Settings::default() }).await;
        let record = rig.stored_everywhere(&key("k")).await;
        let mut ids = Vec::new();
        for round in 1..=2 {
            let get = rig.get(&key("k"), quorum(QUORUM));
            let damaged = rig.next(0).await;
            rig.answer(0, &damaged, Message::ReadAnswer(ReadAnswer::Failed(Failure::Corrupt))).await;
            until(|| rig.metrics().corrupt_answers.load(Ordering::Relaxed) == round).await;
            let whole = rig.next(1).await;
            rig.answer(1, &whole, version_of(&record)).await;
            get.await.unwrap().unwrap();
            let repair = rig.next(0).await;
            assert!(matches!(repair.message, Message::Store { repair: true, .. }));
            ids.push(repair.id);
        }
        assert_ne!(ids[0], ids[1], "their chunks must not be mixed");
    });
}

#[test]
fn a_holder_that_goes_silent_while_the_record_is_fetched_is_hedged_too() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        rig.stored_everywhere(&key("k")).await;
        let newer = newer(&rig, &key("k"));
        let begin = Instant::now();
        let get = rig.get(&key("k"), quorum(QUORUM));
        // One peer is asked first and keeps still; the hedge asks the other, which holds something newer.
        let (slow, first) = rig.next_of_any().await;
        let other = 1 - slow;
        let asked = rig.next(other).await;
        rig.answer(other, &asked, version_of(&newer)).await;
        let fetch = rig.next(other).await;
        assert!(matches!(fetch.message, Message::Read { wanted: Wanted::Record, .. }));
        rig.answer(slow, &first, version_of(&newer)).await;
        // The fetch is never answered.
        let fetch = rig.next(slow).await;
        assert!(matches!(fetch.message, Message::Read { wanted: Wanted::Record, .. }));
        rig.answer(slow, &fetch, record_of(&newer)).await;
        assert_eq!(get.await.unwrap().unwrap().value, Held::Record(newer));
        assert!(begin.elapsed() < LONG, "long before the deadline");
    });
}

#[test]
fn a_receipt_shows_write_backs() {
    run(async {
        let mut rig = Rig::start(3, Settings { fan_out: FanOut::All, ..Settings::default() }).await;
        rig.stored_everywhere(&key("k")).await;
        let newer = newer(&rig, &key("k"));
        let get = rig.get(&key("k"), quorum(QUORUM));
        // The other peer keeps still, so that this node is needed for the majority.
        let asked = rig.next(0).await;
        rig.answer(0, &asked, version_of(&newer)).await;
        let fetch = rig.next(0).await;
        rig.answer(0, &fetch, record_of(&newer)).await;
        let found = get.await.unwrap().unwrap();
        let receipt = found.receipt.unwrap();
        let own = receipt.replicas.iter().find(|replica| *replica.node == *rig.shard.membership.peer(NodeId(0)).url);
        let own = own.unwrap();
        assert_eq!((own.outcome, own.version), ("written-back", Some(newer.version())));
    });
}

#[test]
fn a_hopeless_read_counts_all_that_answer_soon() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        rig.disconnect(1).await;
        let get = rig.get(&key("k"), quorum((3, 3)));
        let asked = rig.next(0).await;
        rig.answer(0, &asked, Message::ReadAnswer(ReadAnswer::Held(Held::Absent { gc_watermark: Version::ZERO })))
            .await;
        let Err(Refused::NotEnough { required, acked, receipt }) = get.await.unwrap() else { panic!("not refused") };
        assert_eq!((required, acked), (3, 2));
        assert_eq!(receipt.replicas.iter().filter(|replica| replica.outcome == "absent").count(), 2);
        // And does not wait for the silent.
        let begin = Instant::now();
        let get = rig.get(&key("k"), quorum((3, 3)));
        let Err(Refused::NotEnough { acked, .. }) = get.await.unwrap() else { panic!("not refused") };
        assert_eq!(acked, 1);
        assert!(begin.elapsed() < LONG, "long before the deadline");
    });
}

#[test]
fn a_finished_write_takes_no_place_from_one_that_still_waits() {
    run(async {
        let mut rig = Rig::start(3, Settings { lingering_max: 2, ..Settings::default() }).await;
        for number in 0..10 {
            let put = rig.put(&key("k"), quorum(QUORUM));
            let (first, second) = (rig.next(0).await, rig.next(1).await);
            rig.answer(0, &first, accepted()).await;
            put.await.unwrap().unwrap();
            if number > 0 {
                rig.answer(1, &second, accepted()).await;
                until(|| rig.shard.coordinator.operations.under_way() == 1).await;
            }
        }
        assert_eq!(rig.metrics().unconfirmed_stores.load(Ordering::Relaxed), 0, "the first may still be confirmed");
        for _ in 0..2 {
            let put = rig.put(&key("k"), quorum(QUORUM));
            let first = rig.next(0).await;
            rig.answer(0, &first, accepted()).await;
            put.await.unwrap().unwrap();
            rig.next(1).await;
        }
        until(|| rig.metrics().unconfirmed_stores.load(Ordering::Relaxed) == 1).await;
        assert_eq!(rig.shard.coordinator.operations.under_way(), 2, "the oldest gave way to the third");
    });
}

#[test]
fn a_second_attempt_does_not_show_what_answered_the_first() {
    run(async {
        let mut rig = Rig::start(5, Settings { deadline: Duration::from_millis(800), ..Settings::default() }).await;
        let stale = StoreAnswer::Stale(Current::Record(newer(&rig, &key("k")).version()));
        let put = rig.put(&key("k"), quorum((3, 5)));
        let accepts = rig.next(3).await;
        rig.answer(3, &accepts, accepted()).await;
        for peer in 0..3 {
            let store = rig.next(peer).await;
            rig.answer(peer, &store, Message::StoreAnswer(stale)).await;
        }
        for peer in 0..3 {
            let store = rig.next(peer).await;
            rig.answer(peer, &store, Message::StoreAnswer(StoreAnswer::Failed(Failure::DiskFull))).await;
        }
        let Err(Refused::NotEnough { acked, receipt, .. }) = put.await.unwrap() else { panic!("not refused") };
        assert_eq!(acked, 1, "this node");
        let silent = receipt.replicas.iter().find(|replica| *replica.node == *rig.shard.membership.peer(NodeId(4)).url);
        let silent = silent.unwrap();
        assert_eq!((silent.outcome, silent.version), ("no-answer", None));
    });
}

#[test]
fn a_read_that_came_back_after_the_vote_was_lost_counts_for_nothing() {
    run(async {
        let rig = Rig::start(1, Settings::default()).await;
        rig.put(&key("k"), quorum((1, 1))).await.unwrap().unwrap();
        rig.store.make_cold(&key("k"));
        let (open, gate) = std::sync::mpsc::channel::<()>();
        assert!(rig.shard.pool.submit(Box::new(move || gate.recv().unwrap_or_default())).is_ok());
        let get = rig.get(&key("k"), quorum((1, 1)));
        until(|| rig.shard.replica.waiting() == 1).await;
        rig.shard.membership.become_rebuilding("a test").unwrap();
        drop(open);
        let Err(Refused::NotEnough { receipt, .. }) = get.await.unwrap() else { panic!("it voted") };
        assert_eq!(receipt.replicas[0].outcome, "rebuilding");
    });
}

#[test]
fn a_replica_that_fails_fast_is_not_asked_first() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        // Among equals the preference list decides, and it shall prefer the one that fails.
        let key = (0..).map(|number| key(&number.to_string())).find(|key| rig.rank(key, 0) < rig.rank(key, 1)).unwrap();
        let record = rig.stored_everywhere(&key).await;
        let mut failed = 0;
        for _ in 0..10 {
            let get = rig.get(&key, quorum(QUORUM));
            let (mut asked, mut frame) = rig.next_of_any().await;
            if asked == 0 {
                failed += 1;
                rig.answer(0, &frame, Message::ReadAnswer(ReadAnswer::Failed(Failure::Disk))).await;
                (asked, frame) = rig.next_of_any().await;
            }
            // Slower than a failure, and well within the hedge's delay.
            let begin = Instant::now();
            until(|| begin.elapsed() > Duration::from_millis(3)).await;
            rig.answer(asked, &frame, version_of(&record)).await;
            get.await.unwrap().unwrap();
        }
        assert!(failed <= 5, "asked first {failed} times of 10");
    });
}

#[test]
fn a_node_without_a_vote_asks_others_first() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        let record = rig.stored_everywhere(&key("k")).await;
        rig.shard.membership.become_rebuilding("a test").unwrap();
        let get = rig.get(&key("k"), quorum((1, 3)));
        let (peer, asked) = rig.next_of_any().await;
        assert!(matches!(asked.message, Message::Read { wanted: Wanted::Record, .. }));
        rig.answer(peer, &asked, record_of(&record)).await;
        let found = get.await.unwrap().unwrap();
        let own = found.receipt.unwrap();
        let own =
            own.replicas.iter().find(|replica| *replica.node == *rig.shard.membership.peer(NodeId(0)).url).unwrap();
        assert_eq!(own.outcome, "no-answer");
    });
}

/// Longer than half of what the next two tests give to large values.
static LARGE: [u8; 60_000] = [7; 60_000];

#[test]
fn a_large_record_is_charged_from_its_request_to_the_last_of_its_copies() {
    run(async {
        let mut rig = Rig::start(3, Settings { large_bytes_max: 100_000, ..Settings::default() }).await;
        let put = rig.put_value(&key("k"), quorum(QUORUM), &LARGE);
        let first = rig.next(0).await;
        rig.answer(0, &first, accepted()).await;
        put.await.unwrap().unwrap();
        assert_eq!(rig.shard.large_values.used(), LARGE.len(), "a replica has not confirmed it");
        let second = rig.next(1).await;
        rig.answer(1, &second, accepted()).await;
        until(|| rig.shard.large_values.used() == 0).await;
        let Message::Store { record, .. } = first.message else { panic!("{first:?}") };
        let get = rig.get(&key("k"), quorum((3, 3)));
        let (one, two) = (rig.next(0).await, rig.next(1).await);
        assert!(rig.shard.large_values.used() >= LARGE.len(), "the read has this node's copy");
        let version = Record::decode(&key("k"), record).unwrap();
        rig.answer(0, &one, version_of(&version)).await;
        rig.answer(1, &two, version_of(&version)).await;
        drop(get.await.unwrap().unwrap());
        until(|| rig.shard.large_values.used() == 0).await;
    });
}

#[test]
fn a_read_that_finds_no_room_for_its_record_is_refused_and_holds_none() {
    run(async {
        let rig = Rig::start(1, Settings { large_bytes_max: 100_000, ..Settings::default() }).await;
        rig.put_value(&key("k"), quorum((1, 1)), &LARGE).await.unwrap().unwrap();
        until(|| rig.shard.large_values.used() == 0).await;
        let first = rig.get(&key("k"), quorum((1, 1))).await.unwrap().unwrap();
        assert_eq!(rig.get(&key("k"), quorum((1, 1))).await.unwrap(), Err(Refused::Overloaded));
        drop(first);
        assert_eq!(rig.shard.large_values.used(), 0);
        rig.get(&key("k"), quorum((1, 1))).await.unwrap().unwrap();
    });
}

/// Which replica a hint is kept for, of a write at 2/3 whose second replica is lost, in the order of ranks.
async fn owed_after(answer: StoreAnswer) -> (Rig, NodeId) {
    let mut rig = Rig::start(3, Settings::default()).await;
    let put = rig.put(&key("k"), quorum(QUORUM));
    let store = rig.next(0).await;
    rig.answer(0, &store, accepted()).await;
    put.await.unwrap().unwrap();
    let store = rig.next(1).await;
    rig.answer(1, &store, Message::StoreAnswer(answer)).await;
    until(|| rig.shard.coordinator.operations.under_way() == 0).await;
    (rig, idle_node(1))
}

#[test]
fn a_replica_that_did_not_confirm_a_write_is_owed_a_hint() {
    let older = Current::GcWatermark(Version::ZERO);
    for answer in [StoreAnswer::Failed(Failure::Overloaded), StoreAnswer::StaleUnknown(older)] {
        run(async {
            let (rig, node) = owed_after(answer).await;
            assert_eq!(rig.hints.owed(), [vec![node]], "{answer:?}");
        });
    }
}

#[test]
fn a_replica_that_holds_the_write_or_something_newer_is_owed_none() {
    let newest = Current::Record(Version { hlc: Hlc::from_millis(1 << 47), incarnation: Incarnation(7) });
    for answer in [
        StoreAnswer::Accepted,
        StoreAnswer::Stale(newest),
        StoreAnswer::StaleUnknown(newest),
        StoreAnswer::Failed(Failure::Rebuilding),
    ] {
        run(async {
            let (rig, _) = owed_after(answer).await;
            assert!(rig.hints.owed().is_empty(), "{answer:?}");
        });
    }
}

#[test]
fn a_replica_whose_connection_ends_before_its_answer_is_owed_a_hint() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        let put = rig.put(&key("k"), quorum(QUORUM));
        let store = rig.next(0).await;
        rig.answer(0, &store, accepted()).await;
        put.await.unwrap().unwrap();
        assert!(rig.hints.owed().is_empty(), "it may still answer");
        rig.disconnect(1).await;
        until(|| rig.shard.coordinator.operations.under_way() == 0).await;
        assert_eq!(rig.hints.owed(), [vec![idle_node(1)]]);
    });
}

#[test]
fn a_write_that_nobody_accepted_is_owed_to_nobody() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        rig.store.set_fault(Fault::DiskFull);
        let put = rig.put(&key("k"), quorum(QUORUM));
        for peer in 0..2 {
            let store = rig.next(peer).await;
            rig.answer(peer, &store, Message::StoreAnswer(StoreAnswer::Failed(Failure::DiskFull))).await;
        }
        assert!(matches!(put.await.unwrap(), Err(Refused::NotEnough { .. })));
        until(|| rig.shard.coordinator.operations.under_way() == 0).await;
        assert!(rig.hints.owed().is_empty());
    });
}

#[test]
fn a_shard_that_stops_keeps_what_its_writes_owe() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        let put = rig.put(&key("k"), quorum(QUORUM));
        let store = rig.next(0).await;
        rig.answer(0, &store, accepted()).await;
        put.await.unwrap().unwrap();
        rig.shard.coordinator.operations.end();
        assert_eq!(rig.hints.owed(), [vec![idle_node(1)]]);
    });
}

/// A read at 1/3 that was answered with `newest` by this node, while its peers still hold what they are about to
/// answer.
async fn read_ahead_of_its_peers(from: u8) -> (Rig, Record, [Frame; 2]) {
    let mut rig = Rig::start(3, Settings { fan_out: FanOut::All, ..Settings::default() }).await;
    // The key's record is meant for its first replica alone where `from` is 1, and that is this node.
    let key = (0..).map(|number| key(&format!("k{number}"))).find(|key| rig.rank(key, 0) == 1 && rig.rank(key, 1) == 2);
    let key = key.unwrap();
    let put = rig.put(&key, quorum((1, from)));
    for peer in 0..usize::from(from) - 1 {
        let store = rig.next(peer).await;
        rig.answer(peer, &store, Message::StoreAnswer(StoreAnswer::Failed(Failure::Overloaded))).await;
    }
    put.await.unwrap().unwrap();
    let found = rig.get(&key, quorum((1, 3))).await.unwrap().unwrap();
    let Held::Record(record) = found.value else { panic!("{found:?}") };
    let asked = [rig.next(0).await, rig.next(1).await];
    (rig, record, asked)
}

#[test]
fn a_replica_that_turns_out_to_be_behind_a_read_below_quorum_gets_what_was_read() {
    run(async {
        let (mut rig, record, asked) = read_ahead_of_its_peers(3).await;
        rig.answer(0, &asked[0], Message::ReadAnswer(ReadAnswer::Held(Held::Absent { gc_watermark: Version::ZERO })))
            .await;
        let store = rig.next(0).await;
        let Message::Store { record: sent, repair: true, .. } = &store.message else { panic!("{store:?}") };
        assert_eq!(sent, record.bytes());
        rig.answer(1, &asked[1], version_of(&record)).await;
        until(|| rig.shard.coordinator.operations.under_way() == 0).await;
        assert_eq!(rig.metrics().read_repairs.load(Ordering::Relaxed), 1, "the other holds it");
    });
}

#[test]
fn a_read_brings_what_was_meant_for_fewer_replicas_only_to_those_that_hold_something_older() {
    run(async {
        let (mut rig, record, asked) = read_ahead_of_its_peers(1).await;
        rig.answer(0, &asked[0], Message::ReadAnswer(ReadAnswer::Held(Held::Absent { gc_watermark: Version::ZERO })))
            .await;
        let older = Message::ReadAnswer(ReadAnswer::Version {
            version: Version { hlc: Hlc::from_raw(1), incarnation: Incarnation(1) },
            from: 3,
        });
        rig.answer(1, &asked[1], older).await;
        let store = rig.next(1).await;
        let Message::Store { record: sent, .. } = &store.message else { panic!("{store:?}") };
        assert_eq!(sent, record.bytes());
        until(|| rig.shard.coordinator.operations.under_way() == 0).await;
        assert_eq!(rig.metrics().read_repairs.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_replica_that_is_behind_is_not_asked_first() {
    run(async {
        for behind in [NodeId(0), NodeId(1), NodeId(2)] {
            let mut rig = Rig::start(3, Settings::default()).await;
            let record = rig.stored_everywhere(&key("k")).await;
            rig.shard.coordinator.operations.behind.note(behind, LONG, rig.shard.clock.boot() + LONG);
            // One of two peers; or, where this node is behind, a peer instead of it.
            let get = rig.get(&key("k"), quorum(if behind == NodeId(0) { (1, 3) } else { QUORUM }));
            let (asked, question) = rig.next_of_any().await;
            assert_ne!(asked + 1, behind.0 as usize);
            rig.answer(asked, &question, record_of(&record)).await;
            get.await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_peer_that_has_just_connected_is_tried_by_few_reads() {
    run(async {
        let rig = Rig::start(3, Settings::default()).await;
        // By none, at any time before.
        let is_behind = |node| rig.shard.coordinator.operations.behind.contains(NodeId(node), Duration::ZERO);
        assert_eq!([0, 1, 2].map(is_behind), [false, true, true]);
    });
}

#[test]
fn who_lacks_what_was_timestamped_long_ago_is_behind() {
    run(async {
        for (age_ms, is_behind) in [(2000, true), (0, false)] {
            let mut rig = Rig::start(3, Settings::default()).await;
            let begin = rig.shard.clock.boot();
            // It shall not become old while the test runs.
            let hlc = Hlc::from_millis(rig.shard.clock.wall_ms() + 30_000 * u64::from(!is_behind) - age_ms);
            let record = Record::value(&key("k"), Version { hlc, incarnation: Incarnation(77) }, 3, None, b"value");
            let get = rig.get(&key("k"), quorum(QUORUM));
            let (holder, asked) = rig.next_of_any().await;
            rig.answer(holder, &asked, version_of(&record)).await;
            let fetch = rig.next(holder).await;
            rig.answer(holder, &fetch, record_of(&record)).await;
            // This node is given it, as the other one has not answered.
            get.await.unwrap().unwrap();
            assert_eq!(rig.shard.coordinator.operations.behind.contains(NodeId(0), begin), is_behind);
        }
    });
}

#[test]
fn a_read_at_a_quorum_repairs_nothing_behind_its_answer() {
    run(async {
        let mut rig = Rig::start(3, Settings { fan_out: FanOut::All, ..Settings::default() }).await;
        let record = rig.stored_everywhere(&key("k")).await;
        let get = rig.get(&key("k"), quorum(QUORUM));
        let (behind, holder) = (rig.next(0).await, rig.next(1).await);
        rig.answer(0, &behind, Message::ReadAnswer(ReadAnswer::Held(Held::Absent { gc_watermark: Version::ZERO })))
            .await;
        rig.answer(1, &holder, version_of(&record)).await;
        get.await.unwrap().unwrap();
        assert_eq!(rig.shard.coordinator.operations.under_way(), 0);
        assert_eq!(rig.metrics().read_repairs.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn over_its_budget_a_read_repairs_nothing() {
    run(async {
        let large = vec![b'v'; 900 << 10].leak();
        let settings = Settings { fan_out: FanOut::All, large_bytes_max: 16 << 20, ..Settings::default() };
        let mut rig = Rig::start(3, settings).await;
        for round in 0..2 {
            let key = key(&format!("k{round}"));
            let put = rig.put_value(&key, quorum((1, 3)), large);
            for peer in 0..2 {
                let store = rig.next(peer).await;
                rig.answer(peer, &store, Message::StoreAnswer(StoreAnswer::Failed(Failure::Overloaded))).await;
            }
            put.await.unwrap().unwrap();
            rig.get(&key, quorum((1, 3))).await.unwrap().unwrap();
            for peer in 0..2 {
                let read = rig.next(peer).await;
                rig.answer(
                    peer,
                    &read,
                    Message::ReadAnswer(ReadAnswer::Held(Held::Absent { gc_watermark: Version::ZERO })),
                )
                .await;
                if (round, peer) == (0, 0) {
                    rig.next(peer).await;
                }
            }
            until(|| rig.shard.coordinator.operations.under_way() == 0).await;
        }
        assert_eq!(rig.metrics().read_repairs.load(Ordering::Relaxed), 1);
        assert_eq!(rig.metrics().read_repairs_denied.load(Ordering::Relaxed), 3);
    });
}

/// Node 0 of two with a new directory, and the peer that it has no handshake with yet. Its own answer is enough.
async fn unmet(deadline: Duration) -> (Rig, rig::Idle, tokio::task::JoinHandle<Result<super::WriteResult, Refused>>) {
    let settings = Settings { deadline, ..Settings::default() };
    let (rig, mut idle) = Rig::unmet(2, settings, Box::new(kvorum_peer::dial::Tcp::default())).await;
    let put = rig.put(&key("early"), quorum((1, 2)));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    (rig, idle.pop().unwrap(), put)
}

#[test]
fn a_request_waits_for_a_cluster_that_comes_up_and_has_one_deadline() {
    run(async {
        let (rig, peer, put) = unmet(LONG).await;
        assert!(!put.is_finished());
        let begin = rig.shard.clock.boot();
        until(|| rig.shard.clock.boot() > begin + Duration::from_millis(50)).await;
        rig.meet(&peer);
        let written = put.await.unwrap().unwrap();
        let own = written.receipt.unwrap().replicas.into_iter().find(|replica| replica.outcome == "accepted").unwrap();
        assert!(own.micros.unwrap() >= 50_000, "its time began when it came: {own:?}");
    });
}

#[test]
fn a_request_whose_cluster_does_not_come_is_refused_after_its_deadline_or_when_the_node_stops() {
    run(async {
        let (_rig, _peer, put) = unmet(Duration::from_millis(50)).await;
        assert_eq!(put.await.unwrap().unwrap_err(), Refused::NotServing);
        let (rig, _peer, put) = unmet(LONG * 100).await;
        assert!(!put.is_finished());
        rig.shard.membership.drain();
        assert_eq!(put.await.unwrap().unwrap_err(), Refused::NotServing);
    });
}
