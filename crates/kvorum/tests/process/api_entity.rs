//! `/v0/entity` on one node: lifecycles, ids, `ack` and `from`, methods and paths.

use crate::support::http::encode;
use crate::support::{Client, Cluster, entity};

#[test]
fn a_key_lives_from_its_first_put_to_its_delete() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let target = entity("life");
    assert!(client.absent(&target).header("etag").is_none(), "what was never written has no version");
    client.put(&target, b"one");
    assert_eq!(client.value(&target), b"one");
    client.put(&target, b"two, longer");
    assert_eq!(client.value(&target), b"two, longer");
    client.put(&target, b"");
    assert_eq!(client.value(&target), b"");
    client.delete(&target);
    client.absent(&target);
    client.delete(&target);
    client.put(&target, b"again");
    assert_eq!(client.value(&target), b"again");
    assert!(client.is_open(), "all of it on one connection");
}

#[test]
fn deleting_what_never_existed_is_accepted() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    client.delete(&entity("never"));
    client.absent(&entity("never"));
}

#[test]
fn values_come_back_bit_by_bit_up_to_the_limit() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let limit = 8 * 1024 * 1024;
    let mut random = crate::support::random::Random::new(7);
    for length in [1, 100, 4_096, 65_535, 65_536, 65_537, 1_000_000, limit] {
        let value = random.bytes(length);
        let target = entity(format!("length {length}"));
        client.put(&target, &value);
        assert!(client.value(&target) == value, "{length} bytes came back changed");
    }
}

#[test]
fn data_survives_both_kinds_of_restart() {
    let mut cluster = Cluster::start(1);
    cluster.client(0).put(&entity("kept"), b"value");
    cluster.client(0).put(&entity("deleted"), b"value");
    cluster.client(0).delete(&entity("deleted"));
    for hard in [true, false, true] {
        if hard {
            cluster.kill(0);
        } else {
            assert!(cluster.terminate(0).success());
        }
        cluster.restart(0);
        assert_eq!(cluster.client(0).value(&entity("kept")), b"value");
        cluster.client(0).absent(&entity("deleted"));
    }
}

#[test]
fn an_absent_empty_repeated_too_long_or_undecodable_id_is_refused() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let too_long = format!("/v0/entity?id={}", "k".repeat(2_049));
    let bad = [
        "/v0/entity",
        "/v0/entity?",
        "/v0/entity?id",
        "/v0/entity?id=",
        "/v0/entity?id=a&id=a",
        "/v0/entity?id=a&id=b",
        "/v0/entity?ack=1&from=1",
        "/v0/entity?ID=a",
        "/v0/entity?id=%",
        "/v0/entity?id=a%2",
        "/v0/entity?id=%zz",
        &too_long,
    ];
    for target in bad {
        for (method, body) in [("GET", None), ("PUT", Some(b"x".as_slice())), ("DELETE", None)] {
            client.ok(method, target, body).problem(400);
            assert!(client.is_open(), "{method} {target} closed the connection");
        }
    }
    assert_eq!(cluster.local(0, "%00"), vec![], "nothing was stored");
}

#[test]
fn ids_are_any_bytes_up_to_2048() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let all_bytes: Vec<u8> = (0..=255).collect();
    let ids: [&[u8]; 8] =
        [&all_bytes, b"\0", b"\xff\xfe", b"a/b?c&d=e#f", "ключ".as_bytes(), b" ", b"\r\n", &[b'k'; 2_048]];
    for (number, id) in ids.iter().enumerate() {
        client.put(&entity(id), format!("value {number}").as_bytes());
    }
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(client.value(&entity(id)), format!("value {number}").as_bytes());
    }
}

#[test]
fn ids_are_decoded_as_a_form_does() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    client.put("/v0/entity?id=a+b", b"space");
    assert_eq!(client.value("/v0/entity?id=a%20b"), b"space");
    client.absent("/v0/entity?id=a%2Bb");
    client.put("/v0/entity?id=a%2bb", b"plus");
    assert_eq!(client.value("/v0/entity?id=a%2Bb"), b"plus");
    assert_eq!(client.value("/v0/entity?id=a+b"), b"space");
    assert_eq!(client.value("/v0/entity?id=%61+%62"), b"space");
    assert_eq!(client.value("/v0/entity?from=1&id=a+b&ack=1"), b"space", "in any order");
}

#[test]
fn ack_and_from_are_checked_against_each_other_and_the_cluster() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let target = entity("k");
    let good = ["", "&ack=1", "&from=1", "&ack=1&from=1", "&replicas=1/1", "&replicas=1%2F1"];
    for query in good {
        client.put(&format!("{target}{query}"), query.as_bytes());
        assert_eq!(client.value(&format!("{target}{query}")), query.as_bytes());
    }
    client.put(&target, b"unharmed");
    let bad = "ack=0 ack=2 from=0 from=2 ack=0&from=1 ack=2&from=1 ack=1&from=2 ack=-1 ack=%2B1 ack=x ack= ack \
        from=1.0 from= ack=0x1 ack=4294967297 from=99999999999999999999 ack=1&ack=1 from=1&from=1 replicas= \
        replicas=1 replicas=1/ replicas=/1 replicas=1/1/1 replicas=0/1 replicas=2/1 replicas=1/2 replicas=a/b \
        replicas=1/1&replicas=1/1 replicas=1/1&ack=1 replicas=1/1&from=1 replicas=1/1&ack=1&from=1";
    for query in bad.split_whitespace() {
        for (method, body) in [("GET", None), ("PUT", Some(b"harm".as_slice())), ("DELETE", None), ("HEAD", None)] {
            let response = client.ok(method, &format!("{target}&{query}"), body);
            assert_eq!(response.status, 400, "{method} {query}: {response:?}");
            assert!(client.is_open(), "{method} {query} closed the connection");
        }
    }
    assert_eq!(client.value(&target), b"unharmed");
}

#[test]
fn a_parameter_that_the_path_does_not_define_is_refused() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    for query in ["x=1", "start=a", "ACK=1", "ack%00=1", "quorum=1"] {
        client.get(&format!("{}&{query}", entity("k"))).problem(400);
    }
    for target in ["/v0/entities?start=a&ack=1", "/v0/entities?start=a&id=b", "/v0/entities?start=a&limit=1"] {
        client.get(target).problem(400);
    }
    assert!(client.is_open());
}

#[test]
fn unknown_paths_are_bad_requests() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let paths = "/ /v0 /v0/ /v0/entity/ /v0/entity/k /v0/entity2?id=k /V0/entity?id=k /v0/Entity?id=k /v1/entity?id=k \
        //v0/entity?id=k /v0/entities/ /v0/statuses /metric /favicon.ico /v0/../v0/entity?id=k";
    for path in paths.split_whitespace() {
        for (method, body) in [("GET", None), ("PUT", Some(b"x".as_slice())), ("POST", Some(b"x".as_slice()))] {
            client.ok(method, path, body).problem(400);
            assert!(client.is_open(), "{method} {path} closed the connection");
        }
    }
}

#[test]
fn methods_that_a_path_lacks_are_named_with_those_it_has() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let allowed = |client: &mut Client, method: &str, target: &str, body: Option<&[u8]>| -> Vec<String> {
        let response = client.ok(method, target, body);
        response.problem(405);
        assert!(client.is_open(), "{method} {target} closed the connection");
        let mut methods: Vec<String> =
            response.header("allow").expect("Allow").split(',').map(|name| name.trim().to_owned()).collect();
        methods.sort();
        methods
    };
    for method in ["POST", "PATCH", "OPTIONS", "TRACE", "get", "Put", "BREW"] {
        let body = (method != "TRACE").then_some(b"x".as_slice());
        assert_eq!(allowed(&mut client, method, &entity("k"), body), ["DELETE", "GET", "HEAD", "PUT"]);
    }
    for target in ["/v0/status", "/v0/entities?start=a", "/livez", "/readyz", "/metrics", "/v0/cluster"] {
        for method in ["POST", "PUT", "DELETE"] {
            let methods = allowed(&mut client, method, target, None);
            assert!(methods.contains(&"GET".to_owned()) && !methods.contains(&method.to_owned()), "{methods:?}");
        }
    }
    client.absent(&entity("k"));
}

#[test]
fn the_data_directory_is_where_the_data_is() {
    let mut cluster = Cluster::start(1);
    cluster.client(0).put(&entity("here"), b"value");
    cluster.kill(0);
    let elsewhere = cluster.root().join("moved");
    std::fs::rename(&cluster.node(0).data_dir, &elsewhere).unwrap();
    cluster.restart(0);
    cluster.client(0).absent(&entity("here"));
    cluster.kill(0);
    cluster.set_data_dir(0, elsewhere);
    cluster.restart(0);
    assert_eq!(cluster.client(0).value(&entity("here")), b"value");
}

#[test]
fn the_encoder_of_these_tests_escapes_what_a_form_would_change() {
    assert_eq!(encode(b"a+b c\xff~"), "a%2Bb%20c%FF~");
}
