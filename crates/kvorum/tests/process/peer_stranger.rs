//! Bad peers: strangers, other versions, garbage, frames over the limit. The connection is closed, it is counted,
//! and the node serves on. The test itself plays the third node of a cluster of three.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::BytesMut;
use kvorum_core::frame::{Decoder, Frame, Message};
use kvorum_core::quorum::{Failure, ReadAnswer};

use crate::support::impostor::{Impostor, accept, is_closed};
use crate::support::random::Random;
use crate::support::{SOON, wait_until};

#[test]
fn a_peer_of_another_version_cluster_or_list_is_refused_and_counted() {
    let impostor = Impostor::new();
    let url = impostor.cluster.node(0).url();
    let strange = [
        ("upgrade", "kvorum/1"),
        ("upgrade", "h2c"),
        ("kvorum-cluster", "0123456789abcdef"),
        ("kvorum-cluster", "not a number"),
        ("kvorum-founding", "0123456789abcdef"),
        ("kvorum-epoch", "first"),
        ("kvorum-node", "http://10.1.2.3:4"),
        ("kvorum-node", url.as_str()),
        ("kvorum-node", ""),
        ("kvorum-directory", "zz"),
        ("kvorum-deadline-ms", "-1"),
        ("kvorum-deadline-ms", "99999999"),
        ("kvorum-run", ""),
        ("kvorum-recovered", "1e6"),
    ];
    for change in strange {
        let (mut client, response) = impostor.greet(&[change]);
        assert!((400..500).contains(&response.status), "{change:?}: {response:?}");
        // Whether or not the connection is kept: it is one of a client, not of a peer.
        if client.is_open() {
            assert!(client.send("GET", "/v0/status", &[], None).is_ok_and(|response| response.status == 200));
        }
    }
    let counted = impostor.cluster.metric(0, "kvorum_peer_strangers_total");
    assert!(counted >= 9.0, "{counted} of {} strangers were counted", strange.len());
    impostor.still_serves("after strangers");
}

#[test]
fn a_question_by_a_layout_that_nobody_has_decided_is_refused() {
    let impostor = Impostor::new();
    let epoch = impostor.cluster.client(0).get("/v0/cluster").json()["epoch"].as_u64().unwrap();
    for (asked, expected) in [(epoch, false), (epoch + 1, true), (u64::MAX, true)] {
        let mut stream = impostor.peer();
        stream.write_all(&impostor.question(asked)).unwrap();
        let answer = first_frame(&mut stream).message;
        let is_refused = answer == Message::ReadAnswer(ReadAnswer::Failed(Failure::Epoch));
        assert_eq!(is_refused, expected, "epoch {asked}: {answer:?}");
    }
    impostor.still_serves("after layouts that nobody knows");
}

fn first_frame(stream: &mut TcpStream) -> Frame {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let (mut decoder, mut input, mut bytes) = (Decoder::new(1 << 20, 1 << 20), BytesMut::new(), [0; 4_096]);
    loop {
        if let Some(frame) = decoder.decode(&mut input).unwrap() {
            return frame;
        }
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "it was closed");
        input.extend_from_slice(&bytes[..read]);
    }
}

#[test]
fn the_path_of_peers_is_no_path_for_clients() {
    let impostor = Impostor::new();
    let mut client = impostor.cluster.client(0);
    for method in ["GET", "PUT", "POST"] {
        let response = client.ok(method, "/_peer", Some(b""));
        assert!((400..500).contains(&response.status), "{response:?}");
    }
    assert!(client.is_open());
}

#[test]
fn garbage_from_a_peer_closes_its_connection_and_nothing_else() {
    let impostor = Impostor::new();
    let mut random = Random::new(11);
    let errors = || impostor.cluster.metric(0, "kvorum_peer_protocol_errors_total");
    let before = errors();
    let rounds = 50;
    for _ in 0..rounds {
        let mut stream = impostor.peer();
        let length = 30 + random.below(5_000) as usize;
        let mut bytes = random.bytes(length);
        // A short length, so that the frame is whole and judged; the rest of it is noise.
        bytes[..4].copy_from_slice(&[0, 0, 0, 4]);
        let _closed_early = stream.write_all(&bytes);
        is_closed(&mut stream);
    }
    wait_until("all are counted", || errors() >= before + f64::from(rounds));
    impostor.still_serves("after garbage");
    assert!(impostor.cluster.log(0).to_lowercase().contains("peer connection closed"), "not logged");
}

#[test]
fn a_frame_over_the_limit_is_refused_before_it_is_taken_in() {
    let impostor = Impostor::new();
    for length in [u32::MAX, 1 << 30, 70_000] {
        let mut streams: Vec<TcpStream> = (0..50).map(|_| impostor.peer()).collect();
        for stream in &mut streams {
            let mut header = length.to_be_bytes().to_vec();
            header.extend_from_slice(&[0; 22]);
            let _closed_early = stream.write_all(&header);
            let _closed_early = stream.write_all(&[7; 30_000]);
        }
        streams.iter_mut().for_each(is_closed);
    }
    let peak = impostor.cluster.memory(0, "VmHWM");
    assert!(peak < 192 << 20, "took {} MiB", peak >> 20);
    impostor.still_serves("after long frames");
}

#[test]
fn a_peer_that_says_half_a_frame_and_no_more_disturbs_nobody() {
    let impostor = Impostor::new();
    let mut streams: Vec<TcpStream> = (0..20).map(|_| impostor.peer()).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&[0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0][..number % 12]).unwrap();
    }
    impostor.still_serves("with half frames");
    drop(streams);
    impostor.still_serves("after half frames");
}

#[test]
fn a_peer_that_answers_the_handshake_with_nonsense_counts_for_nothing() {
    let impostor = Impostor::new();
    let answers: [&[u8]; 6] = [
        b"\x00\x01\x02\x03 nonsense",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: kvorum/4\r\nKvorum-Cluster: 0000000000000000\r\n\r\n",
        &[b'x'; 40_000],
        b"",
    ];
    for answer in answers {
        let (mut stream, _) = accept(&impostor.listener);
        let _closed_early = stream.write_all(answer);
        impostor.still_serves("while shaking hands");
        drop(stream);
    }
    let mut client = impostor.cluster.client(0).timeout(Duration::from_secs(20));
    client.get("/v0/entity?id=k&ack=3").problem(504);
}

#[test]
fn a_peer_that_takes_connections_and_says_nothing_costs_nothing() {
    let impostor = Impostor::new();
    let held: Vec<_> = (0..4).map(|_| accept(&impostor.listener)).collect();
    for _ in 0..50 {
        impostor.still_serves("with a mute peer");
    }
    drop(held);
}
