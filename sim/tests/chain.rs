//! Layouts are decided once, in every order of messages.

#![allow(clippy::unwrap_used, missing_docs)]

use kvorum_sim::chain::{SCENARIOS, explore};

#[test]
fn each_epoch_has_one_value_in_every_order_of_messages() {
    for scenario in SCENARIOS {
        let states = explore(scenario).unwrap_or_else(|violation| panic!("{violation}"));
        println!("{states} states of {scenario:?}");
        assert!(states > 10_000, "{states} states of {scenario:?}");
    }
}
