//! Decides while a history runs whether one key still behaves like an atomic register (linearizability,
//! Herlihy and Wing 1990): by keeping every state that the register may be in, given what has been
//! invoked and answered so far. When none is left, no order of the operations explains the answers.

use std::collections::HashSet;

/// What a reader sees: the number of a write, or nothing.
pub type Value = u8;

/// No record, or a deleted one.
pub const NOTHING: Value = 0;
/// Clients of a history at most.
pub const CLIENTS_MAX: usize = 4;
/// Operations of a history at most: the values of its writes are 1 to this.
pub const OPERATIONS_MAX: usize = 12;
/// Writes of a history at most, the ends of values among them.
pub const WRITES_MAX: usize = 2 * OPERATIONS_MAX;

/// One way in which things may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The writes that have taken effect, as bits.
    applied: u32,
    value: Value,
    /// For each client with a read under way, the values since it began, as bits.
    seen: [u16; CLIENTS_MAX],
}

/// The register as its clients see it.
#[derive(Debug)]
pub struct Monitor {
    states: HashSet<State>,
    /// The value of each write, by its number, and the only value that it can replace.
    writes: Vec<(Value, Option<Value>)>,
    /// Writes that may still take effect: under way, or ended without an answer.
    pending: u32,
    reading: [bool; CLIENTS_MAX],
}

impl Monitor {
    pub fn new() -> Self {
        let empty = State { applied: 0, value: NOTHING, seen: [0; CLIENTS_MAX] };
        Self { states: HashSet::from([empty]), writes: vec![], pending: 0, reading: [false; CLIENTS_MAX] }
    }

    /// Whether the answers so far can be explained.
    pub fn is_linearizable(&self) -> bool {
        !self.states.is_empty()
    }

    /// A write begins; returns its number.
    pub fn write_begins(&mut self, value: Value) -> usize {
        self.begins(value, None)
    }

    /// The value of a write that has begun may end once it is there, at any time, or never.
    pub fn may_end(&mut self, value: Value) {
        self.begins(NOTHING, Some(value));
    }

    fn begins(&mut self, value: Value, replaces: Option<Value>) -> usize {
        let number = self.writes.len();
        assert!(number < WRITES_MAX && usize::from(value) <= OPERATIONS_MAX, "the bits suffice");
        self.writes.push((value, replaces));
        self.pending |= 1 << number;
        self.apply_pending();
        number
    }

    /// A write succeeded: it has taken effect by now. (One that ends otherwise may yet do so at any time.)
    pub fn write_succeeds(&mut self, number: usize) {
        self.states.retain(|state| state.applied >> number & 1 == 1);
        self.pending &= !(1 << number);
    }

    pub fn read_begins(&mut self, client: usize) {
        self.reading[client] = true;
        self.change(|state| state.seen[client] = 1 << state.value);
        self.apply_pending();
    }

    /// A read answers a value that the register had at some moment since it began.
    pub fn read_answers(&mut self, client: usize, value: Value) {
        self.states.retain(|state| state.seen[client] >> value & 1 == 1);
        self.read_ends(client);
    }

    /// A read ends without an answer.
    pub fn read_ends(&mut self, client: usize) {
        self.reading[client] = false;
        self.change(|state| state.seen[client] = 0);
    }

    fn change(&mut self, change: impl Fn(&mut State)) {
        let changed = self.states.drain().map(|mut state| {
            change(&mut state);
            state
        });
        self.states = changed.collect();
    }

    /// Adds every state that any pending writes, in any order, lead to.
    fn apply_pending(&mut self) {
        let mut unexplored: Vec<State> = self.states.iter().copied().collect();
        while let Some(state) = unexplored.pop() {
            for (number, (value, replaces)) in self.writes.iter().enumerate() {
                let is_pending = (self.pending & !state.applied) >> number & 1 == 1;
                if !is_pending || replaces.is_some_and(|replaced| replaced != state.value) {
                    continue;
                }
                let mut next = State { applied: state.applied | 1 << number, value: *value, ..state };
                for (seen, reading) in next.seen.iter_mut().zip(self.reading) {
                    *seen |= u16::from(reading) << value;
                }
                if self.states.insert(next) {
                    unexplored.push(next);
                }
            }
        }
    }
}

#[test]
fn a_read_sees_the_last_completed_write_or_a_concurrent_one() {
    for (answer, allowed) in [(NOTHING, false), (1, true), (2, true)] {
        let mut monitor = Monitor::new();
        let first = monitor.write_begins(1);
        monitor.write_succeeds(first);
        monitor.write_begins(2);
        monitor.read_begins(0);
        monitor.read_answers(0, answer);
        assert_eq!(monitor.is_linearizable(), allowed, "{answer}");
    }
}

#[test]
fn what_was_read_once_is_not_unread() {
    for (second, allowed) in [(1, false), (2, true)] {
        let mut monitor = Monitor::new();
        let first = monitor.write_begins(1);
        monitor.write_succeeds(first);
        monitor.write_begins(2);
        for (client, answer) in [(0, 2), (1, second)] {
            monitor.read_begins(client);
            monitor.read_answers(client, answer);
        }
        assert_eq!(monitor.is_linearizable(), allowed, "{second}");
    }
}

#[test]
fn a_write_without_an_answer_may_take_effect_late_but_once() {
    let mut monitor = Monitor::new();
    monitor.write_begins(1);
    for answer in [NOTHING, 1] {
        monitor.read_begins(0);
        monitor.read_answers(0, answer);
    }
    assert!(monitor.is_linearizable());
    let deletion = monitor.write_begins(NOTHING);
    monitor.write_succeeds(deletion);
    monitor.read_begins(0);
    monitor.read_answers(0, 1);
    assert!(!monitor.is_linearizable(), "back from the dead");
}

#[test]
fn a_value_that_may_end_is_not_found_again_once_it_has() {
    for (answers, allowed) in [([1, 1], true), ([1, NOTHING], true), ([NOTHING, 1], false)] {
        let mut monitor = Monitor::new();
        let write = monitor.write_begins(1);
        monitor.may_end(1);
        monitor.write_succeeds(write);
        for answer in answers {
            monitor.read_begins(0);
            monitor.read_answers(0, answer);
        }
        assert_eq!(monitor.is_linearizable(), allowed, "{answers:?}");
    }
}
