//! What is a query, and what a client is told about what is none.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use kvorum_query::{BODY_BYTES_MAX, Query, QueryRange};
use serde_json::{Value, json};

fn error(query: &Value) -> String {
    Query::parse(query.to_string().as_bytes()).unwrap_err().0
}

/// A query that counts, with one more member.
fn with(name: &str, member: &Value) -> Value {
    let mut query = json!({ "prefix": "", "select": { "count": {} } });
    query[name] = member.clone();
    query
}

fn range(query: &Value) -> Result<QueryRange, String> {
    let mut query = query.clone();
    query["select"] = json!({ "count": {} });
    Query::parse(query.to_string().as_bytes()).map(|query| query.range().clone()).map_err(|error| error.0)
}

#[test]
fn the_example_of_the_contract_is_a_query() {
    let body =
        br#"{"prefix":"orders/","where":[{"path":"/status","op":"eq","value":"open"}],"group_by":{"key_segment":1},
        "select":{"count":{},"sum":{"path":"/total"},"top":{"path":"/total","n":10}}}"#;
    let query = Query::parse(body).unwrap();
    assert_eq!(query.range(), &QueryRange { start: b"orders/".to_vec(), end: Some(b"orders0".to_vec()) });
}

#[test]
fn ranges_are_as_in_a_scan() {
    let of = |start: &[u8], end: Option<&[u8]>| Ok(QueryRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) });
    assert_eq!(range(&json!({ "prefix": "" })), of(b"", None));
    assert_eq!(range(&json!({ "prefix_base64": "/w==" })), of(b"\xff", None));
    assert_eq!(range(&json!({ "prefix_base64": "Yf8=" })), of(b"a\xff", Some(b"b")));
    assert_eq!(range(&json!({ "start": "a" })), of(b"a", None));
    assert_eq!(range(&json!({ "start": "b", "end_base64": "/w==" })), of(b"b", Some(b"\xff")));
    assert_eq!(range(&json!({ "start": "b", "end": "a" })), of(b"b", Some(b"a")), "a range without keys, as there");
    assert!(range(&json!({ "prefix": "a".repeat(2048) })).is_ok());
    for (query, reason) in [
        (json!({}), "a query has `prefix`"),
        (json!({ "prefix": "a", "end": "b" }), "a query has `prefix`"),
        (json!({ "end": "b" }), "a query has `prefix`"),
        (json!({ "start": "" }), "the prefix \"\" is for all keys"),
        (json!({ "start": "a", "end": "" }), "the prefix \"\" is for all keys"),
        (json!({ "prefix": "a", "prefix_base64": "" }), "`prefix` and `prefix_base64` exclude each other"),
        (json!({ "prefix_base64": "a" }), "`prefix_base64` is base64"),
        (json!({ "prefix": 1 }), "`prefix` is a text"),
        (json!({ "prefix": "a".repeat(2049) }), "`prefix` has at most 2,048 bytes"),
    ] {
        let error = range(&query).unwrap_err();
        assert!(error.starts_with(reason) || error.ends_with(reason), "{query}: {error}");
    }
}

#[test]
fn what_is_unknown_is_named_with_its_place() {
    let condition = |condition: Value| with("where", &json!([{ "on": "key", "op": "eq", "value": "" }, condition]));
    for (query, reason) in [
        (with("wher", &json!([])), "`wher` is unknown: known are `prefix`, "),
        (with("limit", &json!(1)), "`limit` is unknown: known are `prefix`, "),
        (
            condition(json!({ "path": "/a", "opp": "eq" })),
            "`where[1].opp` is unknown: known are `path`, `on`, `op` and `value`; did you mean `op`?",
        ),
        (
            condition(json!({ "path": "/a", "op": "like", "value": 1 })),
            "`where[1].op`: `like` is none of `eq`, `ne`, `lt`, `le`, `gt`, `ge`, `exists` and `in`",
        ),
        (
            condition(json!({ "on": "key", "op": "prefx", "value": "a" })),
            "`where[1].op`: `prefx` is none of `prefix`, `suffix`, `contains` and `eq`; did you mean `prefix`?",
        ),
        (condition(json!({ "on": "key", "op": "ne", "value": "a" })), "`where[1].op`: `ne` is none of `prefix`"),
        (condition(json!({ "on": "size", "op": "in", "value": [1] })), "`where[1].op`: `in` is none of `eq`"),
        (
            condition(json!({ "on": "content-type", "op": "eq", "value": "a" })),
            "`where[1].on`: `content-type` is none of `key`, `size`, `age` and `content_type`; did you mean `content_type`?",
        ),
        (with("select", &json!({ "averge": {} })), "`select.averge` is unknown: known are `count`, `sum`, "),
        (
            with("select", &json!({ "coutn": {} })),
            "`select.coutn` is unknown: known are `count`, `sum`, `min`, `max`, `avg`, `histogram`, `top` and `distinct`; did you mean `count`?",
        ),
        (with("select", &json!({ "count": { "path": "" } })), "`select.count.path` is unknown: it has no members"),
        (with("group_by", &json!({ "segment": 1 })), "`group_by.segment` is unknown"),
        (with(&"x".repeat(1000), &json!(1)), &format!("`{}…` is unknown: known", "x".repeat(64))),
    ] {
        let error = error(&query);
        assert!(error.starts_with(reason), "{query}\n{error}\n{reason}");
    }
}

#[test]
fn what_is_missing_or_of_another_kind_is_named_with_its_place() {
    let condition = |condition: Value| with("where", &json!([condition]));
    for (query, reason) in [
        (json!([]), "the query is a JSON object with `prefix`, "),
        (json!({ "prefix": "" }), "`select` is missing"),
        (with("select", &json!({})), "`select` has at least one of `count`, "),
        (with("select", &json!({ "sum": {} })), "`select.sum.path` is missing"),
        (with("select", &json!({ "sum": "/a" })), "`select.sum` is a JSON object with `path`"),
        (with("select", &json!({ "top": { "path": "" } })), "`select.top.n` is missing"),
        (with("where", &json!({})), "`where` is a list of at most 32"),
        (condition(json!("a")), "`where[0]` is a JSON object with `path`, "),
        (condition(json!({ "op": "eq", "value": 1 })), "`where[0]` has either `path` or `on`"),
        (condition(json!({ "path": "", "on": "key", "op": "eq", "value": 1 })), "`where[0]` has either `path` or `on`"),
        (condition(json!({ "path": "" })), "`where[0].op` is missing"),
        (condition(json!({ "path": "", "op": "eq" })), "`where[0].value` is missing"),
        (condition(json!({ "path": 1, "op": "exists" })), "`where[0].path` is a text"),
        (condition(json!({ "path": "a", "op": "exists" })), "`where[0].path` is a JSON pointer"),
        (condition(json!({ "path": "/~2", "op": "exists" })), "`where[0].path` is a JSON pointer"),
        (condition(json!({ "path": "/a~", "op": "exists" })), "`where[0].path` is a JSON pointer"),
        (condition(json!({ "path": "", "op": "exists", "value": 1 })), "`where[0].value` is true or false"),
        (condition(json!({ "path": "", "op": "lt", "value": true })), "`where[0].value` is a number or text"),
        (condition(json!({ "path": "", "op": "in", "value": 1 })), "`where[0].value` is a list of at most 1,000"),
        (condition(json!({ "on": "size", "op": "lt", "value": "1" })), "`where[0].value` is a number"),
        (condition(json!({ "on": "key", "op": "eq", "value": 1 })), "`where[0].value` is a text"),
        (condition(json!({ "on": "content_type", "op": "in", "value": ["a", 1] })), "`where[0].value[1]` is a text"),
        (with("group_by", &json!({})), "`group_by` has either `path`, or `key_segment`"),
        (with("group_by", &json!({ "path": "", "separator": "/" })), "`group_by` has either `path`, or `key_segment`"),
        (with("group_by", &json!({ "key_segment": "1" })), "`group_by.key_segment` is a whole number from 0 to 2,048"),
    ] {
        let error = error(&query);
        assert!(error.starts_with(reason), "{query}\n{error}\n{reason}");
    }
}

#[test]
fn what_is_out_of_bounds_is_refused_and_what_is_at_the_bound_is_taken() {
    let bounded = |query: &dyn Fn(usize) -> Value, most: usize, reason: &str| {
        Query::parse(query(most).to_string().as_bytes()).unwrap();
        let error = error(&query(most + 1));
        assert!(error.contains(reason), "{error}");
    };
    let exists = |path: String| json!({ "path": path, "op": "exists" });
    let conditions = |count| with("where", &vec![exists("/a".to_owned()); count].into());
    bounded(&conditions, 32, "`where` is a list of at most 32");
    let path = |length| with("where", &json!([exists(format!("/{}", "a".repeat(length - 1)))]));
    bounded(&path, 1024, "has at most 1,024 bytes");
    let values = |count| with("where", &json!([{ "path": "", "op": "in", "value": vec![1; count] }]));
    bounded(&values, 1000, "a list of at most 1,000");
    let constant = |weight| with("where", &json!([{ "path": "", "op": "eq", "value": ["a".repeat(weight - 16)] }]));
    bounded(&constant, 16 * 1024, "more than 16 KiB");
    let bounds = |count: usize| {
        with("select", &json!({ "histogram": { "path": "", "bounds": (0..count).collect::<Vec<_>>() } }))
    };
    bounded(&bounds, 1000, "a list of at most 1,000");
    bounded(&|n| with("select", &json!({ "top": { "path": "", "n": n } })), 1000, "from 1 to 1,000");
    bounded(&|at| with("group_by", &json!({ "key_segment": at })), 2048, "from 0 to 2,048");
    let separator = |length| with("group_by", &json!({ "key_segment": 0, "separator": "/".repeat(length) }));
    bounded(&separator, 16, "1 to 16 bytes");
    let bare = with("prefix", &"".into()).to_string();
    let spaced = |length: usize| bare.clone() + &" ".repeat(length - bare.len());
    Query::parse(spaced(BODY_BYTES_MAX).as_bytes()).unwrap();
    assert_eq!(Query::parse(spaced(BODY_BYTES_MAX + 1).as_bytes()).unwrap_err().0, "the query has more than 64 KiB");

    for (query, reason) in [
        (with("select", &json!({ "top": { "path": "", "n": 0 } })), "from 1 to 1,000"),
        (with("select", &json!({ "histogram": { "path": "", "bounds": [] } })), "ascending"),
        (with("select", &json!({ "histogram": { "path": "", "bounds": [1, 1.0] } })), "ascending"),
        (with("select", &json!({ "histogram": { "path": "", "bounds": [2, 1] } })), "ascending"),
        (with("group_by", &json!({ "key_segment": 0, "separator": "" })), "1 to 16 bytes"),
        (with("group_by", &json!({ "key_segment": -1 })), "from 0 to 2,048"),
    ] {
        let error = error(&query);
        assert!(error.contains(reason), "{query}: {error}");
    }
}

#[test]
fn what_is_no_json_or_has_a_member_twice_is_refused_with_its_place() {
    for (body, reason) in [
        (&b"{\"prefix\":\"\","[..], "EOF while parsing"),
        (b"", "EOF while parsing"),
        (b"\xff", "expected value"),
        (b"{\"prefix\":\"\",\"prefix\":\"a\"}", "the member `prefix` is given twice at line 1 column "),
        (b"{\"select\":{\"top\":{},\n\"top\":{}}}", "the member `top` is given twice at line 2 column "),
        (b"{\"prefix\":\"\"} {}", "trailing characters"),
    ] {
        let error = Query::parse(body).unwrap_err().0;
        assert!(error.contains(reason), "{error}");
    }
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(Query::parse(deep.as_bytes()).unwrap_err().0.contains("recursion limit"));
}
