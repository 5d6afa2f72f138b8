//! What a script is given, and what it gives.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod common;

use common::{map, record, workers};
use kvorum_script::{ScriptPair, ScriptRecord, WorkerError};
use serde_json::{Value, json};

/// The result of a script over records, all in one page.
fn result_of(source: &str, records: &[ScriptRecord<'_>]) -> Result<Vec<(Value, Value)>, String> {
    let emitted: Vec<Vec<u8>> = map(source, records).unwrap().into_iter().collect::<Result<_, _>>()?;
    finish(source, &emitted)
}

fn finish(source: &str, emitted: &[Vec<u8>]) -> Result<Vec<(Value, Value)>, String> {
    loop {
        match workers().finish(source.as_bytes(), emitted) {
            Ok(pairs) => return Ok(pairs.into_iter().map(|ScriptPair { key, value }| (key, value)).collect()),
            Err(WorkerError::Busy) => {}
            Err(WorkerError::Script(message)) => return Err(message),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn map_sees_bytes_and_what_is_known_of_the_record() {
    let source = "function map(key, value, meta) emit(key, {#value, string.byte(value, 1), meta}) end";
    let whole = ScriptRecord {
        content_type: Some(b"text/plain"),
        expires_ms: Some(1_800_000_000_000),
        ..record("a", b"\xff\x00")
    };
    let result = result_of(source, &[whole]).unwrap();
    let meta = json!({
        "size": 2, "content_type": "text/plain", "written_ms": 1_700_000_000_000_u64, "expires_ms": 1_800_000_000_000_u64
    });
    assert_eq!(result[0], (json!("a"), json!([2, 255, meta])));
    let hole = "script:1: emit: a table is a list from 1 on without holes, or has only strings as keys";
    assert_eq!(result_of(source, &[record("b", b"")]), Err(hole.to_owned()), "string.byte gave nil");
}

#[test]
fn without_combine_all_pairs_remain_in_the_order_of_keys_and_records() {
    let source = "function map(key) emit('k', key) emit(2, key) emit(true, key) emit('K', nil) emit(10, 1) end";
    let result = result_of(source, &[record("a", b""), record("b", b"")]).unwrap();
    let pair = |key, value| (key, value);
    assert_eq!(
        result,
        [
            pair(json!(true), json!("a")),
            pair(json!(true), json!("b")),
            pair(json!(2), json!("a")),
            pair(json!(2), json!("b")),
            pair(json!(10), json!(1)),
            pair(json!(10), json!(1)),
            pair(json!("K"), Value::Null),
            pair(json!("K"), Value::Null),
            pair(json!("k"), json!("a")),
            pair(json!("k"), json!("b")),
        ]
    );
}

#[test]
fn combine_folds_the_values_of_a_key_in_order() {
    let source = "function map(key, value) emit(value, key) emit(0, 1) emit(-0, 1) end\n\
                  function combine(a, b) return a .. b end";
    let records = [record("a", b"x"), record("b", b"y"), record("c", b"x"), record("d", b"x")];
    let result = result_of(source, &records).unwrap();
    assert_eq!(result, [(json!(0), json!("11111111")), (json!("x"), json!("acd")), (json!("y"), json!("b"))]);
}

#[test]
fn what_was_emitted_as_nil_is_combined_as_nil() {
    let source = "function map(key) emit('a') end function combine(a, b) return (a or 1) + (b or 1) end";
    let result = result_of(source, &["a", "b", "c"].map(|key| record(key, b""))).unwrap();
    assert_eq!(result, [(json!("a"), json!(3))]);
}

#[test]
fn finish_changes_the_result() {
    let source = "function map(key) emit(key, #key) end\n\
                  function finish(pairs) table.sort(pairs, function(a, b) return a.value > b.value end)\n\
                  return {pairs[1], {key = 'all', value = #pairs}} end";
    let result = result_of(source, &["a", "bbb", "cc"].map(|key| record(key, b""))).unwrap();
    assert_eq!(result, [(json!("bbb"), json!(3)), (json!("all"), json!(3))]);
    let none = "finish has to return a list of {key = …, value = …}";
    assert_eq!(finish(source, &[]).unwrap_err(), format!("{none}, and 1 is none"));
    assert_eq!(finish("function map() end function finish() end", &[]).unwrap_err(), none);
    let odd = "function map() end function finish() return {1} end";
    assert_eq!(finish(odd, &[]).unwrap_err(), format!("{none}, and 1 is none"));
    let failing = "function map() end\nfunction finish() error('no') end";
    assert_eq!(finish(failing, &[]).unwrap_err(), "script:2: no");
    assert_eq!(finish("function map() end", &[]).unwrap(), []);
}

#[test]
fn json_goes_in_and_out() {
    let source =
        "function map(key, value) local o = json.decode(value) o.more = o.list[2] emit(key, json.encode(o)) end";
    let value = br#"{"list":[1,-2.5e3],"null":null,"text":"\u00e4\n","flags":[true,false],"deep":{"a":{}}}"#;
    let result = result_of(source, &[record("a", value)]).unwrap();
    let text = r#"{"deep":{"a":{}},"flags":[true,false],"list":[1,-2500],"more":-2500,"null":null,"text":"ä\n"}"#;
    assert_eq!(result, [(json!("a"), json!(text))]);
    let error = |value: &[u8]| result_of(source, &[record("a", value)]).unwrap_err();
    assert!(error(b"{").starts_with("script:1: json.decode: EOF while parsing"), "{}", error(b"{"));
    assert!(error(b"{} x").starts_with("script:1: json.decode: trailing characters"));
    assert!(error(b"\"\xff\"").starts_with("script:1: json.decode: invalid unicode"));
    assert!(error("[".repeat(101).as_bytes()).starts_with("script:1: json.decode: it nests deeper than 100"));
}

#[test]
fn null_is_told_from_nil() {
    let source = "function map(key, value) local o = json.decode(value) emit(o.a == json.null, o.b == nil) end";
    let result = result_of(source, &[record("a", br#"{"a":null}"#)]).unwrap();
    assert_eq!(result, [(json!(true), json!(true))]);
}

#[test]
fn an_error_is_that_of_its_record_alone() {
    let source = "function map(key, value) emit(key, 1)\nif value == '' then error('empty') end end";
    let answers = map(source, &[record("a", b"x"), record("b", b""), record("c", b"x")]).unwrap();
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_eq!(answers[1], Err("script:2: empty".to_owned()));
}

#[test]
fn a_page_of_8192_records_and_one_of_a_large_value_are_mapped() {
    let source = "function map(key, value) emit(1, #value) end function combine(a, b) return a + b end";
    let keys: Vec<String> = (0..8192).map(|number| format!("key/{number:05}")).collect();
    let records: Vec<_> = keys.iter().map(|key| record(key, &[b'x'; 32])).collect();
    assert_eq!(result_of(source, &records).unwrap(), [(json!(1), json!(8192 * 32))]);
    let large = vec![0xff; 16 << 20];
    assert_eq!(result_of(source, &[record("a", &large)]).unwrap(), [(json!(1), json!(16 << 20))]);
    let larger = vec![0xff; (16 << 20) + 1];
    let answers = map(source, &[record("a", b"x"), record("b", &larger), record("c", b"x")]).unwrap();
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_eq!(answers[1], Err("the value has over 16 MiB: too large for a script".to_owned()));
}

#[test]
fn globals_live_for_one_page() {
    let source = "n = 0 function map(key) n += 1 emit(key, n) end";
    let records = ["a", "b"].map(|key| record(key, b""));
    let first = map(source, &records).unwrap();
    assert_eq!(map(source, &records).unwrap(), first);
    assert!(first[1].as_ref().unwrap().ends_with(b"2"));
    assert_eq!(map(source, &[]).unwrap(), []);
}
