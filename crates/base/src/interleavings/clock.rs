//! No two timestamps are the same, each is greater than what its shard has seen, and none passes what is durable.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kvorum_core::{Hlc, Incarnation};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use super::check;
use crate::clock::{Clock, NoTimestamp, TimeSource};

struct Stopped;

impl TimeSource for Stopped {
    fn wall_ms(&self) -> u64 {
        1_000
    }
    fn boot(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[test]
fn timestamps_never_repeat_go_up_on_every_shard_and_stay_below_what_is_durable() {
    check(1, || {
        let start = Hlc::from_millis(1_000).raw() + 2;
        let (bound, durable) = (Arc::new(AtomicU64::new(start)), Arc::new(AtomicU64::new(start)));
        let clock = Arc::new(Clock::new(Arc::new(Stopped), Arc::clone(&bound), Duration::from_secs(1), Incarnation(2)));
        let shards: Vec<_> = (0..3)
            .map(|shard: u64| {
                let (clock, durable) = (Arc::clone(&clock), Arc::clone(&durable));
                thread::spawn(move || {
                    let (mut last, mut timestamps) = (Hlc::ZERO, Vec::new());
                    for step in 0..3 {
                        let seen = Hlc::from_raw(start + shard + step);
                        clock.observe(seen);
                        match clock.timestamp(Hlc::ZERO) {
                            Ok(version) => {
                                assert!(version.hlc > seen && version.hlc > last, "not above what was seen");
                                assert!(version.hlc.raw() <= durable.load(Ordering::SeqCst), "past the bound");
                                last = version.hlc;
                                timestamps.push(version.hlc);
                            }
                            Err(NoTimestamp::PastBound { needed }) => assert!(needed > seen),
                            Err(NoTimestamp::TooFarAhead) => panic!("the clock is near the wall clock"),
                        }
                    }
                    timestamps
                })
            })
            .collect();
        // The commit thread: durable first, then known.
        for raise in [4, 100] {
            durable.store(start + raise, Ordering::SeqCst);
            bound.store(start + raise, Ordering::Release);
        }
        let timestamps: Vec<Hlc> = shards.into_iter().flat_map(|shard| shard.join().unwrap()).collect();
        assert_eq!(timestamps.iter().collect::<BTreeSet<_>>().len(), timestamps.len(), "a stamp was given twice");
    });
}
