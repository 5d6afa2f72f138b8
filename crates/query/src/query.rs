//! A query, and what a record is to it.

use crate::aggregate::Aggregate;
use crate::condition::{PathCondition, RecordCondition, RecordFacts};
use crate::extract::PathSet;
use crate::row::{Column, RowKind, append};

/// A query that was read: see the reference, `docs/reference/query.md`.
#[derive(Debug)]
pub struct Query {
    pub(crate) range: QueryRange,
    /// What needs no look into the value is looked at first.
    pub(crate) record_conditions: Vec<RecordCondition>,
    pub(crate) path_conditions: Vec<PathCondition>,
    pub(crate) paths: PathSet,
    pub(crate) grouping: QueryGrouping,
    /// What a row has, in its order.
    pub(crate) columns: Vec<Column>,
    pub(crate) aggregates: Vec<Aggregate>,
}

/// The keys that a query is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRange {
    /// The first key; empty for the first of all.
    pub start: Vec<u8>,
    /// The first key that is left out.
    pub end: Option<Vec<u8>>,
}

/// What a record's group is named by.
#[derive(Debug)]
pub(crate) enum QueryGrouping {
    /// All are of one group.
    None,
    KeySegment {
        at: usize,
        separator: Vec<u8>,
    },
    /// The cell of a column.
    Path {
        column: usize,
    },
}

/// A record as the node that provides it has it.
#[derive(Clone, Copy, Debug)]
pub struct QueryRecord<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// The content type that it was written with.
    pub content_type: Option<&'a [u8]>,
    /// When it was written: its version's milliseconds since 1970.
    pub written_ms: u64,
    /// The time now, in the same milliseconds.
    pub now_ms: u64,
}

impl Query {
    /// The keys that it is about.
    #[must_use]
    pub fn range(&self) -> &QueryRange {
        &self.range
    }

    /// What to send in place of the record. None: it does not fulfil the conditions, and nobody need know of it.
    ///
    /// Takes time in proportion to the value, and memory in proportion to its texts that paths lead to.
    #[must_use]
    pub fn row(&self, record: &QueryRecord<'_>) -> Option<Vec<u8>> {
        let facts = RecordFacts {
            key: record.key,
            content_type: record.content_type,
            size_bytes: record.value.len(),
            age_s: record.now_ms.saturating_sub(record.written_ms) / 1000,
        };
        if !self.record_conditions.iter().all(|condition| condition.holds(&facts)) {
            return None;
        }
        let mut row = Vec::new();
        if !self.needs_json() {
            append(&RowKind::Matched, &mut row);
        } else if let Some(found) = self.paths.find(record.value) {
            if !self.path_conditions.iter().all(|condition| condition.holds(&found)) {
                return None;
            }
            append(&RowKind::Matched, &mut row);
            for column in &self.columns {
                column.write(found.get(column.slot).and_then(Option::as_ref), &mut row);
            }
        } else {
            let holds = self.path_conditions.iter().all(PathCondition::holds_without_json);
            append(&if holds { RowKind::MatchedNotJson } else { RowKind::NotJson }, &mut row);
        }
        Some(row)
    }

    /// Whether values are read as JSON.
    pub(crate) fn needs_json(&self) -> bool {
        !self.paths.is_empty()
    }
}

/// The segment of a key, counted from 0.
pub(crate) fn segment<'k>(key: &'k [u8], at: usize, separator: &[u8]) -> Option<&'k [u8]> {
    let mut rest = key;
    for _ in 0..at {
        let next = rest.windows(separator.len()).position(|window| window == separator)?;
        rest = rest.get(next + separator.len()..)?;
    }
    let end = rest.windows(separator.len()).position(|window| window == separator).unwrap_or(rest.len());
    rest.get(..end)
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn a_key_has_one_segment_more_than_separators() {
        let segments = |key: &str, separator: &str| -> Vec<Vec<u8>> {
            (0..).map_while(|at| segment(key.as_bytes(), at, separator.as_bytes()).map(<[u8]>::to_vec)).collect()
        };
        for (key, separator) in [("a/b//c/", "/"), ("abc", "/"), ("a::b:c", "::"), ("aaa", "aa"), ("", "/"), ("/", "/")]
        {
            let expected: Vec<&[u8]> = key.split(separator).map(str::as_bytes).collect();
            assert_eq!(segments(key, separator), expected, "{key}");
        }
    }
}
