//! Planted defects, each one rule left out: what the simulator must notice. Without the feature `mutants`, which
//! nothing but the simulator's own test turns on, [`is_on`] is `false` for the compiler and none of it is built.
//!
//! [`DEFECTS`] is the one list of rules and defects: `sim/tests/mutants.rs` shows that each is noticed, and
//! docs/reference/invariants.md is written from it.

/// A rule of the protocol, and the defect that leaves it out.
#[derive(Clone, Copy, Debug)]
pub struct Defect {
    /// The defect's name.
    pub mutant: Mutant,
    /// What must hold. A rule of [`crate::quorum`] stands there in the same words.
    pub rule: &'static str,
    /// What happens instead.
    pub defect: &'static str,
}

/// Writes the enum and the list, so that no defect is in only one of them.
macro_rules! defects {
    ($($(#[doc = $defect:literal])+ $mutant:ident leaves out $rule:literal;)+) => {
        /// A rule that is not kept.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $defect])+ $mutant,)+
        }

        /// Every rule that a defect can be planted for.
        pub const DEFECTS: &[Defect] =
            &[$(Defect { mutant: Mutant::$mutant, rule: $rule, defect: concat!($($defect),+) }),+];
    };
}

defects! {
    /// A write is done with one accept less than a majority.
    AnswerBeforeMajority leaves out
        "A write is held once a majority of its replicas has accepted it.";
    /// `StaleUnknown` is taken for the promise `Stale`.
    StaleUnknownAsStale leaves out
        "Only `Stale` is a promise never to accept the version.";
    /// A write that is not blocked is retried with a higher timestamp.
    RetryUnblocked leaves out
        "A write starts over only once its version can never be read.";
    /// A write that is blocked for the first time counts as overwritten.
    OverwrittenAtOnce leaves out
        "Only a write that has started over may count as overwritten.";
    /// A second timestamp is not above every version in the answers.
    RetryNotAbove leaves out
        "The version of a second attempt is above every version in any answer.";
    /// A read returns what it found without a majority that holds it.
    SkipWriteBack leaves out
        "A read at a quorum answers what a majority holds.";
    /// A write-back counts when it is sent.
    WriteBackUnconfirmed leaves out
        "What is read is held by the replicas that reported it, and those that have confirmed a write-back.";
    /// A replica that refuses a write-back as stale counts as a holder.
    StaleAsHeld leaves out
        "A refused write-back is no copy.";
    /// A replica without a record counts as a holder.
    AbsentAsHeld leaves out
        "What is read is held by the replicas that reported it, and those that have confirmed a write-back.";
    /// A read waits for one answer less.
    ReadBelowAck leaves out
        "A read waits for `ack` answers that count.";
    /// An older version replaces a newer one.
    AcceptOlder leaves out
        "What is older never replaces what is newer.";
    /// Accepted versions are not remembered.
    ForgetRecent leaves out
        "A version that was accepted is answered `Accepted` again, and never `Stale`.";
    /// An overflow of the accepted versions is not admitted.
    ForgetSilently leaves out
        "A replica that has dropped accepted versions early promises nothing: `StaleUnknown`.";
    /// The clock's bound is not made durable before it is used.
    BoundLate leaves out
        "The bound of a node's clock is durable before a version up to it is used.";
    /// High-water marks of stripes are not raised.
    HighWaterLow leaves out
        "The high-water mark of a stripe is below no version in it.";
    /// A write is acknowledged before it is synced.
    AckBeforeSync leaves out
        "A write is acknowledged once it is synced.";
    /// A commit that failed is acknowledged.
    AckFailedCommit leaves out
        "A commit that failed acknowledges nothing.";
    /// A clock gives the same timestamp twice.
    TimestampsRepeat leaves out
        "A node gives each timestamp once.";
    /// A node with a new disk votes in place of the one that it replaces.
    WipedVotes leaves out
        "A node whose disk is another than its peers remember does not vote until it is rebuilt.";
    /// A new directory votes before any peer has registered it.
    NewVotesAtOnce leaves out
        "A new directory votes once a majority of the other nodes has registered it.";
    /// A node with an old disk votes.
    OldDiskVotes leaves out
        "A node whose disk is older than its peers remember does not vote until it is rebuilt.";
    /// What a caller says of itself and of this node is believed.
    CallersBelieved leaves out
        "Only what is answered on a connection that this node dialled is believed of a peer.";
    /// A caller that remembers more of this node than there is gets answers.
    AccusersServed leaves out
        "A caller that remembers more of a node than there is gets no answer before the node has dialled that peer.";
    /// Every pong counts as one of a peer that remembers this node.
    PongsIntroduce leaves out
        "A peer remembers this node durably only if its pong says so.";
    /// A frame moves the clock as far as clocks may differ.
    PeersMoveClocks leaves out
        "A frame moves a clock no further than its sender's clock and five seconds.";
    /// A node takes part in a round that another than its driver conducts.
    RoundsOfAnyCaller leaves out
        "Only the driver of a round conducts it.";
    /// A round that was not summed up raises GC watermarks.
    EndBeforeSums leaves out
        "A round proves nothing to a node that has not summed up what it holds.";
    /// A wrong proof of the cluster's secret is as good as a right one.
    ProofsUnchecked leaves out
        "With a secret a node believes and serves only a peer that has shown a proof of it.";
    /// A hint counts as an ack of the replica that it is for.
    HintAsAck leaves out
        "A hint is no copy, and no ack of the replica that it is for.";
    /// A hint is read.
    ServeHint leaves out
        "A hint is never read.";
    /// Deletions are dropped although nothing is proven of them.
    TombstonesByAge leaves out
        "A deletion is dropped only at or below the GC watermark of its partition.";
    /// A round copies a record to nodes behind its first `from`.
    RepairIgnoresFrom leaves out
        "Repair copies a record to the first `from` nodes of its list, and to no other.";
    /// A round proves without the nodes that did not take part.
    ProvenWithoutAll leaves out
        "A round proves something only if every node took part.";
    /// An absent key answers no GC watermark.
    AbsentWithoutGcWatermark leaves out
        "A key that is absent answers the GC watermark of its partition.";
    /// A value has ended as soon as one replica's clock says so.
    ExpiredByOneClock leaves out
        "A value has ended once the clocks of a majority have passed its end.";
    /// A coordinator serves a value until its own clock has passed the end.
    AliveByOwnClock leaves out
        "A value is served while no clock that is known has passed its end.";
    /// A value that has ended is answered as deleted whoever holds it.
    ExpiredNotHeld leaves out
        "A value that has ended is held by a majority before it is answered as deleted.";
    /// Answers carry clocks that a restart forgets.
    ClockNotDurable leaves out
        "The clock of an answer is durable, so that it does not go back.";
    /// A value that ends is dropped below the GC watermark, whenever it ends.
    ExpiredDroppedEarly leaves out
        "A value that ends is dropped only if the GC watermark's clock has passed its end.";
    /// A scan sends what the provider holds, whatever the witnesses hold.
    ScanWithoutWitnesses leaves out
        "A scan sends a record without a read only if all replicas that it asked for it agree.";
    /// A scan whose node has failed goes on behind what the others had looked at.
    ScanGoesOnFurther leaves out
        "A scan goes on from behind the last key that it has decided.";
    /// The voters of a new layout decide it.
    NextDecidesItself leaves out
        "The members that an epoch names decide the one after it.";
    /// A promise of a ballot keeps nothing out.
    PromiseForgotten leaves out
        "A member that has promised a ballot accepts nothing below it.";
    /// A proposer proposes what it wants, whatever was accepted.
    OwnValueProposed leaves out
        "A proposer proposes what was accepted at the greatest ballot that its promises name, and what it wants itself only if none names one.";
    /// A value is accepted whatever it follows.
    ParentUnchecked leaves out
        "A value is accepted only behind the one that is chosen.";
    /// A member that lost its promises votes without asking anybody.
    ForgottenVotes leaves out
        "A directory votes if the epoch names it, or for the one epoch that it has asked the others about.";
    /// A member that has once asked the others votes on every later layout.
    RestoredForEver leaves out
        "A directory votes if the epoch names it, or for the one epoch that it has asked the others about.";
    /// A member that lost its promises does not take over what the others have accepted.
    RestoredEmpty leaves out
        "What the others have accepted is accepted again.";
    /// A node that lost its disk gets back nothing that is newer than the round.
    RestoredUpToW leaves out
        "A node that lost its disk gets everything back, what is newer than the round as well.";
}

/// Whether this defect is planted in this process.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is_on(mutant: Mutant) -> bool {
    planted::CURRENT.load(std::sync::atomic::Ordering::Relaxed) == planted::number(mutant)
}

/// It never is.
#[cfg(not(feature = "mutants"))]
#[must_use]
#[inline(always)]
pub const fn is_on(_: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use planted::plant;

#[cfg(feature = "mutants")]
mod planted {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Mutant;

    /// 0 stands for none.
    pub(super) static CURRENT: AtomicU8 = AtomicU8::new(0);

    pub(super) const fn number(mutant: Mutant) -> u8 {
        mutant as u8 + 1
    }

    /// Plants one in this process, or none.
    pub fn plant(mutant: Option<Mutant>) {
        CURRENT.store(mutant.map_or(0, number), Ordering::Relaxed);
    }
}
