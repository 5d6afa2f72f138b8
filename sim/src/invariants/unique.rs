//! No version is given twice: wherever one key has one version, it is one record.

use std::collections::BTreeMap;

use kvorum_core::{Key, Record, Version};
use xxhash_rust::xxh3::xxh3_64;

/// A hash of the record for each: the record itself is charged to the memory of the node that made it.
#[derive(Debug, Default)]
pub(super) struct Unique(BTreeMap<(Key, Version), u64>);

impl Unique {
    pub(super) fn check(&mut self, node: usize, key: &Key, record: &Record) -> Result<(), String> {
        let version = record.version();
        let own = Key::new(key.as_bytes().to_vec().into()).expect("a key's bytes are a key");
        let hash = xxh3_64(record.bytes());
        if *self.0.entry((own, version)).or_insert(hash) == hash {
            return Ok(());
        }
        Err(format!("unique: node {node} stores another record as {version:?} of {key:?} than was stored before"))
    }
}
