//! The record codec: everything survives a round trip, and nothing damaged is a record.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use bytes::{BufMut, Bytes, BytesMut};
use kvorum_core::key::KEY_BYTES_MAX;
use kvorum_core::record::{CONTENT_TYPE_BYTES_MAX, RECORD_OVERHEAD_MAX, RecordError};
use kvorum_core::{Hlc, Incarnation, Key, Record, Version};
use proptest::prelude::*;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const TOMBSTONE: u8 = 1;
const EXPIRES: u8 = 2;
const CONTENT_TYPE: u8 = 4;

fn key(bytes: &[u8]) -> Key {
    Key::new(Bytes::copy_from_slice(bytes)).unwrap()
}

fn version(hlc: u64) -> Version {
    Version { hlc: Hlc::from_raw(hlc), incarnation: Incarnation(0xcafe_babe) }
}

/// The format written down a second time, with a right digest around any fields.
fn raw(key: &Key, format: u8, flags: u8, from: u8, fields: &[u8], payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(&[format, flags, from]);
    out.put_slice(&version(7).encode());
    out.put_slice(fields);
    let digest = xxh3_64_with_seed(key.as_bytes(), xxh3_64_with_seed(&out, xxh3_64(payload)));
    out.put_u64(digest);
    out.put_slice(payload);
    out.freeze()
}

/// Every combination of optional fields, and none; with and without a payload.
fn samples(key: &Key) -> Vec<Bytes> {
    let expires = 1_700_000_000_000_u64.to_be_bytes();
    let content_type = b"\x0atext/plain";
    let both = [&expires[..], content_type].concat();
    vec![
        Record::value(key, version(7), 3, None, b"").bytes().clone(),
        Record::value(key, version(7), 3, None, b"value").bytes().clone(),
        Record::value(key, version(7), 3, Some(b"text/plain"), b"value").bytes().clone(),
        Record::value(key, version(7), 3, Some(b""), b"value").bytes().clone(),
        Record::tombstone(key, version(7), 3).bytes().clone(),
        raw(key, 1, EXPIRES, 1, &expires, b"value"),
        raw(key, 1, EXPIRES | CONTENT_TYPE, 1, &both, b"value"),
        raw(key, 1, TOMBSTONE | EXPIRES, 1, &expires, b""),
    ]
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let key = key(b"key");
    let value = Record::value(&key, version(7), 3, Some(b"text/plain"), b"value");
    assert_eq!(value.bytes(), &raw(&key, 1, CONTENT_TYPE, 3, b"\x0atext/plain", b"value"));
    assert_eq!(Record::tombstone(&key, version(7), 2).bytes(), &raw(&key, 1, TOMBSTONE, 2, b"", b""));
}

#[test]
fn every_truncation_is_refused() {
    let key = key(b"key");
    for bytes in samples(&key) {
        assert!(Record::decode(&key, bytes.clone()).is_ok(), "the sample itself is right");
        for end in 0..bytes.len() {
            assert!(Record::decode(&key, bytes.slice(..end)).is_err(), "cut at {end} of {}", bytes.len());
        }
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        assert!(Record::decode(&key, longer).is_err(), "a trailing byte");
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let key = key(b"key");
    for bytes in samples(&key) {
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&key, damaged.into()).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn a_record_belongs_to_its_key_alone() {
    for length in [1, 3, 16, 17, 200, 241, KEY_BYTES_MAX] {
        let mut name = vec![0x61; length];
        let own = key(&name);
        for bytes in samples(&own) {
            for bit in 0..length * 8 {
                name[bit / 8] ^= 1 << (bit % 8);
                let got = Record::decode(&key(&name), bytes.clone());
                assert_eq!(got, Err(RecordError::Digest), "bit {bit} of a key of {length}");
                name[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

#[test]
fn headers_out_of_range_are_refused_by_name() {
    let key = key(b"key");
    let refused = |bytes| Record::decode(&key, bytes).unwrap_err();
    assert_eq!(refused(raw(&key, 0, 0, 1, b"", b"")), RecordError::Format(0));
    assert_eq!(refused(raw(&key, 2, 0, 1, b"", b"")), RecordError::Format(2));
    assert_eq!(refused(raw(&key, 1, 8, 1, b"", b"")), RecordError::Header, "an unknown flag");
    assert_eq!(refused(raw(&key, 1, 0, 0, b"", b"")), RecordError::Header, "from = 0");
    assert_eq!(refused(raw(&key, 1, TOMBSTONE, 1, b"", b"x")), RecordError::Header, "a deletion with a value");
    assert_eq!(refused(raw(&key, 1, CONTENT_TYPE, 1, b"\xff", b"")), RecordError::Truncated);
    assert_eq!(refused(Bytes::new()), RecordError::Truncated);
}

#[test]
fn a_content_type_has_up_to_255_bytes() {
    let key = key(b"key");
    for length in [0, 1, CONTENT_TYPE_BYTES_MAX] {
        let content_type = vec![b'c'; length];
        let record = Record::value(&key, version(1), 1, Some(&content_type), b"value");
        let decoded = Record::decode(&key, record.bytes().clone()).unwrap();
        assert_eq!(decoded.content_type(), Some(&content_type[..]));
        assert_eq!(decoded.payload(), "value");
    }
}

#[test]
#[should_panic(expected = "the edge refuses content types over 255 bytes")]
fn a_longer_content_type_is_a_defect_of_the_caller() {
    let _ = Record::value(&key(b"key"), version(1), 1, Some(&[b'c'; CONTENT_TYPE_BYTES_MAX + 1]), b"");
}

#[test]
#[should_panic(expected = "a record is wanted by at least one replica")]
fn a_record_that_nobody_shall_hold_is_a_defect_of_the_caller() {
    let _ = Record::tombstone(&key(b"key"), version(1), 0);
}

#[test]
fn no_record_adds_more_to_its_payload_than_the_stated_overhead() {
    let key = key(b"key");
    let fields = [&[0; 8][..], &[255], &[b'c'; 255]].concat();
    let largest = raw(&key, 1, EXPIRES | CONTENT_TYPE, 1, &fields, b"value");
    assert!(Record::decode(&key, largest.clone()).is_ok());
    assert_eq!(largest.len(), RECORD_OVERHEAD_MAX + 5);
}

#[test]
fn a_tombstone_is_deleted_at_any_time_and_a_value_at_none() {
    let key = key(b"key");
    let (gone, here) = (Record::tombstone(&key, version(1), 2), Record::value(&key, version(1), 2, None, b""));
    for wall_ms in [0, 1, u64::MAX] {
        assert!(gone.is_deleted(|| wall_ms));
        assert!(!here.is_deleted(|| wall_ms));
    }
    assert!(gone.is_tombstone() && gone.payload().is_empty() && gone.content_type().is_none());
}

#[test]
fn an_expired_record_is_deleted_from_its_expiry_on_without_being_a_tombstone() {
    let key = key(b"key");
    let record = Record::decode(&key, raw(&key, 1, EXPIRES, 1, &1000_u64.to_be_bytes(), b"value")).unwrap();
    assert!(!record.is_deleted(|| 999));
    assert!(record.is_deleted(|| 1000));
    assert!(record.is_deleted(|| u64::MAX));
    assert!(!record.is_tombstone());
}

#[test]
fn a_retried_record_differs_in_its_version_alone() {
    let key = key(b"key");
    for bytes in samples(&key) {
        let old = Record::decode(&key, bytes.clone()).unwrap();
        let new = old.with_version(&key, version(99));
        assert_eq!(Record::decode(&key, new.bytes().clone()), Ok(new.clone()), "the digest is right");
        assert_eq!(new.version(), version(99));
        assert_eq!((new.from(), new.is_tombstone()), (old.from(), old.is_tombstone()));
        assert_eq!((new.content_type(), new.payload()), (old.content_type(), old.payload()));
        for wall_ms in [1_699_999_999_999, 1_700_000_000_000] {
            assert_eq!(new.is_deleted(|| wall_ms), old.is_deleted(|| wall_ms), "the expiry stays");
        }
        assert_eq!(new.with_version(&key, version(7)).bytes(), &bytes, "and back");
    }
}

#[test]
fn a_damaged_record_still_claims_its_version() {
    let key = key(b"key");
    for bytes in samples(&key) {
        assert_eq!(Record::claimed_version(&bytes), Some(version(7)));
    }
    let mut damaged = Record::value(&key, version(7), 3, None, b"value").bytes().to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(Record::claimed_version(&damaged), Some(version(7)));
    assert_eq!(Record::claimed_version(&damaged[..10]), None);
    assert_eq!(Record::claimed_version(b""), None);
}

#[test]
fn decoding_and_reading_the_payload_copy_nothing() {
    let key = key(b"key");
    let bytes = Record::value(&key, version(7), 3, None, b"value").bytes().clone();
    let record = Record::decode(&key, bytes.clone()).unwrap();
    assert_eq!(record.bytes().as_ptr(), bytes.as_ptr());
    assert_eq!(record.payload().as_ptr(), bytes[bytes.len() - 5..].as_ptr());
}

proptest! {
    #[test]
    fn any_record_survives_a_round_trip(
        name in proptest::collection::vec(any::<u8>(), 1..=300),
        (hlc, incarnation, from) in (any::<u64>(), any::<u32>(), 1..=u8::MAX),
        content_type in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..=CONTENT_TYPE_BYTES_MAX)),
        payload in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let key = key(&name);
        let version = Version { hlc: Hlc::from_raw(hlc), incarnation: Incarnation(incarnation) };
        let built = Record::value(&key, version, from, content_type.as_deref(), &payload);
        let decoded = Record::decode(&key, built.bytes().clone()).unwrap();
        prop_assert_eq!(&decoded, &built);
        prop_assert_eq!(decoded.version(), version);
        prop_assert_eq!(decoded.from(), from);
        prop_assert_eq!(decoded.content_type(), content_type.as_deref());
        prop_assert_eq!(decoded.payload(), payload);
        prop_assert!(!decoded.is_tombstone());
        let gone = Record::tombstone(&key, version, from);
        prop_assert_eq!(Record::decode(&key, gone.bytes().clone()), Ok(gone));
    }

    #[test]
    fn noise_is_never_a_record(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
        let format_and_noise = [&[1, 0, 1], &noise[..]].concat();
        prop_assert!(Record::decode(&key(b"key"), noise.into()).is_err());
        prop_assert!(Record::decode(&key(b"key"), format_and_noise.into()).is_err());
    }
}
