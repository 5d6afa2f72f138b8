//! Rows folded into groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::ser::{Serialize, Serializer};
use serde_json::Value;

use crate::aggregate::{AggregateState, name_and_text};
use crate::json::{canonical, compare};
use crate::query::{Query, QueryGrouping, segment};
use crate::row::{MalformedRow, RowCell, RowKind, read};

/// The most groups.
pub const GROUPS_MAX: usize = 10_000;
/// The most that an aggregation holds.
pub const AGGREGATION_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a group takes beside its name and its states.
const GROUP_BYTES: usize = 64;

/// Why a query cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AggregationError {
    /// More than [`GROUPS_MAX`].
    #[error(
        "the query has more than 10,000 groups: narrow its range or its conditions, or group by what has fewer values"
    )]
    TooManyGroups,
    /// More than [`AGGREGATION_BYTES_MAX`], or a text or group that is too long for a row.
    #[error(
        "the query's groups take more than 4 MiB, or one text, group or counted value more than 16 KiB: narrow its \
         range or its conditions, select less, or group by what has fewer values"
    )]
    TooLarge,
    /// What was added is no row of this query.
    #[error("a row is not one of this query")]
    Row,
}

impl From<MalformedRow> for AggregationError {
    fn from(MalformedRow: MalformedRow) -> Self {
        Self::Row
    }
}

/// The rows of a query, folded. After an error it is of no use.
#[derive(Debug)]
pub struct Aggregation {
    query: Arc<Query>,
    /// By name: empty for null, else [`NAMED`] and a key segment or a canonical text.
    groups: BTreeMap<Vec<u8>, Vec<AggregateState>>,
    /// Where the next name is put together.
    name: Vec<u8>,
    not_json: u64,
    bytes: usize,
}

const NAMED: u8 = 1;

impl Aggregation {
    /// Nothing yet.
    #[must_use]
    pub fn new(query: Arc<Query>) -> Self {
        let mut aggregation = Self { query, groups: BTreeMap::new(), name: Vec::new(), not_json: 0, bytes: 0 };
        if matches!(aggregation.query.grouping, QueryGrouping::None) {
            aggregation.begin_group();
        }
        aggregation
    }

    /// Counts in the row of a key; whether its record matched. The order of the keys is that of the range: sums of floats
    /// depend on it.
    ///
    /// # Errors
    /// [`AggregationError`]; the aggregation is then of no use.
    pub fn add(&mut self, key: &[u8], row: &[u8]) -> Result<bool, AggregationError> {
        let (kind, cells) = read(row, &self.query.columns)?;
        if kind != RowKind::Matched {
            if !self.query.needs_json() {
                return Err(AggregationError::Row);
            }
            self.not_json += 1;
        }
        if kind == RowKind::NotJson {
            return Ok(false);
        }
        if cells.contains(&RowCell::TooLong) {
            return Err(AggregationError::TooLarge);
        }
        self.name_group(key, &cells);
        if !self.groups.contains_key(&self.name) {
            self.check_name()?;
            if self.groups.len() == GROUPS_MAX {
                return Err(AggregationError::TooManyGroups);
            }
            self.begin_group();
        }
        let states = self.groups.get_mut(&self.name).expect("the group was begun");
        for (aggregate, state) in self.query.aggregates.iter().zip(states) {
            self.bytes -= state.bytes();
            aggregate.add(state, key, &cells);
            self.bytes += state.bytes();
        }
        if self.bytes > AGGREGATION_BYTES_MAX { Err(AggregationError::TooLarge) } else { Ok(true) }
    }

    fn name_group(&mut self, key: &[u8], cells: &[RowCell<'_>]) {
        let name = match &self.query.grouping {
            QueryGrouping::None => None,
            QueryGrouping::KeySegment { at, separator } => segment(key, *at, separator),
            QueryGrouping::Path { column } => match cells.get(*column) {
                Some(RowCell::Text(text)) if *text != "null" => Some(text.as_bytes()),
                _ => None,
            },
        };
        self.name.clear();
        if let Some(name) = name {
            self.name.push(NAMED);
            self.name.extend_from_slice(name);
        }
    }

    /// A group has one name, however another node writes it.
    fn check_name(&self) -> Result<(), AggregationError> {
        match (&self.query.grouping, self.name.get(1..)) {
            (QueryGrouping::Path { .. }, Some(text)) => {
                let value = serde_json::from_slice(text).map_err(|_| AggregationError::Row)?;
                if canonical(value).as_bytes() == text { Ok(()) } else { Err(AggregationError::Row) }
            }
            _ => Ok(()),
        }
    }

    fn begin_group(&mut self) {
        let states: Vec<AggregateState> = self.query.aggregates.iter().map(|aggregate| aggregate.begin()).collect();
        let held: usize = states.iter().map(AggregateState::bytes).sum();
        self.bytes += GROUP_BYTES + self.name.len() + held;
        self.groups.insert(self.name.clone(), states);
    }

    /// About how much it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records whose values would have had to be JSON.
    #[must_use]
    pub fn not_json(&self) -> u64 {
        self.not_json
    }

    /// The groups: an array, in the order of their values.
    #[must_use]
    pub fn groups(self) -> Value {
        serde_json::to_value(self.into_groups()).expect("names of members are texts")
    }

    /// Appends the same as text, with the members of a group in the order of the reference.
    pub fn write_groups(self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, &self.into_groups()).expect("a vector takes all that is written");
    }

    fn into_groups(self) -> GroupAnswers {
        let Self { query, groups, .. } = self;
        let mut groups: Vec<(GroupName, Vec<AggregateState>)> =
            groups.into_iter().map(|(name, states)| (GroupName::new(&query.grouping, &name), states)).collect();
        if matches!(query.grouping, QueryGrouping::Path { .. }) {
            groups.sort_by(|(one, _), (other, _)| compare(&one.value, &other.value));
        }
        GroupAnswers { query, groups }
    }
}

struct GroupName {
    member: String,
    value: Value,
}

impl GroupName {
    fn new(grouping: &QueryGrouping, name: &[u8]) -> Self {
        let (member, value) = match (grouping, name.get(1..)) {
            (QueryGrouping::None, _) | (_, None) => ("group".to_owned(), Value::Null),
            (QueryGrouping::KeySegment { .. }, Some(segment)) => name_and_text("group", segment),
            (QueryGrouping::Path { .. }, Some(text)) => {
                ("group".to_owned(), serde_json::from_slice(text).expect("it was read when the group began"))
            }
        };
        Self { member, value }
    }
}

/// What is answered, made group by group: as one tree it would be a multiple of what the aggregation holds.
struct GroupAnswers {
    query: Arc<Query>,
    groups: Vec<(GroupName, Vec<AggregateState>)>,
}

struct GroupAnswer<'g> {
    query: &'g Query,
    name: &'g GroupName,
    states: &'g [AggregateState],
}

impl Serialize for GroupAnswers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let answer = |(name, states)| GroupAnswer { query: &self.query, name, states };
        serializer.collect_seq(self.groups.iter().map(|(name, states)| (name, states.as_slice())).map(answer))
    }
}

impl Serialize for GroupAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let answers = self.query.aggregates.iter().zip(self.states);
        let answers = answers.map(|(aggregate, state)| (aggregate.name(), aggregate.answer(state)));
        let name = std::iter::once((self.name.member.as_str(), self.name.value.clone()));
        serializer.collect_map(name.chain(answers))
    }
}
