//! The replica's side of a peer connection: requests in, answers out.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use kvorum_core::frame::{Decoder, Frame, Message};
use kvorum_core::placement::NodeId;
use kvorum_core::quorum::{Failure, ReadAnswer, StoreAnswer};
use kvorum_core::{Key, Record};

use super::link::Link;
use crate::commit::Work;
use crate::replica::Held;
use crate::shard::{Asker, Shard};

/// A peer's question that waits for another thread.
pub struct PeerAsker {
    link: Rc<Link>,
    id: u64,
    version_only: bool,
}

impl PeerAsker {
    /// Sends the answer to a store.
    pub fn stored(&self, shard: &Shard, answer: StoreAnswer) {
        reply(shard, &self.link, self.id, Message::StoreAnswer(answer));
    }

    /// Sends the answer to a read.
    pub fn read(&self, shard: &Shard, held: Held) {
        reply(shard, &self.link, self.id, Message::ReadAnswer(read_answer(held, self.version_only)));
    }
}

/// Serves one peer until the connection ends. `input` is what was read behind the handshake.
pub async fn serve(shard: Rc<Shard>, link: Rc<Link>, node: NodeId, mut input: BytesMut) {
    let mut decoder = Decoder::new(shard.settings.frame_bytes_max, shard.settings.partial_bytes_max);
    let mut works = Vec::new();
    loop {
        match take_frames(&shard, &link, &mut decoder, &mut input, &mut works) {
            Ok(()) => {}
            Err(error) => {
                let peer = shard.membership.peer(node);
                peer.protocol_errors.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(peer = shard.membership.url(node), %error, "peer connection closed for what it sent");
                break;
            }
        }
        link.until_uncongested().await;
        match link.read(&mut input).await {
            Ok(true) => {}
            Ok(false) | Err(_) => break,
        }
    }
    link.close();
}

fn take_frames(
    shard: &Rc<Shard>,
    link: &Rc<Link>,
    decoder: &mut Decoder,
    input: &mut BytesMut,
    works: &mut Vec<Work>,
) -> Result<(), ProtocolError> {
    let mut taken = Ok(());
    loop {
        match decoder.decode(input) {
            Ok(Some(frame)) => {
                shard.clock.observe(frame.hlc);
                if let Err(error) = take(shard, link, frame, works) {
                    taken = Err(error);
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                taken = Err(error.into());
                break;
            }
        }
    }
    // What arrived together goes to the commit thread together.
    shard.replica.store_all(works);
    for refused in works.drain(..) {
        if let Work::Store(submission) = refused
            && let Asker::Peer(asker) = shard.replica.redeem(submission.ticket)
        {
            asker.stored(shard, StoreAnswer::Failed(Failure::Overloaded));
        }
    }
    taken
}

fn take(shard: &Rc<Shard>, link: &Rc<Link>, frame: Frame, works: &mut Vec<Work>) -> Result<(), ProtocolError> {
    let id = frame.id;
    match frame.message {
        Message::Store { key, record, repair } => {
            let refused = match Record::decode(&key, record) {
                Err(_) => Some(Failure::Corrupt),
                Ok(record) => match shard.replica.refuses_stores() {
                    Some(failure) => Some(failure),
                    None => {
                        let asker = Asker::Peer(PeerAsker { link: link.clone(), id, version_only: false });
                        works.push(Work::Store(shard.replica.submission(key, &record, repair, asker)));
                        None
                    }
                },
            };
            if let Some(failure) = refused {
                reply(shard, link, id, Message::StoreAnswer(StoreAnswer::Failed(failure)));
            }
        }
        Message::Read { key, version_only } => read(shard, link, id, &key, version_only),
        Message::Ping { .. } => {
            let pong = Message::Pong { wall_ms: shard.clock.wall_ms(), sequence: shard.replica.sequence() };
            reply(shard, link, id, pong);
        }
        Message::StoreAnswer(_) | Message::ReadAnswer(_) | Message::Pong { .. } => {
            return Err(ProtocolError::NotARequest);
        }
    }
    Ok(())
}

fn read(shard: &Rc<Shard>, link: &Rc<Link>, id: u64, key: &Key, version_only: bool) {
    let asker = || Asker::Peer(PeerAsker { link: link.clone(), id, version_only });
    if let Some(held) = shard.replica.read(key, asker) {
        reply(shard, link, id, Message::ReadAnswer(read_answer(held, version_only)));
    }
}

fn read_answer(held: Held, version_only: bool) -> ReadAnswer {
    match held {
        Held::Record(record) if version_only => ReadAnswer::Version { version: record.version(), from: record.from() },
        Held::Record(record) => ReadAnswer::Record(record.bytes().clone()),
        Held::Absent { floor } => ReadAnswer::Absent { floor },
        Held::Failed(failure) => ReadAnswer::Failed(failure),
    }
}

fn reply(shard: &Shard, link: &Rc<Link>, id: u64, message: Message) {
    // A link that broke or is full loses its answer; the coordinator's deadline covers that.
    let _ = link.send(&Frame { id, hlc: shard.clock.reading(), message });
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
