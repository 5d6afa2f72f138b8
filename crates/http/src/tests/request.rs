#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use hyper::StatusCode;
use kvorum_core::quorum::Quorum;
use proptest::prelude::*;

use super::*;
use crate::metrics::STATUSES;
use crate::routes::ROUTES;

const DEFAULTS: ReplicationDefaults = ReplicationDefaults { from: 3, nodes: 5, ttl_s: None };

fn entity_of(query: &str) -> Result<(Key, Quorum), HttpError> {
    match parse(&Method::GET, "/v0/entity", Some(query), DEFAULTS)? {
        Action::Entity { key, quorum, .. } => Ok((key, quorum)),
        other => panic!("{other:?}"),
    }
}

fn quorum_of(query: &str) -> Option<(u8, u8)> {
    entity_of(query).ok().map(|(_, quorum)| (quorum.required(), quorum.replicas()))
}

fn refusal(query: &str) -> BadRequest {
    match entity_of(query) {
        Err(HttpError::BadRequest(error)) => error,
        other => panic!("{query}: {other:?}"),
    }
}

#[test]
fn an_id_is_decoded_as_a_form_field() {
    let cases: [(&str, &[u8]); 8] = [
        ("id=k", b"k"),
        ("id=a+b", b"a b"),
        ("id=a%2Bb", b"a+b"),
        ("id=%00%ff%C3%a9", b"\x00\xff\xc3\xa9"),
        ("id=%26%3D%25", b"&=%"),
        ("id=a=b=c", b"a=b=c"),
        ("i%64=k", b"k"),
        ("&&id=k&", b"k"),
    ];
    for (query, key) in cases {
        assert_eq!(entity_of(query).unwrap().0.as_bytes(), key, "{query}");
    }
}

#[test]
fn an_id_has_1_to_2048_bytes_after_decoding() {
    assert_eq!(refusal(""), BadRequest::MissingId);
    assert_eq!(refusal("ack=1"), BadRequest::MissingId);
    assert_eq!(refusal("id="), BadRequest::EmptyId);
    assert_eq!(refusal("id"), BadRequest::EmptyId);
    assert!(entity_of(&format!("id={}", "%41".repeat(2048))).is_ok());
    assert!(entity_of(&format!("id={}", "k".repeat(2048))).is_ok());
    assert_eq!(refusal(&format!("id={}", "k".repeat(2049))), BadRequest::LongId);
    assert_eq!(refusal(&format!("id={}", "%41".repeat(2049))), BadRequest::LongId);
    assert_eq!(refusal(&format!("id={}", "k".repeat(10_000))), BadRequest::LongId);
}

#[test]
fn a_malformed_escape_is_refused_wherever_it_stands() {
    for query in ["id=%", "id=%4", "id=%zz", "id=%+1", "id=a%", "id=k&ack=%", "id=k&%zz=1", "id=k&replicas=%4"] {
        assert_eq!(refusal(query), BadRequest::Escape, "{query}");
    }
}

#[test]
fn repeated_unknown_and_mixed_parameters_are_refused() {
    assert_eq!(refusal("id=a&id=a"), BadRequest::Repeated("id"));
    assert_eq!(refusal("id=a&i%64=b"), BadRequest::Repeated("id"));
    assert_eq!(refusal("id=a&ack=1&ack=1"), BadRequest::Repeated("ack"));
    assert_eq!(refusal("id=a&from=1&from=1"), BadRequest::Repeated("from"));
    assert_eq!(refusal("id=a&replicas=1/1&replicas=1/1"), BadRequest::Repeated("replicas"));
    assert_eq!(refusal("id=a&ID=b"), BadRequest::UnknownParameter("ID".into()));
    assert_eq!(refusal("id=a&x"), BadRequest::UnknownParameter("x".into()));
    assert_eq!(refusal("id=a&=1"), BadRequest::UnknownParameter(String::new()));
    assert_eq!(refusal("id=a&start=b"), BadRequest::UnknownParameter("start".into()));
    assert_eq!(refusal("id=a&replicas=1/1&ack=1"), BadRequest::MixedSpellings);
    assert_eq!(refusal("id=a&from=1&replicas=1/1"), BadRequest::MixedSpellings);
}

#[test]
fn ack_and_from_default_to_the_quorum() {
    assert_eq!(quorum_of("id=k"), Some((2, 3)));
    assert_eq!(quorum_of("id=k&from=5"), Some((3, 5)));
    assert_eq!(quorum_of("id=k&from=1"), Some((1, 1)));
    assert_eq!(quorum_of("id=k&from=4"), Some((3, 4)));
    assert_eq!(quorum_of("id=k&ack=1"), Some((1, 3)));
    assert_eq!(quorum_of("id=k&ack=3"), Some((3, 3)));
    assert_eq!(quorum_of("id=k&ack=1&from=5"), Some((1, 5)));
    assert_eq!(quorum_of("id=k&replicas=1/2"), Some((1, 2)));
    assert_eq!(quorum_of("id=k&replicas=2%2F4"), Some((2, 4)));
    for (nodes, expected) in [(1, (1, 1)), (2, (2, 2)), (3, (2, 3)), (4, (3, 4)), (5, (3, 5)), (10, (6, 10))] {
        let action =
            parse(&Method::PUT, "/v0/entity", Some("id=k"), ReplicationDefaults { from: nodes, nodes, ttl_s: None });
        let Ok(Action::Entity { quorum, .. }) = action else { panic!("{action:?}") };
        assert_eq!((quorum.required(), quorum.replicas()), expected);
    }
}

#[test]
fn one_le_ack_le_from_le_nodes() {
    let out_of_range = BadRequest::Acks { nodes: 5 };
    for query in [
        "id=k&ack=0",
        "id=k&from=0",
        "id=k&ack=4",
        "id=k&ack=3&from=2",
        "id=k&from=6",
        "id=k&ack=1&from=6",
        "id=k&ack=99999999999999999999",
        "id=k&from=256",
        "id=k&from=257",
        "id=k&ack=257",
        "id=k&replicas=0/3",
        "id=k&replicas=3/2",
        "id=k&replicas=1/6",
    ] {
        assert_eq!(refusal(query), out_of_range, "{query}");
    }
}

#[test]
fn only_decimal_digits_are_numbers() {
    for query in ["ack=", "ack", "ack=-1", "ack=%2B1", "ack=+1", "ack=1.0", "ack=0x1", "ack=a", "ack=%D9%A1"] {
        assert_eq!(refusal(&format!("id=k&{query}")), BadRequest::NotANumber("ack"), "{query}");
    }
    assert_eq!(refusal("id=k&from=x"), BadRequest::NotANumber("from"));
    for value in ["", "1", "1/", "/1", "1/2/3", "a/b", "1 /2"] {
        assert_eq!(refusal(&format!("id=k&replicas={value}")), BadRequest::NotANumber("replicas"), "{value}");
    }
}

#[test]
fn paths_and_methods_are_case_sensitive() {
    for path in ["", "/", "*", "/v0", "/v0/", "/v0/Entity", "/v0/entity/", "/v1/entity", "/V0/status", "/v0/%65ntity"] {
        let error = parse(&Method::GET, path, None, DEFAULTS).unwrap_err();
        assert!(matches!(error, HttpError::BadRequest(BadRequest::UnknownPath)), "{path}: {error:?}");
    }
    let lower = Method::from_bytes(b"get").unwrap();
    let error = parse(&lower, "/v0/status", None, DEFAULTS).unwrap_err();
    assert_eq!(error.problem().status, StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn a_method_that_the_path_does_not_have_is_405_before_its_parameters_are_judged() {
    let methods =
        [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::POST, Method::PATCH, Method::OPTIONS];
    for route in ROUTES {
        for method in &methods {
            let error = parse(method, route.path, Some("nonsense=%"), DEFAULTS).unwrap_err();
            let is_allowed = route.allow.split(", ").any(|name| name == method.as_str());
            let is_refused = matches!(error, HttpError::MethodNotAllowed { allow } if allow == route.allow);
            assert_eq!(is_refused, !is_allowed, "{method} {}: {error:?}", route.path);
        }
    }
    let allowed = |path| ROUTES.iter().find(|route| route.path == path).unwrap().allow;
    assert_eq!((allowed("/v0/entity"), allowed("/v0/status")), ("GET, HEAD, PUT, DELETE", "GET, HEAD"));
    assert_eq!((allowed("/v0/repair"), allowed("/v0/backup")), ("GET, HEAD, POST, DELETE", "POST"));
}

#[test]
fn the_table_of_paths_names_the_parameters_that_are_taken_and_statuses_that_are_counted() {
    for route in ROUTES {
        let method = Method::from_bytes(route.allow.split(", ").next().unwrap().as_bytes()).unwrap();
        let given = |name: &str| parse(&method, route.path, Some(&format!("{name}=1")), DEFAULTS);
        let is_known = |name: &str| !matches!(given(name), Err(HttpError::BadRequest(BadRequest::UnknownParameter(_))));
        for name in ["id", "ack", "from", "replicas", "start", "end", "nonsense"] {
            let is_told = route.parameters.iter().any(|parameter| parameter.name == name);
            assert_eq!(is_known(name), is_told, "{name} of {}", route.path);
        }
        for answer in route.answers {
            assert!(STATUSES.contains(&answer.status), "{} of {}", answer.status, route.path);
            let methods = || route.allow.split(", ");
            assert!(answer.methods.split(", ").all(|method| methods().any(|known| known == method)), "{}", route.path);
        }
    }
}

#[test]
fn a_range_has_a_start_and_perhaps_an_end_and_neither_is_empty() {
    let range = |query| parse(&Method::GET, "/v0/entities", query, DEFAULTS);
    let parsed = range(Some("end=b%00&start=a")).unwrap();
    assert_eq!(parsed, Action::Range { start: "a".into(), end: Some(Bytes::from_static(b"b\0")) });
    assert_eq!(range(Some("start=z")).unwrap(), Action::Range { start: "z".into(), end: None });
    for query in [None, Some(""), Some("end=a"), Some("start="), Some("start=a&end="), Some("start=a&start=b")] {
        assert_eq!(range(query).unwrap_err().problem().status, StatusCode::BAD_REQUEST, "{query:?}");
    }
    for query in ["start=a&end=b&end=c", "start=a&id=b", "start=%", "start=a&end=%f"] {
        assert_eq!(range(Some(query)).unwrap_err().problem().status, StatusCode::BAD_REQUEST, "{query}");
    }
}

#[test]
fn paths_without_parameters_have_none() {
    for path in ["/v0/status", "/v0/cluster", "/livez", "/readyz", "/metrics"] {
        assert!(parse(&Method::GET, path, Some(""), DEFAULTS).is_ok());
        let error = parse(&Method::GET, path, Some("a=b"), DEFAULTS).unwrap_err();
        assert_eq!(error.problem().status, StatusCode::BAD_REQUEST, "{path}");
    }
    assert_eq!(parse(&Method::POST, "/v0/backup", None, DEFAULTS).unwrap(), Action::Backup);
    let error = parse(&Method::POST, "/v0/backup", Some("dir=/"), DEFAULTS).unwrap_err();
    assert_eq!(error.problem().status, StatusCode::BAD_REQUEST);
}

proptest! {
    #[test]
    fn any_key_comes_back_from_its_encoding(key in proptest::collection::vec(any::<u8>(), 1..=2048)) {
        let encoded: String = form_urlencoded::byte_serialize(&key).collect();
        let (decoded, _) = entity_of(&format!("from=1&id={encoded}")).unwrap();
        prop_assert_eq!(decoded.as_bytes(), key.as_slice());
    }

    #[test]
    fn escaping_every_byte_changes_nothing(key in proptest::collection::vec(any::<u8>(), 1..=300)) {
        let encoded: String = key.iter().map(|byte| format!("%{byte:02x}")).collect();
        let (decoded, _) = entity_of(&format!("id={encoded}")).unwrap();
        prop_assert_eq!(decoded.as_bytes(), key.as_slice());
    }

    #[test]
    fn no_target_panics(path in "/(v0/(entity|entities|status|cluster)|livez|_peer|.{0,8})", query in "\\PC{0,64}") {
        let _ = parse(&Method::GET, &path, Some(&query), DEFAULTS);
    }

    #[test]
    fn no_query_of_the_language_panics(
        pieces in proptest::collection::vec("(id|ack|from|replicas|start|end|x)?(=|%3D)?[0-9a-z%/+=]{0,6}", 0..6)
    ) {
        let query = pieces.join("&");
        if let Ok((key, quorum)) = entity_of(&query) {
            prop_assert!(!key.as_bytes().is_empty());
            prop_assert!(1 <= quorum.required() && quorum.required() <= quorum.replicas() && quorum.replicas() <= DEFAULTS.nodes);
        }
    }
}
