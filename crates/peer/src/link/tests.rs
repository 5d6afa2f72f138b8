#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use kvorum_core::frame::{CHUNK_BYTES, Decoder, Message, NO_EPOCH};
use kvorum_core::quorum::{Held, ReadAnswer, StoreAnswer};
use kvorum_core::{Hlc, Key};
use tokio::task::LocalSet;

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// Runs `test` as a shard does, with the flusher, within a deadline.
pub(crate) fn run<F: Future<Output = ()>>(test: impl FnOnce(Rc<Flusher>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let flusher = Rc::new(Flusher::default());
        tokio::task::spawn_local(flusher.clone().run());
        tokio::time::timeout(LONG, test(flusher)).await.expect("it ends");
    });
}

/// Two ends of one connection, with their writers.
pub(crate) async fn pair(queue_bytes_max: usize, flusher: &Rc<Flusher>) -> (Rc<Link>, Rc<Link>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let links = [near, far].map(|stream| Link::new(Box::new(stream), queue_bytes_max, flusher.clone()));
    for link in &links {
        tokio::task::spawn_local(link.clone().write_when_blocked());
    }
    let [near, far] = links;
    (near, far)
}

fn frame(id: u64, message: Message) -> Frame {
    Frame { id, epoch: NO_EPOCH, hlc: Hlc::ZERO, message }
}

fn store(id: u64, length: usize) -> Frame {
    let key = Key::new(bytes::Bytes::from_static(b"key")).unwrap();
    frame(id, Message::Store { key, record: vec![id as u8; length].into(), repair: false, non_voting: false })
}

/// The next frames that come over `link`.
pub(crate) async fn receive(link: &Link, decoder: &mut Decoder, count: usize) -> Vec<Frame> {
    let (mut input, mut frames) = (BytesMut::new(), Vec::new());
    while frames.len() < count {
        match decoder.decode(&mut input).unwrap() {
            Some(frame) => frames.push(frame),
            None => assert!(link.read(&mut input).await.unwrap(), "the connection ended"),
        }
    }
    frames
}

#[test]
fn many_large_values_both_ways_stay_within_the_receivers_bound() {
    run(|flusher| async move {
        let (near, far) = pair(usize::MAX, &flusher).await;
        let (count, length) = (40, 10 * CHUNK_BYTES);
        let longest = length + frame::PAYLOAD_OVERHEAD_MAX;
        for id in 0..count {
            near.send(&store(id, length - id as usize), Grouping::Alone).unwrap();
            far.send(
                &frame(id, Message::ReadAnswer(ReadAnswer::Held(Held::Record(vec![1; length].into())))),
                Grouping::Alone,
            )
            .unwrap();
        }
        let small = frame(count, Message::StoreAnswer(StoreAnswer::Accepted));
        far.send(&small, Grouping::Alone).unwrap();
        let mut decoders = [0; 2].map(|_| Decoder::new(longest, longest * INTERLEAVED_MAX));
        let [at_far, at_near] = &mut decoders;
        let (stored, answers) =
            tokio::join!(receive(&far, at_far, count as usize), receive(&near, at_near, count as usize + 1));
        for sent in 0..count {
            assert!(stored.contains(&store(sent, length - sent as usize)));
            assert!(answers.iter().any(|frame| frame.id == sent));
        }
        assert_eq!(answers[0], small, "a small one does not wait for the large ones");
        assert_eq!(decoders.map(|decoder| decoder.partial_bytes()), [0, 0]);
    });
}

#[test]
fn no_more_large_frames_are_begun_than_may_be_under_way_and_none_waits_for_ever() {
    let mut outgoing = Outgoing::default();
    for id in 0..10 {
        let large = frame::encode(&store(id, 5 * CHUNK_BYTES), &mut outgoing.small).unwrap();
        outgoing.large_bytes += large.bytes_left();
        outgoing.large.push_back(large);
    }
    let (mut decoder, mut ended) = (Decoder::new(6 * CHUNK_BYTES, usize::MAX), Vec::new());
    while outgoing.bytes() > 0 {
        outgoing.add_chunks();
        while let Some(frame) = decoder.decode(&mut outgoing.small).unwrap() {
            ended.push(frame.id);
        }
        assert!(decoder.partial_bytes() <= INTERLEAVED_MAX * 5 * CHUNK_BYTES);
        assert_eq!(outgoing.large_bytes, outgoing.large.iter().map(LargeFrame::bytes_left).sum::<usize>());
    }
    // The last two have less company, but none is overtaken by one that began later.
    assert_eq!(ended, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_full_queue_refuses_what_is_sent_and_takes_what_is_answered() {
    run(|flusher| async move {
        let (near, far) = pair(1000, &flusher).await;
        assert!(!near.is_congested());
        near.send(&store(0, 1000), Grouping::Alone).unwrap();
        assert!(near.is_congested());
        assert_eq!(near.send(&store(1, 1), Grouping::Alone), Err(Failure::Overloaded));
        let answer = frame(2, Message::StoreAnswer(StoreAnswer::Accepted));
        near.answer(&answer, Grouping::Alone).unwrap();
        let mut decoder = Decoder::new(11 * CHUNK_BYTES, 11 * CHUNK_BYTES);
        let (received, ()) = tokio::join!(receive(&far, &mut decoder, 2), near.until_uncongested());
        assert_eq!(received, [store(0, 1000), answer]);
        near.send(&store(4, 10 * CHUNK_BYTES), Grouping::Alone).unwrap();
        assert!(near.is_congested());
        near.send(&store(5, 1), Grouping::Alone).expect("large frames are bounded elsewhere");
        assert_eq!(receive(&far, &mut decoder, 2).await, [store(5, 1), store(4, 10 * CHUNK_BYTES)]);
        near.close();
        assert_eq!(near.answer(&store(3, 1), Grouping::Alone), Err(Failure::Unreachable));
        assert_eq!(near.send(&store(3, 1), Grouping::Alone), Err(Failure::Unreachable));
    });
}

#[test]
fn a_turn_with_many_requests_does_not_fill_the_queue_to_a_peer_that_reads() {
    run(|flusher| async move {
        let (near, far) = pair(WRITE_BYTES + 10_000, &flusher).await;
        let frames: Vec<Frame> = (0..130).map(|id| store(id, 1000)).collect();
        // Nothing else has a turn meanwhile.
        frames.iter().for_each(|frame| near.send(frame, Grouping::Alone).unwrap());
        let mut decoder = Decoder::new(CHUNK_BYTES, CHUNK_BYTES);
        assert_eq!(receive(&far, &mut decoder, frames.len()).await, frames);
    });
}

#[test]
fn a_link_is_silent_when_nothing_has_moved_since_it_was_last_asked() {
    run(|flusher| async move {
        let (near, far) = pair(usize::MAX, &flusher).await;
        assert!(!near.is_silent() && !far.is_silent(), "it is new");
        assert!(near.is_silent() && far.is_silent());
        let mut decoder = Decoder::new(CHUNK_BYTES, 0);
        near.send(&store(0, 1), Grouping::Alone).unwrap();
        receive(&far, &mut decoder, 1).await;
        assert!(!near.is_silent(), "it has written");
        assert!(!far.is_silent(), "it has read");
        assert!(near.is_silent() && far.is_silent());
    });
}

#[test]
fn a_silent_link_is_closed_and_wakes_its_reader() {
    run(|flusher| async move {
        let (near, _silent) = pair(usize::MAX, &flusher).await;
        let mut input = BytesMut::new();
        let closing = Link::close_when_silent(Rc::downgrade(&near), Duration::from_millis(1));
        let (was_silent, read) = tokio::join!(closing, near.read(&mut input));
        assert!(was_silent && near.is_closed());
        assert!(!read.unwrap(), "that is its end");
        let gone = Rc::downgrade(&near);
        drop(near);
        assert!(!Link::close_when_silent(gone, LONG).await, "it ended otherwise");
    });
}

#[test]
fn closing_wakes_a_writer_whose_peer_does_not_read() {
    run(|flusher| async move {
        let (near, _unread) = pair(usize::MAX, &flusher).await;
        near.send(&store(0, 64 << 20), Grouping::Alone).unwrap();
        // The flusher has its turn, and cannot write it all.
        while near.queued_bytes() == 64 << 20 {
            tokio::task::yield_now().await;
        }
        near.close();
        while Rc::strong_count(&near) > 1 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn one_buffer_serves_many_small_reads() {
    run(|flusher| async move {
        let (near, far) = pair(usize::MAX, &flusher).await;
        let (mut input, mut decoder) = (BytesMut::new(), Decoder::new(CHUNK_BYTES, 0));
        let mut buffers = std::collections::BTreeSet::new();
        let mut kept = Vec::new();
        for id in 0..100 {
            near.send(&store(id, 100), Grouping::Alone).unwrap();
            let frame = loop {
                match decoder.decode(&mut input).unwrap() {
                    Some(frame) => break frame,
                    None => assert!(far.read(&mut input).await.unwrap()),
                }
            };
            let Message::Store { record, .. } = frame.message else { panic!("a store was sent") };
            buffers.insert(record.as_ptr() as usize / READ_BYTES);
            kept.push(record);
        }
        // 13 kB in all: less than one buffer, which may lie across a boundary.
        assert!(buffers.len() <= 2, "{} buffers for {} records", buffers.len(), kept.len());
    });
}
