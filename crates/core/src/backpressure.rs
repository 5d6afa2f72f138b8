//! Backpressure: how much a replica asks its coordinators to slow writers down, which writes to refuse, and when.
//!
//! A debt to the disk that keeps growing ends in a stop that all requests wait for. So a replica reports early,
//! with every pong, how far its store is from that ([`Backpressure`]). A coordinator first has each write wait a little,
//! which slows down writers that wait for answers. Where that is not enough, because writers do not wait for each
//! other, it refuses a share of the writes ([`Admission`]). Both come before a write is sent. What is requested follows the debt,
//! and the debt follows from what is admitted. Both settle where that is what the replica can pay for: a proportional
//! controller of a process that integrates (Hellerstein, Diao, Parekh, Tilbury, "Feedback Control of Computing
//! Systems", 2004).
//!
//! It is advice: a write that is admitted all the same is stored, and one that is refused had no effect. So nothing of
//! the register protocol depends on it.

use std::time::Duration;

use crate::quorum::Quorum;

/// How long a small write is to wait, by level.
const DELAYS: [Duration; 8] = [ms(0), ms(3), ms(10), ms(30), ms(30), ms(30), ms(30), ms(30)];
/// What it waits once more for, and the longest that it waits.
const DELAYED_BYTES: usize = 16 << 10;
const DELAY_MAX: Duration = ms(500);
/// Parts of a hundred of all writes that are to be refused, by level. Never all of them: the next write shows whether
/// that has changed.
const REFUSED_PERCENT: [u8; 8] = [0, 0, 0, 0, 20, 45, 70, 95];

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Delayed writes of one coordinator beyond which others are refused.
pub const WAITING_MAX: usize = 64;

/// What a replica asks for: a level from 0 to 7, which fits three bits of a frame's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backpressure(u8);

impl Backpressure {
    /// It takes every write.
    pub const NONE: Self = Self(0);
    /// It takes one write in twenty.
    pub const MAX: Self = Self(7);

    /// For a debt: no write is slowed down up to `begin`, and as many as possible are refused from `full` on; the
    /// levels between them are equally far apart. The unit is the caller's.
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

    /// How long a write of so many bytes that is not refused waits before it is sent: up to 30 ms if it is small, and
    /// as much again for each 16 KiB, up to half a second.
    #[must_use]
    pub fn delay(self, bytes: usize) -> Duration {
        let small = DELAYS.get(usize::from(self.0)).copied().unwrap_or_default();
        let parts = u32::try_from(bytes / DELAYED_BYTES).unwrap_or(u32::MAX).saturating_add(1);
        small.saturating_mul(parts).min(DELAY_MAX)
    }

    /// The share of writes to refuse, of a hundred: 0 to 95.
    #[must_use]
    pub fn refused_percent(self) -> u8 {
        REFUSED_PERCENT.get(usize::from(self.0)).copied().unwrap_or(0)
    }

    /// What holds for a write, of what its reachable replicas request: the `ack`-th smallest, since so many must take
    /// it. Nothing where fewer than `ack` can be reached: such a write fails by itself.
    #[must_use]
    pub fn met_by(quorum: Quorum, replicas: impl Iterator<Item = Self>) -> Self {
        let mut counts = [0_u8; REFUSED_PERCENT.len()];
        for replica in replicas {
            if let Some(count) = counts.get_mut(usize::from(replica.0)) {
                *count += 1;
            }
        }
        let mut taken = 0;
        for (level, count) in (0..).zip(counts) {
            taken += count;
            if taken >= quorum.required() {
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
    /// Parts of a hundred of a refusal that are due: less than a hundred.
    owed: u8,
}

impl Admission {
    /// Whether this write is one of those to refuse, while `waiting` others are delayed. None is while these are few:
    /// their writers wait for answers, and being slower is enough.
    pub fn refuses(&mut self, asked: Backpressure, waiting: usize) -> bool {
        if waiting < WAITING_MAX {
            return false;
        }
        self.owed += asked.refused_percent();
        let refuses = self.owed >= 100;
        if refuses {
            self.owed -= 100;
        }
        refuses
    }
}
