//! What all tests of this crate need.

#![allow(dead_code, reason = "not every file of tests needs all of it")]

use std::path::PathBuf;

use kvorum_script::{ScriptRecord, ScriptWorkers, WorkerError};

/// Workers of the program in `program/worker.rs`.
pub(crate) fn workers() -> ScriptWorkers {
    ScriptWorkers::new(PathBuf::from(env!("CARGO_BIN_EXE_kvorum-script-worker")))
}

/// A record without anything but a key and a value.
pub(crate) fn record<'a>(key: &'a str, value: &'a [u8]) -> ScriptRecord<'a> {
    ScriptRecord { key: key.as_bytes(), value, content_type: None, written_ms: 1_700_000_000_000, expires_ms: None }
}

/// `map` of these records; once more where other tests have all workers.
pub(crate) fn map(source: &str, records: &[ScriptRecord<'_>]) -> Result<Vec<Result<Vec<u8>, String>>, WorkerError> {
    let workers = workers();
    loop {
        match workers.map(source.as_bytes(), records) {
            Err(WorkerError::Busy) => {}
            other => return other,
        }
    }
}
