//! A node-local range as a stream: one chunk `<key>\n<value>` per record, in key order.
//!
//! Holds one page of records at most and asks for the next when the last record of it is taken, which
//! hyper does only as the client reads: the reader's pace is the scan's. A record that cannot be read
//! ends the stream with an error, which the client sees as a chunked body without its end; leaving it
//! out would be a wrong answer.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use kvorum_base::value_memory::Charge;
use kvorum_core::key::least_behind;
use kvorum_core::{Key, Record};
use kvorum_storage::{Page, PageLimit};

use super::gate::RangePermit;
use super::in_flight::InFlightGuard;
use super::shares::Share;

/// Records of one page at most: the other bound is in bytes.
const PAGE_RECORDS: usize = 1024;

/// Why a page of a range could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// The read pool is full; nothing was done.
    Overloaded,
    /// A large record, and no memory for it.
    NoRoom,
    /// The store failed: for the log.
    Failed(String),
}

/// Memory for one page: the node's, and of it what a client may have.
#[derive(Debug, Default)]
pub struct PageRoom {
    charge: Option<Charge>,
    share: Option<Box<Share>>,
}

impl PageRoom {
    pub(super) fn new(charge: Option<Charge>, share: Option<Box<Share>>) -> Self {
        Self { charge, share }
    }

    /// Counts what a page takes beyond that. A page has a record at least, however large.
    ///
    /// # Errors
    /// [`RangeError::NoRoom`]: the page is to be dropped.
    pub fn grow_to(&mut self, page: &Page) -> Result<(), RangeError> {
        let bytes = bytes_of(page);
        if let Some(share) = &mut self.share {
            share.grow_to(bytes).map_err(|_| RangeError::NoRoom)?;
        }
        if let Some(charge) = &mut self.charge {
            charge.grow_to(bytes).map_err(|_| RangeError::NoRoom)?;
        }
        Ok(())
    }
}

fn bytes_of(page: &Page) -> usize {
    page.records.iter().map(|(key, record)| key.len() + record.len()).sum()
}

/// A page that is being read, with the memory that counts it.
pub type PageFuture = Pin<Box<dyn Future<Output = Result<(Page, PageRoom), RangeError>>>>;

/// Where pages come from.
pub trait Ranges {
    /// Records with `start ≤ key < end` in key order, as many as `limit` allows and at least one if there
    /// is one. Dropping the future gives up the answer. `room` grows to the page where it is read: many that wait to be
    /// taken would not be counted.
    fn page(&self, start: Bytes, end: Option<Bytes>, limit: PageLimit, room: PageRoom) -> PageFuture;

    /// The node's hybrid clock, by which values end here: in milliseconds since 1970.
    fn clock_ms(&self) -> u64;
}

/// The stream has ended early.
#[derive(Debug, thiserror::Error)]
#[error("the range ended early: {0}")]
pub(super) struct RangeBroken(String);

/// What is left of a range.
pub(super) struct RangeBody {
    source: Rc<dyn Ranges>,
    end: Option<Bytes>,
    limit: PageLimit,
    /// For one page; the page has it while it is read.
    room: PageRoom,
    records: std::vec::IntoIter<(Bytes, Bytes)>,
    next: Next,
    on_broken: Box<dyn Fn(&str)>,
    /// Where there are keys.
    permit: Option<Box<RangePermit>>,
    busy: Option<InFlightGuard>,
}

enum Next {
    Start(Bytes),
    Coming(PageFuture),
    Nothing,
}

impl std::fmt::Debug for RangeBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeBody").finish_non_exhaustive()
    }
}

impl RangeBody {
    /// A stream without records yet, with `room` for `page_bytes`. `on_broken` gets the reason if it breaks off.
    pub(super) fn new(
        source: Rc<dyn Ranges>,
        end: Option<Bytes>,
        page_bytes: usize,
        room: PageRoom,
        on_broken: Box<dyn Fn(&str)>,
        permit: Option<Box<RangePermit>>,
    ) -> Self {
        Self {
            source,
            end,
            limit: PageLimit { records: PAGE_RECORDS, bytes: page_bytes },
            room,
            records: Vec::new().into_iter(),
            next: Next::Nothing,
            on_broken,
            permit,
            busy: None,
        }
    }

    /// Reads the first page, so that what fails at once can still get a status.
    ///
    /// # Errors
    /// That of the page.
    pub(super) async fn open(&mut self, start: Bytes) -> Result<(), RangeError> {
        let room = std::mem::take(&mut self.room);
        let (first, room) = self.source.page(start, self.end.clone(), self.limit, room).await?;
        self.turn_to(first, room);
        Ok(())
    }

    /// Keeps the request in flight until the stream is done or dropped.
    pub(super) fn hold(&mut self, busy: InFlightGuard) {
        self.busy = Some(busy);
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RangeBroken>>> {
        loop {
            for (key, raw) in self.records.by_ref() {
                match chunk(key, raw, || self.source.clock_ms()) {
                    Ok(None) => {}
                    Ok(Some(chunk)) => return Poll::Ready(Some(Ok(chunk))),
                    Err(reason) => return self.broken(reason),
                }
            }
            match &mut self.next {
                Next::Nothing => return Poll::Ready(None),
                Next::Start(_) if self.permit.as_ref().is_some_and(|permit| !permit.may_go_on()) => {
                    return self.broken("its key has no right any more".to_owned());
                }
                Next::Start(start) => {
                    let start = std::mem::take(start);
                    let room = std::mem::take(&mut self.room);
                    self.next = Next::Coming(self.source.page(start, self.end.clone(), self.limit, room));
                }
                Next::Coming(page) => match ready!(page.as_mut().poll(cx)) {
                    Ok((page, room)) => self.turn_to(page, room),
                    Err(RangeError::NoRoom) => {
                        return self.broken("there is no memory for a large record".to_owned());
                    }
                    Err(RangeError::Overloaded) => return self.broken("the read pool is full".to_owned()),
                    Err(RangeError::Failed(reason)) => return self.broken(reason),
                },
            }
        }
    }

    fn turn_to(&mut self, page: Page, room: PageRoom) {
        self.room = room;
        if let Some(permit) = &self.permit {
            permit.charge(bytes_of(&page));
        }
        self.next = match page.records.last() {
            Some((last, _)) if page.more => Next::Start(least_behind(last).into()),
            _ => Next::Nothing,
        };
        self.records = page.records.into_iter();
    }

    fn broken(&mut self, reason: String) -> Poll<Option<Result<Bytes, RangeBroken>>> {
        (self.on_broken)(&reason);
        self.records = Vec::new().into_iter();
        self.next = Next::Nothing;
        Poll::Ready(Some(Err(RangeBroken(reason))))
    }
}

/// A record as its chunk; none if it is deleted.
fn chunk(key: Bytes, raw: Bytes, clock_ms: impl FnOnce() -> u64) -> Result<Option<Bytes>, String> {
    let key = Key::new(key).map_err(|error| error.to_string())?;
    let record = Record::decode(&key, raw).map_err(|error| error.to_string())?;
    if record.is_deleted(clock_ms) {
        return Ok(None);
    }
    let value = record.payload();
    let mut chunk = BytesMut::with_capacity(key.as_bytes().len() + 1 + value.len());
    chunk.put_slice(key.as_bytes());
    chunk.put_u8(b'\n');
    chunk.put_slice(&value);
    Ok(Some(chunk.freeze()))
}
