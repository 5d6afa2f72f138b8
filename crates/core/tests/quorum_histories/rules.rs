//! The rules of the protocol that can be taken away, to see that the histories notice.

/// Which rule a history runs without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// All rules hold.
    Nothing,
    /// Replicas keep no accepted versions, and answer as if they did.
    Recent,
    /// A write reaches replicas that were restarted after it was sent, and their answers from before count.
    Connections,
    /// A store that waited for a connection, perhaps beyond a restart of its replica, is answered with a promise.
    DeferredIsNoPromise,
    /// Stragglers below the fence are accepted.
    Fence,
    /// Tombstones are dropped before all replicas are proven to have them.
    Convergence,
    /// A write counts a refusal as an accept.
    StaleIsNoAccept,
    /// A read counts a refused write-back as a copy.
    StaleIsNoCopy,
    /// Reads do not wait for their write-backs.
    WriteBack,
    /// A blocked write is timestamped again without regard to what blocked it.
    NewerTimestamp,
    /// A write that was blocked once is taken for overwritten.
    SecondAttempt,
    /// Answers to the first attempt count for the second.
    CountsPerAttempt,
    /// A write takes a GC watermark in its way for a concurrent write.
    GcWatermarkIsNoExcuse,
    /// A value with an end is dropped below the GC watermark before it has ended there.
    EndBelowGcWatermark,
}

impl Without {
    /// Every rule.
    pub const ALL: [Self; 13] = [
        Self::Recent,
        Self::Connections,
        Self::DeferredIsNoPromise,
        Self::Fence,
        Self::Convergence,
        Self::StaleIsNoAccept,
        Self::StaleIsNoCopy,
        Self::WriteBack,
        Self::NewerTimestamp,
        Self::SecondAttempt,
        Self::CountsPerAttempt,
        Self::GcWatermarkIsNoExcuse,
        Self::EndBelowGcWatermark,
    ];
}
