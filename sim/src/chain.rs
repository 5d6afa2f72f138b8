//! Every order of the messages by which members decide their layouts: the production code of [`kvorum_core::chain`],
//! with two proposers, voters that change, lost messages, and directories that are lost.
//!
//! A run visits every state that can be reached from a [`ChainScenario`]'s first one. A request of an attempt can be
//! delivered to any of its voters at any time from when it is sent, often, and also when the attempt is long over; its
//! answer is heard at once or never. That is no loss: an attempt acts on the first majority that it hears, and every set
//! of members comes first in some order. A crash needs no step of its own, since all that a member knows is durable: it
//! is an attempt that is heard of no more.

use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::chain::proposal::{Proposal, ProposalStep};
use kvorum_core::chain::recovery::{Recovery, RecoveryStep};
use kvorum_core::chain::{Ballot, ChainAnswer, ChainRequest, ChainValue, Voter};
use kvorum_core::node::{DirectoryId, NodeId};
use xxhash_rust::xxh3::Xxh3;

const NODES_MAX: usize = 4;

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct ChainScenario {
    /// Members at first, of four nodes.
    pub voters: usize,
    /// Who proposes.
    pub proposers: [usize; 2],
    /// What they want, each of them: a row for each epoch.
    pub changes: &'static [[VoterChange; 2]],
    /// Whether the first change of the first proposer is chosen already, by the first two nodes. The second and the
    /// fourth know that.
    pub is_under_way: bool,
    /// Attempts of proposers.
    pub attempts_max: usize,
    /// Whose directory may be lost, one of these once.
    pub losing: &'static [usize],
    /// Times that it asks the others for its vote.
    pub recoveries_max: usize,
}

/// How a proposer wants the voters to differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoterChange {
    /// The same ones, for another reason.
    None,
    /// This one only.
    Only(usize),
    /// The second in the place of the first.
    Replace(usize, usize),
}

/// What every run of the tests tries.
pub const SCENARIOS: &[ChainScenario] = &[
    // Voters change under two proposers.
    ChainScenario {
        voters: 3,
        proposers: [0, 2],
        changes: &[[VoterChange::Replace(1, 3), VoterChange::None], [VoterChange::None, VoterChange::Only(2)]],
        is_under_way: false,
        attempts_max: 3,
        losing: &[],
        recoveries_max: 0,
    },
    // Among four; one wants to be alone.
    ChainScenario {
        voters: 4,
        proposers: [0, 2],
        changes: &[[VoterChange::Only(0), VoterChange::None]],
        is_under_way: false,
        attempts_max: 2,
        losing: &[],
        recoveries_max: 0,
    },
    // A member loses its directory.
    ChainScenario {
        voters: 3,
        proposers: [0, 2],
        changes: &[[VoterChange::Replace(1, 3), VoterChange::None]],
        is_under_way: false,
        attempts_max: 2,
        losing: &[0, 1, 2],
        recoveries_max: 2,
    },
    // And others than those that decided the epoch before have its promise of the next.
    ChainScenario {
        voters: 3,
        proposers: [0, 3],
        changes: &[[VoterChange::Replace(2, 3), VoterChange::None], [VoterChange::None, VoterChange::None]],
        is_under_way: true,
        attempts_max: 2,
        losing: &[1],
        recoveries_max: 1,
    },
];

/// A layout without anything but its voters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SmallLayout {
    epoch: u64,
    parent: u64,
    proposer: u8,
    voters: [Option<DirectoryId>; NODES_MAX],
}

impl ChainValue for SmallLayout {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn digest(&self) -> u64 {
        let mut hasher = Xxh3::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    fn parent(&self) -> u64 {
        self.parent
    }

    fn voters(&self) -> impl Iterator<Item = Voter> {
        let voters = self.voters.iter().zip(0..);
        voters
            .filter_map(|(directory, member)| directory.map(|of| Voter { member: NodeId(member), directory: Some(of) }))
    }

    fn may_be_followed_by(&self, _: &Self) -> bool {
        true
    }
}

#[derive(Clone, Hash)]
enum AttemptState {
    Proposal(Box<Proposal<SmallLayout>>),
    Recovery(Box<Recovery<SmallLayout>>),
    /// Nothing is heard any more.
    Over,
}

/// Whose requests are on their way for ever.
#[derive(Clone, Hash)]
struct ChainAttempt {
    node: usize,
    state: AttemptState,
    /// Those who are asked.
    asked: Vec<NodeId>,
    /// Both phases' requests, as they are sent.
    sent: Vec<ChainRequest<SmallLayout>>,
    /// How many directories had been lost when it began.
    losses_before: usize,
}

impl ChainAttempt {
    fn proposing(node: usize, proposal: Proposal<SmallLayout>, losses_before: usize) -> Self {
        let (asked, sent) = (proposal.voters().to_vec(), vec![proposal.request()]);
        Self { node, state: AttemptState::Proposal(Box::new(proposal)), asked, sent, losses_before }
    }

    fn recovering(node: usize, recovery: Recovery<SmallLayout>, losses_before: usize) -> Self {
        let (asked, sent) = (recovery.others().to_vec(), vec![recovery.request()]);
        Self { node, state: AttemptState::Recovery(Box::new(recovery)), asked, sent, losses_before }
    }
}

/// What happened, for whoever looks into a violation.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "they are printed")]
enum ChainEvent {
    Learned { node: usize, epoch: u64 },
    Began { node: usize, ballot: u64 },
    Lost { node: usize, knows: usize },
    Recovers { node: usize },
    Delivered { attempt: usize, phase: usize, node: usize, is_heard: bool },
}

#[derive(Clone)]
struct ChainState {
    nodes: Vec<Acceptor<SmallLayout>>,
    directories: Vec<DirectoryId>,
    attempts: Vec<Rc<ChainAttempt>>,
    begun: usize,
    recoveries: usize,
    losses: usize,
    /// The value of each epoch that somebody has seen chosen.
    chosen: Vec<SmallLayout>,
    /// How it came about: no part of the state.
    events: Option<Rc<ChainEvents>>,
}

impl Hash for ChainState {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { nodes, directories, attempts, begun, recoveries, losses, chosen, events: _ } = self;
        (nodes, directories, attempts, begun, recoveries, losses, chosen).hash(hasher);
    }
}

/// The last one, and those before.
struct ChainEvents(ChainEvent, Option<Rc<Self>>);

/// A violation, in words.
type Violation = String;

/// Visits everything: the number of states.
///
/// # Errors
/// The first violation: two values of one epoch, or one that does not follow the one before.
pub fn explore(scenario: &ChainScenario) -> Result<usize, Violation> {
    let mut seen = HashSet::new();
    let mut todo = vec![ChainState::first(scenario)];
    while let Some(state) = todo.pop() {
        let mut next = |state: ChainState| {
            let mut hasher = Xxh3::new();
            state.hash(&mut hasher);
            if seen.insert(hasher.digest128()) {
                todo.push(state);
            }
        };
        state.each_next(scenario, &mut next)?;
    }
    Ok(seen.len())
}

fn drawn(node: usize, life: usize) -> DirectoryId {
    DirectoryId((node * 16 + life + 1) as u128)
}

impl ChainState {
    fn first(scenario: &ChainScenario) -> Self {
        let directories: Vec<_> = (0..NODES_MAX).map(|node| drawn(node, 0)).collect();
        let mut voters = [None; NODES_MAX];
        for (voter, directory) in voters.iter_mut().zip(&directories).take(scenario.voters) {
            *voter = Some(*directory);
        }
        let first = SmallLayout { epoch: 0, parent: 0, proposer: 0, voters };
        let nodes = directories.iter().zip(0..).map(|(of, member)| Acceptor::new(NodeId(member), *of, first)).collect();
        let mut state = Self {
            nodes,
            directories,
            attempts: Vec::new(),
            begun: 0,
            recoveries: 0,
            losses: 0,
            chosen: vec![first],
            events: None,
        };
        if scenario.is_under_way {
            state.go_under_way(scenario);
        }
        state
    }

    fn go_under_way(&mut self, scenario: &ChainScenario) {
        let value = self.wanted(scenario, scenario.proposers[0]).expect("a first change");
        let proposal = self.nodes[0].propose(value, Ballot::NONE).expect("it votes");
        let ChainRequest::Prepare { ballot, .. } = proposal.request() else { return };
        for node in [0, 1] {
            self.nodes[node].answer(proposal.request());
            self.nodes[node].answer(ChainRequest::Accept { ballot, value });
        }
        self.chosen.push(value);
        for node in [1, 3] {
            self.nodes[node].learn(value);
        }
    }

    /// Each state that one step leads to.
    fn each_next(&self, scenario: &ChainScenario, next: &mut dyn FnMut(Self)) -> Result<(), Violation> {
        for node in 0..NODES_MAX {
            for value in self.chosen.iter().skip(1).filter(|value| value.epoch > self.nodes[node].chosen().epoch) {
                let mut state = self.after(ChainEvent::Learned { node, epoch: value.epoch });
                state.nodes[node].learn(*value);
                next(state);
            }
        }
        for proposer in scenario.proposers {
            self.begin(scenario, proposer, next);
        }
        for &node in scenario.losing {
            self.lose(node, next);
            self.recover(scenario, node, next);
        }
        for attempt in 0..self.attempts.len() {
            for phase in 0..self.attempts[attempt].sent.len() {
                for node in 0..NODES_MAX {
                    self.deliver(attempt, phase, node, next)?;
                }
            }
        }
        Ok(())
    }

    /// What a proposer wants, and who votes in it, with the directories that they have now.
    fn wanted(&self, scenario: &ChainScenario, proposer: usize) -> Option<SmallLayout> {
        let parent = self.nodes[proposer].chosen();
        let row = scenario.changes.get(usize::try_from(parent.epoch).ok()?)?;
        let mut voters = parent.voters;
        match row[usize::from(proposer != scenario.proposers[0])] {
            VoterChange::None => {}
            VoterChange::Only(node) => {
                voters = [None; NODES_MAX];
                voters[node] = Some(self.directories[node]);
            }
            VoterChange::Replace(old, new) => {
                voters[old] = None;
                voters[new] = Some(self.directories[new]);
            }
        }
        for (voter, directory) in voters.iter_mut().zip(&self.directories) {
            *voter = voter.map(|_| *directory);
        }
        let proposer = u8::try_from(proposer).ok()?;
        Some(SmallLayout { epoch: parent.epoch + 1, parent: parent.digest(), proposer, voters })
    }

    fn begin(&self, scenario: &ChainScenario, node: usize, next: &mut dyn FnMut(Self)) {
        if self.begun == scenario.attempts_max {
            return;
        }
        let Some(wanted) = self.wanted(scenario, node) else { return };
        // What it knows of others' ballots is what has refused it: the greatest one, or none.
        for seen in BTreeSet::from([Ballot::NONE, self.greatest()]) {
            let mut state = self.after(ChainEvent::Began { node, ballot: seen.counter });
            let Ok(proposal) = state.nodes[node].propose(wanted, seen) else { return };
            state.give_up(node);
            state.begun += 1;
            state.attempts.push(Rc::new(ChainAttempt::proposing(node, proposal, self.losses)));
            next(state);
        }
    }

    /// The greatest ballot of an attempt.
    fn greatest(&self) -> Ballot {
        let sent = self.attempts.iter().flat_map(|attempt| &attempt.sent);
        let ballots = sent.filter_map(|request| match request {
            ChainRequest::Prepare { ballot, .. } | ChainRequest::Accept { ballot, .. } => Some(*ballot),
            ChainRequest::Get { .. } | ChainRequest::Learn { .. } => None,
        });
        ballots.max().unwrap_or(Ballot::NONE)
    }

    /// A node has one attempt at a time.
    fn give_up(&mut self, node: usize) {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.node == node) {
            Rc::make_mut(attempt).state = AttemptState::Over;
        }
    }

    fn lose(&self, node: usize, next: &mut dyn FnMut(Self)) {
        if self.losses > 0 {
            return;
        }
        // It learns where the cluster is from any node.
        for epoch in 0..self.chosen.len() {
            let is_known = |other: usize| other != node && self.nodes[other].chosen() == &self.chosen[epoch];
            if (0..NODES_MAX).any(is_known) {
                let mut state = self.after(ChainEvent::Lost { node, knows: epoch });
                state.losses += 1;
                state.give_up(node);
                state.directories[node] = drawn(node, state.losses);
                let member = NodeId(u32::try_from(node).expect("a small number"));
                state.nodes[node] = Acceptor::new(member, state.directories[node], self.chosen[epoch]);
                next(state);
            }
        }
    }

    /// Begins when each attempt is over that may have asked the lost directory.
    fn recover(&self, scenario: &ChainScenario, node: usize, next: &mut dyn FnMut(Self)) {
        let is_whole = self.directories[node] == drawn(node, 0) || self.nodes[node].may_vote();
        if is_whole || self.recoveries == scenario.recoveries_max {
            return;
        }
        let mut state = self.after(ChainEvent::Recovers { node });
        state.give_up(node);
        state.recoveries += 1;
        for attempt in state.attempts.iter_mut().filter(|attempt| attempt.losses_before < self.losses) {
            Rc::make_mut(attempt).state = AttemptState::Over;
        }
        let recovery = state.nodes[node].recover(self.greatest());
        state.attempts.push(Rc::new(ChainAttempt::recovering(node, recovery, self.losses)));
        next(state);
    }

    fn after(&self, event: ChainEvent) -> Self {
        let mut state = self.clone();
        state.events = Some(Rc::new(ChainEvents(event, self.events.clone())));
        state
    }

    /// What happened, in its order.
    fn told(&self) -> String {
        let all = std::iter::successors(self.events.as_deref(), |events| events.1.as_deref());
        let mut lines: Vec<_> = all.map(|ChainEvents(event, _)| format!("\n{event:?}")).collect();
        lines.reverse();
        lines.concat()
    }

    /// A request reaches a node, whose answer is heard or not. Only agreement is heard: an attempt that hears less may
    /// do whatever one does that has heard a refusal.
    fn deliver(&self, attempt: usize, phase: usize, node: usize, next: &mut dyn FnMut(Self)) -> Result<(), Violation> {
        let ChainAttempt { state, asked, sent, .. } = &*self.attempts[attempt];
        let member = NodeId(u32::try_from(node).expect("a small number"));
        if !asked.contains(&member) {
            return Ok(());
        }
        let mut unheard = self.after(ChainEvent::Delivered { attempt, phase, node, is_heard: false });
        let answer = unheard.nodes[node].answer(sent[phase].clone());
        let agrees = matches!(answer, ChainAnswer::Promised(_) | ChainAnswer::Accepted);
        if agrees && phase + 1 == sent.len() && !matches!(state, AttemptState::Over) {
            let mut heard = self.after(ChainEvent::Delivered { attempt, phase, node, is_heard: true });
            heard.nodes.clone_from(&unheard.nodes);
            heard.hear(attempt, member, answer)?;
            next(heard);
        }
        if unheard.nodes != self.nodes {
            next(unheard);
        }
        Ok(())
    }

    fn hear(&mut self, attempt: usize, from: NodeId, answer: ChainAnswer<SmallLayout>) -> Result<(), Violation> {
        let Self { nodes, attempts, .. } = self;
        let ChainAttempt { node, state, sent, .. } = Rc::make_mut(&mut attempts[attempt]);
        match state {
            AttemptState::Proposal(proposal) => match proposal.on_answer(from, answer) {
                ProposalStep::Send => sent.push(proposal.request()),
                ProposalStep::Chosen(value) => {
                    *state = AttemptState::Over;
                    return self.choose(value);
                }
                _ => {}
            },
            AttemptState::Recovery(recovery) => {
                if let RecoveryStep::Restored(restored) = recovery.on_answer(from, answer) {
                    *state = AttemptState::Over;
                    nodes[*node].restore(restored);
                }
            }
            AttemptState::Over => {}
        }
        Ok(())
    }

    fn choose(&mut self, value: SmallLayout) -> Result<(), Violation> {
        let epoch = usize::try_from(value.epoch).expect("a small number");
        match self.chosen.get(epoch) {
            Some(chosen) if *chosen == value => Ok(()),
            Some(chosen) => Err(format!("one value for each epoch: {chosen:?} and {value:?}:{}", self.told())),
            None if self.chosen.len() == epoch && self.chosen[epoch - 1].digest() == value.parent => {
                self.chosen.push(value);
                Ok(())
            }
            None => Err(format!("each value follows the one before: not {value:?}:{}", self.told())),
        }
    }
}
