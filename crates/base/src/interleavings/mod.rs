//! What threads share, in orders of their steps that a checker chooses. Each module here is about the one of the same
//! name; `storage`, `peer` and `replication` have such tests of their own.
//!
//! A test is run for many orders: half of them random, half with few switches at moments that are (the
//! "probabilistic concurrency testing" of Burckhardt et al., 2010). A lost wake-up shows as a deadlock: nothing here
//! has a timeout, and no condition variable wakes by itself. Every atomic operation is taken for sequentially
//! consistent: of the orderings, nothing is tested here.
//!
//! `KVORUM_TEST_INTERLEAVINGS` says how many orders; a failure prints the one that showed it, for `shuttle::replay`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation))]

#[cfg(test)]
mod blocking_pool;
#[cfg(test)]
mod clock;
#[cfg(test)]
mod value_memory;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Runs a test in many orders: in one of `one_in` where one costs more than a tenth of a millisecond.
pub fn check(one_in: usize, test: impl Fn() + Send + Sync + Clone + 'static) {
    let wanted = std::env::var("KVORUM_TEST_INTERLEAVINGS").ok().and_then(|text| text.parse().ok());
    let orders: usize = wanted.unwrap_or(20_000) / one_in / 2;
    let mut config = Config::new();
    config.stack_size = 512 * 1024;
    Runner::new(RandomScheduler::new(orders), config.clone()).run(test.clone());
    Runner::new(PctScheduler::new(3, orders), config).run(test);
}
