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
    let watch = ConnectionWatch::new(start, IpAddr::from([127, 0, 0, 1]), SeatKind::Any);
    watch.change(ConnectionPhase::Idle);
    watch.blocked(start);
    watch.sent(1, later);
    assert_eq!((watch.since.get(), watch.blocked_since.get()), (later, None));
    assert!(watch.received(later));
    assert!(!watch.received(CoarseClock(Duration::from_secs(9))));
    watch.sent(1, CoarseClock(Duration::from_secs(9)));
    assert_eq!(watch.since.get(), later);
}

/// Sweeps for so many seconds while the client takes `rate` bytes in each of them and always leaves some; whether it is
/// cut off in that time.
fn is_cut_off(watch: &ConnectionWatch, from: u64, seconds: u64, rate: usize) -> bool {
    let settings = HttpSettings { answer_rate_min: 1000, ..settings() };
    (0..4 * seconds).any(|quarter| {
        let now = CoarseClock(Duration::from_secs(from) + u32::try_from(quarter).unwrap() * SWEEP_EVERY);
        watch.sent(rate / 4, now);
        watch.blocked(now);
        watch.sweep(now, &settings);
        watch.verdict.take() == Some(Verdict::NotReading)
    })
}

#[test]
fn a_reader_below_the_least_rate_is_cut_off() {
    let watch = ConnectionWatch::new(CoarseClock::default(), IpAddr::from([10, 0, 0, 1]), SeatKind::Any);
    watch.change(ConnectionPhase::Serving);
    assert!(!is_cut_off(&watch, 0, 300, 1200), "above the rate");
    assert!(!is_cut_off(&watch, 300, 29, 800), "below it, and not for long");
    watch.change(ConnectionPhase::Idle);
    assert!(watch.received(CoarseClock(Duration::from_secs(400))), "another request");
    watch.change(ConnectionPhase::Serving);
    assert!(!is_cut_off(&watch, 400, 29, 800), "which begins anew");
    assert!(is_cut_off(&watch, 429, 2, 800));
}

#[test]
fn time_in_which_the_client_waits_is_not_counted() {
    let watch = ConnectionWatch::new(CoarseClock::default(), IpAddr::from([10, 0, 0, 1]), SeatKind::Any);
    watch.change(ConnectionPhase::Serving);
    let settings = HttpSettings { answer_rate_min: 1000, ..settings() };
    for second in 0..1000 {
        let now = CoarseClock(Duration::from_secs(second));
        watch.sent(1, now);
        watch.sweep(now, &settings);
        assert_eq!(watch.verdict.take(), None, "{second}");
    }
}
