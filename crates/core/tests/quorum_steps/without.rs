//! The rules of a step that can be taken away, to see that the histories notice.

/// Which rule a history runs without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// All rules hold.
    Nothing,
    /// Nodes take no bar, and passes and flips do not wait for any.
    Bar,
    /// Replicas serve frames below their bar.
    EpochIsChecked,
    /// A restart loses the bar.
    BarIsDurable,
    /// A pass lists nodes that have no bar yet.
    ListAfterBar,
    /// A pass lists one node, and not so many that every majority has one of them.
    Sources,
    /// A flip does not wait until a majority of the new set is synced.
    SyncBeforeFlip,
    /// A write to a key that moves is done without a majority of where it will belong.
    WriteNeedsNext,
    /// And without one of where it belongs.
    WriteNeedsNow,
    /// A read of a key that moves asks only where it belongs.
    ReadNeedsNext,
    /// Or only where it will belong.
    ReadNeedsNow,
    /// A write to a key that moves has a version from its coordinator's own clock.
    Tick,
}

impl Without {
    /// Every rule.
    pub const ALL: [Self; 11] = [
        Self::Bar,
        Self::EpochIsChecked,
        Self::BarIsDurable,
        Self::ListAfterBar,
        Self::Sources,
        Self::SyncBeforeFlip,
        Self::WriteNeedsNext,
        Self::WriteNeedsNow,
        Self::ReadNeedsNext,
        Self::ReadNeedsNow,
        Self::Tick,
    ];
}
