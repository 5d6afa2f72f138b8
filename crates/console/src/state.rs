//! What all parts of a console share.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hyper::header::HeaderValue;
use tokio::sync::{Semaphore, watch};

use crate::canary::Canary;
use crate::jobs::Jobs;
use crate::ring::{MinuteOf, NodeHistory};
use crate::series::SERIES;
use crate::settings::{ConsoleNode, ConsoleSettings};

/// Values that are being written at a time.
const VALUES_MAX: usize = 4;
/// Orders to `dev` that are carried out at a time.
const ORDERS_MAX: usize = 8;

/// What series were, of all nodes.
#[derive(Debug)]
pub(crate) struct HistoryBook {
    pub(crate) nodes: Vec<NodeHistory>,
    /// The newest second, counted from the console's start, and its wall clock.
    pub(crate) end_s: u64,
    pub(crate) end_ms: u64,
}

/// What all parts share.
pub(crate) struct ConsoleState {
    pub(crate) settings: ConsoleSettings,
    pub(crate) nodes: Vec<Arc<ConsoleNode>>,
    /// What nodes are shown: `Bearer …`
    pub(crate) authorization: Option<HeaderValue>,
    /// What pages show.
    pub(crate) token: String,
    history: Mutex<HistoryBook>,
    /// The newest frame, as an event; empty before the first.
    pub(crate) frames: watch::Sender<Bytes>,
    pub(crate) streams: AtomicUsize,
    pub(crate) connections: AtomicUsize,
    /// Room for values that pages write.
    pub(crate) values: Semaphore,
    /// Room for orders to `dev`, each of which holds a thread.
    pub(crate) orders: Arc<Semaphore>,
    /// In `dev` alone.
    pub(crate) canary: Option<Canary>,
    pub(crate) jobs: Option<Jobs>,
}

impl ConsoleState {
    pub(crate) fn new(settings: ConsoleSettings, authorization: Option<HeaderValue>, token: String) -> Self {
        let nodes: Vec<Arc<ConsoleNode>> = settings.nodes.iter().cloned().map(Arc::new).collect();
        let minute_of = || {
            let of = SERIES.iter().map(|row| row.formula.is_worst_of_minute());
            of.map(|is_worst| if is_worst { MinuteOf::Worst } else { MinuteOf::Mean }).collect()
        };
        let histories = nodes.iter().map(|_| NodeHistory::new(minute_of())).collect();
        let canary = settings.lab.as_ref().map(|_| Canary::default());
        let jobs = settings.jobs.clone().map(Jobs::new);
        Self {
            nodes,
            authorization,
            token,
            history: Mutex::new(HistoryBook { nodes: histories, end_s: 0, end_ms: 0 }),
            frames: watch::Sender::new(Bytes::new()),
            streams: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            values: Semaphore::new(VALUES_MAX),
            orders: Arc::new(Semaphore::new(ORDERS_MAX)),
            canary,
            jobs,
            settings,
        }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, HistoryBook> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
