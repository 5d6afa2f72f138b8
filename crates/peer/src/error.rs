//! Why nodes do not connect.

/// Why a peer is refused: a short name for its headers and logs, and a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// A header is absent or malformed.
    #[error("the peer's handshake has no valid {0} header")]
    Malformed(&'static str),
    /// Another cluster.
    #[error(
        "the peer belongs to cluster {theirs:016x}, this node to {ours:016x}: give every node the same --cluster list"
    )]
    Cluster {
        /// The peer's.
        theirs: u64,
        /// This node's.
        ours: u64,
    },
    /// Same URLs, other weights or zones.
    #[error("the peer's layout is {theirs:016x}, this node's {ours:016x}: give every node the same weights and zones")]
    Layout {
        /// The peer's.
        theirs: u64,
        /// This node's.
        ours: u64,
    },
    /// Not in the list.
    #[error("the peer calls itself {0}, which is not in this node's --cluster list")]
    Unknown(String),
    /// Two nodes with one data directory's identity.
    #[error("the peer {0} has this node's own incarnation: one data directory was copied from the other; empty one")]
    Copied(String),
    /// The peer waits longer than this node remembers.
    #[error("the peer's coordinator.deadline is {theirs} ms, over this node's {ours} ms: set the same on every node")]
    Deadline {
        /// The peer's, in milliseconds.
        theirs: u64,
        /// This node's, in milliseconds.
        ours: u64,
    },
}

/// Why a connection is closed for what came over it.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A frame that is not one.
    #[error(transparent)]
    Frame(#[from] kvorum_core::frame::FrameError),
    /// An answer where requests belong.
    #[error("an answer came where requests belong")]
    NotARequest,
    /// A request where answers belong.
    #[error("a request came where answers belong")]
    NotAnAnswer,
}
