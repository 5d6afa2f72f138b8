//! The write machine against a plain specification: every order of every mix of answers, for every
//! `ack` of every `from` up to 5 and for every attempt.
//!
//! Nothing is left out by symmetry within an attempt. Between attempts one reduction is made, and checked
//! (`check_forgotten`): nothing is left of earlier attempts but their number and the newest version, so
//! one way to reach an attempt stands for all.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use std::collections::HashMap;

use kvorum_core::quorum::write::{ATTEMPTS_MAX, Attempt, Write, WriteOutcome, WriteStep};
use kvorum_core::quorum::{Current, Failure, Quorum, Rank, StoreAnswer};
use kvorum_core::version::{Hlc, Incarnation, Version};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Accepted,
    StaleRecord,
    StaleGcWatermark,
    StaleUnknown,
    Failed,
}

const KINDS: [Kind; 5] = [Kind::Accepted, Kind::StaleRecord, Kind::StaleGcWatermark, Kind::StaleUnknown, Kind::Failed];

/// What happened in one attempt so far: each replica answers once.
type Heard = Vec<(u8, Kind)>;

fn version(number: u64) -> Version {
    Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(7) }
}

/// What the replica of this rank holds whenever it is stale, so that each one's version is its own.
fn holds(rank: u8) -> Version {
    version(10 + u64::from(rank))
}

fn answer(rank: u8, kind: Kind) -> StoreAnswer {
    match kind {
        Kind::Accepted => StoreAnswer::Accepted,
        Kind::StaleRecord => StoreAnswer::Stale(Current::Record(holds(rank))),
        Kind::StaleGcWatermark => StoreAnswer::Stale(Current::GcWatermark(holds(rank))),
        Kind::StaleUnknown => StoreAnswer::StaleUnknown(Current::Record(holds(rank))),
        Kind::Failed => StoreAnswer::Failed(Failure::Timeout),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Open,
    Held,
    Overwritten,
    Again,
    Lost,
}

/// The rules of docs/explanation/consistency.md over a list of answers.
fn verdict(quorum: Quorum, attempt: u8, heard: &[(u8, Kind)]) -> Verdict {
    let (ack, from) = (usize::from(quorum.required()), usize::from(quorum.replicas()));
    let count = |kinds: &[Kind]| heard.iter().filter(|(_, kind)| kinds.contains(kind)).count();
    let accepted = count(&[Kind::Accepted]);
    let everybody_spoke = heard.len() == from;
    let half_or_less = ack * 2 <= from;
    if half_or_less {
        let refused = count(&[Kind::StaleRecord, Kind::StaleGcWatermark, Kind::StaleUnknown]);
        return match () {
            () if accepted >= ack => Verdict::Held,
            () if refused > 0 && attempt == 1 => Verdict::Again,
            () if everybody_spoke => Verdict::Lost,
            () => Verdict::Open,
        };
    }
    let spoke = count(&[Kind::Accepted, Kind::StaleRecord, Kind::StaleGcWatermark, Kind::StaleUnknown]);
    if accepted * 2 > from && spoke >= ack {
        return Verdict::Held;
    }
    let may_still_accept = from - count(&[Kind::StaleRecord, Kind::StaleGcWatermark]);
    let blocked = may_still_accept * 2 <= from;
    let is_excused = blocked && attempt > 1 && count(&[Kind::StaleGcWatermark]) == 0;
    let kept_by = accepted + count(&[Kind::StaleRecord]);
    match () {
        () if is_excused && kept_by * 2 > from && spoke >= ack => Verdict::Overwritten,
        () if is_excused && !everybody_spoke => Verdict::Open,
        () if is_excused => Verdict::Lost,
        () if blocked && attempt < ATTEMPTS_MAX => Verdict::Again,
        () if blocked || everybody_spoke => Verdict::Lost,
        () => Verdict::Open,
    }
}

/// What the machine must return for the last of these answers: the verdict, if it is the first that is not open.
fn expected(quorum: Quorum, attempt: u8, heard: &[(u8, Kind)], newest: Version) -> WriteStep {
    let earlier = (0..heard.len()).map(|length| verdict(quorum, attempt, &heard[..length]));
    if earlier.into_iter().any(|verdict| verdict != Verdict::Open) {
        return WriteStep::Wait;
    }
    match verdict(quorum, attempt, heard) {
        Verdict::Open => WriteStep::Wait,
        Verdict::Held => WriteStep::Done(WriteOutcome::Held),
        Verdict::Overwritten => WriteStep::Done(WriteOutcome::Overwritten),
        Verdict::Again => WriteStep::RetryWithHigherTimestamp { above: newest },
        Verdict::Lost => WriteStep::Hopeless,
    }
}

/// Explores one attempt.
struct Explorer {
    quorum: Quorum,
    /// Whether each answer is preceded by some that must count for nothing.
    noise: bool,
    newest_before: Version,
    steps: u64,
    /// Each write that had to be timestamped again.
    blocked: Vec<Write>,
}

impl Explorer {
    /// Every continuation of `heard`, after which `write` is.
    fn explore(&mut self, write: &Write, heard: &mut Heard) {
        for rank in
            (0..self.quorum.replicas()).filter(|rank| heard.iter().all(|(other, _)| other != rank)).collect::<Vec<_>>()
        {
            for kind in KINDS {
                let mut write = write.clone();
                if self.noise {
                    self.make_noise(&mut write, heard);
                }
                let step = write.on_answer(write.attempt(), Rank(rank), answer(rank, kind));
                heard.push((rank, kind));
                self.check(&write, step, heard);
                self.explore(&write, heard);
                heard.pop();
            }
        }
    }

    fn make_noise(&self, write: &mut Write, heard: &Heard) {
        for kind in KINDS {
            if let Some((rank, _)) = heard.last() {
                let mut duplicate = write.clone();
                assert_eq!(duplicate.on_answer(write.attempt(), Rank(*rank), answer(*rank, kind)), WriteStep::Wait);
                if kind == Kind::Accepted || kind == Kind::Failed {
                    *write = duplicate;
                }
            }
            if write.attempt() > Attempt::FIRST {
                let late = answer(0, kind);
                assert_eq!(write.on_answer(Attempt::FIRST, Rank(0), late), WriteStep::Wait, "of an earlier attempt");
            }
        }
        let handshake_error = Rank(self.quorum.replicas());
        assert_eq!(write.on_answer(write.attempt(), handshake_error, StoreAnswer::Accepted), WriteStep::Wait);
    }

    fn check(&mut self, write: &Write, step: WriteStep, heard: &Heard) {
        self.steps += 1;
        let stale = [Kind::StaleRecord, Kind::StaleGcWatermark];
        let seen = heard.iter().filter(|(_, kind)| stale.contains(kind) || *kind == Kind::StaleUnknown);
        let newest = seen.map(|(rank, _)| holds(*rank)).chain([self.newest_before]).max().unwrap();
        let (quorum, attempt) = (self.quorum, write.attempt().number());
        assert_eq!(step, expected(quorum, attempt, heard, newest), "{quorum:?} attempt {attempt}: {heard:?}");
        assert_eq!(write.newest(), newest);
        let holding = |rank: u8| heard.iter().any(|(other, kind)| *other == rank && *kind == Kind::Accepted);
        for rank in 0..quorum.replicas() {
            assert_eq!(write.accepted().contains(Rank(rank)), holding(rank));
        }
        self.check_promises(write, step, heard);
        if matches!(step, WriteStep::RetryWithHigherTimestamp { .. }) {
            self.blocked.push(write.clone());
        }
    }

    /// What a success means, whatever the rules that lead to it.
    fn check_promises(&self, write: &Write, step: WriteStep, heard: &Heard) {
        let from = usize::from(self.quorum.replicas());
        let records = heard.iter().filter(|(_, kind)| *kind == Kind::StaleRecord).count();
        match step {
            WriteStep::Done(WriteOutcome::Held) if self.quorum.is_quorum() => {
                assert!(usize::from(write.acked()) * 2 > from, "held by less than a majority");
            }
            WriteStep::Done(WriteOutcome::Held) => assert!(write.acked() >= self.quorum.required()),
            WriteStep::Done(WriteOutcome::Overwritten) => {
                assert!(write.attempt() > Attempt::FIRST && self.quorum.is_quorum(), "blocked only once");
                assert!((from - records) * 2 <= from, "not blocked by records");
                let kept_by = usize::from(write.acked()) + records;
                assert!(kept_by * 2 > from, "a minority has it or something newer");
                assert!(
                    heard.iter().filter(|(_, kind)| *kind != Kind::Failed).count()
                        >= usize::from(self.quorum.required())
                );
            }
            WriteStep::Hopeless | WriteStep::RetryWithHigherTimestamp { .. } | WriteStep::Wait => {}
        }
    }
}

fn every_acks() -> impl Iterator<Item = Quorum> {
    (1..=5).flat_map(|from| (1..=from).map(move |ack| Quorum::new(ack, from).unwrap()))
}

/// Explores every attempt that there can be, from one representative of each.
fn explore_all(quorum: Quorum, noise: bool, mut each_blocked: impl FnMut(&Write)) -> u64 {
    let mut steps = 0;
    let mut write = Write::new(quorum);
    loop {
        let mut explorer = Explorer { quorum, noise, newest_before: write.newest(), steps: 0, blocked: Vec::new() };
        if noise && write.attempt() > Attempt::FIRST {
            // The noise contains late answers, which raise the version to timestamp above.
            explorer.newest_before = explorer.newest_before.max(holds(0));
        }
        explorer.explore(&write, &mut Vec::new());
        steps += explorer.steps;
        explorer.blocked.iter().for_each(&mut each_blocked);
        let Some(blocked) = explorer.blocked.into_iter().next() else { return steps };
        write = blocked;
        write.retried();
    }
}

/// That nothing is left of the earlier attempts but their number and the newest version: the reduction.
fn check_forgotten(states: &mut HashMap<(Attempt, Version), String>, blocked: &Write) {
    let mut write = blocked.clone();
    let attempt = write.retried();
    let state = format!("{write:?}");
    let known = states.entry((attempt, write.newest())).or_insert_with(|| state.clone());
    assert_eq!(*known, state);
}

#[test]
fn every_order_of_every_mix_of_answers_meets_the_specification() {
    let mut steps = 0;
    for quorum in every_acks() {
        let (mut last, mut states) = (0, HashMap::new());
        steps += explore_all(quorum, false, |blocked| {
            last = last.max(blocked.attempt().number());
            check_forgotten(&mut states, blocked);
        });
        let retries_max = if quorum.is_quorum() { ATTEMPTS_MAX - 1 } else { 1 };
        assert_eq!(last, retries_max, "attempts of {quorum:?}");
    }
    assert!(steps > 5_000_000, "only {steps} answers explored");
}

#[test]
fn duplicates_strangers_and_late_answers_of_earlier_attempts_change_nothing() {
    for quorum in every_acks().filter(|quorum| quorum.replicas() <= 4) {
        explore_all(quorum, true, |_| ());
    }
}
