//! Single rules of what a query answers, and its bounds.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::sync::Arc;

use kvorum_query::{AGGREGATION_BYTES_MAX, Aggregation, AggregationError, GROUPS_MAX, Query, QueryRecord};
use serde_json::{Value, json};

fn query(members: &Value) -> Arc<Query> {
    let mut query = json!({ "prefix": "" });
    members.as_object().unwrap().iter().for_each(|(name, value)| query[name] = value.clone());
    Arc::new(Query::parse(query.to_string().as_bytes()).unwrap())
}

fn record<'a>(key: &'a str, value: &'a str) -> QueryRecord<'a> {
    QueryRecord { key: key.as_bytes(), value: value.as_bytes(), content_type: None, written_ms: 0, now_ms: 0 }
}

/// Adds the rows of these records.
fn fold<K: AsRef<str>, V: AsRef<str>>(
    query: &Arc<Query>,
    records: impl IntoIterator<Item = (K, V)>,
) -> Result<Aggregation, AggregationError> {
    let mut aggregation = Aggregation::new(Arc::clone(query));
    for (key, value) in records {
        if let Some(row) = query.row(&record(key.as_ref(), value.as_ref())) {
            aggregation.add(key.as_ref().as_bytes(), &row)?;
        }
    }
    Ok(aggregation)
}

/// The only group of these values.
fn group(select: &Value, values: &[&str]) -> Value {
    let query = query(&json!({ "select": select }));
    let records = values.iter().enumerate().map(|(at, value)| (format!("k{at}"), *value));
    fold(&query, records).unwrap().groups()[0].clone()
}

#[test]
fn the_example_of_the_contract_is_answered_with_its_members_in_order() {
    let query = query(&json!({
        "where": [{ "path": "/status", "op": "eq", "value": "open" }],
        "group_by": { "key_segment": 1 },
        "select": { "top": { "path": "/total", "n": 1 }, "sum": { "path": "/total" }, "count": {} },
    }));
    let records = [
        ("orders/a/1", r#"{"status":"open","total":3.5}"#),
        ("orders/a/2", r#"{"status":"paid","total":100}"#),
        ("orders/a/7", r#"{"status":"open","total":9}"#),
        ("orders/b/1", "no JSON"),
    ];
    let mut text = Vec::new();
    let aggregation = fold(&query, records).unwrap();
    assert_eq!(aggregation.not_json(), 1);
    aggregation.write_groups(&mut text);
    let expected = r#"[{"group":"a","count":2,"sum":12.5,"top":[{"key":"orders/a/7","value":9}]}]"#;
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn sums_of_integers_are_exact_as_far_as_json_has_integers() {
    let sum = |values: &[&str]| group(&json!({ "sum": { "path": "" } }), values)["sum"].to_string();
    assert_eq!(sum(&["9007199254740993", "9007199254740993", "1"]), "18014398509481987");
    assert_eq!(sum(&["18446744073709551614", "1"]), "18446744073709551615");
    assert_eq!(sum(&["18446744073709551615", "1"]), "1.8446744073709552e+19");
    assert_eq!(sum(&["-9223372036854775808", "-1", "2"]), "-9223372036854775807");
    assert_eq!(
        sum(&["18446744073709551615", "18446744073709551615", "-9223372036854775808", "-9223372036854775808"]),
        "18446744073709551614"
    );
    assert_eq!(sum(&["1", "2.0"]), "3.0");
    assert_eq!(sum(&["\"1\"", "null", "[1]"]), "0");
    assert_eq!(sum(&["1e308", "1e308"]), "null");
}

#[test]
fn numbers_are_answered_as_they_were_written() {
    // With its default precision `serde_json` reads some of these as their neighbours.
    let numbers =
        ["0.1", "0.30000000000000004", "5.708990770823839e207", "122.416294033786585", "1.7976931348623157e308"];
    for number in numbers {
        let group = group(&json!({ "max": { "path": "" } }), &[number]);
        assert_eq!(group["max"].as_f64().unwrap(), number.parse::<f64>().unwrap());
        let by_path = query(&json!({ "group_by": { "path": "" }, "select": { "count": {} } }));
        let groups = fold(&by_path, [("k", number)]).unwrap().groups();
        assert_eq!(groups[0]["group"].as_f64().unwrap(), number.parse::<f64>().unwrap());
    }
}

#[test]
fn without_records_there_is_one_group_unless_they_are_grouped() {
    let select = json!({
        "count": {}, "sum": { "path": "" }, "min": { "path": "" }, "max": { "path": "" }, "avg": { "path": "" },
        "histogram": { "path": "", "bounds": [1] }, "top": { "path": "", "n": 1 }, "distinct": { "path": "" },
    });
    let expected = json!({
        "group": null, "count": 0, "sum": 0, "min": null, "max": null, "avg": null,
        "histogram": { "bounds": [1], "counts": [0, 0] }, "top": [], "distinct": 0,
    });
    assert_eq!(group(&select, &[]), expected);
    let grouped = query(&json!({ "group_by": { "key_segment": 0 }, "select": select }));
    assert_eq!(Aggregation::new(grouped).groups(), json!([]));
}

#[test]
fn groups_ascend_and_one_that_is_no_text_is_in_base64() {
    let names = |members: &Value, records: &[(&[u8], &str)]| -> Vec<Value> {
        let query = query(members);
        let mut aggregation = Aggregation::new(Arc::clone(&query));
        for (key, value) in records {
            let row = query.row(&QueryRecord { key, ..record("", value) }).unwrap();
            aggregation.add(key, &row).unwrap();
        }
        let groups = aggregation.groups();
        let name = |group: &Value| group.get("group").or(group.get("group_base64")).unwrap().clone();
        groups.as_array().unwrap().iter().map(name).collect()
    };
    let of_segments = json!({ "group_by": { "key_segment": 1, "separator": "::" }, "select": { "count": {} } });
    let keys = [&b"a::\xff"[..], b"a::b::c", b"a", b"a::", b"b::10", b"b::9", b"c::b"];
    let records: Vec<(&[u8], &str)> = keys.into_iter().map(|key| (key, "")).collect();
    assert_eq!(
        names(&of_segments, &records),
        [json!(null), json!(""), json!("10"), json!("9"), json!("b"), json!("/w==")]
    );
    let of_paths = json!({ "group_by": { "path": "/g" }, "select": { "count": {} } });
    let values = [
        "{\"g\":{}}",
        "{\"g\":10}",
        "{\"g\":9.5}",
        "{\"g\":[9]}",
        "{\"g\":\"9\"}",
        "{\"g\":10.0}",
        "{",
        "{\"g\":null}",
        "{}",
    ];
    let records: Vec<(&[u8], &str)> = values.into_iter().map(|value| (&b"k"[..], value)).collect();
    let expected = [json!(null), json!(9.5), json!(10), json!("9"), json!([9]), json!({})];
    assert_eq!(names(&of_paths, &records), expected);
}

#[test]
fn distinct_is_exact_up_to_10_000_and_within_5_percent_above() {
    let query = query(&json!({ "select": { "distinct": { "path": "/v" } } }));
    let distinct = |count: u64| {
        // Each value twice, the second time as a float.
        let values =
            (0..count).map(|at| format!("{{\"v\":{at}}}")).chain((0..count).map(|at| format!("{{\"v\":{at}.0}}")));
        let groups = fold(&query, values.map(|value| ("k", value))).unwrap().groups();
        groups[0]["distinct"].as_u64().unwrap()
    };
    assert_eq!(distinct(9_999), 9_999);
    assert_eq!(distinct(10_000), 10_000);
    assert!(distinct(10_001) > 10_000);
    assert!(distinct(200_000).abs_diff(200_000) < 10_000);
}

#[test]
fn json_is_read_only_where_the_query_has_a_path_and_the_other_conditions_hold() {
    let not_json = |members: &Value| {
        let records = [("a", "{"), ("b", "1"), ("c", "{")];
        let aggregation = fold(&query(members), records).unwrap();
        (aggregation.not_json(), aggregation.groups()[0]["count"].clone())
    };
    let on_a = json!({ "on": "key", "op": "eq", "value": "a" });
    let exists = |is: bool| json!({ "path": "/x", "op": "exists", "value": is });
    let count = json!({ "count": {} });
    assert_eq!(not_json(&json!({ "select": count })), (0, json!(3)));
    assert_eq!(not_json(&json!({ "select": count, "where": [exists(false)] })), (2, json!(3)));
    assert_eq!(not_json(&json!({ "select": count, "where": [exists(true)] })), (2, json!(0)));
    assert_eq!(not_json(&json!({ "select": count, "where": [exists(true), on_a] })), (1, json!(0)));
    assert_eq!(not_json(&json!({ "select": { "count": {}, "sum": { "path": "" } }, "where": [on_a] })), (1, json!(1)));
}

#[test]
fn an_age_is_in_whole_seconds_and_never_below_none() {
    let fulfils = |op: &str, value: Value, written_ms: u64, now_ms: u64| {
        let query = query(&json!({ "where": [{ "on": "age", "op": op, "value": value }], "select": { "count": {} } }));
        query.row(&QueryRecord { written_ms, now_ms, ..record("k", "") }).is_some()
    };
    assert!(fulfils("eq", json!(0), 5, 1004) && fulfils("eq", json!(1), 5, 1005) && fulfils("eq", json!(1), 5, 2004));
    assert!(fulfils("eq", json!(86_400), 1, 86_400_001) && fulfils("lt", json!(86_400), 1, 86_400_000));
    assert!(fulfils("eq", json!(0), u64::MAX, 0), "written by a clock that is ahead");
    assert!(fulfils("gt", json!(1e15), 0, u64::MAX));
}

#[test]
fn json_nested_deeper_than_the_limit_is_not_json_even_where_no_path_leads() {
    let query = query(&json!({ "where": [{ "path": "/a", "op": "eq", "value": 1 }], "select": { "count": {} } }));
    let nested = |depth: usize| format!("{{\"a\":1,\"b\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    for (depth, expected) in [(127, (0, 1)), (128, (1, 0)), (100_000, (1, 0))] {
        let value = nested(depth);
        assert_eq!(serde_json::from_str::<Value>(&value).is_ok(), expected.0 == 0);
        let aggregation = fold(&query, [("k", value)]).unwrap();
        let not_json = aggregation.not_json();
        assert_eq!((not_json, aggregation.groups()[0]["count"].as_u64().unwrap()), expected, "{depth}");
    }
}

#[test]
fn more_than_10_000_groups_are_refused() {
    let query = query(&json!({ "group_by": { "key_segment": 0 }, "select": { "count": {} } }));
    let of = |count: usize| fold(&query, (0..count).map(|at| (format!("{at:05}"), "")));
    assert_eq!(of(GROUPS_MAX).unwrap().groups().as_array().unwrap().len(), GROUPS_MAX);
    assert_eq!(of(GROUPS_MAX + 1).unwrap_err(), AggregationError::TooManyGroups);
}

#[test]
fn an_aggregation_that_would_hold_more_than_4_mib_is_refused() {
    assert_eq!(AGGREGATION_BYTES_MAX, 4 * 1024 * 1024);
    // A group of this histogram has 8 KB, so that 550 of them are too many.
    let bounds: Vec<usize> = (0..1000).collect();
    let histogram = query(&json!({
        "group_by": { "key_segment": 0 },
        "select": { "histogram": { "path": "", "bounds": bounds } },
    }));
    let of = |count: usize| fold(&histogram, (0..count).map(|at| (at.to_string(), "1")));
    assert!(of(500).is_ok());
    assert_eq!(of(550).unwrap_err(), AggregationError::TooLarge);
    // Texts and keys count as well, and what makes room is given back.
    let top = query(&json!({ "select": { "top": { "path": "", "n": 1000 } } }));
    let text = |bytes: usize, at: usize| format!("\"{at:08}{}\"", "x".repeat(bytes));
    let of = |bytes: usize, count: usize| fold(&top, (0..count).map(|at| ("k".repeat(2000), text(bytes, at))));
    assert!(of(1500, 5000).is_ok());
    assert_eq!(of(3000, 1000).unwrap_err(), AggregationError::TooLarge);
}

#[test]
fn a_text_or_group_of_more_than_16_kib_is_refused_where_a_row_would_have_it() {
    const MOST: usize = 16 * 1024;
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    let of = |members: &Value, value: String| fold(&query(members), [("k", value)]).map(drop);
    let refused = Err(AggregationError::TooLarge);
    for select in [json!({ "min": { "path": "" } }), json!({ "top": { "path": "", "n": 1 } })] {
        let members = json!({ "select": select });
        assert_eq!(of(&members, text(MOST)), Ok(()));
        assert_eq!(of(&members, text(MOST + 1)), refused);
    }
    let grouped = json!({ "group_by": { "path": "" }, "select": { "count": {} } });
    assert_eq!(of(&grouped, text(MOST)), Ok(()));
    assert_eq!(of(&grouped, text(MOST + 1)), refused);
    assert_eq!(of(&grouped, format!("[{}]", text(MOST - 16))), Ok(()));
    assert_eq!(of(&grouped, format!("[{}]", text(MOST - 15))), refused);
    let distinct = json!({ "select": { "distinct": { "path": "" } } });
    assert_eq!(of(&distinct, text(1_000_000)), Ok(()), "only the hash travels");
    assert_eq!(of(&distinct, format!("[{}]", text(MOST - 15))), refused);
    let compared = json!({ "where": [{ "path": "", "op": "gt", "value": "w" }], "select": { "sum": { "path": "" } } });
    assert_eq!(of(&compared, text(1_000_000)), Ok(()), "nor does what is only compared");
    let other = json!({ "where": [{ "path": "", "op": "ne", "value": [1] }], "select": { "count": {} } });
    let large = format!("[{}]", text(1_000_000));
    assert_eq!(fold(&query(&other), [("k", large)]).unwrap().groups()[0]["count"], 1, "it differs, whatever it is");
}

#[test]
fn of_members_with_one_name_the_last_counts() {
    let query = query(&json!({ "group_by": { "path": "/a/c" }, "select": { "sum": { "path": "/a/b" } } }));
    let groups = fold(&query, [("k", r#"{"a":{"b":1,"c":7},"a":{"c":2,"c":3}}"#)]).unwrap().groups();
    assert_eq!(groups, json!([{ "group": 3, "sum": 0 }]));
}

#[test]
fn a_row_that_is_not_one_of_the_query_is_refused() {
    let query = query(&json!({
        "group_by": { "path": "/g" },
        "select": { "sum": { "path": "/s" }, "min": { "path": "/m" }, "distinct": { "path": "/d" } },
    }));
    let value = r#"{"g":{"a":1.5},"s":300,"m":"text","d":null}"#;
    let row = query.row(&record("k", value)).unwrap();
    assert!(row.len() < 40, "{} bytes", row.len());
    let add = |row: &[u8]| Aggregation::new(Arc::clone(&query)).add(b"k", row);
    assert_eq!(add(&row), Ok(true));
    for length in 0..row.len() {
        assert_eq!(add(&row[..length]), Err(AggregationError::Row), "cut to {length}");
    }
    assert_eq!(add(&[&row[..], b"\0"].concat()), Err(AggregationError::Row));
    // A text of 2^60 bytes, as it claims.
    assert_eq!(add(&[0, 3, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10]), Err(AggregationError::Row));
    let with_group = |text: &str| {
        let mut row = vec![0, 3, u8::try_from(text.len()).unwrap()];
        row.extend_from_slice(text.as_bytes());
        row.extend_from_slice(&[0, 0, 0]);
        add(&row)
    };
    assert_eq!(with_group("{\"a\":1}"), Ok(true));
    for other in ["{", "", "1.0", " 1", "{\"b\":1,\"a\":1}", "{\"a\":1,\"a\":1}"] {
        assert_eq!(with_group(other), Err(AggregationError::Row), "{other}");
    }
    let infinite = [&[0, 3, 1, b'1', 2][..], &f64::INFINITY.to_le_bytes(), &[0, 0]].concat();
    assert_eq!(add(&infinite), Err(AggregationError::Row));
    let counted = Arc::new(Query::parse(br#"{"prefix":"","select":{"count":{}}}"#).unwrap());
    assert_eq!(Aggregation::new(Arc::clone(&counted)).add(b"k", &[2]), Err(AggregationError::Row), "it needs no JSON");
}
