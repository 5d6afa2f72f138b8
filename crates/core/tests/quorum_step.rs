//! Writes to keys that move, against a plain specification: every order of every mix of answers, for every pair of
//! groups of 1 to 3 among four replicas.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use kvorum_core::quorum::step::{Groups, StepWrite, StepWriteStep, Tick, TickStep};
use kvorum_core::quorum::write::WriteOutcome;
use kvorum_core::quorum::{Current, Failure, Quorum, Rank, ReplicaSet, StoreAnswer};
use kvorum_core::version::{Hlc, Incarnation, Version};

const STAMP: u64 = 100;
const REPLICAS: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Accepted,
    StaleRecord,
    StaleGcWatermark,
    UnknownNewer,
    UnknownOlder,
    Failed,
}

const KINDS: [Kind; 6] =
    [Kind::Accepted, Kind::StaleRecord, Kind::StaleGcWatermark, Kind::UnknownNewer, Kind::UnknownOlder, Kind::Failed];

fn version(number: u64) -> Version {
    Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(7) }
}

fn answer(kind: Kind) -> StoreAnswer {
    match kind {
        Kind::Accepted => StoreAnswer::Accepted,
        Kind::StaleRecord => StoreAnswer::Stale(Current::Record(version(STAMP + 1))),
        Kind::StaleGcWatermark => StoreAnswer::Stale(Current::GcWatermark(version(STAMP + 1))),
        Kind::UnknownNewer => StoreAnswer::StaleUnknown(Current::Record(version(STAMP + 1))),
        Kind::UnknownOlder => StoreAnswer::StaleUnknown(Current::Record(version(STAMP - 1))),
        Kind::Failed => StoreAnswer::Failed(Failure::Timeout),
    }
}

/// Sets of replicas, as bits.
type Bits = u8;

fn set(bits: Bits) -> ReplicaSet {
    (0..REPLICAS).filter(|rank| bits >> rank & 1 == 1).map(Rank).collect()
}

/// Every pair of groups of one size that is not one set.
fn pairs() -> impl Iterator<Item = (Bits, Bits)> {
    let sets = || (1..1_u8 << REPLICAS).filter(|bits| bits.count_ones() <= 3);
    sets().flat_map(move |now| sets().map(move |next| (now, next))).filter(|(now, next)| now != next)
}

/// How many of these are in the group, and how many it has.
fn part(bits: Bits, group: Bits) -> (u32, u32) {
    ((bits & group).count_ones(), group.count_ones())
}

type Heard = Vec<(u8, Kind)>;

fn of(heard: &[(u8, Kind)], kinds: &[Kind]) -> Bits {
    heard.iter().filter(|(_, kind)| kinds.contains(kind)).fold(0, |bits, (rank, _)| bits | 1 << rank)
}

/// What a write is once it has heard this.
fn verdict(groups: [Bits; 2], ack: u32, heard: &[(u8, Kind)]) -> StepWriteStep {
    // No more than a majority of the larger group is asked for: then one of each will do.
    let from = groups[0].count_ones().max(groups[1].count_ones());
    let ack = if (ack - 1) * 2 <= from { 0 } else { ack };
    let more_than_half =
        |bits| groups.iter().all(|group| matches!(part(bits, *group), (in_it, all) if in_it * 2 > all));
    let settled = of(heard, &[Kind::Accepted, Kind::StaleRecord, Kind::UnknownNewer]);
    let spoke = settled | of(heard, &[Kind::StaleGcWatermark, Kind::UnknownOlder]);
    let enough_spoke = groups.iter().all(|group| matches!(part(spoke, *group), (in_it, all) if in_it >= ack.min(all)));
    if more_than_half(settled) && enough_spoke {
        let is_held = more_than_half(of(heard, &[Kind::Accepted]));
        return StepWriteStep::Done(if is_held { WriteOutcome::Held } else { WriteOutcome::Overwritten });
    }
    let all = of(heard, &KINDS) == groups[0] | groups[1];
    if all { StepWriteStep::Hopeless } else { StepWriteStep::Wait }
}

fn explore(write: &StepWrite, groups: [Bits; 2], ack: u32, heard: &mut Heard, steps: &mut u64) {
    let asked = (0..REPLICAS).filter(|rank| (groups[0] | groups[1]) >> rank & 1 == 1);
    let silent: Vec<u8> = asked.filter(|rank| heard.iter().all(|(other, _)| other != rank)).collect();
    for rank in silent {
        for kind in KINDS {
            let mut write = write.clone();
            let is_over = (0..=heard.len()).any(|until| verdict(groups, ack, &heard[..until]) != StepWriteStep::Wait);
            heard.push((rank, kind));
            let expected = if is_over { StepWriteStep::Wait } else { verdict(groups, ack, heard) };
            let step = write.on_answer(Rank(rank), answer(kind));
            assert_eq!(step, expected, "{groups:?} ack {ack}: {heard:?}");
            assert_eq!(write.on_answer(Rank(rank), StoreAnswer::Accepted), StepWriteStep::Wait, "a duplicate");
            assert_eq!(write.on_answer(Rank(REPLICAS), StoreAnswer::Accepted), StepWriteStep::Wait, "a stranger");
            assert_eq!(write.accepted(), set(of(heard, &[Kind::Accepted])));
            *steps += 1;
            explore(&write, groups, ack, heard, steps);
            heard.pop();
        }
    }
}

#[test]
fn every_order_of_every_mix_of_answers_meets_the_specification() {
    let mut steps = 0;
    for (now, next) in pairs() {
        let from = u8::try_from(now.count_ones().max(next.count_ones())).unwrap();
        for ack in from / 2 + 1..=from {
            let quorum = Quorum::new(ack, from).unwrap();
            let write = StepWrite::new(Groups::new(set(now), set(next)), quorum, version(STAMP));
            explore(&write, [now, next], ack.into(), &mut Vec::new(), &mut steps);
        }
    }
    assert!(steps > 1_000_000, "only {steps} answers explored");
}

/// What a success means, whatever the rules that lead to it: a majority of each group has it or something newer. So no
/// quorum of a reader, of either group or of both, misses it.
#[test]
fn no_reader_of_either_group_misses_a_write_that_is_done() {
    let holds = [Kind::Accepted, Kind::StaleRecord, Kind::UnknownNewer];
    for (now, next) in pairs() {
        let from = u8::try_from(now.count_ones().max(next.count_ones())).unwrap();
        let quorum = Quorum::new(from / 2 + 1, from).unwrap();
        // Which hold it, in each way that there is: the others fail.
        for held in (0..1_u8 << REPLICAS).filter(|held| held & !(now | next) == 0) {
            let mut write = StepWrite::new(Groups::new(set(now), set(next)), quorum, version(STAMP));
            let steps: Vec<_> = (0..REPLICAS)
                .filter(|rank| (now | next) >> rank & 1 == 1)
                .map(|rank| {
                    let kind = if held >> rank & 1 == 1 { holds[usize::from(rank) % 3] } else { Kind::Failed };
                    write.on_answer(Rank(rank), answer(kind))
                })
                .collect();
            let is_done = steps.iter().any(|step| matches!(step, StepWriteStep::Done(_)));
            let is_found = |group: Bits| {
                let quorums = (0..1_u8 << REPLICAS).filter(|quorum| {
                    quorum & !group == 0 && matches!(part(*quorum, group), (in_it, all) if in_it * 2 > all)
                });
                quorums.into_iter().all(|quorum| quorum & held != 0)
            };
            assert!(!is_done || is_found(now) && is_found(next), "{now:04b} {next:04b}: held by {held:04b}");
            let have = |group: Bits| matches!(part(held, group), (in_it, all) if in_it * 2 > all);
            assert_eq!(is_done, have(now) && have(next), "{now:04b} {next:04b}: held by {held:04b}");
        }
    }
}

#[test]
fn a_tick_is_above_what_majorities_of_both_groups_have_applied() {
    for (now, next) in pairs() {
        let all = now | next;
        for answering in (0..1_u8 << REPLICAS).filter(|bits| bits & !all == 0) {
            let mut tick = Tick::new(Groups::new(set(now), set(next)));
            let (mut heard, mut failed, mut is_over): (Bits, Bits, bool) = (0, 0, false);
            for rank in (0..REPLICAS).filter(|rank| all >> rank & 1 == 1) {
                let reading = Hlc::from_raw(10 + u64::from(rank) * 7 % 5);
                let answers = answering >> rank & 1 == 1;
                let step = tick.on_answer(Rank(rank), answers.then_some(reading));
                if answers {
                    heard |= 1 << rank
                } else {
                    failed |= 1 << rank
                }
                let majorities = |bits| {
                    [now, next].iter().all(|group| matches!(part(bits, *group), (in_it, all) if in_it * 2 > all))
                };
                let greatest =
                    (0..REPLICAS).filter(|rank| heard >> rank & 1 == 1).map(|rank| 10 + u64::from(rank) * 7 % 5);
                let expected = match () {
                    () if is_over => TickStep::Wait,
                    () if majorities(heard) => TickStep::Stamp { above: Hlc::from_raw(greatest.max().unwrap()) },
                    () if !majorities(all & !failed) => TickStep::Hopeless,
                    () => TickStep::Wait,
                };
                assert_eq!(step, expected, "{now:04b} {next:04b}: {heard:04b} of {answering:04b}");
                is_over |= expected != TickStep::Wait;
                assert_eq!(tick.on_answer(Rank(rank), Some(Hlc::from_raw(99))), TickStep::Wait, "a duplicate");
            }
            assert!(is_over, "with the last answer it is decided");
        }
    }
}
