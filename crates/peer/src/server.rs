//! The replica's side of a peer connection: requests in, answers out. Every request that was taken is
//! answered, unless the connection ends; while too many answers wait to be sent, none is taken.

use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use kvorum_base::task::BoxedTask;
use kvorum_base::waits;
use kvorum_core::frame::{Decoder, Frame, HEADER_BYTES, Message, PROOF_BYTES_MAX};
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::node::NodeId;
use kvorum_storage::data_dir::RunId;

use super::context::PeerContext;
use super::error::{CallRefused, HandshakeError, ProtocolError};
use super::handler::{Caller, FrameHandler};
use super::handshake::{Hello, register_peer};
use super::incoming::Incoming;
use super::link::{Grouping, Link};
use super::room::PeerSlot;
use super::transport::Transport;
use crate::membership::Membership;

/// A connection on which nothing has moved for so long, to twice as long, is closed: its peer asks for a
/// sign of life every second, unless it has lost its power or its network.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What this node answers to a caller's `hello`.
///
/// Anything may call, so nothing that the hello says is believed or remembered. It only has this node dial the peer, if
/// it has not lately: what that answers is believed.
///
/// # Errors
/// Why it is refused; noted already, for the caller's `address`.
pub fn answer(
    context: &PeerContext,
    hello: Result<&Hello, HandshakeError>,
    address: Option<IpAddr>,
) -> Result<Hello, CallRefused> {
    let (membership, deadline_ms) = (&context.membership, context.settings.deadline_ms());
    let note = |error: &HandshakeError| membership.note_handshake_error(error, address, context.clock.boot());
    let checked = hello.and_then(|hello| Ok((hello.check(membership, deadline_ms)?, hello)));
    let (node, hello) = checked.inspect_err(note)?;
    if is_on(Mutant::CallersBelieved) {
        let _ = register_peer(membership, node, hello);
    }
    let mut ours = Hello::ours(membership, deadline_ms, node);
    if let Some(secret) = &context.secret {
        secret.answer(hello, &mut ours).inspect_err(note)?;
    }
    // A caller with the secret shows with its first frame that it is the peer. For another it is now, before the caller
    // has its answer: once that is ready, all shards of this node dial it.
    if ours.nonce.is_none() {
        note_hello(context, node, hello.run.id);
    }
    if hello.is_accuser(membership) { Err(CallRefused::Accuser) } else { Ok(ours) }
}

/// The peer is there: all shards of this node dial it, if they are not connected.
fn note_hello(context: &PeerContext, node: NodeId, run: RunId) {
    let (now, interval) = (context.clock.boot(), context.settings.reconnect_delay_max);
    context.membership.peer(node).hellos.note(run, now, interval);
}

/// Takes a connection whose caller has had `ours` as the answer to its `hello`, and serves it until it ends.
/// `input` is what was read behind the handshake.
///
/// # Errors
/// Of its result: why this node has closed the connection, noted already.
pub fn accept(
    context: Rc<PeerContext>,
    handler: Rc<dyn FrameHandler>,
    transport: Box<dyn Transport>,
    hello: Hello,
    ours: Hello,
    input: BytesMut,
    address: Option<IpAddr>,
) -> BoxedTask<Result<(), ProtocolError>> {
    Box::pin(async move {
        let membership = &context.membership;
        let Ok(node) = hello.check(membership, context.settings.deadline_ms()) else { return Ok(()) };
        let slot = match context.room.enter(membership.peer(node), address) {
            Ok(slot) => Rc::new(slot),
            Err(error) => {
                let error = error.into();
                membership.note_protocol_error(node, &error, context.clock.boot());
                return Err(error);
            }
        };
        let (caller, run) = (Caller { node, directory: hello.directory }, hello.run.id);
        let awaited = context.secret.as_ref().and_then(|secret| secret.awaited(&hello, &ours));
        let link = Link::new(transport, context.settings.queue_bytes_max, context.flusher.clone());
        Incoming { context, handler, caller, slot, awaited, run, link, address, early: Rc::default() }
            .serve(input)
            .await
    })
}

impl Incoming {
    /// Serves the peer until the connection ends. `input` is what was read behind the handshake.
    async fn serve(self, mut input: BytesMut) -> Result<(), ProtocolError> {
        let Self { context, link, .. } = &self;
        let node = self.caller.node;
        tokio::task::spawn_local(link.clone().write_when_blocked());
        tokio::task::spawn_local(close_when_silent(context.membership.clone(), Rc::downgrade(link), node));
        let first_frame = context.settings.connect_timeout;
        tokio::task::spawn_local(close_if_unproven(Rc::downgrade(&self.slot), Rc::downgrade(link), first_frame));
        let mut decoder = Decoder::new(context.settings.frame_bytes_max, context.settings.partial_bytes_max);
        let mut ended = Ok(());
        while !link.is_closed() {
            match self.take_frames(&mut decoder, &mut input) {
                Ok(IntakePause::All) => match link.read(&mut input).await {
                    Ok(true) => {}
                    Ok(false) | Err(_) => break,
                },
                Ok(IntakePause::Congested) => waits::queue("answers", link.until_uncongested()).await,
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
        }
        link.close();
        let (membership, now) = (&context.membership, context.clock.boot());
        match &ended {
            // One whose secret is another hangs up, or waits, when it has seen this node's proof.
            Ok(()) if self.awaited.is_some() && self.slot.is_unproven() => {
                membership.note_handshake_error(&HandshakeError::Unproven, self.address, now);
                ended = Err(ProtocolError::NoProof);
            }
            Ok(()) => {}
            Err(ProtocolError::NoProof) => {
                membership.note_handshake_error(&HandshakeError::NoProof, self.address, now);
            }
            Err(error) => membership.note_protocol_error(node, error, now),
        }
        ended
    }

    fn take_frames(&self, decoder: &mut Decoder, input: &mut BytesMut) -> Result<IntakePause, ProtocolError> {
        let taken = loop {
            if self.link.is_congested() {
                break Ok(IntakePause::Congested);
            }
            match decoder.decode(input) {
                Ok(Some(frame)) => {
                    let frame = match self.admit(frame) {
                        Ok(Some(frame)) => frame,
                        Ok(None) => continue,
                        Err(error) => break Err(error),
                    };
                    self.context.observe(self.slot.peer(), frame.hlc);
                    let membership = &self.context.membership;
                    let is_ahead = frame.epoch > membership.epoch();
                    if is_ahead {
                        membership.note_epoch(self.caller.node, frame.epoch);
                    }
                    let is_early = is_ahead || !membership.is_serving();
                    let grouping = if decoder.is_from_bundle() { Grouping::Together } else { Grouping::Alone };
                    let Some(frame) = (if is_early { self.hold(frame) } else { Some(frame) }) else { continue };
                    if let Err(error) = self.handler.on_request(self.caller, &self.link, frame, grouping) {
                        break Err(error);
                    }
                }
                Ok(None) => break Ok(IntakePause::All),
                Err(error) => break Err(error.into()),
            }
        };
        self.handler.on_requests_end();
        let pause = taken?;
        let unfinished = decoder.partial_bytes() + input.len();
        // Who has yet to prove something takes no room from those who have.
        if self.slot.is_unproven() && self.awaited.is_some() && unfinished > HEADER_BYTES + PROOF_BYTES_MAX {
            return Err(ProtocolError::NoProof);
        }
        self.slot.hold(unfinished)?;
        Ok(pause)
    }

    /// The frame, if the connection has shown what it is: with the frame before it, or with this one.
    fn admit(&self, frame: Frame) -> Result<Option<Frame>, ProtocolError> {
        if !self.slot.is_unproven() {
            return Ok(Some(frame));
        }
        let Some(awaited) = &self.awaited else {
            self.slot.prove()?;
            return Ok(Some(frame));
        };
        match &frame.message {
            Message::Proof(payload) if awaited.accepts(payload) => {
                self.slot.prove()?;
                note_hello(&self.context, self.caller.node, self.run);
                Ok(None)
            }
            _ => Err(ProtocolError::NoProof),
        }
    }
}

/// A connection that has not shown in time what it is takes the place of one that would.
async fn close_if_unproven(slot: Weak<PeerSlot>, link: Weak<Link>, after: Duration) {
    tokio::time::sleep(after).await;
    if let Some(link) = link.upgrade().filter(|_| slot.upgrade().is_some_and(|slot| slot.is_unproven())) {
        link.close();
    }
}

async fn close_when_silent(membership: Arc<Membership>, link: Weak<Link>, node: NodeId) {
    if Link::close_when_silent(link, SILENCE_MAX).await {
        tracing::info!(peer = &*membership.peer(node).url, "peer has gone silent: its connection is closed");
    }
}

/// Why no more frames are taken for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IntakePause {
    /// There are no more.
    All,
    /// Too many answers wait to be sent.
    Congested,
}

#[cfg(test)]
#[path = "server/tests.rs"]
pub(crate) mod tests;
