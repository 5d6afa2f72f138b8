//! A shard's connections to all other nodes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;

use super::client::PeerClient;
use super::context::PeerContext;
use super::first_dials::FirstDial;
use super::handler::FrameHandler;

/// One client for each other node.
pub struct Peers {
    context: Rc<PeerContext>,
    clients: RefCell<BTreeMap<NodeId, Rc<PeerClient>>>,
}

impl Peers {
    /// Not connected yet. The node waits for its `first_dials`: for none where they are fewer than peers.
    #[must_use]
    pub fn new(context: &Rc<PeerContext>, first_dials: Vec<FirstDial>) -> Rc<Self> {
        let mut first_dials = first_dials.into_iter();
        let client = |node| (node, PeerClient::new(node, context.clone(), first_dials.next()));
        let clients = context.membership.others().into_iter().map(client).collect();
        Rc::new(Self { context: context.clone(), clients: RefCell::new(clients) })
    }

    /// The connection to a node; none for this one, and for one that has left.
    #[must_use]
    #[inline]
    pub fn get(&self, node: NodeId) -> Option<Rc<PeerClient>> {
        self.clients.borrow().get(&node).cloned()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Rc<PeerClient>> {
        self.clients.borrow().values().cloned().collect()
    }

    /// Keeps a connection to every peer, for as long as the shard runs.
    pub fn start(&self, handler: &Rc<dyn FrameHandler>) {
        for client in self.all() {
            tokio::task::spawn_local(client.run(handler.clone()));
        }
    }

    /// Goes over to the nodes of another layout: begins connections to nodes that have come. Those to nodes that have left
    /// end once no request that began before can need them any more.
    pub fn follow(self: &Rc<Self>, layout: &Layout, handler: &Rc<dyn FrameHandler>) {
        let mut clients = self.clients.borrow_mut();
        for (node, client) in clients.iter().filter(|(node, _)| layout.node(**node).is_none()) {
            tokio::task::spawn_local(self.clone().end_later(*node, client.clone()));
        }
        for node in layout.ids().filter(|node| *node != self.context.membership.own()) {
            clients.entry(node).or_insert_with(|| {
                let client = PeerClient::new(node, self.context.clone(), None);
                tokio::task::spawn_local(client.clone().run(handler.clone()));
                client
            });
        }
    }

    /// A node that has left comes never back: another one is another node.
    async fn end_later(self: Rc<Self>, node: NodeId, client: Rc<PeerClient>) {
        tokio::time::sleep(self.context.settings.deadline).await;
        client.leave();
        self.clients.borrow_mut().remove(&node);
    }
}
