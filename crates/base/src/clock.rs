//! The node's hybrid logical clock, and the sources of time that everything else is given.
//!
//! Promises: a timestamp is greater than every timestamp before it, across restarts too, and greater than
//! every version this node has observed. The second part holds up to `skew_max` ahead of the wall clock, and for what a
//! peer's frames show up to a little more than that peer's clock is ahead: a later version does not move it.
//!
//! Across restarts it holds because no timestamp passes the *bound*, a reading that is durable in the
//! store before it is used; a restarted clock begins above it. While the store takes no writes, timestamps
//! may pass it. All carry an incarnation that was drawn for this run alone, so that no version is given
//! twice, whatever a later run issues (`docs/decisions/0016-stamps-without-a-disk.md`).
//!
//! No timestamp is further than `skew_max` ahead of the wall clock: replicas would refuse it, and the clock,
//! which never goes back, would give nothing but such timestamps from then on.

use std::sync::Arc;
use std::time::Duration;

use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::{Hlc, Incarnation, Version};

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A frame of a peer moves the clock no further ahead of the wall clock than the peer's is known to be, and so much.
pub const PEER_AHEAD_MAX_MS: u64 = 5000;

/// Where time comes from: the system's clocks, or a simulator's.
pub trait TimeSource: Send + Sync + 'static {
    /// Milliseconds since 1970, by this machine; may jump.
    fn wall_ms(&self) -> u64;
    /// Time since some fixed moment; never goes back, and runs while the machine is suspended.
    fn boot(&self) -> Duration;
}

/// The operating system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemTime;

impl TimeSource for SystemTime {
    fn wall_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn boot(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}

/// Why there is no timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTimestamp {
    /// It would pass the durable bound: raise that to `needed` at least, then timestamp again.
    PastBound {
        /// The timestamp that could not be given.
        needed: Hlc,
    },
    /// It would be more than `skew_max` ahead of the wall clock.
    TooFarAhead,
}

/// The clock that all shards share.
pub struct Clock {
    time: Arc<dyn TimeSource>,
    /// The last timestamp given or version observed.
    last: AtomicU64,
    /// No timestamp above this; written by the commit thread once it is durable.
    bound: Arc<AtomicU64>,
    skew_max_ms: u64,
    /// Raises of the bound that have waited too long for the disk, and still do.
    late_raises: AtomicUsize,
    /// Of this run, so that also a directory that was put back from a copy timestamps nothing twice.
    incarnation: Incarnation,
}

impl Clock {
    /// Starts above `bound`, the durable bound of the run before.
    #[must_use]
    pub fn new(time: Arc<dyn TimeSource>, bound: Arc<AtomicU64>, skew_max: Duration, incarnation: Incarnation) -> Self {
        let last = AtomicU64::new(bound.load(Ordering::Acquire));
        let skew_max_ms = u64::try_from(skew_max.as_millis()).unwrap_or(u64::MAX);
        Self { time, last, bound, skew_max_ms, late_raises: AtomicUsize::new(0), incarnation }
    }

    /// The wall clock, in milliseconds since 1970.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        self.time.wall_ms()
    }

    /// Time for deadlines: see [`TimeSource::boot`].
    #[must_use]
    pub fn boot(&self) -> Duration {
        self.time.boot()
    }

    /// The source that this clock reads.
    #[must_use]
    pub fn time(&self) -> &Arc<dyn TimeSource> {
        &self.time
    }

    /// A timestamp greater than `above` and than everything timestamped or observed before.
    ///
    /// # Errors
    /// [`NoTimestamp`]; the clock has not moved then.
    pub fn timestamp(&self, above: Hlc) -> Result<Version, NoTimestamp> {
        let bound = Hlc::from_raw(self.bound.load(Ordering::Acquire));
        self.advance(above, bound).map(|hlc| Version { hlc, incarnation: self.incarnation })
    }

    /// A timestamp as [`Clock::timestamp`] gives it, but that it may pass the bound: for a store that takes no writes.
    ///
    /// # Errors
    /// [`NoTimestamp::TooFarAhead`]; the clock has not moved then.
    pub fn timestamp_past_bound(&self, above: Hlc) -> Result<Version, NoTimestamp> {
        let hlc = self.advance(above, Hlc::from_raw(u64::MAX))?;
        Ok(Version { hlc, incarnation: self.incarnation })
    }

    fn advance(&self, above: Hlc, bound: Hlc) -> Result<Hlc, NoTimestamp> {
        let wall_ms = self.time.wall_ms();
        let farthest = wall_ms.saturating_add(self.skew_max_ms);
        // First of all: there may be nothing above it.
        if above.millis() > farthest {
            return Err(NoTimestamp::TooFarAhead);
        }
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let before = if is_on(Mutant::TimestampsRepeat) { Hlc::ZERO } else { Hlc::from_raw(last) };
            let timestamp = before.max(above).tick(wall_ms);
            if timestamp.millis() > farthest {
                return Err(NoTimestamp::TooFarAhead);
            }
            if timestamp > bound {
                return Err(NoTimestamp::PastBound { needed: timestamp });
            }
            match self.last.compare_exchange_weak(last, timestamp.raw(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(timestamp),
                Err(changed) => last = changed,
            }
        }
    }

    /// The least reading that needs the bound raised.
    #[must_use]
    pub fn past_bound(&self) -> Hlc {
        Hlc::from_raw(self.bound.load(Ordering::Acquire)).next()
    }

    /// Moves the clock to what a peer has shown, unless that is further ahead than `skew_max`.
    pub fn observe(&self, seen: Hlc) {
        if seen.raw() > self.last.load(Ordering::Relaxed) && !self.is_too_far_ahead(seen) {
            self.last.fetch_max(seen.raw(), Ordering::Relaxed);
        }
    }

    /// The same for what a peer's frame has shown, whose wall clock is ahead by `offset_ms`: no further than that
    /// clock, and [`PEER_AHEAD_MAX_MS`], although all clocks may differ by `skew_max`. One frame then moves the clock
    /// by little.
    pub fn observe_peer(&self, seen: Hlc, offset_ms: impl FnOnce() -> i64) {
        if seen.raw() <= self.last.load(Ordering::Relaxed) {
            return;
        }
        let ahead = u64::try_from(offset_ms()).unwrap_or(0).saturating_add(PEER_AHEAD_MAX_MS);
        let farthest = self.time.wall_ms().saturating_add(ahead.min(self.skew_max_ms));
        if seen.millis() <= farthest {
            self.last.fetch_max(seen.raw(), Ordering::Relaxed);
        } else if is_on(Mutant::PeersMoveClocks) {
            self.observe(seen);
        }
    }

    /// The reading that goes out with every frame.
    #[must_use]
    pub fn reading(&self) -> Hlc {
        Hlc::from_raw(self.last.load(Ordering::Relaxed))
    }

    /// The clock, brought to the present.
    #[must_use]
    pub fn present(&self) -> Hlc {
        self.observe(Hlc::from_millis(self.wall_ms()));
        self.reading()
    }

    /// What of the reading is durable: the clock after a restart is not behind it. It goes out with answers.
    #[must_use]
    pub fn durable_reading(&self) -> Hlc {
        let bound = if is_on(Mutant::ClockNotDurable) { u64::MAX } else { self.bound.load(Ordering::Acquire) };
        Hlc::from_raw(self.last.load(Ordering::Relaxed).min(bound))
    }

    /// Whether the present is durable: the clock is brought there first. One that nothing has moved for a while may be
    /// far behind its own wall clock.
    #[must_use]
    pub fn is_present_durable(&self) -> bool {
        self.present() <= self.durable_reading()
    }

    /// Whether the clock itself is so far ahead of the wall clock that it gives no timestamps: the wall clock was
    /// set back.
    #[must_use]
    pub fn is_stuck_ahead(&self) -> bool {
        self.is_too_far_ahead(self.reading())
    }

    /// Notes that a raise of the bound waits for longer than its caller, until what this returns is dropped.
    #[must_use]
    pub fn note_late_raise(self: &Arc<Self>) -> LateRaise {
        self.late_raises.fetch_add(1, Ordering::Relaxed);
        LateRaise(self.clone())
    }

    /// Whether the bound cannot be raised in time at present: the disk hangs.
    #[must_use]
    pub fn is_waiting_for_disk(&self) -> bool {
        self.late_raises.load(Ordering::Relaxed) > 0
    }

    /// Whether a version claims to be timestamped more than `skew_max` after now.
    #[must_use]
    pub fn is_too_far_ahead(&self, hlc: Hlc) -> bool {
        hlc.millis() > self.time.wall_ms().saturating_add(self.skew_max_ms)
    }

    /// The most that clocks may differ, in milliseconds.
    #[must_use]
    pub fn skew_max_ms(&self) -> u64 {
        self.skew_max_ms
    }
}

/// A raise of the bound that waits too long.
pub struct LateRaise(Arc<Clock>);

impl Drop for LateRaise {
    fn drop(&mut self) {
        self.0.late_raises.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::*;

    struct Fixed(AtomicU64);
    impl TimeSource for Fixed {
        fn wall_ms(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        fn boot(&self) -> Duration {
            Duration::from_millis(self.wall_ms())
        }
    }

    const INCARNATION: Incarnation = Incarnation(2);

    fn clock(wall_ms: u64, bound_ms: u64) -> (Clock, Arc<Fixed>, Arc<AtomicU64>) {
        let time = Arc::new(Fixed(AtomicU64::new(wall_ms)));
        let bound = Arc::new(AtomicU64::new(Hlc::from_millis(bound_ms).raw()));
        (Clock::new(time.clone(), bound.clone(), Duration::from_secs(60), INCARNATION), time, bound)
    }

    fn millis(timestamp: Result<Version, NoTimestamp>) -> Result<u64, NoTimestamp> {
        timestamp.map(|version| version.hlc.millis())
    }

    #[test]
    fn a_timestamp_never_passes_the_bound() {
        let (clock, _, bound) = clock(1000, 500);
        assert_eq!(clock.timestamp(Hlc::ZERO), Err(NoTimestamp::PastBound { needed: Hlc::from_millis(1000) }));
        bound.store(Hlc::from_millis(2000).raw(), Ordering::Release);
        assert_eq!(millis(clock.timestamp(Hlc::ZERO)), Ok(1000));
    }

    #[test]
    fn the_present_is_what_the_wall_shows_also_of_a_clock_that_nothing_has_moved() {
        let (clock, time, bound) = clock(1000, 500);
        bound.store(Hlc::from_millis(2000).raw(), Ordering::Release);
        assert!(clock.is_present_durable());
        time.0.store(1900, Ordering::Relaxed);
        assert_eq!(clock.durable_reading(), Hlc::from_millis(1000), "it is what goes out until something moves it");
        assert!(clock.is_present_durable());
        assert_eq!(clock.durable_reading(), Hlc::from_millis(1900));
        time.0.store(2100, Ordering::Relaxed);
        assert!(!clock.is_present_durable(), "the bound is below");
    }

    #[test]
    fn timestamps_increase_while_the_wall_goes_back() {
        let (clock, time, bound) = clock(1000, 0);
        bound.store(u64::MAX, Ordering::Release);
        let first = clock.timestamp(Hlc::ZERO).unwrap();
        time.0.store(10, Ordering::Relaxed);
        let second = clock.timestamp(Hlc::ZERO).unwrap();
        assert!(second > first);
        assert!(clock.timestamp(Hlc::from_millis(5000)).unwrap().hlc > Hlc::from_millis(5000));
    }

    #[test]
    fn a_restarted_clock_begins_above_the_bound() {
        let (clock, _, bound) = clock(100, 5000);
        bound.store(u64::MAX, Ordering::Release);
        assert!(clock.timestamp(Hlc::ZERO).unwrap().hlc > Hlc::from_millis(5000));
    }

    #[test]
    fn what_is_durable_of_the_clock_is_not_past_its_bound_and_is_there_after_a_restart() {
        let (clock, time, bound) = clock(1000, 500);
        assert_eq!((clock.present().millis(), clock.durable_reading().millis()), (1000, 500));
        bound.store(Hlc::from_millis(2000).raw(), Ordering::Release);
        assert_eq!(clock.durable_reading().millis(), 1000);
        time.0.store(700, Ordering::Relaxed);
        assert_eq!((clock.present().millis(), clock.durable_reading().millis()), (1000, 1000), "it does not go back");
        let restarted = Clock::new(time, bound, Duration::from_secs(60), INCARNATION);
        assert!(restarted.durable_reading().millis() >= 1000);
    }

    #[test]
    fn a_peer_moves_the_clock_no_further_than_its_own_and_five_seconds() {
        let seen = |offset_ms: i64, ahead_ms: u64| {
            let (clock, _, _) = clock(1000, 0);
            clock.observe_peer(Hlc::from_millis(1000 + ahead_ms), || offset_ms);
            clock.reading() > Hlc::ZERO
        };
        assert_eq!([seen(0, 5000), seen(0, 5001), seen(-9000, 5000), seen(-9000, 5001)], [true, false, true, false]);
        assert_eq!([seen(20_000, 25_000), seen(20_000, 25_001)], [true, false]);
        assert_eq!([seen(59_000, 60_000), seen(59_000, 60_001), seen(i64::MAX, 60_001)], [true, false, false]);
    }

    #[test]
    fn a_reading_beyond_the_allowed_skew_is_not_believed() {
        let (clock, _, bound) = clock(1000, 0);
        bound.store(u64::MAX, Ordering::Release);
        clock.observe(Hlc::from_millis(1000 + 60_001));
        assert_eq!(millis(clock.timestamp(Hlc::ZERO)), Ok(1000));
        clock.observe(Hlc::from_millis(1000 + 60_000));
        assert!(clock.timestamp(Hlc::ZERO).unwrap().hlc > Hlc::from_millis(1000 + 60_000));
    }

    #[test]
    fn a_timestamp_that_replicas_would_refuse_is_not_given_and_does_not_move_the_clock() {
        let (clock, _, bound) = clock(1000, 0);
        let far = Hlc::from_millis(1000 + 60_001);
        // There is none above the last.
        for far in [far, Hlc::from_raw(u64::MAX)] {
            assert_eq!(clock.timestamp(far), Err(NoTimestamp::TooFarAhead), "and asks for no bound up there");
            assert_eq!(clock.timestamp_past_bound(far), Err(NoTimestamp::TooFarAhead));
        }
        bound.store(u64::MAX, Ordering::Release);
        assert_eq!(clock.timestamp(far), Err(NoTimestamp::TooFarAhead));
        assert!(!clock.is_stuck_ahead());
        assert_eq!(millis(clock.timestamp(Hlc::ZERO)), Ok(1000));
    }

    #[test]
    fn a_clock_gives_nothing_while_the_wall_is_set_far_back() {
        let (clock, time, bound) = clock(100_000, 0);
        bound.store(u64::MAX, Ordering::Release);
        clock.timestamp(Hlc::ZERO).unwrap();
        time.0.store(100_000 - 60_001, Ordering::Relaxed);
        assert!(clock.is_stuck_ahead());
        assert_eq!(clock.timestamp(Hlc::ZERO), Err(NoTimestamp::TooFarAhead));
        time.0.store(100_000 - 60_000, Ordering::Relaxed);
        assert!(!clock.is_stuck_ahead());
        clock.timestamp(Hlc::ZERO).unwrap();
    }

    #[test]
    fn every_timestamp_carries_the_incarnation_of_the_run() {
        let (clock, _, bound) = clock(1000, 500);
        assert!(clock.timestamp(Hlc::ZERO).is_err());
        let past = clock.timestamp_past_bound(Hlc::ZERO).unwrap();
        assert_eq!((past.hlc.millis(), past.incarnation), (1000, INCARNATION));
        bound.store(u64::MAX, Ordering::Release);
        let within = clock.timestamp(Hlc::ZERO).unwrap();
        assert_eq!(within.incarnation, INCARNATION);
        assert!(within.hlc > past.hlc);
    }
}
