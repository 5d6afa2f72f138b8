//! The versions accepted here within the last `retention`, even if overwritten since.
//!
//! Two generations of a set, rotated when the younger one is over `retention` old: what is inserted stays for at
//! least that long. Bounded: a generation that fills up before is rotated early, and then this cannot know for
//! `retention` what it does not contain ([`Recent::Unsure`]). What an earlier run accepted need not be known: no
//! store outlives the connection that it was sent on, and so the run (decision 0032).
//!
//! An entry is 64 bits of a hash of key and version, so one lookup in 10^13 or so is answered "accepted" for
//! something that was not; every record's digest takes the same chance.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use kvorum_core::key::KeyHash;
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::quorum::replica::Recent;
use kvorum_core::version::Version;

/// A set with a memory. Time is that of a clock that starts at boot and runs during suspend.
#[derive(Debug)]
pub struct RecentSet {
    young: HashSet<Fingerprint, BuildHasherDefault<Passthrough>>,
    old: HashSet<Fingerprint, BuildHasherDefault<Passthrough>>,
    /// When `young` became the younger generation.
    young_since: Duration,
    /// Until when what is not contained may have been accepted nevertheless.
    unsure_until: Option<Duration>,
    retention: Duration,
    entries_max: usize,
}

/// A hash of key and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Of this key and version.
    #[must_use]
    pub fn new(hash: KeyHash, version: Version) -> Self {
        // Multiplications by odd constants (of MurmurHash3's finalizer) with shifts between: every bit of
        // the three inputs reaches every bit of the result.
        let incarnation = u64::from(version.incarnation.0);
        let mixed = mix(hash.get() ^ mix(version.hlc.raw() ^ incarnation.rotate_left(32)));
        Self(mix(mixed.wrapping_add(incarnation)))
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
    /// Empty. At most twice `entries_max` entries, of 9 to 18 bytes each, and
    /// those of one batch, are kept.
    #[must_use]
    pub fn new(now: Duration, retention: Duration, entries_max: usize) -> Self {
        Self {
            young: HashSet::default(),
            old: HashSet::default(),
            young_since: now,
            unsure_until: None,
            retention,
            entries_max,
        }
    }

    /// Before each batch: forgets what may be forgotten, and what must be.
    pub fn advance(&mut self, now: Duration) {
        let aged = now.saturating_sub(self.young_since) > self.retention;
        if !aged && self.young.len() < self.entries_max {
            return;
        }
        if !aged && !self.old.is_empty() && !is_on(Mutant::ForgetSilently) {
            self.unsure_until = Some(now.saturating_add(self.retention));
        }
        std::mem::swap(&mut self.young, &mut self.old);
        self.young.clear();
        // A burst's memory is not kept for ever.
        self.young.shrink_to(self.old.len());
        self.young_since = now;
    }

    /// Whether this was accepted lately.
    #[must_use]
    pub fn contains(&self, entry: Fingerprint, now: Duration) -> Recent {
        let is_known = self.young.contains(&entry) || self.old.contains(&entry);
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

    /// Remembers an accept; whether the younger generation did not have it.
    pub fn insert(&mut self, entry: Fingerprint) -> bool {
        self.young.insert(entry)
    }

    /// Takes back what [`RecentSet::insert`] called new since the last [`RecentSet::advance`].
    pub fn remove(&mut self, entry: Fingerprint) {
        self.young.remove(&entry);
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn an_entry_stays_for_retention_and_is_forgotten_after_two() {
        for inserted in 100..120 {
            let mut recent = RecentSet::new(at(0), RETENTION, 100);
            recent.advance(at(100));
            for now in 100..=inserted {
                recent.advance(at(now));
            }
            assert!(recent.insert(entry(1)));
            for now in inserted..=inserted + 10 {
                recent.advance(at(now));
                assert_eq!(recent.contains(entry(1), at(now)), Recent::Accepted, "{inserted} {now}");
            }
            for now in inserted + 11..=inserted + 22 {
                recent.advance(at(now));
            }
            assert_eq!(recent.contains(entry(1), at(inserted + 22)), Recent::NotAccepted);
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
            assert!(recent.len() <= 4);
        }
        assert_eq!(recent.contains(entry(5), at(102)), Recent::Accepted);
        assert_eq!(recent.contains(entry(0), at(102)), Recent::Unsure, "was forgotten early");
        assert_eq!(recent.contains(entry(0), at(112)), Recent::NotAccepted);
    }

    #[test]
    fn a_full_generation_after_a_rest_forgets_nothing_young() {
        let mut recent = RecentSet::new(at(0), RETENTION, 2);
        recent.advance(at(100));
        recent.insert(entry(1));
        recent.insert(entry(2));
        recent.advance(at(101));
        assert!(!recent.is_unsure(at(101)), "the older generation was empty");
        assert_eq!(recent.contains(entry(1), at(101)), Recent::Accepted);
    }

    #[test]
    fn what_is_taken_back_is_not_known() {
        let mut recent = RecentSet::new(at(0), RETENTION, 2);
        assert!(recent.insert(entry(1)));
        assert!(!recent.insert(entry(1)));
        recent.remove(entry(1));
        assert_eq!(recent.contains(entry(1), at(50)), Recent::NotAccepted);
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
