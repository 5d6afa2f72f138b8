//! What a read knows of each replica: what it holds and its clock then, by rank.
//!
//! A pure table; what follows from it is [`super::read`]'s.

use super::{Current, Rank, ReplicaSet};
use crate::version::Hlc;

/// Up to this many replicas nothing is allocated.
const INLINE: usize = 8;

/// What is known of a replica: what it holds, and its clock then.
type Slot = (Option<Current>, Hlc);

const EMPTY: Slot = (None, Hlc::ZERO);

/// What is known of each replica of a read, by rank.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "that is what spares an allocation")]
pub(super) enum Known {
    Inline([Slot; INLINE]),
    Boxed(Box<[Slot]>),
}

// Compiled where a read is: without these each look would be a call.
impl Known {
    #[inline]
    pub(super) fn new(from: u8) -> Self {
        match usize::from(from) {
            count if count <= INLINE => Self::Inline([EMPTY; INLINE]),
            count => Self::Boxed(vec![EMPTY; count].into_boxed_slice()),
        }
    }

    #[inline]
    fn all(&self) -> &[Slot] {
        match self {
            Self::Inline(slots) => slots,
            Self::Boxed(slots) => slots,
        }
    }

    #[inline]
    fn slot(&mut self, rank: Rank) -> &mut Slot {
        let slots: &mut [Slot] = match self {
            Self::Inline(slots) => slots,
            Self::Boxed(slots) => slots,
        };
        slots.get_mut(usize::from(rank.0)).expect("ranks below from have a slot")
    }

    #[inline]
    pub(super) fn get(&self, rank: Rank) -> Option<Current> {
        self.all().get(usize::from(rank.0)).and_then(|(current, _)| *current)
    }

    #[inline]
    pub(super) fn set(&mut self, rank: Rank, current: Option<Current>) {
        self.slot(rank).0 = current;
    }

    #[inline]
    pub(super) fn raise_clock(&mut self, rank: Rank, clock: Hlc) {
        let slot = self.slot(rank);
        slot.1 = slot.1.max(clock);
    }

    #[inline]
    fn known(&self) -> impl Iterator<Item = (Rank, Current, Hlc)> {
        let slots = (0..).map(Rank).zip(self.all());
        slots.filter_map(|(rank, (current, clock))| current.map(|current| (rank, current, *clock)))
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (Rank, Current)> {
        self.known().map(|(rank, current, _)| (rank, current))
    }

    /// The replicas of which something is known that satisfies `test`.
    #[inline]
    pub(super) fn filter(&self, test: impl Fn(Current) -> bool) -> ReplicaSet {
        self.iter().filter(|(_, current)| test(*current)).map(|(rank, _)| rank).collect()
    }

    /// The replicas of which something is known, with a clock that satisfies `test`.
    #[inline]
    pub(super) fn filter_clocks(&self, test: impl Fn(Hlc) -> bool) -> ReplicaSet {
        self.known().filter(|(_, _, clock)| test(*clock)).map(|(rank, _, _)| rank).collect()
    }
}
