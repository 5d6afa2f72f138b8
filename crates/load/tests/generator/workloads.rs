//! What is sent, and what a run counts of it.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kvorum_load::Error;
use kvorum_load::fill::{Filled, fill};
use kvorum_load::record::RequestFailure;
use kvorum_load::report::{Document, Spectrum, text};
use kvorum_load::run::{Rate, RunPlan, run};
use kvorum_load::workload::{ClientOperation, KeyOrder};

use crate::support::{Reply, Server, answer, go, go_until, millis, plan, scanned, serve, store};

fn fill_now(plan: &RunPlan) -> Result<Filled, Error> {
    fill(plan, &Arc::new(AtomicBool::new(false)), &mut |_| {})
}

#[test]
fn an_open_loop_sends_what_is_due_and_nothing_else() {
    let (store, server) = store();
    let outcome = go(&RunPlan { warmup: millis(0), threads: 3, ..plan(&server.url, "put") });
    let tally = &outcome.tally;
    assert_eq!(tally.requests() + tally.unsent, 500);
    assert_eq!(store.puts.load(Ordering::SeqCst), tally.requests());
    assert_eq!(tally.statuses.get(&201), Some(&tally.requests()));
    assert_eq!(tally.latency.len(), tally.requests());
    assert_eq!(outcome.seconds.iter().map(|second| second.requests).sum::<u64>(), tally.requests());
}

#[test]
fn the_warm_up_is_not_counted() {
    let (store, server) = store();
    let outcome = go(&RunPlan { warmup: millis(500), ..plan(&server.url, "put") });
    assert_eq!(outcome.tally.requests() + outcome.tally.unsent, 500);
    assert!(store.puts.load(Ordering::SeqCst) > outcome.tally.requests());
}

#[test]
fn a_closed_loop_sends_as_answers_come_also_in_pipelines() {
    for (pipeline, threads) in [(1, 1), (16, 2)] {
        let (store, server) = store();
        let plan = RunPlan { rate: Rate::Max, pipeline, threads, duration: millis(300), ..plan(&server.url, "put") };
        let outcome = go(&plan);
        assert!(outcome.tally.requests() > 0 && outcome.tally.error_count() == 0, "{:?}", outcome.tally.failures);
        assert!(outcome.tally.requests() <= store.puts.load(Ordering::SeqCst));
        assert_eq!((outcome.tally.unsent, outcome.tally.late_sends), (0, 0));
    }
}

#[test]
fn a_closed_loop_counts_what_is_answered_in_its_time_whenever_it_was_sent() {
    let (asked, measures) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let begun = measures.clone();
    // Each connection's first answer comes when the warm-up is over, and its second never.
    let server = Server::start(move |_| {
        if asked.fetch_add(1, Ordering::SeqCst) >= 8 {
            return Reply::Silence;
        }
        while !begun.load(Ordering::SeqCst) {
            std::thread::sleep(millis(1));
        }
        answer(200, b"")
    });
    let times =
        RunPlan { warmup: millis(200), duration: millis(2000), timeout: millis(3000), ..plan(&server.url, "get") };
    let outcome = run(&RunPlan { rate: Rate::Max, ..times }, &Arc::default(), &mut |now| {
        measures.store(now.elapsed > millis(300), Ordering::SeqCst);
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.tally.latency.len(), outcome.tally.timeouts), (8, 8));
}

#[test]
fn every_workload_sends_its_operations_and_nothing_fails() {
    let (store, server) = store();
    fill_now(&plan(&server.url, "put")).unwrap();
    let workloads = ["get", "range", "scan", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"];
    for workload in workloads.into_iter().chain(["mixed:put=1,get=2,delete=1,range=1,scan=1", "delete"]) {
        let outcome = go(&RunPlan { duration: millis(300), ..plan(&server.url, workload) });
        let refused = &outcome.tally.refused;
        assert!(outcome.tally.latency.len() > 20 && refused.is_empty(), "{workload}: {refused:?}");
        assert!(outcome.tally.failures.is_empty() && outcome.tally.timeouts == 0, "{workload}");
    }
    let counts = [&store.puts, &store.gets, &store.deletes, &store.ranges, &store.scans];
    let counts = counts.map(|count| count.load(Ordering::SeqCst));
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn a_read_and_write_is_two_requests_and_one_operation() {
    let (store, server) = store();
    fill_now(&plan(&server.url, "put")).unwrap();
    let (gets, puts) = (store.gets.load(Ordering::SeqCst), store.puts.load(Ordering::SeqCst));
    let outcome = go(&RunPlan { warmup: millis(0), ..plan(&server.url, "mixed:modify=1") });
    let operations = outcome.tally.operations[&ClientOperation::Modify].len();
    assert_eq!(operations + outcome.tally.unsent, 500);
    assert_eq!(store.gets.load(Ordering::SeqCst) - gets, operations);
    assert_eq!(store.puts.load(Ordering::SeqCst) - puts, operations);
    assert_eq!((outcome.tally.statuses[&200], outcome.tally.statuses[&201]), (operations, operations));
}

#[test]
fn a_scan_without_its_trailer_is_an_error() {
    let asked = AtomicU64::new(0);
    let server = Server::start(move |request| {
        if request.method == "PUT" {
            return answer(201, b"");
        }
        let answers: [&[(u8, &[u8])]; 3] = [&[(1, b"a"), (3, b"x")], &[(1, b"a")], &[]];
        scanned(answers[usize::try_from(asked.fetch_add(1, Ordering::SeqCst)).unwrap() % 3])
    });
    let plan = RunPlan { connections: 1, warmup: millis(0), ..plan(&server.url, "mixed:scan=2,put=1") };
    let outcome = go(&plan);
    let tally = &outcome.tally;
    let [scans, puts] =
        [ClientOperation::Scan, ClientOperation::Put].map(|operation| tally.operations[&operation].len());
    let broken = tally.failures[&RequestFailure::NoTrailer];
    assert!(puts > 0 && scans > 10 && broken.abs_diff(2 * scans) <= 2, "{puts} {scans} {broken}");
    assert_eq!((tally.failures.len(), tally.requests()), (1, puts + scans + broken));
    let text = text(&plan, &outcome, &Document::new(&plan, &outcome), Spectrum::Hidden);
    assert!(text.contains(&format!("Scans that ended without a trailer: {broken}\n")), "{text}");
}

#[test]
fn targets_take_turns() {
    let servers = [store(), store(), store()];
    let urls: Vec<&str> = servers.iter().map(|(_, server)| server.url.as_str()).collect();
    go(&RunPlan { connections: 6, ..plan(&urls.join(","), "put") });
    let puts: Vec<u64> = servers.iter().map(|(store, _)| store.puts.load(Ordering::SeqCst)).collect();
    assert!(puts.iter().all(|count| *count > 50), "{puts:?}");
}

#[test]
fn a_fill_writes_every_key_and_goes_on_where_it_was() {
    let (store, server) = store();
    let plan = RunPlan { keys: 250_000, connections: 16, pipeline: 64, ..plan(&server.url, "put") };
    let part = fill_now(&RunPlan { keys: 150_000, ..plan.clone() }).unwrap();
    assert_eq!(part, Filled { keys: 150_000, from: 0, sampled: 1000, interrupted: false });
    let whole = fill_now(&plan).unwrap();
    assert_eq!(whole, Filled { keys: 250_000, from: 100_000, sampled: 1000, interrupted: false });
    assert_eq!(store.values.lock().unwrap().len(), 250_000);
    let puts = store.puts.load(Ordering::SeqCst);
    assert!(puts < 350_000, "the first 100,000 were not written again: {puts}");
}

#[test]
fn a_fill_that_finds_others_keys_begins_anew() {
    let (store, server) = store();
    let plan = RunPlan { keys: 2500, value_size: "64KiB".parse().unwrap(), ..plan(&server.url, "put") };
    fill_now(&plan).unwrap();
    // The last stage's first key is there; most of what should be before it is not.
    store.values.lock().unwrap().retain(|key, _| key.as_str() >= "key00001000");
    let filled = fill_now(&plan).unwrap();
    assert_eq!((filled.from, store.values.lock().unwrap().len()), (0, 2500));
}

#[test]
fn a_fill_that_cannot_go_on_does_not_begin_anew() {
    #[derive(Default)]
    struct Full {
        store: crate::support::Store,
        is_full: AtomicBool,
        busy: AtomicU64,
        again: AtomicU64,
    }
    let full = Arc::new(Full::default());
    let shared = full.clone();
    let server = Server::start(move |request| {
        let is_get = request.method == "GET";
        if is_get && shared.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return answer(503, b"");
        }
        if is_get || !shared.is_full.load(Ordering::SeqCst) {
            return shared.store.handle(request);
        }
        let is_old = request.path.rsplit('=').next().unwrap() < "key00001024";
        shared.again.fetch_add(u64::from(is_old), Ordering::SeqCst);
        answer(507, b"")
    });
    let plan = RunPlan { keys: 1100, value_size: "64KiB".parse().unwrap(), ..plan(&server.url, "put") };
    fill_now(&plan).unwrap();
    full.is_full.store(true, Ordering::SeqCst);
    // Nor does it take a store that is not ready yet for an empty one.
    full.busy.store(2, Ordering::SeqCst);
    let error = fill_now(&RunPlan { keys: 1200, ..plan }).unwrap_err().to_string();
    assert!(error.contains("could not be written") && error.contains("507"), "{error}");
    assert_eq!(full.again.load(Ordering::SeqCst), 0, "its first stage is whole");
}

#[test]
fn a_fill_does_not_take_what_a_run_wrote_for_its_own() {
    let (store, server) = store();
    let plan = RunPlan { keys: 2500, value_size: "64KiB".parse().unwrap(), ..plan(&server.url, "put") };
    // The last two of its three stages, and not the first.
    let order = Some(KeyOrder::Sequential);
    let run = RunPlan { first_key: 1000, keys: 1500, key_order: order, duration: millis(600_000), ..plan.clone() };
    go_until(&RunPlan { rate: Rate::Max, ..run }, || store.values.lock().unwrap().len() == 1500);
    let filled = fill_now(&plan).unwrap();
    assert_eq!((filled.from, store.values.lock().unwrap().len()), (0, 2500));
}

#[test]
fn a_fill_writes_again_what_was_refused_and_gives_up_in_the_end() {
    let (store, refusals) = (Arc::new(crate::support::Store::default()), Arc::new(AtomicU64::new(0)));
    let kept = store.clone();
    let server = Server::start(move |request| {
        let busy = request.method == "PUT" && refusals.fetch_add(1, Ordering::SeqCst) % 10 == 0;
        if busy { answer(503, b"") } else { kept.handle(request) }
    });
    let filled = fill_now(&RunPlan { keys: 2000, ..plan(&server.url, "put") }).unwrap();
    assert_eq!((filled.keys, store.values.lock().unwrap().len()), (2000, 2000));
    let refusing = Server::start(|request| answer(if request.method == "GET" { 404 } else { 503 }, b""));
    let error = fill_now(&RunPlan { keys: 10, ..plan(&refusing.url, "put") }).unwrap_err().to_string();
    assert!(error.contains("10 keys could not be written") && error.contains("503"), "{error}");
}

#[test]
fn a_fill_whose_target_goes_away_or_falls_silent_ends_and_says_so() {
    let silent = Arc::new(AtomicBool::new(false));
    let (falls_silent, counted) = (silent.clone(), Arc::new(crate::support::Store::default()));
    let kept = counted.clone();
    let mute = Server::start(
        move |request| {
            if falls_silent.load(Ordering::SeqCst) { Reply::Silence } else { kept.handle(request) }
        },
    );
    let (dying, dies) = store();
    let ways: [(&str, &crate::support::Store, &dyn Fn()); 2] =
        [(&mute.url, &counted, &|| silent.store(true, Ordering::SeqCst)), (&dies.url, &dying, &|| dies.die())];
    for (url, counted, fail) in ways {
        let (stop, begin) = (Arc::new(AtomicBool::new(false)), std::time::Instant::now());
        let plan = RunPlan { keys: 1_000_000, timeout: millis(100), ..plan(url, "put") };
        let ended = fill(&plan, &stop, &mut |_| {
            if counted.puts.load(Ordering::SeqCst) > 100 {
                fail();
            }
            // If it does not end by itself it fails here, and not in a day.
            stop.store(begin.elapsed() > millis(60_000), Ordering::SeqCst);
        });
        assert!(matches!(ended, Err(kvorum_load::Error::Unreachable { .. })), "{ended:?}");
    }
}

#[test]
fn a_fill_that_reads_back_is_interrupted() {
    let (store, stop) = (Arc::new(crate::support::Store::default()), Arc::new(AtomicBool::new(false)));
    let (kept, stops) = (store.clone(), stop.clone());
    let server = Server::start(move |request| {
        // The first look, before anything is written, is a GET, too.
        stops.fetch_or(request.method == "GET" && kept.puts.load(Ordering::SeqCst) > 0, Ordering::SeqCst);
        kept.handle(request)
    });
    let filled = fill(&RunPlan { keys: 500, ..plan(&server.url, "put") }, &stop, &mut |_| {}).unwrap();
    assert_eq!(filled, Filled { keys: 500, from: 0, sampled: 1, interrupted: true });
}

#[test]
fn a_fill_whose_reads_are_refused_is_interrupted() {
    let (reads, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, stops) = (reads.clone(), stop.clone());
    let server = Server::start(move |request| {
        counted.fetch_add(u64::from(request.method == "GET"), Ordering::SeqCst);
        stops.store(true, Ordering::SeqCst);
        answer(503, b"")
    });
    let filled = fill(&RunPlan { keys: 500, ..plan(&server.url, "put") }, &stop, &mut |_| {}).unwrap();
    assert_eq!(filled, Filled { keys: 0, from: 0, sampled: 0, interrupted: true });
    assert_eq!(reads.load(Ordering::SeqCst), 1, "reads after it was stopped");
}

#[test]
fn a_fill_that_waits_for_its_connections_is_interrupted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        // The next connection waits to be taken, and there is no room for more.
        rustix::net::listen(&listener, 0).unwrap();
        serve(stream, &|_| answer(404, b""));
    });
    let (stop, begin) = (Arc::new(AtomicBool::new(false)), std::time::Instant::now());
    let plan = RunPlan { timeout: millis(60_000), ..plan(&url, "put") };
    let filled = fill(&plan, &stop, &mut |_| stop.store(true, Ordering::SeqCst)).unwrap();
    assert!(filled.interrupted && begin.elapsed() < millis(30_000), "{:?}", begin.elapsed());
}

/// As servers do that begin an answer before its length is known.
fn chunked(status: u16, body: &[u8]) -> Reply {
    let mut bytes = format!("HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in body.chunks(1000) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        bytes.extend(chunk.iter().chain(b"\r\n"));
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    Reply::Bytes(bytes)
}

#[test]
fn a_store_whose_answers_have_no_lengths_is_filled() {
    let values = Mutex::new(BTreeMap::new());
    let server = Server::start(move |request| {
        let mut values = values.lock().unwrap();
        if request.method == "PUT" {
            values.insert(request.path.clone(), request.body.clone());
            return Reply::Bytes(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
        }
        values.get(&request.path).map_or_else(|| chunked(404, b""), |value| chunked(200, value))
    });
    let (api, value_size) = ("/kv/{key}".parse().unwrap(), "4KiB".parse().unwrap());
    let filled = fill_now(&RunPlan { api, value_size, ..plan(&server.url, "put") }).unwrap();
    assert_eq!((filled.keys, filled.sampled), (100, 100));
}

#[test]
fn a_fill_notices_a_store_that_does_not_keep_what_it_takes() {
    let server = Server::start(|request| answer(if request.method == "GET" { 404 } else { 201 }, b""));
    let error = fill_now(&RunPlan { keys: 10, ..plan(&server.url, "put") }).unwrap_err().to_string();
    assert!(error.contains("not read back"), "{error}");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let url = "http://127.0.0.1:1";
    for bad in [
        RunPlan { threads: 9, ..plan(url, "put") },
        RunPlan { connections: 1, ..plan("http://127.0.0.1:1,http://127.0.0.1:2", "put") },
        RunPlan { keys: 0, ..plan(url, "put") },
        RunPlan { keys: 200_000_000, ..plan(url, "put") },
        RunPlan { api: "/kv/{key}".parse().unwrap(), ..plan(url, "ycsb-e") },
        RunPlan { targets: Vec::new(), ..plan(url, "put") },
        RunPlan { batch: 0, ..plan(url, "put") },
        RunPlan { batch: 1001, keys: 2000, ..plan(url, "put") },
        RunPlan { batch: 101, ..plan(url, "put") },
        RunPlan { batch: 2, ..plan(url, "ycsb-e") },
        RunPlan { batch: 2, ..plan(url, "ycsb-f") },
        RunPlan { batch: 2, api: "/kv/{key}".parse().unwrap(), ..plan(url, "put") },
        RunPlan { batch: 5, value_size: "1MiB".parse().unwrap(), ..plan(url, "put") },
    ] {
        assert!(matches!(bad.check(), Err(Error::Usage(_))), "{bad:?}");
    }
}
