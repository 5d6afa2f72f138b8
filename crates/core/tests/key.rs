//! Keys and what their hash decides.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use bytes::Bytes;
use kvorum_core::key::{KEY_BYTES_MAX, KeyError, PARTITIONS, STRIPES, least_behind};
use kvorum_core::{Key, PartitionId};
use proptest::prelude::*;

fn numbered(number: u32) -> Key {
    Key::new(number.to_string().into()).unwrap()
}

#[test]
fn a_key_has_1_to_2048_bytes() {
    assert_eq!(Key::new(Bytes::new()), Err(KeyError::Empty));
    for length in [1, KEY_BYTES_MAX] {
        assert_eq!(Key::new(vec![0xff; length].into()).unwrap().as_bytes().len(), length);
    }
    assert_eq!(Key::new(vec![0xff; KEY_BYTES_MAX + 1].into()), Err(KeyError::TooLong));
}

proptest! {
    #[test]
    fn nothing_lies_between_a_key_and_the_least_behind_it(key: Vec<u8>, other: Vec<u8>, tail: Vec<u8>) {
        let least = least_behind(&key);
        prop_assert!(least > key);
        for other in [other, [&key[..], &tail].concat()] {
            prop_assert!(other <= key || other >= least, "{other:?}");
        }
    }
}

/// The hash decides where a key lies on every disk, so no build may change it. The value is that of the
/// reference implementation.
#[test]
fn the_hash_is_xxh3_of_the_bytes() {
    let hash = Key::new(Bytes::from_static(b"xxhash")).unwrap().hash();
    assert_eq!(hash.get(), 0xaa4c_2b42_ae6b_13de);
    assert_eq!(hash.partition().index(), 0xaa4);
    assert_eq!(hash.stripe(), 0x13de);
}

#[test]
fn partitions_are_numbered_below_4096() {
    assert_eq!(PartitionId::new(0).unwrap().index(), 0);
    assert_eq!(PartitionId::new(4095).unwrap().index(), PARTITIONS - 1);
    assert_eq!(PartitionId::new(4096), None);
    assert_eq!(PartitionId::new(u16::MAX), None);
}

#[test]
fn keys_spread_evenly_over_partitions_and_stripes_independently() {
    let mut cells = vec![0_u32; 16 * 16];
    for number in 0..256_000 {
        let hash = numbered(number).hash();
        cells[hash.partition().index() / (PARTITIONS / 16) * 16 + hash.stripe() / (STRIPES / 16)] += 1;
    }
    // 1000 expected in each; five standard deviations are 158.
    assert!(cells.iter().all(|cell| cell.abs_diff(1000) < 158), "{cells:?}");
}

proptest! {
    #[test]
    fn keys_compare_as_their_bytes(
        a in proptest::collection::vec(any::<u8>(), 1..20),
        b in proptest::collection::vec(any::<u8>(), 1..20),
    ) {
        let (left, right) = (Key::new(a.clone().into()).unwrap(), Key::new(b.clone().into()).unwrap());
        prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        prop_assert_eq!(left.as_bytes(), &a[..]);
    }
}
