//! What HTTP is limited to.

use std::time::Duration;

use crate::browsers::BrowserRules;

/// Limits of one shard, and what requests without values get.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Largest value.
    pub value_bytes_max: usize,
    /// A request's head, and then its body, must be complete within this.
    pub request_read_timeout: Duration,
    /// A connection on which nothing comes is closed after this.
    pub idle_timeout: Duration,
    /// A client that reads nothing of what waits for it is cut off after this.
    pub write_timeout: Duration,
    /// A second, which a client has to take of what waits for it, over half a minute; 0: any.
    pub answer_rate_min: usize,
    /// Open connections.
    pub connections_max: usize,
    /// Requests in flight, streams included.
    pub requests_max: usize,
    /// Bytes of one page of a range.
    pub scan_page_bytes: usize,
    /// For how many seconds a value lives where the request does not say; none: without end.
    pub default_ttl_s: Option<u32>,
    /// Replicas addressed where the request gives none, as long as the cluster has not decided that.
    pub founding_copies: u8,
    /// Which names the node has, and which pages may use it.
    pub browsers: BrowserRules,
}
