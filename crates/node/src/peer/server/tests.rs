#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use bytes::Bytes;
use kvorum_core::frame::{Frame, Message};
use kvorum_core::quorum::{Failure, ReadAnswer, StoreAnswer};
use kvorum_core::{Hlc, Key, Record};

use super::*;
use crate::coordinator::tests::rig::{Rig, Settings};
use crate::peer::detach::{COPIED_BYTES_MAX, detach};
use crate::peer::link::tests::{pair, receive, run};

#[test]
fn a_small_record_leaves_the_buffer_that_it_was_read_into() {
    let mut input = BytesMut::with_capacity(32 * 1024);
    input.extend_from_slice(b"keyrecord");
    let read = input.freeze();
    let (key, record) = detach(Key::new(read.slice(..3)).unwrap(), read.slice(3..));
    assert_eq!((key.as_bytes(), &record[..]), (&b"key"[..], &b"record"[..]));
    assert!(read.is_unique(), "nothing holds it any more");
}

#[test]
fn a_long_record_is_not_copied() {
    let read = Bytes::from(vec![7; COPIED_BYTES_MAX + 2]);
    let (key, record) = detach(Key::new(read.slice(..1)).unwrap(), read.slice(1..));
    assert_eq!((key.as_bytes(), record.as_ptr()), (&[7][..], read[1..].as_ptr()));
    let (_, record) = detach(key, read.slice(2..));
    assert_ne!(record.as_ptr(), read[2..].as_ptr(), "a byte less is");
}

#[test]
fn every_question_is_answered_when_records_do_not_fit_the_queue() {
    run(|flusher| async move {
        // Two fill the queue, and are not yet worth a write.
        let length = 30 * 1024;
        let (near, far) = pair(2 * length, &flusher).await;
        let answers = [
            Message::ReadAnswer(ReadAnswer::Record(vec![1; length].into())),
            Message::ReadAnswer(ReadAnswer::Absent { floor: kvorum_core::Version::ZERO }),
            Message::StoreAnswer(StoreAnswer::Accepted),
        ];
        let count = 30;
        for id in 0..count {
            let message = answers[usize::try_from(id).unwrap() % 3].clone();
            near.reply(&Frame { id, hlc: Hlc::ZERO, message });
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

#[test]
fn background_work_makes_room_for_requests_and_not_for_repair() {
    run(|flusher| async move {
        let (near, _far) = pair(1 << 16, &flusher).await;
        let key = Key::new("key".into()).unwrap();
        let record = Record::value(&key, kvorum_core::Version::ZERO, 1, None, b"value");
        let read = |uncounted| Message::Read { key: key.clone(), version_only: false, uncounted };
        let store = |uncounted| {
            let (key, record) = (key.clone(), record.bytes().clone());
            Message::Store { key, record, repair: false, uncounted }
        };
        for (message, is_request) in
            [(read(false), true), (read(true), false), (store(false), true), (store(true), false)]
        {
            let rig = Rig::start(1, Settings::default()).await;
            rig.shard.handler.on_request(&near, Frame { id: 1, hlc: Hlc::ZERO, message: message.clone() }).unwrap();
            assert_eq!(rig.shard.cpu_share.is_quiet(), !is_request, "{message:?}");
        }
        let rig = Rig::start(1, Settings::default()).await;
        rig.get(&key, kvorum_core::quorum::Acks::new(1, 1).unwrap()).await.unwrap().unwrap();
        assert!(!rig.shard.cpu_share.is_quiet(), "its own clients' as well");
    });
}

#[test]
fn what_comes_before_this_node_serves_its_cluster_is_answered_when_it_does() {
    run(|flusher| async move {
        let (near, far) = pair(1 << 20, &flusher).await;
        let (rig, idle) = Rig::unmet(2, Settings::default(), Box::new(crate::peer::dial::Tcp)).await;
        let key = Key::new("key".into()).unwrap();
        let question = |id, bytes: usize| {
            let version = kvorum_core::Version { hlc: Hlc::from_millis(1), incarnation: kvorum_core::Incarnation(1) };
            let record = Record::value(&key, version, 1, None, &vec![0; bytes]);
            let (key, record) = (key.clone(), record.bytes().clone());
            Frame { id, hlc: Hlc::ZERO, message: Message::Store { key, record, repair: false, uncounted: false } }
        };
        let (context, handler) = (rig.shard.peer_context.clone(), rig.shard.handler.clone());
        let incoming = Incoming { context, handler, link: near.clone(), early: Rc::default() };
        let hold = |frame| incoming.hold(frame);
        let ping = Frame { id: 0, hlc: Hlc::ZERO, message: Message::Ping { wall_ms: 0 } };
        assert!(hold(ping).is_some(), "a sign of life is given at once");
        assert!(hold(question(1, 600_000)).is_none() && hold(question(2, 600_000)).is_none());
        assert!(hold(question(3, 1)).is_some(), "what is kept is bounded");
        tokio::task::yield_now().await;
        assert_eq!(near.queued_bytes(), 0, "nobody has an answer");
        rig.meet(&idle[0]);
        let mut answers = receive(&far, &mut Decoder::new(1 << 16, 1 << 16), 2).await;
        answers.sort_by_key(|frame| frame.id);
        assert_eq!((answers[0].id, answers[1].id), (1, 2));
        assert_eq!(answers[0].message, Message::StoreAnswer(StoreAnswer::Accepted));
        assert!(hold(question(4, 1)).is_none(), "there is room again");
    });
}
