//! Is a history of reads and writes of one register linearizable? Gibbons and Korach, "Testing shared
//! memories", SIAM J. Comput. 26(4), 1997, section 4.1: exact where every written value is unique.
//!
//! All operations on one value form a zone from its earliest end to its latest start. A *forward* zone
//! (end before start) is a time in which the register must have held this value. The history is
//! linearizable exactly if no two forward zones overlap, no other zone lies inside a forward one, and
//! nothing is read before its write began.

use std::collections::HashMap;
use std::time::Duration;

/// Identifies a written value; `INITIAL` is "nothing here".
pub type Value = u64;
pub const INITIAL: Value = 0;

/// One operation. Times are since one common beginning.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub value: Value,
    pub is_write: bool,
    pub start: Duration,
    /// None: the outcome of the write is unknown.
    pub end: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    value: Value,
    /// Earliest end of an operation on the value.
    first_end: Duration,
    /// Latest start of one.
    last_start: Duration,
    write_start: Option<Duration>,
    first_read_end: Duration,
}

/// Why the history is not linearizable, if it is not.
pub fn violation(operations: &[Operation]) -> Option<String> {
    let mut zones: HashMap<Value, Zone> = HashMap::new();
    let initial = Operation { value: INITIAL, is_write: true, start: Duration::ZERO, end: Some(Duration::ZERO) };
    for operation in operations.iter().chain([&initial]) {
        widen(&mut zones, operation);
    }
    let mut zones: Vec<Zone> = zones.into_values().collect();
    for zone in &zones {
        match zone.write_start {
            None => return Some(format!("value {} was read and never written", zone.value)),
            Some(start) if zone.first_read_end < start => return Some(format!("{zone:?} was read before its write")),
            Some(_) => {}
        }
    }
    zones.sort_by_key(|zone| zone.first_end.min(zone.last_start));
    let (forward, backward): (Vec<Zone>, Vec<Zone>) =
        zones.into_iter().partition(|zone| zone.first_end < zone.last_start);
    let overlap = forward.windows(2).find(|pair| pair[1].first_end < pair[0].last_start);
    if let Some(pair) = overlap {
        return Some(format!("read again after something newer was known: {pair:?}"));
    }
    for inner in &backward {
        // Forward zones do not overlap: only the last that begins before this one can contain it.
        let at = forward.partition_point(|outer| outer.first_end < inner.last_start);
        if let Some(outer) = at.checked_sub(1).map(|at| &forward[at])
            && inner.first_end < outer.last_start
        {
            return Some(format!("{inner:?} was lost inside {outer:?}"));
        }
    }
    None
}

fn widen(zones: &mut HashMap<Value, Zone>, operation: &Operation) {
    let end = operation.end.unwrap_or(Duration::MAX);
    let zone = zones.entry(operation.value).or_insert(Zone {
        value: operation.value,
        first_end: end,
        last_start: operation.start,
        write_start: None,
        first_read_end: Duration::MAX,
    });
    zone.first_end = zone.first_end.min(end);
    zone.last_start = zone.last_start.max(operation.start);
    if operation.is_write {
        assert!(zone.write_start.is_none(), "values must be unique: {operation:?}");
        zone.write_start = Some(operation.start);
    } else {
        zone.first_read_end = zone.first_read_end.min(end);
    }
}

fn operation(value: Value, is_write: bool, start: u64, end: u64) -> Operation {
    let end = (end != u64::MAX).then(|| Duration::from_millis(end));
    Operation { value, is_write, start: Duration::from_millis(start), end }
}

#[test]
fn a_history_with_concurrent_writes_in_any_order_is_linearizable() {
    let history = [
        operation(1, true, 10, 30),
        operation(2, true, 15, 35),
        operation(1, false, 40, 50),
        operation(1, false, 60, 70),
    ];
    assert_eq!(violation(&history), None);
}

#[test]
fn a_lost_write_is_found() {
    let history = [operation(1, true, 10, 20), operation(2, true, 30, 40), operation(1, false, 50, 60)];
    assert!(violation(&history).is_some());
    let history = [operation(1, true, 10, 20), operation(INITIAL, false, 30, 40)];
    assert!(violation(&history).is_some());
}

#[test]
fn a_read_that_goes_back_is_found() {
    let history = [operation(1, true, 10, u64::MAX), operation(1, false, 20, 30), operation(INITIAL, false, 40, 50)];
    assert!(violation(&history).is_some());
}

#[test]
fn a_write_of_unknown_outcome_may_show_up_late_and_a_value_from_nowhere_may_not() {
    let late = [
        operation(1, true, 10, u64::MAX),
        operation(2, true, 20, 30),
        operation(2, false, 31, 32),
        operation(1, false, 40, 50),
    ];
    assert_eq!(violation(&late), None);
    assert!(violation(&[operation(7, false, 10, 20)]).is_some());
    assert!(violation(&[operation(7, false, 10, 20), operation(7, true, 30, 40)]).is_some());
}
