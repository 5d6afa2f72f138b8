//! What the batch in the making already applies: the newest version per key.
//!
//! Ordered by the key's hash and the key. A hash is not secret, so a client may make many keys with the same one: in an
//! order they cost no more than others. Few batches look anything up, and the others have no index.

use std::collections::BTreeMap;

use kvorum_core::key::{Key, KeyHash};
use kvorum_core::version::Version;

/// Newest versions by key, until cleared.
#[derive(Debug, Default)]
pub struct Overlay {
    entries: Vec<OverlayEntry>,
    /// The newest versions of the entries that are indexed.
    newest: BTreeMap<(u64, Key), Version>,
    indexed: usize,
}

#[derive(Debug)]
struct OverlayEntry {
    key: Key,
    hash: KeyHash,
    version: Version,
}

impl Overlay {
    /// Notes that the batch applies `version`, newer than all it applied to the key before.
    pub fn insert(&mut self, key: &Key, hash: KeyHash, version: Version) {
        self.entries.push(OverlayEntry { key: key.clone(), hash, version });
    }

    /// The newest version that the batch applies to the key.
    pub fn get(&mut self, key: &Key, hash: KeyHash) -> Option<Version> {
        for entry in self.entries.iter().skip(self.indexed) {
            self.newest.insert((entry.hash.get(), entry.key.clone()), entry.version);
        }
        self.indexed = self.entries.len();
        self.newest.get(&(hash.get(), key.clone())).copied()
    }

    /// Removes everything and keeps the entries' memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.newest.clear();
        self.indexed = 0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::commit::overlay::*;
    use kvorum_core::version::{Hlc, Incarnation};

    #[test]
    fn keys_of_one_hash_are_told_apart_and_the_newest_version_is_found() {
        let key = |name: &'static str| Key::new(name.into()).unwrap();
        let (a, b) = (key("a"), key("b"));
        let version = |number| Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(1) };
        let (hash, mut overlay) = (a.hash(), Overlay::default());
        for round in 0..2 {
            assert_eq!(overlay.get(&a, hash), None, "{round}");
            overlay.insert(&a, hash, version(1));
            overlay.insert(&b, hash, version(2));
            assert_eq!(overlay.get(&a, hash), Some(version(1)));
            overlay.insert(&a, hash, version(3));
            assert_eq!((overlay.get(&a, hash), overlay.get(&b, hash)), (Some(version(3)), Some(version(2))));
            assert_eq!(overlay.get(&key("c"), hash), None);
            overlay.clear();
        }
    }

    #[test]
    fn many_keys_of_one_hash_cost_no_more_than_others() {
        // With a chain for each hash this looked at five thousand million entries.
        const KEYS: u64 = 100_000;
        let key = |number: u64| Key::new(number.to_be_bytes().to_vec().into()).unwrap();
        let version = |number| Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(1) };
        let (hash, mut overlay) = (key(0).hash(), Overlay::default());
        for number in 0..KEYS {
            overlay.insert(&key(number), hash, version(number));
            assert_eq!(overlay.get(&key(number / 2), hash), Some(version(number / 2)));
        }
    }
}
