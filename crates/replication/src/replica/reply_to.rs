//! What waits for an answer from another thread.

use kvorum_core::quorum::Failure;
use tokio::sync::oneshot;

use super::peer_reply::PeerReply;
use crate::operation_id::OperationId;
use crate::reply::Reply;

/// What waits for an answer from another thread.
pub enum ReplyTo {
    /// A request that this shard coordinates.
    Operation(OperationId),
    /// A peer.
    Peer(PeerReply),
    /// Background work of this shard.
    Call(oneshot::Sender<Reply>),
    /// What waits for something to be durable: the clock's bound, a fact of anti-entropy.
    Durable(oneshot::Sender<Result<(), Failure>>),
}
