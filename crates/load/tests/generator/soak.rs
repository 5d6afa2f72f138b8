//! The verdict of a soak.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_load::report::{Document, Percentiles, Spectrum, WindowRow, text};
use kvorum_load::run::{Rate, RunOutcome, RunPlan, Second};
use kvorum_load::soak::{Soak, soak};

use crate::nodes_and_files::stalling_once;
use crate::support::{go, millis, plan, store};

const OBJECTIVE: &str = "p99=2s";

fn judged(of: &(RunPlan, RunOutcome, Document), objective: &str, goodput: Option<u64>) -> Soak {
    soak(&of.0, &of.1, &of.2, &objective.parse().unwrap(), goodput)
}

/// A run of three seconds in which all went well.
fn good() -> (RunPlan, RunOutcome, Document) {
    let (_, server) = store();
    let plan = RunPlan { rate: Rate::PerSecond(100), duration: millis(3000), watch: true, ..plan(&server.url, "put") };
    let outcome = go(&plan);
    let document = Document::new(&plan, &outcome);
    (plan, outcome, document)
}

fn answers(soak: &Soak) -> Vec<Option<bool>> {
    soak.verdict.iter().map(|clause| clause.passed).collect()
}

#[test]
fn each_part_of_the_verdict_is_a_no_by_itself() {
    let mut run = good();
    let soak = judged(&run, OBJECTIVE, None);
    assert!(soak.passed && soak.slow_seconds.is_empty(), "{soak:?}");
    assert_eq!((soak.seconds, answers(&soak)), (3, vec![Some(true), Some(true), Some(true), None]));
    assert!(soak.verdict[3].found.starts_with("not known"), "{soak:?}");

    let slow = judged(&run, "p50=0.001us", None);
    assert!(!slow.passed && slow.slow_seconds.len() == 3 && slow.verdict[0].found == "3 of 3 (100.00 %)", "{slow:?}");
    assert_eq!(answers(&slow)[1..], [Some(true), Some(true), None]);

    run.2.errors = BTreeMap::from([("503".into(), 1)]);
    run.2.unsent = 2;
    run.2.debt_bounded = Some(false);
    let soak = judged(&run, OBJECTIVE, None);
    assert_eq!((soak.passed, answers(&soak)), (false, vec![Some(true), Some(false), Some(false), Some(false)]));
    run.2.debt_bounded = Some(true);
    assert_eq!(answers(&judged(&run, OBJECTIVE, None))[3], Some(true));
}

#[test]
fn one_second_in_a_hundred_may_be_slow_and_one_without_an_answer_is() {
    let mut run = good();
    let quick: Second = run.1.seconds[1].clone();
    let empty = Second { requests: 0, histogram: silent(), ..quick.clone() };
    for (slow, passes) in [(0, true), (2, true), (3, false)] {
        run.1.seconds = vec![quick.clone(); 200];
        run.1.seconds[10..10 + slow].fill(empty.clone());
        run.1.measured = Duration::from_secs(200);
        let soak = judged(&run, OBJECTIVE, None);
        assert_eq!((soak.passed, soak.slow_seconds.len(), soak.seconds), (passes, slow, 200));
    }
    // Its target fell silent, and nothing more was reported.
    run.1.seconds.truncate(190);
    assert_eq!(judged(&run, OBJECTIVE, None).slow_seconds.last().map(|second| second.at_s), Some(199));
}

/// The histogram of a second without an answer.
fn silent() -> Vec<u8> {
    use hdrhistogram::serialization::{Serializer, V2Serializer};
    let mut bytes = Vec::new();
    let empty = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).unwrap();
    V2Serializer::new().serialize(&empty, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_slow_second_is_told_with_what_the_nodes_did_then() {
    let server = stalling_once();
    let plan = RunPlan { watch: true, duration: millis(3000), warmup: millis(0), ..plan(&server.url, "put") };
    let outcome = go(&plan);
    let mut document = Document::new(&plan, &outcome);
    let soak = soak(&plan, &outcome, &document, &"p99=100ms".parse().unwrap(), None);
    assert!(!soak.passed && !soak.slow_seconds.is_empty(), "{soak:?}");
    let nodes: Vec<_> = soak.slow_seconds.iter().flat_map(|second| &second.nodes).collect();
    assert!(nodes.iter().any(|node| node.second.slow_commits == Some(1) && node.url == server.url), "{soak:?}");
    document.soak = Some(soak);
    let text = text(&plan, &outcome, &document, Spectrum::Hidden);
    for part in
        ["Soak: NOT PASSED\n  NO   at most 1 second in 100 over p99=100ms: ", "Over time:", ": 1 slow commits, "]
    {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let saved: Document = serde_json::from_str(&serde_json::to_string(&document).unwrap()).unwrap();
    assert_eq!(saved.soak.unwrap().slow_seconds.len(), document.soak.unwrap().slow_seconds.len());
}

/// A run under overload: windows of 10 s with so many successes each, and 503s that came so soon.
fn overload(successes: &[u64], shed_ms: f64) -> (RunPlan, RunOutcome, Document) {
    let mut run = good();
    let window = run.2.windows[0].clone();
    let of = |(place, requests): (u32, &u64)| {
        let from_s = f64::from(place) * 10.0;
        WindowRow { from_s, to_s: from_s + 10.0, requests: *requests, ..window.clone() }
    };
    run.2.windows = (0..).zip(successes).map(of).collect();
    run.2.errors = BTreeMap::from([("503".into(), 1000)]);
    run.2.refused_ms = Percentiles { p99: shed_ms, ..Percentiles::default() };
    run
}

#[test]
fn under_overload_the_goodput_of_every_window_after_thirty_seconds_counts_and_all_else_is_a_quick_503() {
    let all = |of: &(RunPlan, RunOutcome, Document)| answers(&judged(of, OBJECTIVE, Some(100)));
    let good = overload(&[0, 10, 0, 800, 1000, 900], 40.0);
    assert_eq!(all(&good), [Some(true); 4]);
    assert_eq!(judged(&good, OBJECTIVE, Some(100)).verdict[0].found, "80/s at the least, from 30 to 40 s");
    assert_eq!(all(&overload(&[1000, 1000, 1000, 1000, 790], 40.0))[0], Some(false));
    assert_eq!(all(&overload(&[1000, 1000, 1000], 40.0))[0], Some(false), "there is no such window");
    assert_eq!(all(&overload(&[1000; 5], 51.0))[2], Some(false));
    let mut others = overload(&[1000; 5], 40.0);
    others.2.timeouts = 1;
    assert_eq!(all(&others), [Some(true), Some(false), Some(true), Some(true)]);
    others.2.errors.insert("500".into(), 1);
    others.2.timeouts = 0;
    assert_eq!(all(&others)[1], Some(false));
    let mut unsent = overload(&[1000; 5], 40.0);
    unsent.2.unsent = unsent.2.requests;
    assert_eq!(all(&unsent)[3], Some(false), "the load was less than what was asked for");
}
