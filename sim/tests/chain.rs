//! Layouts are decided once, in every order of messages. `KVORUM_TEST_CHAIN_MORE=1` allows one attempt more, and one
//! recovery.

#![allow(clippy::unwrap_used, missing_docs)]

use kvorum_sim::chain::{ChainScenario, SCENARIOS, explore};

#[test]
fn each_epoch_has_one_value_in_every_order_of_messages() {
    let more: usize = std::env::var("KVORUM_TEST_CHAIN_MORE").map_or(0, |text| text.parse().unwrap());
    for scenario in SCENARIOS {
        let ChainScenario { attempts_max, recoveries_max, losing, .. } = *scenario;
        let recoveries_max = if losing.is_empty() { 0 } else { recoveries_max + more };
        let scenario = ChainScenario { attempts_max: attempts_max + more, recoveries_max, ..*scenario };
        let states = explore(&scenario).unwrap_or_else(|violation| panic!("{violation}"));
        println!("{states} states of {scenario:?}");
        assert!(states > 10_000, "{states} states of {scenario:?}");
    }
}
