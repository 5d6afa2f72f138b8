//! What is reported of the debt of a target's store.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use kvorum_load::knee::{Effort, Knee, Point, Probe, SearchInput, SearchObserver, knee};
use kvorum_load::nodes::Debt;
use kvorum_load::report::{Document, RUN_FILE, RateAsked, Spectrum, read_document, save, text};
use kvorum_load::run::{Rate, RunOutcome, RunPlan};

use crate::support::{Server, answer, go, millis, plan};

/// A store whose metrics are this, by the seconds since they were first asked for.
pub(crate) fn telling(metrics: impl Fn(f64) -> String + Send + Sync + 'static) -> Server {
    let begin = OnceLock::new();
    Server::start(move |request| match request.path.as_str() {
        "/metrics" => answer(200, metrics(begin.get_or_init(Instant::now).elapsed().as_secs_f64()).as_bytes()),
        "/v0/cluster" => answer(404, b""),
        _ => answer(201, b""),
    })
}

pub(crate) fn growing() -> Server {
    telling(|seconds| {
        format!(
            "kvorum_store_compaction_pending_bytes 0\nkvorum_store_level0_files {:.0}\n\
             kvorum_store_memtables_waiting 1\nkvorum_store_stall_seconds_total {seconds}\n\
             kvorum_store_flushed_bytes_total {}\nkvorum_store_compacted_bytes_total {}\n\
             kvorum_store_written_bytes_total {}\n",
            10.0 + seconds * 20.0,
            seconds * 2e6,
            seconds * 3e6,
            seconds * 1e6
        )
    })
}

fn run(server: &Server, millis_long: u64) -> (RunPlan, RunOutcome, Document) {
    let plan =
        RunPlan { watch: true, rate: Rate::PerSecond(100), duration: millis(millis_long), ..plan(&server.url, "put") };
    let outcome = go(&plan);
    let document = Document::new(&plan, &outcome);
    (plan, outcome, document)
}

#[test]
fn debt_that_grows_is_told_over_time_and_of_the_run() {
    let server = growing();
    let (plan, outcome, document) = run(&server, 6000);
    let debt = document.nodes[0].debt.clone().unwrap();
    assert_eq!((document.debt_bounded, debt.bounded), (Some(false), Some(false)), "{debt:?}");
    assert!(debt.grew.len() == 1 && debt.grew[0].starts_with("files in level 0 1"), "{debt:?}");
    assert!(debt.last.level0_files > Some(60) && debt.last == debt.most, "{debt:?}");
    assert!(debt.write_amplification.is_some_and(|times| (times - 5.0).abs() < 0.1), "{debt:?}");
    assert!(debt.stall_seconds.is_some_and(|seconds| (5.0..7.0).contains(&seconds)), "{debt:?}");
    let seconds = &document.nodes[0].seconds;
    assert!(seconds.windows(2).all(|two| two[0].debt.level0_files < two[1].debt.level0_files), "{seconds:?}");
    let text = text(&plan, &outcome, &document, Spectrum::Hidden);
    for part in ["Debt, end (most):", "files in level 0 1", " NO\n", "0-6 "] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), &outcome, &document).unwrap();
    let saved = read_document(&dir.path().join(RUN_FILE)).unwrap();
    assert_eq!(saved.nodes[0].debt.as_ref(), Some(&debt));
    assert_eq!(saved.nodes[0].seconds.last().map(|second| second.debt), seconds.last().map(|second| second.debt));
}

#[test]
fn of_a_short_run_whose_debt_does_not_grow_nothing_is_known() {
    let server = telling(|_| "kvorum_store_level0_files 90\n".to_owned());
    let (_, _, document) = run(&server, 2500);
    let debt = document.nodes[0].debt.clone().unwrap();
    assert_eq!((document.debt_bounded, debt.bounded), (None, None));
    assert_eq!(debt.last, Debt { level0_files: Some(90), ..Debt::default() }, "what is not known is absent");
    assert_eq!((debt.stall_seconds, debt.write_amplification), (None, None));
}

#[test]
fn of_a_target_that_tells_nothing_nothing_is_told() {
    let server = telling(|_| "up 1\n".to_owned());
    let (plan, outcome, document) = run(&server, 1500);
    assert_eq!((document.debt_bounded, document.nodes[0].debt.as_ref()), (None, None));
    assert!(!text(&plan, &outcome, &document, Spectrum::Hidden).contains("Debt"));
    let json = serde_json::to_value(&document.nodes[0].seconds).unwrap();
    assert!(!json.to_string().contains("level0"), "{json}");
}

#[test]
fn each_second_tells_what_was_sent_and_what_was_not() {
    let (_, server) = crate::support::store();
    let (_, outcome, document) = run(&server, 2000);
    assert_eq!(document.seconds.iter().map(|second| second.sent).sum::<u64>(), outcome.tally.requests());
    assert!(document.seconds.iter().all(|second| second.unsent == Some(0) && second.shed_p99.is_none()));
    let window = &document.windows[0];
    assert_eq!((document.windows.len(), window.sent, window.requests), (1, 200, 200));
}

#[test]
fn what_is_answered_503_is_told_apart_from_other_errors_with_its_latencies() {
    let number = AtomicU64::new(0);
    let server = Server::start(move |request| match request.method.as_str() {
        "PUT" => match number.fetch_add(1, Ordering::SeqCst) % 4 {
            0 => answer(503, b""),
            1 => answer(500, b""),
            _ => answer(201, b""),
        },
        _ => answer(404, b""),
    });
    let plan =
        RunPlan { rate: Rate::PerSecond(200), duration: millis(1000), warmup: millis(0), ..plan(&server.url, "put") };
    let document = Document::new(&plan, &go(&plan));
    let window = &document.windows[0];
    assert_eq!((window.sent, window.requests, window.errors, window.shed), (200, 100, 100, 50));
    assert!(window.shed_ms.p99 > 0.0 && document.seconds[0].shed_max > Some(0.0), "{window:?}");
    let closed = RunPlan { rate: Rate::Max, ..plan };
    let document = Document::new(&closed, &go(&closed));
    assert_eq!((document.seconds[0].unsent, document.windows[0].unsent), (None, None), "nothing is due");
}

/// Takes 10 ms for each answer, and gets deeper into debt as long as keys are requested.
fn living_on_credit() -> Server {
    let [begun, last] = [(); 2].map(|()| Mutex::new(None::<Instant>));
    Server::start(move |request| {
        if request.path == "/metrics" {
            let idle = last.lock().unwrap().is_none_or(|last| last.elapsed() > millis(300));
            let mut begun = begun.lock().unwrap();
            let since = if idle { begun.take() } else { *begun };
            let files = since.map_or(0.0, |begun| 20.0 + 20.0 * begun.elapsed().as_secs_f64());
            return answer(200, format!("kvorum_store_level0_files {files:.0}\n").as_bytes());
        }
        if request.path == "/v0/cluster" {
            return answer(404, b"");
        }
        *last.lock().unwrap() = Some(Instant::now());
        begun.lock().unwrap().get_or_insert_with(Instant::now);
        take(millis(10));
        answer(201, b"")
    })
}

fn take(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::thread::sleep(millis(1));
    }
}

struct Silent;

impl SearchObserver for Silent {
    fn probed(&mut self, _: &Probe, _: Option<&str>) {}
    fn scaled(&mut self, _: Point) {}
}

fn sustained_knee(server: &Server, dir: &Path) -> Knee {
    let plan = RunPlan { watch: true, duration: millis(300), warmup: millis(0), ..plan(&server.url, "put") };
    let hunt = SearchInput {
        plan: &plan,
        objective: &"p50=500ms".parse().unwrap(),
        effort: Effort::Rough,
        sustained: Some(millis(6000)),
        dir: Some(dir),
        stop: &Arc::new(AtomicBool::new(false)),
    };
    let (found, searched) = knee(&hunt, &mut Silent);
    searched.unwrap();
    let told: Knee = serde_json::from_slice(&std::fs::read(dir.join("knee.json")).unwrap()).unwrap();
    assert_eq!(told.sustained_knee.unwrap().rate, found.sustained_knee.as_ref().unwrap().rate);
    found
}

#[test]
fn a_rate_at_which_debt_grows_is_no_sustained_knee_however_fast_the_answers_are() {
    let (server, dir) = (living_on_credit(), tempfile::tempdir().unwrap());
    let found = sustained_knee(&server, dir.path());
    assert!(found.knee_rate.is_some() && found.sustained == Some(false), "{found:?}");
    let knee = found.sustained_knee.unwrap();
    assert_eq!((knee.rate, knee.windows.len(), knee.debt.len()), (None, 0, 0));
    let missed: Vec<_> = knee.probes.iter().filter_map(|probe| probe.missed.as_deref()).collect();
    assert!(missed.iter().any(|missed| missed.contains("grew: files in level 0")), "{missed:?}");
    let rates: Vec<u64> = knee.probes.iter().map(|probe| probe.rate_asked).collect();
    assert!(rates.windows(2).all(|two| two[1] <= two[0]), "downward: {rates:?}");
    assert!(!dir.path().join("sustained").exists());
}

#[test]
fn a_rate_that_holds_for_as_long_as_is_asked_is_the_sustained_knee() {
    // Eight connections, 10 ms for each answer: 800/s at most.
    let server = Server::start(|request| match request.path.as_str() {
        "/metrics" => answer(200, b"kvorum_store_level0_files 3\n"),
        "/v0/cluster" => answer(404, b""),
        _ => {
            take(millis(10));
            answer(201, b"")
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let found = sustained_knee(&server, dir.path());
    let knee = found.sustained_knee.unwrap();
    let Some(rate) = knee.rate else {
        // The machine had its bad moments in all of them.
        assert!(knee.probes.iter().all(|probe| probe.debt_bounded != Some(false)), "{:?}", knee.probes);
        eprintln!("SKIPPED: this machine is too busy to hold any rate for six seconds");
        return;
    };
    assert!(Some(rate) <= found.knee_rate && knee.latency_ms.is_some_and(|latency| latency.p50 >= 10.0), "{knee:?}");
    assert!((knee.seconds - 6.0).abs() < 1e-9 && knee.windows.len() == 1, "{knee:?}");
    assert_eq!((knee.debt.len(), knee.debt[0].debt.bounded), (1, None), "six seconds show nothing");
    let run = read_document(&dir.path().join("sustained").join(RUN_FILE)).unwrap();
    assert_eq!(run.rate_asked, RateAsked::PerSecond(rate));
    assert_eq!(found.sustained, (Some(rate) != found.knee_rate).then_some(false));
}
