//! What the tests share: nodes as child processes, their networks, clocks and disks, an HTTP client, a false
//! peer, load with a recorded history, scans beside it, waiting, randomness.

pub mod cluster;
pub mod console;
pub mod disk;
pub mod history;
pub mod http;
pub mod impostor;
pub mod load;
pub mod malformed;
pub mod network;
pub mod random;
pub mod scans;
pub mod secure;
pub mod skew;
pub mod wait;

pub use cluster::{Cluster, kvorum};
pub use http::{Client, entity, entity_at};
pub use wait::{SOON, wait_for, wait_until, wait_within};

/// A number from the environment, for tests that `make soak` runs for longer.
pub fn number_from_environment(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}
