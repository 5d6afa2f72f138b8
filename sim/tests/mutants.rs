//! Every rule left out is noticed: one mutant after another, each within [`SEEDS_MAX`] seeds.

use kvorum_core::mutant::{ALL, plant};
use kvorum_sim::world::run;

/// The table in docs/consistency.md says how many each takes.
const SEEDS_MAX: u64 = 1000;

/// One test, because the mutant is the process's.
#[test]
fn every_mutant_is_noticed() {
    for mutant in ALL {
        plant(Some(mutant));
        assert!((0..SEEDS_MAX).any(|seed| run(seed, false).violation.is_some()), "{mutant:?} is not noticed");
    }
}
