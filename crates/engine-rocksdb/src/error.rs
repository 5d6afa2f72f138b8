//! What errors of RocksDB are to us.

use kvorum_storage::StoreError;
use rocksdb::ErrorKind;

/// What an error of RocksDB is to us.
pub(crate) fn classify(error: &rocksdb::Error) -> StoreError {
    let text: &str = error.as_ref();
    let is_full = ["IO error: No space left on device", "IO error: Space limit reached"];
    if is_full.iter().any(|prefix| text.starts_with(prefix)) {
        return StoreError::DiskFull;
    }
    match error.kind() {
        ErrorKind::Incomplete => StoreError::NeedsDisk,
        ErrorKind::Corruption => StoreError::Corrupt(text.to_owned()),
        _ => StoreError::Io(text.to_owned()),
    }
}
