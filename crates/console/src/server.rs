//! The connections of pages: few, and none that nothing goes through is kept.

use std::convert::Infallible;
use std::net::TcpStream as StdTcpStream;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};

use crate::problem::ConsoleProblem;
use crate::routes::answer;
use crate::socket::ConsoleSocket;
use crate::state::ConsoleState;

const CONNECTIONS_MAX: usize = 128;
/// A connection through which nothing goes for so long is closed. A stream has a frame a second.
const IDLE_MAX: Duration = Duration::from_secs(75);
const IDLE_CHECK: Duration = Duration::from_secs(5);
/// For a connection that is one too many to take its answer.
const FAREWELL: Duration = Duration::from_secs(1);
/// Of a head, and of what waits to be sent.
const BUFFER_BYTES: usize = 64 << 10;

/// One of the connections that are served.
struct ConnectionLease(Arc<ConsoleState>);

impl ConnectionLease {
    /// None where there are as many as there may be.
    fn take(state: &Arc<ConsoleState>) -> Option<Self> {
        let open = state.connections.fetch_add(1, Ordering::Relaxed);
        // Given back in any case.
        let lease = Self(state.clone());
        (open < CONNECTIONS_MAX).then_some(lease)
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves what connects to the listener, if there is one, and what others have accepted. Never ends.
pub(crate) async fn serve(
    state: Arc<ConsoleState>,
    listener: Option<TcpListener>,
    mut handed: mpsc::Receiver<StdTcpStream>,
) {
    loop {
        let stream = tokio::select! {
            Some(stream) = handed.recv() => TcpStream::from_std(stream),
            accepted = accept(listener.as_ref()) => accepted,
        };
        match stream {
            Ok(stream) => {
                tokio::spawn(connection(stream, state.clone()));
            }
            // Out of descriptors, most likely: those that are open may close.
            Err(error) => {
                tracing::debug!(%error, "the console cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn connection(stream: TcpStream, state: Arc<ConsoleState>) {
    let Some(_lease) = ConnectionLease::take(&state) else {
        // It need not be taken.
        let _ = timeout(FAREWELL, turn_away(stream)).await;
        return;
    };
    let socket = ConsoleSocket::new(stream);
    let used = socket.last_use();
    let service = service_fn(|request| {
        let state = state.clone();
        async move { Ok::<_, Infallible>(answer(&state, request).await) }
    });
    let mut served = pin!(Builder::new().max_buf_size(BUFFER_BYTES).serve_connection(socket, service));
    let mut checks = interval(IDLE_CHECK);
    loop {
        tokio::select! {
            outcome = &mut served => {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "a connection to the console is lost");
                }
                return;
            }
            _ = checks.tick() => {
                if used.idle() > IDLE_MAX {
                    return;
                }
            }
        }
    }
}

async fn turn_away(mut stream: TcpStream) {
    let detail = format!("the console serves {CONNECTIONS_MAX} connections already: close a page");
    let document = ConsoleProblem::full(detail).document();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        document.len()
    );
    // It may be gone.
    let _ = stream.write_all(&[head.as_bytes(), &document].concat()).await;
    let _ = stream.shutdown().await;
}
