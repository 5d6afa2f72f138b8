//! The greatest version applied, per stripe of the key hash: what spares most writes the lookup.
//!
//! Invariant: no key of a stripe holds, or ever held, anything newer than the stripe's mark. So a version
//! above the mark is newer than whatever its key has. No partition's floor is above a mark either. A mark that is too high costs a lookup, no more.

use kvorum_core::key::{KeyHash, STRIPES};
use kvorum_core::version::{Hlc, Version};

/// One version per stripe: 1 MiB.
#[derive(Debug)]
pub struct Marks(Box<[Version]>);

impl Marks {
    /// After a restart: nothing with a stamp above `bound` was applied before.
    #[must_use]
    pub fn at(bound: Hlc) -> Self {
        Self(vec![Version::last_of(bound); STRIPES].into_boxed_slice())
    }

    /// The stripe's mark.
    #[must_use]
    pub fn get(&self, hash: KeyHash) -> Version {
        *self.0.get(hash.stripe()).expect("a stripe is below STRIPES")
    }

    /// Notes that `version` is about to be applied.
    pub fn raise(&mut self, hash: KeyHash, version: Version) {
        let mark = self.0.get_mut(hash.stripe()).expect("a stripe is below STRIPES");
        *mark = version.max(*mark);
    }

    /// Notes that some partition's floor is `floor` now: every stripe has keys of every partition.
    pub fn raise_all(&mut self, floor: Version) {
        for mark in &mut self.0 {
            *mark = floor.max(*mark);
        }
    }
}
