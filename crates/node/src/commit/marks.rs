//! The greatest version applied, per stripe of the key hash: what spares most writes the lookup.
//!
//! Invariant: no key of a stripe holds, or ever held, anything newer than the stripe's mark. So a version
//! above the mark is newer than whatever its key has. A mark that is too high costs a lookup, no more.

use kvorum_core::key::{KeyHash, STRIPES};
use kvorum_core::version::{Hlc, Incarnation, Version};

/// One version per stripe: 1 MiB.
#[derive(Debug)]
pub struct Marks(Box<[Version]>);

impl Marks {
    /// After a restart: nothing with a stamp above `bound` was applied before.
    #[must_use]
    pub fn at(bound: Hlc) -> Self {
        let mark = Version { hlc: bound, incarnation: Incarnation(u32::MAX) };
        Self(vec![mark; STRIPES].into_boxed_slice())
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
}
