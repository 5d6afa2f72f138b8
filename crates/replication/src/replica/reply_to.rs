//! What waits for an answer from another thread.

use kvorum_core::quorum::Failure;
use kvorum_storage::commit::Promise;
use tokio::sync::oneshot;

use super::Replica;
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

impl Replica<ReplyTo> {
    /// Makes a promise, which is durable when this returns. Dropped, it may be all the same.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn promise(&self, promise: Promise) -> Result<(), Failure> {
        let (tell, told) = oneshot::channel();
        self.make_durable(promise, ReplyTo::Durable(tell)).map_err(|_| Failure::Overloaded)?;
        told.await.unwrap_or(Err(Failure::NotServing))
    }
}
