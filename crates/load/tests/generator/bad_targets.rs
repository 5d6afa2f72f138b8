//! Targets that refuse, reset, answer garbage or nothing, are slow, or die: everything is counted, and nothing hangs.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kvorum_load::Error;
use kvorum_load::knee::{Effort, Knee, Point, Probe, SearchInput, SearchObserver, knee};
use kvorum_load::record::RequestFailure;
use kvorum_load::report::{Document, Spectrum, text};
use kvorum_load::run::{Rate, RunPlan, run};

use crate::support::{Reply, Server, answer, go, go_until, millis, plan, store};

/// Every request ended somehow: none is lost, none counted twice.
fn all_accounted(outcome: &kvorum_load::run::RunOutcome, due: u64) {
    let tally = &outcome.tally;
    let all = tally.requests() + tally.unsent + tally.unanswered;
    assert_eq!(all, due, "{:?} {:?}", tally.failures, tally.refused);
}

#[test]
fn a_target_that_refuses_is_an_error_before_anything_is_measured() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = run(&plan(&format!("http://{address}"), "put"), &Arc::new(AtomicBool::new(false)), &mut |_| {});
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn refusals_are_counted_by_status_and_apart_from_latencies() {
    let count = AtomicU64::new(0);
    let server = Server::start(move |_| match count.fetch_add(1, Ordering::SeqCst) % 4 {
        0 => answer(500, b"oh"),
        1 => answer(503, b""),
        _ => answer(200, b"yes"),
    });
    let outcome = go(&RunPlan { warmup: millis(0), ..plan(&server.url, "get") });
    let tally = &outcome.tally;
    all_accounted(&outcome, 500);
    assert!(tally.refused[&500] > 0 && tally.refused[&503] > 0 && tally.failures.is_empty());
    assert_eq!(tally.latency.len(), tally.statuses[&200]);
}

#[test]
fn connections_that_are_closed_or_reset_are_made_again() {
    for (reply, failure) in [(Reply::Close, RequestFailure::Closed), (Reply::Reset, RequestFailure::Reset)] {
        let count = AtomicU64::new(0);
        let server =
            Server::start(
                move |_| {
                    if count.fetch_add(1, Ordering::SeqCst) % 5 == 4 { reply.clone() } else { answer(200, b"") }
                },
            );
        let plan = RunPlan { warmup: millis(0), ..plan(&server.url, "get") };
        let outcome = go(&plan);
        all_accounted(&outcome, 500);
        let lost = outcome.tally.failures.get(&failure).copied().unwrap_or(0);
        assert!(lost > 0 && outcome.tally.latency.len() > lost, "{failure:?}: {:?}", outcome.tally.failures);
        assert_eq!(outcome.tally.failures.len(), 1, "{:?}", outcome.tally.failures);
    }
}

#[test]
fn a_server_that_closes_after_each_answer_is_served() {
    let closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_vec();
    let server = Server::start(move |_| Reply::Bytes(closing.clone()));
    let outcome = go(&RunPlan { warmup: millis(0), ..plan(&server.url, "get") });
    all_accounted(&outcome, 500);
    assert_eq!((outcome.tally.failures.len(), outcome.tally.timeouts), (0, 0), "{:?}", outcome.tally.failures);
}

#[test]
fn garbage_is_a_protocol_error() {
    for garbage in ["220 mail.example.com ESMTP\r\n\r\n", "HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n"] {
        let server = Server::start(|_| Reply::Bytes(garbage.into()));
        let outcome = go(&RunPlan { warmup: millis(0), ..plan(&server.url, "get") });
        let tally = &outcome.tally;
        assert!(tally.failures[&RequestFailure::Protocol] > 0 && tally.latency.is_empty(), "{:?}", tally.failures);
        all_accounted(&outcome, 500);
    }
}

#[test]
fn an_answer_that_nobody_asked_for_is_an_error() {
    let twice = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec();
    let server = Server::start(move |_| Reply::Bytes(twice.clone()));
    let plan = RunPlan { warmup: millis(0), ..plan(&server.url, "get") };
    let outcome = go(&plan);
    all_accounted(&outcome, 500);
    // Each second answer came where nothing was asked, unless the next request was sent in between.
    let (answered, unasked) = (outcome.tally.latency.len(), outcome.tally.failures.get(&RequestFailure::Unasked));
    assert!(unasked.is_some_and(|unasked| *unasked >= answered / 2), "{answered} {:?}", outcome.tally.failures);
    let told = text(&plan, &outcome, &Document::new(&plan, &outcome), Spectrum::Hidden);
    assert!(told.contains(&format!(", unasked {}, timeout 0", unasked.unwrap())), "{told}");
}

#[test]
fn silence_is_a_timeout_and_ends() {
    let server = Server::start(|_| Reply::Silence);
    let plan = RunPlan { timeout: millis(300), duration: millis(700), warmup: millis(0), ..plan(&server.url, "get") };
    for pipeline in [1, 4] {
        let outcome = go(&RunPlan { pipeline, ..plan.clone() });
        assert!(outcome.tally.timeouts > 0 && outcome.tally.latency.is_empty(), "{:?}", outcome.tally.failures);
        assert!(outcome.tally.unsent > 0, "eight connections cannot send what is due");
        let document = Document::new(&plan, &outcome);
        assert_eq!(document.generator.limit, None, "it had nothing to do");
        let unsent = document.said_of_unsent().unwrap();
        assert!(unsent.ends_with("or waited for answers that did not come"), "more would not help: {unsent}");
        all_accounted(&outcome, 350);
    }
}

#[test]
fn an_answer_without_an_end_is_a_timeout_and_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicU64::new(0));
    let counted = accepted.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                let chunks = b"1\r\na\r\n".repeat(100_000);
                // Until the generator has enough of it.
                while stream.write_all(&chunks).is_ok() {}
            });
        }
    });
    let times = RunPlan { timeout: millis(300), duration: millis(700), warmup: millis(0), ..plan(&url, "get") };
    let outcome = go(&RunPlan { connections: 1, ..times });
    assert!(outcome.tally.timeouts > 0 && outcome.tally.latency.is_empty(), "{:?}", outcome.tally.failures);
    let accepted = accepted.load(Ordering::SeqCst);
    assert!(accepted > 2, "one is a look at the target; another one is made while the run goes on: {accepted}");
}

#[test]
fn a_target_that_dies_half_way_leaves_a_report_of_both_halves() {
    let (counted, server) = store();
    let server = Arc::new(server);
    let doomed = server.clone();
    let plan = RunPlan { duration: millis(2500), warmup: millis(0), ..plan(&server.url, "put") };
    let mut died = false;
    let outcome = run(&plan, &Arc::new(AtomicBool::new(false)), &mut |_| {
        if !died && counted.puts.load(Ordering::SeqCst) > 100 {
            died = true;
            doomed.die();
        }
    })
    .unwrap();
    let tally = &outcome.tally;
    assert!(tally.latency.len() > 100, "what was before is reported");
    assert!(tally.failures.get(&RequestFailure::Connect).is_some_and(|count| *count > 0), "{:?}", tally.failures);
    assert!(tally.unsent > 0, "what could not be sent is reported");
    assert!(outcome.seconds.len() >= 2, "seconds in which the target was dead are seconds, too");
    assert!(outcome.seconds.last().is_some_and(|second| second.errors > 0), "{:?}", outcome.seconds.last());
    let document = Document::new(&plan, &outcome);
    assert_eq!(document.generator.limit, None);
    assert!(document.said_of_unsent().is_some_and(|why| why.contains("no connection free")));
    all_accounted(&outcome, 1250);
}

#[test]
fn an_answer_that_comes_after_its_timeout_is_none() {
    let server = slow(millis(40));
    let plan = RunPlan { timeout: millis(20), warmup: millis(0), ..plan(&server.url, "get") };
    let outcome = go(&plan);
    assert!(outcome.tally.latency.is_empty() && outcome.tally.timeouts > 0, "{:?}", outcome.tally.statuses);
    all_accounted(&outcome, 500);
}

#[test]
fn an_interrupt_of_the_warm_up_is_no_fault_of_the_generators() {
    let (counted, server) = store();
    let plan = RunPlan { warmup: millis(600_000), rate: Rate::Max, ..plan(&server.url, "put") };
    let outcome = go_until(&plan, || counted.puts.load(Ordering::SeqCst) > 100);
    let document = serde_json::to_value(Document::new(&plan, &outcome)).unwrap();
    let generator = &document["generator"];
    assert!(generator["limit"].is_null() && generator["busy_share"] == 0.0, "{generator}");
    assert_eq!(document["bytes_read"], 0);
}

#[test]
fn one_dead_target_of_two_does_not_stop_the_other() {
    let ((_, alive), (counted, doomed)) = (store(), store());
    let urls = format!("{},{}", alive.url, doomed.url);
    let plan = RunPlan { duration: millis(1500), warmup: millis(0), ..plan(&urls, "put") };
    let outcome = run(&plan, &Arc::new(AtomicBool::new(false)), &mut |_| {
        if counted.puts.load(Ordering::SeqCst) > 50 {
            doomed.die();
        }
    })
    .unwrap();
    all_accounted(&outcome, 750);
    assert!(outcome.tally.latency.len() > 500, "{}", outcome.tally.latency.len());
}

#[test]
fn an_interrupt_gives_the_report_of_what_there_was() {
    let (counted, server) = store();
    let plan = RunPlan { duration: millis(600_000), warmup: millis(0), ..plan(&server.url, "put") };
    let outcome = go_until(&plan, || counted.puts.load(Ordering::SeqCst) > 200);
    assert!(outcome.interrupted && outcome.tally.latency.len() > 200);
    assert!(outcome.measured < millis(20_000), "measured is what was: {:?}", outcome.measured);
}

/// A server that answers nothing, and how many requests it has.
fn silent() -> (Arc<AtomicU64>, Server) {
    let requests = Arc::new(AtomicU64::new(0));
    let counted = requests.clone();
    let server = Server::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Reply::Silence
    });
    (requests, server)
}

#[test]
fn what_has_no_answer_when_an_interrupt_ends_the_run_is_told() {
    let (requests, server) = silent();
    let (duration, timeout) = (millis(600_000), millis(60_000));
    let plan = RunPlan { rate: Rate::Max, duration, timeout, warmup: millis(0), ..plan(&server.url, "put") };
    let outcome = go_until(&plan, || requests.load(Ordering::SeqCst) == 8);
    assert!(outcome.interrupted && outcome.tally.latency.is_empty());
    assert_eq!((outcome.tally.unanswered, outcome.tally.timeouts), (8, 0), "one of each connection");
    all_accounted(&outcome, 8);
    let document = Document::new(&plan, &outcome);
    let text = text(&plan, &outcome, &document, Spectrum::Hidden);
    assert!(document.unanswered == 8 && text.contains("8 requests had no answer yet"), "{text}");
}

#[test]
fn an_interrupt_after_the_end_does_not_wait_for_the_limit_of_what_is_under_way() {
    let (_, server) = silent();
    let plan = RunPlan { timeout: millis(60_000), warmup: millis(0), ..plan(&server.url, "put") };
    let stop = Arc::new(AtomicBool::new(false));
    let outcome = run(&plan, &stop, &mut |progress| {
        stop.store(progress.elapsed > plan.duration + millis(100), Ordering::SeqCst);
    })
    .unwrap();
    assert!(outcome.interrupted && outcome.tally.unanswered > 0);
    assert_eq!(outcome.tally.timeouts, 0, "none has waited for its limit");
    all_accounted(&outcome, 500);
}

/// Lets a server die after so many probes.
struct Killer {
    server: Server,
    probes: usize,
}

impl SearchObserver for Killer {
    fn probed(&mut self, _: &Probe, _: Option<&str>) {
        self.probes -= 1;
        if self.probes == 0 {
            self.server.die();
        }
    }

    fn scaled(&mut self, _: Point) {}
}

fn search(
    plan: &RunPlan,
    objective: &str,
    dir: &Path,
    stop: &Arc<AtomicBool>,
    watch: &mut dyn SearchObserver,
) -> (Knee, Result<(), Error>) {
    let objective = objective.parse().unwrap();
    knee(
        &SearchInput { plan, objective: &objective, effort: Effort::Whole, sustained: None, dir: Some(dir), stop },
        watch,
    )
}

#[test]
fn a_search_whose_target_dies_leaves_the_probes_that_were() {
    let dir = tempfile::tempdir().unwrap();
    let (_, server) = store();
    let plan = RunPlan { duration: millis(200), warmup: millis(0), ..plan(&server.url, "put") };
    let mut killer = Killer { server, probes: 3 };
    let stop = Arc::new(AtomicBool::new(false));
    let (found, searched) = search(&plan, "p50=0.001us", dir.path(), &stop, &mut killer);
    let error = searched.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && found.probes.len() == 3, "{error}");
    let told: Knee = serde_json::from_slice(&std::fs::read(dir.path().join("knee.json")).unwrap()).unwrap();
    assert_eq!((told.probes.len(), told.knee_rate, told.earlier_stays), (3, None, false));
    assert!(dir.path().join("report.html").is_file());
}

/// Takes so long for each answer.
fn slow(time: Duration) -> Server {
    Server::start(move |_| {
        let begin = std::time::Instant::now();
        while begin.elapsed() < time {
            std::thread::sleep(millis(1));
        }
        answer(200, b"")
    })
}

#[test]
fn the_knee_is_what_the_objective_allows_whatever_the_machine_does() {
    let dir = tempfile::tempdir().unwrap();
    // Eight connections, 10 ms for each answer: 800/s at most, and hardly half of that on a very busy machine.
    let server = slow(millis(10));
    let plan = RunPlan { duration: millis(700), warmup: millis(100), ..plan(&server.url, "get") };
    let mut killer = Killer { server, probes: usize::MAX };
    let stop = Arc::new(AtomicBool::new(false));
    let (found, searched) = search(&plan, "p50=200ms", dir.path(), &stop, &mut killer);
    searched.unwrap();
    let rate = found.knee_rate.expect("10/s can be sustained");
    // What is too fast by more than 3 % does not pass.
    assert!((200..=824).contains(&rate), "{rate}");
    assert!(found.latency_ms.unwrap().p50 >= 10.0 && found.half.unwrap().rate == rate / 2);
    assert!(found.probes.iter().any(|probe| !probe.passed && probe.rate_asked > rate));
    let law = found.scalability.expect("1, 2, 4 and 8 connections");
    assert!(law.points.len() == 4 && law.lambda <= 100.0 * 1.5, "{law:?}");
    assert!(["half/run.json", "knee.json"].iter().all(|name| dir.path().join(name).is_file()));
    let run = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(dir.path().join(name).join("run.json")).unwrap()).unwrap()
    };
    let (kept, half) = (run("knee"), run("half"));
    let warmups = (kept["warmup_s"].as_f64(), half["warmup_s"].as_f64());
    assert_eq!(warmups, (Some(0.1), Some(1.4)), "what the search has left is not of half the knee");
    let told = found.latency_ms.unwrap();
    assert_eq!((kept["rate_asked"].as_u64(), kept["latency_ms"]["p99"].as_f64()), (Some(rate), Some(told.p99)));
}

#[test]
fn a_target_that_is_far_away_has_a_knee_too() {
    let server = slow(millis(150));
    let connections = 64;
    let plan = RunPlan { duration: millis(1000), warmup: millis(200), connections, ..plan(&server.url, "get") };
    let hunt = SearchInput {
        plan: &plan,
        objective: &"p99=500ms".parse().unwrap(),
        effort: Effort::Rough,
        sustained: None,
        dir: None,
        stop: &Arc::new(AtomicBool::new(false)),
    };
    let (found, searched) = knee(&hunt, &mut Killer { server, probes: usize::MAX });
    searched.unwrap();
    // 64 connections, 150 ms for each answer: 427/s at most.
    assert!(found.knee_rate.is_some_and(|rate| (20..=439).contains(&rate)), "{found:?}");
}

#[test]
fn a_search_whose_runs_cannot_be_saved_goes_on_and_says_so_beside_its_knee() {
    let dir = tempfile::tempdir().unwrap();
    // Where the run's directory would be there is a file: the same way out as without space.
    std::fs::write(dir.path().join("knee"), "").unwrap();
    let server = slow(millis(10));
    let plan = RunPlan { duration: millis(400), warmup: millis(0), ..plan(&server.url, "get") };
    let hunt = SearchInput {
        plan: &plan,
        objective: &"p50=200ms".parse().unwrap(),
        effort: Effort::Rough,
        sustained: None,
        dir: Some(dir.path()),
        stop: &Arc::new(AtomicBool::new(false)),
    };
    let (found, searched) = knee(&hunt, &mut Killer { server, probes: usize::MAX });
    let error = searched.unwrap_err().to_string();
    assert!(error.contains(&dir.path().join("knee").display().to_string()), "{error}");
    let told: Knee = serde_json::from_slice(&std::fs::read(dir.path().join("knee.json")).unwrap()).unwrap();
    assert!(found.knee_rate.is_some() && told.half.is_some() && told.probes.len() == found.probes.len(), "{told:?}");
    assert!(dir.path().join("half/run.json").is_file(), "what can be saved is");
}

#[test]
fn a_search_that_has_no_place_for_its_report_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (counted, server) = store();
    let plan = plan(&server.url, "put");
    let mut killer = Killer { server, probes: usize::MAX };
    let (found, searched) = search(&plan, "p99=1s", &file.join("k"), &Arc::new(AtomicBool::new(false)), &mut killer);
    assert!(searched.is_err() && found.probes.is_empty());
    assert_eq!(counted.puts.load(Ordering::SeqCst), 0);
}

/// Stops a search as soon as the next request comes after what it waits for.
struct Stopper {
    armed: Arc<AtomicBool>,
    half: bool,
}

impl SearchObserver for Stopper {
    fn probed(&mut self, probe: &Probe, name: Option<&str>) {
        let is_confirmed = self.half && probe.passed && name == Some("knee");
        self.armed.fetch_or(is_confirmed, Ordering::SeqCst);
    }

    fn scaled(&mut self, point: Point) {
        self.armed.fetch_or(!self.half && point.n == 4, Ordering::SeqCst);
    }
}

/// A search that is stopped during the run at half of the knee, or else during the closed loop of eight connections.
fn interrupted_search(half: bool, effort: Effort, objective: &str, dir: &Path) -> Knee {
    let (armed, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_armed, stops) = (armed.clone(), stop.clone());
    let server = Server::start(move |_| {
        let begin = std::time::Instant::now();
        while begin.elapsed() < millis(5) {
            std::thread::sleep(millis(1));
        }
        stops.fetch_or(is_armed.load(Ordering::SeqCst), Ordering::SeqCst);
        answer(200, b"")
    });
    let plan = RunPlan { duration: millis(300), warmup: millis(0), ..plan(&server.url, "get") };
    let objective = objective.parse().unwrap();
    let hunt = SearchInput { plan: &plan, objective: &objective, effort, sustained: None, dir: Some(dir), stop: &stop };
    let (found, searched) = knee(&hunt, &mut Stopper { armed, half });
    searched.unwrap();
    assert!(found.interrupted);
    found
}

#[test]
fn a_run_at_half_the_knee_that_is_interrupted_is_no_result() {
    let dir = tempfile::tempdir().unwrap();
    // Nor is that of an earlier search one of this.
    std::fs::create_dir(dir.path().join("half")).unwrap();
    std::fs::write(dir.path().join("knee.json"), "{}").unwrap();
    let found = interrupted_search(true, Effort::Rough, "p50=200ms", dir.path());
    assert!(found.knee_rate.is_some() && found.latency_ms.is_some() && found.half.is_none(), "{found:?}");
    let half = found.knee_rate.map(|rate| rate / 2);
    assert!(found.probes.iter().all(|probe| Some(probe.rate_asked) != half), "{found:?}");
    assert!(dir.path().join("knee/run.json").is_file() && !dir.path().join("half").exists());
}

#[test]
fn a_closed_loop_that_is_interrupted_does_not_bend_the_curve() {
    let dir = tempfile::tempdir().unwrap();
    let found = interrupted_search(false, Effort::Whole, "p50=0.001us", dir.path());
    let points: Vec<u64> = found.scalability.unwrap().points.iter().map(|point| point.n).collect();
    assert_eq!(points, [1, 2, 4]);
}
