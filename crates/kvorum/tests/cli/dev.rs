//! `kvorum dev`: a cluster of real processes that live exactly as long as it does.

#![allow(clippy::unwrap_used, missing_docs)]

use std::net::TcpListener;
use std::process::Command;

use rustix::process::Signal;

use crate::dev_process::{Dev, free_ports, is_free, ports};
use crate::support::{kvorum, run};

#[test]
fn what_it_tells_to_paste_works_and_after_ctrl_c_the_data_is_still_there() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    let base_port = dev.base_port;
    let paste = |line: &String| {
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let answers: Vec<String> = dev.curls.iter().map(paste).collect();
    assert!(answers.first().unwrap().starts_with("HTTP/1.1 201"), "{answers:?}");
    assert!(answers.last().unwrap().ends_with("\r\n\r\nhello"), "{answers:?}");
    dev.signal(Signal::INT);
    assert_eq!(dev.end().0, Some(0));

    let dev = Dev::start(base_port, dir.path());
    let ended = run(&mut kvorum(&["get", "greeting", "--url", &format!("http://127.0.0.1:{base_port}")]));
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "hello"));
    dev.signal(Signal::TERM);
    assert_eq!(dev.end().0, Some(0));
}

#[test]
fn a_node_that_refuses_to_start_is_named_and_the_others_are_stopped() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("node-2")).unwrap();
    std::fs::write(dir.path().join("node-2/store"), "no directory").unwrap();
    let port = free_ports();
    let ended = run(kvorum(&["dev", "--base-port", &port.to_string(), "--data-dir"]).arg(dir.path()));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("node http://127.0.0.1:{} did not start", port + 1)), "{}", ended.stderr);
    assert!(ports(port).all(is_free));
}

#[test]
fn its_nodes_end_even_if_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    dev.signal(Signal::KILL);
    assert_eq!(dev.end().0, None);
}

#[test]
fn a_port_in_use_is_named_before_anything_is_started() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let ended = run(kvorum(&["dev", "--nodes", "1", "--base-port", &port.to_string(), "--data-dir"]).arg(dir.path()));
    assert_eq!(ended.code, 2);
    assert!(
        ended.stderr.contains(&format!("port {port} of")) && ended.stderr.contains("--base-port"),
        "{}",
        ended.stderr
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn admin_ports_that_nodes_have_are_named_before_anything_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_ports();
    let [base, admin] = [port, port + 1].map(|port| port.to_string());
    let ended = run(kvorum(&["dev", "--base-port", &base, "--admin-base-port", &admin, "--data-dir"]).arg(dir.path()));
    assert_eq!(ended.code, 2);
    let said = ended.stderr;
    assert!(said.contains(&format!("port {admin} of")) && said.contains("another --admin-base-port"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn another_cluster_over_the_same_data_is_told_which_flags_made_it_one() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    dev.signal(Signal::INT);
    assert_eq!(dev.end().0, Some(0));
    let port = free_ports().to_string();
    let ended = run(kvorum(&["dev", "--base-port", &port, "--data-dir"]).arg(dir.path()));
    assert_eq!(ended.code, 2);
    let said = ended.stderr;
    assert!(said.contains("did not start") && said.contains("another --data-dir"), "{said}");
}
