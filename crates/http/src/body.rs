//! Bodies: a request's, gathered within its limits, and a response's.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use kvorum_base::value_memory;
use kvorum_base::value_memory::{Charge, LargeValues};

use super::range::{RangeBody, RangeBroken};
use super::scan::{ScanBody, ScanBroken};
use super::shares::OverShare;

/// Why a request's body could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It is longer than a value may be; the rest is unread.
    TooLarge,
    /// There is no room for it now; the rest is unread.
    NoRoom,
    /// Its sender holds as much as it may; the rest is unread.
    OverShare,
    /// Its framing is broken or its sender is gone.
    Broken,
}

/// A value as far as it has come, and the memory it is charged with.
#[derive(Debug, Default)]
struct Value {
    parts: BodyParts,
    charge: Option<Charge>,
}

#[derive(Debug)]
enum BodyParts {
    /// What arrived in one piece is not copied.
    One(Bytes),
    Many(Vec<u8>),
}

impl Default for BodyParts {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl Value {
    fn len(&self) -> usize {
        match &self.parts {
            BodyParts::One(bytes) => bytes.len(),
            BodyParts::Many(bytes) => bytes.len(),
        }
    }

    fn whole(self) -> value_memory::Body {
        let bytes = match self.parts {
            BodyParts::One(bytes) => bytes,
            BodyParts::Many(bytes) => bytes.into(),
        };
        value_memory::Body::new(bytes, self.charge)
    }

    /// Takes a piece. `expected` bytes are still to come, as far as the client has declared them: room for them is
    /// allocated with the second piece, and charged before.
    fn push(
        &mut self,
        data: Bytes,
        expected: usize,
        memory: &Arc<LargeValues>,
        hold: impl Fn(usize) -> Result<(), OverShare>,
    ) -> Result<(), BodyError> {
        let length = self.len() + data.len();
        let allocated = if self.len() == 0 { length } else { length + expected };
        hold(allocated).map_err(|OverShare| BodyError::OverShare)?;
        match &mut self.charge {
            Some(charge) => charge.grow_to(allocated),
            none => memory.charge(allocated).map(|charge| *none = charge),
        }
        .map_err(|_| BodyError::NoRoom)?;
        match &mut self.parts {
            BodyParts::One(first) if first.is_empty() => *first = data,
            BodyParts::One(first) => {
                let mut all = Vec::with_capacity(length + expected);
                all.extend_from_slice(first);
                all.extend_from_slice(&data);
                self.parts = BodyParts::Many(all);
            }
            BodyParts::Many(all) => all.extend_from_slice(&data),
        }
        Ok(())
    }
}

/// Reads a body of at most `bytes_max`. `hold` is told of all that its sender holds with it, before it is allocated.
///
/// # Errors
/// [`BodyError`]; a declared length over the limit is refused before anything is read.
pub(super) async fn gather(
    body: &mut Incoming,
    bytes_max: usize,
    memory: &Arc<LargeValues>,
    hold: impl Fn(usize) -> Result<(), OverShare>,
) -> Result<value_memory::Body, BodyError> {
    declared_length(body, bytes_max)?;
    let mut value = Value::default();
    while let Some(data) = next_data(body).await? {
        // What is declared has been checked; what is not shows only as it comes.
        let expected = declared_length(body, bytes_max)?;
        if value.len() + data.len() > bytes_max {
            return Err(BodyError::TooLarge);
        }
        value.push(data, expected, memory, &hold)?;
    }
    Ok(value.whole())
}

/// Reads a body of at most `bytes_max` and drops it, so that the connection can go on.
///
/// # Errors
/// [`BodyError`]
pub(super) async fn swallow(body: &mut Incoming, bytes_max: usize) -> Result<(), BodyError> {
    let mut left = bytes_max;
    declared_length(body, left)?;
    while let Some(data) = next_data(body).await? {
        left = left.checked_sub(data.len()).ok_or(BodyError::TooLarge)?;
    }
    Ok(())
}

/// Bytes still to come as far as the client has declared them, else 0.
pub(super) fn declared_length(body: &Incoming, bytes_max: usize) -> Result<usize, BodyError> {
    match body.size_hint().exact() {
        None => Ok(0),
        Some(length) => usize::try_from(length).ok().filter(|&length| length <= bytes_max).ok_or(BodyError::TooLarge),
    }
}

/// The next piece of data; none at the end. Trailers are not read.
async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
    while !body.is_end_stream() {
        match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            None => break,
            Some(Err(_)) => return Err(BodyError::Broken),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
    Ok(None)
}

/// A response's body.
#[derive(Debug)]
pub(super) enum ResponseBody {
    /// Everything at once; nothing after it was taken.
    Whole(Bytes),
    Range(Box<RangeBody>),
    Scan(Box<ScanBody>),
}

/// A stream has ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamBroken {
    #[error(transparent)]
    Range(#[from] RangeBroken),
    #[error(transparent)]
    Scan(#[from] ScanBroken),
}

impl ResponseBody {
    pub(super) fn empty() -> Self {
        Self::Whole(Bytes::new())
    }

    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = StreamBroken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StreamBroken>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Range(range) => {
                range.poll_next(cx).map(|next| next.map(|record| record.map(Frame::data).map_err(StreamBroken::from)))
            }
            Self::Scan(scan) => {
                scan.poll_next(cx).map(|next| next.map(|piece| piece.map(Frame::data).map_err(StreamBroken::from)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Range(_) | Self::Scan(_) => SizeHint::new(),
        }
    }
}
