//! The console: collects what nodes count, and serves the pages that show it.
//!
//! One thread has all of it: the collector, which asks each node once a second; the listener, for this machine alone; and
//! in `dev` the canary. It needs nothing of a node but its HTTP, so it starts before the cluster and outlives it. Memory
//! is bounded: about two megabytes a node for the past, and by the numbers of connections, streams and jobs.

mod admission;
mod api_route;
mod assets;
mod body;
mod canary;
mod canary_worker;
mod collector;
mod formula;
mod job_arguments;
mod jobs;
mod lab;
mod node_client;
mod node_state;
mod pages;
mod problem;
mod proxy;
mod random;
mod ring;
mod routes;
mod series;
mod server;
mod settings;
mod socket;
mod state;
mod stats;
mod stream;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use hyper::header::HeaderValue;
use tokio::sync::{mpsc, oneshot};

pub use settings::{ConsoleLevel, ConsoleMode, ConsoleNode, ConsoleSettings, LabControl, LabJobs};

use canary_worker::CanaryWorker;
use collector::Collector;
use random::random_hex;
use state::ConsoleState;

/// Nodes that one console watches.
const NODES_MAX: usize = 64;
/// Connections that wait to be taken over.
const HANDED_MAX: usize = 16;

/// What graphs can show, as JSON: for each series `id`, `title`, `unit` (`1/s`, `s`, `B`, `B/s` or `1`) and `promql`, the
/// query that shows the same in Prometheus.
#[must_use]
pub fn series() -> serde_json::Value {
    series::table()
}

/// A console that runs, until this is dropped.
#[derive(Debug)]
pub struct Console {
    token: String,
    address: Option<SocketAddr>,
    handed: mpsc::Sender<TcpStream>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Where a console listens.
///
/// # Errors
/// The address is not of this machine alone, or the system's.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        let why = "the console listens on this machine alone, such as on 127.0.0.1: reach it from another one through \
                   `ssh -L 8079:127.0.0.1:8079`";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    TcpListener::bind(address)
}

/// Starts a console. Without a listener it serves what it is handed.
///
/// # Errors
/// Bad settings, or the system's.
pub fn start(settings: ConsoleSettings, listener: Option<TcpListener>) -> io::Result<Console> {
    check(&settings)?;
    let key = settings.key.as_ref().map(|key| HeaderValue::from_str(&format!("Bearer {key}")));
    let mut authorization = key.transpose().map_err(|_| invalid("the key is no plain text"))?;
    if let Some(key) = &mut authorization {
        key.set_sensitive(true);
    }
    let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
    if address.is_some_and(|address| !address.ip().is_loopback()) {
        return Err(invalid("the console listens on this machine alone"));
    }
    if let Some(listener) = &listener {
        listener.set_nonblocking(true)?;
    }
    let (token, name) = (random_hex()?, random_hex()?);
    let state = Arc::new(ConsoleState::new(settings, authorization, token.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (handed, receiver) = mpsc::channel(HANDED_MAX);
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        runtime.block_on(async {
            tokio::spawn(Collector::new(state.clone()).run());
            if state.canary.is_some() {
                for worker in CanaryWorker::all(&state, &name) {
                    tokio::spawn(worker.run());
                }
            }
            let listener = listener.map(tokio::net::TcpListener::from_std).transpose();
            tokio::select! {
                // An error as well: whoever started it is gone.
                _ = stopped => {}
                () = serve_on(state.clone(), listener, receiver) => {}
            }
        });
        // An order to `dev` may wait for one who waits for this.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("console".to_owned()).spawn(run)?;
    Ok(Console { token, address, handed, stop: Some(stop), thread: Some(thread) })
}

async fn serve_on(
    state: Arc<ConsoleState>,
    listener: io::Result<Option<tokio::net::TcpListener>>,
    handed: mpsc::Receiver<TcpStream>,
) {
    match listener {
        Ok(listener) => server::serve(state, listener, handed).await,
        Err(error) => tracing::error!(%error, "the console cannot listen"),
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn check(settings: &ConsoleSettings) -> io::Result<()> {
    if settings.nodes.is_empty() || settings.nodes.len() > NODES_MAX {
        return Err(invalid(&format!("the console watches 1 to {NODES_MAX} nodes")));
    }
    for (index, node) in settings.nodes.iter().enumerate() {
        // It goes into a header.
        if node.address.is_empty() || !node.address.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(&format!("{:?} is no address HOST:PORT", node.address)));
        }
        if settings.nodes.iter().take(index).any(|before| before.address == node.address) {
            return Err(invalid(&format!("{} is named twice", node.url)));
        }
    }
    Ok(())
}

impl Console {
    /// The address to open in a browser, with the token that its pages need. For its user's eyes alone.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        self.address.map(|address| self.url_at(address))
    }

    /// The same, where another listener hands over what connects to it.
    #[must_use]
    pub fn url_at(&self, address: SocketAddr) -> String {
        format!("http://{address}/#{}", self.token)
    }

    /// Takes over a connection that was accepted elsewhere, unless too many wait.
    ///
    /// # Errors
    /// The system's; the connection is closed.
    pub fn take_over(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.handed.try_send(stream).map_err(|_| io::ErrorKind::WouldBlock.into())
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the console ended in a defect");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(addresses: &[&str], key: Option<&str>) -> String {
        let node =
            |address: &&str| ConsoleNode { url: format!("http://{address}"), address: (*address).into(), admin: None };
        let settings = ConsoleSettings {
            nodes: addresses.iter().map(node).collect(),
            key: key.map(str::to_owned),
            level: ConsoleLevel::Read,
            mode: ConsoleMode::Console,
            lab: None,
            jobs: None,
            assets: None,
        };
        start(settings, None).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn settings_that_make_no_sense_are_refused_in_words() {
        assert_eq!(refusal(&["a:1", "b:1"], Some("kvk_x")), "");
        assert!(refusal(&[], None).contains("1 to 64 nodes"));
        assert!(refusal(&["a:1"; 65], None).contains("1 to 64 nodes"));
        assert!(refusal(&["a:1", "a:1"], None).contains("named twice"));
        for bad in ["", "a b:1", "ä:1", "a\r\n:1"] {
            assert!(refusal(&[bad], None).contains("no address"), "{bad}");
        }
        assert!(refusal(&["a:1"], Some("a\nb")).contains("plain text"));
        let abroad = listen(([0, 0, 0, 0], 0).into()).unwrap_err();
        assert!(abroad.to_string().contains("ssh -L"), "{abroad}");
    }
}
