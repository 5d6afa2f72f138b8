//! Models of what a node believes of a peer, explored exhaustively.
//!
//! A node believes what it is answered on a connection that it dialled: what answers at a peer's URL is that peer. It
//! believes nothing that a caller says of itself, since anything may call. So
//!
//! - a node that was called does not remember its caller, and a pong alone does not show that the peer remembers this
//!   node: the pong has a flag for that;
//! - a peer that answers with the memory of an earlier directory, which was made good, remembers this node as well;
//! - a caller that remembers more of this node than there is takes no vote away. It is refused until this node has
//!   dialled that peer itself, and has heard the same.
//!
//! The first model has three nodes, of which one may lose its disk, and be rebuilt, twice: who votes. The second has one node, which may be
//! put back to an older copy of its directory, and a peer: whether the peer counts it. Each rule's removal has to be
//! noticed. The rules are those of `handshake::register_peer`, `server::answer` and `Membership`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{HashSet, VecDeque};

const VOTES_WITHOUT: &str = "a node votes without what a quorum relied on";
const LOSES_ITS_VOTE: &str = "a node that lost nothing has no vote";
const NEVER_VOTES: &str = "a node never votes, with all nodes up";

/// A rule that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removed {
    Nothing,
    /// The accusation of a caller counts.
    OnlyDialledAccusations,
    /// Who a caller says it is, is remembered.
    OnlyDialledIdentities,
    /// A caller's word that it remembers this node counts.
    OnlyDialledMemories,
    /// Every pong counts as one of a peer that remembers this node.
    PongsSaySo,
    /// A new directory votes at once.
    NewWait,
    /// A peer that remembers an earlier directory, which was made good, knows this node.
    MadeGoodIsKnown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Vote {
    Unconfirmed,
    Voting,
    Rebuilding,
}

/// What a node has on disk of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Note {
    directory: u8,
    knows_us: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node<const N: usize> {
    is_up: bool,
    /// Changes with a wipe. Directories of different nodes are different.
    directory: u8,
    /// What earlier directories had acknowledged is here: what is remembered of them is no reproach.
    is_rebuilt: bool,
    notes: [Option<Note>; N],
    vote: Vote,
    /// Peers that this run of the node does not count, because they came back as others.
    suspects: [bool; N],
    /// Connections that this node dialled.
    links: [bool; N],
    /// Of the ghost: a quorum may have relied on this directory.
    relied_on: bool,
    /// Of the ghost: a directory that was relied on is gone.
    lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World<const N: usize> {
    nodes: [Node<N>; N],
    /// How often a disk may still be lost.
    wipes: u8,
}

impl<const N: usize> World<N> {
    /// Of the other nodes.
    const NEEDED: usize = (N - 1) / 2 + 1;
    const QUORUM: usize = N / 2 + 1;

    fn first() -> Self {
        let node = Node {
            is_up: false,
            directory: 0,
            is_rebuilt: false,
            notes: [None; N],
            vote: Vote::Unconfirmed,
            suspects: [false; N],
            links: [false; N],
            relied_on: false,
            lost: false,
        };
        Self { nodes: [node; N], wipes: 2 }
    }

    fn others(node: usize) -> impl Iterator<Item = usize> {
        (0..N).filter(move |other| *other != node)
    }

    /// `one` takes `other` for who it says it is, and what it says that it remembers of `one`.
    fn register(&mut self, one: usize, other: usize, directory: u8, remembers: Option<u8>, removed: Removed) {
        let node = &mut self.nodes[one];
        if remembers.is_some_and(|remembered| remembered != node.directory) && !node.is_rebuilt {
            node.vote = Vote::Rebuilding;
        }
        let is_other = remembers != Some(node.directory);
        let knows_us = remembers.is_some() && !(is_other && removed == Removed::MadeGoodIsKnown);
        let note = node.notes[other].get_or_insert(Note { directory, knows_us: false });
        node.suspects[other] = note.directory != directory;
        note.knows_us |= knows_us && note.directory == directory;
        self.confirm(one, removed);
    }

    fn confirm(&mut self, one: usize, removed: Removed) {
        let node = &mut self.nodes[one];
        let knows_us = |other: &usize| node.notes[*other].is_some_and(|note| note.knows_us);
        let met = Self::others(one).filter(knows_us).count();
        let intact = Self::others(one).filter(knows_us).filter(|other| !node.suspects[*other]).count();
        let is_enough = met >= Self::NEEDED && intact + Self::NEEDED > N - 1;
        if node.vote == Vote::Unconfirmed && (is_enough || removed == Removed::NewWait) {
            node.vote = Vote::Voting;
        }
    }

    fn start(&mut self, one: usize, removed: Removed) {
        let node = &mut self.nodes[one];
        node.is_up = true;
        if node.vote == Vote::Voting {
            node.vote = Vote::Unconfirmed;
        }
        self.confirm(one, removed);
    }

    fn stop(&mut self, one: usize) {
        let node = &mut self.nodes[one];
        (node.is_up, node.suspects, node.links) = (false, [false; N], [false; N]);
        self.nodes.iter_mut().for_each(|node| node.links[one] = false);
    }

    fn wipe(&mut self, one: usize) {
        let node = &mut self.nodes[one];
        let fresh = Self::first().nodes[0];
        *node = Node { directory: node.directory + 1, lost: node.lost || node.relied_on, ..fresh };
        self.wipes -= 1;
    }

    /// `caller` connects. The answer may be lost, and then only the called node knows of it.
    fn dial(&mut self, caller: usize, called: usize, is_answered: bool, removed: Removed) {
        let said = |of: &Self, by: usize, to: usize| {
            (of.nodes[by].directory, of.nodes[by].notes[to].map(|note| note.directory))
        };
        let (request, answer) = (said(self, caller, called), said(self, called, caller));
        self.take_call(called, caller, request, removed);
        if is_answered {
            self.register(caller, called, answer.0, answer.1, removed);
            self.nodes[caller].links[called] = true;
        }
    }

    /// A node is called by what says that it is `caller`, and what it remembers.
    fn take_call(&mut self, called: usize, caller: usize, said: (u8, Option<u8>), removed: Removed) {
        let (directory, remembers) = said;
        match removed {
            Removed::OnlyDialledAccusations => {
                let node = &self.nodes[called];
                if remembers.is_some_and(|remembered| remembered != node.directory) && !node.is_rebuilt {
                    self.nodes[called].vote = Vote::Rebuilding;
                }
            }
            Removed::OnlyDialledIdentities => self.register(called, caller, directory, None, removed),
            Removed::OnlyDialledMemories => {
                let own = self.nodes[called].directory;
                let note = self.nodes[called].notes[caller].as_mut();
                note.into_iter().for_each(|note| note.knows_us |= remembers == Some(own));
                self.confirm(called, removed);
            }
            _ => {}
        }
    }

    /// `one` has a sign of life of `other` on a connection that it dialled.
    fn pong(&mut self, one: usize, other: usize, removed: Removed) {
        let remembered = self.nodes[other].notes[one].map(|note| note.directory);
        let knows_us = remembered == Some(self.nodes[one].directory) || removed == Removed::PongsSaySo;
        let (directory, is_rebuilt) = (self.nodes[other].directory, self.nodes[other].is_rebuilt);
        let is_back = is_rebuilt && self.nodes[other].vote == Vote::Voting;
        let note = self.nodes[one].notes[other].as_mut().expect("who was dialled is remembered");
        note.knows_us |= knows_us;
        if is_back && self.nodes[one].suspects[other] {
            note.directory = directory;
            self.nodes[one].suspects[other] = false;
        }
        self.confirm(one, removed);
    }

    /// A node that rebuilds has got everything back, in a round in which all took part.
    fn restore(&mut self, one: usize) {
        let node = &mut self.nodes[one];
        (node.vote, node.is_rebuilt, node.lost) = (Vote::Voting, true, false);
    }

    /// Which directories a quorum may rely on now: of nodes that count each other's votes.
    fn rely(&mut self) {
        let votes = |node: usize| self.nodes[node].is_up && self.nodes[node].vote == Vote::Voting;
        let counts = |coordinator: usize, replica: usize| {
            votes(replica)
                && (coordinator == replica
                    || self.nodes[coordinator].is_up
                        && self.nodes[coordinator].links[replica]
                        && !self.nodes[coordinator].suspects[replica])
        };
        let mut relied_on = [false; N];
        for coordinator in 0..N {
            let counted: Vec<usize> = (0..N).filter(|replica| counts(coordinator, *replica)).collect();
            if counted.len() >= Self::QUORUM {
                counted.iter().for_each(|replica| relied_on[*replica] = true);
            }
        }
        self.nodes.iter_mut().zip(relied_on).for_each(|(node, relied_on)| node.relied_on |= relied_on);
    }

    /// Every world that one step leads to.
    fn next(self, removed: Removed) -> Vec<Self> {
        let mut worlds = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            let mut world = self;
            change(&mut world);
            world.rely();
            if world != self {
                worlds.push(world);
            }
        };
        for one in 0..N {
            if !self.nodes[one].is_up {
                step(&|world| world.start(one, removed));
                // The nodes are alike: it may be any of them.
                if self.wipes > 0 && one == N - 1 {
                    step(&|world| world.wipe(one));
                }
                continue;
            }
            step(&|world| world.stop(one));
            if self.nodes[one].vote == Vote::Rebuilding && self.nodes.iter().all(|node| node.is_up) {
                step(&|world| world.restore(one));
            }
            for other in Self::others(one) {
                // What was heard and not written down yet is lost with the process.
                step(&|world| {
                    world.nodes[one].notes[other].iter_mut().for_each(|note| note.knows_us = false);
                    world.stop(one);
                });
                for directory in 0..2 {
                    for remembers in [None, Some(0), Some(1)] {
                        step(&|world| world.take_call(one, other, (directory, remembers), removed));
                    }
                }
                if self.nodes[other].is_up {
                    step(&|world| world.dial(one, other, true, removed));
                    step(&|world| world.dial(one, other, false, removed));
                }
                if self.nodes[one].links[other] {
                    step(&|world| world.pong(one, other, removed));
                }
            }
        }
        worlds
    }

    /// What must hold in every world.
    fn check(&self, removed: Removed) -> Result<(), &'static str> {
        if self.nodes.iter().any(|node| node.lost && node.is_up && node.vote == Vote::Voting) {
            return Err(VOTES_WITHOUT);
        }
        if self.nodes.iter().any(|node| node.vote == Vote::Rebuilding && !node.lost && node.directory == 0) {
            return Err(LOSES_ITS_VOTE);
        }
        // Strangers go away, all nodes are up: then each votes, but for one that was wiped and is not rebuilt.
        let mut end = *self;
        (0..N).filter(|node| !self.nodes[*node].is_up).for_each(|node| end.start(node, removed));
        for _ in 0..2 {
            for (one, other) in (0..N).flat_map(|one| Self::others(one).map(move |other| (one, other))) {
                end.dial(one, other, true, removed);
                end.pong(one, other, removed);
            }
        }
        let is_settled = |node: &Node<N>| node.vote == Vote::Voting || (node.directory > 0 && !node.is_rebuilt);
        if !end.nodes.iter().all(is_settled) {
            return Err(NEVER_VOTES);
        }
        Ok(())
    }
}

/// The first world of three nodes that breaks a promise, or how many were looked at.
fn explore(removed: Removed) -> Result<usize, (&'static str, World<3>)> {
    let mut seen = HashSet::from([World::<3>::first()]);
    let mut queue = VecDeque::from([World::<3>::first()]);
    while let Some(world) = queue.pop_front() {
        world.check(removed).map_err(|broken| (broken, world))?;
        queue.extend(world.next(removed).into_iter().filter(|next| seen.insert(*next)));
    }
    Ok(seen.len())
}

/// Of four nodes three are a quorum. One of them, which the other two have never called, loses its disk. Of three nodes
/// each that votes has called both others, and so remembers them; and four are too many to be explored.
fn a_quorum_of_strangers(removed: Removed) -> Result<(), &'static str> {
    let mut world = World::<4>::first();
    (0..4).for_each(|one| world.start(one, removed));
    let introduce = |world: &mut World<4>, one: usize, others: [usize; 2]| {
        for other in others {
            world.dial(one, other, true, removed);
            let own = world.nodes[one].directory;
            world.take_call(one, other, (0, Some(own)), removed);
            world.pong(one, other, removed);
        }
        world.rely();
        world.check(removed)
    };
    introduce(&mut world, 0, [1, 2])?;
    introduce(&mut world, 1, [2, 3])?;
    introduce(&mut world, 2, [1, 3])?;
    world.stop(0);
    world.wipe(0);
    world.start(0, removed);
    introduce(&mut world, 0, [1, 2])
}

#[test]
fn with_every_rule_no_vote_is_wrong_none_is_taken_by_a_stranger_and_all_vote_in_the_end() {
    let worlds = explore(Removed::Nothing).unwrap_or_else(|(broken, world)| panic!("{broken}: {world:#?}"));
    assert!(worlds > 10_000, "only {worlds} worlds");
    assert_eq!(a_quorum_of_strangers(Removed::Nothing), Ok(()));
}

#[test]
fn each_rule_is_needed() {
    for (removed, broken) in [
        (Removed::OnlyDialledAccusations, LOSES_ITS_VOTE),
        (Removed::OnlyDialledIdentities, NEVER_VOTES),
        (Removed::NewWait, VOTES_WITHOUT),
        (Removed::MadeGoodIsKnown, NEVER_VOTES),
    ] {
        let found = explore(removed).map_err(|(broken, _)| broken);
        assert_eq!(found, Err(broken), "{removed:?}");
    }
    for removed in [Removed::OnlyDialledMemories, Removed::PongsSaySo] {
        assert_eq!(a_quorum_of_strangers(removed), Err(VOTES_WITHOUT), "{removed:?}");
    }
}

/// The second model: a node that may go back to an older copy of its directory, and a peer that remembers it.
mod older_copy {
    use std::collections::{HashSet, VecDeque};

    const STORED_MAX: u8 = 3;
    const RUNS_MAX: usize = 4;

    /// A rule that is taken away.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Removed {
        Nothing,
        /// A caller that remembers more than there is gets a connection before this node has dialled it.
        AccusersWait,
        /// What a caller remembers takes the vote away at once.
        OnlyDialledAccusations,
        /// A node does not look at what its peer remembers.
        Accusations,
    }

    /// A run, and how much was there when it began.
    type Run = (u8, u8);

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Disk {
        stored: u8,
        runs: Vec<Run>,
        rebuilding: bool,
    }

    /// The last run that had everything, and how much was there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Memory {
        run: u8,
        sequence: u8,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        disk: Disk,
        node_is_up: bool,
        copy: Option<Disk>,
        copies: u8,
        /// Runs are drawn: never twice, whatever is on the disk.
        next_run: u8,
        peer_is_up: bool,
        memory: Memory,
        memory_on_disk: Memory,
        /// The peer's connection to the node, which it dialled, and whether it counts what comes over it.
        link: Option<bool>,
        /// Of the ghost: the node was put back to its copy.
        went_back: bool,
        /// Of the ghost: it lacks what the peer knows that it had.
        lost: bool,
    }

    impl World {
        fn first() -> Self {
            let nothing = Memory { run: 0, sequence: 0 };
            Self {
                disk: Disk { stored: 0, runs: Vec::new(), rebuilding: false },
                node_is_up: false,
                copy: None,
                copies: 1,
                next_run: 1,
                peer_is_up: false,
                memory: nothing,
                memory_on_disk: nothing,
                link: None,
                went_back: false,
                lost: false,
            }
        }

        fn present(&self) -> Run {
            *self.disk.runs.last().expect("a node that is up has a run")
        }

        /// Whether the node must have lost something, if it is true what the peer is said to remember.
        fn is_accused(&self, memory: Memory, removed: Removed) -> bool {
            let next = self.disk.runs.iter().position(|(id, _)| *id == memory.run).map_or(0, |index| index + 1);
            let missed = self.disk.runs.get(next);
            missed.is_some_and(|(_, recovered)| *recovered < memory.sequence) && removed != Removed::Accusations
        }

        /// The node is called. Whether it serves the caller.
        fn serves(&mut self, memory: Memory, removed: Removed) -> bool {
            let is_accused = self.is_accused(memory, removed);
            if is_accused && removed == Removed::OnlyDialledAccusations {
                self.disk.rebuilding = true;
            }
            !is_accused || self.disk.rebuilding || removed == Removed::AccusersWait
        }

        fn peer_dials(&mut self, removed: Removed) {
            let memory = self.memory;
            if self.serves(memory, removed) {
                let (run, recovered) = self.present();
                let misses = run != memory.run && recovered < memory.sequence;
                self.link = Some(!misses);
            }
        }

        fn node_dials(&mut self, removed: Removed) {
            self.disk.rebuilding |= self.is_accused(self.memory, removed);
        }

        fn pong(&mut self) {
            if self.link == Some(true) {
                let sequence = self.memory.sequence.max(self.disk.stored);
                self.memory = Memory { run: self.present().0, sequence };
            }
        }

        fn next(&self, removed: Removed) -> Vec<Self> {
            let mut worlds = Vec::new();
            let mut step = |change: &dyn Fn(&mut Self)| {
                let mut world = self.clone();
                change(&mut world);
                if world != *self {
                    worlds.push(world);
                }
            };
            if self.node_is_up {
                step(&|world| (world.node_is_up, world.link) = (false, None));
                if self.disk.stored < STORED_MAX {
                    step(&|world| world.disk.stored += 1);
                }
                for run in 0..=self.next_run {
                    let memory = Memory { run, sequence: STORED_MAX };
                    step(&|world| _ = world.serves(memory, removed));
                }
            } else {
                if self.disk.runs.len() < RUNS_MAX && usize::from(self.next_run) <= RUNS_MAX {
                    step(&|world| {
                        world.disk.runs.push((world.next_run, world.disk.stored));
                        (world.next_run, world.node_is_up) = (world.next_run + 1, true);
                    });
                }
                if let Some(copy) = &self.copy {
                    step(&|world| {
                        world.lost |= copy.stored < world.memory.sequence.min(world.memory_on_disk.sequence);
                        (world.disk, world.copy, world.went_back) = (copy.clone(), None, true);
                    });
                }
            }
            if self.copies > 0 {
                step(&|world| (world.copy, world.copies) = (Some(world.disk.clone()), world.copies - 1));
            }
            if self.peer_is_up {
                // What was heard and not written down yet is lost with the process.
                step(&|world| {
                    (world.peer_is_up, world.link, world.memory) = (false, None, world.memory_on_disk);
                });
                step(&|world| world.memory_on_disk = world.memory);
            } else {
                step(&|world| world.peer_is_up = true);
            }
            if self.node_is_up && self.peer_is_up {
                step(&|world| world.peer_dials(removed));
                step(&|world| world.node_dials(removed));
                step(&|world| world.pong());
            }
            worlds
        }

        fn check(&self, removed: Removed) -> Result<(), &'static str> {
            if self.lost && self.link == Some(true) && !self.disk.rebuilding {
                return Err("a node is counted without what its peer knows that it had");
            }
            if self.disk.rebuilding && !self.went_back {
                return Err("a node that lost nothing has no vote");
            }
            // Both up: then the peer has a connection, and a node that lost something is rebuilding.
            if self.node_is_up {
                let mut end = Self { peer_is_up: true, ..self.clone() };
                end.node_dials(removed);
                end.peer_dials(removed);
                if end.link.is_none() {
                    return Err("the peer never gets a connection");
                }
                if end.lost && !end.disk.rebuilding {
                    return Err("a node never learns what it lost");
                }
            }
            Ok(())
        }
    }

    fn explore(removed: Removed) -> Result<usize, (&'static str, World)> {
        let mut seen = HashSet::from([World::first()]);
        let mut queue = VecDeque::from([World::first()]);
        while let Some(world) = queue.pop_front() {
            world.check(removed).map_err(|broken| (broken, world.clone()))?;
            queue.extend(world.next(removed).into_iter().filter(|next| seen.insert(next.clone())));
        }
        Ok(seen.len())
    }

    #[test]
    fn a_node_that_went_back_is_not_counted_and_no_stranger_takes_a_vote() {
        let worlds = explore(Removed::Nothing).unwrap_or_else(|(broken, world)| panic!("{broken}: {world:#?}"));
        assert!(worlds > 1000, "only {worlds} worlds");
    }

    #[test]
    fn each_rule_is_needed() {
        for removed in [Removed::AccusersWait, Removed::OnlyDialledAccusations, Removed::Accusations] {
            assert!(explore(removed).is_err(), "nothing misses {removed:?}");
        }
    }
}
