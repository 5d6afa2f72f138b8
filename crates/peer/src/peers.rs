//! A shard's connections to all other nodes.

use std::rc::Rc;

use kvorum_core::placement::NodeId;

use super::client::PeerClient;
use super::context::PeerContext;
use super::first_dials::FirstDial;
use super::handler::FrameHandler;

/// One client for each other node.
pub struct Peers {
    /// By node; none for this one.
    clients: Vec<Option<Rc<PeerClient>>>,
}

impl Peers {
    /// Not connected yet. The node waits for its `first_dials`: for none where they are fewer than peers.
    #[must_use]
    pub fn new(context: &Rc<PeerContext>, first_dials: Vec<FirstDial>) -> Rc<Self> {
        let membership = &context.membership;
        let mut clients: Vec<_> = membership.layout().nodes().iter().map(|_| None).collect();
        let mut first_dials = first_dials.into_iter();
        for node in membership.others() {
            if let Some(client) = clients.get_mut(usize::from(node.0)) {
                *client = Some(PeerClient::new(node, context.clone(), first_dials.next()));
            }
        }
        Rc::new(Self { clients })
    }

    /// The connection to a node; none for this one.
    #[must_use]
    #[inline]
    pub fn get(&self, node: NodeId) -> Option<&Rc<PeerClient>> {
        self.clients.get(usize::from(node.0)).and_then(Option::as_ref)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<PeerClient>> {
        self.clients.iter().flatten()
    }

    /// Keeps a connection to every peer, for as long as the shard runs.
    pub fn start(&self, handler: &Rc<dyn FrameHandler>) {
        for client in self.iter() {
            tokio::task::spawn_local(client.clone().run(handler.clone()));
        }
    }
}
