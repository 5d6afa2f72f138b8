//! Connections between nodes: one from every shard to every peer, on the one port; that of the background shard
//! is for bulk traffic, the others are for requests.
//!
//! [`handler`] is what the shard does with what comes. [`dial`] makes a connection, [`handshake`] decides which may
//! connect, [`link`] writes frames over a [`transport`], [`client`] is the coordinator's side of a connection and
//! [`server`] the replica's. [`proof`] is what both show each other of the cluster's secret, [`room`] how much of a
//! node its peers may take. [`hellos`] and [`first_dials`] are what the shards of a node share of their dials;
//! `pending` and `early` keep questions that come a moment too soon, on the one side and on the other.

pub mod client;
pub mod context;
pub mod detach;
pub mod dial;
mod early;
pub mod error;
pub mod first_dials;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod handler;
pub mod handshake;
pub mod hellos;
mod incoming;
#[cfg(all(test, feature = "interleavings"))]
mod interleavings;
pub mod link;
pub mod membership;
pub mod peer_state;
pub mod peers;
mod pending;
pub mod proof;
pub mod request_id;
pub mod room;
pub mod server;
pub mod slow;
pub mod transport;
