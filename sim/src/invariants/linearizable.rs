//! At quorum each key is an atomic register: there is one order of its operations that explains every answer
//! and agrees with which of them ended before which began (Herlihy and Wing, "Linearizability", 1990).
//!
//! Searched as by Wing and Gong, "Testing and verifying concurrent objects" (1993), with Lowe's memory of what
//! was seen ("Testing for linearizability", 2017): a set of operations done and the value after them is
//! explored once. What helps is that values are unique, deletions apart. Not by zones of values, which needs every
//! value to be unique, and deletions are not.

use std::collections::{HashMap, HashSet};

use crate::history::{ClientAction, ClientOutcome, RecordedOperation};

/// "Nothing here"; no value written has this number.
const NOTHING: u64 = 0;
/// After so many states the search is given up, which counts as a violation: none is left undecided.
const STATES_MAX: usize = 2_000_000;

#[derive(Clone, Copy, Debug)]
struct Call {
    is_write: bool,
    value: u64,
    begin: u64,
    /// The greatest number where the outcome is unknown: it may take effect at any later time, or never.
    end: u64,
    /// Of the end of a value: the only value that it replaces.
    replaces: Option<u64>,
}

/// Looks at all operations on one key.
///
/// # Errors
/// If no order explains them.
pub fn check<'a>(operations: impl Iterator<Item = &'a RecordedOperation>) -> Result<(), String> {
    let mut calls: Vec<Call> =
        operations.flat_map(|operation| [call(operation), end_of_value(operation)]).flatten().collect();
    let read: HashSet<u64> = calls.iter().filter(|call| !call.is_write).map(|call| call.value).collect();
    let ending: HashSet<u64> = calls.iter().filter_map(|call| call.replaces).collect();
    // What may never have taken effect and was not seen, nor that it has ended, explains nothing.
    let is_seen = |value: u64| read.contains(&value) || ending.contains(&value) && read.contains(&NOTHING);
    calls.retain(|call| call.end != u64::MAX || is_seen(call.value));
    calls.sort_by_key(|call| call.begin);
    if let Some(unwritten) =
        read.iter().find(|value| **value != NOTHING && !calls.iter().any(|call| call.is_write && call.value == **value))
    {
        return Err(format!("linearizable: value {unwritten} was read, and its write was refused or never began"));
    }
    search(&calls)
}

fn call(operation: &RecordedOperation) -> Option<Call> {
    let end = operation.end.unwrap_or(u64::MAX);
    let call = |is_write, value, end| Some(Call { is_write, value, begin: operation.begin, end, replaces: None });
    let written = |value| match operation.outcome {
        ClientOutcome::Written(_) => call(true, value, end),
        ClientOutcome::Unknown => call(true, value, u64::MAX),
        ClientOutcome::Refused | ClientOutcome::Found(_) | ClientOutcome::Ended(..) => None,
    };
    match operation.action {
        ClientAction::Put(value) | ClientAction::PutFor(value, _) => written(value),
        ClientAction::Delete => written(NOTHING),
        ClientAction::Get => match operation.outcome {
            ClientOutcome::Found(value) => call(false, value.map_or(NOTHING, |(value, _)| value), end),
            ClientOutcome::Ended(..) => call(false, NOTHING, end),
            _ => None,
        },
    }
}

/// A value that ends does so by itself, once: at any time after it is there, or never.
fn end_of_value(operation: &RecordedOperation) -> Option<Call> {
    let ClientAction::PutFor(value, _) = operation.action else { return None };
    let begin = operation.begin;
    (operation.outcome != ClientOutcome::Refused).then_some(Call {
        is_write: true,
        value: NOTHING,
        begin,
        end: u64::MAX,
        replaces: Some(value),
    })
}

/// Which calls are done, and what is stored after them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SearchState {
    done: Vec<u64>,
    value: u64,
}

impl SearchState {
    fn is_done(&self, call: usize) -> bool {
        self.done[call / 64] >> (call % 64) & 1 == 1
    }

    fn set_done(&mut self, call: usize) {
        self.done[call / 64] |= 1 << (call % 64);
    }
}

fn search(calls: &[Call]) -> Result<(), String> {
    let search = LinearizationSearch::new(calls);
    let mut unexplored = vec![SearchState { done: vec![0; calls.len() / 64 + 1], value: NOTHING }];
    let mut seen: HashSet<SearchState> = HashSet::new();
    let mut furthest = 0;
    while let Some(mut state) = unexplored.pop() {
        let Some(writes) = search.step(&mut state) else { return Ok(()) };
        if !seen.insert(state.clone()) {
            continue;
        }
        if seen.len() > STATES_MAX {
            return Err("linearizable: undecided after too many states".to_owned());
        }
        let owed = (0..calls.len()).find(|call| !state.is_done(*call) && calls[*call].end != u64::MAX);
        furthest = furthest.max(owed.unwrap_or(0));
        unexplored.extend(search.after(&state, &writes));
    }
    Err(format!("linearizable: no order explains the answers; stuck at event {}", calls[furthest].begin))
}

struct LinearizationSearch<'a> {
    calls: &'a [Call],
    /// The reads of each value.
    reads: HashMap<u64, Vec<usize>>,
    /// Values that may end.
    ending: HashSet<u64>,
}

impl<'a> LinearizationSearch<'a> {
    fn new(calls: &'a [Call]) -> Self {
        let mut reads: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, call) in calls.iter().enumerate().filter(|(_, call)| !call.is_write) {
            reads.entry(call.value).or_default().push(index);
        }
        let ending = calls.iter().filter_map(|call| call.replaces).collect();
        Self { calls, reads, ending }
    }

    /// Some read of the value is not done.
    fn is_awaited(&self, state: &SearchState, value: u64) -> bool {
        self.reads.get(&value).is_some_and(|reads| reads.iter().any(|read| !state.is_done(*read)))
    }

    fn first_left(&self, state: &SearchState) -> usize {
        (0..self.calls.len()).find(|call| !state.is_done(*call)).unwrap_or(0)
    }

    /// Takes all reads that the value explains now, which no order can do better than to take at once; the calls
    /// that may be next, or nothing if all that must be done is.
    fn step(&self, state: &mut SearchState) -> Option<Vec<usize>> {
        let calls = self.calls;
        loop {
            let left = || (self.first_left(state)..calls.len()).filter(|call| !state.is_done(*call));
            let mut first_end = u64::MAX;
            let mut next = Vec::new();
            for call in left() {
                if calls[call].begin > first_end {
                    break;
                }
                first_end = first_end.min(calls[call].end);
                next.push(call);
            }
            if first_end == u64::MAX {
                return None;
            }
            next.retain(|call| calls[*call].begin < first_end);
            let is_explained = |call: &usize| !calls[*call].is_write && calls[*call].value == state.value;
            let explained: Vec<usize> = next.iter().copied().filter(is_explained).collect();
            if explained.is_empty() {
                return Some(next);
            }
            explained.into_iter().for_each(|call| state.set_done(call));
        }
    }

    /// What may come after `state`, where one of `next` is done: the one that had to end first comes last.
    fn after(&self, state: &SearchState, next: &[usize]) -> Vec<SearchState> {
        let calls = self.calls;
        // No write gives this value again, and it is still to be read.
        if state.value != NOTHING && self.is_awaited(state, state.value) {
            return Vec::new();
        }
        // What ends may explain reads by that.
        let ends = |write: usize| self.ending.contains(&calls[write].value);
        let is_ending_awaited = self.is_awaited(state, NOTHING);
        let is_blind = |write: &usize| {
            let is_awaited = self.is_awaited(state, calls[*write].value) || is_ending_awaited && ends(*write);
            calls[*write].end != u64::MAX && !is_awaited
        };
        let may_come =
            |call: &usize| calls[*call].is_write && calls[*call].replaces.is_none_or(|value| value == state.value);
        let (blind, mut writes): (Vec<usize>, Vec<usize>) = next.iter().copied().filter(may_come).partition(is_blind);
        // What may never have taken effect did so for a read that comes next, or need not have.
        let is_read_next = |value| next.iter().any(|call| !calls[*call].is_write && calls[*call].value == value);
        writes.retain(|write| {
            let is_read = is_read_next(calls[*write].value) || ends(*write) && is_read_next(NOTHING);
            calls[*write].end != u64::MAX || is_read
        });
        writes.sort_by_key(|write| std::cmp::Reverse(calls[*write].end));
        // What is not read is overwritten at once by whatever write comes next.
        let mut overwritten = state.clone();
        blind.iter().for_each(|write| overwritten.set_done(*write));
        let with = |write: usize| {
            let mut after = overwritten.clone();
            after.set_done(write);
            after.value = calls[write].value;
            after
        };
        let alone = blind.first().map(|write| with(*write));
        alone.into_iter().chain(writes.into_iter().map(with)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write with an end of zero is one of unknown outcome.
    fn calls(calls: &[(bool, u64, u64, u64)]) -> Result<(), String> {
        let call = |&(is_write, value, begin, end)| Call {
            is_write,
            value,
            begin,
            end: if end == 0 { u64::MAX } else { end },
            replaces: None,
        };
        let mut calls: Vec<Call> = calls.iter().map(call).collect();
        calls.sort_by_key(|call| call.begin);
        search(&calls)
    }

    const WRITE: bool = true;
    const READ: bool = false;

    #[test]
    fn concurrent_writes_may_come_in_any_order() {
        calls(&[(WRITE, 1, 10, 30), (WRITE, 2, 15, 35), (READ, 1, 40, 50), (READ, 1, 60, 70)]).unwrap();
        calls(&[(WRITE, 1, 10, 30), (WRITE, 2, 15, 35), (READ, 2, 40, 50), (READ, 2, 60, 70)]).unwrap();
    }

    #[test]
    fn a_lost_write_is_found() {
        calls(&[(WRITE, 1, 10, 20), (WRITE, 2, 30, 40), (READ, 1, 50, 60)]).unwrap_err();
        calls(&[(WRITE, 1, 10, 20), (READ, NOTHING, 30, 40)]).unwrap_err();
    }

    #[test]
    fn a_read_that_goes_back_is_found() {
        calls(&[(WRITE, 1, 10, 0), (READ, 1, 20, 30), (READ, NOTHING, 40, 50)]).unwrap_err();
        calls(&[(WRITE, 1, 10, 40), (WRITE, 2, 11, 41), (READ, 1, 50, 51), (READ, 2, 52, 53)]).unwrap_err();
    }

    #[test]
    fn a_write_of_unknown_outcome_may_take_effect_late_once_or_never() {
        calls(&[(WRITE, 1, 10, 0), (WRITE, 2, 20, 30), (READ, 2, 31, 32), (READ, 1, 40, 50)]).unwrap();
        calls(&[(WRITE, 1, 10, 0), (WRITE, 2, 20, 30), (READ, 2, 31, 32)]).unwrap();
        calls(&[(WRITE, 1, 10, 0), (READ, 1, 20, 30), (WRITE, 2, 40, 50), (READ, 1, 60, 70)]).unwrap_err();
    }

    #[test]
    fn a_value_that_may_end_is_not_found_again_once_it_has() {
        let check = |first, second| {
            let call = |is_write, value, begin, end| Call { is_write, value, begin, end, replaces: None };
            let ends = Call { replaces: Some(1), ..call(WRITE, NOTHING, 10, u64::MAX) };
            let reads = [call(READ, first, 30, 40), call(READ, second, 50, 60)];
            search(&[call(WRITE, 1, 10, 20), ends, reads[0], reads[1]])
        };
        check(1, 1).unwrap();
        check(1, NOTHING).unwrap();
        check(NOTHING, NOTHING).unwrap();
        check(NOTHING, 1).unwrap_err();
    }

    #[test]
    fn deletions_need_not_be_told_apart() {
        let unknown = [(WRITE, 1, 10, 20), (WRITE, NOTHING, 21, 0), (READ, 1, 30, 40), (READ, NOTHING, 41, 50)];
        calls(&unknown).unwrap();
        calls(&[(WRITE, 1, 10, 20), (WRITE, NOTHING, 21, 25), (READ, 1, 30, 40)]).unwrap_err();
    }
}
