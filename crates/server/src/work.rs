//! Work beside the data: this node evaluates queries where it scans, and has scripts run by processes of their own.

use std::any::Any;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_base::blocking_pool::{ReadPool, ReadPoolThreads};
use kvorum_base::clock::Clock;
use kvorum_base::log_limit::LogLimit;
use kvorum_core::quorum::Failure;
use kvorum_core::{Key, Record};
use kvorum_http::api::{ScriptFuture, ScriptRefused, Scripts};
use kvorum_http::work::{ScanWork, WorkResult};
use kvorum_query::{Query, QueryRecord};
use kvorum_replication::cluster_scan::derivation::Derivation;
use kvorum_script::{ScriptPair, ScriptRecord, ScriptWorkers, WORKERS_MAX, WorkerError};
use tokio::sync::Semaphore;

/// Scripts' pages and ends that wait for a worker.
/// Few, because each may take seconds, and a scan takes a node that keeps it waiting for one that is gone.
const WAITING_MAX: usize = 4;

/// What the node does beside its data.
pub(crate) struct NodeWork {
    scripts: Option<NodeScripts>,
}

/// Workers, and the threads that wait for them. A worker ends with the thread that has started it, so those are its own.
#[derive(Clone)]
pub(crate) struct NodeScripts {
    workers: Arc<ScriptWorkers>,
    pool: ReadPool,
    /// For scripts that this node coordinates.
    places: Arc<Semaphore>,
    clock: Arc<Clock>,
    unavailable: Arc<LogLimit>,
}

impl NodeWork {
    /// Queries; and scripts, whose worker is this program.
    ///
    /// # Errors
    /// The operating system's, where it starts no thread.
    pub(crate) fn start(
        program: Option<PathBuf>,
        clock: &Arc<Clock>,
    ) -> io::Result<(Arc<Self>, Option<ReadPoolThreads>)> {
        let Some(program) = program else { return Ok((Arc::new(Self { scripts: None }), None)) };
        let (pool, threads) = ReadPool::start(WORKERS_MAX, WAITING_MAX)?;
        let scripts = NodeScripts {
            workers: Arc::new(ScriptWorkers::new(program)),
            pool,
            places: Arc::new(Semaphore::new(WORKERS_MAX)),
            clock: Arc::clone(clock),
            unavailable: Arc::default(),
        };
        Ok((Arc::new(Self { scripts: Some(scripts) }), Some(threads)))
    }

    /// Nothing where scripts are off.
    pub(crate) fn scripts(&self) -> Option<&NodeScripts> {
        self.scripts.as_ref()
    }
}

impl Derivation for NodeWork {
    fn derive(&self, work: &[u8], records: &[(Key, Record)]) -> Result<Vec<Option<Bytes>>, Failure> {
        match (ScanWork::decode(work), &self.scripts) {
            (Ok(ScanWork::Query { now_ms, body }), _) => Ok(evaluate(&body, now_ms, records)),
            (Ok(ScanWork::Script { source }), Some(scripts)) => scripts.map(&source, records),
            (Ok(ScanWork::Script { .. }), None) => {
                Ok(all_fail(records, "scripts are off at a node of the cluster: `scripts.enabled` allows them"))
            }
            (Err(error), _) => Ok(all_fail(records, &error.to_string())),
        }
    }

    fn pool(&self, work: &[u8]) -> Option<&ReadPool> {
        match ScanWork::decode(work) {
            Ok(ScanWork::Script { .. }) => self.scripts.as_ref().map(|scripts| &scripts.pool),
            Ok(ScanWork::Query { .. }) | Err(_) => None,
        }
    }
}

fn all_fail(records: &[(Key, Record)], text: &str) -> Vec<Option<Bytes>> {
    let failed = WorkResult::Failed(text.to_owned()).encode();
    records.iter().map(|_| Some(failed.clone())).collect()
}

fn evaluate(body: &[u8], now_ms: u64, records: &[(Key, Record)]) -> Vec<Option<Bytes>> {
    let query = match Query::parse(body) {
        Ok(query) => query,
        Err(error) => return all_fail(records, &error.to_string()),
    };
    let row = |(key, record): &(Key, Record)| {
        let row = query.row(&QueryRecord {
            key: key.as_bytes(),
            value: &record.payload(),
            content_type: record.content_type(),
            written_ms: record.version().hlc.millis(),
            now_ms,
        })?;
        Some(WorkResult::Row(row.into()).encode())
    };
    records.iter().map(row).collect()
}

impl NodeScripts {
    fn map(&self, source: &[u8], records: &[(Key, Record)]) -> Result<Vec<Option<Bytes>>, Failure> {
        let values: Vec<Bytes> = records.iter().map(|(_, record)| record.payload()).collect();
        let given = records.iter().zip(&values).map(|((key, record), value)| ScriptRecord {
            key: key.as_bytes(),
            value,
            content_type: record.content_type(),
            written_ms: record.version().hlc.millis(),
            expires_ms: record.expires_ms(),
        });
        match self.workers.map(source, &given.collect::<Vec<_>>()) {
            Ok(mapped) => Ok(records.iter().zip(mapped).map(|((key, _), mapped)| mapped_row(key, mapped)).collect()),
            Err(WorkerError::Busy) => Err(Failure::Overloaded),
            Err(WorkerError::Script(text)) => Ok(all_fail(records, &text)),
            Err(WorkerError::Unavailable(text)) => {
                self.note_unavailable(&text);
                Err(Failure::Overloaded)
            }
        }
    }

    fn note_unavailable(&self, text: &str) {
        if let Some(left_out) = self.unavailable.due(self.clock.boot()) {
            tracing::warn!(reason = text, left_out, "a worker for scripts could not do its work");
        }
    }

    /// On one of the threads that start workers.
    fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&ScriptWorkers) -> Result<T, WorkerError> + Send + 'static,
    ) -> ScriptFuture<T> {
        let (scripts, workers) = (self.clone(), self.workers.clone());
        Box::pin(async move {
            let done = scripts.pool.try_run(move || job(&workers)).await;
            done.ok_or(ScriptRefused::Busy)?.map_err(|error| match error {
                WorkerError::Busy => ScriptRefused::Busy,
                WorkerError::Script(text) => ScriptRefused::Failed(text),
                WorkerError::Unavailable(text) => {
                    scripts.note_unavailable(&text);
                    ScriptRefused::Busy
                }
            })
        })
    }
}

fn mapped_row(key: &Key, mapped: Result<Vec<u8>, String>) -> Option<Bytes> {
    match mapped {
        Ok(pairs) if pairs.is_empty() => None,
        Ok(pairs) => Some(WorkResult::Row(pairs.into()).encode()),
        Err(text) => {
            let text = format!("{text}; at the key `{}`", key.as_bytes().escape_ascii());
            Some(WorkResult::Failed(text).encode())
        }
    }
}

impl Scripts for NodeScripts {
    fn admit(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(Arc::clone(&self.places).try_acquire_owned().ok()?))
    }

    fn check(&self, source: Bytes) -> ScriptFuture<()> {
        self.run(move |workers| workers.check(&source))
    }

    fn combine(&self, source: Bytes, emitted: Vec<Bytes>) -> ScriptFuture<Vec<Bytes>> {
        self.run(move |workers| Ok(vec![workers.combine(&source, &emitted)?.into()]))
    }

    fn finish(&self, source: Bytes, emitted: Vec<Bytes>) -> ScriptFuture<Vec<u8>> {
        self.run(move |workers| Ok(lines(&workers.finish(&source, &emitted)?)))
    }
}

fn lines(pairs: &[ScriptPair]) -> Vec<u8> {
    let mut out = Vec::new();
    for ScriptPair { key, value } in pairs {
        let line = serde_json::json!({ "key": key, "value": value });
        serde_json::to_writer(&mut out, &line).expect("it can be written as JSON");
        out.push(b'\n');
    }
    out
}
