//! A peer's connection to this node.

use std::cell::Cell;
use std::rc::Rc;

use super::context::PeerContext;
use super::handler::FrameHandler;
use super::link::Link;

/// A peer's connection to this node.
pub(super) struct Incoming {
    pub(super) context: Rc<PeerContext>,
    pub(super) handler: Rc<dyn FrameHandler>,
    pub(super) link: Rc<Link>,
    /// Bytes of questions that wait for this node to serve its cluster (`early.rs`).
    pub(super) early: Rc<Cell<usize>>,
}
