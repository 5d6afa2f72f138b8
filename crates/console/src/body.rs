//! Bodies: one that is whole, one that comes in pieces, and one of a node that is passed on as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::mpsc;

/// The body of a request or an answer.
#[derive(Debug)]
pub(crate) enum ConsoleBody {
    /// All of it, until it was given away.
    Whole(Option<Bytes>),
    /// Pieces, until their sender is gone.
    Pieces(mpsc::Receiver<Bytes>),
    /// Of the other side: nothing of it is kept here.
    Passed(Incoming),
}

impl ConsoleBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

impl Body for ConsoleBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
            Self::Passed(incoming) => Pin::new(incoming).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Pieces(_) => false,
            Self::Passed(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len).try_into().unwrap_or(u64::MAX))
            }
            Self::Pieces(_) => SizeHint::default(),
            Self::Passed(incoming) => incoming.size_hint(),
        }
    }
}
