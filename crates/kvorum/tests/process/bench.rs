//! `kvorum bench` against real nodes.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::CapabilitySet;

use crate::support::cluster::{free_port, kvorum};
use crate::support::network::Network;
use crate::support::{Cluster, wait_for, wait_until};

/// Runs `kvorum bench` to its end: its exit code and what it printed.
#[track_caller]
fn bench(args: &[&str]) -> String {
    let output = kvorum().arg("bench").args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

const SHORT: [&str; 8] = ["--duration", "1s", "--warmup", "0ms", "--keys", "2000", "--connections", "8"];

#[test]
fn a_fill_and_every_workload_run_without_an_error_and_all_nodes_are_told_of() {
    // As many scans as connections: each reserves two pages of every node, out of a sixteenth of this.
    let cluster = Cluster::with(3, &[("KVORUM_MEMORY_BYTES", "256MiB")]);
    let url = cluster.node(0).url();
    assert!(bench(&["fill", "--url", &url, "--size", "200kB"]).contains("1000 keys were read back"));
    assert!(bench(&["fill", "--url", &url, "--size", "200kB"]).starts_with("2000 keys of 100 bytes"));
    for workload in
        ["get", "range", "scan", "ycsb-a", "ycsb-d", "ycsb-e", "ycsb-f", "mixed:put=1,get=2,delete=1", "delete"]
    {
        let dir = cluster.root().join(workload);
        let out = dir.to_str().unwrap();
        bench(&[&["run", "--url", &url, "--workload", workload, "--rate", "300", "--out", out][..], &SHORT].concat());
        let run: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("run.json")).unwrap()).unwrap();
        assert_eq!((&run["errors"], &run["timeouts"]), (&serde_json::json!({}), &serde_json::json!(0)), "{workload}");
        let nodes = run["nodes"].as_array().unwrap();
        let told = nodes.iter().filter(|node| node["source"] == "proc" && node["cpu_us_per_request"].is_f64());
        assert_eq!(told.count(), 3, "{nodes:?}");
    }
}

#[test]
fn batches_are_stored_and_their_operations_are_counted() {
    let cluster = Cluster::start(3);
    let url = cluster.node(0).url();
    let counted = |name: &str| (0..3).map(|node| cluster.metric(node, name)).sum::<f64>();
    assert!(bench(&["fill", "--url", &url, "--keys", "1500"]).contains("1000 keys were read back"));
    // Of 64 keys each, and the one that asks whether there are batches.
    let filled = counted("kvorum_http_batch_operations_total");
    assert!((1501.0..1600.0).contains(&filled), "{filled}");
    let workloads = ["put", "get", "mixed:put=1,get=2,delete=1,insert=1"];
    for workload in workloads {
        let dir = cluster.root().join(workload);
        let to = ["--batch", "16", "--rate", "40", "--keys", "1500", "--out", dir.to_str().unwrap()];
        let what = ["run", "--url", &url, "--workload", workload, "--duration", "1s", "--warmup", "0ms"];
        let text = bench(&[&what[..], &to].concat());
        let run: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("run.json")).unwrap()).unwrap();
        assert_eq!((&run["errors"], &run["timeouts"]), (&serde_json::json!({}), &serde_json::json!(0)), "{text}");
        assert_eq!(run["batch"], 16);
        let requests = run["requests"].as_u64().unwrap();
        let sum = |counts: &serde_json::Value, name: &str| -> u64 {
            let counts = counts.as_object().unwrap().values();
            counts.map(|count| count.as_u64().or(count[name].as_u64()).unwrap()).sum()
        };
        assert!(requests > 0 && run["statuses"]["200"] == requests, "{run}");
        assert_eq!((sum(&run["outcomes"], ""), sum(&run["operations"], "requests")), (requests * 16, requests * 16));
        assert!(run["operation_rate_achieved"].as_f64() > run["rate_achieved"].as_f64().map(|rate| rate * 15.9));
        assert!(text.contains("\nBatches of 16: "), "{text}");
    }
    // Every key of the run that only writes has another value than before: the fill does not know them.
    let again = bench(&["fill", "--url", &url, "--keys", "1500"]);
    assert!(again.starts_with("1500 keys of 100 bytes; 1500 written"), "{again}");
    let refused = kvorum().args(["bench", "run", "--rate", "1", "--batch", "2", "--workload", "ycsb-e"]).output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--batch does not go with this workload"));
}

#[test]
fn nodes_tell_of_their_debt_in_a_soak_and_in_a_search_for_the_sustained_knee() {
    let cluster = Cluster::start(3);
    let url = cluster.node(0).url();
    let out = cluster.root().join("out");
    let json =
        |path: &str| -> serde_json::Value { serde_json::from_slice(&std::fs::read(out.join(path)).unwrap()).unwrap() };
    let load = ["--url", &url, "--objective", "p50=9s", "--warmup", "0ms", "--keys", "2000", "--out"];
    let to = out.to_str().unwrap();
    let text = bench(&[&["soak", "--rate", "200", "--duration", "3s"], &load[..], &[to]].concat());
    assert!(text.contains("Soak: PASSED") && text.contains("Debt, end (most):"), "{text}");
    for node in json("run.json")["nodes"].as_array().unwrap() {
        for name in ["compaction_pending_bytes", "level0_files", "memtables_waiting"] {
            assert!(node["debt"]["last"][name].is_u64() && node["seconds"][0][name].is_u64(), "{name}: {node}");
        }
        assert!(node["debt"]["write_amplification"].is_f64() && node["debt"]["stall_seconds"].is_f64(), "{node}");
    }
    let search = ["knee", "--rate", "200", "--duration", "400ms", "--connections", "8", "--sustained", "2s"];
    // Whatever the machine lets it find: its exit code may be 1.
    let output = kvorum().arg("bench").args(search).args(load).arg(to).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let knee = json("knee.json");
    assert!(knee["sustained_knee"]["probes"].as_array().is_some_and(|probes| !probes.is_empty()), "{text}");
    let rate = &knee["sustained_knee"]["rate"];
    assert_eq!(rate.is_u64(), text.contains("Sustained knee: "), "{text}");
    assert_eq!(rate.is_u64(), out.join("sustained/run.json").is_file(), "{text}");
}

/// Needs root.
#[test]
fn system_calls_are_counted_in_the_warm_up_where_the_kernel_tells() {
    let cluster = Cluster::start(1);
    let out = cluster.root().join("run");
    let args = ["run", "--url", &cluster.node(0).url(), "--rate", "200", "--duration", "1s", "--warmup", "1s"];
    let text = bench(&[&args[..], &["--connections", "4", "--out", out.to_str().unwrap()]].concat());
    let run: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let Some(calls) = run["nodes"][0]["syscalls_per_request"].as_f64() else {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        // Root of a container may be root of its own users alone.
        let is_of_all_users = read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
        let is_root = rustix::thread::capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_ADMIN);
        assert!(!(is_root && is_of_all_users && read("/proc/filesystems").contains("tracefs")), "{text}");
        eprintln!("SKIPPED: to count system calls takes root, or tracefs and CAP_PERFMON");
        return;
    };
    // At least to receive, to write and sync the log, and to send; and not as many as there are in a hundred requests.
    assert!((4.0..400.0).contains(&calls), "{text}");
}

/// Needs root.
#[test]
fn a_node_on_another_machine_is_asked_for_what_a_request_costs_it() {
    let measure = |network: &Network| {
        let mut cluster = Cluster::prepare(1, &[]);
        cluster.place([(network.address(0), network.prefix(0))]);
        cluster.spawn_all();
        cluster.wait_whole();
        let out = cluster.root().join("run");
        let args = ["run", "--url", &cluster.node(0).url(), "--rate", "200", "--out", out.to_str().unwrap()];
        let text = bench(&[&args[..], &["--duration", "3s", "--warmup", "0ms"]].concat());
        let run: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
        let node = &run["nodes"][0];
        assert_eq!(node["source"], "metrics", "{text}");
        for name in ["cpu_us_per_request", "allocated_bytes_per_request", "commits_per_request", "commit_ms"] {
            assert!(node[name].as_f64().is_some_and(|figure| figure > 0.0), "{name}\n{text}");
        }
        // Not of each: a sample may be late, and an answer behind the end.
        let seconds = run["seconds"].as_array().unwrap();
        assert!(seconds.iter().any(|second| second["slow_commits"].is_u64()), "{run}");
        assert!(node["resident_bytes_max"].as_f64().is_some_and(|bytes| bytes > 1e6), "{text}");
        for name in ["syscalls_per_request", "sleeps_per_request", "disk_read_bytes_per_request"] {
            assert!(node[name].is_null(), "only its own machine shows that: {name}\n{text}");
        }
    };
    match Network::build(1) {
        Ok(network) => network.inside(|| measure(&network)),
        Err(why) => eprintln!("SKIPPED: a node with a network of its own needs root: {why}"),
    }
}

#[test]
fn the_process_tells_its_processor_time_and_memory() {
    let cluster = Cluster::start(1);
    assert!(cluster.metric(0, "process_cpu_seconds_total") > 0.0);
    assert!(cluster.metric(0, "process_resident_memory_bytes") > 1e6);
}

#[test]
fn a_comparison_that_is_interrupted_while_a_server_starts_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let command = format!("touch {}; exec sleep 600", started.display());
    let url = format!("http://127.0.0.1:{}", free_port());
    let mut bench = kvorum();
    bench.args(["bench", "compare", &command, &command, "--url", &url, "--rate", "300"]);
    let mut bench = bench.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the server starts", || started.exists());
    let pid = Pid::from_raw(i32::try_from(bench.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let status = wait_for("the comparison ends", || bench.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let text = std::io::read_to_string(bench.stdout.take().unwrap()).unwrap();
    assert_eq!(text, "Interrupted before the first pair was whole\n");
}

#[test]
fn commands_are_started_filled_and_stopped_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let (port, binary) = (free_port(), kvorum().get_program().to_string_lossy().into_owned());
    let command = |name: &str| {
        let data = dir.path().join(name);
        // A shell that stays, as it does where variables are set.
        format!("A=1 {binary} serve --listen 127.0.0.1:{port} --data-dir {} 2>&1; true", data.display())
    };
    let url = format!("http://127.0.0.1:{port}");
    let sides = [command("a"), command("b")];
    let args = ["compare", &sides[0], &sides[1], "--url", &url, "--workload", "get", "--rate", "300", "--pairs", "2"];
    let text = bench(&[&args[..], &SHORT].concat());
    for turn in ["A1: ", "B1: ", "A2: ", "B2: "] {
        let line = text.lines().find(|line| line.starts_with(turn)).unwrap_or_else(|| panic!("no {turn} in {text}"));
        assert!(line.ends_with(" 0 errors"), "{line}");
    }
    assert!(text.contains("too little to compare"), "{text}");
    // Or it says in how many runs a sample came so late that a part of what requests cost is missing.
    let is_told = text.lines().any(|line| line.starts_with("cpu ") || line.contains(": cpu is not compared"));
    assert!(is_told, "what a request cost the nodes: {text}");
    assert!(dir.path().join("a").is_dir() && dir.path().join("b").is_dir(), "each kept its own data");
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "the last one was stopped too");
}
