//! What can be wrong with a request.

/// What is wrong with a request; the text is the problem's detail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRequest {
    #[error("there is nothing at this path")]
    UnknownPath,
    #[error("the path has no parameter `{0}`")]
    UnknownParameter(String),
    #[error("the parameter `{0}` is given more than once")]
    Repeated(&'static str),
    #[error("the parameter `id` is required")]
    MissingId,
    #[error("`id` must not be empty")]
    EmptyId,
    #[error("`id` has at most 2048 bytes after decoding")]
    LongId,
    #[error("a `%` in the query is not followed by two hexadecimal digits")]
    Escape,
    #[error("`{0}` must be a decimal integer (`replicas`: two, as in `2/3`)")]
    NotANumber(&'static str),
    #[error("`ttl` is a whole number of seconds from 1 to 315360000")]
    Ttl,
    #[error("`replicas` cannot be combined with `ack` or `from`")]
    MixedSpellings,
    #[error("1 ≤ ack ≤ from ≤ {nodes} must hold: the cluster has {nodes} nodes")]
    Acks { nodes: u8 },
    #[error("the parameter `start` is required and must not be empty")]
    MissingStart,
    #[error("`end` must not be empty where it is given")]
    EmptyEnd,
    #[error("a scan has `prefix`, which may be empty, or `start` with or without `end`")]
    ScanRange,
    #[error("`start` and `end` of a scan must not be empty: `prefix=` is for all keys")]
    EmptyBound,
    #[error("`prefix`, `start` and `end` have at most 2048 bytes after decoding")]
    LongBound,
    #[error("`limit` is at least 1: leave it out for all records")]
    Limit,
    #[error("`{0}` is 0 or 1")]
    NotAFlag(&'static str),
    #[error("`after` is no token of a scan of this range, `ack` and `from`, in this cluster")]
    Token,
    #[error("the query: {0}")]
    Query(String),
    #[error("a stored content type has at most 255 bytes")]
    LongContentType,
    #[error("partial values (`Content-Range`) cannot be stored")]
    ContentRange,
    #[error("an HTTP/1.1 request names exactly one `Host`")]
    Host,
    #[error("the request's body is malformed or ends early")]
    Body,
    #[error("the request is not HTTP/1.1 or HTTP/1.0")]
    Malformed,
}
