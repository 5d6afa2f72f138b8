//! What a shard does with what comes over its connections. It is implemented above this module, which depends on none
//! of its users.

use std::rc::Rc;

use kvorum_core::frame::Frame;
use kvorum_core::node::{DirectoryId, NodeId};

use super::error::ProtocolError;
use super::link::{Grouping, Link};

/// Which peer a connection is of that it has made, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The node.
    pub node: NodeId,
    /// Its data directory.
    pub directory: DirectoryId,
}

/// Takes the frames of all connections of one shard. Nothing here waits.
pub trait FrameHandler {
    /// There is a connection to `node`: it takes requests.
    fn on_connected(&self, node: NodeId);

    /// The connection to `node` has ended. Its outstanding requests fail.
    fn on_disconnected(&self, node: NodeId);

    /// An answer of `node`. One with a failure also comes for a request that was kept for a connection and could not
    /// be sent.
    ///
    /// # Errors
    /// [`ProtocolError::NotAnAnswer`] closes the connection.
    fn on_answer(&self, node: NodeId, answer: Frame) -> Result<(), ProtocolError>;

    /// A request of a peer that has connected. It is answered over `link`, now or later, unless the link breaks: together
    /// with others, if it came so.
    ///
    /// # Errors
    /// [`ProtocolError::NotARequest`] closes the connection.
    fn on_request(
        &self,
        caller: Caller,
        link: &Rc<Link>,
        request: Frame,
        grouping: Grouping,
    ) -> Result<(), ProtocolError>;

    /// Comes after the last of the requests that arrived together, so that they are handed on together.
    fn on_requests_end(&self);
}
