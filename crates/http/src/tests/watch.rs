#![allow(clippy::unwrap_used)]

use super::*;

fn settings() -> HttpSettings {
    HttpSettings {
        request_read_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(60),
        write_timeout: Duration::from_secs(30),
        ..super::super::tests::settings()
    }
}

fn after(phase: ConnectionPhase, blocked: Option<u64>, seconds: u64) -> Option<Verdict> {
    let since = CoarseClock(Duration::from_secs(100));
    let blocked = blocked.map(|second| CoarseClock(Duration::from_secs(100 + second)));
    overdue(phase, since, blocked, CoarseClock(since.0 + Duration::from_secs(seconds)), &settings())
}

#[test]
fn each_phase_has_its_limit() {
    for (phase, limit, verdict) in [
        (ConnectionPhase::Parked, 60, Verdict::IdleOver),
        (ConnectionPhase::Idle, 2, Verdict::Park),
        (ConnectionPhase::Head, 10, Verdict::TimedOut),
        (ConnectionPhase::Body, 10, Verdict::TimedOut),
        (ConnectionPhase::Closing, 1, Verdict::LingerOver),
    ] {
        assert_eq!(after(phase, None, limit), None, "{phase:?}");
        assert_eq!(after(phase, None, limit + 1), Some(verdict), "{phase:?}");
    }
    assert_eq!(after(ConnectionPhase::Serving, None, 1_000_000), None, "the coordinator has the deadline");
}

#[test]
fn while_the_peer_does_not_read_only_that_counts() {
    for phase in [
        ConnectionPhase::Idle,
        ConnectionPhase::Head,
        ConnectionPhase::Body,
        ConnectionPhase::Serving,
        ConnectionPhase::Closing,
    ] {
        assert_eq!(after(phase, Some(50), 80), None, "{phase:?}");
        assert_eq!(after(phase, Some(50), 81), Some(Verdict::NotReading), "{phase:?}");
    }
}

#[test]
fn progress_makes_an_idle_connection_young_and_a_head_not() {
    let (start, later) = (CoarseClock(Duration::ZERO), CoarseClock(Duration::from_secs(5)));
    let watch = ConnectionWatch::new(start);
    watch.change(ConnectionPhase::Idle);
    watch.blocked(start);
    watch.sent(later);
    assert_eq!((watch.since.get(), watch.blocked_since.get()), (later, None));
    assert!(watch.received(later));
    assert!(!watch.received(CoarseClock(Duration::from_secs(9))));
    watch.sent(CoarseClock(Duration::from_secs(9)));
    assert_eq!(watch.since.get(), later);
}
