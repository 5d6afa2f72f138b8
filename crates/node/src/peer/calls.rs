//! Stores that a shard's own background work sends to peers and waits for: outside of every client's request, and
//! never mistaken for a part of one, since an answer to a call has an id that no request has.
//!
//! Bounded by whoever calls; a caller that no longer waits frees its place when the answer comes or the connection
//! ends, which is within the seconds that a silent peer is given.

use std::cell::RefCell;

use kvorum_core::frame::Message;
use kvorum_core::placement::NodeId;
use kvorum_core::quorum::{Failure, StoreAnswer};
use kvorum_core::{Key, Record};
use slab::Slab;
use tokio::sync::oneshot;

use crate::shard::Shard;

/// The high half of the ids of calls. Requests have a generation there, which is never zero.
const MARK: u64 = 1;

/// Whether a replica's fence holds for what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client's write, come late: it does.
    Hint,
    /// What replicas are known to hold: it does not.
    Repair,
}

struct Call {
    node: NodeId,
    caller: oneshot::Sender<StoreAnswer>,
}

/// The calls of one shard that wait for their answers.
#[derive(Default)]
pub struct Calls {
    waiting: RefCell<Slab<Call>>,
}

impl Calls {
    /// Sends a record to a peer. The receiver fails if the connection ends before the answer. Cancel safe:
    /// whoever drops the receiver gives up the answer, not the store.
    ///
    /// # Errors
    /// As [`PeerClient::send`](super::client::PeerClient::send); `Unreachable` for this node itself.
    pub fn store(
        &self,
        shard: &Shard,
        node: NodeId,
        key: &Key,
        record: &Record,
        kind: Kind,
    ) -> Result<oneshot::Receiver<StoreAnswer>, Failure> {
        let peer = shard.peer(node).ok_or(Failure::Unreachable)?;
        let (caller, answer) = oneshot::channel();
        let slot = self.waiting.borrow_mut().insert(Call { node, caller });
        let id = MARK << 32 | u64::try_from(slot).expect("a slot is a small number") & 0xffff_ffff;
        let message = Message::Store { key: key.clone(), record: record.bytes().clone(), repair: kind == Kind::Repair };
        peer.send(shard, id, message).inspect_err(|_| drop(self.waiting.borrow_mut().remove(slot)))?;
        Ok(answer)
    }

    /// Hands an answer to its caller; back if it is no call's.
    ///
    /// # Errors
    /// The answer, which belongs to a request.
    pub fn take(&self, node: NodeId, id: u64, answer: StoreAnswer) -> Result<(), StoreAnswer> {
        if id >> 32 != MARK {
            return Err(answer);
        }
        let slot = usize::try_from(id & 0xffff_ffff).expect("32 bits fit");
        let mut waiting = self.waiting.borrow_mut();
        if waiting.get(slot).is_some_and(|call| call.node == node) {
            // A caller that has gone wants no answer.
            let _ = waiting.remove(slot).caller.send(answer);
        }
        Ok(())
    }

    /// The connection to a node ended.
    pub fn fail_all(&self, node: NodeId) {
        self.waiting.borrow_mut().retain(|_, call| call.node != node);
    }

    /// Calls that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }
}
