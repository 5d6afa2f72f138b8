//! A replica only ever replaces a version by a newer one.

use kvorum_core::{Key, Version};

pub(super) fn check(node: usize, key: &Key, before: Version, after: Version) -> Result<(), String> {
    if before < after {
        return Ok(());
    }
    Err(format!("monotonic: node {node} replaced {before:?} of {key:?} by {after:?}"))
}
