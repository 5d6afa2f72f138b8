//! Failures on order: `kvorum dev kill 2` and the others, at a `kvorum dev` with real nodes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process, set_child_subreaper};
use serde_json::Value;

use crate::dev_process::{Dev, free_ports, node_pid, wait_for};
use crate::support::{kvorum, run};

fn states(nodes: &[Value]) -> Vec<&str> {
    nodes.iter().map(|node| node["state"].as_str().unwrap()).collect()
}

/// What the node says of itself, but its status line.
fn readyz(dev: &Dev, number: u16) -> String {
    let output = Command::new("curl").args(["-s", &format!("{}/readyz", dev.url(number))]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_node_that_dies_is_named_and_comes_back_on_order_with_what_it_missed() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    kill_process(node_pid(dev.base_port + 1).unwrap(), Signal::KILL).unwrap();
    wait_for(|| states(&dev.nodes("status")) == ["running", "dead", "running"]);
    assert_eq!(dev.ask(1, "put greeting hello").code, 0);
    assert_eq!(dev.ask(3, "get greeting").stdout, "hello");
    assert_eq!(dev.ask(3, "get greeting --ack 3").code, 3, "the third is not there");
    assert_eq!(states(&dev.nodes("start 2")), ["running"; 3]);
    wait_for(|| dev.ask(2, "range greeting").stdout == "greeting\thello\n");
    let url = dev.url(2);
    dev.signal(Signal::INT);
    let (code, said) = dev.end();
    assert_eq!(code, Some(0), "a death that the others survive is none of its own: {said}");
    let obituary = format!("node 2 ({url}) ended (signal: 9 (SIGKILL)); nodes 1 and 3 run on. Start it again: ");
    assert!(said.contains(&obituary) && said.contains("dev start 2 --data-dir "), "{said}");
}

#[test]
fn the_tour_that_it_prints_works_as_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    let tour: Vec<&str> = dev.tour.iter().map(|line| line.trim()).collect();
    let steps =
        ["dev kill 2", "put greeting", "get greeting", "status", "dev start 2", "status", "get greeting --ack 3"];
    assert!(tour.iter().zip(steps).all(|(line, step)| line.contains(step)) && tour.len() == 7, "{tour:?}");
    let paste = |line: &str| {
        let output = Command::new("sh").args(["-c", line]).env_remove("KVORUM_URL").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let [kill, put, get, status, start, _, all] = tour[..] else { panic!("{tour:?}") };
    assert!(paste(kill).contains("dead"));
    paste(put);
    assert_eq!(paste(get), "hello again");
    // `URL down … hints`, the last of which count up once the write has waited for it in vain.
    wait_for(|| paste(status).lines().any(|line| line.contains(" down ") && line.trim_end().ends_with(" 1")));
    assert!(!paste(start).contains("dead"));
    wait_for(|| {
        paste(status).lines().filter(|line| line.contains(" up ") && line.trim_end().ends_with(" 0")).count() == 2
    });
    assert_eq!(paste(all), "hello again");
    dev.signal(Signal::INT);
    assert_eq!(dev.end().0, Some(0));
}

/// Its commands, in the order of the page, but those of the first terminal, which are in blocks without a language.
#[test]
fn the_tutorial_of_five_minutes_shows_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), &dir.path().join("data"));
    let page = std::fs::read_to_string("../../docs/tutorials/five-minutes.md").unwrap();
    let commands: String = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let commands = (1..=3)
        .fold(commands, |text, node: u16| text.replace(&format!("http://127.0.0.1:{}", 8079 + node), &dev.url(node)));
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_kvorum")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-ec", &commands]).env("PATH", path).env("KVORUM_URL", dev.url(1)).env_remove("KVORUM_KEY_FILE");
    let output = shell.current_dir(dir.path()).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let shows =
        ["  dead\nhello again", " down ", "greeting\thello again\nkey1\tvalue1\n", "0 keys differed", "  paused\n"];
    let places: Vec<Option<usize>> = shows.iter().map(|text| said.find(text)).collect();
    assert!(places.is_sorted() && places[0].is_some(), "{places:?} of {shows:?} in {said}");
    assert!(errors.matches("Server-Timing: ").count() == 2, "{errors}");
    dev.signal(Signal::INT);
    assert_eq!(dev.end().0, Some(0));
}

#[test]
fn a_paused_node_does_not_answer_until_it_is_resumed_or_killed() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    assert_eq!(dev.ask(1, "put k v").code, 0);
    assert_eq!(states(&dev.nodes("pause 3")), ["running", "running", "paused"]);
    assert_eq!(dev.ask(1, "get k --ack 3").code, 3);
    assert_eq!(dev.ask(1, "get k").stdout, "v");
    assert_eq!(states(&dev.nodes("resume 3")), ["running"; 3]);
    wait_for(|| dev.ask(1, "get k --ack 3").stdout == "v");
    dev.nodes("pause 3");
    assert_eq!(states(&dev.nodes("kill 3")), ["running", "running", "dead"]);
    dev.nodes("pause 2");
    dev.signal(Signal::INT);
    let (code, said) = dev.end();
    assert_eq!(code, Some(0), "a paused node drains, too: {said}");
}

#[test]
fn a_slow_node_delays_its_frames_and_its_answers_until_that_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    assert_eq!(dev.ask(1, "put k v").code, 0);
    let took = |number, command| {
        let begun = Instant::now();
        assert_eq!(dev.ask(number, command).stdout, "v");
        begun.elapsed()
    };
    assert_eq!(dev.nodes("slow 2 400")[1]["slow_ms"], 400);
    let delay = Duration::from_millis(400);
    wait_for(|| took(1, "get k --ack 3") >= delay);
    assert!(took(2, "get k --ack 1") >= delay, "an answer that needs no other node");
    assert!(took(2, "get k") >= 2 * delay, "its questions, and its answer");
    wait_for(|| took(1, "get k") < delay);
    assert_eq!(dev.nodes("slow 2 0")[1]["slow_ms"], 0);
    wait_for(|| took(1, "get k --ack 3") < delay && took(2, "get k") < delay);
    assert_eq!(dev.nodes("slow 2 10000")[1]["slow_ms"], 10_000);
    dev.nodes("kill 2");
    assert_eq!(dev.nodes("start 2")[1]["slow_ms"], 0, "it ended with the process");
    dev.signal(Signal::INT);
    let said = dev.end().1;
    assert!(!said.contains("is ignored"), "the node takes what `dev` takes: {said}");
}

#[test]
fn a_node_whose_clock_is_moved_fences_itself_until_that_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    for seconds in [-3600, 3600] {
        assert_eq!(dev.nodes(&format!("skew 3 {seconds}"))[2]["skew_s"], seconds);
        wait_for(|| readyz(&dev, 3).contains("the clock is too far from most peers"));
        assert_eq!(dev.ask(1, "put k v").code, 0);
        assert_eq!(dev.nodes("skew 3 0")[2]["skew_s"], 0);
        wait_for(|| readyz(&dev, 3) == "ok\n");
        assert_eq!(dev.ask(3, "put k v").code, 0);
    }
    dev.signal(Signal::INT);
    let said = dev.end().1;
    assert!(!said.contains("is ignored"), "{said}");
}

#[test]
fn orders_that_make_no_sense_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    let refused = |order: &str, why: &str| {
        let ended = dev.order(order);
        assert!(ended.code == 2 && ended.stderr.contains(why), "{order}: {} {}", ended.code, ended.stderr);
    };
    refused("kill 4", "there is no node 4: they are numbered from 1 to 3");
    refused("kill 0", "there is no node 0");
    refused("resume 1", "node 1 is not paused");
    refused("start 1", "node 1 runs already");
    refused("slow 1 10001", "10001 is not in 0..=10000");
    refused("skew 1 -3601", "-3601 is not in -3600..=3600");
    dev.nodes("pause 1");
    refused("pause 1", "node 1 is paused already");
    refused("start 1", "`kvorum dev resume 1` has it go on");
    dev.nodes("resume 1");
    dev.nodes("kill 3");
    refused("kill 3", "node 3 is dead: `kvorum dev start 3` starts it");
    refused("slow 3 5", "node 3 is dead");
    let taken = TcpListener::bind(("127.0.0.1", dev.base_port + 2)).unwrap();
    refused("start 3", "cannot be used");
    drop(taken);
    let with_flags = run(&mut kvorum(&["dev", "--nodes", "5", "kill", "1"]));
    assert_eq!(with_flags.code, 2, "flags of a start are none of an order: {}", with_flags.stderr);
    dev.signal(Signal::INT);
    assert_eq!(dev.end().0, Some(0));
}

#[test]
fn where_nothing_takes_orders_that_is_said_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for data_dir in [dir.path().to_owned(), dir.path().join("missing")] {
        let ended = run(kvorum(&["dev", "kill", "1", "--data-dir"]).arg(&data_dir));
        assert_eq!(ended.code, 4, "{}", ended.stderr);
        let why = format!("no `kvorum dev` takes orders in {}: start it there first", data_dir.display());
        assert!(ended.stderr.contains(&why), "{}", ended.stderr);
    }
}

#[test]
fn the_socket_takes_one_short_line_of_its_owner_for_each_connection() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than the address of a socket may be.
    let data_dir = dir.path().join("d".repeat(120));
    let dev = Dev::start(free_ports(), &data_dir);
    let socket = std::fs::metadata(data_dir.join("dev.sock")).unwrap();
    assert!(socket.file_type().is_socket() && socket.permissions().mode() & 0o777 == 0o600);
    let link = dir.path().join("short");
    std::os::unix::fs::symlink(&data_dir, &link).unwrap();
    let say = |line: &[u8]| {
        let mut stream = UnixStream::connect(link.join("dev.sock")).unwrap();
        stream.write_all(line).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        BufReader::new(stream.take(100_000)).read_line(&mut answer).unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    assert_eq!(say(b"status\n")["ok"], true);
    for bad in [&b"status"[..], b"", b"kill\n", b"kill 1; rm\n", b"\xff\n", &b"x".repeat(250), b"slow 1 -5\n"] {
        let answer = say(bad);
        assert!(answer["ok"] == false && answer["error"].is_string(), "{bad:?}: {answer}");
    }
    // Connections that say nothing take seats, and a bounded number of them; then they end.
    let _silent: Vec<UnixStream> = (0..7).map(|_| UnixStream::connect(link.join("dev.sock")).unwrap()).collect();
    assert_eq!(states(&dev.nodes("status")), ["running"; 3]);
    dev.signal(Signal::INT);
    assert_eq!(dev.end().0, Some(0));
    assert!(!data_dir.join("dev.sock").exists());
}

#[test]
fn a_data_directory_has_one_dev_at_a_time_and_a_killed_one_leaves_nothing_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    let port = free_ports().to_string();
    let second = run(kvorum(&["dev", "--base-port", &port, "--data-dir"]).arg(dir.path()));
    let why = format!("another `kvorum dev` runs on {}: stop it, or give another --data-dir", dir.path().display());
    assert!(second.code == 2 && second.stderr.contains(&why), "{}", second.stderr);
    assert_eq!(states(&dev.nodes("status")), ["running"; 3], "the first one has not noticed");
    let base_port = dev.base_port;
    dev.signal(Signal::KILL);
    dev.end();
    assert!(dir.path().join("dev.sock").exists(), "it is stale");
    let dev = Dev::start(base_port, dir.path());
    assert_eq!(states(&dev.nodes("kill 1")), ["dead", "running", "running"]);
    dev.signal(Signal::INT);
    assert_eq!(dev.end().0, Some(0));
}

/// What is stopped reads no stdin; and as this process takes the orphans, in the same session, the kernel does not have
/// their groups go on by itself.
#[test]
fn a_paused_node_does_not_outlive_a_dev_that_is_killed() {
    set_child_subreaper(Some(getpid())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let dev = Dev::start(free_ports(), dir.path());
    dev.nodes("kill 2");
    dev.nodes("start 2");
    wait_for(|| readyz(&dev, 2) == "ok\n");
    for number in [1, 2] {
        dev.nodes(&format!("pause {number}"));
    }
    dev.signal(Signal::KILL);
    // Until all ports are free.
    assert_eq!(dev.end().0, None);
    set_child_subreaper(None).unwrap();
}
