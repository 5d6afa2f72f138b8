//! Every rule left out is noticed: one mutant after another, by an invariant of random runs, by a story, or by both.
//! Rules of the chain of layouts are noticed by trying every order of its messages.
//!
//! `mutants.txt` says what notices each; docs/reference/invariants.md shows it. `RECORD=1` writes the file anew, in
//! some minutes, because it tries every way for every mutant.

#![allow(clippy::unwrap_used)]

use kvorum_core::mutant::{DEFECTS, plant};
use kvorum_sim::chain::{self, explore};
use kvorum_sim::run::run;
use kvorum_sim::stories::{deletions, endings, losses, strangers};
use kvorum_sim::trace::TraceText;

const FILE: &str = "tests/mutants.txt";
const STORIES: [&str; 4] = ["deletions", "endings", "losses", "strangers"];
/// Before the number of a scenario.
const CHAIN: &str = "chain ";
/// Of random runs.
const RUNS_MAX: u64 = 1000;
/// Of each story.
const STORIES_MAX: u64 = 20;

/// The invariant that the first run that violates one violates.
fn by_chance() -> Option<String> {
    let violation = (0..RUNS_MAX).find_map(|seed| run(seed, TraceText::Omitted).violation)?;
    // At the end of a run the key that is checked comes first.
    let invariant = violation.split(": ").find(|part| !part.starts_with("key "));
    invariant.map(str::to_owned)
}

fn by_story(name: &str) -> bool {
    let fails = |seed| match name {
        "deletions" => deletions::run(seed).is_err(),
        "endings" => endings::run(seed).is_err(),
        "losses" => losses::run(seed).is_err(),
        _ => strangers::run(seed).is_err(),
    };
    (0..STORIES_MAX).any(fails)
}

/// The first scenario of which some order of messages notices it, of these. That takes long.
fn by_every_order(is_tried: impl Fn(&str) -> bool) -> Option<String> {
    let named = chain::SCENARIOS.iter().zip(0..).map(|(scenario, number)| (format!("{CHAIN}{number}"), scenario));
    named.filter(|(name, _)| is_tried(name)).find(|(_, scenario)| explore(scenario).is_err()).map(|(name, _)| name)
}

/// What notices the mutant that is planted, of what is tried.
fn noticed(is_chance_tried: bool, is_tried: impl Fn(&str) -> bool) -> String {
    let invariant = is_chance_tried.then(by_chance).flatten();
    let stories = STORIES.iter().filter(|name| is_tried(name) && by_story(name)).map(|name| (*name).to_owned());
    let noticed = invariant.into_iter().chain(stories).collect::<Vec<_>>().join(", ");
    if noticed.is_empty() { by_every_order(is_tried).unwrap_or_default() } else { noticed }
}

/// One test, because the mutant is the process's.
#[test]
fn every_mutant_is_noticed() {
    let is_recording = std::env::var_os("RECORD").is_some();
    let recorded = std::fs::read_to_string(FILE).unwrap_or_default();
    let mut text = String::new();
    for defect in DEFECTS {
        plant(Some(defect.mutant));
        let begin = format!("{:?}: ", defect.mutant);
        let told = recorded.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_default();
        let told: Vec<&str> = told.split(", ").filter(|who| !who.is_empty()).collect();
        // A way that has not noticed this mutant is long, and shows nothing.
        let is_by_chance = told.iter().any(|who| !STORIES.contains(who) && !who.starts_with(CHAIN));
        let noticed = noticed(is_recording || is_by_chance, |way| is_recording || told.contains(&way));
        assert!(!noticed.is_empty(), "{:?} is not noticed; {FILE} says {told:?}", defect.mutant);
        text += &format!("{begin}{noticed}\n");
    }
    if is_recording {
        std::fs::write(FILE, &text).unwrap();
    } else {
        assert_eq!(text, recorded, "{FILE} is out of date: RECORD=1 writes it anew");
    }
}
