//! Runs of a node's process.

/// One run of a node's process, drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId(pub u64);

/// A run, and how far the store had got when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which.
    pub id: RunId,
    /// The store's sequence when it was opened, counted from [`DataDir::rebuilt`](super::DataDir::rebuilt).
    pub recovered: u64,
}
