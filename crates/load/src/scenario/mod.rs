//! The five published measurements, to be done again with kvorum: what each one is, as data.
//!
//! Owns the descriptions ([`SCENARIOS`]), the published figures ([`published`]), what a scenario came to
//! ([`ScenarioReport`]), and how that is reported. It starts nothing: the interpreter of a description brings the nodes
//! (`kvorum bench scenario`).
//!
//! Promises: figures of kvorum stand beside those of the report that were taken of the same thing, and what was done
//! otherwise than there (less data, a shorter time, no memory limit) stands in every report.

mod catalog;
mod evenness;
mod index;
mod layout;
pub(crate) mod page;
mod plot;
pub mod published;
mod result;
mod save;
mod text;

pub use catalog::{Cluster, Data, Group, OBJECTIVE_P99_MS, SCENARIOS, Scale, Scenario, Stage, THREADS, short_name};
pub use evenness::Evenness;
pub use index::{FINDINGS_FILE, INDEX_FILE, read_report, write_index};
pub use result::{
    ClusterReport, FigureRow, KneeReport, MachineInfo, PairedClusters, PointReport, ProfileReport, SCENARIO_FILE,
    ScenarioReport, SearchPoint, StageFailure,
};
