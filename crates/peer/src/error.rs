//! Why nodes do not connect.

use crate::room::NoPeerRoom;

/// Why a peer is refused: a short name for its headers and logs, and a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// A header is absent or malformed.
    #[error("the peer's handshake has no valid {0} header")]
    Malformed(&'static str),
    /// Another cluster.
    #[error(
        "the peer belongs to another cluster, which was founded apart from this one: one of the two has the data directory \
         of an earlier cluster, or is meant for another list"
    )]
    Cluster {
        /// The peer's.
        theirs: u64,
        /// This node's.
        ours: u64,
    },
    /// Another list of nodes to found a cluster with.
    #[error(
        "the peer's list of nodes is another: give every node the --cluster list, weights and zones with which the cluster \
         was first started"
    )]
    Founding {
        /// The peer's.
        theirs: u64,
        /// This node's.
        ours: u64,
    },
    /// Not in the layout.
    #[error("the peer calls itself {0}, which is no node of the layout that this node knows")]
    Unknown(String),
    /// Two nodes with one data directory's identity.
    #[error("the peer {0} has this node's own data directory: one was copied from the other; empty one")]
    Copied(String),
    /// It has not shown that it has the cluster's secret.
    #[error("the peer shows no proof of the cluster's secret: give every node the same peer.secret_file")]
    NoProof,
    /// Its connection has ended before that.
    #[error(
        "the peer's connection ended before its proof of the cluster's secret: if that goes on, give every node the same \
         peer.secret_file"
    )]
    Unproven,
    /// It has another secret.
    #[error("the peer's proof of the cluster's secret is wrong: give every node the same peer.secret_file")]
    WrongProof,
    /// The peer waits longer than this node remembers.
    #[error("the peer's coordinator.deadline is {theirs} ms, over this node's {ours} ms: set the same on every node")]
    Deadline {
        /// The peer's, in milliseconds.
        theirs: u64,
        /// This node's, in milliseconds.
        ours: u64,
    },
}

/// Why a caller is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallRefused {
    /// It does not belong here.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// It remembers more of this node than there is. If that is true, this node must not answer it; and it is not known
    /// to be true before this node has dialled that peer.
    #[error("this node has to connect to the peer first: the peer remembers more of it than there is")]
    Accuser,
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
    /// Something else where a proof of the cluster's secret belongs, or a wrong one.
    #[error("no right proof of the cluster's secret came first")]
    NoProof,
    /// It takes more than it may.
    #[error(transparent)]
    NoRoom(#[from] NoPeerRoom),
}
