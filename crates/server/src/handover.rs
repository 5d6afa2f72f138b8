//! What the node gives its shards, and for how long it waits for them.

use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use kvorum_http::AddressSeat;

/// A connection on its way to its shard's runtime.
pub(crate) struct TcpHandover {
    pub(crate) stream: TcpStream,
    pub(crate) address: IpAddr,
    /// Its seat among those of its address, if there was one.
    pub(crate) seat: Option<AddressSeat>,
}

/// Clients get so long to finish when the node stops; the exit itself comes within ten seconds.
const DRAIN_MAX: Duration = Duration::from_secs(7);

/// How long connections may take to finish.
#[must_use]
pub(crate) fn drain_max() -> Duration {
    DRAIN_MAX
}
