//! The register protocol: what replicas answer, and when a write or a read is done.
//!
//! Attiya, Bar-Noy, Dolev, "Sharing Memory Robustly in Message-Passing Systems" (1995), in its
//! multi-writer form, with the query phase skipped in the common case. The rules are those of
//! `docs/explanation/consistency.md`, "The protocol"; a model of them was explored before this was written.
//!
//! [`replica`] is what a replica decides, [`mod@write`] and [`read`] what a coordinator does, and [`step`] what it does
//! while a key moves.

mod known;
pub mod read;
pub mod replica;
pub mod rules;
pub mod step;
pub mod write;

use crate::record::Record;
use bytes::Bytes;

use crate::version::Version;

/// Most nodes of a cluster, and so most replicas of a key: a set of them is one [`ReplicaSet`].
pub const NODES_MAX: usize = 128;

/// The majority of `from` replicas.
#[must_use]
pub const fn majority(from: u8) -> u8 {
    from / 2 + 1
}

/// How many replicas are addressed and how many must answer: `1 ≤ ack ≤ from ≤ NODES_MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    ack: u8,
    from: u8,
}

impl Quorum {
    /// Checks `1 ≤ ack ≤ from ≤ NODES_MAX`.
    #[must_use]
    pub fn new(ack: u8, from: u8) -> Option<Self> {
        (1 <= ack && ack <= from && usize::from(from) <= NODES_MAX).then_some(Self { ack, from })
    }

    /// Answers required.
    #[must_use]
    pub fn required(self) -> u8 {
        self.ack
    }

    /// Replicas addressed.
    #[must_use]
    pub fn replicas(self) -> u8 {
        self.from
    }

    /// Whether `ack` is a majority: whether linearizability is asked for.
    #[must_use]
    pub fn is_quorum(self) -> bool {
        self.ack >= majority(self.from)
    }
}

/// A replica by its place in the key's preference list: 0 is the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u8);

/// A set of replicas of one key. What is done with it is a few instructions, also where other crates compile [`read`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaSet(u128);

impl ReplicaSet {
    /// No replica.
    pub const EMPTY: Self = Self(0);

    /// The first `count` replicas of the preference list.
    #[must_use]
    #[inline]
    pub fn first(count: u8) -> Self {
        Self(if count >= 128 { u128::MAX } else { (1 << count) - 1 })
    }

    /// With one more; whether it was new.
    #[inline]
    pub fn insert(&mut self, rank: Rank) -> bool {
        let before = self.0;
        self.0 |= 1 << rank.0;
        self.0 != before
    }

    /// Without it.
    #[inline]
    pub fn remove(&mut self, rank: Rank) {
        self.0 &= !(1 << rank.0);
    }

    /// Whether it is a member.
    #[must_use]
    #[inline]
    pub fn contains(self, rank: Rank) -> bool {
        self.0 >> rank.0 & 1 == 1
    }

    /// How many members.
    #[must_use]
    #[inline]
    pub fn len(self) -> u8 {
        u8::try_from(self.0.count_ones()).expect("at most 128 bits")
    }

    /// Whether it has no member.
    #[must_use]
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Members of both.
    #[must_use]
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Members of either.
    #[must_use]
    #[inline]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Members of `self` that are not in `other`.
    #[must_use]
    #[inline]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Its members in the order of preference.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let rank = u8::try_from(rest.trailing_zeros()).expect("at most 128 bits");
                rest &= rest - 1;
                Rank(rank)
            })
        })
    }
}

impl FromIterator<Rank> for ReplicaSet {
    fn from_iter<T: IntoIterator<Item = Rank>>(ranks: T) -> Self {
        ranks.into_iter().fold(Self::EMPTY, |mut set, rank| {
            set.insert(rank);
            set
        })
    }
}

/// The replicas that a read asks, by group. A key that stays where it is has one, and one that moves has two: where it belongs, and
/// where it will belong.
pub trait Addressed {
    /// One set for each group.
    type Sets: AsRef<[ReplicaSet]>;

    /// What the request asks for.
    fn quorum(&self) -> Quorum;

    /// How many of a group are required.
    fn required(&self, group: ReplicaSet) -> u8;

    /// The replicas of each group. Of GC watermarks those of the first count alone: a replica of the second may lack
    /// what the first has.
    fn groups(&self) -> Self::Sets;

    /// The replicas that shall hold a record with this `from`, as far as they are addressed.
    ///
    /// A reader may address more replicas than the record asked for. Then the majority is one of *its* replicas:
    /// quorums of its writers and of readers that use its `from` lie within them and overlap there. A copy further down
    /// the list, where an older record had drawn it, is in none of them. For the same reason a GC watermark further
    /// down says nothing about it.
    fn scopes(&self, from: u8) -> Self::Sets;

    /// The replicas of all groups.
    #[inline]
    fn all(&self) -> ReplicaSet {
        self.groups().as_ref().iter().fold(ReplicaSet::EMPTY, |all, group| all.or(*group))
    }
}

impl Addressed for Quorum {
    type Sets = [ReplicaSet; 1];

    #[inline]
    fn quorum(&self) -> Quorum {
        *self
    }

    #[inline]
    fn required(&self, _: ReplicaSet) -> u8 {
        self.ack
    }

    #[inline]
    fn groups(&self) -> Self::Sets {
        [ReplicaSet::first(self.from)]
    }

    #[inline]
    fn scopes(&self, from: u8) -> Self::Sets {
        [ReplicaSet::first(from.min(self.from))]
    }
}

/// What a replica has for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Current {
    /// A record, value or tombstone, of this version.
    Record(Version),
    /// No record: its partition's GC watermark, a deletion; [`Version::ZERO`] at first.
    GcWatermark(Version),
}

impl Current {
    /// The version to compare with.
    #[must_use]
    pub fn version(self) -> Version {
        match self {
            Self::Record(version) | Self::GcWatermark(version) => version,
        }
    }
}

/// Why a replica gave no answer that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// No connection, or it broke while the answer was awaited.
    Unreachable,
    /// The deadline passed.
    Timeout,
    /// A queue there is full; nothing was done.
    Overloaded,
    /// Its disk is full; nothing was done.
    DiskFull,
    /// Its disk failed, or did before: outcome unknown.
    Disk,
    /// What it holds is damaged.
    Corrupt,
    /// It lost what it had acknowledged, so it has no vote; a store was carried out.
    Rebuilding,
    /// The version is further ahead of its clock than `clock.skew_max`.
    ClockSkew,
    /// It is starting or stopping.
    NotServing,
    /// It does not know the layout by which it was asked.
    Epoch,
}

impl Failure {
    /// Every failure, at the place of its code on the wire: new ones go to the end.
    pub const ALL: [Self; 10] = [
        Self::Unreachable,
        Self::Timeout,
        Self::Overloaded,
        Self::DiskFull,
        Self::Disk,
        Self::Corrupt,
        Self::Rebuilding,
        Self::ClockSkew,
        Self::NotServing,
        Self::Epoch,
    ];

    /// Its code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unreachable => 0,
            Self::Timeout => 1,
            Self::Overloaded => 2,
            Self::DiskFull => 3,
            Self::Disk => 4,
            Self::Corrupt => 5,
            Self::Rebuilding => 6,
            Self::ClockSkew => 7,
            Self::NotServing => 8,
            Self::Epoch => 9,
        }
    }

    /// The failure with this code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A replica's answer to `Store(v)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// It is durable here, or was within the last `retention` before something newer replaced it.
    Accepted,
    /// A promise: v has not been accepted and never will be, and this newer thing is durable here.
    Stale(Current),
    /// This is here, and nothing is promised about v.
    StaleUnknown(Current),
    /// Counts for nothing; v may or may not be stored.
    Failed(Failure),
}

impl StoreAnswer {
    /// Whether the replica needs not be sent `version` again: it holds that or something newer, durably. A replica
    /// without a vote stores what it receives all the same.
    #[must_use]
    pub fn settles(self, version: Version) -> bool {
        match self {
            Self::Accepted | Self::Stale(_) | Self::Failed(Failure::Rebuilding) => true,
            Self::StaleUnknown(current) => current.version() >= version,
            Self::Failed(_) => false,
        }
    }

    /// The answer to a store that went out later than its record got its version. The replica may have restarted in
    /// between, got the record from others, and lost what it had accepted before. So it promises nothing (decision
    /// 0060).
    #[must_use]
    pub fn of_deferred(self) -> Self {
        match self {
            Self::Stale(current) => Self::StaleUnknown(current),
            answer => answer,
        }
    }
}

/// What is held for a key, as of one moment. `R` is `Bytes` as they came from a disk or a peer, and [`Record`] once
/// their digest was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held<R> {
    /// This record: a value, a tombstone, or expired.
    Record(R),
    /// None; its partition's GC watermark.
    Absent {
        /// A deletion of everything up to here.
        gc_watermark: Version,
    },
}

/// What a read asks of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The whole record.
    Record,
    /// Its version alone: enough where another replica sends the record.
    Version,
    /// The same, once the replica's clock, durably, is not behind the reading that came with the question. A clock that
    /// cannot follow so far answers with what it has.
    VersionAtClock,
}

/// Whether the value of what was read has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// It has not, or has no end.
    Ahead,
    /// It is a deletion of its version.
    Passed,
}

/// A replica's answer to a read. `R` as in [`Held`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadAnswer<R> {
    /// This record, or none.
    Held(Held<R>),
    /// The record's version and stored `from`: all that was asked.
    Version {
        /// The version held.
        version: Version,
        /// How many replicas shall hold it.
        from: u8,
    },
    /// Counts for nothing. [`Failure::Corrupt`] too where the coordinator itself found the damage.
    Failed(Failure),
}

impl ReadAnswer<Bytes> {
    /// The answer with its record checked.
    pub fn checked<E: Into<Failure>>(self, check: impl FnOnce(Bytes) -> Result<Record, E>) -> ReadAnswer<Record> {
        match self {
            Self::Held(Held::Record(bytes)) => match check(bytes) {
                Ok(record) => ReadAnswer::Held(Held::Record(record)),
                Err(unusable) => ReadAnswer::Failed(unusable.into()),
            },
            Self::Held(Held::Absent { gc_watermark }) => ReadAnswer::Held(Held::Absent { gc_watermark }),
            Self::Version { version, from } => ReadAnswer::Version { version, from },
            Self::Failed(failure) => ReadAnswer::Failed(failure),
        }
    }
}
