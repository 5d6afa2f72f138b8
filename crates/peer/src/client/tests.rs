#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use kvorum_core::Record;

use super::*;

fn key() -> Key {
    Key::new("key".into()).unwrap()
}

#[test]
fn the_back_off_grows_until_a_connection_lasts() {
    let max = RECONNECT_DELAY_MIN * 5;
    let mut back_off = BackOff { next: RECONNECT_DELAY_MIN, max };
    let short = LASTING - Duration::from_millis(1);
    let delays = [Duration::ZERO, short, short, short, short].map(|lived| back_off.after(lived));
    assert_eq!(delays, [1, 2, 4, 5, 5].map(|times| RECONNECT_DELAY_MIN * times));
    assert_eq!(back_off.after(LASTING), RECONNECT_DELAY_MIN);
    assert_eq!(back_off.after(Duration::ZERO), RECONNECT_DELAY_MIN * 2);
}

#[test]
fn what_waits_for_a_dial_is_bounded() {
    let pending = AwaitingDial::default();
    let store = |bytes: usize| {
        let key = key();
        let record = Record::value(&key, kvorum_core::Version::ZERO, 1, None, &vec![0; bytes]);
        let message = Message::Store { key, record: record.bytes().clone(), repair: false, non_voting: false };
        Question { id: 1, epoch: 1, message, asked: Duration::ZERO }
    };
    let bytes_max = 100_000;
    let kept = (0..1000).take_while(|_| pending.push(store(1000), bytes_max).is_ok()).count();
    assert!((50..100).contains(&kept), "{kept}");
    assert_eq!(pending.push(store(1), bytes_max), Err(Failure::Overloaded));
    assert_eq!(pending.take().len(), kept);
    assert_eq!(pending.push(store(1), bytes_max), Ok(()), "there is room again");
}

#[test]
fn reads_of_a_turn_rank_as_one_and_more_than_that_are_shared_out() {
    let dir = tempfile::TempDir::new().unwrap();
    let peer = PeerClient::new(NodeId(1), crate::server::tests::context(&dir, &Rc::default()), None);
    let alone = peer.cost();
    (1..READS_TOGETHER).for_each(|_| peer.reads.asked(|| Duration::ZERO));
    assert_eq!(peer.cost(), alone);
    peer.reads.asked(|| Duration::ZERO);
    assert_eq!(peer.cost(), 2 * alone);
}
