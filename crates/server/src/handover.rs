//! What the node gives its shards, and for how long it waits for them.

use std::time::Duration;

/// A connection on its way to its shard's runtime.
pub(crate) type TcpHandover = std::net::TcpStream;

/// Clients get so long to finish when the node stops; the exit itself comes within ten seconds.
const DRAIN_MAX: Duration = Duration::from_secs(7);

/// How long connections may take to finish.
#[must_use]
pub(crate) fn drain_max() -> Duration {
    DRAIN_MAX
}
