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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn a_small_record_leaves_the_buffer_that_it_was_read_into() {
        let mut input = BytesMut::with_capacity(32 * 1024);
        input.extend_from_slice(b"keyrecord");
        let read = input.freeze();
        let (key, record) = detach(Key::new(read.slice(..3)).unwrap(), read.slice(3..));
        assert_eq!((key.as_bytes(), &record[..]), (&b"key"[..], &b"record"[..]));
        assert!(read.is_unique(), "nothing holds it any more");
    }

    #[test]
    fn a_long_record_is_not_copied() {
        let read = Bytes::from(vec![7; COPIED_BYTES_MAX + 2]);
        let (key, record) = detach(Key::new(read.slice(..1)).unwrap(), read.slice(1..));
        assert_eq!((key.as_bytes(), record.as_ptr()), (&[7][..], read[1..].as_ptr()));
        let (_, record) = detach(key, read.slice(2..));
        assert_ne!(record.as_ptr(), read[2..].as_ptr(), "a byte less is");
    }
}
