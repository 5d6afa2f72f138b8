//! Plans, carried out: what each step may take from a key, what remains of one that is aborted, and what no acceptor
//! lets follow.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use kvorum_core::PartitionId;
use kvorum_core::chain::acceptor::{Acceptor, NoProposal};
use kvorum_core::chain::proposal::ProposalStep;
use kvorum_core::chain::{Ballot, ChainValue};
use kvorum_core::key::PARTITIONS;
use kvorum_core::layout::{
    FoundedCluster, Layout, LayoutPlan, MemberNode, MemberState, PlanError, PreferenceLists, WantedNode, lost_in_a_step,
};
use kvorum_core::node::{DirectoryId, NodeId};
use proptest::prelude::*;

const COPIES: usize = 3;

fn url(number: u32) -> String {
    format!("http://10.0.0.{number}:8080")
}

fn node(number: u32, id: u32) -> MemberNode {
    let (directory, state) = (DirectoryId(u128::from(number) + 1000), MemberState::Member);
    MemberNode { id: NodeId(id), url: url(number), directory, weight: 1, zone: None, state }
}

/// Of nodes that have shown nothing yet.
const FOUNDED: FoundedCluster = FoundedCluster { cluster: 1, hash_seed: 2, copies: 3, directories: BTreeMap::new() };

fn founding(size: u32) -> Layout {
    Layout::founding((0..size).map(|number| WantedNode::at(url(number))).collect()).unwrap()
}

fn cluster(size: u32) -> Layout {
    let founding = founding(size);
    let directories = founding.nodes().iter().map(|of| (of.id, node(of.id.0, of.id.0).directory)).collect();
    founding.found(&FoundedCluster { directories, ..FOUNDED }).unwrap()
}

fn wanted(of: MemberNode, replaces: Option<u32>) -> WantedNode {
    let MemberNode { url, directory, weight, zone, .. } = of;
    WantedNode { url, directory, weight, zone, replaces: replaces.map(NodeId) }
}

/// A plan by which these go and these come.
fn plan(value: &Layout, go: &[u32], come: &[u32]) -> LayoutPlan {
    let stays = value.nodes().iter().filter(|node| !go.contains(&node.id.0)).cloned();
    let comes = come.iter().map(|number| node(*number, 0));
    let nodes: Vec<_> = stays.chain(comes).map(|node| wanted(node, None)).collect();
    value.plan_for(99, &nodes, BTreeSet::new()).unwrap()
}

fn set(list: &[NodeId]) -> BTreeSet<NodeId> {
    list.iter().take(COPIES).copied().collect()
}

/// Most that the set of a partition loses.
fn most_lost(before: &PreferenceLists, after: &PreferenceLists) -> usize {
    let pairs = before.iter().zip(after.iter());
    pairs.map(|(before, after)| set(before).difference(&set(after)).count()).max().unwrap()
}

fn of_lists(value: &PreferenceLists) -> BTreeSet<NodeId> {
    value.nodes()
}

fn with(value: &Layout, state: MemberState) -> BTreeSet<u32> {
    value.nodes().iter().filter(|node| node.state == state).map(|node| node.id.0).collect()
}

/// As it is after it was written and read.
fn read_again(value: &Layout) -> Result<Layout, postcard::Error> {
    postcard::from_bytes(&postcard::to_allocvec(value).unwrap())
}

/// Each value of a plan that is carried out, the first one opened.
fn carried_out(value: &Layout, plan: &LayoutPlan) -> Vec<Layout> {
    let mut values = vec![value.open(plan.clone()).unwrap()];
    while values.last().unwrap().plan().is_some() {
        let last = values.last().unwrap();
        values.push(if last.next_lists().is_some() { last.flip() } else { last.open_next() }.unwrap());
        assert!(values.len() < 20, "it has an end");
    }
    values.iter().for_each(|value| assert_eq!(read_again(value).as_ref(), Ok(value)));
    values
}

#[test]
fn a_plan_takes_no_more_steps_than_it_needs_and_no_set_loses_more_than_a_minority_in_one() {
    // Those that go, those that come, and the steps.
    let cases: &[(u32, &[u32], &[u32], usize)] = &[
        (3, &[], &[3], 1),
        (4, &[1], &[], 1),
        (3, &[1], &[9], 1),
        (3, &[], &[3, 4], 2),
        (5, &[0, 1], &[], 2),
        (3, &[0, 1, 2], &[7, 8, 9], 3),
        (6, &[0], &[7], 1),
    ];
    for &(size, go, come, steps) in cases {
        let before = cluster(size);
        let plan = plan(&before, go, come);
        let values = carried_out(&before, &plan);
        let opened = values.iter().filter(|value| value.next_lists().is_some());
        assert_eq!(opened.clone().count(), steps, "{size} nodes, -{go:?} +{come:?}");
        for value in opened {
            let most = most_lost(value.lists(), value.next_lists().unwrap());
            assert!(most <= lost_in_a_step(COPIES), "{size} nodes, -{go:?} +{come:?}: {most}");
        }
        let (last, ids) = (values.last().unwrap(), plan.nodes.iter().map(|node| node.id).collect::<BTreeSet<_>>());
        assert_eq!((last.lists(), last.nodes()), (&plan.lists, &plan.nodes[..]));
        assert_eq!((of_lists(last.lists()), last.next_lists()), (ids, None));
        // No detour: what a step moves belongs there in the end.
        for (partition, list) in PartitionId::all().zip(before.lists().iter()) {
            let (was, will) = (set(list), set(plan.lists.of(partition)));
            for value in &values {
                let now = set(value.lists().of(partition));
                assert!(
                    now.is_subset(&was.union(&will).copied().collect()),
                    "{now:?} on the way from {was:?} to {will:?}"
                );
            }
        }
    }
}

#[test]
fn each_value_may_follow_the_one_before_and_nothing_else_may() {
    let before = cluster(3);
    let plan = plan(&before, &[0], &[3, 4]);
    let mut last = before.clone();
    for value in carried_out(&before, &plan) {
        assert_eq!((value.epoch(), value.parent()), (last.epoch() + 1, last.digest()));
        assert!(last.may_be_followed_by(&value));
        assert!(!value.may_be_followed_by(&last) && !value.may_be_followed_by(&value));
        let paced = last.with_pace(Some(1 << 20));
        assert!(last.may_be_followed_by(&paced) && paced.digest() != value.digest());
        last = value;
    }
    // What is written by another hand.
    let opened = before.open(plan.clone()).unwrap();
    let nothing_moved = LayoutPlan { lists: before.lists().clone(), nodes: before.nodes().to_vec(), ..plan.clone() };
    assert_eq!(before.open(nothing_moved).unwrap_err(), PlanError::Nothing);
    assert_eq!(opened.open(plan.clone()).unwrap_err(), PlanError::Runs(99));
    let flipped = opened.flip().unwrap();
    assert!(!before.may_be_followed_by(&flipped), "a step is not left out");
    let other = cluster(4);
    assert!(!before.may_be_followed_by(&other.with_pace(None)), "another cluster");
    assert!(opened.open_next().is_none() && before.flip().is_none() && before.abort().is_none());
    for wrong in [
        LayoutPlan { nodes: plan.nodes[..2].to_vec(), ..plan.clone() },
        LayoutPlan {
            nodes: plan.nodes.iter().map(|of| MemberNode { weight: 0, ..of.clone() }).collect(),
            ..plan.clone()
        },
        LayoutPlan {
            nodes: plan.nodes.iter().map(|of| MemberNode { url: url(1), ..of.clone() }).collect(),
            ..plan.clone()
        },
        LayoutPlan { lists: before.lists().clone(), ..plan },
    ] {
        assert!(matches!(before.open(wrong), Err(PlanError::Misfit(_))));
    }
    let mut list: Vec<Vec<NodeId>> = before.lists().clone().into();
    list[5][0] = list[5][1];
    assert!(PreferenceLists::try_from(list.clone()).is_err(), "a node is twice in a list");
    list.pop();
    assert!(PreferenceLists::try_from(list).is_err());
}

#[test]
fn an_abort_leaves_keys_where_they_are_and_numbers_are_not_given_twice() {
    let before = cluster(3);
    let plan = plan(&before, &[0], &[3, 4]);
    let opened = before.open(plan).unwrap();
    assert_eq!(with(&opened, MemberState::Joining), BTreeSet::from([3, 4]));
    assert_eq!(with(&opened, MemberState::Leaving), BTreeSet::from([0]));
    assert_eq!(opened.voters().map(|voter| voter.member.0).collect::<Vec<_>>(), [0, 1, 2], "a joiner decides nothing");
    let aborted = opened.abort().unwrap();
    assert_eq!((aborted.lists(), aborted.nodes()), (before.lists(), before.nodes()));
    assert_eq!(aborted.next_id(), 5);
    let reused = MemberNode { id: NodeId(3), ..node(8, 3) };
    let nodes: Vec<_> = aborted.nodes().iter().cloned().chain([reused]).collect();
    let again = LayoutPlan { id: 100, lists: cluster(4).lists().clone(), nodes, lost: BTreeSet::new() };
    assert!(matches!(aborted.open(again), Err(PlanError::Misfit(_))));
    // Behind a flip, those that have come have come.
    let flipped = opened.flip().unwrap();
    let aborted = flipped.abort().unwrap();
    assert_eq!(with(&aborted, MemberState::Member), BTreeSet::from([0, 1, 2, 3, 4]));
    assert_eq!((aborted.lists(), aborted.plan()), (flipped.lists(), None));
    assert!(flipped.may_be_followed_by(&aborted) && opened.may_be_followed_by(&opened.abort().unwrap()));
}

#[test]
fn nodes_that_make_no_layout_are_refused() {
    let before = cluster(3);
    let here: Vec<_> = before.nodes().iter().cloned().map(|node| wanted(node, None)).collect();
    let refused = |nodes: &[WantedNode], why: &str| {
        let error = before.plan_for(1, nodes, BTreeSet::new()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&[&here[..], &here[..1]].concat(), "one URL or directory");
    refused(&[&here[..], &[wanted(MemberNode { url: url(1), ..node(9, 0) }, None)]].concat(), "one URL or directory");
    refused(&[&here[..], &[wanted(MemberNode { weight: 0, ..node(9, 0) }, None)]].concat(), "the weight 0");
    refused(&(0..200).map(|number| wanted(node(number, 0), None)).collect::<Vec<_>>(), "too many");
    let opened = before.open(plan(&before, &[], &[3])).unwrap();
    assert_eq!(opened.plan_for(1, &here, BTreeSet::new()).unwrap_err(), PlanError::Runs(99));
    assert!(matches!(before.open(plan(&before, &[0], &[])), Err(PlanError::Misfit(why)) if why.contains("copies")));
}

#[test]
fn another_directory_is_named_and_a_joiner_with_one_begins_anew() {
    let before = cluster(3);
    let opened = before.open(plan(&before, &[0], &[3])).unwrap();
    let other = DirectoryId(7);
    let renewed = opened.with_directory(NodeId(1), other).unwrap();
    let reopened = opened.with_directory(NodeId(3), other).unwrap();
    for (value, id) in [(&renewed, 1), (&reopened, 3)] {
        assert!(opened.may_be_followed_by(value));
        let ended = value.flip().unwrap();
        let named = ended.nodes().iter().find(|node| node.id.0 == id).unwrap();
        assert_eq!((named.directory, ended.plan()), (other, None));
    }
    assert_eq!((renewed.opened(), reopened.opened()), (opened.epoch(), reopened.epoch()));
    assert!(opened.with_directory(NodeId(1), DirectoryId(1002)).is_none(), "another node has it");
    assert!(opened.with_directory(NodeId(9), other).is_none());
    let lost = LayoutPlan { lost: BTreeSet::from([NodeId(0)]), ..plan(&before, &[0], &[3]) };
    let opened = before.open(lost).unwrap();
    assert_eq!(with(&opened, MemberState::Lost), BTreeSet::from([0]));
    assert!(opened.with_directory(NodeId(0), other).is_none(), "it will not come back");
    assert_eq!(opened.voters().count(), 3, "a majority of those that were");
}

#[test]
fn a_node_in_the_place_of_another_has_its_share_and_nothing_else_moves() {
    let before = cluster(5);
    let mut nodes: Vec<_> = before.nodes().iter().cloned().map(|node| wanted(node, None)).collect();
    // A new machine at the old one's URL is another node.
    nodes[2] = wanted(MemberNode { url: url(2), ..node(9, 0) }, Some(2));
    let plan = before.plan_for(1, &nodes, BTreeSet::from([NodeId(2)])).unwrap();
    let heir = |id: &NodeId| if id.0 == 2 { NodeId(5) } else { *id };
    let inherited: Vec<Vec<_>> = before.lists().iter().map(|list| list.iter().map(heir).collect()).collect();
    assert_eq!(Vec::from(plan.lists.clone()), inherited);
    let opened = before.open(plan).unwrap_err();
    assert!(
        matches!(opened, PlanError::Misfit(why) if why.contains("URL")),
        "not while the old one is named: {opened}"
    );
    nodes[2].url = url(9);
    assert!(before.open(before.plan_for(1, &nodes, BTreeSet::new()).unwrap()).is_ok());
    // It is there already, two replace one, and one that stays is replaced.
    for (place, old) in [(1, 2), (1, 0), (2, 0), (2, 7)] {
        let mut wrong = nodes.clone();
        wrong[place].replaces = Some(NodeId(old));
        let refused = before.plan_for(1, &wrong, BTreeSet::new()).unwrap_err();
        assert_eq!(refused, PlanError::Replacement(NodeId(old)), "{place} in the place of {old}");
    }
}

#[test]
fn a_plan_moves_at_most_a_tenth_more_than_it_must() {
    for (size, go, come, ideal) in
        [(8, vec![], vec![20], 1.0 / 9.0), (9, vec![4], vec![], 1.0 / 9.0), (3, vec![], vec![20, 21], 0.4)]
    {
        let before = cluster(size);
        let plan = plan(&before, &go, &come);
        let pairs = before.lists().iter().zip(plan.lists.iter());
        let moved: usize = pairs.map(|(was, will)| set(will).difference(&set(was)).count()).sum();
        let all = PARTITIONS * COPIES;
        let share = f64::from(u32::try_from(moved).unwrap()) / f64::from(u32::try_from(all).unwrap());
        assert!(share <= 1.1 * ideal, "{size} nodes, -{go:?} +{come:?}: {share}");
    }
}

#[test]
fn a_cluster_is_founded_with_the_directories_of_a_majority() {
    let founding = founding(3);
    assert_eq!(founding.epoch(), 0);
    assert!(founding.voters().all(|voter| voter.directory.is_none()), "nothing is known of directories");
    let directory = |number: u32| (NodeId(number), node(number, number).directory);
    let named = |numbers: &[u32]| numbers.iter().copied().map(directory).collect::<BTreeMap<_, _>>();
    let found = |directories| founding.found(&FoundedCluster { directories, ..FOUNDED });
    let founded = found(named(&[0, 2])).unwrap();
    assert_eq!((founded.epoch(), founded.cluster(), founded.copies()), (1, 1, 3));
    assert!(founding.may_be_followed_by(&founded));
    assert_eq!(founded.lists(), founding.lists());
    let votes = |number: u32| founded.voters().any(|voter| voter.directory == Some(directory(number).1));
    assert_eq!([0, 1, 2].map(votes), [true, false, true], "what is not named does not vote");
    assert_eq!(founded.voters().count(), 3, "but counts among the voters");
    // A node that was away is named when it is back.
    let (away, of_away) = directory(1);
    let renewed = founded.with_directory(away, of_away).unwrap();
    assert!(founded.may_be_followed_by(&renewed));
    assert_eq!(founded.with_directory(away, DirectoryId::UNKNOWN), None);

    for (few, why) in [(vec![], "none"), (vec![1], "one of three"), (vec![1, 7], "a stranger")] {
        assert!(matches!(found(named(&few)), Err(PlanError::Misfit(_))), "{why}");
    }
    let twice = BTreeMap::from([(NodeId(0), DirectoryId(5)), (NodeId(1), DirectoryId(5))]);
    assert!(matches!(found(twice), Err(PlanError::Misfit(_))), "one directory of two nodes");
    let all = named(&[0, 1, 2]);
    for wrong in [
        FoundedCluster { cluster: 0, directories: all.clone(), ..FOUNDED },
        FoundedCluster { copies: 0, directories: all.clone(), ..FOUNDED },
        FoundedCluster { copies: 4, directories: all.clone(), ..FOUNDED },
    ] {
        assert!(matches!(founding.found(&wrong), Err(PlanError::Misfit(_))), "{wrong:?}");
    }
    assert!(founded.found(&FoundedCluster { directories: all.clone(), ..FOUNDED }).is_err(), "once");
}

#[test]
fn nothing_but_its_founding_follows_what_founds_a_cluster() {
    let founding = founding(3);
    let renewed = founding.with_directory(NodeId(0), DirectoryId(5)).unwrap();
    assert!(!founding.may_be_followed_by(&renewed));
    assert!(!founding.may_be_followed_by(&founding.with_pace(Some(1))));
    let nodes: Vec<_> = (0..4).map(|number| wanted(node(number, number), None)).collect();
    let other = Layout::founding(nodes).unwrap();
    let directories: BTreeMap<_, _> = (0..4).map(|number| (NodeId(number), node(number, number).directory)).collect();
    let founded = other.found(&FoundedCluster { directories, ..FOUNDED }).unwrap();
    assert!(!founding.may_be_followed_by(&founded), "of another list");
    let fewer = Layout::founding((0..3).rev().map(|number| WantedNode::at(url(number))).collect()).unwrap();
    assert_eq!(fewer.digest(), founding.digest(), "the order of the list does not count");
}

#[test]
fn a_node_that_comes_has_shown_its_directory() {
    let before = cluster(3);
    let stay = before.nodes().iter().map(|node| wanted(node.clone(), None));
    let nodes: Vec<_> = stay.chain([WantedNode::at(url(9))]).collect();
    let plan = before.plan_for(1, &nodes, BTreeSet::new()).unwrap();
    assert!(matches!(before.open(plan), Err(PlanError::Misfit(why)) if why.contains("directory")));
}

/// Acceptors of three nodes, of which one is away at first.
#[test]
fn a_node_that_was_away_when_its_cluster_was_founded_is_named_and_decides_with_the_others() {
    let founding = founding(3);
    let directory = |number: u32| node(number, number).directory;
    let acceptor = |number: u32| Acceptor::new(NodeId(number), directory(number), founding.clone());
    let [mut one, mut two, mut away] = [0, 1, 2].map(acceptor);
    let directories = BTreeMap::from([0, 1].map(|number| (NodeId(number), directory(number))));
    let founded = founding.found(&FoundedCluster { directories, ..FOUNDED }).unwrap();
    let decide = |proposer: &mut Acceptor<Layout>, other: &mut Acceptor<Layout>, from: u32, value: &Layout| {
        let mut proposal = proposer.propose(value.clone(), Ballot::NONE).unwrap();
        assert_eq!(proposal.on_answer(NodeId(from), other.answer(proposal.request())), ProposalStep::Send);
        let own = if from == 0 { 1 } else { 0 };
        assert_eq!(proposal.on_answer(NodeId(own), proposer.answer(proposal.request())), ProposalStep::Wait);
        let chosen = proposal.on_answer(NodeId(from), other.answer(proposal.request()));
        assert_eq!(chosen, ProposalStep::Chosen(value.clone()));
        proposer.learn(value.clone());
    };
    decide(&mut one, &mut two, 1, &founded);
    assert!(away.learn(founded.clone()) && !away.may_vote(), "it is not named");
    assert_eq!(away.propose(founded.with_pace(Some(1)), Ballot::NONE).unwrap_err(), NoProposal::NoVoter);
    two.learn(founded.clone());
    let named = founded.with_directory(NodeId(2), directory(2)).unwrap();
    decide(&mut one, &mut two, 1, &named);
    assert!(away.learn(named.clone()) && away.may_vote());
    let paced = named.with_pace(Some(1));
    decide(&mut one, &mut away, 2, &paced);
}

/// A layout in a step, as it is written.
static OPENED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let before = cluster(3);
    postcard::to_allocvec(&before.open(plan(&before, &[0], &[3, 4])).unwrap()).unwrap()
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// What is read can be used, whatever the bytes: each partition has a list, of nodes that are there.
    #[test]
    fn no_bytes_make_a_layout_that_is_none(place in 0..400_usize, byte: u8, cut in prop::option::of(0..30_000_usize)) {
        let mut bytes = OPENED.clone();
        // The lists are most of it; what matters is before and behind them.
        let at = if place < 200 { place } else { bytes.len() - (place - 199) };
        bytes[at] = byte;
        bytes.truncate(cut.unwrap_or(usize::MAX));
        if let Ok(layout) = postcard::from_bytes::<Layout>(&bytes) {
            for partition in PartitionId::all() {
                prop_assert!(layout.preference_list(partition).iter().all(|node| layout.node(*node).is_some()));
            }
            prop_assert_eq!(read_again(&layout).ok(), Some(layout));
        }
    }
}
