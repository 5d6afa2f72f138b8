//! Planted defects, each one rule left out: what the simulator must notice. Without the feature `mutants`, which
//! nothing but the simulator's own test turns on, [`is_on`] is `false` for the compiler and none of it is built.

/// A rule that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// A write is done with one accept less than a majority.
    AnswerBeforeMajority = 1,
    /// `StaleUnknown` is taken for the promise `Stale`.
    StaleUnknownAsStale,
    /// A write that is not blocked is timestamped again.
    RetryUnblocked,
    /// A write that is blocked for the first time counts as overwritten.
    OverwrittenAtOnce,
    /// A second timestamp is not above every version seen.
    RetryNotAbove,
    /// A read answers what it found without a majority that holds it.
    SkipWriteBack,
    /// A write-back counts when it is sent.
    WriteBackUnconfirmed,
    /// A replica that refuses a write-back as stale counts as a holder.
    StaleAsHeld,
    /// A replica without a record counts as a holder.
    AbsentAsHeld,
    /// A read is content with one answer less.
    ReadBelowAck,
    /// What is older replaces what is newer.
    AcceptOlder,
    /// Accepted versions are not remembered.
    ForgetRecent,
    /// Forgetting early is not admitted.
    ForgetSilently,
    /// The clock's bound is not made durable before it is used.
    BoundLate,
    /// Marks are not raised.
    MarksLow,
    /// Acknowledged before it is synced.
    AckBeforeSync,
    /// A commit that failed is acknowledged.
    AckFailedCommit,
    /// A clock gives the same timestamp twice.
    StampsRepeat,
    /// A node with a new disk votes in the place of the one that it replaces.
    WipedVotes,
    /// A new directory votes before anybody knows it.
    NewVotesAtOnce,
    /// A node with an old disk votes.
    OldDiskVotes,
    /// A hint counts as an ack of the replica that it is for.
    HintAsAck,
    /// A hint is read.
    ServeHint,
    /// Deletions are dropped although nothing is proven of them.
    TombstonesByAge,
    /// What no replica of a record's `from` needs is copied to those behind them.
    RepairIgnoresFrom,
    /// A round proves without those who did not take part.
    ProvenWithoutAll,
    /// A key that is absent answers no GC watermark.
    AbsentWithoutGcWatermark,
    /// A node that lost its disk gets back nothing that is newer than what rounds compare.
    RestoredUpToW,
}

/// Whether this defect is planted in this process.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is_on(mutant: Mutant) -> bool {
    planted::CURRENT.load(std::sync::atomic::Ordering::Relaxed) == mutant as u8
}

/// It never is.
#[cfg(not(feature = "mutants"))]
#[must_use]
#[inline(always)]
pub const fn is_on(_: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use planted::{ALL, plant};

#[cfg(feature = "mutants")]
mod planted {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Mutant::{self, *};

    pub(super) static CURRENT: AtomicU8 = AtomicU8::new(0);

    /// Plants one in this process, or none.
    pub fn plant(mutant: Option<Mutant>) {
        CURRENT.store(mutant.map_or(0, |mutant| mutant as u8), Ordering::Relaxed);
    }

    /// Every mutant.
    pub const ALL: [Mutant; 28] = [
        AnswerBeforeMajority,
        StaleUnknownAsStale,
        RetryUnblocked,
        OverwrittenAtOnce,
        RetryNotAbove,
        SkipWriteBack,
        WriteBackUnconfirmed,
        StaleAsHeld,
        AbsentAsHeld,
        ReadBelowAck,
        AcceptOlder,
        ForgetRecent,
        ForgetSilently,
        BoundLate,
        MarksLow,
        AckBeforeSync,
        AckFailedCommit,
        StampsRepeat,
        WipedVotes,
        NewVotesAtOnce,
        OldDiskVotes,
        HintAsAck,
        ServeHint,
        TombstonesByAge,
        RepairIgnoresFrom,
        ProvenWithoutAll,
        AbsentWithoutGcWatermark,
        RestoredUpToW,
    ];
}
