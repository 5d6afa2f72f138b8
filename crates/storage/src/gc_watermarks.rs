//! Up to where each partition is proven converged: what a key that is absent there answers as its version, and
//! what lets a compaction drop deletions.
//!
//! Owns the published watermarks of one store. The commit thread raises them, after it has made them durable; all
//! others read them without a lock. Promises that a GC watermark never falls while the store is open, and that nothing
//! is dropped above one. A GC watermark is the last version of a clock reading, so the reading is all that is kept of
//! it.

use bytes::Bytes;
use kvorum_base::sync::atomic::{AtomicU64, Ordering};
use kvorum_core::key::{Key, PARTITIONS};
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::partitions::PartitionSet;
use kvorum_core::version::{Hlc, Version};
use kvorum_core::{PartitionId, Record};

use crate::error::StoreError;

/// Bytes of all GC watermarks as they are persisted.
const BYTES: usize = PARTITIONS * 8;

/// One GC watermark for each partition: 32 KiB.
#[derive(Debug)]
pub struct GcWatermarks(Box<[AtomicU64]>);

impl Default for GcWatermarks {
    fn default() -> Self {
        Self((0..PARTITIONS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl GcWatermarks {
    /// The partition's GC watermark; [`Version::ZERO`] before the first.
    #[must_use]
    pub fn get(&self, partition: PartitionId) -> Version {
        Version::last_of(self.reading(partition))
    }

    /// The reading that it is the last version of.
    #[must_use]
    pub fn reading(&self, partition: PartitionId) -> Hlc {
        // Acquire: a thread that sees that a record is gone, or is about to drop it, sees the GC watermark that allows
        // it.
        Hlc::from_raw(self.slot(partition).load(Ordering::Acquire))
    }

    /// Raises GC watermarks that are durable. For the one thread that commits.
    pub fn raise(&self, partitions: &PartitionSet, to: Hlc) {
        for partition in partitions.iter() {
            self.slot(partition).fetch_max(to.raw(), Ordering::AcqRel);
        }
    }

    /// The lowest and the highest of all.
    #[must_use]
    pub fn bounds(&self) -> (Hlc, Hlc) {
        let all = || self.0.iter().map(|gc_watermark| Hlc::from_raw(gc_watermark.load(Ordering::Acquire)));
        (all().min().unwrap_or_default(), all().max().unwrap_or_default())
    }

    /// Partitions that the last proof left out: their GC watermark is lower than the highest, or there is none.
    #[must_use]
    pub fn unproven(&self) -> usize {
        let highest = self.bounds().1.max(Hlc::from_millis(1));
        self.0.iter().filter(|gc_watermark| gc_watermark.load(Ordering::Acquire) < highest.raw()).count()
    }

    /// What is persisted of these GC watermarks with some raised.
    #[must_use]
    pub fn encode_with(&self, raised: &[(PartitionSet, Hlc)]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        for partition in PartitionId::all() {
            let new = raised.iter().filter(|(partitions, _)| partitions.contains(partition)).map(|(_, to)| *to);
            let gc_watermark = new.max().unwrap_or_default().max(self.reading(partition));
            bytes.extend_from_slice(&gc_watermark.raw().to_be_bytes());
        }
        bytes
    }

    /// Takes what was persisted.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if that is not one GC watermark for each partition.
    pub fn load(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let (gc_watermarks, rest) = bytes.as_chunks::<8>();
        if gc_watermarks.len() != PARTITIONS || !rest.is_empty() {
            return Err(StoreError::Corrupt("the floors are not 8 bytes for each partition".to_owned()));
        }
        for (slot, gc_watermark) in self.0.iter().zip(gc_watermarks) {
            slot.store(u64::from_be_bytes(*gc_watermark), Ordering::Release);
        }
        Ok(())
    }

    /// Drops all of them, as a restart does before they are loaded.
    pub(super) fn clear(&self) {
        self.0.iter().for_each(|slot| slot.store(0, Ordering::Release));
    }

    /// Whether a compaction may drop this record: an undamaged deletion, or what has ended before the GC watermark's
    /// clock, which all replicas are proven to have had. No local clock decides: one replica would drop what another
    /// still serves.
    #[must_use]
    pub fn may_drop(&self, key: &[u8], record: &[u8]) -> bool {
        // Nearly every record is a value without expiry: its flags are all that is looked at.
        if !Record::claims_an_end(record) {
            return false;
        }
        let Ok(key) = Key::new(Bytes::copy_from_slice(key)) else { return false };
        let Ok(record) = Record::decode(&key, Bytes::copy_from_slice(record)) else { return false };
        let gc_watermark = self.get(key.hash().partition());
        let is_proven = record.version() <= gc_watermark || is_on(Mutant::TombstonesByAge) && record.is_tombstone();
        let is_early = is_on(Mutant::ExpiredDroppedEarly);
        is_proven && record.is_deleted(|| if is_early { u64::MAX } else { gc_watermark.hlc.millis() })
    }

    fn slot(&self, partition: PartitionId) -> &AtomicU64 {
        self.0.get(partition.index()).expect("one floor for each partition")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::gc_watermarks::*;
    use kvorum_core::Incarnation;

    fn version(millis: u64) -> Version {
        Version { hlc: Hlc::from_millis(millis), incarnation: Incarnation(7) }
    }

    fn raised(key: &Key, millis: u64) -> GcWatermarks {
        let gc_watermarks = GcWatermarks::default();
        gc_watermarks.raise(&PartitionSet::from_iter([key.hash().partition()]), Hlc::from_millis(millis));
        gc_watermarks
    }

    #[test]
    fn only_deletions_at_or_below_the_gc_watermark_may_be_dropped() {
        let key = Key::new(Bytes::from_static(b"k")).unwrap();
        let gc_watermarks = raised(&key, 100);
        let tombstone = |millis| Record::tombstone(&key, version(millis), 3).bytes().clone();
        let value = Record::value(&key, version(50), 3, None, b"v").bytes().clone();
        let may_drop = |record: &[u8]| gc_watermarks.may_drop(key.as_bytes(), record);
        let until = |millis, expires_ms| {
            Record::expiring(&key, version(millis), 3, Some(expires_ms), None, b"v").bytes().clone()
        };
        assert!(may_drop(&until(50, 60)) && may_drop(&until(50, 100)), "all clocks have passed its end");
        assert!(!may_drop(&until(50, 101)), "another replica still serves it");
        assert!(!may_drop(&until(101, 50)), "nothing is proven there");
        assert!(may_drop(&tombstone(99)) && may_drop(&tombstone(100)));
        assert!(!may_drop(&tombstone(101)), "nothing is proven there");
        assert!(!may_drop(&value), "a value is no deletion");
        let mut damaged = tombstone(99).to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(!may_drop(&damaged), "what it was is unknown");
        let other = Key::new(Bytes::from_static(b"of another partition")).unwrap();
        let record = Record::tombstone(&other, version(50), 3).bytes().clone();
        assert!(!gc_watermarks.may_drop(other.as_bytes(), &record));
    }

    #[test]
    fn what_was_persisted_comes_back() {
        let key = Key::new(Bytes::from_static(b"k")).unwrap();
        let gc_watermarks = raised(&key, 100);
        let partition = key.hash().partition();
        let all: PartitionSet = PartitionId::all().collect();
        let bytes = gc_watermarks.encode_with(&[(all, Hlc::from_millis(50))]);
        let loaded = GcWatermarks::default();
        loaded.load(&bytes).unwrap();
        assert_eq!(loaded.reading(partition), Hlc::from_millis(100));
        assert_eq!(loaded.bounds(), (Hlc::from_millis(50), Hlc::from_millis(100)));
        assert!(loaded.load(&bytes[1..]).is_err());
    }
}
