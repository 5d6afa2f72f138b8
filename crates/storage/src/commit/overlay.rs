//! What the batch in the making already applies: the newest version per key.
//!
//! By the key's hash, with a chain for keys that share one: hashes are not secret, so a client may make many keys with
//! the same. Few batches look anything up, and the others have no index.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use kvorum_core::key::{Key, KeyHash};
use kvorum_core::version::Version;

use super::recent::Passthrough;

/// Newest versions by key, until cleared.
#[derive(Debug, Default)]
pub struct Overlay {
    entries: Vec<OverlayEntry>,
    /// By hash, the last of those entries that are indexed.
    last: HashMap<u64, usize, BuildHasherDefault<Passthrough>>,
    indexed: usize,
}

#[derive(Debug)]
struct OverlayEntry {
    key: Key,
    hash: KeyHash,
    version: Version,
    /// The entry before this one with the same hash.
    previous: Option<usize>,
}

impl Overlay {
    /// Notes that the batch applies `version`, newer than all it applied to the key before.
    pub fn insert(&mut self, key: &Key, hash: KeyHash, version: Version) {
        self.entries.push(OverlayEntry { key: key.clone(), hash, version, previous: None });
    }

    /// The newest version that the batch applies to the key.
    pub fn get(&mut self, key: &Key, hash: KeyHash) -> Option<Version> {
        for (index, entry) in self.entries.iter_mut().enumerate().skip(self.indexed) {
            entry.previous = self.last.insert(entry.hash.get(), index);
        }
        self.indexed = self.entries.len();
        let mut next = self.last.get(&hash.get()).copied();
        while let Some(entry) = next.and_then(|index| self.entries.get(index)) {
            if entry.key == *key {
                return Some(entry.version);
            }
            next = entry.previous;
        }
        None
    }

    /// Removes everything and keeps its memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.last.clear();
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
}
