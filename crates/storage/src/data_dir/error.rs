//! Why a directory is not this node's.

use std::io;
use std::path::PathBuf;

/// The hash of the list of URLs that a cluster was first started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterId(pub u64);

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Why a directory is not this node's. Each message says what is the matter and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}. Check that the path is right and that this user may read and write it")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{0} is in use by another process. Stop that one, or give this node its own --data-dir")]
    Locked(PathBuf),
    /// There are files, but none of ours.
    #[error("{0} is not empty and not a kvorum data directory. Give an empty or a new directory as --data-dir")]
    Foreign(PathBuf),
    /// Written by a newer build.
    #[error("{path} has data format {found}, newer than this build's {newest}. Run the newer build that wrote it")]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest that this build reads.
        newest: u32,
    },
    /// Of another cluster.
    #[error(
        "{path} belongs to cluster {found}, and --cluster names cluster {expected}. \
         Give the list of URLs that the cluster was first started with, or another --data-dir"
    )]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// Its cluster.
        found: ClusterId,
        /// This node's.
        expected: ClusterId,
    },
    /// Others than its owner may write into it.
    #[error(
        "{path} has mode {mode:04o}: others than its owner may change what the node stores. `chmod go-w` it, and make \
         sure that nobody has"
    )]
    WritableByOthers {
        /// The directory.
        path: PathBuf,
        /// The lowest twelve bits of its mode.
        mode: u32,
    },
    /// One of its files is not what was written.
    #[error(
        "{0} is damaged. Restore it from a backup of this very node, or move the whole data directory away: \
         the node then starts empty and counts for no quorum until it is rebuilt"
    )]
    Damaged(PathBuf),
}
