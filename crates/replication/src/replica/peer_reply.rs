//! The way back of an answer to a peer.

use std::rc::Rc;

use kvorum_base::clock::Clock;
use kvorum_core::frame::{Frame, Message};
use kvorum_core::quorum::{ReadAnswer, StoreAnswer};
use kvorum_peer::link::Link;

use super::held::Held;

/// Where the answer to a peer's request goes.
pub struct PeerReply {
    link: Rc<Link>,
    id: u64,
    version_only: bool,
}

impl PeerReply {
    /// To the request with this id that came over `link`, for a version instead of a record with `version_only`.
    #[must_use]
    pub fn new(link: Rc<Link>, id: u64, version_only: bool) -> Self {
        Self { link, id, version_only }
    }

    /// Answers a store.
    pub fn stored(&self, clock: &Clock, answer: StoreAnswer) {
        self.send(clock, Message::StoreAnswer(answer));
    }

    /// Answers a read.
    pub fn read(&self, clock: &Clock, held: Held) {
        let answer = match held {
            Held::Record(record) if self.version_only => {
                ReadAnswer::Version { version: record.version(), from: record.from() }
            }
            Held::Record(record) => ReadAnswer::Record(record.bytes().clone()),
            Held::Absent { gc_watermark } => ReadAnswer::Absent { gc_watermark },
            Held::Failed(failure) => ReadAnswer::Failed(failure),
        };
        self.send(clock, Message::ReadAnswer(answer));
    }

    fn send(&self, clock: &Clock, message: Message) {
        self.link.reply(&Frame { id: self.id, hlc: clock.reading(), message });
    }
}
