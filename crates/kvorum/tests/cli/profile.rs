//! `profile`, against nodes that are none.

use std::fs::{read, read_to_string};
use std::process::Stdio;

use crate::support::{canned, kvorum};

/// Of a profile, but for where its body ends.
const HEAD: &str = "HTTP/1.1 200 OK\r\nkvorum-profile-unit: microseconds\r\nkvorum-profile-seconds: 1.0\r\n\
    kvorum-profile-samples: 1\r\nkvorum-profile-lost: 0\r\nkvorum-profile-truncated-percent: 0.0\r\n\
    kvorum-profile-note: none\r\n";

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
