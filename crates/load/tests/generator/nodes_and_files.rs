//! What is reported of nodes, and what is written to files.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use kvorum_load::compare::compare_saved;
use kvorum_load::knee::Probe;
use kvorum_load::nodes::{NodeRow, Source};
use kvorum_load::report::{
    Document, LATENCY_FILE, PAGE_FILE, RUN_FILE, RateAsked, Spectrum, read_document, read_log, save, text,
};
use kvorum_load::run::{Rate, RunOutcome, RunPlan};

use crate::support::{Reply, Server, answer, go, millis, plan, store};

fn one(url: &str) -> (RunPlan, RunOutcome, Document) {
    let plan = RunPlan { rate: Rate::PerSecond(200), duration: millis(2500), ..plan(url, "put") };
    let outcome = go(&plan);
    let document = Document::new(&plan, &outcome);
    (plan, outcome, document)
}

fn names(value: &serde_json::Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_run_is_saved_as_scripts_and_other_tools_read_it() {
    let (_, server) = store();
    let (_, outcome, document) = one(&server.url);
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), &outcome, &document).unwrap();
    let run: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.path().join(RUN_FILE)).unwrap()).unwrap();
    for name in ["rate_asked", "rate_achieved", "latency_ms", "requests", "errors", "timeouts", "late_sends"] {
        assert!(names(&run).contains(&name), "{name}");
    }
    let mut percentiles = names(&run["latency_ms"]);
    percentiles.sort_unstable();
    assert_eq!(percentiles, ["max", "mean", "p50", "p90", "p99", "p999", "p9999"]);
    assert_eq!(run["rate_asked"], 200);
    assert_eq!(read_document(&dir.path().join(RUN_FILE)).unwrap().requests, outcome.tally.requests());
    let log = read_log(&dir.path().join(LATENCY_FILE)).unwrap();
    assert_eq!(log.len(), outcome.seconds.len());
    assert_eq!(log.iter().map(|second| second.len()).sum::<u64>(), outcome.tally.latency.len());
    let page = std::fs::read_to_string(dir.path().join(PAGE_FILE)).unwrap();
    assert!(page.contains("uPlot") && page.contains("MIT License") && page.contains("\"rate_achieved\""));
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 3, "nothing half-written is left: {names:?}");
}

#[test]
fn the_text_is_that_of_wrk2() {
    let (_, server) = store();
    let (plan, outcome, document) = one(&server.url);
    let text = text(&plan, &outcome, &document, Spectrum::Shown);
    for part in [
        "Running 2.50s test @ http://127.0.0.1:",
        "  1 threads and 8 connections",
        "  Thread Stats   Avg      Stdev     Max   +/- Stdev",
        "    Latency ",
        "    Req/Sec ",
        "  Latency Distribution (HdrHistogram - Recorded Latency)",
        " 50.000% ",
        "100.000% ",
        "  Detailed Percentile spectrum:",
        "       Value   Percentile   TotalCount 1/(1-Percentile)",
        "#[Mean    = ",
        " requests in 2.50s, ",
        "Requests/sec: ",
        "Transfer/sec: ",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn nodes_on_this_machine_are_read_from_proc() {
    let (_, server) = store();
    let plan = RunPlan { watch: true, duration: millis(1500), ..plan(&server.url, "put") };
    let document = Document::new(&plan, &go(&plan));
    let [node] = document.nodes.as_slice() else { panic!("one target, one node: {:?}", document.nodes) };
    assert_eq!((node.source, node.url.as_str()), (Source::Proc, server.url.as_str()));
    assert!(node.cpu_us_per_request.is_some_and(|micros| micros >= 0.0), "{node:?}");
    assert!(node.resident_bytes_max > 1 << 20 && !node.seconds.is_empty(), "{node:?}");
}

/// A store that writes nothing for 400 ms, once, and shows its commits, of which each PUT is one.
pub(crate) fn stalling_once() -> Server {
    let (begin, writing) = (OnceLock::new(), Mutex::new(()));
    let (commits, slow) = (AtomicU64::new(0), AtomicU64::new(0));
    Server::start(move |request| {
        if request.path == "/metrics" {
            let (slow, commits) = (slow.load(Ordering::SeqCst), commits.load(Ordering::SeqCst));
            let (name, quick) = ("kvorum_commit_sync_duration_seconds", commits - slow);
            let text =
                format!("{name}_count {commits}\n{name}_sum {commits}e-3\n{name}_bucket{{le=\"0.016383\"}} {quick}\n");
            return answer(200, text.as_bytes());
        }
        if request.method == "PUT" {
            let _alone = writing.lock().unwrap();
            let begin = begin.get_or_init(Instant::now);
            let is_slow = slow.load(Ordering::SeqCst) == 0 && begin.elapsed() >= millis(1300);
            while is_slow && begin.elapsed() < millis(1700) {
                thread::sleep(millis(10));
            }
            commits.fetch_add(1, Ordering::SeqCst);
            slow.fetch_add(u64::from(is_slow), Ordering::SeqCst);
        }
        answer(200, b"")
    })
}

#[test]
fn a_second_that_a_slow_commit_made_slow_is_told_of() {
    let server = stalling_once();
    let plan = RunPlan { watch: true, duration: millis(3000), warmup: millis(0), ..plan(&server.url, "put") };
    let outcome = go(&plan);
    let document = Document::new(&plan, &outcome);
    let node = &document.nodes[0];
    assert!(node.commits_per_request.is_some_and(|commits| (0.8..1.2).contains(&commits)), "{node:?}");
    assert!(node.commit_ms.is_some_and(|ms| (ms - 1.0).abs() < 1e-6), "{node:?}");
    let slow: Vec<_> = document.seconds.iter().filter_map(|second| second.slow_commits).collect();
    assert_eq!(slow.iter().sum::<u64>(), 1, "{slow:?}");
    let told = "commits took more than 16 ms in 1 of ";
    let text = text(&plan, &outcome, &document, Spectrum::Hidden);
    assert!(text.contains(told), "{text}\n{:?}", document.seconds);
    let objective = "p99=50ms".parse().unwrap();
    assert!(Probe::of(500, &document, &objective).line().contains(told), "a search for a knee shows it, too");
    let with = |p99: [f64; 2]| {
        let mut document = document.clone();
        document.seconds.iter_mut().for_each(|second| second.p99 = p99[usize::from(second.slow_commits == Some(1))]);
        document.slow_commits()
    };
    assert_eq!(with([90.0, 90.0]), None, "what makes no difference is not shown");
    assert_eq!(with([1.0, 9.0]), None, "nobody waited for that commit");
    assert!(with([1.0, 90.0]).is_some());
}

#[test]
fn what_a_request_cost_each_node_is_a_table() {
    let (_, server) = store();
    let (plan, outcome, mut document) = one(&server.url);
    let known = NodeRow {
        url: "http://10.0.0.1:8080".into(),
        source: Source::Proc,
        cpu_us_per_request: Some(23.5),
        allocated_bytes_per_request: Some(1536.0),
        syscalls_per_request: Some(4.125),
        sleeps_per_request: Some(0.5),
        disk_read_bytes_per_request: Some(0.0),
        block_reads_per_request: None,
        hedges_per_request: None,
        commits_per_request: Some(0.0874),
        commit_ms: Some(0.3),
        resident_bytes_max: 3 << 20,
        debt: None,
        seconds: Vec::new(),
    };
    let silent = NodeRow {
        url: "http://10.0.0.2:8080".into(),
        source: Source::None,
        cpu_us_per_request: None,
        allocated_bytes_per_request: None,
        syscalls_per_request: None,
        sleeps_per_request: None,
        disk_read_bytes_per_request: None,
        commits_per_request: None,
        commit_ms: None,
        resident_bytes_max: 0,
        ..known.clone()
    };
    document.nodes = vec![known, silent];
    let table = "\
Per request:         CPU us    syscalls*    sleeps   allocated   disk read     commits   each taking   peak memory
  10.0.0.1:8080          23.5         4.12      0.50      1.50KB       0.00B       0.087      300.00us        3.00MB
  10.0.0.2:8080             -            -         -           -           -           -             -         0.00B
  * in the warm-up; where the kernel counts: root, or tracefs and CAP_PERFMON
  - not known: neither on this machine nor in its /metrics, or not of nine tenths of the run
";
    let text = text(&plan, &outcome, &document, Spectrum::Hidden);
    assert!(text.contains(table), "{text}");
}

#[test]
fn the_other_nodes_of_a_cluster_are_found_and_asked() {
    // Not on this machine: nothing answers there.
    let other = "http://192.0.2.1:8080";
    let cluster = format!("{{\"nodes\": [{{\"url\": \"{other}\"}}]}}");
    let server = Server::start(move |request| match request.path.as_str() {
        "/v0/cluster" => answer(200, cluster.as_bytes()),
        _ => answer(200, b""),
    });
    let plan = RunPlan { watch: true, duration: millis(500), ..plan(&server.url, "put") };
    let document = Document::new(&plan, &go(&plan));
    let urls: Vec<&str> = document.nodes.iter().map(|node| node.url.as_str()).collect();
    assert_eq!(urls, [server.url.as_str(), other]);
    assert_eq!(document.nodes[1].source, Source::None);
}

#[test]
fn a_node_that_is_silent_does_not_delay_what_is_asked_of_the_others() {
    let (silent, (_, other)) = (Server::start(|_| Reply::Silence), store());
    let cluster = format!("{{\"nodes\": [{{\"url\": {:?}}}, {{\"url\": {:?}}}]}}", silent.url, other.url);
    let server = Server::start(move |request| match request.path.as_str() {
        "/v0/cluster" => answer(200, cluster.as_bytes()),
        _ => answer(200, b""),
    });
    let plan = RunPlan { watch: true, duration: millis(1500), ..plan(&server.url, "put") };
    let document = Document::new(&plan, &go(&plan));
    let [_, _, last] = document.nodes.as_slice() else { panic!("three nodes: {:?}", document.nodes) };
    // Its first sample was at the begin, and not when the silent one had had its second.
    assert!(last.seconds.first().is_some_and(|second| second.at_s < 2.0), "{last:?}");
}

#[test]
fn a_node_is_told_of_once_whatever_its_name() {
    let url = Arc::new(OnceLock::new());
    let own = url.clone();
    let server = Server::start(move |request| match request.path.as_str() {
        "/v0/cluster" => answer(200, format!("{{\"nodes\": [{{\"url\": {:?}}}]}}", own.get().unwrap()).as_bytes()),
        _ => answer(200, b""),
    });
    url.set(server.url.clone()).unwrap();
    let named = server.url.replace("127.0.0.1", "localhost");
    let plan = RunPlan { watch: true, duration: millis(500), ..plan(&format!("{named},{named}"), "put") };
    let document = Document::new(&plan, &go(&plan));
    let urls: Vec<&str> = document.nodes.iter().map(|node| node.url.as_str()).collect();
    assert_eq!(urls, [named.as_str()]);
}

#[test]
fn saved_runs_are_compared() {
    let (_, server) = store();
    let dir = tempfile::tempdir().unwrap();
    for name in ["a/1", "a/2", "b/1", "b/2"] {
        let plan = RunPlan { duration: millis(200), ..plan(&server.url, "put") };
        let outcome = go(&plan);
        save(&dir.path().join(name), &outcome, &Document::new(&plan, &outcome)).unwrap();
    }
    let sets = compare_saved(&dir.path().join("a"), &dir.path().join("b")).unwrap();
    assert_eq!((sets.runs, sets.blocks, sets.paired), ([2, 2], false, false));
    assert!(sets.verdict.starts_with("too little"), "{}", sets.verdict);
    let (_, outcome, document) = one(&server.url);
    save(&dir.path().join("c"), &outcome, &document).unwrap();
    let single = compare_saved(&dir.path().join("c"), &dir.path().join("c")).unwrap();
    assert!(single.blocks && single.runs[0] == 2 && single.text().contains("blocks of one run"));
    // A log that ends before its run does, as of a target that died, shows nothing of the rest.
    let longer = Document { duration_s: 99.0, ..document.clone() };
    save(&dir.path().join("d"), &outcome, &longer).unwrap();
    let short = compare_saved(&dir.path().join("c"), &dir.path().join("d")).unwrap_err().to_string();
    assert!(short.contains("of its 99 seconds only"), "{short}");
    save(&dir.path().join("e"), &outcome, &Document { duration_s: 0.9, ..document }).unwrap();
    let none = compare_saved(&dir.path().join("c"), &dir.path().join("e")).unwrap_err().to_string();
    assert!(none.contains("no whole second"), "{none}");
    assert!(compare_saved(dir.path(), Path::new("/nonexistent")).is_err());
    std::fs::write(dir.path().join("a/1/run.json"), "{").unwrap();
    assert!(compare_saved(&dir.path().join("a"), &dir.path().join("b")).unwrap_err().to_string().contains("run.json"));
}

/// A server that refuses the requests of these numbers.
fn refusing(is_refused: fn(u64) -> bool) -> Server {
    let requests = AtomicU64::new(0);
    Server::start(move |_| match is_refused(requests.fetch_add(1, Ordering::SeqCst)) {
        true => answer(503, b""),
        false => answer(200, b""),
    })
}

#[test]
fn errors_of_single_runs_are_told_and_what_has_no_latencies_is_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let saved = |name: &str, is_refused: fn(u64) -> bool, workload: &str| {
        let server = refusing(is_refused);
        let plan = RunPlan { rate: Rate::PerSecond(200), duration: millis(2100), ..plan(&server.url, workload) };
        let plan = RunPlan { warmup: millis(0), ..plan };
        let outcome = go(&plan);
        save(&dir.path().join(name), &outcome, &Document::new(&plan, &outcome)).unwrap();
        dir.path().join(name)
    };
    let good = saved("good", |_| false, "put");
    let refused = |a: &Path, b: &Path| compare_saved(a, b).unwrap_err().to_string();
    let bad = saved("bad", |_| true, "put");
    assert!(refused(&bad, &good).contains("nothing succeeded in the run") && refused(&good, &bad).contains("bad"));
    // At most 200 are due in the first second.
    let late = saved("late", |number| number < 250, "put");
    assert!(refused(&late, &good).contains("nothing succeeded in 1 of 2 blocks"), "{}", refused(&late, &good));
    let faulty = saved("faulty", |number| number % 4 == 0, "get");
    let comparison = compare_saved(&faulty, &good).unwrap();
    assert!(comparison.blocks && comparison.errors[0] > 0 && comparison.errors[1] == 0, "{:?}", comparison.errors);
    assert_eq!(comparison.unlike, ["workload A get, B put"]);
    assert!(comparison.text().contains("were not asked for the same: workload A get, B put"), "{}", comparison.text());
    assert!(compare_saved(&good, &good).unwrap().unlike.is_empty());
}

#[test]
fn runs_that_were_not_asked_alike_are_told_of_one_side_too() {
    let (_, server) = store();
    let (_, outcome, document) = one(&server.url);
    let dir = tempfile::tempdir().unwrap();
    let keep = |name: &str, document: &Document| save(&dir.path().join(name), &outcome, document).unwrap();
    // As a search for a knee leaves them.
    keep("k/knee", &document);
    keep("k/half", &Document { rate_asked: RateAsked::PerSecond(100), ..document.clone() });
    let knee = dir.path().join("k");
    assert_eq!(compare_saved(&knee, &knee).unwrap().unlike, ["rate A 100, 200, B 100, 200"]);
    let (ack, from, compressible, timeout_s) = (Some(2), Some(3), !document.compressible, 0.5);
    let (connections, pipeline) = (document.connections + 1, document.pipeline + 1);
    let path = "/kv/{key}".to_owned();
    assert_eq!(document.path, "/v0/entity?id={key}");
    keep("o", &Document { ack, from, compressible, timeout_s, connections, pipeline, path, ..document.clone() });
    let unlike = compare_saved(&knee.join("knee"), &dir.path().join("o")).unwrap().unlike;
    let told: Vec<&str> = unlike.iter().map(|of| of.split(" A ").next().unwrap()).collect();
    assert_eq!(told, ["ack", "compressible", "connections", "from", "path", "pipeline", "timeout"]);
    assert_eq!(unlike[0], "ack A default, B 2");
    // Saved before paths were written down.
    keep("e", &Document { path: String::new(), ..document.clone() });
    assert!(compare_saved(&knee.join("knee"), &dir.path().join("e")).unwrap().unlike.is_empty());
}

#[test]
fn what_puts_saved_runs_in_doubt_is_told() {
    let (_, server) = store();
    let (_, outcome, mut document) = one(&server.url);
    let dir = tempfile::tempdir().unwrap();
    let keep = |name: &str, document: &Document| save(&dir.path().join(name), &outcome, document).unwrap();
    (document.unsent, document.generator.limit, document.generator.late) = (0, None, None);
    keep("b", &document);
    let mut late = document.clone();
    late.generator.late = Some("slow".into());
    keep("a/2", &late);
    (document.unsent, document.interrupted) = (document.requests * 3, true);
    document.generator.limit = Some("slow".into());
    keep("a/1", &document);
    let comparison = compare_saved(&dir.path().join("a"), &dir.path().join("b")).unwrap();
    let doubts = [
        "A: the generator was the limit in 1 of 2 runs",
        "A: the generator was late, and latencies are partly its own, in 1 of 2 runs",
        "A: 60.0 % of the requests were never sent",
        "A: an interrupt ended 1 of 2 runs",
    ];
    assert_eq!(comparison.doubts, doubts);
    assert!(comparison.text().contains(&doubts.join("\n")), "{}", comparison.text());
    let single = compare_saved(&dir.path().join("b"), &dir.path().join("a/1")).unwrap();
    assert!(single.blocks && single.doubts.len() == 3, "{:?}", single.doubts);
}

#[test]
fn a_full_disk_is_an_error_with_the_files_name_and_leaves_no_half_of_it() {
    let (_, server) = store();
    let (_, outcome, document) = one(&server.url);
    let dir = tempfile::tempdir().unwrap();
    // Where the rename would put the file there is a directory: the same way out as without space.
    std::fs::create_dir(dir.path().join(RUN_FILE)).unwrap();
    let error = save(dir.path(), &outcome, &document).unwrap_err().to_string();
    assert!(error.contains(RUN_FILE), "{error}");
    assert!(dir.path().join(LATENCY_FILE).is_file() && dir.path().join(PAGE_FILE).is_file(), "the others are there");
    assert!(!dir.path().join("run.json.partial").exists());
}
