//! Which versions one delivery has brought, so that older ones of the same keys are left out.

use std::collections::BTreeMap;

use crate::key::KeyHash;
use crate::version::Version;

/// Keys that are remembered. Of those beyond, older versions are delivered too, and refused as stale.
const KEYS_MAX: usize = 1 << 15;

/// The newest version delivered of each key, by its hash. Two keys with one hash of 64 bits would share it: then
/// the older of two hints waits for anti-entropy.
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    versions: BTreeMap<u64, Version>,
}

impl Delivered {
    /// Bytes that one of them takes at most.
    pub const BYTES_MAX: usize = KEYS_MAX * 48;

    /// The newest version that the target has had by this delivery.
    #[must_use]
    pub fn newest(&self, key: KeyHash) -> Option<Version> {
        self.versions.get(&key.get()).copied()
    }

    /// The target has it.
    pub fn note(&mut self, key: KeyHash, version: Version) {
        if self.versions.len() < KEYS_MAX || self.versions.contains_key(&key.get()) {
            let newest = self.versions.entry(key.get()).or_default();
            *newest = version.max(*newest);
        }
    }

    /// A delivery has come to its end.
    pub fn clear(&mut self) {
        self.versions.clear();
    }
}
