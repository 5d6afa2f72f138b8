//! Why a store does not do what it is asked.

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Memory does not hold the answer; ask again with [`Tier::Disk`](crate::Tier::Disk).
    #[error("the answer is on disk")]
    NeedsDisk,
    /// No space. Nothing was acknowledged; reads go on; writing resumes by itself when there is space.
    #[error("the disk is full")]
    DiskFull,
    /// A log write or an fsync failed, now or before: no commit succeeds until a restart.
    #[error("the store takes no writes until a restart: {0}")]
    Poisoned(String),
    /// What is stored is damaged.
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    /// Writes are held back, and this one can wait.
    #[error("the store holds writes back")]
    Busy,
    /// Any other failure of a read, or of opening.
    #[error("{0}")]
    Io(String),
}
