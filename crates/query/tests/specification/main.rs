//! Queries over generated records, against a plain telling of what they mean.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs
)]

mod plain;

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_query::{Aggregation, Query, QueryRecord};
use plain::{PlainRecord, answer};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

const NOW_MS: u64 = 10_000;

fn scalar() -> impl Strategy<Value = Value> {
    let numbers = json!([
        0,
        -0.0,
        1,
        1.0,
        -1,
        2,
        2.5,
        -2.5,
        7,
        9_007_199_254_740_993_i64,
        9_007_199_254_740_992_i64,
        i64::MIN,
        i64::MAX,
        u64::MAX,
        1e30,
        -1e30,
        3.0
    ]);
    let others = json!([null, true, false, "", "a", "b", "open", "é\"\\\n", "1", "\u{10ffff}"]);
    let list = |values: Value| values.as_array().unwrap().clone();
    prop_oneof![3 => select(list(numbers)), 2 => select(list(others)), 2 => (-3_i64..4).prop_map(Value::from)]
}

fn value() -> impl Strategy<Value = Value> {
    let names = || select(vec!["s", "t", "u", "a/b", "~", "0", "1", ""]).prop_map(str::to_owned);
    scalar().prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(names(), inner, 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Mostly an object in which the paths of the queries lead somewhere.
fn document() -> impl Strategy<Value = Vec<u8>> {
    let typical =
        (option::of(scalar()), option::of(scalar()), option::of(value()), scalar()).prop_map(|(s, t, u, l)| {
            let mut document = json!({ "l": [l, 1] });
            for (name, value) in [("s", s), ("t", t), ("u", u)] {
                value.into_iter().for_each(|value| document[name] = value);
            }
            document.to_string().into_bytes()
        });
    let others = select(vec!["", "{", "[1,]", "{\"s\":1} x", " {\"s\" : 1e0 , \"t\":\"\\u0061\"} ", "\"s\"", "nul"]);
    prop_oneof![
        8 => typical,
        2 => value().prop_map(|value| value.to_string().into_bytes()),
        1 => others.prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let all = ["/s", "/t", "/u", "/l/0", "/l", "", "/u/s", "/u/0", "/u/a~1b", "/u/~0", "/u/", "/x", "/l/00", "/s/t"];
    prop_oneof![3 => select(vec!["/s", "/t"]), 1 => select(all.to_vec())].prop_map(str::to_owned)
}

/// A value, its content type, and when it was written.
type Rest = (Vec<u8>, Option<&'static [u8]>, u64);

fn records() -> impl Strategy<Value = Vec<PlainRecord>> {
    let segment = || select(vec![&b"a"[..], b"b", b"", b"\xff", "é".as_bytes(), b"7"]);
    let key = vec(segment(), 1..4).prop_map(|segments| segments.join(&b'/'));
    let content_type = option::of(select(vec![&b"text/plain"[..], b"application/json", b"\xff"]));
    let rest = (document(), content_type, 0..12_000_u64);
    btree_map(key, rest, 0..25).prop_map(|records: BTreeMap<Vec<u8>, Rest>| {
        let record = |(key, (value, content_type, written_ms)): (Vec<u8>, Rest)| PlainRecord {
            key,
            value,
            content_type: content_type.map(<[u8]>::to_vec),
            written_ms,
        };
        records.into_iter().map(record).collect()
    })
}

fn condition() -> impl Strategy<Value = Value> {
    let orders = || select(vec!["eq", "ne", "lt", "le", "gt", "ge"]);
    let bound = scalar().prop_filter("ordered", |value| value.is_number() || value.is_string());
    let text = || select(vec!["", "a", "b/", "7", "text/plain", "application/", "é"]);
    let on_bytes = |on: &'static str, ops: Vec<&'static str>| {
        (select(ops), text()).prop_map(move |(op, value)| json!({ "on": on, "op": op, "value": value }))
    };
    prop_oneof![
        2 => (path(), orders(), bound).prop_map(|(path, op, value)| json!({ "path": path, "op": op, "value": value })),
        2 => (path(), select(vec!["eq", "ne"]), value())
            .prop_map(|(path, op, value)| json!({ "path": path, "op": op, "value": value })),
        1 => (path(), vec(value(), 0..5)).prop_map(|(path, list)| json!({ "path": path, "op": "in", "value": list })),
        1 => (path(), any::<bool>()).prop_map(|(path, is)| json!({ "path": path, "op": "exists", "value": is })),
        1 => path().prop_map(|path| json!({ "path": path, "op": "exists" })),
        1 => on_bytes("key", vec!["prefix", "suffix", "contains", "eq"]),
        1 => on_bytes("content_type", vec!["eq", "ne", "prefix", "suffix", "contains"]),
        1 => vec(text(), 0..3).prop_map(|list| json!({ "on": "content_type", "op": "in", "value": list })),
        1 => (select(vec!["size", "age"]), orders(), select(vec![json!(0), json!(2), json!(5.5), json!(20)]))
            .prop_map(|(on, op, value)| json!({ "on": on, "op": op, "value": value })),
    ]
}

fn query() -> impl Strategy<Value = Value> {
    let grouping = prop_oneof![
        (0..3, option::of(select(vec!["/", "a", "//", "é"]))).prop_map(|(at, separator)| match separator {
            None => json!({ "key_segment": at }),
            Some(separator) => json!({ "key_segment": at, "separator": separator }),
        }),
        path().prop_map(|path| json!({ "path": path })),
    ];
    let names = vec!["count", "sum", "min", "max", "avg", "histogram", "top", "distinct"];
    let bounds = subsequence(vec![json!(-1e30), json!(-1), json!(0.5), json!(1), json!(u64::MAX), json!(1e20)], 1..5);
    let aggregates = (subsequence(names, 1..=8), vec(path(), 8), bounds, 1..4).prop_map(|(names, paths, bounds, n)| {
        let aggregate = |(name, path): (&str, String)| {
            let what = match name {
                "count" => json!({}),
                "histogram" => json!({ "path": path, "bounds": bounds }),
                "top" => json!({ "path": path, "n": n }),
                _ => json!({ "path": path }),
            };
            (name.to_owned(), what)
        };
        names.into_iter().zip(paths).map(aggregate).collect::<Value>()
    });
    (vec(condition(), 0..3), option::of(grouping), aggregates).prop_map(|(conditions, grouping, select)| {
        let mut query = json!({ "prefix": "", "select": select, "where": conditions });
        grouping.into_iter().for_each(|grouping| query["group_by"] = grouping);
        query
    })
}

fn rows(query: &Query, records: &[PlainRecord]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let row = |record: &PlainRecord| {
        let row = query.row(&QueryRecord {
            key: &record.key,
            value: &record.value,
            content_type: record.content_type.as_deref(),
            written_ms: record.written_ms,
            now_ms: NOW_MS,
        });
        row.map(|row| (record.key.clone(), row))
    };
    records.iter().filter_map(row).collect()
}

fn folded(query: &Arc<Query>, rows: &[(Vec<u8>, Vec<u8>)]) -> Aggregation {
    let mut aggregation = Aggregation::new(Arc::clone(query));
    for (key, row) in rows {
        aggregation.add(key, row).unwrap();
    }
    aggregation
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_folded_are_what_the_query_means(query in query(), records in records()) {
        let parsed = Arc::new(Query::parse(query.to_string().as_bytes()).unwrap());
        let aggregation = folded(&parsed, &rows(&parsed, &records));
        let expected = answer(&query, &records, NOW_MS);
        prop_assert_eq!(aggregation.not_json(), expected.not_json);
        prop_assert_eq!(aggregation.groups(), expected.groups);
    }

    #[test]
    fn the_order_of_rows_changes_nothing_but_sums_of_floats(query in query(), records in records(), seed: u64) {
        let mut query = query;
        for name in ["sum", "avg", "min", "max"] {
            query["select"].as_object_mut().unwrap().remove(name);
        }
        query["select"]["count"] = json!({});
        let parsed = Arc::new(Query::parse(query.to_string().as_bytes()).unwrap());
        let mut rows = rows(&parsed, &records);
        let expected = folded(&parsed, &rows).groups();
        let mut random = seed;
        rows.sort_by_cached_key(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 32
        });
        prop_assert_eq!(folded(&parsed, &rows).groups(), expected);
    }

    #[test]
    fn groups_as_text_are_the_same(query in query(), records in records()) {
        let parsed = Arc::new(Query::parse(query.to_string().as_bytes()).unwrap());
        let rows = rows(&parsed, &records);
        let mut text = Vec::new();
        folded(&parsed, &rows).write_groups(&mut text);
        prop_assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), folded(&parsed, &rows).groups());
    }

    #[test]
    fn any_bytes_are_a_value_and_a_row_without_a_panic(
        query in query(), body in vec(any::<u8>(), 0..64), value in vec(any::<u8>(), 0..64), row in vec(0..8_u8, 0..24),
    ) {
        prop_assert!(Query::parse(&body).is_err());
        let parsed = Arc::new(Query::parse(query.to_string().as_bytes()).unwrap());
        let record = PlainRecord { key: body, value, content_type: None, written_ms: u64::MAX };
        folded(&parsed, &rows(&parsed, &[record]));
        let mut aggregation = Aggregation::new(parsed);
        if aggregation.add(b"key", &row).is_ok() {
            let _ = aggregation.groups();
        }
    }
}
