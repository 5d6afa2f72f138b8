//! Reads of a value that ends, against every course of the clocks: what has been answered as ended is never found again.
//!
//! One value, held by all replicas; one read after the other, each through a coordinator of its own. Every order is
//! explored of answers, of clocks that pass the end, of bounds that are raised, and of replicas that restart. That a
//! value must be held by a majority first is explored in `quorum_read`, and all of it together by chance in
//! `quorum_histories`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::HashSet;

use bytes::Bytes;
use kvorum_core::quorum::read::{Clocks, Read, ReadCommand};
use kvorum_core::quorum::{Expiry, Held, Quorum, Rank, ReadAnswer, ReplicaSet, Wanted, majority};
use kvorum_core::{Hlc, Incarnation, Key, Record, Version};

const END: u64 = 100;
const BEFORE: Hlc = Hlc::from_millis(END - 1);
const BEHIND: Hlc = Hlc::from_millis(END);

/// What a replica's answers show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// What of its clock is durable.
    Durable,
    /// All of it.
    All,
}

/// How often what happens at most.
#[derive(Clone, Copy, Debug)]
struct Faults {
    restarts: u8,
    hedges: u8,
}

/// Two restarts forget a majority of three clocks.
const RESTARTS: Faults = Faults { restarts: 2, hedges: 0 };
/// A hedge leaves questions under way.
const HEDGES: Faults = Faults { restarts: 0, hedges: 1 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Replica {
    clock: Hlc,
    bound: Hlc,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    replicas: Vec<Replica>,
    /// The clock of the coordinator of the read that is under way.
    own: Hlc,
    /// Questions that are under way, with the asker's clock.
    asked: Vec<(u8, Wanted, Hlc)>,
    /// Answers that are: the replica, whether with the record, its clock.
    answers: Vec<(u8, bool, Hlc)>,
    /// How the reads before this one ended.
    ended: Vec<Expiry>,
    restarts: u8,
    hedges: u8,
    /// A clock was too far ahead to be followed.
    is_apart: bool,
}

struct Explorer {
    from: u8,
    shown: Shown,
    faults: Faults,
    record: Record,
    seen: HashSet<String>,
    /// How often a read found the value, found that it had ended, and found neither.
    endings: [u64; 3],
    clocks_asked: u64,
    is_found_again: bool,
}

impl Explorer {
    fn run(from: u8, shown: Shown, faults: Faults) -> Self {
        let key = Key::new(Bytes::from_static(b"k")).unwrap();
        let version = Version { hlc: Hlc::from_millis(1), incarnation: Incarnation(1) };
        let record = Record::expiring(&key, version, from, Some(END), None, b"v");
        let (seen, endings) = (HashSet::new(), [0; 3]);
        let mut explorer = Self { from, shown, faults, record, seen, endings, clocks_asked: 0, is_found_again: false };
        let replica = Replica { clock: BEFORE, bound: BEFORE };
        let (asked, answers, ended) = (vec![], vec![], vec![]);
        let replicas = vec![replica; usize::from(from)];
        let state = State { replicas, own: BEFORE, asked, answers, ended, restarts: 0, hedges: 0, is_apart: false };
        let mut unexplored = explorer.begin(&state);
        while let Some((state, read)) = unexplored.pop() {
            for next in explorer.next(&state, &read) {
                if explorer.seen.insert(format!("{next:?}")) {
                    unexplored.push(next);
                }
            }
        }
        explorer
    }

    /// The next read, through a coordinator whose clock may be anything.
    fn begin(&self, before: &State) -> Vec<(State, Read)> {
        let required = majority(self.from);
        let begin = |own| {
            let mut state = State { own, asked: vec![], answers: vec![], ..before.clone() };
            let mut read = Read::new(Quorum::new(required, self.from).unwrap(), ReplicaSet::first(required), Rank(0));
            read.start(&mut |command| {
                let ReadCommand::Ask { rank, wanted } = command else { unreachable!("it only asks") };
                state.asked.push((rank.0, wanted, own));
            });
            (state, read)
        };
        vec![begin(BEFORE), begin(BEHIND)]
    }

    fn next(&mut self, state: &State, read: &Read) -> Vec<(State, Read)> {
        let mut all = Vec::new();
        let mut push = |change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            all.push((next, read.clone()));
        };
        push(&|next| next.own = BEHIND);
        for at in 0..state.replicas.len() {
            push(&|next| next.replicas[at].clock = BEHIND);
            push(&|next| next.replicas[at].bound = BEHIND);
            if state.restarts < self.faults.restarts {
                push(&|next| {
                    next.replicas[at].clock = next.replicas[at].bound;
                    next.restarts += 1;
                });
            }
        }
        for at in 0..state.asked.len() {
            let (rank, wanted, asker) = state.asked[at];
            let answer = |next: &mut State| {
                next.asked.remove(at);
                let replica = next.replicas[usize::from(rank)];
                let durable = if self.shown == Shown::All { replica.clock } else { replica.clock.min(replica.bound) };
                next.answers.push((rank, wanted == Wanted::Record, durable));
            };
            if wanted != Wanted::VersionAtClock {
                push(&answer);
                continue;
            }
            push(&|next| {
                let replica = &mut next.replicas[usize::from(rank)];
                replica.clock = replica.clock.max(asker);
                replica.bound = replica.bound.max(replica.clock);
                answer(next);
            });
            if state.replicas[usize::from(rank)].clock < asker {
                // That is too far ahead of its own.
                push(&|next| {
                    next.is_apart = true;
                    answer(next);
                });
            }
        }
        if state.hedges < self.faults.hedges {
            let (mut next, mut read) = (state.clone(), read.clone());
            next.hedges += 1;
            let mut commands = Vec::new();
            read.on_hedge(&mut |command| commands.push(command));
            all.extend(self.carry_out(next, read, commands));
        }
        for at in 0..state.answers.len() {
            let (mut next, mut read) = (state.clone(), read.clone());
            let (rank, is_record, clock) = next.answers.remove(at);
            let answer = if is_record {
                ReadAnswer::Held(Held::Record(self.record.clone()))
            } else {
                ReadAnswer::Version { version: self.record.version(), from: self.from }
            };
            let mut commands = Vec::new();
            let own = next.own;
            let clocks = Clocks { replica: clock, own: &|| own };
            read.on_read(Rank(rank), answer, clocks, &mut |command| commands.push(command));
            // What peers show moves the coordinator's clock.
            next.own = own.max(clock);
            all.extend(self.carry_out(next, read, commands));
        }
        all
    }

    fn carry_out(&mut self, mut state: State, read: Read, commands: Vec<ReadCommand>) -> Vec<(State, Read)> {
        for command in commands {
            match command {
                ReadCommand::Ask { rank, wanted } => {
                    self.clocks_asked += u64::from(wanted == Wanted::VersionAtClock);
                    state.asked.push((rank.0, wanted, state.own));
                }
                ReadCommand::Done(Held::Record(_), expiry) => {
                    self.endings[usize::from(expiry == Expiry::Passed)] += 1;
                    self.is_found_again |= state.ended.last() == Some(&Expiry::Passed) && expiry == Expiry::Ahead;
                    state.ended.push(expiry);
                    return if state.ended.len() < 2 { self.begin(&state) } else { vec![] };
                }
                ReadCommand::Hopeless => {
                    assert!(state.is_apart, "no clock was too far from another: {state:?}");
                    self.endings[2] += 1;
                    return vec![];
                }
                command => unreachable!("the value is everywhere: {command:?}"),
            }
        }
        assert!(!(state.asked.is_empty() && state.answers.is_empty()), "it waits for nothing: {read:?}");
        vec![(state, read)]
    }
}

#[test]
fn what_has_ended_is_never_found_again() {
    for (from, faults) in (1..=3).flat_map(|from| [(from, RESTARTS), (from, HEDGES)]) {
        let explored = Explorer::run(from, Shown::Durable, faults);
        println!("{from}, {faults:?}: {} states, endings {:?}", explored.seen.len(), explored.endings);
        assert!(!explored.is_found_again, "{from}");
        assert!(explored.endings[0] > 0 && explored.endings[1] > 0 && explored.clocks_asked > 0, "{from}");
    }
}

#[test]
fn a_clock_that_a_restart_forgets_is_noticed() {
    assert!((1..=3).all(|from| Explorer::run(from, Shown::All, RESTARTS).is_found_again));
}
