//! The method: what an open loop shows that a closed one hides, and whose fault lateness is.

#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kvorum_load::knee::Probe;
use kvorum_load::report::{Document, Percentiles, Spectrum, text};
use kvorum_load::run::{Rate, RunOutcome, RunPlan};

use crate::support::{Server, answer, go, millis, plan};

const STALL: Duration = Duration::from_millis(100);

/// Stops for 100 ms once a second, all connections at once.
fn stalling() -> Server {
    let begin = Instant::now();
    let stalled = Mutex::new(0);
    Server::start(move |_| {
        let mut last = stalled.lock().unwrap();
        if begin.elapsed().as_secs() > *last {
            *last = begin.elapsed().as_secs();
            while begin.elapsed() < Duration::from_secs(*last) + STALL {
                thread::sleep(STALL / 10);
            }
        }
        answer(200, b"")
    })
}

/// The closed loop sends two requests into each stall, whatever it could have sent; the open loop all that are due.
#[test]
fn a_stall_shows_in_the_p99_of_the_open_loop_and_not_of_the_closed_one() {
    let server = stalling();
    let base = RunPlan { duration: millis(4000), connections: 2, ..plan(&server.url, "get") };
    let open = go(&RunPlan { rate: Rate::PerSecond(500), ..base.clone() });
    let closed = go(&RunPlan { rate: Rate::Max, ..base });
    let (open, closed) = (open.tally, closed.tally);
    // A tenth of the requests are due during a stall, and wait for half of it on average.
    let seen = Percentiles::of(&open.latency).p99;
    assert!(seen >= 70.0, "{:?}", Percentiles::of(&open.latency));
    assert!(open.late_sends > 50, "{}", open.late_sends);
    let closed = Percentiles::of(&closed.latency);
    assert!(closed.max >= 70.0, "the stall was there: {closed:?}");
    assert!(closed.p99 < seen / 2.0, "{closed:?}, and the open loop's {seen}");
    // The very same open loop, with time from the send: the omission itself.
    assert!(Percentiles::of(&open.service).p99 < seen / 2.0, "{:?}", Percentiles::of(&open.service));
}

/// How fast either is, `bench/agreement` compares; here, whether both count what the server has counted.
#[test]
fn wrk_and_the_generator_count_what_the_server_counts() {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let server = Server::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        answer(200, b"")
    });
    let plan = RunPlan { rate: Rate::Max, warmup: millis(0), ..plan(&server.url, "get") };
    let ours = go(&plan).tally.requests();
    let missing = count.swap(0, Ordering::SeqCst) - ours;
    assert!(missing <= 8, "what is under way at its end is left out: {missing}");
    let wrk = Command::new("wrk").args(["-t1", "-c8", "-d1s", &server.url]).output();
    let Ok(wrk) = wrk else {
        eprintln!("SKIPPED: wrk is not installed (apt install wrk)");
        return;
    };
    let text = String::from_utf8(wrk.stdout).unwrap();
    let requests = text.lines().find_map(|line| line.trim().split_once(" requests in ")).unwrap().0;
    let missing = count.load(Ordering::SeqCst) - requests.parse::<u64>().unwrap();
    assert!(missing <= 8, "wrk leaves out what is under way at its end: {missing}\n{text}");
}

#[test]
fn lateness_is_the_targets_fault_while_all_connections_are_busy() {
    let server = Server::start(|_| {
        let until = Instant::now() + millis(50);
        while Instant::now() < until {
            thread::sleep(millis(10));
        }
        answer(200, b"")
    });
    let plan = RunPlan { connections: 2, warmup: millis(0), ..plan(&server.url, "get") };
    let outcome = go(&plan);
    let document = Document::new(&plan, &outcome);
    assert!(document.unsent > 300 && document.late_sends > 10, "{} {}", document.unsent, document.late_sends);
    assert!(document.generator.lag_ms.p50 < 20.0, "{:?}", document.generator.lag_ms);
    assert_eq!(document.generator.limit, None, "though it may be late by itself now and then");
    let text = text(&plan, &outcome, &document, Spectrum::Shown);
    assert!(text.contains(&format!("{} never sent in time", document.unsent)), "{text}");
}

/// A run by a generator that others keep from the processors, and its target not: whatever else the machine does, the
/// target has answered before the generator is back, so it never waits for answers.
fn go_starved(plan: &RunPlan) -> RunOutcome {
    let lower = |nice| rustix::process::setpriority_process(None, nice).unwrap();
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(move || {
                lower(10);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Of this thread, and of those that it starts.
        let run = scope.spawn(move || {
            lower(19);
            go(plan)
        });
        let outcome = run.join();
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap()
    })
}

#[test]
fn a_rate_that_cannot_be_driven_is_the_generators_fault() {
    let server = Server::start(|_| answer(200, b""));
    // A generator that is kept waiting makes its connections late, and takes answers late. Given up, they would have it
    // wait for new ones.
    let timeout = Duration::from_secs(60);
    let rate = Rate::PerSecond(10_000_000);
    let plan = RunPlan { rate, connections: 2000, pipeline: 8, timeout, ..plan(&server.url, "get") };
    let outcome = go_starved(&plan);
    let document = Document::new(&plan, &outcome);
    assert!(document.unsent > 1_000_000, "{}", document.unsent);
    let generator = &document.generator;
    let why = generator.limit.clone().unwrap_or_else(|| panic!("the generator does not say so: {generator:?}"));
    let text = text(&plan, &outcome, &document, Spectrum::Hidden);
    assert!(text.contains("The GENERATOR is the limit") && text.contains(&why), "{text}");
}

#[test]
fn a_rate_that_is_missed_by_the_generators_own_lateness_is_its_fault() {
    let server = Server::start(|_| answer(200, b""));
    let plan = RunPlan { rate: Rate::PerSecond(100), ..plan(&server.url, "get") };
    let mut outcome = go(&plan);
    (outcome.tally.unsent, outcome.stolen_share) = (0, None);
    // What the machine did meanwhile is not of this.
    outcome.tally.latency.reset();
    outcome.tally.lag.reset();
    outcome.tally.late_sends = 90;
    let probe = |outcome: &RunOutcome| Probe::of(100, &Document::new(&plan, outcome), &"p99=50ms".parse().unwrap());
    outcome.tally.latency.record_n(60_000, 10).unwrap();
    // 2 ms of these 60 are the generator's.
    outcome.tally.lag.record_n(2_000, 10).unwrap();
    let late = probe(&outcome);
    assert!(late.missed.is_some() && late.generator_limit.is_none(), "{late:?}");
    // Nor are they why others were never sent: all connections waited for the target.
    outcome.tally.unsent = 90;
    assert_eq!(probe(&outcome).generator_limit, None);
    outcome.tally.unsent = 0;
    outcome.tally.lag.record_n(58_000, 10).unwrap();
    let late = probe(&outcome);
    assert!(late.line().ends_with("(the generator is the limit)"), "{}", late.line());
    assert!(late.generator_limit.is_some_and(|why| why.contains("58.")), "it says how late");
    // A target that also refuses fails by itself.
    outcome.tally.refused.insert(503, 1);
    assert_eq!(probe(&outcome).generator_limit, None);
}

#[test]
fn seconds_that_the_host_made_slow_are_told_of() {
    let server = Server::start(|_| answer(200, b""));
    let plan = RunPlan { rate: Rate::PerSecond(1000), duration: Duration::from_secs(3), ..plan(&server.url, "get") };
    let mut outcome = go(&plan);
    outcome.stolen_share = None;
    outcome.seconds.truncate(3);
    assert_eq!(outcome.seconds.len(), 3);
    for second in &outcome.seconds {
        let is_known = std::path::Path::new("/proc/stat").exists();
        assert_eq!(second.stolen_share.is_some_and(|share| (0.0..=1.0).contains(&share)), is_known, "{second:?}");
    }
    let told = "the host took processors in 1 of 3 seconds: their p99 is 9.00 ms (median), that of the others 2.00 ms";
    for (shares, p99s, is_told) in [
        ([Some(0.0), Some(0.01), Some(0.0)], [2000, 9000, 2000], true),
        ([Some(0.0), Some(0.01), Some(0.0)], [9000, 9000, 2000], false),
        ([Some(0.01), Some(0.01), Some(0.01)], [2000, 9000, 2000], false),
        ([None, None, None], [2000, 9000, 2000], false),
    ] {
        for (second, (share, p99)) in outcome.seconds.iter_mut().zip(shares.into_iter().zip(p99s)) {
            second.stolen_share = share;
            second.latency_us[2] = p99;
        }
        let document = Document::new(&plan, &outcome);
        assert_eq!(document.seconds.iter().map(|second| second.stolen_share).collect::<Vec<_>>(), shares);
        assert_eq!(document.said_of_host().iter().any(|said| said.ends_with(told)), is_told, "{shares:?}, {p99s:?}");
        assert_eq!(text(&plan, &outcome, &document, Spectrum::Hidden).contains(told), is_told);
    }
}

#[test]
fn a_host_that_takes_the_processors_is_told_of() {
    let server = Server::start(|_| answer(200, b""));
    let plan = RunPlan { rate: Rate::PerSecond(100), ..plan(&server.url, "get") };
    let mut outcome = go(&plan);
    assert!(outcome.stolen_share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{:?}", outcome.stolen_share);
    for (share, is_told) in [(None, false), (Some(0.01), false), (Some(0.4), true)] {
        outcome.stolen_share = share;
        let document = Document::new(&plan, &outcome);
        let text = text(&plan, &outcome, &document, Spectrum::Hidden);
        assert_eq!(text.contains("the host took 40 % of the processors' time"), is_told, "{text}");
    }
}
