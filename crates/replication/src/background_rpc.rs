//! Questions of a shard's background work and of scans, to peers and to this node, and their answers. An answer here
//! counts for no quorum, so nodes without a vote give theirs as well; pages of scans and votes on layouts excepted.
//!
//! Every call ends: with its answer, when the connection ends, or when its future is dropped (the caller keeps a
//! deadline). Bounded by what the callers keep under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use kvorum_base::value_memory::LargeValues;
use kvorum_core::chain;
use kvorum_core::chain::{ChainAnswer, ChainRequest};
use kvorum_core::frame::{Message, NO_EPOCH};
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::quorum::{Failure, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::repair::wire::{RoundRequest, RoundResponse};
use kvorum_core::scan::page::{PageQuestion, ScanPage};
use kvorum_core::{Hlc, Key, Record};
use kvorum_peer::error::ProtocolError;
use kvorum_peer::link::Grouping;
use kvorum_peer::membership::Membership;
use kvorum_peer::peers::Peers;
use kvorum_peer::request_id::background_id;
use tokio::sync::oneshot;

use crate::replica::reply_to::ReplyTo;
use crate::replica::{AnswerCounts, Replica, StoreReason};
use crate::reply::Reply;

/// Questions of one shard's background work.
pub struct BackgroundRpc {
    membership: Arc<Membership>,
    peers: Rc<Peers>,
    replica: Rc<Replica<ReplyTo>>,
    large_values: Arc<LargeValues>,
    /// Those that wait for peers.
    waiting: RefCell<BTreeMap<u32, WaitingCall>>,
    last: Cell<u32>,
}

struct WaitingCall {
    node: NodeId,
    /// Whose record is awaited.
    key: Option<Key>,
    tell: oneshot::Sender<Reply>,
}

/// Removes a call when its future ends.
struct CallGuard<'a> {
    calls: &'a BackgroundRpc,
    number: u32,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.calls.waiting.borrow_mut().remove(&self.number);
    }
}

impl BackgroundRpc {
    /// Nothing is under way yet.
    #[must_use]
    pub fn new(
        membership: Arc<Membership>,
        peers: Rc<Peers>,
        replica: Rc<Replica<ReplyTo>>,
        large_values: Arc<LargeValues>,
    ) -> Rc<Self> {
        let (waiting, last) = Default::default();
        Rc::new(Self { membership, peers, replica, large_values, waiting, last })
    }

    /// What `node` holds for the key. Cancel safe.
    pub async fn read(&self, node: NodeId, key: &Key) -> ReadAnswer<Record> {
        let reply = if node == self.membership.own() {
            let (tell, told) = oneshot::channel();
            match self.replica.read(key, self.membership.epoch(), AnswerCounts::Outside, || ReplyTo::Call(tell)) {
                Some(held) => return held,
                None => told.await.unwrap_or(Reply::Failed(Failure::NotServing)),
            }
        } else {
            let message = Message::Read { key: key.clone(), wanted: Wanted::Record, non_voting: true };
            self.ask(node, message, Some(key)).await
        };
        match reply {
            Reply::Read(held) => held,
            Reply::Failed(failure) => ReadAnswer::Failed(failure),
            Reply::Stored(_) | Reply::Repair(_) | Reply::Page(..) | Reply::Layout(_) => {
                ReadAnswer::Failed(Failure::Corrupt)
            }
        }
    }

    /// Gives `node` a record that some replica holds. Dropped, the store may still take effect.
    pub async fn repair(&self, node: NodeId, key: &Key, record: &Record) -> StoreAnswer {
        let reply = if node == self.membership.own() {
            let (tell, told) = oneshot::channel();
            let submission = self.replica.submission(
                key.clone(),
                record,
                self.membership.epoch(),
                StoreReason::Repair,
                AnswerCounts::Outside,
                ReplyTo::Call(tell),
            );
            match self.replica.store(submission) {
                Ok(()) => told.await.unwrap_or(Reply::Failed(Failure::NotServing)),
                Err((_, failure)) => Reply::Failed(failure),
            }
        } else {
            let (key, record) = (key.clone(), record.bytes().clone());
            let message = Message::Store { key, record, repair: true, non_voting: true };
            self.ask(node, message, None).await
        };
        reply.of_store()
    }

    /// Gives a peer a client's write that it has missed: its fence holds for that. Sent at once, so that many can
    /// be under way; the future is the answer. Dropped, the store may still take effect.
    ///
    /// # Errors
    /// As [`PeerClient::send`](kvorum_peer::client::PeerClient::send).
    pub fn hint<'a>(
        &'a self,
        node: NodeId,
        key: &Key,
        record: &Record,
    ) -> Result<impl Future<Output = StoreAnswer> + use<'a>, Failure> {
        let (key, record) = (key.clone(), record.bytes().clone());
        let message = Message::Store { key, record, repair: false, non_voting: true };
        let (entry, told) = self.send(node, self.membership.epoch(), message, None)?;
        Ok(async move {
            let _entry = entry;
            told.await.unwrap_or(Reply::Failed(Failure::Unreachable)).of_store()
        })
    }

    /// Asks a peer a question of anti-entropy.
    pub async fn request(&self, node: NodeId, request: &RoundRequest) -> Result<RoundResponse, Failure> {
        match self.ask(node, Message::Repair(request.encode()), None).await {
            Reply::Repair(response) => Ok(response),
            Reply::Failed(failure) => Err(failure),
            Reply::Stored(_) | Reply::Read(_) | Reply::Page(..) | Reply::Layout(_) => Err(Failure::Corrupt),
        }
    }

    /// Asks a peer for a page of a scan; with it comes the peer's clock. Unlike the others, such an answer counts for a
    /// quorum: a node without a vote gives none.
    /// `epoch`: of the layout by which it is asked.
    pub async fn page(&self, node: NodeId, epoch: u64, question: &PageQuestion) -> Result<(ScanPage, Hlc), Failure> {
        match self.ask_by(node, epoch, Message::Scan(question.encode()), None).await {
            Reply::Page(page, clock) => Ok((page, clock)),
            Reply::Failed(failure) => Err(failure),
            Reply::Stored(_) | Reply::Read(_) | Reply::Repair(_) | Reply::Layout(_) => Err(Failure::Corrupt),
        }
    }

    /// Asks a peer about layouts.
    pub async fn layout(&self, node: NodeId, request: &ChainRequest<Layout>) -> Result<ChainAnswer<Layout>, Failure> {
        match self.ask(node, Message::Layout(chain::encode(request).into()), None).await {
            Reply::Layout(answer) => Ok(answer),
            Reply::Failed(failure) => Err(failure),
            Reply::Stored(_) | Reply::Read(_) | Reply::Repair(_) | Reply::Page(..) => Err(Failure::Corrupt),
        }
    }

    /// Whether this node is past the layout of this epoch.
    #[must_use]
    pub fn is_past(&self, epoch: u64) -> bool {
        self.replica.is_past(epoch)
    }

    async fn ask(&self, node: NodeId, message: Message, key: Option<&Key>) -> Reply {
        // A question about layouts goes to nodes that know none yet.
        let epoch = if matches!(message, Message::Layout(_)) { NO_EPOCH } else { self.membership.epoch() };
        self.ask_by(node, epoch, message, key).await
    }

    async fn ask_by(&self, node: NodeId, epoch: u64, message: Message, key: Option<&Key>) -> Reply {
        match self.send(node, epoch, message, key) {
            Ok((_entry, told)) => told.await.unwrap_or(Reply::Failed(Failure::Unreachable)),
            Err(failure) => Reply::Failed(failure),
        }
    }

    fn send(
        &self,
        node: NodeId,
        epoch: u64,
        message: Message,
        key: Option<&Key>,
    ) -> Result<(CallGuard<'_>, oneshot::Receiver<Reply>), Failure> {
        let peer = self.peers.get(node).ok_or(Failure::Unreachable)?;
        let (tell, told) = oneshot::channel();
        let number = self.last.get().wrapping_add(1);
        self.last.set(number);
        self.waiting.borrow_mut().insert(number, WaitingCall { node, key: key.cloned(), tell });
        let entry = CallGuard { calls: self, number };
        peer.send(background_id(number), epoch, message, Grouping::Alone)?;
        Ok((entry, told))
    }

    /// Takes a peer's answer to the call of this number.
    ///
    /// # Errors
    /// If it is none.
    pub fn on_answer(&self, node: NodeId, number: u32, answer: Message, clock: Hlc) -> Result<(), ProtocolError> {
        let waiting = self.waiting.borrow_mut().remove(&number);
        let waiting = waiting.filter(|waiting| waiting.node == node);
        let reply = match answer {
            Message::StoreAnswer(answer) => Reply::Stored(answer),
            Message::ReadAnswer(answer) => {
                let key = waiting.as_ref().and_then(|waiting| waiting.key.as_ref());
                Reply::Read(key.map_or(ReadAnswer::Failed(Failure::Timeout), |key| {
                    answer.checked(|bytes| self.large_values.verified(key, bytes))
                }))
            }
            Message::RepairAnswer(payload) => {
                Reply::Repair(RoundResponse::decode(&payload).map_err(|_| ProtocolError::NotAnAnswer)?)
            }
            Message::ScanAnswer(Ok(page)) => {
                Reply::Page(ScanPage::decode(page).map_err(|_| ProtocolError::NotAnAnswer)?, clock)
            }
            Message::LayoutAnswer(Ok(answer)) => {
                Reply::Layout(chain::decode(&answer).ok_or(ProtocolError::NotAnAnswer)?)
            }
            Message::ScanAnswer(Err(failure)) | Message::LayoutAnswer(Err(failure)) => Reply::Failed(failure),
            Message::Store { .. }
            | Message::Read { .. }
            | Message::Repair(_)
            | Message::Scan(_)
            | Message::Layout(_)
            | Message::Proof(_)
            | Message::Ping { .. }
            | Message::Pong { .. } => return Err(ProtocolError::NotAnAnswer),
        };
        if let Some(WaitingCall { tell, .. }) = waiting {
            // The caller may have given up.
            let _ = tell.send(reply);
        }
        Ok(())
    }

    /// The connection to `node` has ended.
    pub fn fail_all(&self, node: NodeId) {
        // The end of its channel shows that to the caller.
        self.waiting.borrow_mut().retain(|_, waiting| waiting.node != node);
    }
}
