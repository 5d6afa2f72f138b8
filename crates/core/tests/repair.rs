//! Rounds of anti-entropy without a network: whatever nodes hold, a round finds what differs, copies it where the rule
//! of the stored `from` requires it, and proves no more than that.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::{Current, Failure, Rank, StoreAnswer};
use kvorum_core::repair::merge::{Merge, OutOfOrder, PagePlace};
use kvorum_core::repair::round::{MemberVote, Round};
use kvorum_core::repair::trees::{LEAVES, LeafSet, Trees};
use kvorum_core::repair::wire::{BYTES_MAX, Cursor, RoundRequest, RoundResponse, TREES_PER_ANSWER, Tree};
use kvorum_core::repair::{Holding, RecordKind, RoundId};
use kvorum_core::{Hlc, Incarnation, Key, PartitionId, Version};
use proptest::prelude::*;

const ROUND: RoundId = RoundId { until: Hlc::from_millis(4), driver: NodeId(0) };
const ROOM: usize = 1 << 20;

fn layout(nodes: usize) -> Layout {
    Layout::fixed_at((0..nodes).map(|index| format!("http://n{index}:1"))).unwrap()
}

fn key(number: usize) -> Key {
    Key::new(Bytes::from(format!("key-{number}"))).unwrap()
}

fn version(millis: u64) -> Version {
    Version { hlc: Hlc::from_millis(millis), incarnation: Incarnation(9) }
}

fn value(millis: u64, from: u8) -> Holding {
    Holding { version: version(millis), from, kind: RecordKind::Value }
}

type Node = BTreeMap<Key, Holding>;

fn sum_up(layout: &Layout, node: NodeId, held: &Node, room: usize) -> Trees {
    let mut trees = Trees::new(room);
    for (key, holding) in held {
        let hash = key.hash();
        if holding.kind == RecordKind::Damaged {
            trees.mark(hash);
        } else if holding.version <= ROUND.version() && holding.kind != RecordKind::Droppable {
            trees.add(hash, holding.version, holding.from, layout.rank_of(hash.partition(), node).unwrap());
        }
    }
    trees
}

/// What the nodes are asked, as a driver does it. Gives the round, and what was selected.
fn compare<'a>(layout: &'a Layout, nodes: &[Node], lost: Option<NodeId>, room: usize) -> Round<'a> {
    let mut round = Round::new(ROUND, layout);
    if let Some(lost) = lost {
        round.lose(lost);
    }
    let present: Vec<NodeId> = round.present().collect();
    present.iter().for_each(|node| round.on_begun(*node, MemberVote::Counts));
    let trees: BTreeMap<NodeId, Trees> =
        present.iter().map(|node| (*node, sum_up(layout, *node, &nodes[node.0 as usize], room))).collect();
    for (node, trees) in &trees {
        trees.classes().for_each(|class| round.on_roots(*node, class, trees.roots(class)));
        round.on_marked(trees.marked());
    }
    for partition in round.differing().iter() {
        let mut leaves = BTreeMap::new();
        for (node, trees) in &trees {
            leaves.extend(trees.leaves(partition).map(|(class, sums)| ((class, *node), *sums)));
        }
        round.on_leaves(partition, &leaves);
    }
    round
}

/// Lists what was selected in pages of this size and copies what the plan says.
fn copy(round: &mut Round<'_>, nodes: &mut [Node], page: usize) {
    let selection: BTreeMap<PartitionId, LeafSet> = round.selection().into_iter().collect();
    let is_selected =
        |key: &Key| selection.get(&key.hash().partition()).is_some_and(|leaves| leaves.contains(key.hash()));
    let mut lists: BTreeMap<NodeId, Vec<(Key, Holding)>> = BTreeMap::new();
    for node in round.present() {
        let held = nodes[node.0 as usize].iter().filter(|(key, _)| is_selected(key));
        lists.insert(node, held.map(|(key, holding)| (key.clone(), *holding)).collect());
    }
    let mut merge = Merge::new(round.present());
    loop {
        let awaited: Vec<NodeId> = merge.awaited().collect();
        for node in awaited {
            let list = lists.get_mut(&node).unwrap();
            let rest = list.split_off(page.min(list.len()));
            let entries = std::mem::replace(list, rest);
            let is_last = lists[&node].is_empty();
            merge.push(node, entries, if is_last { PagePlace::Last } else { PagePlace::Inner }).unwrap();
        }
        if merge.awaited().next().is_some() {
            continue;
        }
        let Some((key, held)) = merge.next_key() else { break };
        if let Some(plan) = round.plan(key.hash().partition(), &held) {
            assert!(!plan.holders.is_empty(), "somebody has what is to be given");
            for target in plan.targets {
                nodes[target.0 as usize].insert(key.clone(), plan.newest);
            }
        }
    }
}

#[derive(Clone, Debug)]
struct World {
    nodes: usize,
    /// By key: what there is of it, oldest first, and which of it each node has (beyond the end: nothing).
    keys: Vec<(Vec<Holding>, Vec<usize>)>,
}

fn worlds() -> impl Strategy<Value = World> {
    (1..6_usize).prop_flat_map(|nodes| {
        let holding = (1..=nodes as u8, any::<bool>());
        let holdings = prop::collection::vec(holding, 1..6).prop_map(|all| {
            let one = |(millis, (from, is_value))| {
                let kind = if is_value { RecordKind::Value } else { RecordKind::Deletion };
                Holding { version: version(millis), from, kind }
            };
            (1..).zip(all).map(one).collect::<Vec<_>>()
        });
        // Mostly the same everywhere.
        let who = prop_oneof![
            (0..7_usize).prop_map(move |which| vec![which; nodes]),
            prop::collection::vec(0..7_usize, nodes)
        ];
        prop::collection::vec((holdings, who), 0..40).prop_map(move |keys| World { nodes, keys })
    })
}

impl World {
    fn hold(&self) -> Vec<Node> {
        let mut nodes = vec![Node::new(); self.nodes];
        for (number, (holdings, who)) in self.keys.iter().enumerate() {
            for (node, which) in nodes.iter_mut().zip(who) {
                if let Some(holding) = holdings.get(*which) {
                    node.insert(key(number), *holding);
                }
            }
        }
        nodes
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn after_a_round_everybody_has_what_it_should_and_nobody_more(
        world in worlds(),
        page in 1..5_usize,
        lost in prop::option::of(0..6_u32),
        room in prop_oneof![Just(ROOM), Just(0), Just(1024)],
    ) {
        let layout = layout(world.nodes);
        let before = world.hold();
        let mut nodes = before.clone();
        let lost = lost.map(NodeId).filter(|node| (node.0 as usize) < world.nodes);
        let mut round = compare(&layout, &nodes, lost, room);
        copy(&mut round, &mut nodes, page);
        let present: Vec<NodeId> = round.present().collect();
        for number in 0..world.keys.len() {
            let key = key(number);
            let of = |nodes: &[Node], node: NodeId| nodes[node.0 as usize].get(&key).copied();
            let within = present.iter().filter_map(|node| of(&before, *node)).filter(|held| held.version <= ROUND.version());
            let newest = within.max_by_key(|held| held.version);
            for (rank, node) in layout.preference_list(key.hash().partition()).iter().enumerate() {
                let (was, is) = (of(&before, *node), of(&nodes, *node));
                let wants = |newest: Holding| was.is_some() || rank < usize::from(newest.from);
                match newest.filter(|newest| present.contains(node) && wants(*newest)) {
                    Some(newest) if was.is_none_or(|was| was.version < newest.version) => prop_assert_eq!(is, Some(newest)),
                    _ => prop_assert_eq!(is, was, "it is left alone"),
                }
            }
        }
        prop_assert_eq!(round.proven().is_empty(), lost.is_some());
        // What is repaired needs nothing more.
        let mut again = compare(&layout, &nodes, lost, room);
        let repaired = nodes.clone();
        copy(&mut again, &mut nodes, page);
        prop_assert_eq!(nodes, repaired);
    }

    #[test]
    fn no_bytes_make_a_message_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = RoundRequest::decode(&bytes);
        let _ = RoundResponse::decode(&bytes);
    }
}

#[test]
fn replicas_that_agree_list_nothing() {
    let layout = layout(3);
    let all: Node = (0..1000).map(|number| (key(number), value(1, 3))).collect();
    let round = compare(&layout, &[all.clone(), all.clone(), all], None, 4 * ROOM);
    assert!(round.selection().is_empty());
    assert_eq!(round.proven(), PartitionSet::all());
}

#[test]
fn what_is_newer_than_the_round_is_nobodys_difference() {
    let layout = layout(2);
    let old: Node = [(key(1), value(5, 2))].into();
    let mut nodes = [old, Node::new()];
    let mut round = compare(&layout, &nodes, None, ROOM);
    assert!(round.selection().is_empty());
    copy(&mut round, &mut nodes, 1);
    assert!(nodes[1].is_empty());
}

#[test]
fn who_lost_its_disk_gets_what_replaced_what_it_had_acknowledged_however_new() {
    // The first and the second had acknowledged something; the third has put something newer in its place since.
    let layout = layout(3);
    let old: Node = [(key(1), value(1, 3))].into();
    let newer: Node = [(key(1), value(5, 3)), (key(2), value(6, 3))].into();
    let mut nodes = [old, Node::new(), newer.clone()];
    let mut round = compare(&layout, &nodes, None, ROOM);
    round.on_begun(NodeId(1), MemberVote::Abstains);
    copy(&mut round, &mut nodes, 1);
    assert_eq!(nodes[1], newer);
    assert_eq!(round.restored(NodeId(1)), PartitionSet::all());
}

#[test]
fn a_deletion_that_may_be_dropped_is_given_only_to_those_who_hold_something_older() {
    let layout = layout(3);
    let dropped = Holding { version: version(2), from: 3, kind: RecordKind::Droppable };
    let partition = key(1).hash().partition();
    let mut round = Round::new(ROUND, &layout);
    assert_eq!(round.plan(partition, &[(NodeId(0), dropped)]), None);
    let plan = round.plan(partition, &[(NodeId(0), dropped), (NodeId(1), value(1, 3))]).unwrap();
    assert_eq!((plan.holders, plan.targets), (vec![NodeId(0)], vec![NodeId(1)]));
}

#[test]
fn a_damaged_copy_is_replaced_and_damage_everywhere_proves_nothing() {
    let layout = layout(3);
    let damaged = Holding { version: Version::ZERO, from: 0, kind: RecordKind::Damaged };
    let mut nodes: Vec<Node> = vec![[(key(1), value(1, 3))].into(); 3];
    nodes[1].insert(key(1), damaged);
    let mut round = compare(&layout, &nodes, None, ROOM);
    copy(&mut round, &mut nodes, 10);
    assert_eq!(nodes[1][&key(1)], value(1, 3));
    assert_eq!(round.proven(), PartitionSet::all());
    let partition = key(1).hash().partition();
    assert_eq!(round.plan(partition, &[(NodeId(0), damaged)]), None);
    assert!(!round.proven().contains(partition));
    assert_eq!(round.proven().len(), 4095);
}

#[test]
fn only_what_is_as_new_settles_and_a_gc_watermark_only_a_deletion() {
    let newest = value(3, 3);
    let deletion = Holding { kind: RecordKind::Deletion, ..newest };
    let record = |millis| Current::Record(version(millis));
    let gc_watermark = |millis| Current::GcWatermark(version(millis));
    for (answer, is_settled) in [
        (StoreAnswer::Accepted, true),
        (StoreAnswer::Stale(record(4)), true),
        (StoreAnswer::StaleUnknown(record(3)), true),
        (StoreAnswer::StaleUnknown(record(2)), false),
        (StoreAnswer::Stale(gc_watermark(4)), false),
        (StoreAnswer::Failed(Failure::Timeout), false),
    ] {
        assert_eq!(Round::settles(&newest, answer), is_settled, "{answer:?}");
    }
    assert!(Round::settles(&deletion, StoreAnswer::Stale(gc_watermark(3))));
    assert!(!Round::settles(&deletion, StoreAnswer::StaleUnknown(gc_watermark(2))));
}

#[test]
fn a_list_out_of_order_is_refused() {
    let (a, b) = (key(1), key(2));
    let mut merge = Merge::new([NodeId(0), NodeId(1)]);
    let held = value(1, 1);
    assert_eq!(merge.push(NodeId(0), vec![(b.clone(), held), (a.clone(), held)], PagePlace::Last), Err(OutOfOrder));
    assert_eq!(merge.push(NodeId(0), vec![(a.clone(), held), (a.clone(), held)], PagePlace::Last), Err(OutOfOrder));
    assert_eq!(merge.push(NodeId(0), vec![(a.clone(), held), (b, held)], PagePlace::Last), Ok(()));
    assert_eq!(merge.push(NodeId(0), vec![], PagePlace::Last), Err(OutOfOrder), "it has ended");
    assert_eq!(merge.next_key(), None, "the other one is awaited");
    merge.remove(NodeId(1));
    assert_eq!(merge.next_key(), Some((a, vec![(NodeId(0), held)])));
}

#[test]
fn the_longest_messages_fit_into_a_frame_and_come_back() {
    let partitions: Vec<PartitionId> = PartitionId::all().collect();
    let leaves: Vec<_> = partitions.iter().map(|partition| (*partition, LeafSet(u64::MAX))).collect();
    let tree = |index: usize| Tree::new(partitions[4095 - index], 8, &[u64::MAX; LEAVES]);
    let round = RoundId { until: Hlc::from_raw(u64::MAX), driver: NodeId(127) };
    let requests = [
        RoundRequest::Begin { round },
        RoundRequest::Roots { round, above: 255 },
        RoundRequest::Marked { round },
        RoundRequest::Trees { round, partitions: partitions.clone() },
        RoundRequest::Select { round, leaves: leaves.clone() },
        RoundRequest::List { round, after: Some(Cursor(vec![0xff; 2049])) },
        RoundRequest::End { round, proven: PartitionSet::all(), restored: PartitionSet::all() },
    ];
    for request in requests {
        let bytes = request.encode();
        assert!(bytes.len() <= BYTES_MAX);
        assert_eq!(RoundRequest::decode(&bytes), Ok(request));
        assert!(RoundRequest::decode(&bytes[..bytes.len() - 1]).is_err(), "a truncated one is refused");
        assert!(RoundRequest::decode(&[&bytes[..], &[0]].concat()).is_err(), "and one with something behind it");
    }
    let responses = [
        RoundResponse::Done,
        RoundResponse::Begun { votes: true },
        RoundResponse::Summing,
        RoundResponse::Roots { class: 255, roots: vec![u64::MAX; 4096] },
        RoundResponse::NoMoreRoots,
        RoundResponse::Marked(leaves),
        RoundResponse::Trees { covered: 4096, trees: (0..TREES_PER_ANSWER).map(tree).collect() },
        RoundResponse::List { entries: vec![(key(1), value(1, 1))], next: None },
        RoundResponse::Superseded { by: round.until },
        RoundResponse::Failed,
    ];
    for response in responses {
        let bytes = response.encode();
        assert!(bytes.len() <= BYTES_MAX);
        assert_eq!(RoundResponse::decode(&bytes), Ok(response));
    }
}

#[test]
fn a_node_outside_the_first_from_marks_what_it_holds() {
    let mut trees = Trees::new(ROOM);
    trees.add(key(1).hash(), version(1), 2, Rank(1));
    assert_eq!(trees.marked().count(), 0);
    trees.add(key(1).hash(), version(1), 2, Rank(2));
    assert_eq!(trees.marked().map(|(partition, _)| partition).collect::<Vec<_>>(), [key(1).hash().partition()]);
}

#[test]
fn a_vote_comes_back_where_a_majority_of_the_others_votes_for_every_from() {
    for nodes in 1..6_u32 {
        let layout = layout(nodes as usize);
        let own = NodeId(0);
        for voters in 0..1_u32 << (nodes - 1) {
            let votes = |node: NodeId| node != own && voters >> (node.0 - 1) & 1 == 1;
            let mut round = Round::new(ROUND, &layout);
            (0..nodes).map(NodeId).for_each(|node| {
                round.on_begun(node, if votes(node) { MemberVote::Counts } else { MemberVote::Abstains })
            });
            let restored = round.restored(own);
            for partition in PartitionId::all() {
                let list = layout.preference_list(partition);
                let is_enough =
                    (2..=list.len()).map(|from| &list[..from]).filter(|first| first.contains(&own)).all(|first| {
                        let voting = first.iter().filter(|node| votes(**node)).count();
                        voting > (first.len() - 1) / 2
                    });
                assert_eq!(restored.contains(partition), is_enough && nodes > 1, "{voters:b} of {list:?}");
            }
            round.unsettle(PartitionId::new(7).unwrap());
            assert!(!round.restored(own).contains(PartitionId::new(7).unwrap()));
            if nodes > 1 {
                round.lose(NodeId(1));
                assert!(round.restored(own).is_empty(), "somebody is away");
            }
        }
    }
}

#[test]
fn what_only_nodes_without_a_vote_hold_is_doubtful() {
    let layout = layout(3);
    let partition = key(1).hash().partition();
    let mut round = Round::new(ROUND, &layout);
    (0..3).map(NodeId).for_each(|node| {
        round.on_begun(node, if node == NodeId(2) { MemberVote::Abstains } else { MemberVote::Counts })
    });
    let alone = round.plan(partition, &[(NodeId(2), value(1, 3))]).unwrap();
    assert!(alone.is_doubtful);
    let voter_too = round.plan(partition, &[(NodeId(1), value(1, 3)), (NodeId(2), value(1, 3))]).unwrap();
    assert!(!voter_too.is_doubtful);
    round.lose(NodeId(0));
    assert!(!round.plan(partition, &[(NodeId(2), value(1, 3))]).unwrap().is_doubtful, "it may be held there");
}
