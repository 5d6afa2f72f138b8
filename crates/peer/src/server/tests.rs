#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use kvorum_auth::peer_secret::PeerSecret;
use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::{Clock, SystemTime};
use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::frame::{Frame, Message, NO_EPOCH, encode};
use kvorum_core::layout::Layout;
use kvorum_core::node::DirectoryId;
use kvorum_core::quorum::{Failure, Held, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::{Hlc, Incarnation, Key, Record};
use kvorum_storage::data_dir::{ClusterId, DataDir, Run, RunId};
use tempfile::TempDir;

use super::*;
use crate::context::PeerSettings;
use crate::dial::Tcp;
use crate::handler::Caller;
use crate::link::tests::{pair, receive, run};
use crate::link::{Flusher, Grouping};
use crate::membership::RemembersUs;
use crate::proof::{AwaitedProof, ClusterSecret, SecretNeed};
use crate::room::PeerRoom;

/// Node 0 of two, before any handshake.
pub(crate) fn context(dir: &TempDir, flusher: &Rc<Flusher>) -> Rc<PeerContext> {
    let layout = Layout::fixed_at(["http://a:1", "http://b:1"]).unwrap();
    let data_dir = DataDir::open(&dir.path().join("data"), ClusterId(7)).unwrap();
    let second = Duration::from_secs(1);
    Rc::new(PeerContext {
        shard: 0,
        settings: PeerSettings {
            deadline: 20 * second,
            frame_bytes_max: 1 << 20,
            partial_bytes_max: 1 << 20,
            queue_bytes_max: 1 << 20,
            connect_timeout: second,
            reconnect_delay_max: second,
        },
        clock: Arc::new(Clock::new(Arc::new(SystemTime), Arc::default(), 60 * second, Incarnation(1))),
        membership: Arc::new(Membership::new(
            Acceptor::new(NodeId(0), data_dir.id(), layout),
            data_dir,
            0,
            None,
            60_000,
        )),
        pool: ReadPool::without_threads(1),
        flusher: flusher.clone(),
        dial: Box::new(Tcp::default()),
        secret: None,
        room: PeerRoom::new(10, 1 << 20),
    })
}

/// Accepts every store once all that came together is there.
#[derive(Default)]
struct Accepting(RefCell<Vec<(Rc<Link>, u64)>>);

impl FrameHandler for Accepting {
    fn on_connected(&self, _: NodeId) {}

    fn on_disconnected(&self, _: NodeId) {}

    fn on_answer(&self, _: NodeId, _: Frame) -> Result<(), ProtocolError> {
        Err(ProtocolError::NotAnAnswer)
    }

    fn on_request(&self, _: Caller, link: &Rc<Link>, request: Frame, _: Grouping) -> Result<(), ProtocolError> {
        self.0.borrow_mut().push((link.clone(), request.id));
        Ok(())
    }

    fn on_requests_end(&self) {
        for (link, id) in self.0.take() {
            link.reply(
                &Frame { id, epoch: NO_EPOCH, hlc: Hlc::ZERO, message: Message::StoreAnswer(StoreAnswer::Accepted) },
                Grouping::Alone,
            );
        }
    }
}

#[test]
fn every_question_is_answered_when_records_do_not_fit_the_queue() {
    run(|flusher| async move {
        // Two fill the queue, and are not yet worth a write.
        let length = 30 * 1024;
        let (near, far) = pair(2 * length, &flusher).await;
        let answers = [
            Message::ReadAnswer(ReadAnswer::Held(Held::Record(vec![1; length].into()))),
            Message::ReadAnswer(ReadAnswer::Held(Held::Absent { gc_watermark: kvorum_core::Version::ZERO })),
            Message::StoreAnswer(StoreAnswer::Accepted),
        ];
        let count = 30;
        for id in 0..count {
            let message = answers[usize::try_from(id).unwrap() % 3].clone();
            near.reply(&Frame { id, epoch: NO_EPOCH, hlc: Hlc::ZERO, message }, Grouping::Alone);
        }
        assert!(near.queued_bytes() < 4 * length, "the bound holds for records");
        let mut decoder = Decoder::new(2 * length, 8 * length);
        let mut received = receive(&far, &mut decoder, usize::try_from(count).unwrap()).await;
        received.sort_by_key(|frame| frame.id);
        for (id, frame) in (0..count).zip(&received) {
            let expected = match id {
                id if id % 3 > 0 || id < 6 => &answers[usize::try_from(id).unwrap() % 3],
                _ => &Message::ReadAnswer(ReadAnswer::Failed(Failure::Overloaded)),
            };
            assert!(frame.id == id && frame.message == *expected, "answer {id}");
        }
    });
}

/// A connection of node 1, whose requests are accepted.
fn incoming(context: &Rc<PeerContext>, awaited: Option<AwaitedProof>, link: Rc<Link>) -> Incoming {
    Incoming {
        context: context.clone(),
        handler: Rc::new(Accepting::default()),
        caller: Caller { node: NodeId(1), directory: DirectoryId(2) },
        slot: Rc::new(context.room.enter(context.membership.peer(NodeId(1)), None).unwrap()),
        awaited,
        run: RunId(3),
        link,
        address: None,
        early: Rc::default(),
    }
}

#[test]
fn what_comes_before_this_node_serves_its_cluster_is_answered_when_it_does() {
    run(|flusher| async move {
        let (near, far) = pair(1 << 20, &flusher).await;
        let dir = TempDir::new().unwrap();
        let context = context(&dir, &flusher);
        let key = Key::new("key".into()).unwrap();
        let question = |id, bytes: usize| {
            let version = kvorum_core::Version { hlc: Hlc::from_millis(1), incarnation: Incarnation(1) };
            let record = Record::value(&key, version, 1, None, &vec![0; bytes]);
            let (key, record) = (key.clone(), record.bytes().clone());
            Frame {
                id,
                epoch: NO_EPOCH,
                hlc: Hlc::ZERO,
                message: Message::Store { key, record, repair: false, non_voting: false },
            }
        };
        let incoming = incoming(&context, None, near.clone());
        let hold = |frame| incoming.hold(frame);
        let ping = Frame { id: 0, epoch: NO_EPOCH, hlc: Hlc::ZERO, message: Message::Ping { wall_ms: 0 } };
        assert!(hold(ping).is_some(), "a sign of life is given at once");
        assert!(hold(question(1, 600_000)).is_none() && hold(question(2, 600_000)).is_none());
        assert!(hold(question(3, 1)).is_some(), "what is kept is bounded");
        tokio::task::yield_now().await;
        assert_eq!(near.queued_bytes(), 0, "nobody has an answer");
        context
            .membership
            .register_peer(NodeId(1), DirectoryId(2), Run { id: RunId(3), recovered: 0 }, RemembersUs::Yes)
            .unwrap();
        let mut answers = receive(&far, &mut Decoder::new(1 << 16, 1 << 16), 2).await;
        answers.sort_by_key(|frame| frame.id);
        assert_eq!((answers[0].id, answers[1].id), (1, 2));
        assert_eq!(answers[0].message, Message::StoreAnswer(StoreAnswer::Accepted));
        assert!(hold(question(4, 1)).is_none(), "there is room again");
    });
}

#[test]
fn what_was_asked_by_a_layout_that_this_node_does_not_know_waits_for_it() {
    run(|flusher| async move {
        let (near, far) = pair(1 << 20, &flusher).await;
        let dir = TempDir::new().unwrap();
        let context = context(&dir, &flusher);
        let membership = &context.membership;
        let run = Run { id: RunId(3), recovered: 0 };
        membership.register_peer(NodeId(1), DirectoryId(2), run, RemembersUs::Yes).unwrap();
        let incoming = incoming(&context, None, near.clone());
        let (key, next) = (Key::new("key".into()).unwrap(), membership.epoch() + 1);
        // Work in the background too, and a scan.
        let messages = [
            Message::Read { key, wanted: Wanted::Record, non_voting: true },
            Message::Repair(vec![7; 10].into()),
            Message::Scan(vec![7; 10].into()),
        ];
        let mut input = BytesMut::new();
        for (id, message) in (1..).zip(messages) {
            assert!(encode(&Frame { id, epoch: next, hlc: Hlc::ZERO, message }, &mut input).is_none());
        }
        let mut decoder = Decoder::new(1 << 16, 1 << 16);
        let changed = membership.changed();
        incoming.take_frames(&mut decoder, &mut input).unwrap();
        changed.await;
        tokio::task::yield_now().await;
        assert_eq!(near.queued_bytes(), 0, "none has an answer, and it is known who knows the layout");
        let paced = membership.layout().with_pace(Some(1));
        membership.learn_layout(paced).unwrap();
        let mut answers = receive(&far, &mut Decoder::new(1 << 16, 1 << 16), 3).await;
        answers.sort_by_key(|frame| frame.id);
        assert_eq!(answers.iter().map(|frame| frame.id).collect::<Vec<_>>(), [1, 2, 3]);
    });
}

/// Takes nothing for a question.
struct Refusing;

impl FrameHandler for Refusing {
    fn on_connected(&self, _: NodeId) {}

    fn on_disconnected(&self, _: NodeId) {}

    fn on_answer(&self, _: NodeId, _: Frame) -> Result<(), ProtocolError> {
        Err(ProtocolError::NotAnAnswer)
    }

    fn on_request(&self, _: Caller, _: &Rc<Link>, _: Frame, _: Grouping) -> Result<(), ProtocolError> {
        Err(ProtocolError::NotARequest)
    }

    fn on_requests_end(&self) {}
}

#[test]
fn what_has_waited_and_is_no_question_closes_its_connection() {
    run(|flusher| async move {
        let (near, _far) = pair(1 << 20, &flusher).await;
        let dir = TempDir::new().unwrap();
        let context = context(&dir, &flusher);
        let run = Run { id: RunId(3), recovered: 0 };
        context.membership.register_peer(NodeId(1), DirectoryId(2), run, RemembersUs::Yes).unwrap();
        let incoming = Incoming { handler: Rc::new(Refusing), ..incoming(&context, None, near.clone()) };
        let epoch = context.membership.epoch() + 1;
        let message = Message::Repair(vec![7; 10].into());
        assert!(incoming.hold(Frame { id: 1, epoch, hlc: Hlc::ZERO, message }).is_none());
        context.membership.learn_layout(context.membership.layout().with_pace(Some(1))).unwrap();
        while !near.is_closed() {
            tokio::task::yield_now().await;
        }
        assert_eq!(context.membership.peer(NodeId(1)).protocol_errors.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn of_a_connection_that_has_proved_nothing_no_part_of_a_long_message_is_kept() {
    run(|flusher| async move {
        let (link, _far) = pair(1 << 20, &flusher).await;
        let dir = TempDir::new().unwrap();
        let context = context(&dir, &flusher);
        let secret = PeerSecret::parse(&"5e".repeat(32)).unwrap();
        let secret = ClusterSecret::new(secret, SecretNeed::Required, Box::new(|| [1; 32]));
        let hello = |nonce| Hello { nonce: Some(nonce), ..Hello::ours(&context.membership, 1, NodeId(1)) };
        let awaited = secret.awaited(&hello([2; 32]), &hello([3; 32]));
        let incoming = incoming(&context, awaited, link);
        let mut all = BytesMut::new();
        let message = Message::Repair(vec![7; 1000].into());
        assert!(encode(&Frame { id: 1, epoch: NO_EPOCH, hlc: Hlc::ZERO, message }, &mut all).is_none());
        let mut decoder = Decoder::new(1 << 16, 1 << 16);
        let mut taken = |length: usize| incoming.take_frames(&mut decoder, &mut BytesMut::from(&all[..length]));
        assert!(taken(50).is_ok());
        assert_eq!(context.room.unfinished(), 50);
        assert!(matches!(taken(500), Err(ProtocolError::NoProof)));
        assert!(matches!(taken(all.len()), Err(ProtocolError::NoProof)), "another message than a proof");
        assert_eq!(context.room.unfinished(), 50);
    });
}
