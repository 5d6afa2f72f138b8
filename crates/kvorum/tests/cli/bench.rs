//! `kvorum bench` as scripts use it: its options, its exit codes, what it prints and writes.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{kvorum, listen, run};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const REFUSED: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// Has the same body for every key.
fn serve() -> String {
    serve_with(OK)
}

/// Answers every request, one at a time on each connection, with these bytes.
fn serve_with(answer: &'static str) -> String {
    serve_by(move || answer)
}

/// The same with what this returns then.
fn serve_by(answer: impl Fn() -> &'static str + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let answer = answer.clone();
            thread::spawn(move || answer_all(stream, answer));
        }
    });
    url
}

fn answer_all(mut stream: TcpStream, answer: impl Fn() -> &'static str) {
    let mut piece = [0; 4096];
    // Requests of these tests come in one piece each.
    while stream.read(&mut piece).is_ok_and(|count| count > 0) {
        if stream.write_all(answer().as_bytes()).is_err() {
            return;
        }
    }
}

const SHORT: [&str; 6] = ["--duration", "400ms", "--warmup", "0ms", "--connections", "4"];

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_command_line_of_the_documentation_runs_and_its_json_has_every_name() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let out = dir.path().join("report");
    let args = format!(
        "bench run --url {url},{url} --workload mixed:put=50,get=50 --rate 500 --connections 64 --threads 1 \
         --duration 400ms --warmup 100ms --keys 200000 --value-size 100 --ack 1 --from 1 --out {}",
        out.display()
    );
    let ended = run(&mut kvorum(&args.split_whitespace().collect::<Vec<_>>()));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended.stdout.starts_with("Running 0.40s test @ ") && ended.stdout.contains("Requests/sec:"),
        "{}",
        ended.stdout
    );
    let run = json(&out.join("run.json"));
    let wanted = ["rate_asked", "rate_achieved", "latency_ms", "requests", "errors", "timeouts", "late_sends"];
    assert!(wanted.iter().all(|name| !run[name].is_null()), "{run}");
    let percentiles = ["p50", "p90", "p99", "p999", "p9999", "max", "mean"];
    assert!(percentiles.iter().all(|name| run["latency_ms"][name].is_f64()), "{run}");
    assert!(out.join("report.html").is_file() && out.join("latency.hdr").is_file());
}

/// What is asked for by default.
#[test]
fn the_defaults_are_those_of_the_documentation() {
    for (command, option, value) in [
        ("run", "connections", "64"),
        ("run", "threads", "1"),
        ("run", "pipeline", "1"),
        ("run", "duration", "30s"),
        ("run", "warmup", "5s"),
        ("run", "keys", "200000"),
        ("run", "value-size", "100"),
        ("run", "workload", "put"),
        ("knee", "objective", "p99=50ms"),
        ("soak", "duration", "1h"),
        ("soak", "objective", "p99=50ms"),
    ] {
        let help = run(&mut kvorum(&["bench", command, "--help"])).stdout;
        let said = help.split("\n      --").find(|said| said.starts_with(option)).unwrap_or_else(|| panic!("{option}"));
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!("[default: {value}]")), "{said}");
    }
}

#[test]
fn what_cannot_be_run_is_told_by_the_exit_code() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{address}");
    let ended = run(kvorum(&["bench", "run", "--url", &nobody, "--rate", "10"]).args(SHORT));
    assert_eq!(ended.code, 4);
    assert!(ended.stderr.contains(&nobody), "{}", ended.stderr);
    let url = serve();
    for bad in [
        &["bench", "run", "--url", &url][..],
        &["bench", "run", "--url", &url, "--rate", "0"],
        &["bench", "run", "--url", &url, "--rate", "1", "--workload", "scans"],
        &["bench", "run", "--url", &url, "--rate", "1", "--threads", "2", "--connections", "1"],
        &["bench", "fill", "--url", &url, "--size", "many"],
        &["bench", "fill", "--url", &url, "--keys", "18446744073709551615"],
        &["bench", "fill", "--url", &url, "--keys", "10", "--size", "1MB"],
        &["bench", "knee", "--url", &url, "--objective", "p98=1ms"],
        &["bench", "compare", "/nonexistent-a", "/nonexistent-b"],
        &["bench", "compare", &url, &url, "--rate", "10", "--url", &url, "--pairs", "1", "--duration", "1ms"],
        &["bench", "compare", &url, &url, "--rate", "10", "--pairs", "1001"],
    ] {
        assert_eq!(run(&mut kvorum(bad)).code, 2, "{bad:?}");
    }
    // It answers, and never what was written.
    let fill = ["bench", "fill", "--url", &url, "--keys", "10"];
    assert_eq!(run(&mut kvorum(&fill)).code, 4);
    let never = run(&mut kvorum(&["bench", "fill", "--url", &url, "--size", "1MB", "--value-size", "0"]));
    assert!(never.code == 2 && never.stderr.contains("--keys instead of --size"), "{}", never.stderr);
    for [option, value] in [["--workload", "get"], ["--key-order", "latest"], ["--duration", "1s"], ["--warmup", "1s"]]
    {
        let ended = run(kvorum(&fill).args([option, value]));
        assert!(ended.code == 2 && ended.stderr.contains(option), "{option}: {}", ended.stderr);
    }
}

#[test]
fn the_knee_of_a_server_that_sustains_nothing_is_none() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    // No answer takes less than a nanosecond.
    let out = dir.path().to_str().unwrap();
    let ended =
        run(kvorum(&["bench", "knee", "--url", &url, "--workload", "get", "--objective", "p50=0.001us", "--out", out])
            .args(SHORT)
            .args(["--rate", "640"]));
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let knee = json(&dir.path().join("knee.json"));
    assert!(knee["knee_rate"].is_null() && knee["latency_ms"].is_null(), "{knee}");
    let probes = knee["probes"].as_array().unwrap();
    assert!(probes.len() >= 4 && probes.iter().all(|probe| probe["passed"] == false), "{knee}");
    assert_eq!(probes[0]["rate_asked"], 640, "where the search begins");
    assert!(ended.stdout.lines().filter(|line| line.starts_with("probe")).count() == probes.len());
}

#[test]
fn a_knee_is_told_and_its_json_has_every_name() {
    // Eight connections, 10 ms for each answer: 800/s at most.
    let slow = serve_by(|| {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(10) {
            thread::sleep(Duration::from_millis(1));
        }
        OK
    });
    let dir = tempfile::tempdir().unwrap();
    let mut search = kvorum(&["bench", "knee", "--url", &slow, "--workload", "get", "--objective", "p50=200ms"]);
    search.args(["--rate", "100", "--connections", "8", "--duration", "700ms", "--warmup", "100ms"]);
    let ended = run(search.arg("--out").arg(dir.path()));
    let knee = json(&dir.path().join("knee.json"));
    // One run is at half of it, and the machine may have its bad moment then.
    let code = i32::from(!knee["half"]["missed"].is_null());
    assert_eq!(ended.code, code, "{}{}", ended.stdout, ended.stderr);
    let (rate, half) = (knee["knee_rate"].as_u64().unwrap(), knee["half"]["rate"].as_u64().unwrap());
    assert_eq!(half, rate / 2, "{knee}");
    for latency in [&knee["latency_ms"], &knee["half"]["latency_ms"], &knee["probes"][0]["latency_ms"]] {
        assert!(
            ["p50", "p99", "p999"].iter().all(|name| latency[name].as_f64().is_some_and(|of| of >= 10.0)),
            "{knee}"
        );
    }
    for said in [format!("\nKnee: {rate}/s under p50=200ms: p50 "), format!("\nAt half of it, {half}/s: p50 ")] {
        assert!(ended.stdout.contains(&said), "{}", ended.stdout);
    }
}

/// A search in a hurry for a knee that is not there.
fn hopeless_knee(url: &str, out: &Path) -> Command {
    let objective = ["bench", "knee", "--url", url, "--workload", "get", "--objective", "p50=0.001us"];
    let mut command = kvorum(&objective);
    command.args(["--duration", "200ms", "--warmup", "0ms", "--connections", "2", "--out"]).arg(out);
    command
}

#[test]
fn a_search_that_cannot_be_written_is_told_all_the_same() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    // Where the file would be there is a directory: the same way out as without space.
    std::fs::create_dir(dir.path().join("knee.json")).unwrap();
    let ended = run(&mut hopeless_knee(&url, dir.path()));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(
        ended.stdout.contains("\nNo knee") && ended.stderr.contains("knee.json"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
}

#[test]
fn a_search_among_keys_that_were_never_written_says_so() {
    let (url, dir) = (serve_with("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), tempfile::tempdir().unwrap());
    let ended = run(&mut hopeless_knee(&url, dir.path()));
    assert_eq!(ended.code, 4, "{}", ended.stdout);
    let said = ["nothing succeeded in a closed loop over 2 connections", "(404: ", "`kvorum bench fill`"];
    assert!(said.iter().all(|said| ended.stderr.contains(said)), "{}", ended.stderr);
    assert!(!ended.stdout.contains("probe"), "{}", ended.stdout);
}

#[test]
fn a_search_that_comes_to_no_end_leaves_one_that_did() {
    let dir = tempfile::tempdir().unwrap();
    let search = |url: &str| run(&mut hopeless_knee(url, dir.path()));
    let knee = |rate: serde_json::Value, interrupted: bool| {
        let mut saved = json(&dir.path().join("knee.json"));
        (saved["knee_rate"], saved["interrupted"]) = (rate, interrupted.into());
        std::fs::write(dir.path().join("knee.json"), saved.to_string()).unwrap();
    };
    assert_eq!(search(&serve()).code, 1);
    // As if it had found one.
    knee(500.into(), false);
    std::fs::create_dir(dir.path().join("half")).unwrap();
    let refused = search(&serve_with(REFUSED));
    assert!(refused.code == 4 && refused.stderr.contains("(503: "), "{}", refused.stderr);
    assert!(refused.stdout.contains("has a knee, and stays"), "{}", refused.stdout);
    assert_eq!(json(&dir.path().join("knee.json"))["knee_rate"], 500);
    assert!(dir.path().join("half").is_dir());
    // One without a knee is not worth more than this one.
    knee(serde_json::Value::Null, true);
    assert_eq!(search(&serve_with(REFUSED)).code, 4);
    let now = json(&dir.path().join("knee.json"));
    assert!(now["interrupted"] == false && now["probes"].as_array().unwrap().is_empty(), "{now}");
    assert!(!dir.path().join("half").exists());
}

#[test]
fn a_run_without_a_success_has_no_latency_and_one_that_measured_nothing_keeps_the_earlier_one() {
    let (url, dir) = (serve_with(REFUSED), tempfile::tempdir().unwrap());
    let out = dir.path().join("report");
    let args = ["bench", "run", "--url", &url, "--rate", "100", "--out"];
    assert_eq!(run(kvorum(&args).arg(&out).args(SHORT)).code, 0);
    let saved = json(&out.join("run.json"));
    // 0 would pass every objective.
    assert!(saved["latency_ms"]["p99"].is_null() && saved["refused_ms"]["p99"].as_f64().unwrap() > 0.0, "{saved}");
    let args = ["bench", "run", "--url", &url, "--rate", "100", "--duration", "1s", "--warmup", "1h", "--out"];
    let (code, text) = interrupted(kvorum(&args).arg(&out), &url);
    assert!(code == 1 && text.contains("nothing was measured yet"), "{code} {text}");
    assert_eq!(json(&out.join("run.json")), saved);
}

#[test]
fn more_connections_than_files_may_be_open_are_refused() {
    let limited = |connections: &str| {
        let load = ["bench", "run", "--url", &serve(), "--rate", "10", "--duration", "400ms", "--warmup", "0ms"];
        let command = ["-c", "ulimit -n 100; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_kvorum")];
        run(Command::new("sh").args(command).args(load).args(["--connections", connections]))
    };
    let refused = limited("101");
    assert!(refused.code == 2 && refused.stderr.contains("may have 100 files open"), "{}", refused.stderr);
    assert_eq!(limited("4").code, 0);
}

#[test]
fn a_search_that_nobody_reads_goes_on() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let mut child = hopeless_knee(&url, dir.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(ended_within(&mut child, Duration::from_secs(60)), 0, "as of all that nobody reads");
    assert!(json(&dir.path().join("knee.json"))["probes"].as_array().unwrap().len() >= 4);
}

#[test]
fn pairs_that_were_whole_are_compared_whatever_ends_the_turns() {
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("b/01/run.json");
    let ends = serve_by(move || if first.exists() { REFUSED } else { OK });
    let mut compare = kvorum(&["bench", "compare", &serve(), &ends, "--workload", "put", "--rate", "200"]);
    let ended = run(compare.args(["--pairs", "3", "--out", dir.path().to_str().unwrap()]).args(SHORT));
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    assert!(
        ended.stdout.contains("1 and 1 runs") && ended.stderr.contains("run B2"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    assert_eq!(json(&dir.path().join("compare.json"))["runs"], serde_json::json!([1, 1]));
    // A contest in the same place that has no run removes nothing.
    let mut compare = kvorum(&["bench", "compare", "exit 1", "exit 1", "--url", "http://127.0.0.1:1", "--rate", "9"]);
    let ended = run(compare.args(["--pairs", "3", "--out", dir.path().to_str().unwrap()]).args(SHORT));
    assert!(ended.code == 4 && ended.stderr.contains("before it served"), "{}", ended.stderr);
    let left = |name: &str| dir.path().join(name).exists();
    assert_eq!(["compare.json", "a/01", "b/01"].map(left), [true; 3]);
    // What the next one leaves is its own, though it ends before its first pair.
    let mut compare = kvorum(&["bench", "compare", &serve(), &serve_with(REFUSED), "--workload", "put", "--rate", "9"]);
    let ended = run(compare.args(["--pairs", "3", "--out", dir.path().to_str().unwrap()]).args(SHORT));
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    assert_eq!(["compare.json", "a/01", "a/02", "b/02"].map(left), [false, true, false, false]);
}

#[test]
fn a_run_that_cannot_be_saved_is_told_and_compared_all_the_same() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    std::fs::create_dir(dir.path().join("b")).unwrap();
    std::fs::write(dir.path().join("b/01"), "").unwrap();
    let mut compare = kvorum(&["bench", "compare", &url, &serve(), "--workload", "put", "--rate", "200"]);
    let ended = run(compare.args(["--pairs", "2", "--out", dir.path().to_str().unwrap()]).args(SHORT));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stdout.contains("\nB1: ") && ended.stdout.contains("2 and 2 runs"), "{}", ended.stdout);
    assert!(ended.stderr.contains("b/01") && dir.path().join("b/02/run.json").is_file(), "{}", ended.stderr);
}

#[test]
fn live_sides_take_turns_and_their_runs_can_be_compared_again() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let out = dir.path().join("pairs");
    let mut compare = kvorum(&["bench", "compare", &url, &serve(), "--workload", "put", "--rate", "200"]);
    let ended = run(compare.args(["--pairs", "2", "--out", out.to_str().unwrap()]).args(SHORT));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let turns: Vec<&str> =
        ended.stdout.lines().filter_map(|line| line.split_once(':')).map(|(turn, _)| turn).take(4).collect();
    assert_eq!(turns, ["A1", "B1", "A2", "B2"]);
    let comparison = json(&out.join("compare.json"));
    assert_eq!((&comparison["runs"], &comparison["paired"]), (&serde_json::json!([2, 2]), &true.into()));
    let (a, b) = (out.join("a"), out.join("b"));
    let compare = ["bench", "compare", a.to_str().unwrap(), b.to_str().unwrap()];
    let saved = run(kvorum(&compare).env("KVORUM_URL", &url));
    assert!(saved.code == 0 && saved.stdout.contains("too little to compare"), "{}", saved.stdout);
    let mixed = run(kvorum(&["bench", "compare", &url, b.to_str().unwrap(), "--rate", "10"]).args(SHORT));
    assert!(mixed.code == 2 && mixed.stdout.is_empty() && mixed.stderr.contains("the other live"), "{}", mixed.stderr);
    let refused = run(kvorum(&compare).args(["--rate", "10", "--value-size", "5"]));
    assert!(refused.code == 2 && refused.stderr.contains("--value-size, --rate would be"), "{}", refused.stderr);
}

#[test]
fn a_side_that_is_not_what_it_seems_is_told_as_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let saved = |name: &str, url: &str| {
        let out = dir.path().join(name).to_str().unwrap().to_owned();
        // Seconds of it are compared.
        let args = format!("bench run --url {url} --rate 100 --duration 1s --warmup 0ms --connections 4 --out {out}");
        run(&mut kvorum(&args.split_whitespace().collect::<Vec<_>>()));
        out
    };
    let (good, bad) = (saved("good", &serve()), saved("bad", &serve_with(REFUSED)));
    let compare = |a: &str, b: &str| run(kvorum(&["bench", "compare", a, b]).current_dir(&good));
    let file = compare("run.json", &format!("{good}/run.json"));
    assert!(file.code == 0 && file.stdout.contains("blocks of one run"), "{}{}", file.stdout, file.stderr);
    let missing = compare(&good, &format!("{good}-er"));
    assert!(missing.code == 2 && missing.stderr.contains("there is no such path"), "{}", missing.stderr);
    let command = compare("run.jsn", &good);
    assert!(command.code == 2 && command.stderr.contains("`run.jsn` is no directory"), "{}", command.stderr);
    let failed = compare(&good, &bad);
    let why = "kvorum: nothing succeeded in the run ";
    assert!(failed.code == 4 && failed.stderr.starts_with(why), "{}", failed.stderr);
}

#[test]
fn a_comparison_at_a_rate_that_cannot_be_sent_says_so() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let mut compare = kvorum(&["bench", "compare", &url, &serve(), "--workload", "put", "--rate", "5000000"]);
    let ended = run(compare.args(["--pairs", "1", "--out", dir.path().to_str().unwrap()]).args(SHORT));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let doubts = json(&dir.path().join("compare.json"))["doubts"].clone();
    for side in ["A", "B"] {
        let unsent = |line: &str| line.starts_with(&format!("{side}: 9")) && line.ends_with(" were never sent");
        assert!(ended.stdout.lines().any(unsent), "{}", ended.stdout);
        assert!(doubts.as_array().unwrap().iter().any(|line| unsent(line.as_str().unwrap())), "{doubts}");
    }
}

#[test]
fn runs_of_an_earlier_contest_are_not_of_a_later_one() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let earlier = dir.path().join("a/07");
    std::fs::create_dir_all(&earlier).unwrap();
    std::fs::write(earlier.join("run.json"), "").unwrap();
    let mut compare = kvorum(&["bench", "compare", &url, &serve(), "--workload", "put", "--rate", "200"]);
    let ended = run(compare.args(["--pairs", "1", "--out", dir.path().to_str().unwrap()]).args(SHORT));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(dir.path().join("a/01/run.json").exists() && !earlier.exists());
}

#[test]
fn a_run_that_nobody_reads_is_saved_all_the_same() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let out = dir.path().join("r");
    let mut load = kvorum(&["bench", "run", "--url", &url, "--workload", "put", "--rate", "100"]);
    load.args(["--out", out.to_str().unwrap()]).args(SHORT).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = load.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(ended_within(&mut child, Duration::from_secs(60)), 0);
    assert!(json(&out.join("run.json"))["requests"].as_u64().unwrap() > 0);
}

#[test]
fn a_report_that_has_no_place_is_refused_before_the_run() {
    let mut load = kvorum(&["bench", "run", "--url", &serve(), "--rate", "100", "--out", "/dev/null/r"]);
    let ended = run(load.args(SHORT));
    assert!(ended.code == 2 && ended.stdout.is_empty() && ended.stderr.contains("/dev/null/r"), "{}", ended.stderr);
}

#[test]
fn a_command_whose_place_is_taken_or_that_does_not_serve_is_refused() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let compare = |command: &str, url: &str| {
        run(kvorum(&["bench", "compare", command, command, "--url", url, "--rate", "10"]).args(SHORT))
    };
    let ended = compare("exit 3", &format!("http://{free}"));
    assert!(ended.code == 4 && ended.stderr.contains("ended before it served"), "{}", ended.stderr);
    let ended = compare("sleep 100", &serve());
    assert!(ended.code == 4 && ended.stderr.contains("a server is at"), "{}", ended.stderr);
}

fn ended_within(child: &mut Child, limit: Duration) -> i32 {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().expect("it exits by itself");
        }
        assert!(Instant::now() < deadline, "it does not end");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interrupt_ends_a_run_with_the_report_of_what_there_was() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let out = dir.path().join("report");
    let args = ["bench", "run", "--url", &url, "--rate", "100", "--duration", "1h", "--warmup", "0ms", "--out"];
    let (code, text) = interrupted(kvorum(&args).arg(&out), &url);
    assert_eq!(code, 0);
    assert!(text.contains("Interrupted") && text.contains("Requests/sec:"), "{text}");
    assert_eq!(json(&out.join("run.json"))["interrupted"], true);
}

#[test]
fn a_search_and_a_fill_that_are_interrupted_say_so() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let search = ["bench", "knee", "--url", &url, "--workload", "get", "--duration", "1h", "--out"];
    let (code, text) = interrupted(kvorum(&search).arg(dir.path()), &url);
    assert_eq!((code, text.trim_end()), (1, "Interrupted before the knee was found"));
    assert_eq!(json(&dir.path().join("knee.json"))["interrupted"], true);
    // Another one: connections that were closed are still in the kernel's table.
    let url = serve();
    let fill = ["bench", "fill", "--url", &url, "--keys", "90000000"];
    let (code, text) = interrupted(&mut kvorum(&fill), &url);
    assert!(code == 1 && text.starts_with("interrupted: about ") && text.contains(" are in stages"), "{code} {text}");
}

#[test]
fn a_soak_is_judged_and_its_exit_code_is_the_verdict() {
    let (good, bad, dir) = (serve(), serve_with(REFUSED), tempfile::tempdir().unwrap());
    let soak = |url: &str, objective: &str| {
        let args =
            ["bench", "soak", "--url", url, "--rate", "100", "--workload", "get", "--objective", objective, "--out"];
        let ended = run(kvorum(&args).arg(dir.path()).args(SHORT));
        (ended.code, ended.stdout, json(&dir.path().join("run.json"))["soak"].clone())
    };
    // A generator that the machine keeps waiting at the end leaves something unsent, and says so.
    let is_starved = |text: &str| text.contains("  NO   nothing unsent");
    let mut soaked = soak(&good, "p99=9s");
    for _ in 0..2 {
        if is_starved(&soaked.1) {
            soaked = soak(&good, "p99=9s");
        }
    }
    let (code, text, verdict) = soaked;
    assert_eq!((code, &verdict["passed"]), (0, &serde_json::json!(true)), "{text}");
    assert!(text.contains("Soak: PASSED") && text.contains("  yes  nothing unsent: 0"), "{text}");
    let (code, text, verdict) = soak(&good, "p50=0.001us");
    assert_eq!((code, verdict["slow_seconds"].as_array().unwrap().len()), (1, 1), "{text}");
    let (code, text, _) = soak(&bad, "p99=9s");
    assert!(code == 1 && text.contains("  NO   no error: 40 errors and timeouts (503: 40)"), "{code} {text}");
    let short = run(kvorum(&["bench", "soak", "--url", &good, "--rate", "1", "--goodput", "1"]).args(SHORT));
    assert!(short.code == 2 && short.stderr.contains("--duration is too short"), "{}", short.stderr);
}

#[test]
fn a_soak_that_is_interrupted_keeps_what_was_measured() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let args = ["bench", "soak", "--url", &url, "--rate", "100", "--workload", "get", "--warmup", "0ms", "--out"];
    let (code, text) = interrupted(kvorum(&args).arg(dir.path()), &url);
    assert!(code == 1 && text.contains("Interrupted") && text.contains("Soak: "), "{text}");
    let run = json(&dir.path().join("run.json"));
    assert!(run["interrupted"] == true && run["soak"]["verdict"].is_array(), "{run}");
}

/// Starts what runs for long over 64 connections, interrupts it, and gives its exit code and what it printed.
fn interrupted(command: &mut Command, url: &str) -> (i32, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stat = format!("/proc/{}/net/tcp", child.id());
    let port = format!(":{:04X} ", url.rsplit(':').next().unwrap().parse::<u16>().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    // Once it is connected its signals are handled.
    while std::fs::read_to_string(&stat).unwrap().matches(&port).count() < 64 {
        assert!(Instant::now() < deadline, "it does not connect");
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let code = ended_within(&mut child, Duration::from_secs(20));
    (code, std::io::read_to_string(child.stdout.take().unwrap()).unwrap())
}

#[test]
fn a_second_interrupt_ends_a_command_at_once() {
    let (url, listener) = listen();
    let args = ["bench", "run", "--url", &url, "--rate", "max", "--duration", "1h", "--connections", "1"];
    let mut child = kvorum(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // A request that is not answered: the first interrupt waits for it, for a second.
    let asked = listener.incoming().map(Result::unwrap).find(|stream| (&*stream).read(&mut [0]).unwrap() == 1);
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not end");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(asked);
}

#[test]
fn a_comparison_that_is_interrupted_says_after_which_pair() {
    let (url, dir) = (serve(), tempfile::tempdir().unwrap());
    let mut compare = kvorum(&["bench", "compare", &url, &serve(), "--workload", "put", "--rate", "200", "--out"]);
    compare.arg(dir.path()).args(["--pairs", "100"]).args(SHORT);
    let mut child = compare.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("B1: ")), "no pair becomes whole");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(ended_within(&mut child, Duration::from_secs(20)), 1);
    let comparison = json(&dir.path().join("compare.json"));
    let told = format!("Interrupted after {} of 100 pairs", comparison["runs"][0]);
    assert_eq!(comparison["doubts"].as_array().unwrap().last().unwrap(), &told);
    assert!(lines.any(|line| line == told), "no `{told}`");
}

/// A file system of its own, without room for anything. Needs root.
struct FullDisk(tempfile::TempDir);

impl FullDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4k", "kvorum-load-test"]).arg(dir.path()).output();
        if !mount.is_ok_and(|mount| mount.status.success()) {
            eprintln!("SKIPPED: a full disk needs mount(8) and root");
            return None;
        }
        let disk = Self(dir);
        std::fs::write(disk.0.path().join("full"), [1; 4096]).unwrap();
        Some(disk)
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status().unwrap();
        assert!(unmounted.success() || thread::panicking());
    }
}

#[test]
fn a_full_disk_costs_the_files_and_not_the_text() {
    let (url, Some(disk)) = (serve(), FullDisk::mount()) else { return };
    let out = disk.0.path().join("report");
    let ended =
        run(kvorum(&["bench", "run", "--url", &url, "--rate", "100", "--out", out.to_str().unwrap()]).args(SHORT));
    let left: Vec<_> = std::fs::read_dir(&out)
        .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
        .unwrap_or_default();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stdout.contains("Requests/sec:") && ended.stderr.contains("No space left"), "{}", ended.stderr);
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".partial")), "{left:?}");
    let ended = run(&mut hopeless_knee(&url, &disk.0.path().join("knee")));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stdout.contains("\nNo knee") && ended.stderr.contains("No space left"), "{}", ended.stderr);
}
