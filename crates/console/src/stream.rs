//! `/api/stream`: a frame a second, for as long as the page is open.
//!
//! A page that reads slowly misses frames: one waits for it at most, and the next that it gets is the newest then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::header::CONTENT_TYPE;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::body::ConsoleBody;
use crate::problem::ConsoleProblem;
use crate::state::ConsoleState;

const STREAMS_MAX: usize = 64;
/// For a page to take a frame.
const PATIENCE: Duration = Duration::from_secs(30);

/// One of the streams that are open.
struct StreamSlot(Arc<ConsoleState>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens a stream.
///
/// # Errors
/// 503 where as many are open as there may be.
pub(crate) fn stream(state: &Arc<ConsoleState>) -> Result<Response<ConsoleBody>, ConsoleProblem> {
    let open = state.streams.fetch_add(1, Ordering::Relaxed);
    // Given back in any case.
    let slot = StreamSlot(state.clone());
    if open >= STREAMS_MAX {
        return Err(ConsoleProblem::full(format!("{STREAMS_MAX} pages are open already: close one")));
    }
    let (sender, pieces) = mpsc::channel(1);
    let frames = state.frames.subscribe();
    tokio::spawn(async move {
        send_frames(frames, &sender).await;
        drop(slot);
    });
    let answer = Response::builder().header(CONTENT_TYPE, "text/event-stream");
    Ok(answer.body(ConsoleBody::Pieces(pieces)).expect("plain headers"))
}

async fn send_frames(mut frames: watch::Receiver<Bytes>, sender: &mpsc::Sender<Bytes>) {
    // The last one at once.
    frames.mark_changed();
    loop {
        let changed = tokio::select! {
            changed = frames.changed() => changed,
            () = sender.closed() => return,
        };
        let frame = frames.borrow_and_update().clone();
        if changed.is_err() {
            return;
        }
        if !frame.is_empty() && !matches!(timeout(PATIENCE, sender.send(frame)).await, Ok(Ok(()))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_misses_frames_and_gets_the_newest() {
        let frames = watch::Sender::new(Bytes::new());
        let (sender, mut pieces) = mpsc::channel(1);
        let receiver = frames.subscribe();
        let task = tokio::spawn(async move { send_frames(receiver, &sender).await });
        for number in 0..100_u32 {
            frames.send_replace(Bytes::from(number.to_string()));
            tokio::task::yield_now().await;
        }
        let mut taken = vec![pieces.recv().await.unwrap()];
        while taken.last().unwrap() != "99" {
            taken.push(pieces.recv().await.unwrap());
        }
        assert!(taken.len() <= 3, "{taken:?}");
        drop(pieces);
        task.await.unwrap();
    }
}
