//! The greatest timestamp applied, per stripe of the key hash: what spares most writes the lookup.
//!
//! Invariant: no key of a stripe holds, or ever held, anything newer than the last version of the stripe's mark. So a
//! version above that is newer than whatever its key has. No partition's GC watermark is above a mark either. A mark
//! that is too high costs a lookup, no more.

use kvorum_core::key::{KeyHash, STRIPES};
use kvorum_core::version::{Hlc, Version};

/// One timestamp per stripe: 512 KiB, every part of which is as likely to be needed next. So most of it is in no cache
/// of the processor (decision 0056).
#[derive(Debug)]
pub struct StripeHighWater(Box<[Hlc]>);

impl StripeHighWater {
    /// After a restart: nothing with a timestamp above `bound` was applied before.
    #[must_use]
    pub fn at(bound: Hlc) -> Self {
        Self(vec![bound; STRIPES].into_boxed_slice())
    }

    /// Nothing of the stripe is newer than this.
    #[must_use]
    pub fn get(&self, hash: KeyHash) -> Version {
        Version::last_of(self.high_water(hash))
    }

    fn high_water(&self, hash: KeyHash) -> Hlc {
        *self.0.get(hash.stripe()).expect("a stripe is below STRIPES")
    }

    /// Has the processor load marks that will be asked for, all at once: one by one each would be waited for.
    pub fn prefetch(&self, hashes: impl Iterator<Item = KeyHash>) {
        std::hint::black_box(hashes.map(|hash| self.high_water(hash)).max());
    }

    /// Notes that `version` is about to be applied.
    pub fn raise(&mut self, hash: KeyHash, version: Version) {
        let mark = self.0.get_mut(hash.stripe()).expect("a stripe is below STRIPES");
        *mark = version.hlc.max(*mark);
    }

    /// Notes that some partition's GC watermark is `gc_watermark` now: every stripe has keys of every partition.
    pub fn raise_all(&mut self, gc_watermark: Hlc) {
        for mark in &mut self.0 {
            *mark = gc_watermark.max(*mark);
        }
    }
}
