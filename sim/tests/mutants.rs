//! Every rule left out is noticed: one mutant after another, each within [`SEEDS_MAX`] seeds, or by a story.

use kvorum_core::mutant::{ALL, plant};
use kvorum_sim::stories::{deletions, losses};
use kvorum_sim::world::run;

/// The table in docs/consistency.md says how many each takes.
const SEEDS_MAX: u64 = 1000;
/// Of each story.
const STORIES_MAX: u64 = 20;

/// One test, because the mutant is the process's.
#[test]
fn every_mutant_is_noticed() {
    for mutant in ALL {
        plant(Some(mutant));
        let by_story = || (0..STORIES_MAX).any(|seed| deletions::run(seed).is_err() || losses::run(seed).is_err());
        let by_chance = || (0..SEEDS_MAX).any(|seed| run(seed, false).violation.is_some());
        assert!(by_story() || by_chance(), "{mutant:?} is not noticed");
    }
}
