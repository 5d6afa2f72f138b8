#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use kvorum_core::{Hlc, Version};

use super::*;

#[test]
fn answers_of_a_peer_without_a_vote_count_for_nothing() {
    let stored = Message::StoreAnswer(StoreAnswer::Accepted);
    let absent = Message::ReadAnswer(ReadAnswer::Absent { floor: Version::ZERO });
    for answer in [&stored, &absent] {
        assert_eq!(counted(answer.clone(), true), *answer);
    }
    assert_eq!(counted(stored, false), Message::StoreAnswer(StoreAnswer::Failed(Failure::Rebuilding)));
    assert_eq!(counted(absent, false), Message::ReadAnswer(ReadAnswer::Failed(Failure::Rebuilding)));
    let pong = Message::Pong { wall_ms: Hlc::ZERO.raw(), sequence: 0 };
    assert_eq!(counted(pong.clone(), false), pong, "the peer is alive all the same");
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
