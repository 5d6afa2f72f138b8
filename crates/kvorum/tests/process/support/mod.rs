//! What the tests share: nodes as child processes, an HTTP client, a false peer, waiting, randomness, histories.

pub mod cluster;
pub mod history;
pub mod http;
pub mod impostor;
pub mod malformed;
pub mod random;
pub mod wait;

pub use cluster::{Cluster, kvorum};
pub use http::{Client, entity, entity_at};
pub use wait::{SOON, wait_for, wait_until, wait_within};
