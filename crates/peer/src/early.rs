//! Questions that come before this node can answer them. Those of requests, before it serves its cluster: on the first
//! start of a cluster its nodes get there within milliseconds of each other, and the first of them is asked, and asks the
//! others, at once. And all that were asked by a layout which this node does not know yet.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use kvorum_core::frame::{Frame, Message};

use super::detach::detach;
use super::incoming::Incoming;
use super::link::Grouping;

/// What a question takes beside its record.
const QUESTION_BYTES: usize = 256;

/// A part of what one connection may have wait.
struct Room {
    early: Rc<Cell<usize>>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.early.set(self.early.get() - self.bytes);
    }
}

impl Incoming {
    /// Keeps a question until this node can answer it, or the time is over in which the answer is awaited. Gives back what
    /// is none, and what there is no room for: that is answered now.
    pub(super) fn hold(&self, frame: Frame) -> Option<Frame> {
        let is_ahead = frame.epoch > self.context.membership.epoch();
        let bytes = match &frame.message {
            Message::Store { record, non_voting, .. } if is_ahead || !non_voting => QUESTION_BYTES + record.len(),
            Message::Read { non_voting, .. } if is_ahead || !non_voting => QUESTION_BYTES,
            Message::Repair(payload) | Message::Scan(payload) if is_ahead => QUESTION_BYTES + payload.len(),
            _ => return Some(frame),
        };
        let early = &self.early;
        if early.get() >= self.context.settings.queue_bytes_max {
            return Some(frame);
        }
        early.set(early.get() + bytes);
        let room = Room { early: early.clone(), bytes };
        let frame = Frame { message: detached(frame.message), ..frame };
        let (context, handler, link) = (self.context.clone(), self.handler.clone(), self.link.clone());
        let caller = self.caller;
        tokio::task::spawn_local(async move {
            // If it is over, what follows shows that.
            let answering = context.membership.until_answering(frame.epoch);
            let _ = tokio::time::timeout(context.settings.deadline, answering).await;
            if !link.is_closed() {
                if let Err(error) = handler.on_request(caller, &link, frame, Grouping::Alone) {
                    context.membership.note_protocol_error(caller.node, &error, context.clock.boot());
                    link.close();
                }
                handler.on_requests_end();
            }
            drop(room);
        });
        None
    }
}

/// Without the buffer that it was read into, if it is small or no record.
fn detached(message: Message) -> Message {
    match message {
        Message::Store { key, record, repair, non_voting } => {
            let (key, record) = detach(key, record);
            Message::Store { key, record, repair, non_voting }
        }
        Message::Read { key, wanted, non_voting } => {
            let (key, _) = detach(key, Bytes::new());
            Message::Read { key, wanted, non_voting }
        }
        Message::Repair(payload) => Message::Repair(Bytes::copy_from_slice(&payload)),
        Message::Scan(payload) => Message::Scan(Bytes::copy_from_slice(&payload)),
        other => other,
    }
}
