//! How a run is reported: as text in the shape of wrk2's, as JSON, as a log of histograms, as a page.

mod debt;
mod document;
mod files;
mod page;
mod percentiles;
mod save;
mod soak;
mod text;
mod verdict;
mod windows;

pub use debt::told_debt;
pub use document::{Document, Generator, OperationRow, RateAsked, SecondRow, told_ms};
pub use files::{write_file, write_json};
pub(crate) use page::assembled;
pub use percentiles::Percentiles;
pub use save::{LATENCY_FILE, PAGE_FILE, RUN_FILE, read_document, read_log, save};
pub use text::{Spectrum, text};
pub use verdict::{Clause, SlowNode, SlowSecond, Soak};
pub use windows::WindowRow;
pub(crate) use windows::windows;
