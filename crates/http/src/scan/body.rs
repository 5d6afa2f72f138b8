//! A scan as a stream. It is pulled: hyper asks for the next piece as the client reads, and the scan asks nodes for no
//! more than that. What cannot go on ends with an error, which the client sees as a chunked body without its end, and
//! without a trailer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use kvorum_base::value_memory::LargeValues;
use kvorum_replication::cluster_scan::ScanStep;
use tokio::time::{Instant, Sleep};

use super::tally::ScanEnding;
use super::token::TokenScope;
use super::writer::ScanWriter;
use crate::api::{ScanAdvance, ScanSource};
use crate::error::NodeNames;
use crate::gate::RangePermit;
use crate::in_flight::InFlightGuard;
use crate::media::RecordForm;

/// A piece of the answer has about so many bytes, and one record at most beyond them.
const PIECE_BYTES: usize = 64 * 1024;
/// A client can go on from no longer ago, and has no more to read again.
const MARK_EVERY: Duration = Duration::from_secs(1);
const MARK_EVERY_BYTES: usize = 256 * 1024;

/// The stream has ended early.
#[derive(Debug, thiserror::Error)]
#[error("the scan ended early: {0}")]
pub(crate) struct ScanBroken(&'static str);

/// What is left of a scan.
pub(crate) struct ScanBody {
    state: State,
    /// What was read before the stream began.
    first: Option<ScanStep>,
    writer: ScanWriter,
    tokens: TokenScope,
    /// The last key up to which all is written.
    position: Option<Bytes>,
    /// Until when the client needs no mark.
    mark: Pin<Box<Sleep>>,
    /// Bytes since the last one.
    unmarked: usize,
    limit: u64,
    memory: Arc<LargeValues>,
    names: NodeNames,
    /// Where there are keys.
    permit: Option<Box<RangePermit>>,
    busy: Option<InFlightGuard>,
}

/// What a scan is written with.
pub(super) struct ScanBodySetup {
    pub(super) form: RecordForm,
    pub(super) tokens: TokenScope,
    pub(super) limit: Option<u32>,
    pub(super) memory: Arc<LargeValues>,
    pub(super) names: NodeNames,
    pub(super) permit: Option<Box<RangePermit>>,
}

enum State {
    Held(Box<dyn ScanSource>),
    Advancing(ScanAdvance),
    Done,
}

impl std::fmt::Debug for ScanBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanBody").finish_non_exhaustive()
    }
}

impl ScanBody {
    /// A stream that begins with `first`; of nothing, where that is none.
    pub(super) fn new(source: Box<dyn ScanSource>, first: Option<ScanStep>, setup: ScanBodySetup) -> Self {
        let ScanBodySetup { form, tokens, limit, memory, names, permit } = setup;
        Self {
            position: None,
            state: if first.is_some() { State::Held(source) } else { State::Done },
            first,
            writer: ScanWriter::new(form),
            tokens,
            mark: Box::pin(tokio::time::sleep(MARK_EVERY)),
            unmarked: 0,
            limit: limit.map_or(u64::MAX, u64::from),
            memory,
            names,
            permit,
            busy: None,
        }
    }

    /// Keeps the request in flight until the stream is done or dropped.
    pub(crate) fn hold(&mut self, busy: InFlightGuard) {
        self.busy = Some(busy);
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ScanBroken>>> {
        loop {
            match std::mem::replace(&mut self.state, State::Done) {
                State::Done if self.writer.out.is_empty() => return Poll::Ready(None),
                State::Done => return self.piece(),
                State::Held(mut source) => {
                    if self.take_ready(&mut *source) == Progress::Ended {
                        continue;
                    }
                    if self.writer.out.len() >= PIECE_BYTES {
                        self.state = State::Held(source);
                        return self.piece();
                    }
                    if self.permit.as_ref().is_some_and(|permit| !permit.may_go_on()) {
                        return self.broken("its key has no right any more");
                    }
                    self.state = State::Advancing(source.advance());
                }
                State::Advancing(mut advance) => match advance.as_mut().poll(cx) {
                    Poll::Ready(source) => self.state = State::Held(source),
                    Poll::Pending => {
                        self.state = State::Advancing(advance);
                        if !self.writer.out.is_empty() {
                            return self.piece();
                        }
                        // Also where it has not moved on: the client sees that it lives.
                        ready!(self.mark.as_mut().poll(cx));
                        self.write_mark();
                    }
                },
            }
        }
    }

    /// Writes what is known, up to a piece.
    fn take_ready(&mut self, source: &mut dyn ScanSource) -> Progress {
        while self.writer.out.len() < PIECE_BYTES {
            let Some(step) = self.first.take().or_else(|| source.ready()) else { break };
            self.position = source.position().cloned();
            match step {
                ScanStep::Record(found) => {
                    self.writer.record(&found);
                    if self.writer.tally.count == self.limit {
                        return self.write_trailer(source, false);
                    }
                }
                ScanStep::Passed => self.write_mark(),
                ScanStep::End => return self.write_trailer(source, true),
                ScanStep::Missing(_) => return self.write_trailer(source, false),
            }
        }
        if self.mark.deadline() <= Instant::now() || self.unmarked + self.writer.out.len() >= MARK_EVERY_BYTES {
            self.write_mark();
        }
        Progress::Open
    }

    fn write_mark(&mut self) {
        self.mark.as_mut().reset(Instant::now() + MARK_EVERY);
        self.unmarked = 0;
        self.writer.mark(&self.tokens.token(self.position.as_deref()));
    }

    fn write_trailer(&mut self, source: &dyn ScanSource, is_at_end: bool) -> Progress {
        let after = (!is_at_end).then(|| self.tokens.token(self.position.as_deref()));
        self.writer.trailer(&ScanEnding::of(source, after, self.names));
        Progress::Ended
    }

    fn piece(&mut self) -> Poll<Option<Result<Bytes, ScanBroken>>> {
        let content = Bytes::from(std::mem::take(&mut self.writer.out));
        self.unmarked += content.len();
        if let Some(permit) = &self.permit {
            permit.charge(content.len());
        }
        if content.len() <= 2 * PIECE_BYTES {
            return Poll::Ready(Some(Ok(content)));
        }
        // A large record, until the client has it: what is usual is in the scan's reservation.
        match self.memory.charge(content.len()) {
            Ok(Some(charge)) => Poll::Ready(Some(Ok(charge.kept_by(content)))),
            Ok(None) => Poll::Ready(Some(Ok(content))),
            Err(_) => self.broken("there is no memory for a large record"),
        }
    }

    fn broken(&mut self, reason: &'static str) -> Poll<Option<Result<Bytes, ScanBroken>>> {
        self.writer.out.clear();
        self.state = State::Done;
        Poll::Ready(Some(Err(ScanBroken(reason))))
    }
}

/// Whether more follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Open,
    Ended,
}
