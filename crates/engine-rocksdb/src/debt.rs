//! The store's debt to its disk, and what follows from it.
//!
//! What was written has to be merged, again and again, until it lies in the last level. What is still to be merged is a
//! debt: while there is little of it, compactions rest while requests come (decision 0038); the more there is, the more
//! of a core they have, until they rest no more; and beyond that the node asks its coordinators for fewer writes, long
//! before the engine makes all writes wait (decision 0061). Pure.

use kvorum_core::backpressure::Backpressure;

/// Files in level 0 that begin a compaction (`levels` in `options.rs`; decision 0053).
pub(super) const TABLES: u8 = 8;
/// With so many files in level 0 more, a compaction rests no more.
const FILES_URGENT: u64 = 8;
/// Above so many, coordinators delay writes: here backpressure begins.
const FILES_SLOWED: u64 = 10;
/// With so many, nearly all writes are refused. The engine's own limit is beyond (`options.rs`).
const FILES_FULL: u64 = 36;
/// The engine's estimate of what is to be rewritten, in tables' sizes, for each of these files. It counts what lies
/// below, too: with eight files in level 0 it jumps by some 60 tables, and that is no reason to hurry.
const TABLES_PER_FILE: u64 = 16;

/// What is asked of coordinators rises with the debt at once, half of the way with each look: small tables come fast.
/// It falls slowly, a part of the way with each look, in some ten seconds: the end of a compaction takes much off the
/// debt at once, and is no reason to admit so much more.
const RISE: u64 = 2;
const FALL: u64 = 40;
/// Parts of a file in which the mean is kept.
const PARTS: u64 = 1_000;

/// A store's debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreDebt {
    /// Files in level 0, or sorted runs.
    pub(super) level0_files: u64,
    /// The engine's estimate of what is to be rewritten.
    pub(super) pending_bytes: u64,
    /// What a flush writes.
    pub(super) table_bytes: u64,
    /// The engine lets no write through at this moment.
    pub(super) is_stopped: bool,
}

impl StoreDebt {
    /// Files in level 0 more than begin a compaction, or as many as the bytes to be rewritten are worth.
    fn files(self) -> u64 {
        let pending = self.pending_bytes / (self.table_bytes.max(1) * TABLES_PER_FILE);
        self.level0_files.saturating_sub(u64::from(TABLES)).max(pending)
    }

    /// What a compaction has of a core at least, of a hundred.
    pub(super) fn compaction_percent(self) -> u32 {
        u32::try_from(self.files().min(FILES_URGENT) * 100 / FILES_URGENT).unwrap_or(100)
    }
}

/// The debt of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lately {
    /// Of [`StoreDebt::files`], in parts of a file.
    mean: u64,
    /// At the last look.
    was_stopped: bool,
}

impl Lately {
    /// Takes one look, and returns what to ask of coordinators.
    pub(super) fn note(&mut self, debt: StoreDebt) -> Backpressure {
        let now = debt.files().min(FILES_FULL);
        let looks = if now * PARTS > self.mean { RISE } else { FALL };
        self.mean = (self.mean * (looks - 1) + now * PARTS) / looks;
        // A stop for a moment, until a memtable is free, is none.
        let stays_stopped = debt.is_stopped && self.was_stopped;
        self.was_stopped = debt.is_stopped;
        if now == FILES_FULL || stays_stopped {
            return Backpressure::MAX;
        }
        Backpressure::of_debt(self.mean, FILES_SLOWED * PARTS, FILES_FULL * PARTS)
    }
}

#[cfg(test)]
mod tests {
    use crate::debt::*;

    fn debt(level0_files: u64, pending_tables: u64) -> StoreDebt {
        StoreDebt { level0_files, pending_bytes: pending_tables << 20, table_bytes: 1 << 20, is_stopped: false }
    }

    #[test]
    fn compactions_have_more_of_a_core_the_more_is_owed_and_all_of_it_before_a_write_is_refused() {
        assert_eq!(debt(8, TABLES_PER_FILE - 1).compaction_percent(), 0);
        assert_eq!(debt(12, 0).compaction_percent(), 50);
        assert_eq!(debt(0, 4 * TABLES_PER_FILE).compaction_percent(), 50, "whichever is more");
        assert_eq!(debt(u64::MAX, 0).compaction_percent(), 100);
        assert_eq!(debt(0, 1 << 43).compaction_percent(), 100);
        assert_eq!(debt(u64::from(TABLES) + FILES_SLOWED, 0).compaction_percent(), 100);
    }

    /// What is asked after so many looks at the same debt.
    fn asked(lately: &mut Lately, debt: StoreDebt, looks: u64) -> Backpressure {
        (0..looks).map(|_| lately.note(debt)).last().unwrap()
    }

    #[test]
    fn what_is_asked_of_coordinators_grows_until_the_engines_own_limit_is_near() {
        let settled = |debt| asked(&mut Lately::default(), debt, 20 * FALL);
        assert_eq!(settled(debt(18, 10 * TABLES_PER_FILE)), Backpressure::NONE);
        assert_eq!(settled(debt(32, 0)), Backpressure::from_level(3), "slowed down, and none refused");
        assert_eq!(settled(debt(0, 24 * TABLES_PER_FILE)), Backpressure::from_level(3));
        assert_eq!(settled(debt(43, 0)), Backpressure::from_level(6));
        assert_eq!(settled(debt(44, 0)), Backpressure::MAX);
        assert!(u64::from(TABLES) + FILES_FULL < crate::options::SLOWDOWN_FILES, "we ask before the engine acts");
    }

    #[test]
    fn what_is_asked_rises_at_once_and_falls_slowly() {
        let mut lately = Lately::default();
        assert!(asked(&mut lately, debt(40, 0), 1) > Backpressure::NONE);
        assert_eq!(asked(&mut lately, debt(u64::MAX, 0), 1), Backpressure::MAX);
        let high = asked(&mut lately, debt(43, 0), FALL);
        let after_a_compaction = asked(&mut lately, debt(16, 0), FALL / 10);
        assert!(after_a_compaction >= Backpressure::from_level(high.level() - 2), "{high:?} {after_a_compaction:?}");
        assert_eq!(asked(&mut lately, debt(0, 0), 2 * FALL), Backpressure::NONE);
    }

    #[test]
    fn while_the_engine_lets_no_write_through_nearly_all_are_refused() {
        let (mut lately, stopped) = (Lately::default(), StoreDebt { is_stopped: true, ..debt(0, 0) });
        assert_eq!(asked(&mut lately, stopped, 1), Backpressure::NONE, "for a moment");
        assert_eq!(asked(&mut lately, stopped, 1), Backpressure::MAX);
        assert_eq!(asked(&mut lately, debt(0, 0), 1), Backpressure::NONE);
    }
}
