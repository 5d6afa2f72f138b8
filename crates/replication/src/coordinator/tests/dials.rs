//! What requests do while a connection to a peer is made, over real connections.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use kvorum_core::frame::{Frame, Message, NO_EPOCH};
use kvorum_core::node::{DirectoryId, NodeId};
use kvorum_core::quorum::{Held, Quorum, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::{Hlc, Incarnation, Key, Record, Version};
use kvorum_peer::client::RECONNECT_DELAY_MIN;
use kvorum_peer::handler::Caller;
use kvorum_peer::handshake::Hello;
use kvorum_peer::link::{Grouping, Link};
use tokio::task::JoinHandle;

use super::rig::{Idle, LONG, Rig, Settings, run, until};
use crate::coordinator::{ReadResult, Refused};

fn key() -> Key {
    Key::new("key".into()).unwrap()
}

/// Asks both nodes of two.
fn get(rig: &Rig) -> JoinHandle<Result<ReadResult, Refused>> {
    rig.get(&key(), Quorum::new(2, 2).unwrap())
}

/// The only peer of `rig` answers the next question, and with that the request is answered.
async fn is_answered(rig: &mut Rig, request: JoinHandle<Result<ReadResult, Refused>>) {
    let question = rig.next(0).await;
    rig.answer(0, &question, Message::ReadAnswer(ReadAnswer::Held(Held::Absent { gc_watermark: Version::ZERO }))).await;
    request.await.unwrap().unwrap();
}

async fn is_unreachable(request: JoinHandle<Result<ReadResult, Refused>>) {
    let Err(Refused::NotEnough { receipt, .. }) = request.await.unwrap() else { panic!("it is not refused") };
    assert!(receipt.replicas.iter().any(|replica| replica.outcome == "unreachable"), "{receipt:?}");
}

/// Lets everything run that can.
async fn turns() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Waits until the last dial has ended.
async fn settled(rig: &Rig) {
    let peer = rig.shard.peers.get(NodeId(1)).unwrap();
    until(|| !peer.is_awaited()).await;
}

#[test]
fn a_request_waits_for_the_first_dial() {
    run(async {
        let (mut rig, idle) = Rig::dialling(2, Settings::default()).await;
        let request = get(&rig);
        turns().await;
        assert!(!request.is_finished(), "the peer has not refused");
        rig.connect(&idle[0]).await;
        is_answered(&mut rig, request).await;
    });
}

#[test]
fn a_request_fails_with_the_dial_that_it_waits_for_and_the_next_at_once() {
    run(async {
        let (rig, mut idle) = Rig::dialling(2, Settings { deadline: LONG * 100, ..Settings::default() }).await;
        let request = get(&rig);
        turns().await;
        assert!(!request.is_finished());
        // What is in its queue is reset.
        idle[0].close();
        is_unreachable(request).await;
        settled(&rig).await;
        is_unreachable(get(&rig)).await;
    });
}

#[test]
fn after_a_hello_a_request_waits_for_the_next_dial_and_only_for_that() {
    run(async {
        let settings = Settings { deadline: LONG * 100, ..Settings::default() };
        let (mut rig, mut idle) = Rig::dialling(2, settings).await;
        rig.connect(&idle[0]).await;
        until(|| rig.shard.peers.get(NodeId(1)).unwrap().is_up()).await;
        idle[0].close();
        rig.disconnect(0).await;
        settled(&rig).await;
        is_unreachable(get(&rig)).await;
        rig.peers.clear();
        // It is back, and refuses.
        rig.hello(&idle[0], 1);
        is_unreachable(get(&rig)).await;
        settled(&rig).await;
        // It is back.
        idle[0].listen().await;
        rig.hello(&idle[0], 2);
        let request = get(&rig);
        turns().await;
        assert!(!request.is_finished());
        rig.connect(&idle[0]).await;
        is_answered(&mut rig, request).await;
    });
}

#[test]
fn a_write_waits_for_the_dial_as_well_and_goes_out_once() {
    run(async {
        let (mut rig, idle) = Rig::dialling(2, Settings::default()).await;
        let request = rig.put(&key(), Quorum::new(2, 2).unwrap());
        turns().await;
        assert!(!request.is_finished());
        rig.connect(&idle[0]).await;
        let question = rig.next(0).await;
        assert!(matches!(question.message, Message::Store { .. }), "{question:?}");
        rig.answer(0, &question, Message::StoreAnswer(StoreAnswer::Accepted)).await;
        request.await.unwrap().unwrap();
        let _request = get(&rig);
        let question = rig.next(0).await;
        assert!(matches!(question.message, Message::Read { .. }), "{question:?}");
    });
}

/// The peer may have restarted since the record got its version, and may have accepted it before, from a reader.
#[test]
fn a_store_that_waited_for_its_connection_is_answered_without_a_promise() {
    run(async {
        let (mut rig, idle) = Rig::dialling(3, Settings::default()).await;
        let request = rig.put(&key(), Quorum::new(2, 3).unwrap());
        // Before its first write a clock is reserved on disk.
        until(|| rig.shard.coordinator.under_way() == 1).await;
        let hlc = Hlc::from_millis(rig.shard.clock.wall_ms() + 2000);
        let newer = kvorum_core::quorum::Current::Record(Version { hlc, incarnation: Incarnation(7) });
        for (peer, idle) in idle.iter().enumerate() {
            rig.connect(idle).await;
            let question = rig.next(peer).await;
            rig.answer(peer, &question, Message::StoreAnswer(StoreAnswer::Stale(newer))).await;
        }
        let Err(Refused::NotEnough { receipt, .. }) = request.await.unwrap() else { panic!("it is not refused") };
        let outcomes = receipt.replicas.iter().map(|replica| replica.outcome);
        assert_eq!(outcomes.filter(|outcome| *outcome == "stale-unknown").count(), 2, "{receipt:?}");
    });
}

/// Never connects; counts the tries.
struct Nobody(Rc<Cell<u32>>);

impl kvorum_peer::dial::Dial for Nobody {
    fn dial<'a>(&'a self, _: &'a str, _: &'a Hello) -> kvorum_peer::dial::Dialling<'a> {
        self.0.set(self.0.get() + 1);
        Box::pin(async { Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()) })
    }
}

/// A shard of node 0 of two, whose dials all fail; how many there were; and the peer.
async fn alone(settings: Settings) -> (Rig, Rc<Cell<u32>>, Vec<Idle>) {
    let dials = Rc::new(Cell::new(0));
    let (rig, idle) = Rig::dialling_with(2, settings, Box::new(Nobody(dials.clone()))).await;
    (rig, dials, idle)
}

#[test]
fn a_hello_ends_the_back_off_and_many_hellos_are_not_many_dials() {
    run(async {
        let (rig, dials, idle) = alone(Settings::default()).await;
        until(|| dials.get() >= 3).await;
        tokio::time::pause();
        // The longer the pauses, the surer that what comes now does not come by itself.
        let begin = tokio::time::Instant::now();
        while begin.elapsed() < LONG * 20 {
            tokio::time::sleep(LONG / 10).await;
        }
        let (before, begin) = (dials.get(), tokio::time::Instant::now());
        rig.hello(&idle[0], 1);
        while dials.get() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = begin.elapsed();
        assert!(took <= 2 * RECONNECT_DELAY_MIN, "{took:?} of the clock that tokio is given");
        let before = dials.get();
        for run in 2..1000 {
            rig.hello(&idle[0], run);
            turns().await;
        }
        let count = dials.get() - before;
        let most = begin.elapsed().as_millis() / RECONNECT_DELAY_MIN.as_millis() + 1;
        assert!(u128::from(count) <= most, "{count} dials, {most} may have been");
    });
}

#[test]
fn background_work_makes_room_for_requests_and_not_for_repair() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let near = Link::new(Box::new(stream), 1 << 16, Rc::default());
        let key = Key::new("key".into()).unwrap();
        let record = Record::value(&key, kvorum_core::Version::ZERO, 1, None, b"value");
        let read = |non_voting| Message::Read { key: key.clone(), wanted: Wanted::Record, non_voting };
        let store = |non_voting| {
            let (key, record) = (key.clone(), record.bytes().clone());
            Message::Store { key, record, repair: false, non_voting }
        };
        for (message, is_request) in
            [(read(false), true), (read(true), false), (store(false), true), (store(true), false)]
        {
            let rig = Rig::start(1, Settings::default()).await;
            let caller = Caller { node: NodeId(1), directory: DirectoryId(1) };
            let request = Frame { id: 1, epoch: NO_EPOCH, hlc: Hlc::ZERO, message: message.clone() };
            rig.shard.handler.on_request(caller, &near, request, Grouping::Alone).unwrap();
            assert_eq!(rig.shard.cpu_share.is_quiet(), !is_request, "{message:?}");
        }
        let rig = Rig::start(1, Settings::default()).await;
        rig.get(&key, kvorum_core::quorum::Quorum::new(1, 1).unwrap()).await.unwrap().unwrap();
        assert!(!rig.shard.cpu_share.is_quiet(), "its own clients' as well");
    });
}
