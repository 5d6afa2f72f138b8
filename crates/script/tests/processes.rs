//! The workers as processes: how many there are, and that none stays.
//!
//! The tests of this file count the children of their process, so one runs after the other.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{record, workers};
use kvorum_script::{ScriptWorkers, WORKERS_MAX, WorkerError};
use rustix::process::{Pid, Signal, kill_process};

const ENDLESS: &[u8] = b"function map() while true do end end";

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The processes that this one started, zombies too, by its id.
fn children_of(parent: u32) -> Vec<Pid> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let stat = std::fs::read_to_string(entry.unwrap().path().join("stat")).unwrap_or_default();
        // `id (name) state parent …`, and a name may have anything in it.
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>());
        if fields.is_some_and(|fields| fields[1] == parent.to_string()) {
            children.push(Pid::from_raw(stat.split(' ').next().unwrap().parse().unwrap()).unwrap());
        }
    }
    children
}

/// Those among them that a script can run in: the kernel says that the filter of system calls is there.
fn confined_children_of(parent: u32) -> Vec<Pid> {
    let status = |child: &Pid| std::fs::read_to_string(format!("/proc/{}/status", child.as_raw_pid()));
    let is_confined = |status: String| status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1");
    children_of(parent).into_iter().filter(|child| status(child).is_ok_and(is_confined)).collect()
}

fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_worker_that_is_killed_from_outside_is_no_error_of_the_script() {
    let _alone = alone();
    let workers = workers();
    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| workers.map(ENDLESS, &[record("a", b"")]));
        let child = wait_for("a child", || confined_children_of(std::process::id()).pop());
        kill_process(child, Signal::KILL).unwrap();
        call.join().unwrap()
    });
    assert!(matches!(&answer, Err(WorkerError::Unavailable(cause)) if cause.contains("signal: 9")), "{answer:?}");
    assert_eq!((children_of(std::process::id()), workers.busy()), (vec![], 0));
}

/// Processor time of a process, in the kernel's ticks.
fn ticks_of(child: Pid) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.as_raw_pid())).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>());
    fields.map_or(0, |fields| fields[11].parse().unwrap_or(0))
}

#[test]
fn a_worker_that_a_fault_of_its_own_ends_is_an_error_of_the_script() {
    let _alone = alone();
    let workers = workers();
    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| workers.map(ENDLESS, &[record("a", b"")]));
        let child = wait_for("a child", || confined_children_of(std::process::id()).pop());
        // Long enough at work to have said that the script is loaded.
        wait_for("a child at work", || (ticks_of(child) > 10).then_some(()));
        kill_process(child, Signal::ILL).unwrap();
        call.join().unwrap()
    });
    assert_eq!(answer, Ok(vec![Err("the script has ended its worker".to_owned())]));
    assert_eq!(children_of(std::process::id()), []);
}

#[test]
fn a_worker_that_stops_is_killed_at_its_deadline() {
    let _alone = alone();
    let workers = workers();
    let answers = std::thread::scope(|scope| {
        let call = scope.spawn(|| workers.map(ENDLESS, &[record("a", b"")]));
        let child = wait_for("a child", || confined_children_of(std::process::id()).pop());
        // Before it has its second of processor time.
        kill_process(child, Signal::STOP).unwrap();
        call.join().unwrap()
    });
    let over = "the script took more than 5 s";
    let is_over = match &answers {
        Ok(answers) => answers[0].as_ref().is_err_and(|message| message.starts_with(over)),
        Err(WorkerError::Script(message)) => message.starts_with(over),
        Err(_) => false,
    };
    assert!(is_over, "{answers:?}");
    assert_eq!(children_of(std::process::id()), []);
}

#[test]
fn no_call_leaves_a_process() {
    let _alone = alone();
    let workers = workers();
    let sources: [&[u8]; 4] = [b"function map(k) emit(k, 1) end", b"map", b"function map() error('x') end", b"\xff"];
    for source in sources.iter().cycle().take(50) {
        let answer = workers.map(source, &[record("a", b"")]);
        assert!(!matches!(answer, Err(WorkerError::Busy | WorkerError::Unavailable(_))), "{answer:?}");
        assert_eq!((children_of(std::process::id()), workers.busy()), (vec![], 0));
    }
}

#[test]
fn a_program_that_is_not_there_or_none_of_ours_is_no_error_of_the_script() {
    let _alone = alone();
    for program in ["/nonexistent", "/bin/true", "/bin/cat", "/bin/yes"] {
        let answer = ScriptWorkers::new(PathBuf::from(program)).map(b"function map() end", &[record("a", b"")]);
        // One that reads and never ends meets the deadline, as a worker does that hangs.
        let is_late = matches!(&answer, Err(WorkerError::Script(_)));
        assert!(is_late || matches!(answer, Err(WorkerError::Unavailable(_))), "{program}: {answer:?}");
        assert_eq!(children_of(std::process::id()), [], "{program}");
    }
}

#[test]
fn a_third_call_waits_and_is_served_or_told_that_all_are_busy() {
    let _alone = alone();
    let workers = workers();
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..WORKERS_MAX).map(|_| scope.spawn(|| workers.map(ENDLESS, &[record("a", b"")]))).collect();
        let both = || Some(confined_children_of(std::process::id())).filter(|children| children.len() == WORKERS_MAX);
        let children = wait_for("two children", both);
        // Stopped, so that they stay for longer than a call waits.
        children.iter().for_each(|child| kill_process(*child, Signal::STOP).unwrap());
        assert_eq!(workers.check(b"function map() end"), Err(WorkerError::Busy));
        assert_eq!(children_of(std::process::id()).len(), WORKERS_MAX);
        let waiting = scope.spawn(|| workers.check(b"function map() end"));
        children.iter().for_each(|child| kill_process(*child, Signal::KILL).unwrap());
        assert_eq!(waiting.join().unwrap(), Ok(()));
        calls.into_iter().for_each(|call| assert!(call.join().unwrap().is_err()));
    });
}

#[test]
fn a_worker_dies_with_its_node() {
    let _alone = alone();
    let mut node = Command::new(env!("CARGO_BIN_EXE_kvorum-script-worker"));
    let mut node = node.arg("node").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let child = wait_for("a worker", || confined_children_of(node.id()).pop());
    // Neither its second of processor time nor its own watch can end a process that is stopped.
    kill_process(child, Signal::STOP).unwrap();
    node.kill().unwrap();
    node.wait().unwrap();
    let path = format!("/proc/{}/stat", child.as_raw_pid());
    // Whoever inherited it may be slow to reap it.
    let is_gone = || {
        let stat = std::fs::read_to_string(Path::new(&path)).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ") || stat.contains(") X ")).then_some(())
    };
    wait_for("the worker's end", is_gone);
}
