//! What requests do while the layout changes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::Arc;

use kvorum_core::layout::{Layout, MemberNode, WantedNode};
use kvorum_core::node::{DirectoryId, NodeId};
use tokio::net::TcpListener;

use super::rig::{Rig, Settings, idle_node, run, until};
use super::{QUORUM, accepted, key, key_of, quorum};

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
        let put = rig.put(&key("k"), quorum(QUORUM));
        let stores = [rig.next(0).await, rig.next(1).await];
        let before = rig.shard.membership.layout();
        // The node that comes has the places of the one that goes: read by the new layout, its answer would count.
        rig.shard.membership.install(Arc::new(replace_second(&before, "http://127.0.0.1:9")));
        until(|| rig.shard.peers.get(idle_node(1)).is_none()).await;
        rig.answer(0, &stores[0], accepted()).await;
        let receipt = put.await.unwrap().unwrap().receipt.unwrap();
        let urls: BTreeSet<_> = receipt.replicas.iter().map(|replica| &*replica.node).collect();
        assert_eq!(urls, before.nodes().iter().map(|node| &*node.url).collect(), "they are those that it asked");
        until(|| rig.shard.coordinator.operations.under_way() == 0).await;
        assert_eq!(rig.hints.owed(), [vec![idle_node(1)]], "who has gone is owed it, and not its heir");
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
