#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;

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
fn reads_of_a_turn_rank_as_one_and_more_than_that_are_shared_out() {
    let peer = PeerClient::new(NodeId(1));
    let alone = peer.cost();
    (1..READS_TOGETHER).for_each(|_| peer.reads.asked(|| Duration::ZERO));
    assert_eq!(peer.cost(), alone);
    peer.reads.asked(|| Duration::ZERO);
    assert_eq!(peer.cost(), 2 * alone);
}
