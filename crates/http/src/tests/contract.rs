//! What each request is answered, line by line of the contract.

use kvorum_core::Version;
use kvorum_replication::coordinator::Refused;

use super::{settings, with};
use crate::RangeError;
use crate::fake::{START_MS, receipt};

#[test]
fn put_get_head_delete() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        assert_eq!(client.ask("GET /v0/entity?id=k").await.status, 404);
        let put = client.ask_with("PUT /v0/entity?id=k\r\nContent-Type: text/plain", b"value").await;
        assert_eq!((put.status, put.body.len()), (201, 0));
        let etag = put.header("etag").unwrap().to_owned();
        assert_eq!(etag, "\"018bcfe568010000-00000007\"");
        let get = client.ask("GET /v0/entity?id=k").await;
        assert_eq!((get.status, get.body.as_slice()), (200, b"value".as_slice()));
        assert_eq!(get.header("etag"), Some(etag.as_str()));
        assert_eq!(get.header("content-type"), Some("text/plain"));
        assert_eq!(get.header("last-modified"), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
        let head = client.ask("HEAD /v0/entity?id=k").await;
        assert_eq!((head.status, head.header("content-length")), (200, Some("5")));
        assert_eq!(head.header("etag"), Some(etag.as_str()));
        let delete = client.ask("DELETE /v0/entity?id=k").await;
        assert_eq!(delete.status, 202);
        let gone = client.ask("GET /v0/entity?id=k").await;
        assert_eq!((gone.status, gone.header("etag")), (404, delete.header("etag")));
        gone.problem();
        assert_eq!(client.ask("DELETE /v0/entity?id=never").await.status, 202);
    });
}

#[test]
fn a_value_with_a_ttl_says_when_it_ends_and_is_gone_then() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let put = client.ask_with("PUT /v0/entity?id=k&ttl=60", b"value").await;
        let ends = (Some("Tue, 14 Nov 2023 22:14:20 GMT"), Some("1700000060001"));
        assert_eq!((put.status, put.header("expires"), put.header("kvorum-expires")), (201, ends.0, ends.1));
        for method in ["GET", "HEAD"] {
            let read = client.ask(&format!("{method} /v0/entity?id=k")).await;
            assert_eq!((read.status, read.header("expires"), read.header("kvorum-expires")), (200, ends.0, ends.1));
        }
        node.entities.now_ms.set(START_MS + 60_000);
        assert_eq!(client.ask("GET /v0/entity?id=k").await.status, 200, "a millisecond before");
        node.entities.now_ms.set(START_MS + 60_001);
        let gone = client.ask("GET /v0/entity?id=k\r\nIf-None-Match: *").await;
        assert_eq!((gone.status, gone.header("etag")), (404, put.header("etag")), "a deletion of its version");
        assert_eq!(client.ask("GET /v0/entities?start=a").await.body, b"", "nor in a range");
    });
}

#[test]
fn a_ttl_is_a_whole_number_of_seconds_up_to_ten_years_of_a_put() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        for ttl in ["1", "315360000"] {
            assert_eq!(client.ask_with(&format!("PUT /v0/entity?id=k&ttl={ttl}"), b"v").await.status, 201, "{ttl}");
        }
        for ttl in ["", "0", "315360001", "-1", "1.5", "1s", "99999999999", "1&ttl=2"] {
            let refused = client.ask_with(&format!("PUT /v0/entity?id=other&ttl={ttl}"), b"v").await;
            assert_eq!(refused.status, 400, "{ttl}: {refused:?}");
        }
        for method in ["GET", "DELETE"] {
            assert_eq!(client.ask(&format!("{method} /v0/entity?id=k&ttl=1")).await.status, 400);
        }
        assert_eq!(node.entities.value(b"other"), None);
    });
    let by_default = crate::HttpSettings { default_ttl_s: Some(7), ..settings() };
    with(by_default, |node| async move {
        let mut client = node.connect().await;
        let end = |ttl: u64, at: u64| Some((START_MS + at + ttl * 1000).to_string());
        let own = client.ask_with("PUT /v0/entity?id=k&ttl=9", b"v").await;
        assert_eq!(own.header("kvorum-expires").map(str::to_owned), end(9, 1));
        let default = client.ask_with("PUT /v0/entity?id=k", b"v").await;
        assert_eq!(default.header("kvorum-expires").map(str::to_owned), end(7, 2));
    });
}

#[test]
fn a_proxy_serves_no_value_unasked() {
    with(settings(), |node| async move {
        node.entities.insert(b"k", b"v");
        for target in ["/v0/entity?id=k", "/v0/entities?start=a"] {
            let read = node.ask(&format!("GET {target}")).await;
            assert_eq!((read.status, read.header("cache-control")), (200, Some("no-cache")), "{target}");
        }
    });
}

#[test]
fn an_empty_value_is_a_value() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        assert_eq!(client.ask("PUT /v0/entity?id=k\r\nContent-Length: 0").await.status, 201);
        assert_eq!(client.ask("PUT /v0/entity?id=l").await.status, 201);
        for key in ["k", "l"] {
            let get = client.ask(&format!("GET /v0/entity?id={key}")).await;
            assert_eq!((get.status, get.header("content-length"), get.body.len()), (200, Some("0"), 0));
            assert_eq!(get.header("content-type"), Some("application/octet-stream"));
        }
    });
}

#[test]
fn an_absent_key_has_no_etag() {
    with(settings(), |node| async move {
        let answer = node.ask("GET /v0/entity?id=k").await;
        assert_eq!((answer.status, answer.header("etag")), (404, None));
        assert_eq!(answer.problem()["title"], "Not Found");
        let head = node.ask("HEAD /v0/entity?id=k").await;
        assert_eq!((head.status, head.body.len()), (404, 0));
    });
}

#[test]
fn if_none_match_saves_the_body() {
    with(settings(), |node| async move {
        node.entities.insert(b"k", b"v");
        let etag = node.ask("GET /v0/entity?id=k").await.header("etag").unwrap().to_owned();
        for field in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
            for method in ["GET", "HEAD"] {
                let answer = node.ask(&format!("{method} /v0/entity?id=k\r\nIf-None-Match: {field}")).await;
                assert_eq!((answer.status, answer.header("etag")), (304, Some(etag.as_str())), "{field}");
            }
        }
        let other = node.ask("GET /v0/entity?id=k\r\nIf-None-Match: \"x\"").await;
        assert_eq!((other.status, other.body), (200, b"v".to_vec()));
        assert_eq!(node.ask("GET /v0/entity?id=absent\r\nIf-None-Match: *").await.status, 404);
    });
}

#[test]
fn conditional_writes_are_refused_and_change_nothing() {
    with(settings(), |node| async move {
        for request in ["PUT", "DELETE"] {
            let date = "Tue, 14 Nov 2023 22:13:20 GMT";
            let dated = ["If-Unmodified-Since", "If-Modified-Since", "If-Range"].map(|name| format!("{name}: {date}"));
            for field in ["If-Match: *", "If-None-Match: *"].map(str::to_owned).into_iter().chain(dated) {
                let answer = node.ask(&format!("{request} /v0/entity?id=k\r\n{field}")).await;
                assert_eq!(answer.status, 501);
                answer.problem();
            }
        }
        assert_eq!(node.entities.requests.get(), 0);
    });
}

#[test]
fn a_value_in_another_coding_than_chunked_is_not_stored_as_it_was_coded() {
    with(settings(), |node| async move {
        let in_two_lines = ["gzip", "chunked"].join("\r\nTransfer-Encoding: ");
        for codings in ["gzip, chunked", &in_two_lines] {
            let mut client = node.connect().await;
            let head = format!("PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {codings}\r\n\r\n");
            client.send(format!("{head}1\r\nx\r\n0\r\n\r\n")).await;
            let answer = client.answer(false).await;
            assert_eq!(answer.status, 501, "{codings}");
            answer.problem();
            client.assert_alive().await;
        }
        assert_eq!(node.entities.requests.get(), 0);
    });
}

#[test]
fn every_bad_request_keeps_the_connection_and_stores_nothing() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let long_type = format!("PUT /v0/entity?id=k\r\nContent-Type: {}", "x".repeat(256));
        let requests = [
            "GET /v0/entity",
            "GET /v0/entity?id=",
            "PUT /v0/entity?id=",
            "DELETE /v0/entity",
            "GET /",
            "GET /v1/x",
            "PUT /v0/entity?id=k&id=k",
            "PUT /v0/entity?id=%zz",
            "PUT /v0/entity?id=k&ack=4",
            "PUT /v0/entity?id=k&x=1",
            "PUT /v0/entity?id=k&from=0",
            "GET /v0/entities",
            "GET /v0/entities?start=",
            "GET /livez?x=1",
            "PUT /v0/entity?id=k\r\nContent-Range: bytes 0-4/9",
            "PUT /v0/entity?id=k\r\nHost: y",
            &long_type,
            "GET /_peer",
        ];
        for request in requests {
            for body in [b"".as_slice(), b"a body", &[b'x'; 200_000]] {
                let answer = client.ask_with(request, body).await;
                assert_eq!((answer.status, answer.header("connection")), (400, None), "{request}");
                answer.problem();
            }
        }
        client.assert_alive().await;
        assert_eq!(node.entities.requests.get(), 0);
    });
}

#[test]
fn other_methods_are_405_with_allow() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        for method in ["POST", "PATCH", "OPTIONS", "get"] {
            let answer = client.ask_with(&format!("{method} /v0/entity?id=k"), b"body").await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD, PUT, DELETE")), "{method}");
            answer.problem();
        }
        let answer = client.ask("DELETE /v0/status").await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    });
}

#[test]
fn not_enough_replicas_is_504_with_the_receipt() {
    with(settings(), |node| async move {
        let receipt = receipt(Version::ZERO);
        *node.entities.refusal.borrow_mut() = Some(Refused::NotEnough { required: 2, acked: 1, receipt });
        for method in ["GET", "PUT", "DELETE"] {
            let answer = node.ask(&format!("{method} /v0/entity?id=k")).await;
            assert_eq!(answer.line, "HTTP/1.1 504 Not Enough Replicas");
            let problem = answer.problem();
            assert_eq!(problem["title"], "Not Enough Replicas");
            assert_eq!((&problem["required"], &problem["acked"]), (&2.into(), &1.into()));
            assert_eq!(problem["replicas"][0]["outcome"], "accepted");
            assert_eq!(problem["replicas"][1]["node"], "http://b:2");
            assert_eq!(answer.header("kvorum-replicas"), None);
        }
        let traced = node.ask("GET /v0/entity?id=k\r\nKvorum-Trace: 1").await;
        assert!(traced.header("kvorum-replicas").unwrap().contains("http://b:2=timeout"));
    });
}

#[test]
fn what_had_no_effect_is_503_with_retry_after() {
    with(settings(), |node| async move {
        let all = [Refused::Overloaded, Refused::Behind, Refused::CannotWrite, Refused::Fenced, Refused::NotServing];
        for refused in all {
            *node.entities.refusal.borrow_mut() = Some(refused);
            let answer = node.ask("PUT /v0/entity?id=k").await;
            assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
            answer.problem();
        }
    });
}

#[test]
fn a_trace_is_given_on_request() {
    with(settings(), |node| async move {
        let plain = node.ask("PUT /v0/entity?id=k").await;
        assert_eq!((plain.header("server-timing"), plain.header("kvorum-replicas")), (None, None));
        for (request, status) in
            [("PUT /v0/entity?id=k", 201), ("GET /v0/entity?id=k", 200), ("GET /v0/entity?id=n", 404)]
        {
            let answer = node.ask(&format!("{request}\r\nKvorum-Trace: 1")).await;
            assert_eq!(answer.status, status);
            let timing = answer.header("server-timing").unwrap();
            assert_eq!(timing, "r0;desc=\"http://a:1\";dur=1.234, r1;desc=\"http://b:2\"");
            let replicas = answer.header("kvorum-replicas").unwrap();
            assert!(replicas.starts_with("http://a:1=accepted@"), "{replicas}");
            assert!(replicas.ends_with(", http://b:2=timeout"), "{replicas}");
        }
    });
}

#[test]
fn probes_and_pages() {
    with(settings(), |node| async move {
        for path in ["/v0/status", "/livez", "/readyz"] {
            assert_eq!(node.ask(&format!("GET {path}")).await.status, 200);
        }
        let metrics = node.ask("GET /metrics").await;
        assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0"));
        assert_eq!(metrics.body, b"# EOF\n");
        let cluster = node.ask("GET /v0/cluster").await;
        assert_eq!(cluster.header("content-type"), Some("application/json"));
        assert_eq!(cluster.body, b"{\"nodes\":[]}");
        let backup = node.ask("POST /v0/backup").await;
        assert_eq!((backup.status, backup.header("content-type")), (200, Some("application/json")));
        *node.admin.unready.borrow_mut() = Some("the disk is full".into());
        let mut client = node.connect().await;
        for path in ["/v0/status", "/livez", "/readyz"] {
            let answer = client.ask(&format!("GET {path}")).await;
            assert_eq!(answer.status, 503);
            assert_eq!(answer.problem()["detail"], "the disk is full");
        }
    });
}

#[test]
fn a_defect_is_500_with_a_request_id_and_is_counted() {
    with(settings(), |node| async move {
        *node.ranges.failure.borrow_mut() = Some(RangeError::Failed("the disk".into()));
        let answer = node.ask("GET /v0/entities?start=k").await;
        assert_eq!(answer.status, 500);
        assert_eq!(answer.problem()["request_id"], "0000000000000abc");
        assert_eq!(super::read(&node.metrics.defects), 1);
        assert_eq!(super::read(&node.metrics.in_flight), 0);
    });
}

#[test]
fn answers_are_counted_by_method_and_status() {
    with(settings(), |node| async move {
        node.ask("PUT /v0/entity?id=k").await;
        node.ask("GET /v0/entity?id=").await;
        let counts: Vec<_> = node.metrics.requests().filter(|(_, _, count)| *count > 0).collect();
        assert_eq!(counts, [("GET", 200, 2), ("GET", 400, 1), ("PUT", 201, 1)]);
        let timed: u64 = node.metrics.latencies().map(|(_, _, latency)| latency.snapshot().count()).sum();
        assert_eq!(timed, 4);
    });
}

#[test]
fn a_round_of_repair_is_begun_by_post_shown_by_get_and_ended_by_delete() {
    with(settings(), |node| async move {
        let begun = node.ask("POST /v0/repair").await;
        assert_eq!((begun.status, begun.body.as_slice()), (202, b"{\"round\": 7}\n".as_slice()));
        assert_eq!(node.ask("GET /v0/repair").await.status, 200);
        assert_eq!(node.ask("DELETE /v0/repair").await.status, 200);
        let refused = node.ask("PUT /v0/repair").await;
        assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD, POST, DELETE")));
        assert_eq!(node.ask("POST /v0/repair?now=1").await.status, 400);
    });
}

#[test]
fn no_answer_can_be_taken_for_something_else_by_a_browser() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let put = "PUT /v0/entity?id=k\r\nContent-Type: text/html";
        assert_eq!(client.ask_with(put, b"<script>alert(1)</script>").await.status, 201);
        let mut statuses = std::collections::BTreeSet::new();
        for route in crate::routes::ROUTES {
            for method in ["GET", "HEAD", "PUT", "DELETE", "POST", "OPTIONS", "PATCH"] {
                for query in ["", "?id=k", "?id=none", "?start=k"] {
                    let answer = client.ask(&format!("{method} {}{query}", route.path)).await;
                    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
                    assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{answer:?}");
                    assert_eq!(answer.header("access-control-allow-origin"), None, "{answer:?}");
                    let paths = ["/v0/entity", "/v0/entities", "/v0/batch", "/v0/scan"];
                    let has_value = answer.status == 200 && paths.contains(&route.path);
                    let policy = has_value.then_some("sandbox; default-src 'none'");
                    assert_eq!(answer.header("content-security-policy"), policy, "{answer:?}");
                    statuses.insert(answer.status);
                    client.ask_with("PUT /v0/entity?id=k", b"v").await;
                }
            }
        }
        assert!([200, 201, 202, 400, 404, 405].iter().all(|status| statuses.contains(status)), "{statuses:?}");
        // What is said without hyper has it, too.
        let mut other = node.connect().await;
        other.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        let answer = other.answer(false).await;
        assert_eq!((answer.status, answer.header("x-content-type-options")), (400, Some("nosniff")));
    });
}

#[test]
fn a_rebound_name_and_a_page_of_another_origin_are_refused_on_every_path_and_method() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        for route in crate::routes::ROUTES {
            for method in ["GET", "HEAD", "PUT", "DELETE", "POST", "OPTIONS"] {
                for (headers, status) in [
                    ("Host: evil.example", 421),
                    ("Host: x\r\nOrigin: http://evil.example", 403),
                    ("Host: x\r\nOrigin: null", 403),
                    ("Host: x\r\nSec-Fetch-Site: cross-site", 403),
                    ("Host: x\r\nSec-Fetch-Site: same-site", 403),
                ] {
                    client.send(format!("{method} {}?id=k HTTP/1.1\r\n{headers}\r\n\r\n", route.path)).await;
                    let answer = client.answer(method == "HEAD").await;
                    assert_eq!(answer.status, status, "{method} {} {headers}", route.path);
                }
                client.send(format!("{method} http://evil.example{} HTTP/1.1\r\nHost: x\r\n\r\n", route.path)).await;
                assert_eq!(client.answer(method == "HEAD").await.status, 421, "{method} {}", route.path);
            }
        }
        assert!(node.entities.records.borrow().is_empty(), "nothing was stored");
        for own in ["Origin: http://x", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none"] {
            assert_eq!(node.ask(&format!("GET /v0/entity?id=k\r\n{own}")).await.status, 404, "{own}");
        }
    });
}

#[test]
fn a_page_of_an_allowed_origin_may_use_the_node_and_read_its_answers() {
    let page = "http://console.example";
    let browsers = crate::BrowserRules { own: "x".into(), origins: vec![page.into()], ..Default::default() };
    with(crate::HttpSettings { browsers, ..settings() }, |node| async move {
        let asked = format!("OPTIONS /v0/entity?id=k\r\nOrigin: {page}\r\nAccess-Control-Request-Method: PUT");
        let preflight = node.ask(&asked).await;
        assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some(page)));
        assert_eq!(preflight.header("access-control-allow-methods"), Some("GET, HEAD, PUT, DELETE"));
        assert!(preflight.header("access-control-allow-headers").unwrap().contains("authorization"));
        assert_eq!(preflight.header("access-control-allow-credentials"), None);
        let put = node.ask(&format!("PUT /v0/entity?id=k\r\nOrigin: {page}\r\nSec-Fetch-Site: cross-site")).await;
        assert_eq!((put.status, put.header("access-control-allow-origin")), (201, Some(page)));
        assert!(put.header("access-control-expose-headers").unwrap().contains("etag"));
        // An answer that a cache keeps for another client is not the same answer.
        let program = node.ask("GET /v0/entity?id=k").await;
        assert_eq!((program.header("vary"), program.header("access-control-allow-origin")), (Some("origin"), None));
        let missing = node.ask(&format!("OPTIONS /nothing\r\nOrigin: {page}")).await;
        assert_eq!((missing.status, missing.header("access-control-allow-origin")), (400, Some(page)));
        let foreign = node.ask("OPTIONS /v0/entity?id=k\r\nOrigin: http://evil.example").await;
        assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (403, None));
    });
}

#[test]
fn a_browser_without_a_path_is_told_what_this_is_and_a_program_as_ever() {
    with(settings(), |node| async move {
        let mut client = node.connect().await;
        let page = client.ask("GET /\r\nAccept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8").await;
        assert_eq!((page.status, page.header("content-type")), (400, Some("text/html; charset=utf-8")));
        assert_eq!(page.header("content-security-policy"), Some("default-src 'none'"));
        let text = String::from_utf8(page.body).unwrap();
        assert!(text.contains("kvorum console --url") && text.lines().count() <= 12, "{text}");
        for program in ["GET /", "GET /\r\nAccept: */*", "GET /x\r\nAccept: text/html", "POST /\r\nAccept: text/html"] {
            let refused = client.ask(program).await;
            assert_eq!(
                (refused.status, refused.header("content-type")),
                (400, Some("application/problem+json")),
                "{program}"
            );
        }
    });
}
