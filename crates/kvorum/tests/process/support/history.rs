//! Is a history of reads, writes and deletions of one register linearizable?
//!
//! The answer is exact, and there is always one. Events are taken in the order of time, with the set of all states
//! that the register may be in: the value, and which of the calls under way have taken effect (Lowe, "Testing for
//! linearizability", 2017, "just-in-time linearization"). At the end of a call, only states in which it has taken
//! effect are left; none left is a violation.
//!
//! That the set stays small is due to what histories here are like:
//! - A written value is unique. A write of unknown outcome that was not read need not have taken effect; one that was
//!   read did so before the first read of it ended. A value that is still to be read is not overwritten.
//! - A read takes effect as soon as the value is there, and a write that is not read right before another one: no order
//!   can do better.
//! - Deletions of unknown outcome may take effect at any later time, or never, and are all alike: they are counted.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Identifies a written value; `INITIAL` is "nothing here", which deletions write.
pub type Value = u64;
pub const INITIAL: Value = 0;
/// Any value that is not read.
const UNREAD: Value = Value::MAX;

/// One operation. Times are since one common beginning.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub value: Value,
    pub is_write: bool,
    pub start: Duration,
    /// None: the outcome of the write is unknown.
    pub end: Option<Duration>,
}

/// Why the history is not linearizable, if it is not.
pub fn violation(operations: &[Operation]) -> Option<String> {
    let mut first_read_ends: HashMap<Value, Duration> = HashMap::new();
    for read in operations.iter().filter(|operation| !operation.is_write) {
        let end = read.end.expect("a read without an answer says nothing");
        let first = first_read_ends.entry(read.value).or_insert(end);
        *first = end.min(*first);
    }
    let mut written = HashSet::from([INITIAL]);
    let mut calls = Vec::new();
    for operation in operations {
        let mut call = *operation;
        if call.is_write && call.value != INITIAL {
            assert!(written.insert(call.value), "values must be unique: {call:?}");
            match first_read_ends.get(&call.value) {
                Some(end) if *end < call.start => return Some(format!("read before its write began: {call:?}")),
                Some(end) => call.end = Some(call.end.map_or(*end, |own| own.min(*end))),
                None if call.end.is_none() => continue,
                None => call.value = UNREAD,
            }
        }
        calls.push(call);
    }
    match first_read_ends.keys().find(|value| !written.contains(value)) {
        Some(value) => Some(format!("value {value} was read and never written")),
        None => Register::new(&calls).run(),
    }
}

/// A value of the register, and which calls under way have taken effect, by their slots.
type State = (Value, u128);

struct Register<'a> {
    calls: &'a [Operation],
    /// The calls under way, by slot.
    slots: [Option<&'a Operation>; 128],
    /// The number of the last event that is the beginning of a read of the value.
    last_reads: HashMap<Value, usize>,
    /// Deletions of unknown outcome that have begun.
    spares: u32,
    /// All states that the register may be in, each with the least of these that it takes.
    states: HashMap<State, u32>,
}

impl<'a> Register<'a> {
    fn new(calls: &'a [Operation]) -> Self {
        let states = HashMap::from([((INITIAL, 0), 0)]);
        Self { calls, slots: [None; 128], last_reads: HashMap::new(), spares: 0, states }
    }

    fn run(mut self) -> Option<String> {
        let calls = self.calls;
        let starts = calls.iter().enumerate().map(|(index, call)| (call.start, false, index));
        let ends = calls.iter().enumerate().filter_map(|(index, call)| Some((call.end?, true, index)));
        let mut events: Vec<(Duration, bool, usize)> = starts.chain(ends).collect();
        // What touches is concurrent: starts first.
        events.sort_unstable();
        for (number, (_, is_end, index)) in events.iter().enumerate() {
            if !is_end && !calls[*index].is_write {
                self.last_reads.insert(calls[*index].value, number);
            }
        }
        let mut slot_of: HashMap<usize, usize> = HashMap::new();
        for (number, (_, is_end, index)) in events.into_iter().enumerate() {
            let call = &calls[index];
            if is_end {
                let slot = slot_of.remove(&index).expect("a call ends after its start");
                self.end(number, slot);
                self.slots[slot] = None;
                if self.states.is_empty() {
                    return Some(format!("no order explains {call:?}, with {:?} under way", self.under_way()));
                }
            } else if call.end.is_none() {
                self.spares += 1;
            } else {
                let Some(slot) = self.slots.iter().position(Option::is_none) else {
                    return Some("undecided: more than 128 calls under way".to_owned());
                };
                self.slots[slot] = Some(call);
                slot_of.insert(index, slot);
                self.explain_reads();
            }
        }
        None
    }

    fn under_way(&self) -> Vec<&Operation> {
        self.slots.iter().flatten().copied().collect()
    }

    /// The slots under way for which this holds.
    fn mask(&self, holds: impl Fn(&Operation) -> bool) -> u128 {
        let slots = self.slots.iter().enumerate().filter(|(_, call)| call.is_some_and(&holds));
        slots.fold(0, |mask, (slot, _)| mask | 1 << slot)
    }

    fn reads_of(&self, value: Value) -> u128 {
        self.mask(|call| !call.is_write && call.value == value)
    }

    /// A read has begun: where its value is there, it takes effect.
    fn explain_reads(&mut self) {
        let states = std::mem::take(&mut self.states);
        self.states =
            states.into_iter().map(|((value, done), used)| ((value, done | self.reads_of(value)), used)).collect();
    }

    /// Leaves the states that can be reached and in which the call in `slot` has taken effect.
    fn end(&mut self, number: usize, slot: usize) {
        let bit = 1 << slot;
        let mut seen = self.states.clone();
        let mut unexplored: Vec<State> = self.states.drain().map(|(state, _)| state).collect();
        while let Some(state) = unexplored.pop() {
            let used = seen[&state];
            if state.1 & bit != 0 {
                keep_least(&mut self.states, (state.0, state.1 & !bit), used);
                continue;
            }
            for (next, used) in self.after(number, state, used) {
                if keep_least(&mut seen, next, used) {
                    unexplored.push(next);
                }
            }
        }
    }

    /// The states one write further.
    fn after(&self, number: usize, (value, done): State, used: u32) -> Vec<(State, u32)> {
        let is_awaited = self.last_reads.get(&value).is_some_and(|last| *last > number);
        if value != INITIAL && is_awaited {
            return Vec::new();
        }
        let unread = done | self.mask(|call| call.is_write && call.value == UNREAD);
        let writes = self.mask(|call| call.is_write && call.value != UNREAD) & !done;
        let slots = (0..self.slots.len()).filter(|slot| writes >> slot & 1 == 1);
        let with = |value: Value, bits: u128| (value, unread | bits | self.reads_of(value));
        let mut next: Vec<(State, u32)> =
            slots.filter_map(|slot| Some((with(self.slots[slot]?.value, 1 << slot), used))).collect();
        if unread != done {
            next.push((with(UNREAD, 0), used));
        }
        if used < self.spares && value != INITIAL {
            next.push((with(INITIAL, 0), used + 1));
        }
        next
    }
}

/// Whether the state is new, or takes less than before.
fn keep_least(states: &mut HashMap<State, u32>, state: State, used: u32) -> bool {
    let least = states.entry(state).or_insert(u32::MAX);
    let is_less = used < *least;
    *least = used.min(*least);
    is_less
}

mod tests {
    use super::*;
    use crate::support::random::Random;

    /// An end of zero is an unknown outcome.
    fn call(is_write: bool, value: Value, start: u64, end: u64) -> Operation {
        let end = (end != 0).then(|| Duration::from_millis(end));
        Operation { value, is_write, start: Duration::from_millis(start), end }
    }

    fn check(calls: &[(bool, Value, u64, u64)]) -> Option<String> {
        let calls: Vec<_> =
            calls.iter().map(|&(is_write, value, start, end)| call(is_write, value, start, end)).collect();
        violation(&calls)
    }

    const WRITE: bool = true;
    const READ: bool = false;

    #[test]
    fn a_history_with_concurrent_writes_in_any_order_is_linearizable() {
        assert_eq!(check(&[(WRITE, 1, 10, 30), (WRITE, 2, 15, 35), (READ, 1, 40, 50), (READ, 1, 60, 70)]), None);
        assert_eq!(check(&[(WRITE, 1, 10, 30), (WRITE, 2, 15, 35), (READ, 2, 40, 50), (READ, 2, 60, 70)]), None);
    }

    #[test]
    fn a_lost_write_is_found() {
        assert!(check(&[(WRITE, 1, 10, 20), (WRITE, 2, 30, 40), (READ, 1, 50, 60)]).is_some());
        assert!(check(&[(WRITE, 1, 10, 20), (READ, INITIAL, 30, 40)]).is_some());
    }

    #[test]
    fn a_read_that_goes_back_is_found() {
        assert!(check(&[(WRITE, 1, 10, 0), (READ, 1, 20, 30), (READ, INITIAL, 40, 50)]).is_some());
        assert!(check(&[(WRITE, 1, 10, 40), (WRITE, 2, 11, 41), (READ, 1, 50, 51), (READ, 2, 52, 53)]).is_some());
    }

    #[test]
    fn a_write_of_unknown_outcome_may_show_up_late_once_or_never() {
        assert_eq!(check(&[(WRITE, 1, 10, 0), (WRITE, 2, 20, 30), (READ, 2, 31, 32), (READ, 1, 40, 50)]), None);
        assert_eq!(check(&[(WRITE, 1, 10, 0), (WRITE, 2, 20, 30), (READ, 2, 31, 32)]), None);
        assert!(check(&[(WRITE, 1, 10, 0), (READ, 1, 20, 30), (WRITE, 2, 40, 50), (READ, 1, 60, 70)]).is_some());
    }

    #[test]
    fn a_value_from_nowhere_is_found() {
        assert!(check(&[(READ, 7, 10, 20)]).is_some());
        assert!(check(&[(READ, 7, 10, 20), (WRITE, 7, 30, 40)]).is_some());
    }

    #[test]
    fn a_deletion_of_unknown_outcome_may_take_effect_late_but_once() {
        let late = [(WRITE, 1, 10, 20), (WRITE, INITIAL, 21, 0), (READ, 1, 30, 40), (READ, INITIAL, 41, 50)];
        assert_eq!(check(&late), None);
        let again = [(WRITE, 2, 51, 60), (READ, INITIAL, 61, 70)];
        assert!(check(&[&late[..], &again].concat()).is_some());
        assert!(check(&[(WRITE, 1, 10, 20), (WRITE, INITIAL, 21, 25), (READ, 1, 30, 40)]).is_some(), "it came back");
    }

    /// The definition: some order of the calls, with or without those of unknown outcome, explains every read.
    fn is_explained(calls: &[Operation], done: u32, value: Value) -> bool {
        let left = |index: &usize| done >> index & 1 == 0;
        let mut owed = (0..calls.len()).filter(left).filter_map(|index| calls[index].end);
        let Some(first_end) = owed.next().map(|first| owed.fold(first, Duration::min)) else { return true };
        (0..calls.len()).filter(left).filter(|index| calls[*index].start <= first_end).any(|index| {
            let call = calls[index];
            (call.is_write || call.value == value) && is_explained(calls, done | 1 << index, call.value)
        })
    }

    /// Calls of three clients on a register that holds what is written, seen up to three values late.
    fn random_history(random: &mut Random, length: u64, staleness: u64) -> Vec<Operation> {
        let (mut values, mut calls, mut free_at) = (vec![INITIAL], Vec::new(), [0; 3]);
        for number in 1..=length {
            let client = random.below(3) as usize;
            let at = number * 10;
            let (start, end) = (at - random.below(at - free_at[client].min(at - 1)).min(25), at + random.below(25));
            free_at[client] = end + 1;
            if random.below(2) == 0 {
                let value = if random.below(3) == 0 { INITIAL } else { number };
                let is_known = random.below(4) != 0;
                if is_known || random.below(2) == 0 {
                    values.push(value);
                }
                calls.push(call(WRITE, value, start, if is_known { end } else { 0 }));
            } else {
                let late = random.below(staleness + 1).min(values.len() as u64 - 1) as usize;
                calls.push(call(READ, values[values.len() - 1 - late], start, end));
            }
        }
        calls
    }

    #[test]
    fn it_agrees_with_the_definition_on_short_histories() {
        let mut random = Random::new(1);
        let mut good = 0;
        for _ in 0..20_000 {
            let length = 3 + random.below(7);
            let staleness = random.below(3);
            let history = random_history(&mut random, length, staleness);
            let expected = is_explained(&history, 0, INITIAL);
            let found = violation(&history);
            assert_eq!(found.is_none(), expected, "{found:?}: {history:#?}");
            good += u32::from(expected);
        }
        assert!((4_000..18_000).contains(&good), "{good} of 20,000 are linearizable: this shows too little");
    }

    #[test]
    fn one_wrong_answer_in_a_long_history_is_found() {
        let mut random = Random::new(2);
        for _ in 0..20 {
            let mut history = random_history(&mut random, 20_000, 0);
            assert_eq!(violation(&history), None);
            // A value that two acknowledged writes have replaced since, one after the other.
            let at = 15_000 + random.below(4_000) as usize;
            let of_value = |call: &Operation| call.is_write && call.value != INITIAL && call.end.is_some();
            let written: Vec<Operation> = history[..at].iter().rev().copied().filter(of_value).take(100).collect();
            let read = history[at..].iter_mut().find(|call| !call.is_write).expect("there are reads to the end");
            read.value = written.last().expect("and writes").value;
            assert!(violation(&history).is_some());
        }
    }
}
