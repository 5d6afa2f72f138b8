//! What a query computes of a group's rows.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::distinct::DistinctSketch;
use crate::json::{Numeric, float_of};
use crate::row::RowCell;

/// The names of the aggregates, in the order in which they are answered.
pub(crate) const AGGREGATES: [&str; 8] = ["count", "sum", "min", "max", "avg", "histogram", "top", "distinct"];

/// An aggregate of a query, over the cells of a column.
#[derive(Debug)]
pub(crate) enum Aggregate {
    Count,
    Sum(usize),
    Min(usize),
    Max(usize),
    Average(usize),
    /// Bounds ascend.
    Histogram(usize, Vec<Numeric>),
    Top(usize, usize),
    Distinct(usize),
}

/// What an entry takes beside the bytes of its texts.
const ENTRY_BYTES: usize = size_of::<TopEntry>();

/// A number or a text. Numbers are before texts.
#[derive(Clone, Debug)]
pub(crate) enum Scalar {
    Number(Numeric),
    Text(Box<str>),
}

impl Scalar {
    fn of(cell: RowCell<'_>) -> Option<Self> {
        match cell {
            RowCell::Integer(integer) => Some(Self::Number(Numeric::Integer(integer))),
            RowCell::Float(float) => Some(Self::Number(Numeric::Float(float))),
            RowCell::Text(text) => Some(Self::Text(text.into())),
            RowCell::Nothing | RowCell::Hash(_) | RowCell::TooLong => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Text(text) => text.len(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Number(number) => number.json(),
            Self::Text(text) => text.as_ref().into(),
        }
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.compare(*other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scalar {}

/// One of the greatest. The order is that of the answer, the best being the greatest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopEntry {
    value: Scalar,
    key: Reverse<Box<[u8]>>,
}

impl TopEntry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.value.bytes() + self.key.0.len()
    }

    fn json(&self) -> Value {
        let (name, key) = name_and_text("key", &self.key.0);
        Value::Object(Map::from_iter([(name, key), ("value".to_owned(), self.value.json())]))
    }
}

/// A member `name`, or `name_base64` where the bytes are no text.
pub(crate) fn name_and_text(name: &str, bytes: &[u8]) -> (String, Value) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_owned(), text.into()),
        Err(_) => (format!("{name}_base64"), STANDARD.encode(bytes).into()),
    }
}

/// Integers are summed exactly. With a float among them the sum is a float.
#[derive(Debug, Default)]
pub(crate) struct NumberSum {
    count: u64,
    integers: i128,
    floats: Option<f64>,
}

impl NumberSum {
    fn add(&mut self, cell: RowCell<'_>) {
        match cell {
            RowCell::Integer(integer) => self.integers = self.integers.saturating_add(integer),
            RowCell::Float(float) => *self.floats.get_or_insert(0.0) += float,
            _ => return,
        }
        self.count += 1;
    }

    fn sum(&self) -> Numeric {
        match self.floats {
            None => Numeric::Integer(self.integers),
            Some(floats) => Numeric::Float(float_of(self.integers) + floats),
        }
    }

    fn average(&self) -> Value {
        let sum = float_of(self.integers) + self.floats.unwrap_or_default();
        if self.count == 0 { Value::Null } else { (sum / float_of(self.count.into())).into() }
    }
}

/// What an aggregate holds of a group.
#[derive(Debug)]
pub(crate) enum AggregateState {
    Count(u64),
    Sum(NumberSum),
    /// The least or greatest so far.
    Extreme(Option<Scalar>),
    Histogram(Vec<u64>),
    Top {
        /// The least first, to make room.
        entries: BinaryHeap<Reverse<TopEntry>>,
        bytes: usize,
    },
    Distinct(DistinctSketch),
}

impl Aggregate {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum(_) => "sum",
            Self::Min(_) => "min",
            Self::Max(_) => "max",
            Self::Average(_) => "avg",
            Self::Histogram(..) => "histogram",
            Self::Top(..) => "top",
            Self::Distinct(_) => "distinct",
        }
    }

    pub(crate) fn begin(&self) -> AggregateState {
        match self {
            Self::Count => AggregateState::Count(0),
            Self::Sum(_) | Self::Average(_) => AggregateState::Sum(NumberSum::default()),
            Self::Min(_) | Self::Max(_) => AggregateState::Extreme(None),
            Self::Histogram(_, bounds) => AggregateState::Histogram(vec![0; bounds.len() + 1]),
            Self::Top(..) => AggregateState::Top { entries: BinaryHeap::new(), bytes: 0 },
            Self::Distinct(_) => AggregateState::Distinct(DistinctSketch::default()),
        }
    }

    fn column(&self) -> Option<usize> {
        match self {
            Self::Count => None,
            Self::Sum(column) | Self::Min(column) | Self::Max(column) | Self::Average(column) => Some(*column),
            Self::Histogram(column, _) | Self::Top(column, _) | Self::Distinct(column) => Some(*column),
        }
    }

    /// Counts in a row. `state` is one that this aggregate began.
    pub(crate) fn add(&self, state: &mut AggregateState, key: &[u8], cells: &[RowCell<'_>]) {
        let cell = self.column().and_then(|column| cells.get(column)).copied().unwrap_or(RowCell::Nothing);
        match (self, state) {
            (_, AggregateState::Count(count)) => *count += 1,
            (_, AggregateState::Sum(sum)) => sum.add(cell),
            (_, AggregateState::Extreme(extreme)) => {
                let Some(value) = Scalar::of(cell) else { return };
                let is_better = |old: &Scalar| if matches!(self, Self::Min(_)) { value < *old } else { value > *old };
                if extreme.as_ref().is_none_or(is_better) {
                    *extreme = Some(value);
                }
            }
            (Self::Histogram(_, bounds), AggregateState::Histogram(counts)) => {
                let Some(Scalar::Number(number)) = Scalar::of(cell) else { return };
                let at = bounds.partition_point(|bound| bound.compare(number).is_le());
                counts.get_mut(at).into_iter().for_each(|count| *count += 1);
            }
            (Self::Top(_, most), AggregateState::Top { entries, bytes }) => {
                let Some(value) = Scalar::of(cell) else { return };
                // Most rows are none of the best, and need no copy of their key.
                let is_full = entries.len() == *most;
                if is_full && entries.peek().is_some_and(|worst| value < worst.0.value) {
                    return;
                }
                let entry = TopEntry { value, key: Reverse(key.into()) };
                *bytes += entry.bytes();
                entries.push(Reverse(entry));
                if is_full && let Some(Reverse(worst)) = entries.pop() {
                    *bytes -= worst.bytes();
                }
            }
            (_, AggregateState::Distinct(sketch)) => {
                if let RowCell::Hash(hash) = cell {
                    sketch.add(hash);
                }
            }
            (_, AggregateState::Histogram(_) | AggregateState::Top { .. }) => {}
        }
    }

    /// The member of the answer.
    pub(crate) fn answer(&self, state: &AggregateState) -> Value {
        match (self, state) {
            (_, AggregateState::Count(count)) => (*count).into(),
            (Self::Average(_), AggregateState::Sum(sum)) => sum.average(),
            (_, AggregateState::Sum(sum)) => sum.sum().json(),
            (_, AggregateState::Extreme(extreme)) => extreme.as_ref().map_or(Value::Null, Scalar::json),
            (Self::Histogram(_, bounds), AggregateState::Histogram(counts)) => {
                let bounds: Vec<Value> = bounds.iter().map(|bound| bound.json()).collect();
                json!({ "bounds": bounds, "counts": counts })
            }
            (_, AggregateState::Top { entries, .. }) => {
                let mut entries: Vec<&TopEntry> = entries.iter().map(|entry| &entry.0).collect();
                entries.sort_by(|one, other| other.cmp(one));
                entries.into_iter().map(TopEntry::json).collect()
            }
            (_, AggregateState::Distinct(sketch)) => sketch.count().into(),
            (_, AggregateState::Histogram(_)) => Value::Null,
        }
    }
}

impl AggregateState {
    /// What it holds, counted toward the aggregation's bound.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Count(_) | Self::Sum(_) | Self::Extreme(None) => 0,
                Self::Extreme(Some(scalar)) => scalar.bytes(),
                Self::Histogram(counts) => counts.len() * size_of::<u64>(),
                Self::Top { bytes, .. } => *bytes,
                Self::Distinct(sketch) => sketch.bytes(),
            }
    }
}
