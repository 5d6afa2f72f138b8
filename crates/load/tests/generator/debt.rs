//! What is told of the debt of a target's store.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::OnceLock;
use std::time::Instant;

use kvorum_load::nodes::Debt;
use kvorum_load::report::{Document, RUN_FILE, read_document, save, text};
use kvorum_load::run::{Outcome, Plan, Rate};

use crate::support::{Server, answer, go, millis, plan};

/// A store whose metrics say this, by the seconds since they were first asked for.
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

fn run(server: &Server, millis_long: u64) -> (Plan, Outcome, Document) {
    let plan =
        Plan { watch: true, rate: Rate::PerSecond(100), duration: millis(millis_long), ..plan(&server.url, "put") };
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
    let text = text(&plan, &outcome, &document, false);
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
    assert_eq!(debt.last, Debt { level0_files: Some(90), ..Debt::default() }, "what nobody told is absent");
    assert_eq!((debt.stall_seconds, debt.write_amplification), (None, None));
}

#[test]
fn of_a_target_that_tells_nothing_nothing_is_told() {
    let server = telling(|_| "up 1\n".to_owned());
    let (plan, outcome, document) = run(&server, 1500);
    assert_eq!((document.debt_bounded, document.nodes[0].debt.as_ref()), (None, None));
    assert!(!text(&plan, &outcome, &document, false).contains("Debt"));
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
    let number = std::sync::atomic::AtomicU64::new(0);
    let server = Server::start(move |request| match request.method.as_str() {
        "PUT" => match number.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 4 {
            0 => answer(503, b""),
            1 => answer(500, b""),
            _ => answer(201, b""),
        },
        _ => answer(404, b""),
    });
    let plan =
        Plan { rate: Rate::PerSecond(200), duration: millis(1000), warmup: millis(0), ..plan(&server.url, "put") };
    let document = Document::new(&plan, &go(&plan));
    let window = &document.windows[0];
    assert_eq!((window.sent, window.requests, window.errors, window.shed), (200, 100, 100, 50));
    assert!(window.shed_ms.p99 > 0.0 && document.seconds[0].shed_max > Some(0.0), "{window:?}");
    let closed = Plan { rate: Rate::Max, ..plan };
    let document = Document::new(&closed, &go(&closed));
    assert_eq!((document.seconds[0].unsent, document.windows[0].unsent), (None, None), "nothing is due");
}
