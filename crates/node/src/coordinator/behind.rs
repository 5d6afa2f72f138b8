//! Which nodes were found lately to lack what they should have had for long: those that are back and have not
//! been given yet what they missed. A read that asks one finds the answers to differ, and waits for a write-back.

use std::cell::RefCell;
use std::time::Duration;

use kvorum_core::placement::NodeId;

/// How old a version must be for a replica that lacks it to be behind: one that is younger may be on its way. And
/// for how long such a replica counts as behind; then reads try it again.
const BEHIND: Duration = Duration::from_secs(1);

/// What one shard's reads have found.
#[derive(Default)]
pub(super) struct Behind {
    /// By the index of the node; up to the last one that was noted.
    until: RefCell<Vec<Duration>>,
}

impl Behind {
    /// Takes note that `node` lacks a version that was stamped `age` ago.
    pub(super) fn note(&self, node: NodeId, age: Duration, now: Duration) {
        if age < BEHIND {
            return;
        }
        let mut until = self.until.borrow_mut();
        if until.len() <= node.index() {
            until.resize(node.index() + 1, Duration::ZERO);
        }
        if let Some(until) = until.get_mut(node.index()) {
            *until = now + BEHIND;
        }
    }

    /// Whether it shall be asked after those that are not behind.
    pub(super) fn contains(&self, node: NodeId, now: Duration) -> bool {
        self.until.borrow().get(node.index()).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_is_who_lacks_what_is_old_and_not_for_ever() {
        let behind = Behind::default();
        let now = Duration::from_secs(100);
        behind.note(NodeId(2), BEHIND / 2, now);
        assert!(!behind.contains(NodeId(2), now));
        behind.note(NodeId(2), BEHIND, now);
        assert!([0, 1, 3].iter().all(|node| !behind.contains(NodeId(*node), now)));
        assert!(behind.contains(NodeId(2), now) && behind.contains(NodeId(2), now + BEHIND / 2));
        assert!(!behind.contains(NodeId(2), now + BEHIND));
    }
}
