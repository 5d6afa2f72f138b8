//! Runs and fills whose requests are batches.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_load::fill::{FILL_BATCH, Filled, fill};
use kvorum_load::record::RequestFailure;
use kvorum_load::report::{Document, Spectrum, text};
use kvorum_load::run::{Rate, RunPlan};
use kvorum_load::workload::{ClientOperation, KeyOrder};

use crate::support::{Reply, Server, Store, answer, go, millis, operations, outcome, plan, store};

fn batches(url: &str, workload: &str) -> RunPlan {
    let rate = Rate::PerSecond(100);
    RunPlan { batch: 16, rate, duration: millis(500), warmup: millis(0), ..plan(url, workload) }
}

fn fill_now(plan: &RunPlan) -> Result<Filled, kvorum_load::Error> {
    fill(&RunPlan { batch: FILL_BATCH, ..plan.clone() }, &Arc::new(AtomicBool::new(false)), &mut |_| {})
}

#[test]
fn a_batch_is_one_request_and_its_operations_are_counted_apart() {
    let (store, server) = store();
    let plan = batches(&server.url, "mixed:put=1,get=1,delete=1,insert=1");
    for (rate, pipeline) in [(plan.rate, 1), (Rate::Max, 4)] {
        let plan = RunPlan { rate, pipeline, ..plan.clone() };
        let sent = store.batches.load(Ordering::SeqCst);
        let outcome = go(&plan);
        let (tally, requests) = (&outcome.tally, outcome.tally.requests());
        assert!(requests > 0 && tally.error_count() + tally.timeouts == 0, "{:?}", tally.refused);
        assert!(rate == Rate::Max || requests + tally.unsent == 50, "{requests}");
        assert!(store.batches.load(Ordering::SeqCst) - sent >= requests);
        assert_eq!(tally.statuses.values().sum::<u64>(), requests);
        assert_eq!(tally.outcomes.values().sum::<u64>(), requests * 16);
        assert_eq!(tally.operations_in_time, tally.in_time * 16);
        assert_eq!(tally.operations.values().map(|one| one.len()).sum::<u64>(), requests * 16);
        assert_eq!(tally.operations[&ClientOperation::Delete].len(), tally.outcomes[&202]);
        assert_eq!(outcome.seconds.iter().map(|second| second.requests).sum::<u64>(), requests);
        let document = Document::new(&plan, &outcome);
        assert!((document.operation_rate_achieved - document.rate_achieved * 16.0).abs() < 1e-6);
        assert_eq!((document.batch, document.outcomes["202"]), (16, tally.outcomes[&202]));
        let text = text(&plan, &outcome, &document, Spectrum::Hidden);
        let line = format!("Batches of 16: {:.2} operations/sec; outcomes 200: ", document.operation_rate_achieved);
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn a_batch_asks_for_answers_and_replicas_in_its_query() {
    let server = Server::start(|request| {
        let outcomes: Vec<_> = operations(&request.body).iter().flat_map(|_| outcome(201, b"")).collect();
        answer(if request.path == "/v0/batch?ack=2&from=3" { 200 } else { 400 }, &outcomes)
    });
    let outcome = go(&RunPlan { ack: Some(2), from: Some(3), ..batches(&server.url, "put") });
    assert!(outcome.tally.in_time > 0 && outcome.tally.refused.is_empty(), "{:?}", outcome.tally.refused);
}

#[test]
fn a_batch_fails_with_the_first_of_its_operations_that_does() {
    let server = Server::start(|request| {
        let statuses = [201, 404, 504, 201, 503].into_iter().chain(std::iter::repeat(200));
        let outcomes = operations(&request.body).into_iter().zip(statuses);
        answer(200, &outcomes.flat_map(|(_, status)| outcome(status, b"")).collect::<Vec<_>>())
    });
    for (workload, status, well) in [("put", 404, 13), ("mixed:get=1,delete=1", 504, 14)] {
        let tally = go(&batches(&server.url, workload)).tally;
        let requests = tally.requests();
        assert_eq!(tally.refused.iter().collect::<Vec<_>>(), [(&status, &requests)], "{workload}");
        assert_eq!((tally.latency.len(), tally.refusal.len()), (0, requests));
        assert_eq!((tally.outcomes[&201], tally.outcomes[&504]), (requests * 2, requests));
        assert_eq!(tally.operations_in_time, requests * well, "single ones that were carried out count");
    }
}

#[test]
fn a_key_that_is_not_there_fails_its_batch_unless_keys_are_deleted() {
    let (_store, server) = store();
    let tally = go(&batches(&server.url, "get")).tally;
    assert_eq!((tally.refused[&404], tally.outcomes[&404]), (tally.requests(), tally.requests() * 16));
    assert!(go(&batches(&server.url, "mixed:get=1,delete=1")).tally.refused.is_empty());
}

#[test]
fn a_batch_that_is_refused_as_a_whole_has_no_outcomes() {
    for status in [404, 413, 503] {
        let server = Server::start(move |_| answer(status, b"{}"));
        let outcome = go(&batches(&server.url, "mixed:get=1,delete=1"));
        let tally = &outcome.tally;
        assert_eq!(tally.refused[&status], tally.requests());
        assert!(tally.outcomes.is_empty() && tally.operations.is_empty(), "{:?}", tally.outcomes);
        let shed = outcome.seconds.iter().map(|second| second.shed).sum::<u64>();
        assert_eq!(shed, if status == 503 { tally.requests() } else { 0 });
    }
}

#[test]
fn an_answer_without_an_outcome_for_each_operation_is_malformed() {
    let one = outcome(201, b"");
    for body in [one.repeat(15), one.repeat(17), one.repeat(16)[1..].to_vec(), b"ok".to_vec(), Vec::new()] {
        let (answers, whole) = (AtomicU64::new(0), one.repeat(16));
        // Only the first: the connection is as good as before.
        let server = Server::start(move |_| {
            let is_first = answers.fetch_add(1, Ordering::SeqCst) == 0;
            answer(200, if is_first { &body } else { &whole })
        });
        let tally = go(&RunPlan { connections: 1, ..batches(&server.url, "put") }).tally;
        assert_eq!(tally.failures.iter().collect::<Vec<_>>(), [(&RequestFailure::Protocol, &1)]);
        assert_eq!(tally.latency.len() + 1, tally.requests());
        assert_eq!(tally.outcomes[&201], tally.latency.len() * 16);
    }
}

#[test]
fn a_run_ends_after_so_many_operations_the_last_batch_is_smaller() {
    let (store, server) = store();
    let key_order = Some(KeyOrder::Sequential);
    let plan = RunPlan { operations_max: Some(100), key_order, threads: 2, ..batches(&server.url, "put") };
    let outcome = go(&RunPlan { rate: Rate::Max, ..plan });
    let written = outcome.tally.operations[&ClientOperation::Put].len();
    assert_eq!((outcome.done, written, outcome.tally.requests()), (100, 100, 8));
    assert_eq!((store.values.lock().unwrap().len(), outcome.failed_keys), (100, Vec::new()));
}

#[test]
fn all_keys_of_a_failed_batch_have_failed_also_where_it_was_lost() {
    for way in [Reply::Close, answer(503, b""), answer(200, &outcome(201, b"").repeat(9))] {
        let server = Server::start(move |_| way.clone());
        let plan = RunPlan { operations_max: Some(40), pipeline: 3, ..batches(&server.url, "put") };
        let mut failed = go(&RunPlan { rate: Rate::Max, key_order: Some(KeyOrder::Sequential), ..plan }).failed_keys;
        failed.sort_unstable();
        assert_eq!(failed, (0..40).collect::<Vec<_>>());
    }
}

#[test]
fn a_fill_writes_batches() {
    let (store, server) = store();
    let mut progress = Vec::new();
    let plan = RunPlan { keys: 3010, batch: FILL_BATCH, threads: 2, ..plan(&server.url, "put") };
    let filled = fill(&plan, &Arc::default(), &mut |keys| progress.push(keys)).unwrap();
    assert_eq!(filled, Filled { keys: 3010, from: 0, sampled: 1000, interrupted: false });
    assert_eq!((progress.last(), store.values.lock().unwrap().len()), (Some(&3010), 3010));
    // Of two threads 24 each, and the one that asks whether there are batches.
    assert_eq!((store.puts.load(Ordering::SeqCst), store.batches.load(Ordering::SeqCst)), (0, 49));
    fill_now(&RunPlan { keys: 10, ..plan }).unwrap();
}

#[test]
fn a_fills_batches_have_fewer_keys_where_values_are_large() {
    for (value_size, most) in [("1..100KiB", 40), ("1MiB", 4), ("5MiB", 1)] {
        let (store, server) = store();
        let plan = RunPlan { keys: 50, connections: 1, ..plan(&server.url, "put") };
        fill_now(&RunPlan { value_size: value_size.parse().unwrap(), ..plan }).unwrap();
        let batched = store.batched_max.load(Ordering::SeqCst);
        assert_eq!(batched.max(1), most, "{value_size}");
        assert_eq!(store.puts.load(Ordering::SeqCst), if most == 1 { 50 } else { 0 });
    }
}

#[test]
fn a_fill_writes_again_the_keys_of_batches_that_were_refused() {
    let (store, writes) = (Arc::new(Store::default()), AtomicU64::new(0));
    let kept = store.clone();
    let server = Server::start(move |request| {
        let is_write = request.method == "POST" && operations(&request.body).iter().any(|(op, ..)| *op == 1);
        match writes.fetch_add(u64::from(is_write), Ordering::SeqCst) % 5 {
            0 if is_write => answer(503, b""),
            // One of its keys is not written.
            1 if is_write => {
                let statuses = (0..operations(&request.body).len()).map(|at| if at == 0 { 504 } else { 201 });
                answer(200, &statuses.flat_map(|status| outcome(status, b"")).collect::<Vec<_>>())
            }
            _ => kept.handle(request),
        }
    });
    let filled = fill_now(&RunPlan { keys: 2000, ..plan(&server.url, "put") }).unwrap();
    assert_eq!((filled.keys, store.values.lock().unwrap().len()), (2000, 2000));
}

#[test]
fn a_fill_goes_without_batches_where_one_target_does_not_know_them() {
    for status in [200, 201, 400, 404, 405] {
        let (old, new) = (Arc::new(Store::default()), Arc::new(Store::default()));
        let (kept, shared) = (old.clone(), old.clone());
        let without =
            Server::start(
                move |request| {
                    if request.method == "POST" { answer(status, b"ok") } else { kept.handle(request) }
                },
            );
        let counted = new.clone();
        // The two are one store.
        let with =
            Server::start(
                move |request| {
                    if request.method == "POST" { counted.handle(request) } else { shared.handle(request) }
                },
            );
        for urls in [[&with.url, &without.url], [&without.url, &with.url]] {
            let urls = urls.map(String::as_str).join(",");
            assert_eq!(fill_now(&plan(&urls, "put")).unwrap().keys, 100);
            old.values.lock().unwrap().clear();
        }
        assert_eq!(old.puts.load(Ordering::SeqCst), 200, "{status}");
        assert!(new.batched_max.load(Ordering::SeqCst) <= 1);
    }
}

#[test]
fn a_fill_of_another_store_asks_for_no_batches() {
    let asked = Arc::new(AtomicU64::new(0));
    let (posts, store) = (asked.clone(), Store::default());
    let server = Server::start(move |request| {
        posts.fetch_add(u64::from(request.method == "POST"), Ordering::SeqCst);
        let path = request.path.replace("/kv/", "/v0/entity?id=");
        store.handle(&crate::support::Request { path, ..request.clone() })
    });
    let filled = fill_now(&RunPlan { api: "/kv/{key}".parse().unwrap(), ..plan(&server.url, "put") });
    assert_eq!((filled.unwrap().keys, asked.load(Ordering::SeqCst)), (100, 0));
}
