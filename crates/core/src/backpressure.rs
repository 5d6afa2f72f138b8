//! Backpressure: how much of what is written a replica asks its coordinators to refuse, and which writes these are.
//!
//! A store that owes its disk more than it pays back ends in a stop that everybody waits for. So a replica says early,
//! with every pong, what share of the writes is too much ([`Backpressure`]), and a coordinator refuses that share before
//! it has sent them to anybody ([`Admission`]). The share follows the debt, and the debt follows from the share: both
//! settle where what is admitted is what the replica can pay for: a proportional controller of a process that integrates
//! (Hellerstein, Diao, Parekh, Tilbury, "Feedback Control of Computing Systems", 2004).
//!
//! It is advice: a write that is admitted all the same is stored, and one that is refused had no effect. So nothing of
//! the register protocol depends on it.

use crate::quorum::Acks;

/// Parts of a hundred of all writes that a replica asks to refuse, by level. Never all of them: the next write finds
/// out how things are.
const REFUSED_PERCENT: [u8; 8] = [0, 10, 20, 35, 50, 65, 80, 95];

/// What a replica asks for: a level from 0 to 7, which fits three bits of a frame's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backpressure(u8);

impl Backpressure {
    /// It takes every write.
    pub const NONE: Self = Self(0);
    /// It takes one write in twenty.
    pub const MAX: Self = Self(7);

    /// For a debt of which nothing is to be refused up to `begin`, and as much as possible from `full` on; linear
    /// between them. The unit is the caller's.
    #[must_use]
    pub fn of_debt(debt: u64, begin: u64, full: u64) -> Self {
        let (above, room) = (debt.saturating_sub(begin), full.saturating_sub(begin).max(1));
        let level = u128::from(above) * u128::from(Self::MAX.0) / u128::from(room);
        Self(u8::try_from(level).unwrap_or(u8::MAX).min(Self::MAX.0))
    }

    /// The level that these bits of a frame are: greater numbers are the greatest level.
    #[must_use]
    pub fn from_level(level: u8) -> Self {
        Self(level.min(Self::MAX.0))
    }

    /// From 0 to 7.
    #[must_use]
    pub fn level(self) -> u8 {
        self.0
    }

    /// The share of writes to refuse, of a hundred: 0 to 95.
    #[must_use]
    pub fn refused_percent(self) -> u8 {
        REFUSED_PERCENT.get(usize::from(self.0)).copied().unwrap_or(0)
    }

    /// What a write meets whose replicas ask for this, those that cannot be reached left out: the `ack`-th smallest, since
    /// so many replicas must take it. Nothing where fewer than `ack` can be reached: such a write fails by itself.
    #[must_use]
    pub fn met_by(acks: Acks, replicas: impl Iterator<Item = Self>) -> Self {
        let mut counts = [0_u8; REFUSED_PERCENT.len()];
        for replica in replicas {
            if let Some(count) = counts.get_mut(usize::from(replica.0)) {
                *count += 1;
            }
        }
        let mut taken = 0;
        for (level, count) in (0..).zip(counts) {
            taken += count;
            if taken >= acks.ack() {
                return Self(level);
            }
        }
        Self::NONE
    }
}

/// Which writes a coordinator refuses: exactly the share that is asked for, evenly spread, without chance (Bresenham's
/// division of a line into steps).
#[derive(Clone, Copy, Debug, Default)]
pub struct Admission {
    /// Parts of a hundred of a refusal that are owed: less than a hundred.
    owed: u8,
}

impl Admission {
    /// Whether this write is one of those to refuse.
    pub fn refuses(&mut self, asked: Backpressure) -> bool {
        self.owed += asked.refused_percent();
        let refuses = self.owed >= 100;
        if refuses {
            self.owed -= 100;
        }
        refuses
    }
}
