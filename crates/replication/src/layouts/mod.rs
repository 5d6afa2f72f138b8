//! The chain of layouts on a node: it answers questions about them ([`voter`]), and sees to it that it knows the newest
//! one and is named by it ([`driver`]). It has the next one decided with the others ([`proposer`]).
//!
//! The decisions themselves are [`kvorum_core::chain`]'s.

pub mod driver;
pub mod proposer;
pub mod voter;
