//! Single situations of the chain of layouts. Every order of its messages is in `sim/src/chain.rs`.

#![allow(clippy::unwrap_used, missing_docs)]

use kvorum_core::chain::acceptor::{Acceptor, NoProposal};
use kvorum_core::chain::proposal::ProposalStep;
use kvorum_core::chain::recovery::RecoveryStep;
use kvorum_core::chain::{Ballot, ChainAnswer, ChainRequest, ChainValue, Voter};
use kvorum_core::node::{DirectoryId, NodeId};

/// An epoch, what it follows, and its voters. A voter's directory is its number, and before the first epoch any.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    epoch: u64,
    name: u64,
    parent: u64,
    voters: Vec<u32>,
}

impl ChainValue for Named {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn digest(&self) -> u64 {
        self.name
    }

    fn parent(&self) -> u64 {
        self.parent
    }

    fn voters(&self) -> impl Iterator<Item = Voter> {
        let directory = |of: &u32| (self.epoch > 0).then_some(DirectoryId(u128::from(*of)));
        let voter = move |of: &u32| Voter { member: NodeId(*of), directory: directory(of) };
        self.voters.iter().map(voter)
    }

    fn may_be_followed_by(&self, next: &Self) -> bool {
        next.name != 13
    }
}

fn first() -> Named {
    Named { epoch: 1, name: 10, parent: 0, voters: vec![1, 2, 3] }
}

fn after(parent: &Named, name: u64, voters: &[u32]) -> Named {
    Named { epoch: parent.epoch + 1, name, parent: parent.name, voters: voters.to_vec() }
}

fn member(number: u32) -> Acceptor<Named> {
    Acceptor::new(NodeId(number), DirectoryId(u128::from(number)), first())
}

#[test]
fn two_of_three_choose_and_who_was_away_learns() {
    let (mut one, mut two, mut three) = (member(1), member(2), member(3));
    let wanted = after(&first(), 11, &[1, 2, 3, 4]);
    let mut proposal = one.propose(wanted.clone(), Ballot::NONE).unwrap();
    assert_eq!(proposal.on_answer(NodeId(2), two.answer(proposal.request())), ProposalStep::Send);
    assert_eq!(proposal.on_answer(NodeId(1), one.answer(proposal.request())), ProposalStep::Wait);
    let chosen = proposal.on_answer(NodeId(2), two.answer(proposal.request()));
    assert_eq!(chosen, ProposalStep::Chosen(wanted.clone()));
    assert!(two.learn(wanted.clone()) && !two.learn(wanted.clone()));
    // It proposes on what was, and hears what is.
    let mut late = three.propose(after(&first(), 12, &[1, 2]), Ballot::NONE).unwrap();
    assert_eq!(late.on_answer(NodeId(2), two.answer(late.request())), ProposalStep::Overtaken(wanted.clone()));
    assert_eq!(two.answer(ChainRequest::Get { have: 1 }), ChainAnswer::Chosen(wanted.clone()));
    assert_eq!(two.answer(ChainRequest::Get { have: 2 }), ChainAnswer::Known);
    // A question about the next epoch brings who is behind to the present.
    let mut next = two.propose(after(&wanted, 14, &[1, 2, 3, 4]), Ballot::NONE).unwrap();
    assert_eq!(three.answer(next.request()), ChainAnswer::Promised(None));
    assert_eq!(three.chosen(), &wanted);
    assert_eq!(next.on_answer(NodeId(9), ChainAnswer::Promised(None)), ProposalStep::Wait, "it is none of them");
}

#[test]
fn a_joiner_has_no_vote_before_the_epoch_that_names_it() {
    let second = after(&first(), 11, &[1, 2, 3, 4]);
    let mut joiner = Acceptor::new(NodeId(4), DirectoryId(4), first());
    assert_eq!(joiner.propose(second.clone(), Ballot::NONE).unwrap_err(), NoProposal::NoVoter);
    let ballot = Ballot { counter: 1, directory: DirectoryId(1) };
    assert_eq!(joiner.answer(ChainRequest::Prepare { ballot, parent: first() }), ChainAnswer::NoVoter);
    assert_eq!(joiner.answer(ChainRequest::Accept { ballot, value: second.clone() }), ChainAnswer::NoVoter);
    joiner.learn(second.clone());
    assert!(joiner.may_vote() && joiner.propose(after(&second, 12, &[1, 2, 3, 4]), Ballot::NONE).is_ok());
}

#[test]
fn what_does_not_follow_is_not_accepted() {
    let mut one = member(1);
    let ballot = Ballot { counter: 1, directory: DirectoryId(2) };
    let mut accept = |value: Named| one.answer(ChainRequest::Accept { ballot, value });
    let other = Named { name: 99, ..first() };
    assert_eq!(accept(after(&other, 11, &[1])), ChainAnswer::NotNext, "it follows another value of the first epoch");
    assert_eq!(accept(after(&first(), 13, &[1])), ChainAnswer::NotNext, "no such change");
    assert_eq!(accept(after(&after(&first(), 11, &[1]), 12, &[1])), ChainAnswer::Behind(1));
    assert_eq!(accept(first()), ChainAnswer::Chosen(first()));
    assert_eq!(one.propose(after(&other, 11, &[1]), Ballot::NONE).unwrap_err(), NoProposal::NotNext);
    assert_eq!(one.answer(ChainRequest::Prepare { ballot, parent: other }), ChainAnswer::NotNext);
}

#[test]
fn who_is_outbid_finishes_what_the_other_has_begun() {
    let (mut one, mut two, mut three) = (member(1), member(2), member(3));
    let theirs = after(&first(), 11, &[1, 2, 3]);
    let mut begun = three.propose(theirs.clone(), Ballot::NONE).unwrap();
    assert_eq!(begun.on_answer(NodeId(2), two.answer(begun.request())), ProposalStep::Send);
    assert_eq!(two.answer(begun.request()), ChainAnswer::Accepted, "which the proposer does not hear");
    let own = after(&first(), 12, &[1, 2]);
    let mut outbid = one.propose(own.clone(), Ballot::NONE).unwrap();
    let ProposalStep::Outbid(seen) = outbid.on_answer(NodeId(2), two.answer(outbid.request())) else {
        panic!("its directory comes first");
    };
    let mut again = one.propose(own, seen).unwrap();
    assert_eq!(again.on_answer(NodeId(2), two.answer(again.request())), ProposalStep::Send);
    assert!(matches!(again.request(), ChainRequest::Accept { value, .. } if value == theirs));
}

#[test]
fn too_few_voters_are_named() {
    let mut proposal = member(1).propose(after(&first(), 11, &[1, 2]), Ballot::NONE).unwrap();
    assert_eq!(proposal.on_lost(NodeId(2)), ProposalStep::Wait);
    assert_eq!(proposal.on_lost(NodeId(2)), ProposalStep::Wait, "one is lost once");
    let named = ProposalStep::TooFew(vec![NodeId(2), NodeId(3)]);
    assert_eq!(proposal.on_answer(NodeId(3), ChainAnswer::NoVoter), named);
}

#[test]
fn who_has_lost_its_promises_has_no_vote_though_the_directories_are_not_known_yet() {
    let founding = Named { epoch: 0, ..first() };
    let founder = |number| Acceptor::new(NodeId(number), DirectoryId(u128::from(number)), founding.clone());
    let mut loser = founder(1);
    assert!(loser.may_vote());
    loser.forget(DirectoryId(99));
    assert!(!loser.may_vote());
    assert_eq!(loser.directory(), DirectoryId(99), "no ballot of it is one of before");
    let mut recovery = loser.recover(Ballot::NONE);
    let steps = [2, 3].map(|other| recovery.on_answer(NodeId(other), founder(other).answer(recovery.request())));
    let [RecoveryStep::Wait, RecoveryStep::Restored(restored)] = steps else { panic!("{steps:?}") };
    loser.restore(restored);
    assert!(loser.may_vote());
}

#[test]
fn a_lost_directory_gets_its_vote_back_from_a_majority_of_the_others_and_for_one_epoch() {
    let (mut one, mut two) = (member(1), member(2));
    let theirs = after(&first(), 11, &[1, 2, 3]);
    let mut begun = one.propose(theirs.clone(), Ballot::NONE).unwrap();
    assert_eq!(begun.on_answer(NodeId(2), two.answer(begun.request())), ProposalStep::Send);
    one.answer(begun.request());
    let mut lost = Acceptor::new(NodeId(3), DirectoryId(33), first());
    assert_eq!(lost.answer(begun.request()), ChainAnswer::NoVoter);
    let mut late = lost.recover(Ballot { counter: 7, directory: DirectoryId(1) });
    let mut recovery = late.clone();
    assert_eq!(recovery.on_answer(NodeId(3), ChainAnswer::Promised(None)), RecoveryStep::Wait, "not of itself");
    assert_eq!(recovery.on_answer(NodeId(2), two.answer(recovery.request())), RecoveryStep::Wait);
    let RecoveryStep::Restored(restored) = recovery.on_answer(NodeId(1), one.answer(recovery.request())) else {
        panic!("both of the others have answered");
    };
    lost.restore(restored);
    assert!(lost.may_vote());
    // What begun before is kept out, and what was accepted is told.
    assert!(matches!(lost.answer(begun.request()), ChainAnswer::Refused(ballot) if ballot.counter == 8));
    let ballot = Ballot { counter: 9, directory: DirectoryId(2) };
    let told = lost.answer(ChainRequest::Prepare { ballot, parent: first() });
    assert!(matches!(told, ChainAnswer::Promised(Some((_, value))) if value == theirs));
    // Answers to a question of before take nothing away.
    late.on_answer(NodeId(2), ChainAnswer::Promised(None));
    if let RecoveryStep::Restored(old) = late.on_answer(NodeId(1), ChainAnswer::Promised(None)) {
        lost.restore(old);
    }
    assert!(matches!(lost.answer(begun.request()), ChainAnswer::Refused(ballot) if ballot.counter == 9));
    lost.learn(theirs);
    assert!(!lost.may_vote(), "others than these may have what it promised next");
}
