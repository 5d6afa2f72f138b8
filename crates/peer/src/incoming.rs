//! A peer's connection to this node.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use kvorum_storage::data_dir::RunId;

use super::context::PeerContext;
use super::handler::{Caller, FrameHandler};
use super::link::Link;
use super::proof::AwaitedProof;
use super::room::PeerSlot;

/// A peer's connection to this node.
pub(super) struct Incoming {
    pub(super) context: Rc<PeerContext>,
    pub(super) handler: Rc<dyn FrameHandler>,
    pub(super) caller: Caller,
    pub(super) slot: Rc<PeerSlot>,
    /// What has to come first.
    pub(super) awaited: Option<AwaitedProof>,
    /// The run of the caller, as it says.
    pub(super) run: RunId,
    pub(super) link: Rc<Link>,
    pub(super) address: Option<IpAddr>,
    /// Bytes of questions that wait for this node to serve its cluster (`early.rs`).
    pub(super) early: Rc<Cell<usize>>,
}
