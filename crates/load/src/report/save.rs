//! A run as files: `run.json`, `latency.hdr`, `report.html`.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogHistogram, IntervalLogIterator, IntervalLogWriterBuilder, LogEntry,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

use super::document::Document;
use super::files::{write_file, write_json};
use super::page::page;
use crate::Error;
use crate::run::RunOutcome;

/// The file of [`Document`].
pub const RUN_FILE: &str = "run.json";
/// The file of histograms.
pub const LATENCY_FILE: &str = "latency.hdr";
/// The page.
pub const PAGE_FILE: &str = "report.html";

/// Writes all three into a directory, which is made if it is not there. One that cannot be written does not keep the
/// others from it.
///
/// # Errors
/// [`Error::System`], of the first file that failed; it is not left half-written under its name.
pub fn save(dir: &Path, outcome: &RunOutcome, document: &Document) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::system(dir.display().to_string()))?;
    let results = [
        write_json(&dir.join(RUN_FILE), document),
        write_file(&dir.join(LATENCY_FILE), log(outcome).as_bytes()),
        write_file(&dir.join(PAGE_FILE), page(outcome, document).as_bytes()),
    ];
    results.into_iter().collect()
}

/// An interval log of HdrHistogram, one interval a second, values in µs.
fn log(outcome: &RunOutcome) -> String {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Latencies from when requests were due; values in microseconds, interval maxima in ms]")
        .with_start_time(outcome.started)
        .with_base_time(UNIX_EPOCH)
        .with_max_value_divisor(1000.0)
        .begin_log_with(&mut bytes, &mut serializer)
        .expect("a vector takes everything");
    let started = outcome.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    for (number, second) in (0..).zip(&outcome.seconds) {
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut second.histogram.as_slice()).expect("serialized by this run");
        let at = started + Duration::from_secs(number);
        log.write_histogram(&histogram, at, Duration::from_secs(1), None).expect("a vector takes everything");
    }
    String::from_utf8(bytes).expect("a log is text")
}

/// The histograms of a saved log, in order.
///
/// # Errors
/// [`Error::System`] if it cannot be read, [`Error::Usage`] if it is no log.
pub fn read_log(path: &Path) -> Result<Vec<Histogram<u64>>, Error> {
    let bytes = fs::read(path).map_err(Error::system(path.display().to_string()))?;
    let bad = || Error::Usage(format!("{} is not a log of histograms", path.display()));
    let decode = |interval: IntervalLogHistogram<'_>| {
        let bytes = STANDARD.decode(interval.encoded_histogram()).map_err(|_| bad())?;
        Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|_| bad())
    };
    let mut histograms = Vec::new();
    for entry in IntervalLogIterator::new(&bytes) {
        if let LogEntry::Interval(interval) = entry.map_err(|_| bad())? {
            histograms.push(decode(interval)?);
        }
    }
    Ok(histograms)
}

/// The document of a saved run.
///
/// # Errors
/// [`Error::System`] if it cannot be read, [`Error::Usage`] if it is none.
pub fn read_document(path: &Path) -> Result<Document, Error> {
    let bytes = fs::read(path).map_err(Error::system(path.display().to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
}
