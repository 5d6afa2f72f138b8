//! What requests do while the layout changes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kvorum_core::layout::{Layout, MemberNode, WantedNode};
use kvorum_core::node::{DirectoryId, NodeId};
use kvorum_core::quorum::{Failure, ReadAnswer};
use kvorum_core::{Record, Version};
use kvorum_storage::commit::Promise;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::rig::{Rig, Settings, idle_node, run, until};
use super::{QUORUM, accepted, key, key_of, quorum};
use crate::coordinator::Refused;
use crate::replica::reply_to::ReplyTo;
use crate::replica::{AnswerCounts, StoreReason};
use crate::reply::Reply;

/// Has the node of the second peer replaced by another one, at this URL.
fn replace_second(before: &Layout, url: &str) -> Layout {
    let stays = |node: &MemberNode| WantedNode {
        url: node.url.clone(),
        directory: node.directory,
        weight: node.weight,
        zone: node.zone.clone(),
        replaces: None,
    };
    let old = idle_node(1);
    let stay = before.nodes().iter().filter(|node| node.id != old).map(stays);
    let comes = WantedNode { directory: DirectoryId(9), replaces: Some(old), ..WantedNode::at(url) };
    let wanted: Vec<_> = stay.chain([comes]).collect();
    let plan = before.plan_for(1, &wanted, BTreeSet::new()).unwrap();
    before.open(plan).unwrap().flip().unwrap()
}

#[test]
fn a_write_ends_with_the_layout_that_it_began_with() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        let [one, other] = ["one", "other"].map(|text| rig.put(&key(text), quorum((3, 3))));
        let mut stores = [Vec::new(), Vec::new()];
        for (peer, stores) in stores.iter_mut().enumerate() {
            stores.extend([rig.next(peer).await, rig.next(peer).await]);
            stores.sort_by_key(|store| key_of(store) != key("one"));
        }
        let before = rig.shard.membership.layout();
        // The node that comes has the places of the one that goes: read by the new layout, its answer would count.
        rig.shard.membership.install(Arc::new(replace_second(&before, "http://127.0.0.1:9")));
        until(|| rig.shard.layout.pin().epoch() > before.epoch()).await;
        for peer in [0, 1] {
            let store = stores[peer].remove(0);
            rig.answer(peer, &store, accepted()).await;
        }
        let receipt = one.await.unwrap().unwrap().receipt.unwrap();
        let urls: BTreeSet<_> = receipt.replicas.iter().map(|replica| &*replica.node).collect();
        assert_eq!(urls, before.nodes().iter().map(|node| &*node.url).collect(), "they are those that it asked");
        // Of the other write the node that has left has no copy.
        let store = stores[0].remove(0);
        rig.answer(0, &store, accepted()).await;
        rig.disconnect(1).await;
        assert!(matches!(other.await.unwrap(), Err(Refused::NotEnough { .. })));
        until(|| rig.shard.coordinator.operations.under_way() == 0).await;
        assert_eq!(rig.hints.owed(), [vec![idle_node(1)]], "the node that has gone is owed it, and not its heir");
    });
}

#[test]
fn a_connection_to_a_node_that_has_left_ends_after_the_deadline() {
    run(async {
        let rig = Rig::start(3, Settings { deadline: Duration::from_millis(50), ..Settings::default() }).await;
        let before = rig.shard.membership.layout();
        let client = rig.shard.peers.get(idle_node(1)).unwrap();
        rig.shard.membership.install(Arc::new(replace_second(&before, "http://127.0.0.1:9")));
        until(|| rig.shard.peers.get(idle_node(1)).is_none()).await;
        until(|| !client.is_up()).await;
        assert!(rig.shard.peers.get(idle_node(0)).unwrap().is_up(), "the others stay connected");
        // A request that asks it all the same is told so, and is not answered by this node.
        let id = rig.shard.coordinator.operations.id_of_nobody();
        let record = Record::value(&key("k"), Version::ZERO, 3, None, b"v");
        let sent =
            rig.shard.coordinator.operations.send_store(id, 1, idle_node(1), &key("k"), &record, StoreReason::Write);
        assert_eq!(sent.map(|_| ()), Err(Failure::Unreachable));
    });
}

#[test]
fn new_requests_go_to_the_nodes_of_the_new_layout() {
    run(async {
        let mut rig = Rig::start(3, Settings::default()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let before = rig.shard.membership.layout();
        let next = replace_second(&before, &url);
        let heir = rig.idle(next.clone(), NodeId(3), listener);
        rig.shard.membership.install(Arc::new(next.clone()));
        rig.connect(&heir).await;
        until(|| rig.shard.peers.get(NodeId(3)).is_some_and(|peer| peer.is_up())).await;
        let put = rig.put(&key("k"), quorum(QUORUM));
        // The third peer of the rig is the one that has come.
        for peer in [0, 2] {
            let store = rig.next(peer).await;
            assert_eq!(key_of(&store), key("k"));
            rig.answer(peer, &store, accepted()).await;
        }
        put.await.unwrap().unwrap();
        // There is no way back to an older layout.
        rig.shard.membership.install(before);
        assert_eq!(rig.shard.membership.layout().epoch(), next.epoch());
    });
}

#[test]
fn a_node_that_is_past_a_layout_answers_nothing_that_is_asked_by_it() {
    run(async {
        let rig = Rig::start(1, Settings { read_threads: 0, ..Settings::default() }).await;
        let replica = &rig.shard.replica;
        let read = |epoch| {
            let (tell, told) = oneshot::channel();
            (replica.read(&key("k"), epoch, AnswerCounts::Outside, || ReplyTo::Call(tell)), told)
        };
        assert!(matches!(read(1).0, Some(ReadAnswer::Held(_))));
        // Its answer is read from the disk, and comes after the bar.
        rig.store.make_cold(&key("k"));
        let (at_once, told) = read(1);
        assert!(at_once.is_none());
        replica.promise(Promise::Bar(2)).await.unwrap();
        (rig.shard.pool.next().await)();
        assert!(matches!(told.await.unwrap(), Reply::Read(ReadAnswer::Failed(Failure::Epoch))));
        assert!(matches!(read(1).0, Some(ReadAnswer::Failed(Failure::Epoch))));
        assert!(matches!(read(2).0, Some(ReadAnswer::Held(_))));
    });
}
