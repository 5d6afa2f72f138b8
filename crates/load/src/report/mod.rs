//! How a run is told: as text in the shape of wrk2's, as JSON, as a log of histograms, as a page.

mod document;
mod text;

pub use document::{Document, Generator, Percentiles, SecondRow};
pub use text::text;
