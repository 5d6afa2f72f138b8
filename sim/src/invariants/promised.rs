//! A write starts over with another timestamp only once its first can never be seen: so all clients that ever see a
//! value, its writer included, see it with one version.

use std::collections::BTreeMap;

use kvorum_core::Version;

use crate::history::{ClientAction, ClientOutcome, RecordedOperation};

/// Looks at all operations on one key, all of them at quorum.
///
/// # Errors
/// The first value that was seen with two versions.
pub fn check<'a>(operations: impl Iterator<Item = &'a RecordedOperation>) -> Result<(), String> {
    let mut versions: BTreeMap<u64, Version> = BTreeMap::new();
    for operation in operations {
        let (value, version) = match (operation.action, operation.outcome) {
            (ClientAction::Put(value) | ClientAction::PutFor(value, _), ClientOutcome::Written(version))
            | (
                ClientAction::Get,
                ClientOutcome::Found(Some((value, version))) | ClientOutcome::Ended(value, version),
            ) => (value, version),
            _ => continue,
        };
        let first = *versions.entry(value).or_insert(version);
        if first != version {
            return Err(format!("promised: value {value} was seen as {first:?} before: {operation}"));
        }
    }
    Ok(())
}
