//! Which nodes reads ask last: those found lately to lack what they should have had for long, which are back and have
//! not been given yet what they missed; and those that have just come back, which may lack as much and have nothing
//! cached. A read that asks one that is behind finds the answers to differ, and waits for a write-back. So a node is
//! tried by a few reads first, and by twice as many in each step ("slow start", Jacobson 1988): how many are under
//! way when the first of them finds out is how many wait.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_core::node::NodeId;

/// How old a version must be for a replica that lacks it to be behind: one that is younger may be on its way. And
/// for how long such a replica is not tried.
const BEHIND: Duration = Duration::from_secs(1);
/// How long a step is at least, and how many there are: one read until the end of the first, 2,048 until the end of
/// the last. Reads pass them and time without reads does not: what is not cached is not cached after an idle minute.
const STEP: Duration = Duration::from_millis(200);
const STEPS: u32 = 12;

/// How long all answers of a replica may be due until one that is behind is asked instead of it: what the latter was
/// not given the read writes to it, which takes longer than most pauses.
const SILENT: Duration = Duration::from_millis(100);

/// The order in which reads ask replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReplicaHealth {
    Well,
    /// It has been silent for longer than most answers take.
    Slow,
    Behind,
    Silent,
    /// It would not answer, or its answer would not count.
    Out,
}

/// What comes first is asked first: how a replica stands, this node before others, how long it is likely to take.
pub(super) type SelectionCost = (ReplicaHealth, bool, u64);

/// What one shard's reads have found.
#[derive(Default)]
pub(super) struct SlowStart {
    trials: RefCell<BTreeMap<NodeId, Trial>>,
}

#[derive(Clone, Copy)]
struct Trial {
    /// 0 before the first.
    step: u32,
    /// The next begins with the first read after it.
    step_end: Duration,
    /// Reads that have asked it since it was noted.
    asked: u32,
}

impl Trial {
    /// Whether as many reads have asked it as may until the end of this step: none, one, two, four.
    fn is_used_up(&self) -> bool {
        self.asked >= (1 << self.step) / 2
    }
}

impl SlowStart {
    /// Takes note that `node` lacks a version that was timestamped `age` ago.
    pub(super) fn note(&self, node: NodeId, age: Duration, now: Duration) {
        if age >= BEHIND {
            self.begin_trial(node, now + BEHIND);
        }
    }

    /// Tries `node`, which has just come back.
    pub(super) fn note_return(&self, node: NodeId, now: Duration) {
        self.begin_trial(node, now);
    }

    fn begin_trial(&self, node: NodeId, begin: Duration) {
        self.trials.borrow_mut().insert(node, Trial { step: 0, step_end: begin, asked: 0 });
    }

    /// Of a node that answers. `is_overdue` returns whether it has been silent for longer, `delay` is a hedge's.
    pub(super) fn health(
        &self,
        node: NodeId,
        now: Duration,
        delay: Duration,
        is_overdue: impl Fn(Duration) -> bool,
    ) -> ReplicaHealth {
        if is_overdue(delay.max(SILENT)) {
            ReplicaHealth::Silent
        } else if self.contains(node, now) {
            ReplicaHealth::Behind
        } else if is_overdue(delay) {
            ReplicaHealth::Slow
        } else {
            ReplicaHealth::Well
        }
    }

    /// Whether it is not tried yet, or has been by as many reads as may.
    pub(super) fn contains(&self, node: NodeId, now: Duration) -> bool {
        let trials = self.trials.borrow();
        trials.get(&node).is_some_and(|trial| trial.is_used_up() && now < trial.step_end)
    }

    /// Takes note that a read asks it.
    pub(super) fn note_asked(&self, node: NodeId, now: Duration) {
        let mut trials = self.trials.borrow_mut();
        let Some(trial) = trials.get_mut(&node) else { return };
        if trial.is_used_up() && now >= trial.step_end {
            trial.step += 1;
            trial.step_end = now + STEP;
        }
        trial.asked = trial.asked.saturating_add(1);
        if trial.step > STEPS {
            trials.remove(&node);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::coordinator::slow_start::*;

    const NODE: NodeId = NodeId(2);

    /// How many of the reads that come at `now` ask it.
    fn asked(behind: &SlowStart, now: Duration) -> u32 {
        let reads = (0..100_000).take_while(|_| !behind.contains(NODE, now));
        reads.map(|_| behind.note_asked(NODE, now)).count().try_into().unwrap()
    }

    #[test]
    fn behind_is_who_lacks_what_is_old_and_not_for_ever() {
        let behind = SlowStart::default();
        let now = Duration::from_secs(100);
        behind.note(NODE, BEHIND / 2, now);
        assert!(!behind.contains(NODE, now));
        behind.note(NODE, BEHIND, now);
        assert!([0, 1, 3].iter().all(|node| !behind.contains(NodeId(*node), now)));
        assert!(behind.contains(NODE, now) && behind.contains(NODE, now + BEHIND / 2));
        assert!(!behind.contains(NODE, now + BEHIND));
    }

    #[test]
    fn who_is_behind_is_asked_after_who_is_slow_and_before_who_is_silent() {
        let behind = SlowStart::default();
        let (now, delay) = (Duration::from_secs(100), Duration::from_millis(1));
        let health = |silent_for: Duration| behind.health(NODE, now, delay, |after| silent_for > after);
        assert_eq!(
            [Duration::ZERO, SILENT, SILENT * 2].map(health),
            [ReplicaHealth::Well, ReplicaHealth::Slow, ReplicaHealth::Silent]
        );
        behind.note(NODE, BEHIND, now);
        assert_eq!(
            [Duration::ZERO, SILENT, SILENT * 2].map(health),
            [ReplicaHealth::Behind, ReplicaHealth::Behind, ReplicaHealth::Silent]
        );
        assert!(ReplicaHealth::Slow < ReplicaHealth::Behind && ReplicaHealth::Behind < ReplicaHealth::Silent);
    }

    #[test]
    fn who_was_behind_or_away_is_tried_by_few_reads_first() {
        let behind = SlowStart::default();
        let begin = Duration::from_secs(100);
        behind.note_return(NODE, begin);
        // Before there are reads no step is over.
        let begin = begin + BEHIND;
        assert_eq!((0..5).map(|step| asked(&behind, begin + STEP * step)).collect::<Vec<_>>(), [1, 1, 2, 4, 8]);
        for step in 5..STEPS {
            assert_eq!(asked(&behind, begin + STEP * step - Duration::from_millis(1)), 0);
            assert_eq!(asked(&behind, begin + STEP * step), 1 << (step - 1));
        }
        assert_eq!(asked(&behind, begin + STEP * STEPS), 100_000, "all of them");
        behind.note(NODE, BEHIND, begin);
        assert_eq!(asked(&behind, begin + BEHIND - STEP), 0);
        assert_eq!(asked(&behind, begin + BEHIND), 1);
    }
}
