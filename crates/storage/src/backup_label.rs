//! The description of a backup, as the text of its file.

use crate::data_dir::ClusterId;
use crate::data_dir::checksum::{with_checksum, without_checksum};

/// What it begins with.
const LABEL_NAME: &str = "kvorum backup, format 1";

/// Whose state a backup holds, and of when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node's URL.
    pub node: String,
    /// Milliseconds since 1970, by the node's clock.
    pub wall_ms: u64,
    /// The store's sequence: everything up to it is in the backup.
    pub sequence: u64,
}

impl Label {
    /// As the file has it.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { cluster, node, wall_ms, sequence } = self;
        with_checksum(&format!(
            "{LABEL_NAME}\ncluster {cluster}\nnode {node}\nwall_ms {wall_ms}\nsequence {sequence}\n"
        ))
    }

    /// Of the file's text; none if it is no label.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = without_checksum(text)?.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name);
        value(LABEL_NAME)?;
        Some(Self {
            cluster: ClusterId(u64::from_str_radix(value("cluster ")?, 16).ok()?),
            node: value("node ")?.to_owned(),
            wall_ms: value("wall_ms ")?.parse().ok()?,
            sequence: value("sequence ")?.parse().ok()?,
        })
    }
}
