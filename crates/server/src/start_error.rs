//! Why a node does not start.

use kvorum_core::layout::PlanError;
use kvorum_engine_rocksdb::OpenError;
use kvorum_storage::StoreError;
use kvorum_storage::data_dir::DataDirError;

use crate::secrets::SecretError;

/// Why a node does not start, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {error}. Stop what uses it, or give another address of this machine as --listen"
    )]
    Listen {
        /// What was asked for.
        address: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// The admin listener's address cannot be listened on.
    #[error(
        "cannot listen on {address} (admin.listen): {error}. Stop what uses it, or set another address of this machine"
    )]
    AdminListen {
        /// What was asked for.
        address: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// The layout is impossible.
    #[error("the cluster's layout is impossible: {0}")]
    Layout(#[from] PlanError),
    /// The directory is another node's.
    #[error("the data directory is of {found}, and this node is {own}: give each node its own --data-dir")]
    OtherNode {
        /// The directory's.
        found: String,
        /// What was asked for.
        own: String,
    },
    /// The cluster is being founded, with another list.
    #[error(
        "the cluster is being founded, and this node has taken part in that with other weights, zones or URLs in `cluster`: \
         give the same ones until it is founded"
    )]
    OtherFounding,
    /// A secret cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The directory is not this node's.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The store does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store cannot be read.
    #[error("the store cannot be read: {0}. See docs/how-to/disk-fails.md")]
    Store(#[from] StoreError),
    /// The system refuses a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}
