//! The node's settings: one table of them, four places where a value may come from.
//!
//! Owns the names, the defaults, the bounds and the types of everything that can be configured. A flag
//! wins over a `KVORUM_*` variable, that over the TOML file, and that over the default. Promises that a [`Config`] is
//! whole and consistent: nothing is checked again. Unknown names are errors, and every error says which setting, from
//! where, and what is allowed.
//!
//! Only `node.rs` sees a [`Config`]; it hands each part of the node its own section.

mod exposure;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod identity;
mod memory;
mod model;
mod settings;
mod sources;
#[cfg(test)]
mod tests;
mod values;

pub use exposure::{Exposure, ExposureError};
pub use model::*;
pub use settings::{SETTINGS, Setting};
pub use sources::{ConfigError, Effective, SettingEntry, SettingOrigin, SettingProblem, Sources, check_file, load};
pub use values::{
    Address, AuditedData, ByteSize, Count, DurabilitySetting, HostNames, LogFormat, LogLevel, MetricsReaders, NodeUrl,
    Percent, ReadFanout, Zone, duration, node_url,
};
