//! Hands out what comes to a shard: frames of peers, and what other threads have done for it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_base::clock::Clock;
use kvorum_base::cpu_share::CpuShare;
use kvorum_core::chain;
use kvorum_core::frame::{Frame, Message, NO_EPOCH};
use kvorum_core::node::NodeId;
use kvorum_core::quorum::{Failure, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::repair::wire::{RoundRequest, RoundResponse};
use kvorum_core::scan::page::PageQuestion;
use kvorum_core::{Hlc, Key, Record};
use kvorum_peer::detach::detach;
use kvorum_peer::error::ProtocolError;
use kvorum_peer::handler::{Caller, FrameHandler};
use kvorum_peer::link::{Grouping, Link};
use kvorum_peer::membership::Membership;
use kvorum_peer::request_id::background_number;
use kvorum_storage::commit::{Completion, CompletionToken, Work};

use crate::anti_entropy::member::Member;
use crate::background_rpc::BackgroundRpc;
use crate::cluster_scan::PageReader;
use crate::coordinator::Coordinator;
use crate::layouts::voter::LayoutVoter;
use crate::replica::peer_reply::PeerReply;
use crate::replica::reply_to::ReplyTo;
use crate::replica::{AnswerCounts, Event, Mailbox, Replica, StoreReason};
use crate::reply::Reply;

/// Has the parts of a shard that something may be for.
pub(super) struct Dispatch {
    pub(super) clock: Arc<Clock>,
    pub(super) membership: Arc<Membership>,
    pub(super) replica: Rc<Replica<ReplyTo>>,
    pub(super) coordinator: Coordinator,
    pub(super) rpc: Rc<BackgroundRpc>,
    pub(super) member: Rc<Member>,
    pub(super) voter: Rc<LayoutVoter>,
    pub(super) cpu_share: CpuShare,
    /// Pages for scans over the cluster.
    pub(super) pages: Rc<PageReader>,
    /// Stores that arrived together and have not been handed in.
    pub(super) works: RefCell<Vec<Work>>,
}

/// A record that a peer gives this node.
struct PeerStore {
    key: Key,
    record: Bytes,
    epoch: u64,
    reason: StoreReason,
    counts: AnswerCounts,
}

fn answer_read(
    replica: &Replica<ReplyTo>,
    clock: &Clock,
    key: &Key,
    epoch: u64,
    counts: AnswerCounts,
    reply: PeerReply,
) {
    if let Some(held) = replica.read(key, epoch, counts, || ReplyTo::Peer(reply.clone())) {
        reply.read(clock, held);
    }
}

fn counts_of(non_voting: bool) -> AnswerCounts {
    if non_voting { AnswerCounts::Outside } else { AnswerCounts::InQuorum }
}

impl Dispatch {
    /// Hands out what other threads have done. Runs until it is dropped.
    pub(super) async fn take_mail(self: Rc<Self>, mailbox: Arc<Mailbox>) {
        let mut events = Vec::new();
        loop {
            mailbox.take(&mut events).await;
            for event in events.drain(..) {
                self.take_event(event);
            }
        }
    }

    fn take_event(&self, event: Event) {
        match event {
            Event::Commit(Completion::Stored { token, answer }) => {
                let (reply_to, abstains) = self.replica.answered(token);
                // What failed has failed all the same: `Rebuilding` means that it was carried out.
                let answer = match answer {
                    StoreAnswer::Failed(_) => answer,
                    _ => abstains.map_or(answer, StoreAnswer::Failed),
                };
                match reply_to {
                    ReplyTo::Peer(reply) => reply.stored(&self.clock, answer),
                    ReplyTo::Operation(id) => {
                        self.coordinator.on_stored(self.membership.own(), id.get(), answer, Hlc::ZERO)
                    }
                    // The caller may have given up.
                    ReplyTo::Call(waiting) => _ = waiting.send(Reply::Stored(answer)),
                    ReplyTo::Durable(_) => unreachable!("that asks for no store"),
                }
            }
            Event::Commit(Completion::Raised { token, bound }) => {
                self.tell_durable(token, bound.map(|_| ()));
            }
            Event::Commit(Completion::MadeDurable { token, result }) => self.tell_durable(token, result),
            Event::Read { token, answer } => {
                let (reply_to, abstains) = self.replica.answered(token);
                let answer = abstains.map_or(answer, ReadAnswer::Failed);
                match reply_to {
                    ReplyTo::Peer(reply) => reply.read(&self.clock, answer),
                    ReplyTo::Operation(id) => self.coordinator.on_held(id.get(), answer),
                    // The caller may have given up.
                    ReplyTo::Call(waiting) => _ = waiting.send(Reply::Read(answer)),
                    ReplyTo::Durable(_) => unreachable!("that asks for no read"),
                }
            }
        }
    }

    fn tell_durable(&self, token: CompletionToken, result: Result<(), Failure>) {
        if let ReplyTo::Durable(waiting) = self.replica.redeem(token) {
            // The caller may have given up.
            let _ = waiting.send(result);
        }
    }

    /// An answer. Its clock is durable, also where nothing depends on it: a bundle has one clock for all of its answers,
    /// and what a read counts must be so.
    fn frame(&self, id: u64, message: Message) -> Frame {
        Frame { id, epoch: NO_EPOCH, hlc: self.clock.durable_reading(), message }
    }

    /// Answers a question that is not looked at.
    fn refuse(&self, link: &Rc<Link>, id: u64, question: &Message, failure: Failure, grouping: Grouping) {
        let answer = match question {
            Message::Store { .. } => Message::StoreAnswer(StoreAnswer::Failed(failure)),
            Message::Read { .. } => Message::ReadAnswer(ReadAnswer::Failed(failure)),
            Message::Scan(_) => Message::ScanAnswer(Err(failure)),
            Message::Repair(_) => Message::RepairAnswer(RoundResponse::Failed.encode()),
            _ => return,
        };
        link.reply(&self.frame(id, answer), grouping);
    }

    /// A store waits among `works`, or is refused at once.
    fn take_store(&self, link: &Rc<Link>, id: u64, store: PeerStore, grouping: Grouping) {
        let PeerStore { key, record, epoch, reason, counts } = store;
        if counts == AnswerCounts::InQuorum {
            self.cpu_share.note_request();
        }
        let (key, record) = detach(key, record);
        let refused = match Record::decode(&key, record) {
            Err(_) => Some(Failure::Corrupt),
            Ok(record) => match self.replica.refuses_stores() {
                Some(failure) => Some(failure),
                None => {
                    let reply_to = ReplyTo::Peer(PeerReply::new(link.clone(), id, Wanted::Record, grouping));
                    let submission = self.replica.submission(key, &record, epoch, reason, counts, reply_to);
                    self.works.borrow_mut().push(Work::Store(submission));
                    None
                }
            },
        };
        if let Some(failure) = refused {
            link.reply(&self.frame(id, Message::StoreAnswer(StoreAnswer::Failed(failure))), grouping);
        }
    }

    /// Answers a read once the clock is durable: a write to the log, at most one in the lead of the clock's bound.
    fn read_at_clock(&self, key: Key, epoch: u64, counts: AnswerCounts, reply: PeerReply) {
        let (replica, clock, coordinator) = (self.replica.clone(), self.clock.clone(), self.coordinator.clone());
        // It came with the buffer that it was read into.
        let (key, _) = detach(key, Bytes::new());
        tokio::task::spawn_local(async move {
            match coordinator.make_clock_durable().await {
                Ok(()) => answer_read(&replica, &clock, &key, epoch, counts, reply),
                Err(failure) => reply.read(&clock, ReadAnswer::Failed(failure)),
            }
        });
    }

    /// A scan over the cluster asks for a page.
    fn take_scan(&self, link: &Rc<Link>, id: u64, epoch: u64, payload: Bytes) -> Result<(), ProtocolError> {
        let question = PageQuestion::decode(payload).map_err(|_| ProtocolError::NotARequest)?;
        let Some(admitted) = self.pages.admit() else {
            link.reply(&self.frame(id, Message::ScanAnswer(Err(Failure::Overloaded))), Grouping::Alone);
            return Ok(());
        };
        let (pages, clock, link) = (self.pages.clone(), self.clock.clone(), link.clone());
        let replica = self.replica.clone();
        tokio::task::spawn_local(async move {
            let page = pages.read_encoded(question).await;
            let page = if replica.is_past(epoch) { Err(Failure::Epoch) } else { page };
            drop(admitted);
            // After the page: what it says of values that end is of now.
            let answer =
                Frame { id, epoch: NO_EPOCH, hlc: clock.durable_reading(), message: Message::ScanAnswer(page) };
            // A link that broke loses it, and the scan sees the end.
            let _ = link.answer(&answer, Grouping::Alone);
        });
        Ok(())
    }

    /// A question about layouts.
    fn take_layout(&self, link: &Rc<Link>, id: u64, payload: &[u8]) -> Result<(), ProtocolError> {
        let request = chain::decode(payload).ok_or(ProtocolError::NotARequest)?;
        let (voter, clock, link) = (self.voter.clone(), self.clock.clone(), link.clone());
        tokio::task::spawn_local(async move {
            let answer = Message::LayoutAnswer(voter.answer_peer(request).await);
            // A link that broke loses it, and the asker sees the end.
            let _ = link
                .answer(&Frame { id, epoch: NO_EPOCH, hlc: clock.durable_reading(), message: answer }, Grouping::Alone);
        });
        Ok(())
    }

    /// A question of a driver of anti-entropy.
    fn take_repair(&self, caller: NodeId, link: &Rc<Link>, id: u64, payload: &[u8]) -> Result<(), ProtocolError> {
        let request = RoundRequest::decode(payload).map_err(|_| ProtocolError::NotARequest)?;
        let Some(admitted) = self.member.anti_entropy.admit() else {
            link.reply(&self.frame(id, Message::RepairAnswer(RoundResponse::Failed.encode())), Grouping::Alone);
            return Ok(());
        };
        let (member, clock, link) = (self.member.clone(), self.clock.clone(), link.clone());
        tokio::task::spawn_local(async move {
            let response = member.answer(caller, request).await;
            drop(admitted);
            let answer =
                Frame { id, epoch: NO_EPOCH, hlc: clock.reading(), message: Message::RepairAnswer(response.encode()) };
            // A link that broke loses it, and the driver sees the end.
            let _ = link.answer(&answer, Grouping::Alone);
        });
        Ok(())
    }
}

impl FrameHandler for Dispatch {
    fn on_connected(&self, node: NodeId) {
        self.coordinator.on_connected(node);
    }

    fn on_disconnected(&self, node: NodeId) {
        self.coordinator.on_disconnected(node);
        self.rpc.fail_all(node);
    }

    fn on_answer(&self, node: NodeId, answer: Frame) -> Result<(), ProtocolError> {
        let Frame { id, message, hlc, .. } = answer;
        if let Some(number) = background_number(id) {
            return self.rpc.on_answer(node, number, message, hlc);
        }
        match message {
            Message::StoreAnswer(answer) => self.coordinator.on_stored(node, id, answer, hlc),
            Message::ReadAnswer(answer) => self.coordinator.on_read(node, id, answer, hlc),
            Message::RepairAnswer(_)
            | Message::Scan(_)
            | Message::ScanAnswer(_)
            | Message::Layout(_)
            | Message::LayoutAnswer(_)
            | Message::Proof(_)
            | Message::Pong { .. }
            | Message::Store { .. }
            | Message::Read { .. }
            | Message::Ping { .. }
            | Message::Repair(_) => return Err(ProtocolError::NotAnAnswer),
        }
        Ok(())
    }

    fn on_request(
        &self,
        caller: Caller,
        link: &Rc<Link>,
        request: Frame,
        grouping: Grouping,
    ) -> Result<(), ProtocolError> {
        let Frame { id, epoch, message, .. } = request;
        if epoch > self.membership.epoch() {
            self.refuse(link, id, &message, Failure::Epoch, grouping);
            return Ok(());
        }
        match message {
            Message::Store { key, record, repair, non_voting } => {
                let reason = if repair { StoreReason::Repair } else { StoreReason::Write };
                let store = PeerStore { key, record, epoch, reason, counts: counts_of(non_voting) };
                self.take_store(link, id, store, grouping);
            }
            Message::Read { key, wanted, non_voting } => {
                if !non_voting {
                    self.cpu_share.note_request();
                }
                let reply = PeerReply::new(link.clone(), id, wanted, grouping);
                if wanted == Wanted::VersionAtClock && !self.clock.is_present_durable() {
                    self.read_at_clock(key, epoch, counts_of(non_voting), reply);
                } else {
                    answer_read(&self.replica, &self.clock, &key, epoch, counts_of(non_voting), reply);
                }
            }
            Message::Repair(payload) => self.take_repair(caller.node, link, id, &payload)?,
            Message::Ping { .. } => {
                let pong = Message::Pong {
                    wall_ms: self.clock.wall_ms(),
                    sequence: self.membership.sequence(self.replica.sequence()),
                    remembers_you: self.membership.remembers(caller.node, caller.directory),
                    rebuilt: self.membership.is_rebuilt(),
                    epoch: self.membership.epoch(),
                    backpressure: self.membership.own_state().backpressure(),
                };
                link.reply(&self.frame(id, pong), Grouping::Alone);
            }
            Message::Scan(payload) => self.take_scan(link, id, epoch, payload)?,
            Message::Layout(payload) => self.take_layout(link, id, &payload)?,
            Message::StoreAnswer(_)
            | Message::ReadAnswer(_)
            | Message::ScanAnswer(_)
            | Message::LayoutAnswer(_)
            | Message::RepairAnswer(_)
            | Message::Proof(_)
            | Message::Pong { .. } => {
                return Err(ProtocolError::NotARequest);
            }
        }
        Ok(())
    }

    /// What arrived together goes to the commit thread together.
    fn on_requests_end(&self) {
        let mut works = self.works.borrow_mut();
        self.replica.store_all(&mut works);
        for refused in works.drain(..) {
            if let Work::Store(submission) = refused
                && let ReplyTo::Peer(reply) = self.replica.redeem(submission.token)
            {
                reply.stored(&self.clock, StoreAnswer::Failed(Failure::Overloaded));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kvorum_core::Hlc;
    use kvorum_core::frame::Message;
    use kvorum_core::quorum::{Failure, StoreAnswer};

    use crate::coordinator::tests::rig::{Rig, Settings, run, until};

    #[test]
    fn a_clock_that_is_made_durable_is_not_behind_its_own_wall_clock() {
        run(async {
            let rig = Rig::start(2, Settings::default()).await;
            let clock = &rig.shard.clock;
            until(|| clock.wall_ms() > clock.reading().millis()).await;
            let now_ms = clock.wall_ms();
            rig.shard.coordinator.make_clock_durable().await.unwrap();
            assert!(clock.durable_reading().millis() >= now_ms);
        });
    }

    #[test]
    fn no_answer_shows_a_clock_that_is_not_durable() {
        run(async {
            let rig = Rig::start(2, Settings::default()).await;
            let clock = &rig.shard.clock;
            clock.observe(Hlc::from_millis(clock.wall_ms() + 5_000));
            assert!(clock.reading() > clock.durable_reading(), "it was moved past its bound");
            // A refusal may share its bundle, and so its clock, with the answer to a read.
            let refusal = rig.shard.dispatch.frame(7, Message::StoreAnswer(StoreAnswer::Failed(Failure::ClockSkew)));
            assert_eq!(refusal.hlc, clock.durable_reading());
        });
    }
}
