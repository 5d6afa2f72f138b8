//! Every rule left out is noticed: one mutant after another, each within [`SEEDS_MAX`] seeds, or by a story.

use std::ops::Range;

use kvorum_core::mutant::{ALL, plant};
use kvorum_sim::run::run;
use kvorum_sim::stories::{deletions, losses};
use kvorum_sim::trace::TraceText;

/// The table in docs/explanation/what-was-checked.md says how many each takes.
const SEEDS_MAX: u64 = 1000;
/// Of each story.
const STORIES_MAX: u64 = 20;
/// They notice most of what they notice at once.
const STORIES_FIRST: u64 = 2;

/// One test, because the mutant is the process's.
#[test]
fn every_mutant_is_noticed() {
    for mutant in ALL {
        plant(Some(mutant));
        let by_story =
            |mut seeds: Range<u64>| seeds.any(|seed| deletions::run(seed).is_err() || losses::run(seed).is_err());
        let by_chance = || (0..SEEDS_MAX).any(|seed| run(seed, TraceText::Omitted).violation.is_some());
        let is_noticed = by_story(0..STORIES_FIRST) || by_chance() || by_story(STORIES_FIRST..STORIES_MAX);
        assert!(is_noticed, "{mutant:?} is not noticed");
    }
}
