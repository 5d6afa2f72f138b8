//! kvorum's rules, pure: no runtime, clock, randomness, files or logging. Time is an argument.
//!
//! Read in this order: [`key`], [`partitions`], [`version`], [`record`], [`node`], [`placement`], [`layout`], [`quorum`],
//! [`repair`], [`scan`], [`frame`], [`hints`], [`backpressure`], [`chain`].

pub mod backpressure;
pub mod chain;
pub mod frame;
pub mod hints;
pub mod key;
pub mod layout;
pub mod mutant;
pub mod node;
pub mod partitions;
pub mod placement;
pub mod quorum;
pub mod record;
pub mod repair;
pub mod scan;
pub mod version;

pub use key::{Key, KeyHash, PartitionId};
pub use record::Record;
pub use version::{Hlc, Incarnation, Version};
