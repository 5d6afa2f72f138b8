//! What may be granted: rights over keys and rights over the node.

use serde::Deserialize;

/// What may be done with a key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataRight {
    /// GET, HEAD, a range.
    Read,
    /// PUT.
    Write,
    /// DELETE.
    Delete,
}

impl DataRight {
    /// As a file of keys has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// What may be done with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminRight {
    /// Sees the cluster's members, their health, and why a node is not ready.
    Status,
    /// Reads the metrics.
    Metrics,
    /// Begins a round of anti-entropy.
    Repair,
    /// Begins a pass of the scrub.
    Scrub,
    /// Makes a snapshot.
    Backup,
    /// Takes profiles from the admin listener.
    Profile,
    /// Changes the cluster's members.
    Cluster,
}

impl AdminRight {
    /// As a file of keys has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Metrics => "metrics",
            Self::Repair => "repair",
            Self::Scrub => "scrub",
            Self::Backup => "backup",
            Self::Profile => "profile",
            Self::Cluster => "cluster",
        }
    }
}
