//! The versions accepted here within the last `retention`, even if overwritten since.
//!
//! A queue of sets, *generations*. The youngest takes what is inserted; the oldest is dropped when all it has is older
//! than `retention`. A generation ends after a small part of `retention`, so what is inserted now goes into a set that
//! fits a processor's cache; and each has the timestamps between which its own are, so a late write, little older than
//! what its key has, is looked for in few of them (decision 0056).
//!
//! Bounded: where there are too many, the oldest generation is dropped before its time, and then what it does not
//! contain is unsure for a while ([`Recent::Unsure`]). What an earlier run accepted need not be known: no store
//! outlives the connection that it was sent on, and so the run (decision 0032).
//!
//! An entry is 64 bits of a hash of key and version, so one lookup in 10^13 or so is answered "accepted" for
//! something that was not; every record's digest takes the same chance.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use kvorum_core::key::KeyHash;
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::quorum::replica::Recent;
use kvorum_core::version::{Hlc, Version};

/// A generation ends after this part of `retention`, or of `entries_max`.
const PARTS: u32 = 32;

/// A set with a memory. Time is that of a clock that starts at boot and runs during suspend.
#[derive(Debug)]
pub struct RecentSet {
    /// Never empty; the youngest last. Fewer than three times [`PARTS`].
    generations: VecDeque<Generation>,
    /// Of all of them.
    len: usize,
    /// What the last that was dropped leaves to the next.
    spare: FingerprintSet,
    /// Until when what is not contained may have been accepted nevertheless.
    unsure_until: Option<Duration>,
    retention: Duration,
    entries_max: usize,
}

type FingerprintSet = HashSet<u64, BuildHasherDefault<Passthrough>>;

#[derive(Debug)]
struct Generation {
    entries: FingerprintSet,
    /// When it became the youngest.
    since: Duration,
    /// No timestamp in it is outside of these.
    oldest: Hlc,
    newest: Hlc,
}

impl Generation {
    fn new(entries: FingerprintSet, since: Duration) -> Self {
        Self { entries, since, oldest: Hlc::from_raw(u64::MAX), newest: Hlc::ZERO }
    }

    fn contains(&self, entry: Fingerprint) -> bool {
        (self.oldest..=self.newest).contains(&entry.timestamp) && self.entries.contains(&entry.bits)
    }
}

/// A hash of key and version, and the version's timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    bits: u64,
    timestamp: Hlc,
}

impl Fingerprint {
    /// Of this key and version.
    #[must_use]
    pub fn new(hash: KeyHash, version: Version) -> Self {
        // Multiplications by odd constants (of MurmurHash3's finalizer) with shifts between: every bit of
        // the three inputs reaches every bit of the result.
        let incarnation = u64::from(version.incarnation.0);
        let mixed = mix(hash.get() ^ mix(version.hlc.raw() ^ incarnation.rotate_left(32)));
        Self { bits: mix(mixed.wrapping_add(incarnation)), timestamp: version.hlc }
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}

/// For keys that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passthrough(u64);

impl Hasher for Passthrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only whole numbers are hashed");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl RecentSet {
    /// Empty. At most `entries_max` entries, of 10 to 21 bytes each, and those of one batch, are kept.
    #[must_use]
    pub fn new(now: Duration, retention: Duration, entries_max: usize) -> Self {
        Self {
            generations: VecDeque::from([Generation::new(FingerprintSet::default(), now)]),
            len: 0,
            spare: FingerprintSet::default(),
            unsure_until: None,
            retention,
            entries_max: entries_max.max(1),
        }
    }

    /// Before each batch: drops what may be dropped, and what must be.
    pub fn advance(&mut self, now: Duration) {
        let (age_max, len_max) = (self.retention / PARTS, self.entries_max.div_ceil(PARTS as usize));
        let young = self.young();
        if now.saturating_sub(young.since) > age_max || young.entries.len() >= len_max {
            self.begin(now);
        }
        while let Some(end) = self.generations.get(1).map(|next| next.since) {
            let is_aged = now.saturating_sub(end) > self.retention;
            if !is_aged && self.len <= self.entries_max {
                break;
            }
            let forgotten = self.drop_oldest();
            if !is_aged && forgotten > 0 && !is_on(Mutant::ForgetSilently) {
                self.unsure_until = self.unsure_until.max(Some(end.saturating_add(self.retention)));
            }
        }
    }

    fn young(&mut self) -> &mut Generation {
        self.generations.back_mut().expect("there is always one")
    }

    fn begin(&mut self, now: Duration) {
        // What one before it needed and this one did not.
        self.young().entries.shrink_to_fit();
        let entries = std::mem::take(&mut self.spare);
        self.generations.push_back(Generation::new(entries, now));
    }

    /// How many entries it had.
    fn drop_oldest(&mut self) -> usize {
        let Some(Generation { mut entries, .. }) = self.generations.pop_front() else { return 0 };
        let forgotten = entries.len();
        self.len -= forgotten;
        entries.clear();
        self.spare = entries;
        forgotten
    }

    /// Whether this was accepted lately.
    #[must_use]
    pub fn contains(&self, entry: Fingerprint, now: Duration) -> Recent {
        let is_known = self.generations.iter().rev().any(|one| one.contains(entry));
        if is_known && !is_on(Mutant::ForgetRecent) {
            Recent::Accepted
        } else if self.is_unsure(now) {
            Recent::Unsure
        } else {
            Recent::NotAccepted
        }
    }

    /// Whether what is not contained may have been accepted nevertheless.
    #[must_use]
    pub fn is_unsure(&self, now: Duration) -> bool {
        self.unsure_until.is_some_and(|until| now <= until)
    }

    /// Remembers an accept; whether the youngest generation did not have it.
    pub fn insert(&mut self, entry: Fingerprint) -> bool {
        let young = self.young();
        let is_new = young.entries.insert(entry.bits);
        young.oldest = young.oldest.min(entry.timestamp);
        young.newest = young.newest.max(entry.timestamp);
        self.len += usize::from(is_new);
        is_new
    }

    /// Takes back what [`RecentSet::insert`] called new since the last [`RecentSet::advance`].
    pub fn remove(&mut self, entry: Fingerprint) {
        let was_there = self.young().entries.remove(&entry.bits);
        self.len -= usize::from(was_there);
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use crate::commit::recent::*;
    use kvorum_core::version::{Hlc, Incarnation};

    const RETENTION: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn entry(number: u64) -> Fingerprint {
        let version = Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(7) };
        Fingerprint::new(kvorum_core::key::Key::new("k".into()).expect("short").hash(), version)
    }

    #[test]
    fn an_entry_stays_for_retention_and_hardly_longer() {
        // Everywhere within a generation, and at its borders.
        for inserted in (100_000..101_000_u64).step_by(10) {
            let mut recent = RecentSet::new(at(0), RETENTION, 100);
            let advance_to = |recent: &mut RecentSet, from: u64, to: u64| {
                (from..=to).step_by(10).for_each(|now| recent.advance(Duration::from_millis(now)));
                Duration::from_millis(to)
            };
            advance_to(&mut recent, 100_000, inserted);
            assert!(recent.insert(entry(1)));
            let kept = advance_to(&mut recent, inserted, inserted + 10_000);
            assert_eq!(recent.contains(entry(1), kept), Recent::Accepted, "{inserted}");
            let gone = advance_to(&mut recent, inserted + 10_000, inserted + 10_000 + 10_000 / 32 + 20);
            assert_eq!(recent.contains(entry(1), gone), Recent::NotAccepted, "{inserted}");
            assert!(recent.is_empty());
        }
    }

    #[test]
    fn what_an_earlier_run_accepted_is_no_reason_to_be_unsure() {
        let recent = RecentSet::new(at(50), RETENTION, 100);
        assert_eq!(recent.contains(entry(1), at(50)), Recent::NotAccepted);
    }

    #[test]
    fn forgetting_early_is_admitted_for_retention() {
        let mut recent = RecentSet::new(at(0), RETENTION, 2);
        recent.advance(at(100));
        for number in 0..6 {
            recent.advance(at(101));
            recent.insert(entry(number));
            assert!(recent.len() <= 3);
        }
        assert_eq!(recent.contains(entry(5), at(102)), Recent::Accepted);
        assert_eq!(recent.contains(entry(0), at(102)), Recent::Unsure, "was dropped early");
        assert_eq!(recent.contains(entry(0), at(112)), Recent::NotAccepted);
    }

    #[test]
    fn forgetting_early_is_admitted_until_all_that_was_forgotten_is_old() {
        let mut recent = RecentSet::new(at(100), RETENTION, 64);
        let end = at(100) + Duration::from_millis(200);
        recent.insert(entry(0));
        recent.advance(at(100) + Duration::from_millis(100));
        recent.insert(entry(1));
        recent.advance(end);
        assert_eq!(recent.generations.len(), 2);
        (2..66).for_each(|number| assert!(recent.insert(entry(number))));
        recent.advance(at(101));
        assert_eq!(recent.contains(entry(1), end + RETENTION), Recent::Unsure);
        assert_eq!(recent.contains(entry(1), end + RETENTION + Duration::from_nanos(1)), Recent::NotAccepted);
    }

    #[test]
    fn as_many_as_there_may_be_are_kept() {
        let mut recent = RecentSet::new(at(0), RETENTION, 64);
        for number in 0..64 {
            recent.insert(entry(number));
            recent.advance(at(1));
        }
        assert!(!recent.is_unsure(at(1)));
        assert!((0..64).all(|number| recent.contains(entry(number), at(1)) == Recent::Accepted));
        recent.insert(entry(64));
        recent.advance(at(2));
        assert!(recent.is_unsure(at(2)) && recent.len() <= 64);
        assert_eq!(recent.contains(entry(64), at(2)), Recent::Accepted, "the oldest go first");
    }

    /// Timestamps that go back and forth, so that generations overlap in theirs.
    #[test]
    fn entries_are_found_in_whatever_order_their_timestamps_come() {
        let mut recent = RecentSet::new(at(0), RETENTION, 1000);
        let timestamps: Vec<u64> = (0..200).map(|number: u64| number * 7919 % 200).collect();
        for (second, timestamp) in (0..).zip(&timestamps) {
            recent.advance(at(0) + Duration::from_millis(second * 40));
            assert_eq!(recent.contains(entry(*timestamp), at(0)), Recent::NotAccepted);
            recent.insert(entry(*timestamp));
        }
        assert!(recent.generations.len() > 10, "{}", recent.generations.len());
        assert!(timestamps.iter().all(|timestamp| recent.contains(entry(*timestamp), at(8)) == Recent::Accepted));
    }

    #[test]
    fn generations_and_their_memory_are_bounded() {
        let (mut recent, mut number) = (RecentSet::new(at(0), RETENTION, 10_000), 0);
        let mut next = || {
            number += 1;
            entry(number)
        };
        for millisecond in 0..60_000_u64 {
            recent.advance(Duration::from_millis(millisecond));
            // A burst every second, and little else.
            let inserts = if millisecond % 1000 == 0 { 1_500 } else { millisecond % 2 };
            (0..inserts).for_each(|_| assert!(recent.insert(next())));
            assert!(recent.generations.len() < 3 * PARTS as usize);
            let room: usize = recent.generations.iter().map(|one| one.entries.capacity()).sum();
            // Nine bytes for each bucket, of which an eighth stays free: what the configuration takes a version for.
            let bytes = (room + recent.spare.capacity()) * 8 / 7 * 9;
            assert!(bytes <= 24 * (10_000 + 1_500), "{bytes}");
        }
    }

    #[test]
    fn what_is_taken_back_is_not_known() {
        let mut recent = RecentSet::new(at(0), RETENTION, 64);
        assert!(recent.insert(entry(1)) && recent.insert(entry(2)));
        recent.advance(at(1));
        assert!(recent.insert(entry(2)) && recent.insert(entry(3)));
        assert!(!recent.insert(entry(3)));
        assert_eq!(recent.len(), 4);
        [2, 3].into_iter().for_each(|number| recent.remove(entry(number)));
        assert_eq!(recent.len(), 2);
        assert_eq!(recent.contains(entry(3), at(1)), Recent::NotAccepted);
        assert_eq!(recent.contains(entry(2), at(1)), Recent::Accepted, "by an earlier batch");
    }

    #[test]
    fn fingerprints_depend_on_key_hlc_and_incarnation() {
        let key = |name: &'static str| kvorum_core::key::Key::new(name.into()).expect("short").hash();
        let version = |hlc, incarnation| Version { hlc: Hlc::from_raw(hlc), incarnation: Incarnation(incarnation) };
        let mut all = HashSet::new();
        for name in ["a", "b", "c"] {
            for hlc in 0..50 {
                for incarnation in 0..50 {
                    all.insert(Fingerprint::new(key(name), version(hlc, incarnation)));
                }
            }
        }
        assert_eq!(all.len(), 3 * 50 * 50);
    }
}
