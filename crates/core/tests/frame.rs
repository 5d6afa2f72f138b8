//! The frame codec: everything survives a round trip, and nothing damaged becomes a frame.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kvorum_core::backpressure::Backpressure;
use kvorum_core::frame::{
    CHUNK_BYTES, Decoder, Frame, FrameError, HEADER_BYTES, LargeFrame, Message, OpenBundle, PAYLOAD_OVERHEAD_MAX,
    PROOF_BYTES_MAX, encode,
};
use kvorum_core::key::KEY_BYTES_MAX;
use kvorum_core::quorum::{Current, Failure, Held, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::{Hlc, Incarnation, Key, Version};
use proptest::prelude::*;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const MESSAGE_MAX: usize = 1 << 20;

const FAILURES: [Failure; 10] = [
    Failure::Unreachable,
    Failure::Timeout,
    Failure::Overloaded,
    Failure::DiskFull,
    Failure::Disk,
    Failure::Corrupt,
    Failure::Rebuilding,
    Failure::ClockSkew,
    Failure::NotServing,
    Failure::Epoch,
];

fn key(bytes: &[u8]) -> Key {
    Key::new(Bytes::copy_from_slice(bytes)).unwrap()
}

fn version(hlc: u64) -> Version {
    Version { hlc: Hlc::from_raw(hlc), incarnation: Incarnation(0x0102_0304) }
}

fn frame(id: u64, message: Message) -> Frame {
    Frame { id, epoch: 0x0f1e_2d3c_4b5a_6978, hlc: Hlc::from_raw(0x0123_4567_89ab_cdef), message }
}

fn decoder() -> Decoder {
    Decoder::new(MESSAGE_MAX, 2 * MESSAGE_MAX)
}

/// The encoding, with a large message's chunks one after another.
fn encoded(frame: &Frame) -> BytesMut {
    let mut out = BytesMut::new();
    if let Some(mut large) = encode(frame, &mut out) {
        assert!(out.is_empty(), "nothing is appended for a large frame");
        while large.next_chunk(&mut out) {}
    }
    out
}

/// A frame of any content with a right checksum.
fn raw(opcode: u8, flags: u8, payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u32(payload.len() as u32);
    out.put_u64(7);
    out.put_u8(opcode);
    out.put_u8(flags);
    out.put_u64(3);
    out.put_u64(9);
    let sum = xxh3_64_with_seed(&out, xxh3_64(payload));
    out.put_u32(sum as u32);
    out.put_slice(payload);
    out
}

fn refused(mut input: BytesMut) -> FrameError {
    decoder().decode(&mut input).expect_err("must be refused")
}

/// At least one message of every kind and every shape of answer.
fn samples() -> Vec<Message> {
    let record = Bytes::from_static(b"not checked here");
    let mut all = vec![
        Message::Store { key: key(b"k"), record: record.clone(), repair: false, non_voting: false },
        Message::Store { key: key(b"another key"), record: Bytes::new(), repair: true, non_voting: true },
        Message::Read { key: key(b"k"), wanted: Wanted::Record, non_voting: false },
        Message::Read { key: key(&[0xff; 300]), wanted: Wanted::Version, non_voting: true },
        Message::Read { key: key(b"ends"), wanted: Wanted::VersionAtClock, non_voting: false },
        Message::Repair(Bytes::from_static(b"not looked at here")),
        Message::RepairAnswer(Bytes::new()),
        Message::Scan(Bytes::from_static(b"nor here")),
        Message::ScanAnswer(Ok(record.clone())),
        Message::ScanAnswer(Ok(Bytes::new())),
        Message::Layout(Bytes::from_static(b"nor here")),
        Message::LayoutAnswer(Ok(record.clone())),
        Message::StoreAnswer(StoreAnswer::Accepted),
        Message::StoreAnswer(StoreAnswer::Stale(Current::Record(version(5)))),
        Message::StoreAnswer(StoreAnswer::Stale(Current::GcWatermark(version(6)))),
        Message::StoreAnswer(StoreAnswer::StaleUnknown(Current::Record(version(7)))),
        Message::StoreAnswer(StoreAnswer::StaleUnknown(Current::GcWatermark(Version::ZERO))),
        Message::ReadAnswer(ReadAnswer::Held(Held::Record(record))),
        Message::ReadAnswer(ReadAnswer::Held(Held::Record(Bytes::new()))),
        Message::ReadAnswer(ReadAnswer::Version { version: version(8), from: 1 }),
        Message::ReadAnswer(ReadAnswer::Held(Held::Absent { gc_watermark: version(9) })),
        Message::Ping { wall_ms: 0 },
        Message::Proof(vec![7; 64].into()),
        Message::Pong {
            wall_ms: u64::MAX,
            sequence: 7,
            remembers_you: true,
            rebuilt: true,
            epoch: 3,
            backpressure: Backpressure::from_level(5),
        },
    ];
    for failure in FAILURES {
        all.push(Message::StoreAnswer(StoreAnswer::Failed(failure)));
        all.push(Message::ReadAnswer(ReadAnswer::Failed(failure)));
        all.push(Message::ScanAnswer(Err(failure)));
        all.push(Message::LayoutAnswer(Err(failure)));
    }
    all
}

#[test]
fn every_kind_survives_a_round_trip() {
    for message in samples() {
        let sent = frame(3, message);
        let mut input = encoded(&sent);
        assert_eq!(decoder().decode(&mut input), Ok(Some(sent)));
        assert!(input.is_empty());
    }
}

#[test]
fn every_failure_has_a_code_of_its_own() {
    for (code, failure) in FAILURES.into_iter().enumerate() {
        assert_eq!(usize::from(failure.code()), code);
        assert_eq!(Failure::from_code(code as u8), Some(failure));
    }
    for code in FAILURES.len() as u8..=u8::MAX {
        assert_eq!(Failure::from_code(code), None);
    }
}

#[test]
fn frames_one_after_another_come_out_in_order_however_they_are_cut() {
    let sent: Vec<_> = samples().into_iter().zip(0..).map(|(message, id)| frame(id, message)).collect();
    let mut stream = BytesMut::new();
    for frame in &sent {
        assert!(encode(frame, &mut stream).is_none());
    }
    for step in [1, 7, stream.len()] {
        let (mut decoder, mut input, mut got) = (decoder(), BytesMut::new(), Vec::new());
        for piece in stream.chunks(step) {
            input.extend_from_slice(piece);
            while let Some(frame) = decoder.decode(&mut input).unwrap() {
                got.push(frame);
            }
        }
        assert_eq!(got, sent);
        assert!(input.is_empty());
    }
}

#[test]
fn every_truncation_awaits_more() {
    for message in samples() {
        let bytes = encoded(&frame(3, message));
        for end in 0..bytes.len() {
            let mut input = BytesMut::from(&bytes[..end]);
            assert_eq!(decoder().decode(&mut input), Ok(None), "cut at {end}");
            assert_eq!(input.len(), end, "nothing is taken before a frame is whole");
        }
    }
}

#[test]
fn no_flipped_bit_becomes_a_frame() {
    for message in samples() {
        let bytes = encoded(&frame(3, message));
        for bit in 0..bytes.len() * 8 {
            let mut input = bytes.clone();
            input[bit / 8] ^= 1 << (bit % 8);
            let got = decoder().decode(&mut input);
            assert!(matches!(got, Ok(None) | Err(_)), "bit {bit} gave {got:?}");
            // Only a length that became greater can await more, and what comes next is no help.
            if got == Ok(None) {
                assert!(bit < 32);
                input.put_bytes(0, HEADER_BYTES + CHUNK_BYTES);
                assert_eq!(decoder().decode(&mut input), Err(FrameError::Checksum));
            }
        }
    }
}

#[test]
fn no_flipped_bit_of_a_large_message_becomes_a_frame() {
    let record = Bytes::from(vec![0x5a; CHUNK_BYTES + 100]);
    let bytes = encoded(&frame(3, Message::ReadAnswer(ReadAnswer::Held(Held::Record(record)))));
    let second = HEADER_BYTES + CHUNK_BYTES;
    let around_headers = (0..HEADER_BYTES * 8 + 64).chain(second * 8..bytes.len() * 8);
    for bit in around_headers.chain((0..bytes.len() * 8).step_by(997)) {
        let mut input = bytes.clone();
        input[bit / 8] ^= 1 << (bit % 8);
        let got = decoder().decode(&mut input);
        assert!(matches!(got, Ok(None) | Err(_)), "bit {bit} gave {got:?}");
    }
}

#[test]
fn a_length_that_disagrees_with_the_content_is_refused() {
    let record = b"record";
    let mut store = vec![0, 3];
    store.extend_from_slice(b"key");
    store.extend_from_slice(record);
    assert!(decoder().decode(&mut raw(1, 0, &store)).unwrap().is_some(), "the template itself is right");

    store[1] = (3 + record.len() + 1) as u8;
    assert_eq!(refused(raw(1, 0, &store)), FrameError::Payload, "a key longer than the payload");
    store[1] = 0;
    assert_eq!(refused(raw(1, 0, &store)), FrameError::Payload, "an empty key");
    assert_eq!(refused(raw(1, 0, &[0])), FrameError::Payload, "half a length");
    assert_eq!(refused(raw(2, 0, &[])), FrameError::Payload, "an empty key");
    assert_eq!(refused(raw(2, 0, &[b'k'; KEY_BYTES_MAX + 1])), FrameError::Payload, "a key over its limit");
}

#[test]
fn a_payload_that_is_short_or_long_for_its_opcode_is_refused() {
    // Of Read and of whatever carries a record, any length may be right: the digest of the record decides. The messages
    // of anti-entropy and pages of scans are tested elsewhere.
    let fixed = samples().into_iter().filter(|message| {
        !matches!(
            message,
            Message::Store { .. }
                | Message::Read { .. }
                | Message::ReadAnswer(ReadAnswer::Held(Held::Record(_)))
                | Message::Repair(_)
                | Message::RepairAnswer(_)
                | Message::Scan(_)
                | Message::ScanAnswer(Ok(_))
                | Message::Layout(_)
                | Message::LayoutAnswer(Ok(_))
                | Message::Proof(_)
        )
    });
    for message in fixed {
        let bytes = encoded(&frame(3, message));
        let (opcode, payload) = (bytes[12], &bytes[HEADER_BYTES..]);
        for end in 0..payload.len() {
            assert_eq!(refused(raw(opcode, 0, &payload[..end])), FrameError::Payload);
        }
        assert_eq!(refused(raw(opcode, 0, &[payload, &[0]].concat())), FrameError::Payload, "a trailing byte");
    }
}

#[test]
fn fields_out_of_range_are_refused() {
    let zero = [0; Version::BYTES];
    assert_eq!(refused(raw(3, 0, &[4])), FrameError::Payload, "no such store answer");
    assert_eq!(refused(raw(3, 0, &[3, 10])), FrameError::Payload, "no such failure");
    assert_eq!(
        refused(raw(3, 0, &[&[1, 2], &zero[..]].concat())),
        FrameError::Payload,
        "neither record nor gc watermark"
    );
    assert_eq!(refused(raw(4, 0, &[4])), FrameError::Payload, "no such read answer");
    assert_eq!(refused(raw(4, 0, &[3, 10])), FrameError::Payload, "no such failure");
    assert_eq!(refused(raw(4, 0, &[&[1], &zero[..], &[0]].concat())), FrameError::Payload, "from = 0");
    assert_eq!(refused(raw(9, 0, &[7; PROOF_BYTES_MAX + 1])), FrameError::Payload, "longer than two proofs");
}

#[test]
fn unknown_opcodes_and_flags_are_refused() {
    for opcode in (0..=u8::MAX).filter(|opcode| !(1..=14).contains(opcode)) {
        assert_eq!(refused(raw(opcode, 0, b"")), FrameError::Opcode(opcode));
    }
    // MORE is 1, REPAIR, AT_CLOCK and REMEMBERS_YOU 2, VERSION_ONLY 4, UNCOUNTED 8, REBUILT 16, BACKPRESSURE the rest; each
    // belongs to some opcodes.
    let of_opcodes = [11, 14, 0, 1, 0, 0b1111_0010, 0, 0, 0, 0, 0, 1, 1, 1];
    for (opcode, known) in (1..).zip(of_opcodes) {
        for flags in (1..=u8::MAX).filter(|flags| flags & !known != 0) {
            assert_eq!(refused(raw(opcode, flags, b"")), FrameError::Flags(flags));
        }
    }
    assert_eq!(refused(raw(2, 2, b"k")), FrameError::Flags(2), "AT_CLOCK without VERSION_ONLY");
}

#[test]
fn a_length_over_its_limit_is_refused_on_its_header_alone() {
    for (length, payload_bytes_max) in [(CHUNK_BYTES + 1, MESSAGE_MAX), (u32::MAX as usize, MESSAGE_MAX), (101, 100)] {
        let mut input = BytesMut::new();
        input.put_u32(length as u32);
        input.put_bytes(0, HEADER_BYTES - 4);
        let (capacity, mut decoder) = (input.capacity(), Decoder::new(payload_bytes_max, MESSAGE_MAX));
        assert_eq!(decoder.decode(&mut input), Err(FrameError::TooLong));
        assert_eq!(input.capacity(), capacity, "nothing was allocated for it");
    }
}

#[test]
fn a_frame_of_exactly_one_chunk_is_whole_and_a_byte_more_makes_two() {
    for (length, frames) in [(CHUNK_BYTES, 1), (CHUNK_BYTES + 1, 2), (2 * CHUNK_BYTES, 2), (2 * CHUNK_BYTES + 1, 3)] {
        let sent = frame(3, Message::ReadAnswer(ReadAnswer::Held(Held::Record(Bytes::from(vec![7; length - 1])))));
        let mut input = encoded(&sent);
        assert_eq!(input.len(), length + frames * HEADER_BYTES);
        assert_eq!(decoder().decode(&mut input), Ok(Some(sent)));
    }
}

#[test]
fn the_largest_value_with_the_longest_key_fits_the_limit_that_is_made_for_it() {
    let value_bytes_max = 3 * CHUNK_BYTES;
    let key = key(&[b'k'; KEY_BYTES_MAX]);
    let record = kvorum_core::Record::value(&key, version(1), 3, Some(&[b'c'; 255]), &vec![1; value_bytes_max]);
    let sent = frame(1, Message::Store { key, record: record.bytes().clone(), repair: false, non_voting: false });
    let limit = value_bytes_max + PAYLOAD_OVERHEAD_MAX;
    let mut decoder = Decoder::new(limit, limit);
    assert_eq!(decoder.decode(&mut encoded(&sent)), Ok(Some(sent)));
}

#[test]
fn a_small_frame_shares_the_bytes_it_was_read_into() {
    let mut input =
        encoded(&frame(3, Message::ReadAnswer(ReadAnswer::Held(Held::Record(Bytes::from_static(b"record"))))));
    let at = input[HEADER_BYTES + 1..].as_ptr();
    match decoder().decode(&mut input).unwrap().unwrap().message {
        Message::ReadAnswer(ReadAnswer::Held(Held::Record(record))) => assert_eq!(record.as_ptr(), at),
        other => panic!("{other:?}"),
    }
}

fn large(id: u64, fill: u8, length: usize) -> (Frame, LargeFrame) {
    let record = Bytes::from(vec![fill; length]);
    let sent =
        frame(id, Message::Store { key: key(b"large"), record, repair: fill.is_multiple_of(2), non_voting: false });
    let chunks = encode(&sent, &mut BytesMut::new()).expect("it is large");
    (sent, chunks)
}

#[test]
fn small_messages_pass_between_the_interleaved_chunks_of_two_large_ones() {
    let (first, mut first_chunks) = large(1, 1, 5 * CHUNK_BYTES);
    let (second, mut second_chunks) = large(2, 2, 3 * CHUNK_BYTES - 1000);
    let (mut stream, mut expected) = (BytesMut::new(), Vec::new());
    let (mut more_first, mut more_second) = (true, true);
    for id in 100.. {
        if more_first {
            more_first = first_chunks.next_chunk(&mut stream);
            expected.extend((!more_first).then(|| first.clone()));
        }
        let small = frame(id, Message::Ping { wall_ms: id });
        assert!(encode(&small, &mut stream).is_none());
        expected.push(small);
        if more_second {
            more_second = second_chunks.next_chunk(&mut stream);
            expected.extend((!more_second).then(|| second.clone()));
        }
        if !more_first && !more_second {
            break;
        }
    }
    let (mut decoder, mut input, mut got, mut held_max) = (decoder(), BytesMut::new(), Vec::new(), 0);
    for piece in stream.chunks(10_000) {
        input.extend_from_slice(piece);
        while let Some(frame) = decoder.decode(&mut input).unwrap() {
            got.push(frame);
        }
        held_max = held_max.max(decoder.partial_bytes());
    }
    assert_eq!(got, expected);
    assert_eq!(decoder.partial_bytes(), 0, "nothing stays behind");
    assert_eq!(held_max, 5 * CHUNK_BYTES, "three chunks of the first and two of the second");
}

#[test]
fn a_message_over_its_limit_is_refused_at_the_chunk_that_crosses_it() {
    let (_, mut chunks) = large(1, 1, 4 * CHUNK_BYTES);
    let mut decoder = Decoder::new(3 * CHUNK_BYTES, MESSAGE_MAX);
    for _ in 0..3 {
        let mut input = BytesMut::new();
        chunks.next_chunk(&mut input);
        assert_eq!(decoder.decode(&mut input), Ok(None));
    }
    let mut input = BytesMut::new();
    chunks.next_chunk(&mut input);
    assert_eq!(decoder.decode(&mut input), Err(FrameError::TooLong));
    assert_eq!(decoder.partial_bytes(), 3 * CHUNK_BYTES);
}

#[test]
fn unfinished_messages_are_bounded_together() {
    let mut decoder = Decoder::new(MESSAGE_MAX, 4 * CHUNK_BYTES);
    for id in 0..5 {
        let mut input = BytesMut::new();
        large(id, 1, 2 * CHUNK_BYTES).1.next_chunk(&mut input);
        let expected = if id < 4 { Ok(None) } else { Err(FrameError::Unfinished) };
        assert_eq!(decoder.decode(&mut input), expected);
        assert!(decoder.partial_bytes() <= 4 * CHUNK_BYTES);
    }
}

#[test]
fn a_chunk_out_of_place_is_refused() {
    // A message begun with anything but a full chunk could be begun for free, any number of times.
    assert_eq!(refused(raw(1, 1, &[])), FrameError::Chunk);
    assert_eq!(refused(raw(1, 1, &vec![0; CHUNK_BYTES - 1])), FrameError::Chunk);
    // The next chunk has another opcode, another flag, another clock, or nothing in it.
    let begin = raw(1, 1, &vec![0; CHUNK_BYTES]);
    let other_clock =
        encoded(&frame(7, Message::Store { key: key(b"k"), record: Bytes::new(), repair: false, non_voting: false }));
    for next in [raw(4, 0, b"x"), raw(1, 2, b"x"), raw(1, 0, b""), other_clock] {
        let mut input = begin.clone();
        input.unsplit(next);
        assert_eq!(refused(input), FrameError::Chunk);
    }
}

fn any_version() -> impl Strategy<Value = Version> {
    (any::<u64>(), any::<u32>())
        .prop_map(|(hlc, incarnation)| Version { hlc: Hlc::from_raw(hlc), incarnation: Incarnation(incarnation) })
}

fn any_key() -> impl Strategy<Value = Key> {
    prop_oneof![
        9 => proptest::collection::vec(any::<u8>(), 1..100),
        1 => proptest::collection::vec(any::<u8>(), 1..=KEY_BYTES_MAX),
    ]
    .prop_map(|bytes| Key::new(bytes.into()).unwrap())
}

/// Mostly short; sometimes about one, two or three chunks.
fn any_record() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        6 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from),
        1 => (any::<u8>(), 0..3 * CHUNK_BYTES).prop_map(|(fill, length)| Bytes::from(vec![fill; length])),
    ]
}

fn any_wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![Just(Wanted::Record), Just(Wanted::Version), Just(Wanted::VersionAtClock)]
}

fn any_failure() -> impl Strategy<Value = Failure> {
    (0..FAILURES.len()).prop_map(|at| FAILURES[at])
}

fn any_current() -> impl Strategy<Value = Current> {
    prop_oneof![any_version().prop_map(Current::Record), any_version().prop_map(Current::GcWatermark)]
}

fn any_message() -> impl Strategy<Value = Message> {
    let store_answer = prop_oneof![
        Just(StoreAnswer::Accepted),
        any_current().prop_map(StoreAnswer::Stale),
        any_current().prop_map(StoreAnswer::StaleUnknown),
        any_failure().prop_map(StoreAnswer::Failed),
    ];
    let read_answer = prop_oneof![
        any_record().prop_map(|record| ReadAnswer::Held(Held::Record(record))),
        (any_version(), 1..=u8::MAX).prop_map(|(version, from)| ReadAnswer::Version { version, from }),
        any_version().prop_map(|gc_watermark| ReadAnswer::Held(Held::Absent { gc_watermark })),
        any_failure().prop_map(ReadAnswer::Failed),
    ];
    prop_oneof![
        (any_key(), any_record(), any::<(bool, bool)>())
            .prop_map(|(key, record, (repair, non_voting))| { Message::Store { key, record, repair, non_voting } }),
        (any_key(), any_wanted(), any::<bool>()).prop_map(|(key, wanted, non_voting)| Message::Read {
            key,
            wanted,
            non_voting
        }),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Message::Repair(bytes.into())),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Message::RepairAnswer(bytes.into())),
        store_answer.prop_map(Message::StoreAnswer),
        read_answer.prop_map(Message::ReadAnswer),
        any::<u64>().prop_map(|wall_ms| Message::Ping { wall_ms }),
        any::<(u64, u64, u64, bool, bool)>().prop_flat_map(|(wall_ms, sequence, epoch, remembers_you, rebuilt)| {
            (0..8_u8).prop_map(move |level| {
                let backpressure = Backpressure::from_level(level);
                Message::Pong { wall_ms, sequence, remembers_you, rebuilt, epoch, backpressure }
            })
        }),
    ]
}

proptest! {
    #[test]
    fn any_messages_survive_a_round_trip(
        messages in proptest::collection::vec((any_message(), any::<u64>(), any::<(u64, u64)>()), 1..8),
        step in 1..100_000_usize,
    ) {
        let sent: Vec<_> = messages
            .into_iter()
            .map(|(message, id, (epoch, hlc))| Frame { id, epoch, hlc: Hlc::from_raw(hlc), message })
            .collect();
        let mut stream = BytesMut::new();
        for frame in &sent {
            stream.extend_from_slice(&encoded(frame));
        }
        let (mut decoder, mut input, mut got) = (decoder(), BytesMut::new(), Vec::new());
        while stream.has_remaining() {
            input.extend_from_slice(&stream.split_to(step.min(stream.len())));
            while let Some(frame) = decoder.decode(&mut input).unwrap() {
                got.push(frame);
            }
        }
        prop_assert_eq!(got, sent);
        prop_assert_eq!(decoder.partial_bytes(), 0);
    }

    #[test]
    fn noise_is_never_a_frame(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut input = BytesMut::from(&noise[..]);
        prop_assert!(!matches!(decoder().decode(&mut input), Ok(Some(_))));
    }
}

fn bundled(frames: &[Frame]) -> BytesMut {
    let mut out = BytesMut::new();
    let mut bundle = OpenBundle::begin(&mut out);
    for frame in frames {
        assert!(bundle.push(frame, &mut out), "it fits");
    }
    bundle.seal(&mut out);
    out
}

#[test]
fn the_messages_of_a_bundle_arrive_as_if_each_had_a_frame_of_its_own() {
    let small = |message: &Message| {
        let is_bundled = matches!(
            message,
            Message::Store { .. } | Message::Read { .. } | Message::StoreAnswer(_) | Message::ReadAnswer(_)
        );
        is_bundled && encoded(&frame(1, message.clone())).len() < 10_000
    };
    let frames: Vec<Frame> =
        samples().into_iter().filter(small).zip(1..).map(|(message, id)| frame(id, message)).collect();
    assert!(frames.len() > 10);
    let mut input = bundled(&frames);
    input.extend_from_slice(&encoded(&frame(99, Message::Ping { wall_ms: 7 })));
    let mut decoder = Decoder::new(MESSAGE_MAX, MESSAGE_MAX);
    for expected in &frames {
        assert_eq!(decoder.decode(&mut input).unwrap().as_ref(), Some(expected));
        assert!(decoder.is_from_bundle());
    }
    assert_eq!(decoder.decode(&mut input).unwrap().unwrap().id, 99);
    assert!(!decoder.is_from_bundle());
    assert_eq!(decoder.decode(&mut input), Ok(None));
}

#[test]
fn a_bundle_has_the_latest_of_its_clocks() {
    let at = |hlc: u64, id| Frame { hlc: Hlc::from_raw(hlc), ..frame(id, Message::StoreAnswer(StoreAnswer::Accepted)) };
    let mut input = bundled(&[at(7, 1), at(9, 2), at(8, 3)]);
    let mut decoder = Decoder::new(MESSAGE_MAX, MESSAGE_MAX);
    let clocks = std::iter::from_fn(|| decoder.decode(&mut input).unwrap()).map(|frame| frame.hlc.raw());
    assert_eq!(clocks.collect::<Vec<_>>(), [9, 9, 9]);
}

#[test]
fn a_bundle_takes_no_more_than_a_chunk_and_no_long_message() {
    let store = |bytes: usize| {
        frame(1, Message::Store { key: key(b"k"), record: vec![7; bytes].into(), repair: false, non_voting: false })
    };
    let mut out = BytesMut::new();
    let mut bundle = OpenBundle::begin(&mut out);
    assert!(!bundle.push(&store(17_000), &mut out), "too long for any");
    let fits = (0..).take_while(|_| bundle.push(&store(1000), &mut out)).count();
    assert_eq!(fits, CHUNK_BYTES / (1000 + 3 + 14));
    bundle.seal(&mut out);
    assert!(out.len() <= HEADER_BYTES + CHUNK_BYTES);
    let mut decoder = Decoder::new(MESSAGE_MAX, MESSAGE_MAX);
    assert_eq!(std::iter::from_fn(|| decoder.decode(&mut out).unwrap()).count(), fits);
    OpenBundle::begin(&mut out).seal(&mut out);
    assert!(out.is_empty(), "no message, no frame");
}

#[test]
fn what_is_no_message_of_a_bundle_is_refused() {
    let one = |opcode: u8, flags: u8, length: u32, payload: &[u8]| {
        let head = [&7_u64.to_be_bytes()[..], &[opcode, flags], &length.to_be_bytes(), payload].concat();
        refused(raw(10, 0, &head))
    };
    assert_eq!(refused(raw(10, 0, b"")), FrameError::Payload, "no message");
    assert_eq!(one(2, 0, 2, b"k"), FrameError::Payload, "longer than what is there");
    assert_eq!(one(2, 0, 0, b""), FrameError::Payload, "an empty key");
    assert_eq!(one(2, 0, u32::MAX, b"k"), FrameError::TooLong);
    assert_eq!(one(5, 0, 8, &[0; 8]), FrameError::Opcode(5), "a ping goes alone");
    assert_eq!(one(10, 0, 0, b""), FrameError::Opcode(10), "a bundle in a bundle");
    assert_eq!(one(1, 1, 3, b"\0\x01k"), FrameError::Flags(1), "a part of a message");
    let half = [&7_u64.to_be_bytes()[..], &[2]].concat();
    assert_eq!(refused(raw(10, 0, &half)), FrameError::Payload);
}
