//! kvorum's rules, pure: no runtime, clock, randomness, files or logging. Time is an argument.
//!
//! Read in this order: [`key`], [`version`], [`record`], [`placement`], [`quorum`], [`frame`], [`hints`].

pub mod frame;
pub mod hints;
pub mod key;
pub mod mutant;
pub mod placement;
pub mod quorum;
pub mod record;
pub mod version;

pub use key::{Key, KeyHash, PartitionId};
pub use record::Record;
pub use version::{Hlc, Incarnation, Version};
