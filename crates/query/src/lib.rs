//! What `POST /v0/query` computes: no I/O, no clock, no randomness.
//!
//! The node that provides a record evaluates the query on it, and sends a *row* of a few bytes in place of the value
//! ([`Query::row`]). The coordinator folds the rows of the records whose versions the witnesses confirmed, in key order
//! ([`Aggregation::add`]), and answers with the groups.
//!
//! Everything is bounded: the query's text, what is kept of a value, a row, the groups, and what an aggregation holds.
//! A row is another node's word, so a malformed one is an error. Read in this order: `query`, `json`, `extract`,
//! `condition`, `parse`, `row`, `aggregation`.

mod aggregate;
mod aggregation;
mod condition;
mod distinct;
mod extract;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod json;
mod members;
mod parse;
mod query;
mod row;

pub use aggregation::{AGGREGATION_BYTES_MAX, Aggregation, AggregationError, GROUPS_MAX};
pub use members::QueryError;
pub use parse::BODY_BYTES_MAX;
pub use query::{Query, QueryRange, QueryRecord};
