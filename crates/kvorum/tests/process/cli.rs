//! The client's commands against real nodes: what they print and how they exit.

use std::io::Write;
use std::process::{Output, Stdio};

use crate::support::{Cluster, kvorum};

const DONE: i32 = 0;
const NOT_FOUND: i32 = 1;
const USAGE: i32 = 2;
const NOT_ENOUGH: i32 = 3;
const UNREACHABLE: i32 = 4;

fn run(url: &str, arguments: &[&str]) -> Output {
    kvorum().args(arguments).args(["--url", url]).output().expect("the binary runs")
}

#[track_caller]
fn exits(url: &str, arguments: &[&str], code: i32) -> Output {
    let output = run(url, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    output
}

#[test]
fn put_get_delete_and_their_exit_codes() {
    let cluster = Cluster::start(1);
    let url = cluster.node(0).url();
    let missing = exits(&url, &["get", "k"], NOT_FOUND);
    assert!(missing.stdout.is_empty(), "{missing:?}");
    exits(&url, &["put", "k", "value of k"], DONE);
    assert_eq!(exits(&url, &["get", "k"], DONE).stdout, b"value of k", "the value as it is, and nothing else");
    exits(&url, &["put", "k", ""], DONE);
    assert_eq!(exits(&url, &["get", "k"], DONE).stdout, b"");
    exits(&url, &["delete", "k"], DONE);
    exits(&url, &["get", "k"], NOT_FOUND);
    exits(&url, &["delete", "never there"], DONE);
}

#[test]
fn values_come_from_standard_input_and_from_files() {
    let cluster = Cluster::start(1);
    let url = cluster.node(0).url();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for arguments in [vec!["put", "piped", "-"], vec!["put", "piped without a dash"]] {
        let mut command = kvorum();
        command.args(&arguments).args(["--url", &url]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(child.wait().unwrap().success(), "{arguments:?}");
        assert!(exits(&url, &["get", arguments[1]], DONE).stdout == bytes);
    }
    let file = cluster.root().join("value.bin");
    std::fs::write(&file, &bytes).unwrap();
    exits(&url, &["put", "from a file", &format!("@{}", file.display())], DONE);
    assert!(exits(&url, &["get", "from a file"], DONE).stdout == bytes);
    let absent = run(&url, &["put", "k", "@/nowhere/at/all"]);
    assert!(!absent.status.success() && !absent.stderr.is_empty(), "{absent:?}");
    exits(&url, &["get", "k"], NOT_FOUND);
}

#[test]
fn keys_are_taken_literally() {
    let cluster = Cluster::start(1);
    let url = cluster.node(0).url();
    for key in ["a+b c&d=e#f%20", "ключ", "with/slash?"] {
        exits(&url, &["put", key, key], DONE);
        assert_eq!(exits(&url, &["get", key], DONE).stdout, key.as_bytes());
        assert_eq!(cluster.client(0).value(&crate::support::entity(key)), key.as_bytes());
    }
}

#[test]
fn a_range_is_printed() {
    let cluster = Cluster::start(1);
    let url = cluster.node(0).url();
    for key in ["a", "b", "c"] {
        exits(&url, &["put", key, &format!("value-{key}")], DONE);
    }
    let text = |arguments: &[&str]| String::from_utf8(exits(&url, arguments, DONE).stdout).unwrap();
    let some = text(&["range", "a", "c"]);
    assert!(some.contains("value-a") && some.contains("value-b") && !some.contains("value-c"), "{some}");
    assert!(text(&["range", "b"]).contains("value-c"));
    assert_eq!(text(&["range", "x"]).trim(), "");
}

#[test]
fn wrong_usage_exits_2() {
    let cluster = Cluster::start(1);
    let url = cluster.node(0).url();
    let empty = cluster.root().join("empty");
    for arguments in [
        vec!["get"],
        vec!["put"],
        vec!["nonsense"],
        vec!["get", "k", "--ack", "x"],
        vec!["get", "k", "--ack", "2", "--from", "2"],
        vec!["get", ""],
        vec!["serve", "--listen", "nonsense", "--cluster", "http://127.0.0.1:1", "--data-dir", empty.to_str().unwrap()],
    ] {
        let output = if arguments[0] == "serve" || arguments[0] == "nonsense" {
            kvorum().args(&arguments).output().unwrap()
        } else {
            run(&url, &arguments)
        };
        assert_eq!(output.status.code(), Some(USAGE), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?} says nothing");
    }
}

#[test]
fn not_enough_replicas_exits_3_and_nobody_there_exits_4() {
    let mut cluster = Cluster::start(2);
    let url = cluster.node(0).url();
    exits(&url, &["put", "k", "v"], DONE);
    cluster.kill(1);
    let failed = exits(&url, &["put", "k", "v", "--ack", "2", "--from", "2"], NOT_ENOUGH);
    assert!(!failed.stderr.is_empty(), "{failed:?}");
    exits(&url, &["get", "k", "--ack", "2"], NOT_ENOUGH);
    exits(&url, &["delete", "k"], NOT_ENOUGH);
    exits(&url, &["put", "k", "alone", "--ack", "1", "--from", "2"], DONE);
    assert_eq!(exits(&url, &["get", "k", "--ack", "1"], DONE).stdout, b"alone");
    for arguments in [vec!["get", "k"], vec!["put", "k", "v"], vec!["delete", "k"], vec!["range", "a"], vec!["status"]]
    {
        exits(&cluster.node(1).url(), &arguments, UNREACHABLE);
    }
}

#[test]
fn a_trace_names_every_replica() {
    let cluster = Cluster::start(3);
    let url = cluster.node(0).url();
    for arguments in [vec!["put", "k", "v", "--trace"], vec!["get", "k", "--trace"], vec!["delete", "k", "--trace"]] {
        let output = exits(&url, &arguments, DONE);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        for index in 0..3 {
            assert!(text.contains(&cluster.node(index).address.to_string()), "node {index} is missing: {text}");
        }
    }
    let traced = exits(&url, &["put", "k", "v"], DONE);
    assert!(!String::from_utf8_lossy(&traced.stderr).contains("127.0.0.1"), "no receipt unasked: {traced:?}");
    assert_eq!(exits(&url, &["get", "k", "--trace"], DONE).stdout, b"v", "the receipt does not mix with the value");
}

#[test]
fn the_url_may_come_from_the_environment() {
    let cluster = Cluster::start(1);
    let get = |key: &str| kvorum().args(["get", key]).env("KVORUM_URL", cluster.node(0).url()).output().unwrap();
    exits(&cluster.node(0).url(), &["put", "k", "v"], DONE);
    assert_eq!(get("k").stdout, b"v");
    assert_eq!(get("other").status.code(), Some(NOT_FOUND));
}

#[test]
fn status_describes_the_cluster() {
    let cluster = Cluster::start(3);
    let output = exits(&cluster.node(1).url(), &["status"], DONE);
    let text = String::from_utf8_lossy(&output.stdout);
    for index in 0..3 {
        assert!(text.contains(&cluster.node(index).address.to_string()), "node {index} is missing: {text}");
    }
}
