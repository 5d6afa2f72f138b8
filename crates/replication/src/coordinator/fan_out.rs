//! Which replicas a read asks first, as a setting.

/// Which replicas a read asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOut {
    /// The fastest `ack`, the rest after a delay.
    Hedged,
    /// All.
    All,
}
