//! What the batch in the making already applies: the newest version per key.
//!
//! By the key's hash, with a chain for keys that share one: hashes are not secret, so somebody may make
//! many keys with the same.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use kvorum_core::key::{Key, KeyHash};
use kvorum_core::version::Version;

use super::recent::Passthrough;

/// Newest versions by key, until cleared.
#[derive(Debug, Default)]
pub struct Overlay {
    last: HashMap<u64, usize, BuildHasherDefault<Passthrough>>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    version: Version,
    /// The entry before this one with the same hash.
    previous: Option<usize>,
}

impl Overlay {
    /// Notes that the batch applies `version`, newer than all it applied to the key before.
    pub fn insert(&mut self, key: &Key, hash: KeyHash, version: Version) {
        let previous = self.last.insert(hash.get(), self.entries.len());
        self.entries.push(Entry { key: key.clone(), version, previous });
    }

    /// The newest version that the batch applies to the key.
    #[must_use]
    pub fn get(&self, key: &Key, hash: KeyHash) -> Option<Version> {
        let mut next = self.last.get(&hash.get()).copied();
        while let Some(entry) = next.and_then(|index| self.entries.get(index)) {
            if entry.key == *key {
                return Some(entry.version);
            }
            next = entry.previous;
        }
        None
    }

    /// Forgets everything and keeps its memory.
    pub fn clear(&mut self) {
        self.last.clear();
        self.entries.clear();
    }
}
