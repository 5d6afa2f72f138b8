//! Batches: what is read of them in both forms, and what is answered.

use bytes::Bytes;
use kvorum_core::{Hlc, Incarnation, Version};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::item::Payload;
use super::*;
use crate::tests::{settings, with, with_memory};

fn ndjson_of(text: &str) -> Result<Vec<RawItem>, HttpError> {
    ndjson::parse(&Bytes::copy_from_slice(text.as_bytes()))
}

fn detail(error: &HttpError) -> String {
    error.problem().detail
}

/// An operation as a frame.
fn framed(op: u8, key: &[u8], numbers: [u8; 2], ttl: u32, content_type: &[u8], value: &[u8]) -> Vec<u8> {
    let key_length = u16::try_from(key.len()).unwrap().to_be_bytes();
    let type_length = [u8::try_from(content_type.len()).unwrap()];
    let body =
        [&[16, op][..], &key_length, key, &numbers, &ttl.to_be_bytes(), &type_length, content_type, value].concat();
    [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()
}

#[test]
fn both_forms_say_the_same() {
    let text = r#"
        {"op":"put","key":"a","value":"text","ttl":60,"content_type":"text/plain","ack":2,"from":3}
        {"op":"put","key_base64":"/w==","value_base64":"AP8="}
        {"op":"get","key":"a\n\u00e9","ack":1}

        {"op":"delete","key":"b"}
    "#;
    let frames = [
        framed(1, b"a", [2, 3], 60, b"text/plain", b"text"),
        framed(1, b"\xff", [0, 0], 0, b"", b"\0\xff"),
        framed(2, "a\n\u{e9}".as_bytes(), [1, 0], 0, b"", b""),
        framed(3, b"b", [0, 0], 0, b"", b""),
    ];
    let items = ndjson_of(text).unwrap();
    assert_eq!(items, frames::parse(&frames.concat().into()).unwrap());
    assert_eq!(items.len(), 4);
    let put = ItemAction::Put { value: "text".into(), content_type: Some("text/plain".into()) };
    let quorum = QuorumNumbers { ack: Some(2), from: Some(3) };
    assert_eq!(items[0], RawItem { key: "a".into(), action: put, quorum, ttl: Some(60) });
}

#[test]
fn a_value_is_shared_with_the_body_where_it_has_no_escapes() {
    let body = Bytes::from_static(br#"{"op":"put","key":"k","value":"plain"}"#);
    let items = ndjson::parse(&body).unwrap();
    let ItemAction::Put { value, .. } = &items[0].action else { panic!("{items:?}") };
    assert!(body.as_ptr_range().contains(&value.as_ptr()));
}

#[test]
fn what_cannot_be_read_names_its_line() {
    for (line, what) in [
        (r#"{"op":"get","key":"a","colour":1}"#, "unknown field `colour`"),
        (r#"{"op":"get"}"#, "`key` or `key_base64` is required"),
        (r#"{"key":"a"}"#, "missing field `op`"),
        (r#"{"op":"swap","key":"a"}"#, "`op` is `put`, `get` or `delete`"),
        (r#"{"op":"put","key":"a"}"#, "a put has `value`"),
        (r#"{"op":"get","key":"a","value":"v"}"#, "members of a put"),
        (r#"{"op":"put","key":"a","key_base64":"YQ==","value":""}"#, "exclude each other"),
        (r#"{"op":"put","key":"a","value":"","value_base64":""}"#, "exclude each other"),
        (r#"{"op":"put","key_base64":"?","value":""}"#, "`key_base64` is not base64"),
        (r#"{"op":"put","key":"a","value_base64":"?"}"#, "`value_base64` is not base64"),
        (r#"{"op":"put","key":"a","value":7}"#, "invalid type"),
        (r#"{"op":"put","key":"a","value":"","ttl":1.5}"#, "invalid type"),
        (r#"{"op":"put","key":"a","value":"","ttl":-1}"#, "invalid value"),
        (r#"{"op":"get","key":"a""#, "EOF"),
        ("[]", "invalid"),
    ] {
        let error = ndjson_of(&format!("{{\"op\":\"get\",\"key\":\"first\"}}\n{line}\n")).unwrap_err();
        let detail = detail(&error);
        assert!(detail.starts_with("line 2 of the batch: ") && detail.contains(what), "{line}: {detail}");
    }
}

#[test]
fn a_frame_that_cannot_be_read_names_its_place() {
    let good = framed(2, b"k", [0, 0], 0, b"", b"");
    let mut long = good.clone();
    long[3] += 1;
    let mut short_key = good.clone();
    short_key[7] = 9;
    let mut other_type = good.clone();
    other_type[4] = 17;
    for (frame, what) in [
        (good[..3].to_vec(), "its length is not whole"),
        (long, "it ends early"),
        (short_key, "before its fields do"),
        (other_type, "its type is not 16"),
        (framed(4, b"k", [0, 0], 0, b"", b""), "is not 1, 2 or 3"),
        (framed(2, b"k", [0, 0], 0, b"", b"v"), "only a put has a value"),
        (vec![0, 0, 0, 0], "its type is not 16"),
    ] {
        let error = frames::parse(&[good.clone(), frame].concat().into()).unwrap_err();
        let detail = detail(&error);
        assert!(detail.starts_with("frame 2 of the batch: ") && detail.contains(what), "{detail}");
    }
}

proptest! {
    #[test]
    fn no_bytes_confuse_the_frames(body: Vec<u8>) {
        let _ = frames::parse(&body.into());
    }

    #[test]
    fn any_operation_survives_its_frame(key: Vec<u8>, value: Vec<u8>, ack: u8, from: u8, ttl: u32) {
        let frame = framed(1, &key, [ack, from], ttl, b"t", &value);
        let items = frames::parse(&frame.into()).unwrap();
        let given = |number: u8| Some(u32::from(number)).filter(|number| *number > 0);
        prop_assert_eq!(&items[0].key[..], &key[..]);
        prop_assert_eq!(items[0].quorum, QuorumNumbers { ack: given(ack), from: given(from) });
        prop_assert_eq!(items[0].ttl, Some(u64::from(ttl)).filter(|ttl| *ttl > 0));
        prop_assert_eq!(&items[0].action, &ItemAction::Put { value: value.into(), content_type: Some("t".into()) });
    }

    #[test]
    fn an_answer_as_json_has_the_bytes_of_its_key_and_value(key: Vec<u8>, value: Vec<u8>) {
        let answer = ItemAnswer {
            status: 200,
            key: &key,
            version: None,
            expires_ms: None,
            content_type: None,
            payload: Payload::Value(&value),
        };
        let mut out = Vec::new();
        ndjson::write(&answer, &mut out);
        let read: Value = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!((bytes_of(&read, "key"), bytes_of(&read, "value")), (key, value));
        let is_one_line = out.iter().position(|byte| *byte == b'\n') == Some(out.len() - 1);
        prop_assert!(is_one_line);
    }
}

fn bytes_of(answer: &Value, name: &str) -> Vec<u8> {
    use base64::Engine;
    let encoded = answer[format!("{name}_base64")].as_str();
    let decoded = encoded.map(|text| base64::engine::general_purpose::STANDARD.decode(text).unwrap());
    decoded.unwrap_or_else(|| answer[name].as_str().unwrap().as_bytes().to_vec())
}

#[test]
fn an_outcome_is_framed_as_the_contract_says() {
    let version = Version { hlc: Hlc::from_raw(7), incarnation: Incarnation(9) };
    let answer = ItemAnswer {
        status: 200,
        key: b"k",
        version: Some(version),
        expires_ms: Some(5),
        content_type: Some(b"t"),
        payload: Payload::Value(b"value"),
    };
    let mut out = Vec::new();
    frames::write(&answer, &mut out);
    let fields = [&[17, 0, 200][..], &version.encode(), &5_u64.to_be_bytes(), b"\x01t", b"value"].concat();
    assert_eq!(out, [&u32::try_from(fields.len()).unwrap().to_be_bytes()[..], &fields].concat());
}

#[test]
fn each_operation_is_answered_as_if_it_had_come_alone() {
    with(settings(), |node| async move {
        node.entities.insert(b"there", b"old");
        let body = [
            json!({"op": "put", "key": "new", "value": "v", "ttl": 60, "content_type": "text/plain"}),
            json!({"op": "get", "key": "there"}),
            json!({"op": "get", "key": "absent"}),
            json!({"op": "delete", "key": "gone"}),
            json!({"op": "put", "key": "bad", "value": "v", "ack": 3, "from": 2}),
            json!({"op": "put", "key": "brief", "value": "v", "ttl": 0}),
            json!({"op": "get", "key": ""}),
            json!({"op": "get", "key": "x".repeat(2049)}),
        ];
        let body: String = body.iter().map(|line| format!("{line}\n")).collect();
        let mut client = node.connect().await;
        let answer = client.ask_with("POST /v0/batch", body.as_bytes()).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")));
        assert_eq!(answer.header("content-security-policy"), Some("sandbox; default-src 'none'"));
        let lines: Vec<Value> = answer
            .body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        let statuses: Vec<u64> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
        assert_eq!(statuses, [201, 200, 404, 202, 400, 400, 400, 400]);
        let put = client.ask("GET /v0/entity?id=new").await;
        assert_eq!(lines[0]["etag"].as_str(), put.header("etag"), "the header's text, quotes included");
        assert_eq!(lines[0]["expires_ms"].to_string(), put.header("kvorum-expires").unwrap());
        assert_eq!(put.header("content-type"), Some("text/plain"));
        assert_eq!((lines[1]["key"].as_str(), lines[1]["value"].as_str()), (Some("there"), Some("old")));
        let absent = client.ask("GET /v0/entity?id=absent").await;
        assert_eq!(lines[2]["problem"], absent.problem(), "the problem is the same, too");
        assert!(lines[4]["problem"]["detail"].as_str().unwrap().contains("ack"));
        assert_eq!(node.entities.value(b"bad"), None);
    });
}

#[test]
fn what_is_wrong_with_the_whole_has_no_effect() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let put = |key: &str| format!("{{\"op\":\"put\",\"key\":\"{key}\",\"value\":\"v\"}}\n");
        let many: String = (0..1001).map(|number| put(&number.to_string())).collect();
        for (head, body, status, title) in [
            ("", format!("{}{}", put("a"), put("a")), 400, "Duplicate Key"),
            ("", format!("{}nonsense\n", put("a")), 400, "Bad Request"),
            ("", many, 413, "Batch Too Large"),
            ("\r\nContent-Type: text/csv", put("a"), 415, "Unsupported Media Type"),
            ("\r\nContent-Type: application/vnd.kvorum.frames", put("a"), 400, "Bad Request"),
        ] {
            let answer = client.ask_with(&format!("POST /v0/batch{head}"), body.as_bytes()).await;
            assert_eq!((answer.status, answer.problem()["title"].as_str()), (status, Some(title)), "{answer:?}");
        }
        assert_eq!(node.entities.requests.get(), 0);
        let long = client.ask("POST /v0/batch\r\nContent-Length: 8388609").await;
        assert_eq!(long.problem()["title"], "Batch Too Large");
    });
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        assert_eq!(client.ask("GET /v0/batch").await.status, 405);
        assert_eq!(client.ask("POST /v0/batch?id=k").await.status, 400);
        let empty = client.ask("POST /v0/batch").await;
        assert_eq!((empty.status, empty.body.len()), (200, 0));
    });
}

#[test]
fn answers_stop_growing_and_say_what_to_get_again() {
    with(HttpSettingsOf::large(), |node| async move {
        for key in 0..20 {
            node.entities.insert(format!("k{key:02}").as_bytes(), &vec![b'x'; 700_000]);
        }
        let body: String = (0..20).map(|key| format!("{{\"op\":\"get\",\"key\":\"k{key:02}\"}}\n")).collect();
        let answer = node.connect().await.ask_with("POST /v0/batch", body.as_bytes()).await;
        assert!(answer.body.len() <= BATCH_BYTES_MAX, "{}", answer.body.len());
        let lines: Vec<Value> = answer
            .body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 20);
        let full: Vec<&Value> = lines.iter().filter(|line| line["status"] == 413).collect();
        assert!(full.len() > 5 && full.len() < 15, "{}", full.len());
        assert_eq!(full[0]["problem"]["title"], "Answer Too Large");
        drop(answer);
        assert!(node.shares.is_unused(), "and nobody holds it any more");
    });
}

#[test]
fn a_batch_larger_than_the_room_for_values_is_503_and_leaves_nothing() {
    with_memory(1 << 20, settings(), |node| async move {
        let value = "v".repeat(900_000);
        let put = |key: u8| format!("{{\"op\":\"put\",\"key\":\"k{key}\",\"value\":\"{value}\"}}\n");
        let mut client = node.connect().await;
        let refused = client.ask_with("POST /v0/batch", (put(1) + &put(2)).as_bytes()).await;
        assert_eq!((refused.status, refused.problem()["title"].as_str()), (503, Some("Overloaded")));
        assert_eq!(node.entities.requests.get(), 0);
        let mut client = node.connect().await;
        assert_eq!(client.ask_with("POST /v0/batch", put(1).as_bytes()).await.status, 200);
        assert_eq!(node.large_values.used(), 0);
    });
}

/// Settings with room for large values.
struct HttpSettingsOf;

impl HttpSettingsOf {
    fn large() -> crate::HttpSettings {
        crate::HttpSettings { value_bytes_max: 1 << 20, ..settings() }
    }
}
