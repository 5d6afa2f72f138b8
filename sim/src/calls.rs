//! How a machine takes the calls of others, and the secret that they may have to know.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use kvorum_auth::peer_secret::PeerSecret;
use kvorum_peer::context::PeerContext;
use kvorum_peer::dial::ConnectError;
use kvorum_peer::error::CallRefused;
use kvorum_peer::handler::FrameHandler;
use kvorum_peer::proof::{ClusterSecret, SecretNeed};
use kvorum_peer::server;

use crate::network::{IncomingCall, Network};

/// Whether the nodes of a cluster have a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// None.
    Open,
    /// The same on all nodes.
    Secret,
}

/// The secret as one node has it, with nonces of its own.
#[must_use]
pub fn secret(guard: Guard, index: usize) -> Option<Arc<ClusterSecret>> {
    if guard == Guard::Open {
        return None;
    }
    let node = u64::try_from(index).expect("few nodes");
    let drawn = AtomicU64::new(0);
    let draw = move || {
        let mut nonce = [0; 32];
        let number = drawn.fetch_add(1, Ordering::Relaxed) << 8 | node;
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        nonce
    };
    let secret = PeerSecret::parse(&"5e".repeat(32)).expect("64 digits");
    Some(Arc::new(ClusterSecret::new(secret, SecretNeed::Required, Box::new(draw))))
}

/// What HTTP does with an upgrade.
pub(crate) async fn take_call(
    network: Rc<Network>,
    context: Rc<PeerContext>,
    handler: Rc<dyn FrameHandler>,
    incoming: IncomingCall,
) {
    match server::answer(&context, Ok(&incoming.hello), None) {
        Ok(ours) => {
            let (transport, hello) = network.accept(incoming, ours.clone());
            // Noted in the node's own counts.
            let _ended = server::accept(context, handler, transport, hello, ours, BytesMut::new(), None).await;
        }
        Err(CallRefused::Handshake(error)) => network.refuse(incoming, ConnectError::Refused(error.to_string())),
        Err(CallRefused::Accuser) => {
            network.refuse(incoming, std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
        }
    }
}
