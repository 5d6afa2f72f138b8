//! Small records leave the buffer that they were read into.

use bytes::{Bytes, BytesMut};
use kvorum_core::Key;

/// Records up to this are copied out of the buffer that they were read into.
pub(super) const COPIED_BYTES_MAX: usize = 8 * 1024;

/// Gives what is small an allocation of its own: otherwise each record that waits for the commit thread would
/// keep the whole buffer that it was read into. What is longer is most of its buffer, and counted as such.
pub fn detach(key: Key, record: Bytes) -> (Key, Bytes) {
    if record.len() > COPIED_BYTES_MAX {
        return (key, record);
    }
    let bytes = key.as_bytes();
    let mut own = BytesMut::with_capacity(bytes.len() + record.len());
    own.extend_from_slice(bytes);
    own.extend_from_slice(&record);
    let mut own = own.freeze();
    let key = Key::new(own.split_to(bytes.len())).expect("these bytes were a key before");
    (key, own)
}
