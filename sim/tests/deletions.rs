//! No deleted key comes back, however long a replica was away.

use kvorum_sim::deletions::{Done, ROUNDS, run};

/// Rounds altogether.
const ROUNDS_MIN: u64 = 1000;

#[test]
fn no_deleted_key_comes_back() {
    let mut total = Done::default();
    for seed in 0..ROUNDS_MIN / ROUNDS {
        let done = run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        total.rounds += done.rounds;
        total.restored += done.restored;
        total.deleted += done.deleted;
    }
    println!("{total:?}");
    assert!(total.rounds >= ROUNDS_MIN && total.restored > total.rounds / 20, "{total:?}");
}
