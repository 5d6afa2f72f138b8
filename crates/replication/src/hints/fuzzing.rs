//! The names under which hints lie, read from any bytes.

use bytes::Bytes;

use super::names;
use super::names::Name;

/// A name, or a size.
pub fn hints(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    match names::parse(&bytes) {
        Some(Name::Size(target, bucket)) => {
            assert_eq!(names::size(target, bucket), bytes, "the same name in other bytes");
            assert!(names::bucket(target, bucket).contains(&bytes) && !names::hints(target, bucket).contains(&bytes));
        }
        Some(Name::Hint(target, bucket, key)) => {
            assert_eq!(names::hint(target, bucket, &key), bytes, "the same name in other bytes");
            assert!(names::bucket(target, bucket).contains(&bytes) && names::hints(target, bucket).contains(&bytes));
            assert!(target.range().contains(&bytes), "a target's range has all of it");
        }
        None => {}
    }
    if let Some(size) = names::decode_size(data) {
        assert_eq!(names::encode_size(size), bytes, "the same size in other bytes");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn hints() {
        kvorum_fuzzing::holds("hints", super::hints);
    }
}
