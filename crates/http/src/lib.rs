//! HTTP/1.1 for clients, as the contract states it, and the door through which peers come in.
//!
//! Owns the client connections of one shard: their buffers, limits, timeouts and counters. Promises that
//! a connection that is slow, idle, wrong or hostile costs a bounded amount of memory and nothing else,
//! and that a request which is answered with an error has left nothing behind unless the error says so. A key's
//! replicas are not known here: the answers come from [`Entities`], pages of ranges from [`Ranges`], everything about
//! the node from [`Admin`].
//!
//! Invariants: no timer and no task is started per request; nothing is allocated for a length before it
//! is compared with its limit; `error.rs` alone maps errors to statuses; what `request.rs` accepts is a
//! valid [`Key`](kvorum_core::key::Key) and valid [`Quorum`](kvorum_core::quorum::Quorum).
//!
//! Read `connection.rs` for a connection's life, `service.rs` for a request's.

mod accept;
mod answer_lines;
pub mod api;
mod audited;
mod bad_request;
mod batch;
mod body;
mod browsers;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "tests/fake.rs"]
mod fake;
mod front_page;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gate;
mod in_flight;
mod io;
mod json_members;
mod media;
mod metrics;
mod numbers;
mod problem;
mod range;
mod request;
mod respond;
pub mod routes;
mod scan;
mod seats;
mod service;
pub mod settings;
pub mod shard;
mod shares;
mod watch;
mod whoami;
pub mod work;

pub use accept::{IncomingStream, serve_connection};
pub use api::{
    Admin, AdminFuture, AuditLog, AuditedKind, AuditedRequest, Entities, PEER_PROTOCOL, PeerRefusal, PeerUpgrade,
    ScanAdvance, ScanSource, Scans,
};
pub use browsers::{BrowserRules, OriginHeaders, OriginRefusal, RequestOrigin};
pub use error::{ERRORS, ErrorKind, HEAD_TOO_LARGE};
pub use gate::{AuthState, Gate, MetricsAccess};
pub use metrics::{HttpMetrics, METHODS, STATUSES};
pub use range::{PageFuture, PageRoom, RangeError, Ranges};
pub use seats::{AddressSeat, AddressSeats};
pub use settings::HttpSettings;
pub use shard::{HttpParts, HttpShard};
pub use shares::ClientShares;

#[cfg(test)]
mod tests;
