//! Several nodes in `--url`: who is asked, after what, and for how long.

#![allow(clippy::unwrap_used, missing_docs)]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::{canned, kvorum, listen, run};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CREATED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
const OVERLOADED: &str =
    "HTTP/1.1 503 x\r\nRetry-After: 1\r\n\r\n{\"title\":\"Overloaded\",\"detail\":\"had no effect\"}";

/// Where nobody listens.
fn refusing() -> String {
    let (url, listener) = listen();
    drop(listener);
    url
}

/// Whether somebody has connected.
fn was_asked(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_ok()
}

#[test]
fn the_next_node_is_asked_where_one_is_away_or_answers_503() {
    for (command, answer, said) in [
        (&["get", "k"][..], OK, "hello"),
        (&["put", "k", "v"], CREATED, ""),
        (&["delete", "k"], CREATED, ""),
        (&["batch", "-"], OK, ""),
        (&["query", "-"], OK, ""),
        (&["status"], "HTTP/1.1 200 OK\r\n\r\n{\"node\":\"http://c:1\"}", "http://c:1 is not ready"),
        (&["repair"], "HTTP/1.1 202 Accepted\r\n\r\n{\"round\":3}", "round 3 of "),
    ] {
        let (full, first) = canned(OVERLOADED, "\r\n\r\n");
        let (up, second) = canned(answer, "\r\n\r\n");
        let list = format!("{},{full},{up}", refusing());
        let mut child = kvorum(command);
        if let ["batch" | "query", ..] = command {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), "{}\n").unwrap();
            child.stdin(std::fs::File::open(file.path()).unwrap());
        }
        let ended = run(child.args(["--url", &list]));
        assert!(ended.code == 0 && ended.stdout.starts_with(said), "{command:?} {ended:?}");
        assert_eq!(first.join().unwrap().lines().next(), second.join().unwrap().lines().next());
    }
}

#[test]
fn a_write_that_broke_off_goes_to_no_second_node_and_its_end_is_said_to_be_unknown() {
    for command in [&["put", "k", "v"][..], &["delete", "k"], &["repair"]] {
        let (breaking, asked) = canned("", "\r\n\r\n");
        let (up, listener) = listen();
        let ended = run(kvorum(command).args(["--url", &format!("{breaking},{up}")]));
        asked.join().unwrap();
        assert!(ended.code == 4 && ended.stderr.contains("whether it took effect is not known"), "{ended:?}");
        assert!(!was_asked(&listener), "{command:?}");
    }
}

#[test]
fn a_read_that_broke_off_goes_to_the_next_node() {
    let (breaking, asked) = canned("", "\r\n\r\n");
    let (up, _) = canned(OK, "\r\n\r\n");
    let ended = run(&mut kvorum(&["get", "k", "--url", &format!("{breaking},{up}")]));
    asked.join().unwrap();
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "hello"), "{ended:?}");
}

#[test]
fn where_no_node_answers_the_reasons_of_all_are_said_and_a_refusal_counts_most() {
    let (one, other) = (refusing(), refusing());
    let ended = run(&mut kvorum(&["get", "k", "--url", &format!("{one},{other}")]));
    assert_eq!(ended.code, 4);
    assert!(ended.stderr.contains(&one) && ended.stderr.contains(&other), "{}", ended.stderr);
    let (full, _) = canned(OVERLOADED, "\r\n\r\n");
    let ended = run(&mut kvorum(&["put", "k", "v", "--url", &format!("{full},{other}")]));
    assert!(ended.code == 4 && ended.stderr.contains("Overloaded: had no effect"), "{ended:?}");
}

#[test]
fn all_nodes_share_one_deadline() {
    let (silent, listener) = listen();
    let (other, never) = listen();
    let begin = Instant::now();
    let ended = run(&mut kvorum(&["get", "k", "--timeout", "300ms", "--url", &format!("{silent},{other}")]));
    assert!(ended.code == 4 && ended.stderr.contains("no answer came within --timeout"), "{ended:?}");
    assert!(begin.elapsed() < Duration::from_secs(20), "the first node's silence ends it");
    assert!(was_asked(&listener) && !was_asked(&never));
}

#[test]
fn what_means_one_node_takes_no_list() {
    for command in [
        &["range", "a"][..],
        &["scrub"],
        &["backup", "/nowhere/at/all"],
        &["profile", "--kind", "cpu", "--out", "/nowhere/at/all"],
    ] {
        let ended = run(kvorum(command).args(["--url", "http://a:1,http://b:1"]));
        assert!(ended.code == 2 && ended.stderr.contains("this command means one node"), "{command:?} {ended:?}");
    }
    let ended = run(kvorum(&["range", "a"]).env("KVORUM_URL", "http://a:1,http://b:1"));
    assert!(ended.code == 2 && ended.stderr.contains("name that one with --url"), "{ended:?}");
}

#[test]
fn a_url_needs_no_scheme() {
    for command in [&["get", "k"][..], &["range", "k"]] {
        let (url, asked) = canned(OK, "\r\n\r\n");
        let ended = run(kvorum(command).env("KVORUM_URL", url.trim_start_matches("http://")));
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "hello"), "{ended:?}");
        asked.join().unwrap();
    }
}
