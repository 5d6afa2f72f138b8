//! `profile`, against nodes that are none.

#![allow(clippy::unwrap_used)]

use std::fs::{read, read_to_string};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::thread;

use crate::support::{canned, kvorum, listen, run};

/// Of a profile, but for where its body ends.
const HEAD: &str = "HTTP/1.1 200 OK\r\nkvorum-profile-unit: microseconds\r\nkvorum-profile-seconds: 1.0\r\n\
    kvorum-profile-samples: 1\r\nkvorum-profile-lost: 0\r\nkvorum-profile-truncated-percent: 0.0\r\n\
    kvorum-profile-note: none\r\n";

/// What `profile` prints with exit code 4 about a node whose answer begins so and has no end, and how much it took of
/// that.
fn endless(head: &str) -> (String, usize) {
    let (url, listener) = listen();
    let dir = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let mut stream = listener.accept().unwrap().0;
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.find(|line| line.as_ref().unwrap().is_empty());
            stream.write_all(head.as_bytes()).unwrap();
            let piece = vec![b'a'; 1 << 16];
            std::iter::repeat_with(|| stream.write(&piece)).map_while(Result::ok).sum()
        });
        let args = ["profile", "--url", &url, "--kind", "lock", "--seconds", "1", "--out"];
        let ended = run(kvorum(&args).arg(dir.path()));
        assert_eq!((ended.code, ended.stdout.as_str()), (4, ""), "{}", ended.stderr);
        (ended.stderr, answering.join().unwrap())
    })
}

#[test]
fn an_answer_without_end_is_too_long_and_one_that_is_no_profile_is_not_taken() {
    const LIMIT: usize = 256 << 20;
    let (said, taken) = endless(&format!("{HEAD}\r\n"));
    assert!(said.contains("the answer is too long") && taken > LIMIT, "{taken} {said}");
    for (head, says) in [("200 OK", "this is no profile"), ("500 x", "500 aaa")] {
        let (said, taken) = endless(&format!("HTTP/1.1 {head}\r\n\r\n"));
        // What the system keeps for the connection is less.
        assert!(said.contains(says) && said.len() < 5_000 && taken < LIMIT / 2, "{taken} {said}");
    }
}

#[test]
fn a_reader_that_leaves_does_not_lose_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let answer = format!("{HEAD}Content-Length: 4\r\n\r\na 1\n").leak();
    let (url, _asked) = canned(answer, "\r\n\r\n");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = kvorum(&["profile", "--url", &url, "--kind", "lock", "--seconds", "1", "--out"]);
    let status = command.arg(dir.path()).stdout(writer).stderr(Stdio::null()).status().unwrap();
    assert!(status.success());
    assert_eq!(read_to_string(dir.path().join("lock.collapsed")).unwrap(), "a 1\n");
    assert!(read(dir.path().join("lock.svg")).unwrap().starts_with(b"<?xml"));
}

#[test]
fn a_profile_of_another_kind_is_refused_before_the_node_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (url, listener) = listen();
    drop(listener);
    // A request fails with 4: nothing listens.
    for (name, code) in [("cpu.collapsed", 2), ("alloc.collapsed", 2), ("lock.collapsed", 4), ("cpu-before", 4)] {
        let old = dir.path().join(name);
        std::fs::write(&old, "a 1\n").unwrap();
        let args = ["profile", "--url", &url, "--kind", "lock", "--seconds", "1", "--out"];
        let ended = run(kvorum(&args).arg(dir.path()).arg("--diff").arg(&old));
        let says = ended.stderr.contains("one of lock cannot be compared");
        assert!(ended.code == code && says == (code == 2), "{name}: {ended:?}");
    }
}
