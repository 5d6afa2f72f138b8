//! How a run is told: as text in the shape of wrk2's, as JSON, as a log of histograms, as a page.

mod debt;
mod document;
mod page;
mod save;
mod soak;
mod text;
mod windows;

pub use debt::told_debt;
pub use document::{Document, Generator, OperationRow, Percentiles, RateAsked, SecondRow, told_ms};
pub(crate) use page::{knee_page, scenario_page};
pub use save::{LATENCY_FILE, PAGE_FILE, RUN_FILE, read_document, read_log, save, write_file, write_json};
pub(crate) use text::bytes;
pub use text::text;
pub use windows::WindowRow;
pub(crate) use windows::windows;
