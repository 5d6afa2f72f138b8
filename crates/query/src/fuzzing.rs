//! What comes from clients and peers.

use kvorum_fuzzing::{byte, split};
use std::sync::Arc;

use crate::{Aggregation, Query, QueryRecord};

/// A query's text, a record and a row of another node: `u16 length | query | u8 length | row | value`.
///
/// Nothing panics; rows that this query made are taken; a row is no larger than its value allows.
pub fn query_bodies(mut data: &[u8]) {
    let length = usize::from(u16::from_be_bytes([byte(&mut data), byte(&mut data)]));
    let query = match Query::parse(split(&mut data, length)) {
        Ok(query) => Arc::new(query),
        Err(error) => return assert!(!error.0.is_empty(), "refused without a word"),
    };
    let length = usize::from(byte(&mut data));
    let row = split(&mut data, length);
    let mut foreign = Aggregation::new(Arc::clone(&query));
    let _ = foreign.add(b"key", row).and_then(|_| foreign.add(data, row));
    let _ = foreign.groups();

    let record = QueryRecord {
        key: b"orders/a/7",
        value: data,
        content_type: Some(b"text/plain"),
        written_ms: 5,
        now_ms: 7_777,
    };
    let mut own = Aggregation::new(Arc::clone(&query));
    if let Some(row) = query.row(&record) {
        assert_eq!(query.row(&record).as_ref(), Some(&row), "a record has two rows");
        // At most a group, a text and a hash of each of eight paths, each with escapes.
        assert!(row.len() <= 64 + 9 * (6 * data.len() + 32), "{} bytes of {}", row.len(), data.len());
        own.add(record.key, &row).expect("a row of the query itself");
    }
    let mut text = Vec::new();
    own.write_groups(&mut text);
    assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|groups| groups.is_array()));
}

#[cfg(test)]
mod tests {
    #[test]
    fn query_bodies() {
        kvorum_fuzzing::holds("query_bodies", super::query_bodies);
    }
}
