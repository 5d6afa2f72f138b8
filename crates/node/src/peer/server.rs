//! The replica's side of a peer connection: requests in, answers out. Every request that was taken is
//! answered, unless the connection ends; while too many answers wait to be sent, none is taken.

use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kvorum_core::frame::{Decoder, Frame, Message};
use kvorum_core::placement::NodeId;
use kvorum_core::quorum::{Failure, ReadAnswer, StoreAnswer};
use kvorum_core::repair::wire::{Request, Response};
use kvorum_core::{Key, Record};

use super::client::introduce;
use super::early::Early;
use super::handshake::{Hello, Stranger};
use super::link::Link;
use super::transport::Transport;
use crate::anti_entropy::member;
use crate::commit::Work;
use crate::profile::waits;
use crate::replica::Held;
use crate::shard::{Asker, Shard};

/// A connection on which nothing has moved for so long, to twice as long, is closed: its peer asks for a
/// sign of life every second, unless it has lost its power or its network.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Records up to this are copied out of the buffer that they were read into.
const COPIED_BYTES_MAX: usize = 8 * 1024;

/// A peer's question that waits for another thread.
pub struct PeerAsker {
    link: Rc<Link>,
    id: u64,
    version_only: bool,
}

impl PeerAsker {
    /// Sends the answer to a store.
    pub fn stored(&self, shard: &Shard, answer: StoreAnswer) {
        reply(&self.link, &frame(shard, self.id, Message::StoreAnswer(answer)));
    }

    /// Sends the answer to a read.
    pub fn read(&self, shard: &Shard, held: Held) {
        reply(&self.link, &frame(shard, self.id, Message::ReadAnswer(read_answer(held, self.version_only))));
    }
}

/// What this node says to a peer that connects and has said `hello`.
///
/// # Errors
/// Why it is refused; noted already.
pub fn answer(shard: &Shard, hello: Result<&Hello, Stranger>) -> Result<Hello, Stranger> {
    let (membership, deadline_ms) = (&shard.membership, shard.settings.deadline_ms());
    let checked = hello.and_then(|hello| Ok((hello.check(membership, deadline_ms)?, hello.run.id)));
    checked
        .map(|(node, run)| {
            // Before the peer has its answer: whoever has seen it ready finds all shards of this node dialling it.
            membership.peer(node).hellos.note(run, shard.clock.boot(), shard.settings.reconnect_delay_max);
            Hello::ours(membership, deadline_ms, node)
        })
        .inspect_err(|stranger| membership.note_stranger(stranger, shard.clock.boot()))
}

/// Takes a connection whose peer has had its answer: notes who it is, then serves it until the connection ends.
/// `input` is what was read behind the handshake.
pub async fn accept(shard: Rc<Shard>, transport: Box<dyn Transport>, hello: Hello, input: BytesMut) {
    let Ok(node) = hello.check(&shard.membership, shard.settings.deadline_ms()) else { return };
    if let Err(error) = introduce(&shard, node, hello).await {
        if let Some(left_out) = shard.membership.peer(node).log.due(shard.clock.boot()) {
            tracing::warn!(peer = shard.membership.url(node), error, left_out, "peer not served");
        }
        return;
    }
    let link = Link::new(transport, shard.settings.peer_queue_bytes_max, shard.flusher.clone());
    serve(shard, link, node, input).await;
}

/// Serves one peer until the connection ends. `input` is what was read behind the handshake.
async fn serve(shard: Rc<Shard>, link: Rc<Link>, node: NodeId, mut input: BytesMut) {
    tokio::task::spawn_local(link.clone().write_when_blocked());
    tokio::task::spawn_local(close_when_silent(shard.clone(), Rc::downgrade(&link), node));
    let mut decoder = Decoder::new(shard.settings.frame_bytes_max, shard.settings.partial_bytes_max);
    let mut works = Vec::new();
    let early = Rc::new(Early::default());
    while !link.is_closed() {
        match take_frames(&shard, &link, &mut decoder, &mut input, &early, &mut works) {
            Ok(Taken::All) => match link.read(&mut input).await {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            },
            Ok(Taken::Congested) => waits::queue("answers", link.until_uncongested()).await,
            Err(error) => {
                shard.membership.note_protocol_error(node, &error, shard.clock.boot());
                break;
            }
        }
    }
    link.close();
}

async fn close_when_silent(shard: Rc<Shard>, link: Weak<Link>, node: NodeId) {
    if Link::close_when_silent(link, SILENCE_MAX).await {
        tracing::info!(peer = shard.membership.url(node), "peer has gone silent: its connection is closed");
    }
}

/// Why no more frames are taken for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// There are no more.
    All,
    /// Too many answers wait to be sent.
    Congested,
}

fn take_frames(
    shard: &Rc<Shard>,
    link: &Rc<Link>,
    decoder: &mut Decoder,
    input: &mut BytesMut,
    early: &Rc<Early>,
    works: &mut Vec<Work>,
) -> Result<Taken, ProtocolError> {
    let taken = loop {
        if link.is_congested() {
            break Ok(Taken::Congested);
        }
        match decoder.decode(input) {
            Ok(Some(frame)) => {
                shard.clock.observe(frame.hlc);
                let is_early = !shard.membership.is_serving();
                let Some(frame) = (if is_early { early.hold(shard, link, frame) } else { Some(frame) }) else {
                    continue;
                };
                if let Err(error) = take(shard, link, frame, works) {
                    break Err(error);
                }
            }
            Ok(None) => break Ok(Taken::All),
            Err(error) => break Err(error.into()),
        }
    };
    hand_in(shard, works);
    taken
}

/// What arrived together goes to the commit thread together.
pub(super) fn hand_in(shard: &Rc<Shard>, works: &mut Vec<Work>) {
    shard.replica.store_all(works);
    for refused in works.drain(..) {
        if let Work::Store(submission) = refused
            && let Asker::Peer(asker) = shard.replica.redeem(submission.ticket)
        {
            asker.stored(shard, StoreAnswer::Failed(Failure::Overloaded));
        }
    }
}

pub(super) fn take(
    shard: &Rc<Shard>,
    link: &Rc<Link>,
    taken: Frame,
    works: &mut Vec<Work>,
) -> Result<(), ProtocolError> {
    let id = taken.id;
    match taken.message {
        Message::Store { key, record, repair, uncounted } => {
            if !uncounted {
                shard.cpu_share.note_request();
            }
            let (key, record) = detach(key, record);
            let refused = match Record::decode(&key, record) {
                Err(_) => Some(Failure::Corrupt),
                Ok(record) => match shard.replica.refuses_stores() {
                    Some(failure) => Some(failure),
                    None => {
                        let asker = Asker::Peer(PeerAsker { link: link.clone(), id, version_only: false });
                        works.push(Work::Store(shard.replica.submission(key, &record, repair, uncounted, asker)));
                        None
                    }
                },
            };
            if let Some(failure) = refused {
                reply(link, &frame(shard, id, Message::StoreAnswer(StoreAnswer::Failed(failure))));
            }
        }
        Message::Read { key, version_only, uncounted } => {
            if !uncounted {
                shard.cpu_share.note_request();
            }
            let asker = || PeerAsker { link: link.clone(), id, version_only };
            if let Some(held) = shard.replica.read(&key, uncounted, || Asker::Peer(asker())) {
                asker().read(shard, held);
            }
        }
        Message::Repair(payload) => {
            let request = Request::decode(&payload).map_err(|_| ProtocolError::NotARequest)?;
            let (shard, link) = (shard.clone(), link.clone());
            let Some(admitted) = shard.anti_entropy.admit() else {
                reply(&link, &frame(&shard, id, Message::RepairAnswer(Response::Failed.encode())));
                return Ok(());
            };
            tokio::task::spawn_local(async move {
                let response = member::answer(&shard, request).await;
                drop(admitted);
                let answer = frame(&shard, id, Message::RepairAnswer(response.encode()));
                // A link that broke loses it, and the driver knows.
                let _ = link.answer(&answer);
            });
        }
        Message::Ping { .. } => {
            let pong = Message::Pong {
                wall_ms: shard.clock.wall_ms(),
                sequence: shard.membership.sequence(shard.replica.sequence()),
                rebuilt: shard.membership.is_rebuilt(),
                backpressure: shard.membership.backpressure(shard.membership.own()),
            };
            reply(link, &frame(shard, id, pong));
        }
        Message::StoreAnswer(_) | Message::ReadAnswer(_) | Message::RepairAnswer(_) | Message::Pong { .. } => {
            return Err(ProtocolError::NotARequest);
        }
    }
    Ok(())
}

/// Gives what is small an allocation of its own: otherwise each record that waits for the commit thread would
/// keep the whole buffer that it was read into. What is longer is most of its buffer, and counted as such.
pub(super) fn detach(key: Key, record: Bytes) -> (Key, Bytes) {
    if record.len() > COPIED_BYTES_MAX {
        return (key, record);
    }
    let bytes = key.as_bytes();
    let mut own = BytesMut::with_capacity(bytes.len() + record.len());
    own.extend_from_slice(bytes);
    own.extend_from_slice(&record);
    let mut own = own.freeze();
    let key = Key::new(own.split_to(bytes.len())).expect("these bytes were a key before");
    (key, own)
}

fn read_answer(held: Held, version_only: bool) -> ReadAnswer {
    match held {
        Held::Record(record) if version_only => ReadAnswer::Version { version: record.version(), from: record.from() },
        Held::Record(record) => ReadAnswer::Record(record.bytes().clone()),
        Held::Absent { floor } => ReadAnswer::Absent { floor },
        Held::Failed(failure) => ReadAnswer::Failed(failure),
    }
}

fn frame(shard: &Shard, id: u64, message: Message) -> Frame {
    Frame { id, hlc: shard.clock.reading(), message }
}

/// Sends an answer: if there is no room for a record, that it failed. A link that broke loses it, and the
/// coordinator knows.
fn reply(link: &Rc<Link>, frame: &Frame) {
    let sent = match frame.message {
        Message::ReadAnswer(ReadAnswer::Record(_)) => link.send(frame),
        _ => link.answer(frame),
    };
    if sent == Err(Failure::Overloaded) {
        let message = Message::ReadAnswer(ReadAnswer::Failed(Failure::Overloaded));
        let _ = link.answer(&Frame { message, ..*frame });
    }
}

/// Why a connection is closed for what came over it.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A frame that is not one.
    #[error(transparent)]
    Frame(#[from] kvorum_core::frame::FrameError),
    /// An answer where requests belong.
    #[error("an answer came where requests belong")]
    NotARequest,
    /// A request where answers belong.
    #[error("a request came where answers belong")]
    NotAnAnswer,
}

#[cfg(test)]
#[path = "server/tests.rs"]
mod tests;
