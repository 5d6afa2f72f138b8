//! The replica's side of a peer connection: requests in, answers out. Every request that was taken is
//! answered, unless the connection ends; while too many answers wait to be sent, none is taken.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use kvorum_base::task::BoxedTask;
use kvorum_base::waits;
use kvorum_core::frame::Decoder;
use kvorum_core::placement::NodeId;

use super::client::exchange_hello;
use super::context::PeerContext;
use super::error::{HandshakeError, ProtocolError};
use super::handler::FrameHandler;
use super::handshake::Hello;
use super::incoming::Incoming;
use super::link::Link;
use super::transport::Transport;
use crate::membership::Membership;

/// A connection on which nothing has moved for so long, to twice as long, is closed: its peer asks for a
/// sign of life every second, unless it has lost its power or its network.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What this node answers to a peer's `hello`.
///
/// # Errors
/// Why it is refused; noted already.
pub fn answer(context: &PeerContext, hello: Result<&Hello, HandshakeError>) -> Result<Hello, HandshakeError> {
    let (membership, deadline_ms) = (&context.membership, context.settings.deadline_ms());
    let checked = hello.and_then(|hello| Ok((hello.check(membership, deadline_ms)?, hello.run.id)));
    checked
        .map(|(node, run)| {
            // Before the peer has its answer: once it is ready, all shards of this node dial it.
            let (now, interval) = (context.clock.boot(), context.settings.reconnect_delay_max);
            membership.peer(node).hellos.note(run, now, interval);
            Hello::ours(membership, deadline_ms, node)
        })
        .inspect_err(|handshake_error| membership.note_handshake_error(handshake_error, context.clock.boot()))
}

/// Takes a connection whose peer has had its answer: notes its identity, then serves it until the connection ends.
/// `input` is what was read behind the handshake.
pub fn accept(
    context: Rc<PeerContext>,
    handler: Rc<dyn FrameHandler>,
    transport: Box<dyn Transport>,
    hello: Hello,
    input: BytesMut,
) -> BoxedTask {
    Box::pin(async move {
        let membership = &context.membership;
        let Ok(node) = hello.check(membership, context.settings.deadline_ms()) else { return };
        if let Err(error) = exchange_hello(&context, node, hello).await {
            if let Some(left_out) = membership.peer(node).log.due(context.clock.boot()) {
                tracing::warn!(peer = membership.url(node), error, left_out, "peer not served");
            }
            return;
        }
        let link = Link::new(transport, context.settings.queue_bytes_max, context.flusher.clone());
        Incoming { context, handler, link, early: Rc::default() }.serve(node, input).await;
    })
}

impl Incoming {
    /// Serves the peer until the connection ends. `input` is what was read behind the handshake.
    async fn serve(self, node: NodeId, mut input: BytesMut) {
        let Self { context, link, .. } = &self;
        tokio::task::spawn_local(link.clone().write_when_blocked());
        tokio::task::spawn_local(close_when_silent(context.membership.clone(), Rc::downgrade(link), node));
        let mut decoder = Decoder::new(context.settings.frame_bytes_max, context.settings.partial_bytes_max);
        while !link.is_closed() {
            match self.take_frames(&mut decoder, &mut input) {
                Ok(IntakePause::All) => match link.read(&mut input).await {
                    Ok(true) => {}
                    Ok(false) | Err(_) => break,
                },
                Ok(IntakePause::Congested) => waits::queue("answers", link.until_uncongested()).await,
                Err(error) => {
                    context.membership.note_protocol_error(node, &error, context.clock.boot());
                    break;
                }
            }
        }
        link.close();
    }

    fn take_frames(&self, decoder: &mut Decoder, input: &mut BytesMut) -> Result<IntakePause, ProtocolError> {
        let taken = loop {
            if self.link.is_congested() {
                break Ok(IntakePause::Congested);
            }
            match decoder.decode(input) {
                Ok(Some(frame)) => {
                    self.context.clock.observe(frame.hlc);
                    let is_early = !self.context.membership.is_serving();
                    let Some(frame) = (if is_early { self.hold(frame) } else { Some(frame) }) else { continue };
                    if let Err(error) = self.handler.on_request(&self.link, frame) {
                        break Err(error);
                    }
                }
                Ok(None) => break Ok(IntakePause::All),
                Err(error) => break Err(error.into()),
            }
        };
        self.handler.on_requests_end();
        taken
    }
}

async fn close_when_silent(membership: Arc<Membership>, link: Weak<Link>, node: NodeId) {
    if Link::close_when_silent(link, SILENCE_MAX).await {
        tracing::info!(peer = membership.url(node), "peer has gone silent: its connection is closed");
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
