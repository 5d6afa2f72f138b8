//! `kvorum bench scenario`: a published measurement from the start of its nodes to its report, and the way out of one.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::cluster::kvorum;
use crate::support::wait::{SOON, wait_until, wait_within};

/// For a quick scenario, on a machine that does other things too.
const LONG: Duration = Duration::from_secs(300);

/// With everything that it writes below `root`.
fn scenario(name: &str, root: &Path, options: &[&str]) -> Command {
    let mut command = kvorum();
    command.args(["bench", "scenario", name, "--quick", "--out"]).arg(root.join("reports"));
    command.arg("--data-dir").arg(root.join("data")).args(options);
    command
}

fn report(root: &Path, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(root.join("reports").join(name).join("scenario.json")).unwrap()).unwrap()
}

/// The processes that it has started, as the kernel says.
fn children(child: &Child) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: Vec<String> = tasks.map(of).collect();
    all.iter().flat_map(|text| text.split_whitespace()).filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Reads its output until this line.
#[track_caller]
fn read_until(lines: &mut Lines<BufReader<ChildStdout>>, wanted: &str) {
    assert!(lines.by_ref().map(Result::unwrap).any(|line| line == wanted), "it ended before: {wanted}");
}

/// Starts one whose first search for a knee would take hours, and waits until that has begun: also for its output,
/// which is to stay open.
fn started(root: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    searching(scenario("quorum", root, &["--duration", "1h"]))
}

/// As [`started`], with SIGHUP handled as this option of `env` says.
fn started_with(hangup: &str, root: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let command = scenario("quorum", root, &["--duration", "1h"]);
    let mut env = Command::new("env");
    env.arg(hangup).arg(command.get_program()).args(command.get_args());
    searching(env)
}

fn searching(mut command: Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    read_until(&mut lines, "== quorum 3-nodes: put");
    (child, lines)
}

fn end(mut child: Child) -> i32 {
    let status = wait_within(LONG, "the scenario ends", || child.try_wait().unwrap());
    status.code().expect("it ends by itself")
}

/// Its data, its processes: nothing of them is there any more.
#[track_caller]
fn nothing_is_left(root: &Path, nodes: &[Pid]) {
    assert!(nodes.iter().all(|node| test_kill_process(*node).is_err()), "a node still runs");
    let left: Vec<_> = std::fs::read_dir(root.join("data")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A run of `sharding` in a directory of its own, where somebody has written findings.
fn run_sharding() -> (TempDir, Value) {
    let root = tempfile::tempdir().unwrap();
    let findings = root.path().join("reports/sharding/findings.md");
    std::fs::create_dir_all(findings.parent().unwrap()).unwrap();
    std::fs::write(&findings, "By hand.").unwrap();
    let output = scenario("sharding", root.path(), &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let report = report(root.path(), "sharding");
    (root, report)
}

/// Whether each search has found a rate. On a machine with much else to do, no rate may hold for a whole probe.
fn has_knees(report: &Value) -> bool {
    let knees = report["clusters"][0]["knees"].as_array().unwrap();
    knees.iter().all(|knee| knee["knee_rate"].is_u64())
}

#[test]
fn a_scenario_ends_with_its_report_and_leaves_nothing_else() {
    let (mut root, mut report) = run_sharding();
    for _ in 0..2 {
        if !has_knees(&report) {
            (root, report) = run_sharding();
        }
    }
    let cluster = &report["clusters"][0];
    assert_eq!(
        (&cluster["ack"], &cluster["from"], &report["failures"]),
        (&1.into(), &1.into(), &serde_json::json!([]))
    );
    let knees = cluster["knees"].as_array().unwrap();
    assert_eq!(knees.len(), 3, "{report}");
    for knee in knees {
        let search = knee["search"].as_array().unwrap();
        let met = search.iter().filter(|probe| probe["met"] == true).filter_map(|probe| probe["rate"].as_u64()).max();
        // The search may end by a run at its knee that fails, which it then gives up.
        assert!(!search.is_empty() && knee["knee_rate"].as_u64() <= met, "{knee}");
        if knee["knee_rate"].is_null() {
            eprintln!("SKIPPED: what is measured at a knee, for no rate held here: {knee}");
            continue;
        }
        let points: Vec<&str> =
            knee["points"].as_array().unwrap().iter().filter_map(|at| at["name"].as_str()).collect();
        assert_eq!(points[..2], ["knee", "half"]);
        let profiles = knee["profiles"].as_array().unwrap();
        assert_eq!(profiles.len(), if knee["workload"] == "put" || knee["workload"] == "get" { 3 } else { 0 });
        for profile in profiles {
            let (dir, kind) = (profile["dir"].as_str().unwrap(), profile["kind"].as_str().unwrap());
            let has_graph = root.path().join("reports/sharding").join(dir).join(format!("{kind}.svg")).is_file();
            // In so short a time nothing may have been waited for.
            let is_idle = kind == "lock" && profile["missing"] == "lock: it has no samples";
            let is_refused = profile["missing"].as_str().is_some_and(|why| why.contains("perf_event_open"));
            if is_refused {
                eprintln!("SKIPPED: {profile}");
            }
            assert!(is_idle || is_refused || (has_graph && profile["missing"] == Value::Null), "{profile}");
        }
    }
    let records = &cluster["evenness"][0];
    let (most, least) = (records["max_over_mean"].as_f64().unwrap(), records["min_over_mean"].as_f64().unwrap());
    assert!((0.9..=1.1).contains(&most) && (0.9..=1.1).contains(&least), "one copy of each key, evenly: {records}");
    let total: f64 = records["per_node"].as_array().unwrap().iter().filter_map(Value::as_f64).sum();
    assert!((9_000.0..=11_000.0).contains(&total), "10,000 keys: {records}");
    let page = std::fs::read_to_string(root.path().join("reports/sharding/report.md")).unwrap();
    let named: Vec<_> = page.split("](").skip(1).map(|link| link.split(')').next().unwrap()).collect();
    let mut files = vec!["report.html", "../index.md"];
    if has_knees(&report) {
        assert_eq!(named, ["knees.svg", "comparison.svg"], "it names no file that is not kept");
        files.push("runs/3-nodes-put/knee/run.json");
    }
    for file in files.iter().chain(&named) {
        assert!(root.path().join("reports/sharding").join(file).is_file(), "{file}");
    }
    let findings = root.path().join("reports/sharding/findings.md");
    assert_eq!(std::fs::read_to_string(findings).unwrap(), "By hand.");
    assert!(!root.path().join("reports/sharding.new").exists());
    nothing_is_left(root.path(), &[]);
}

#[test]
fn an_interrupt_ends_the_nodes_and_reports_what_there_was() {
    let root = tempfile::tempdir().unwrap();
    let (child, _lines) = started(root.path());
    let nodes = children(&child);
    assert_eq!(nodes.len(), 3);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end(child), 1);
    nothing_is_left(root.path(), &nodes);
    let report = report(root.path(), "quorum");
    assert_eq!((&report["interrupted"], &report["failures"]), (&true.into(), &serde_json::json!([])));
    let records = &report["clusters"][0]["evenness"][0]["per_node"];
    assert_eq!(records.as_array().unwrap().len(), 3, "what came before it is there: {report}");
    assert!(root.path().join("reports/index.md").is_file());
}

/// Interrupts one.
fn interrupted(root: &Path) -> Vec<String> {
    let (child, lines) = started(root);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end(child), 1);
    lines.map(Result::unwrap).collect()
}

#[test]
fn a_saved_report_is_told_anew_and_nothing_is_measured() {
    let root = tempfile::tempdir().unwrap();
    let render = |name: &str| {
        let mut command = kvorum();
        command.args(["bench", "scenario", name, "--render", "--out"]).arg(root.path().join("reports"));
        command.output().unwrap()
    };
    let output = render("all");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && told.contains("has no such report"), "{told}");
    interrupted(root.path());
    let [dir, index] = ["reports/quorum", "reports/index.md"].map(|path| root.path().join(path));
    let saved = std::fs::read(dir.join("scenario.json")).unwrap();
    let page = std::fs::read(dir.join("report.md")).unwrap();
    std::fs::remove_file(dir.join("report.md")).unwrap();
    std::fs::write(dir.join("findings.md"), "Found by hand.").unwrap();
    let output = render("all");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read(dir.join("report.md")).unwrap(), page);
    assert_eq!(std::fs::read(dir.join("scenario.json")).unwrap(), saved);
    assert!(std::fs::read_to_string(index).unwrap().contains("(quorum/findings.md)"));
}

/// Has the report of quorum say this.
fn amend(root: &Path, name: &str, value: bool) {
    let mut report = report(root, "quorum");
    report[name] = value.into();
    std::fs::write(root.join("reports/quorum/scenario.json"), report.to_string()).unwrap();
}

#[test]
fn an_interrupt_leaves_a_whole_report_as_it_was_and_its_own_beside_it() {
    let root = tempfile::tempdir().unwrap();
    interrupted(root.path());
    amend(root.path(), "interrupted", false);
    let whole = report(root.path(), "quorum");
    let told = interrupted(root.path());
    assert!(told.last().unwrap().ends_with("quorum.new/report.md"), "{told:?}");
    assert_eq!(report(root.path(), "quorum"), whole);
    assert!(root.path().join("reports/quorum/runs/3-nodes-put").is_dir());
    assert_eq!(report(root.path(), "quorum.new")["interrupted"], true);
    let index = std::fs::read_to_string(root.path().join("reports/index.md")).unwrap();
    assert!(!index.contains("quorum.new") && !index.contains("Interrupted"), "{index}");
    // One that is not whole is worth no more than the next.
    amend(root.path(), "interrupted", true);
    let told = interrupted(root.path());
    assert!(told.last().unwrap().ends_with("quorum/report.md"), "{told:?}");
    assert!(!root.path().join("reports/quorum.new").exists());
}

#[test]
fn a_try_does_not_replace_a_measurement() {
    let root = tempfile::tempdir().unwrap();
    interrupted(root.path());
    amend(root.path(), "is_quick", false);
    let measured = report(root.path(), "quorum");
    for name in ["quorum", "all"] {
        let output = scenario(name, root.path(), &[]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &[][..]), "{told}");
        assert!(told.contains("reports/quorum is no quick report") && told.contains("give another --out"), "{told}");
    }
    assert_eq!(report(root.path(), "quorum"), measured);
    // Nor what another build has written, which may be one.
    let file = root.path().join("reports/quorum/scenario.json");
    std::fs::write(&file, "{}").unwrap();
    let output = scenario("quorum", root.path(), &[]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && told.contains(&file.display().to_string()), "{told}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{}");
}

#[test]
fn a_closed_terminal_is_an_interrupt_however_often_it_is_told() {
    let root = tempfile::tempdir().unwrap();
    let (mut child, _lines) = started_with("--default-signal=HUP", root.path());
    let nodes = children(&child);
    // By the kernel, and by the shell, and again.
    let status = wait_within(LONG, "the scenario ends", || {
        kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
        child.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(1), "{status}");
    nothing_is_left(root.path(), &nodes);
    assert_eq!(report(root.path(), "quorum")["interrupted"], true);
}

#[test]
fn a_scenario_under_nohup_outlives_its_terminal() {
    let root = tempfile::tempdir().unwrap();
    let (child, _lines) = started_with("--ignore-signal=HUP", root.path());
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() & 1, 1, "{status}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end(child), 1);
}

#[test]
fn what_a_killed_scenario_left_is_not_in_the_next_report() {
    let root = tempfile::tempdir().unwrap();
    // No scenario.json: that one had not come to its report.
    let left = ["quorum/runs", "quorum/profiles", "quorum.new/runs", "quorum.new/profiles"];
    let left = left.map(|name| root.path().join("reports").join(name).join("3-nodes-put/half"));
    for left in &left {
        std::fs::create_dir_all(left).unwrap();
    }
    interrupted(root.path());
    assert!(left.iter().all(|left| !left.exists()));
}

#[test]
fn what_cannot_be_written_is_told_and_costs_neither_its_figures_nor_the_other_scenarios() {
    let root = tempfile::tempdir().unwrap();
    // A path that is no UTF-8 is no reason to end either.
    let reports = root.path().join(OsStr::from_bytes(b"reports-\xff"));
    std::fs::create_dir_all(reports.join("sync-vs-async/scenario.json")).unwrap();
    std::fs::write(reports.join("async-fanout"), "").unwrap();
    let mut command = kvorum();
    command.args(["bench", "scenario", "all", "--quick", "--out"]).arg(&reports);
    command.arg("--data-dir").arg(root.path().join("data"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    read_until(&mut lines, "== sync-vs-async fsync: start");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let told: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(told.iter().any(|line| line == "## kvorum beside the report"), "{told:?}");
    let stderr = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    assert!(stderr.contains("async-fanout: ") && stderr.contains("sync-vs-async/scenario.json"), "{stderr}");
    assert!(reports.join("sync-vs-async/report.md").is_file() && reports.join("index.md").is_file(), "{stderr}");
    assert_eq!(end(child), 2);
}

#[test]
fn a_node_that_dies_fails_its_stage_by_name_and_takes_the_others_along() {
    let root = tempfile::tempdir().unwrap();
    let (child, _lines) = started(root.path());
    let nodes = children(&child);
    // The first is the coordinator.
    kill_process(nodes[0], Signal::KILL).unwrap();
    assert_eq!(end(child), 1);
    nothing_is_left(root.path(), &nodes);
    let report = report(root.path(), "quorum");
    let failure = &report["failures"][0];
    assert_eq!(failure["stage"], "quorum 3-nodes: put");
    assert!(failure["why"].as_str().unwrap().contains("ended (signal: 9"), "{failure}");
}

#[test]
fn a_knee_is_in_the_report_although_a_run_after_it_fails() {
    let root = tempfile::tempdir().unwrap();
    let mut child = scenario("larger-than-memory", root.path(), &[]).stdout(Stdio::null()).spawn().unwrap();
    // It is made when the search begins. What is a file already can be no directory of a run.
    let runs = root.path().join("reports/larger-than-memory.new/runs/3-nodes-get");
    wait_within(LONG, "a search", || runs.is_dir().then_some(()));
    std::fs::write(runs.join("at-100"), "").unwrap();
    assert_eq!(wait_within(LONG, "its end", || child.try_wait().unwrap()).code(), Some(1));
    let report = report(root.path(), "larger-than-memory");
    let failure = &report["failures"][0];
    assert_eq!(failure["stage"], "larger-than-memory 3-nodes: get");
    assert!(failure["why"].as_str().unwrap().contains("at-100"), "{failure}");
    let knee = &report["clusters"][0]["knees"][0];
    assert!(knee["knee_rate"].is_u64() && knee["profiles"].as_array().unwrap().len() == 3, "{report}");
    let points: Vec<&str> = knee["points"].as_array().unwrap().iter().filter_map(|at| at["name"].as_str()).collect();
    assert_eq!(points, ["knee", "half", "100"]);
    // Either the nodes were held to their memory, or the report says that they were not.
    let warned =
        report["warnings"].as_array().unwrap().iter().any(|of| of.as_str().unwrap().contains("NO MEMORY LIMIT"));
    assert_eq!(report["clusters"][0]["memory_limit_bytes"].is_u64(), !warned, "{report}");
}

#[test]
fn a_scenario_that_nobody_reads_goes_on_to_its_report() {
    let root = tempfile::tempdir().unwrap();
    let mut command = scenario("quorum", root.path(), &["--duration", "1h"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    drop(child.stderr.take());
    assert_eq!(first, "== quorum 3-nodes: start\n");
    // Both pipes are closed: what it prints next is lost.
    let searches = root.path().join("reports/quorum.new/runs/3-nodes-put");
    let deadline = Instant::now() + SOON;
    let begun = wait_within(LONG, "an end of that", || {
        if searches.is_dir() { Some(true) } else { (Instant::now() > deadline).then_some(false) }
    });
    let nodes = children(&child);
    kill_process(Pid::from_child(&child), if begun { Signal::INT } else { Signal::KILL }).unwrap();
    assert!(begun && nodes.len() == 3, "it does not go on");
    assert_eq!(end(child), 1);
    nothing_is_left(root.path(), &nodes);
    assert_eq!(report(root.path(), "quorum")["interrupted"], true);
}

#[test]
fn nodes_end_with_a_scenario_that_is_killed() {
    let root = tempfile::tempdir().unwrap();
    let (mut child, _lines) = started(root.path());
    let nodes = children(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("they end", || nodes.iter().all(|node| test_kill_process(*node).is_err()));
}
