//! A shard's connections to all other nodes.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvorum_core::node::NodeId;

use super::client::PeerClient;
use super::context::PeerContext;
use super::first_dials::FirstDial;
use super::handler::FrameHandler;

/// One client for each other node.
pub struct Peers {
    clients: BTreeMap<NodeId, Rc<PeerClient>>,
}

impl Peers {
    /// Not connected yet. The node waits for its `first_dials`: for none where they are fewer than peers.
    #[must_use]
    pub fn new(context: &Rc<PeerContext>, first_dials: Vec<FirstDial>) -> Rc<Self> {
        let mut first_dials = first_dials.into_iter();
        let client = |node| (node, PeerClient::new(node, context.clone(), first_dials.next()));
        Rc::new(Self { clients: context.membership.others().map(client).collect() })
    }

    /// The connection to a node; none for this one.
    #[must_use]
    #[inline]
    pub fn get(&self, node: NodeId) -> Option<&Rc<PeerClient>> {
        self.clients.get(&node)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<PeerClient>> {
        self.clients.values()
    }

    /// Keeps a connection to every peer, for as long as the shard runs.
    pub fn start(&self, handler: &Rc<dyn FrameHandler>) {
        for client in self.iter() {
            tokio::task::spawn_local(client.clone().run(handler.clone()));
        }
    }
}
