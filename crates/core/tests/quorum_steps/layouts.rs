//! Where the key belongs, epoch by epoch.

use kvorum_core::quorum::step::Groups;
use kvorum_core::quorum::{Quorum, Rank, ReplicaSet, majority};

use crate::chance::Chance;

/// Nodes of a history.
pub const NODES: usize = 5;
/// A key belongs to so many nodes at most.
const COPIES_MAX: u32 = 4;

/// A set of nodes, as bits.
pub type Nodes = u8;

pub fn has(set: Nodes, node: usize) -> bool {
    set >> node & 1 == 1
}

pub fn count(set: Nodes) -> u8 {
    u8::try_from(set.count_ones()).unwrap()
}

/// How many of a set are a majority.
pub fn needed(set: Nodes) -> u8 {
    majority(count(set))
}

/// So many of a set that every majority has one of them.
pub fn cover(set: Nodes) -> u8 {
    count(set) - needed(set) + 1
}

pub fn members(set: Nodes) -> impl Iterator<Item = usize> {
    (0..NODES).filter(move |node| has(set, *node))
}

/// One epoch of the key: where it belongs, and while a step is open where it will belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLayout {
    pub now: Nodes,
    pub next: Option<Nodes>,
}

impl KeyLayout {
    pub fn stable(now: Nodes) -> Self {
        Self { now, next: None }
    }

    /// A step from here: one node is replaced, added or removed, or all may be others.
    pub fn step(self, chance: &mut Chance) -> Option<Self> {
        let (inside, outside): (Vec<usize>, Vec<usize>) = (0..NODES).partition(|node| has(self.now, *node));
        let leaver = 1 << chance.pick(&inside);
        let joiner = 1 << chance.pick(&outside);
        let next = match chance.below(10) {
            0..5 => self.now & !leaver | joiner,
            5..7 => self.now | joiner,
            7..9 => self.now & !leaver,
            _ => Nodes::try_from(1 + chance.below((1 << NODES) - 1)).unwrap(),
        };
        let is_step = next != self.now && next != 0 && next.count_ones() <= COPIES_MAX;
        is_step.then_some(Self { next: Some(next), ..self })
    }

    /// The nodes by rank: those of now, then those of next that are not among them.
    pub fn ranks(self) -> Vec<usize> {
        let next = self.next.unwrap_or_default();
        members(self.now).chain(members(next & !self.now)).collect()
    }

    /// The ranks of next; of now where no step is open.
    pub fn next_ranks(self) -> Box<[Rank]> {
        let next = self.next.unwrap_or(self.now);
        let ranks = (0..).map(Rank).zip(self.ranks());
        ranks.filter(|(_, node)| has(next, *node)).map(|(rank, _)| rank).collect()
    }

    pub fn groups(self) -> Groups {
        Groups::new(ReplicaSet::first(count(self.now)), self.next_ranks().iter().copied().collect())
    }

    /// A majority of where the key belongs. That one of each group is needed is for the machines to know.
    pub fn quorum(self) -> Quorum {
        let from = count(self.now);
        Quorum::new(majority(from), from).unwrap()
    }
}

/// The epoch that opened the step by which this node got the key, as far as epoch `installed` shows; none if the key is
/// elsewhere again.
pub fn gained(chain: &[KeyLayout], installed: usize, node: usize) -> Option<usize> {
    let mut gained = None;
    for (epoch, layout) in chain.iter().enumerate().take(installed + 1) {
        match layout.next {
            Some(next) if has(next & !layout.now, node) => gained = Some(epoch),
            None if !has(layout.now, node) => gained = None,
            _ => {}
        }
    }
    gained
}
