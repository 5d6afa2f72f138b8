//! The way back of an answer to a peer.

use kvorum_core::Record;
use std::rc::Rc;

use kvorum_base::clock::Clock;
use kvorum_core::frame::{Frame, Message, NO_EPOCH};
use kvorum_core::quorum::{Held, ReadAnswer, StoreAnswer, Wanted};
use kvorum_peer::link::{Grouping, Link};

/// Where the answer to a peer's request goes.
#[derive(Clone)]
pub struct PeerReply {
    link: Rc<Link>,
    id: u64,
    wanted: Wanted,
    grouping: Grouping,
}

impl PeerReply {
    /// To the request with this id that came over `link`, perhaps with others.
    #[must_use]
    pub fn new(link: Rc<Link>, id: u64, wanted: Wanted, grouping: Grouping) -> Self {
        Self { link, id, wanted, grouping }
    }

    /// Answers a store.
    pub fn stored(&self, clock: &Clock, answer: StoreAnswer) {
        self.send(clock, Message::StoreAnswer(answer));
    }

    /// Answers a read.
    pub fn read(&self, clock: &Clock, answer: ReadAnswer<Record>) {
        let answer = match answer {
            ReadAnswer::Held(Held::Record(record)) if self.wanted != Wanted::Record => {
                ReadAnswer::Version { version: record.version(), from: record.from() }
            }
            ReadAnswer::Held(Held::Record(record)) => ReadAnswer::Held(Held::Record(record.bytes().clone())),
            ReadAnswer::Held(Held::Absent { gc_watermark }) => ReadAnswer::Held(Held::Absent { gc_watermark }),
            ReadAnswer::Version { version, from } => ReadAnswer::Version { version, from },
            ReadAnswer::Failed(failure) => ReadAnswer::Failed(failure),
        };
        self.send(clock, Message::ReadAnswer(answer));
    }

    fn send(&self, clock: &Clock, message: Message) {
        self.link.reply(&Frame { id: self.id, epoch: NO_EPOCH, hlc: clock.durable_reading(), message }, self.grouping);
    }
}
