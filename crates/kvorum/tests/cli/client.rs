//! `put`, `get`, `delete`, `range`, `status`: what they ask, what they print, how they exit.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use serde_json::json;

use crate::support::{Ended, canned, kvorum, pages, run};

/// Runs a command against a node that gives this answer; also what the node was asked.
fn answered(args: &[&str], answer: &'static str) -> (Ended, String) {
    let (url, asked) = canned(answer, "\r\n\r\n");
    (run(kvorum(args).env("KVORUM_URL", url)), asked.join().unwrap())
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CREATED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";

#[test]
fn get_prints_the_value_and_nothing_else() {
    let (ended, asked) = answered(&["get", "a b/ж", "--ack", "1", "--from", "2"], OK);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "hello", ""));
    assert!(asked.starts_with("GET /v0/entity?id=a%20b%2F%D0%B6&ack=1&from=2 HTTP/1.1\r\n"), "{asked}");
}

#[test]
fn a_key_need_not_be_text() {
    let (url, asked) = canned(OK, "\r\n\r\n");
    let ended = run(kvorum(&["get", "--url", &url]).arg(std::ffi::OsStr::from_bytes(b"\xff+&=")));
    assert_eq!(ended.code, 0);
    assert!(asked.join().unwrap().starts_with("GET /v0/entity?id=%FF%2B%26%3D HTTP/1.1\r\n"));
}

#[test]
fn put_takes_its_value_from_the_command_line_a_file_or_stdin() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hello").unwrap();
    let at_file = format!("@{}", file.path().display());
    for value in ["hello", at_file.as_str(), "-"] {
        let (url, asked) = canned(CREATED, "\r\n\r\nhello");
        let mut child = kvorum(&["put", "k", value, "--url", &url]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"hello").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let asked = asked.join().unwrap();
        assert!(asked.starts_with("PUT /v0/entity?id=k HTTP/1.1\r\n") && asked.contains("Content-Length: 5\r\n"));
    }
    assert_eq!(run(&mut kvorum(&["put", "k", "@/does/not/exist"])).code, 2);
}

#[test]
fn put_without_a_value_takes_what_stdin_has() {
    let (ended, asked) = answered(&["put", "k"], CREATED);
    assert_eq!(ended.code, 0);
    assert!(asked.contains("Content-Length: 0\r\n"));
}

#[test]
fn trace_prints_the_receipt_to_stderr() {
    let answer = "HTTP/1.1 202 Accepted\r\nserver-timing: n1;dur=0.4\r\nKvorum-Replicas: n1=accepted@v\r\nContent-Length: 0\r\n\r\n";
    let (ended, asked) = answered(&["delete", "k", "--trace"], answer);
    assert_eq!(ended.stderr, "Server-Timing: n1;dur=0.4\nKvorum-Replicas: n1=accepted@v\n");
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""));
    assert!(asked.starts_with("DELETE ") && asked.contains("Kvorum-Trace: 1\r\n"));
}

#[test]
fn the_exit_code_tells_what_kind_of_refusal_it_was() {
    let answers = [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 1, "not found"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n{\"title\":\"Bad\",\"detail\":\"ack>1\"}", 2, "Bad"),
        ("HTTP/1.1 504 x\r\n\r\n{\"title\":\"Not Enough Replicas\",\"acked\":1}", 3, "acked: 1"),
        ("HTTP/1.1 503 x\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", 4, "503"),
        ("SSH-2.0-x\r\n\r\n", 4, "not HTTP"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", 4, "ended early"),
    ];
    for (answer, code, part) in answers {
        let (ended, _) = answered(&["get", "k"], answer);
        assert!(ended.code == code && ended.stderr.contains(part), "{answer}\n{ended:?}");
    }
}

#[test]
fn a_node_that_cannot_be_reached_is_exit_code_4() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for command in [&["get", "k"][..], &["put", "k", "v"], &["delete", "k"], &["range", "a"], &["status"]] {
        let ended = run(kvorum(command).arg("--url").arg(format!("http://{free}")));
        assert!(ended.code == 4 && ended.stderr.contains("failed: Connection refused"), "{ended:?}");
    }
}

#[test]
fn a_silent_node_is_given_up_after_the_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    assert_eq!(run(&mut kvorum(&["get", "k", "--timeout", "50ms", "--url", &url])).code, 4);
}

#[test]
fn range_prints_a_line_per_record() {
    let answer =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nk1\na\r\n7\r\nk2\nb\nc\n\r\n3\r\nk3\n\r\n0\r\n\r\n";
    let (ended, asked) = answered(&["range", "a", "b c"], answer);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "k1\ta\nk2\tb\nc\n\nk3\t\n"));
    assert!(asked.starts_with("GET /v0/entities?start=a&end=b%20c HTTP/1.1\r\n"));
}

#[test]
fn a_range_that_breaks_off_is_told() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nk1\na\r\n";
    let (ended, _) = answered(&["range", "a"], answer);
    assert_eq!((ended.code, ended.stdout.as_str()), (4, "k1\ta\n"));
}

#[test]
fn status_shows_a_line_per_node() {
    let answer = "HTTP/1.1 200 OK\r\n\r\n{\"node\":\"http://a:1\",\"ready\":true,\"nodes\":[{\"url\":\"http://a:1\",\"state\":\"self\"}]}";
    let (ended, asked) = answered(&["status"], answer);
    assert!(asked.starts_with("GET /v0/cluster HTTP/1.1\r\n"));
    assert!(ended.code == 0 && ended.stdout.starts_with("http://a:1 is ready"), "{ended:?}");
    assert!(ended.stdout.contains("\nhttp://a:1  self "), "{}", ended.stdout);
}

#[test]
fn an_older_node_is_said_to_be_one() {
    let answer = "HTTP/1.1 400 x\r\n\r\n{\"title\":\"Bad Request\",\"detail\":\"there is nothing at this path\"}";
    for (command, said) in [
        (&["where", "k"][..], "does not have this: ask a newer node, or upgrade it"),
        (&["slow"], "(old): its version of kvorum has no /v0/slow: upgrade the node"),
        (&["hot"], "has no /v0/hot"),
        (&["top", "--once"], "has no /v0/stats"),
    ] {
        let (ended, _) = answered(command, answer);
        assert!(ended.code == 4 && ended.stderr.contains(said) && ended.stdout.is_empty(), "{command:?} {ended:?}");
    }
}

#[test]
fn a_reader_that_leaves_is_not_an_error() {
    let (url, asked) = canned("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "\r\n\r\n");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = kvorum(&["get", "k", "--url", &url]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    asked.join().unwrap();
}

#[test]
fn repair_waits_for_its_round_and_for_no_other() {
    let driving = json!({"wanted": 3, "driven": 2, "reason": null,
        "driving": {"round": "0", "phase": "sum up", "listed": 0, "copied": 0}});
    let last = json!({"clean": false, "seconds": 0.5, "missing": ["http://b:1"], "differing": 2, "copied": 1,
        "partitions_unsettled": 1, "partitions_proven": 0});
    let ends = [
        (
            json!({"wanted": 3, "driven": 3, "driving": null, "reason": null, "last": last}),
            3,
            "http://b:1 did not take part",
        ),
        // Started anew between two looks: its counts begin at zero.
        (json!({"wanted": 0, "driven": 0, "driving": null, "reason": null}), 4, "was started anew"),
        (json!({"wanted": 3, "driven": 2, "driving": null, "reason": "the disk is full"}), 4, "the disk is full"),
    ];
    for (end, code, said) in ends {
        let (url, asked) = pages(vec![json!({"round": 3}), driving.clone(), end]);
        let ended = run(&mut kvorum(&["repair", "--wait", "--url", &url]));
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
        assert!(asked.join().unwrap()[0].starts_with("POST /v0/repair "));
    }
}

#[test]
fn scrub_does_not_wait_for_a_pass_that_a_restarted_node_has_forgotten() {
    let state = |begun, ended| json!({"nodes": [{"state": "self", "scrub": {"begun": begun, "ended": ended, "records": 100, "damaged": 0}}]});
    let (url, asked) = pages(vec![state(4, 4), json!({"pass": 5}), state(5, 4), state(1, 0)]);
    let ended = run(&mut kvorum(&["scrub", "--url", &url]));
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    assert!(ended.stderr.contains("was started anew"), "{}", ended.stderr);
    assert_eq!(asked.join().unwrap().len(), 4);
}

#[test]
fn a_server_cannot_write_on_the_terminal() {
    const TITLE: &str = "\u{1b}]0;owned\u{7}\u{202e}";
    let no_terminal = |text: &str| assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
    let problem = json!({ "title": TITLE, "detail": TITLE, TITLE: TITLE }).to_string();
    let refusal = format!("HTTP/1.1 503 X\r\nContent-Length: {}\r\n\r\n{problem}", problem.len());
    let (ended, _) = answered(&["get", "k"], refusal.leak());
    assert!(ended.stderr.contains("owned"), "{}", ended.stderr);
    no_terminal(&ended.stderr);
    let traced = format!("HTTP/1.1 200 OK\r\nServer-Timing: {TITLE}\r\nContent-Length: 5\r\n\r\nhello");
    no_terminal(&answered(&["get", "k", "--trace"], traced.leak()).0.stderr);
    let page = json!({ "node": TITLE, "reason": TITLE, "nodes": [{ "url": TITLE, "state": TITLE, "reason": TITLE }] });
    let page = page.to_string();
    let status = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
    no_terminal(&answered(&["status"], status.leak()).0.stdout);
    let range = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{TITLE}\nv\r\n0\r\n\r\n",
        TITLE.len() + 2
    );
    let (ended, _) = answered(&["range", "a"], range.leak());
    no_terminal(&ended.stdout);
    assert!(ended.stdout.ends_with("owned\\u{7}\\u{202e}\tv\n"), "{:?}", ended.stdout);
}
