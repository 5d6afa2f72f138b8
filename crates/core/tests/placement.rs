//! Placement: even, moving little, and the same everywhere.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kvorum_core::PartitionId;
use kvorum_core::key::PARTITIONS;
use kvorum_core::placement::{NodePlace, PlacedNode, Placement, PlacementError};
use kvorum_core::quorum::NODES_MAX;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// How clusters are named: by port, by name, by address.
const NAMINGS: [fn(usize) -> String; 3] = [
    |i| format!("http://127.0.0.1:{}", 8080 + i),
    |i| format!("http://kvorum-{i}.storage.example:8080"),
    |i| format!("http://10.{}.{}.{}:8080", i % 3, i / 3 % 5, 10 + i),
];

/// As many as a key has by default.
const COPIES: u8 = 3;

fn node(name: String) -> PlacedNode {
    PlacedNode { name, weight: 1, zone: None }
}

fn equal(naming: fn(usize) -> String, nodes: usize) -> Vec<PlacedNode> {
    (0..nodes).map(|i| node(naming(i))).collect()
}

fn placement(nodes: Vec<PlacedNode>) -> Placement {
    Placement::new(nodes).unwrap()
}

fn partitions() -> impl Iterator<Item = PartitionId> {
    (0..PARTITIONS).map(|number| PartitionId::new(number as u16).unwrap())
}

fn ideal(nodes: usize) -> f64 {
    PARTITIONS as f64 / nodes as f64
}

/// How many partitions each node has among its first `from` replicas.
fn loads(placement: &Placement, from: usize) -> Vec<usize> {
    let mut loads = vec![0; placement.nodes().len()];
    for partition in partitions() {
        for node in &placement.preference_list(partition)[..from] {
            loads[node.index()] += 1;
        }
    }
    loads
}

/// How many copies the larger placement has among its first `from` replicas that the smaller one does not
/// have there: what is moved, if one node lies between them, in either direction.
fn moved(larger: &Placement, smaller: &Placement, from: usize) -> usize {
    let known: Vec<_> = smaller.nodes().iter().map(|node| larger.place_of(&node.name).unwrap()).collect();
    let moved_in = |partition| {
        let before: Vec<_> =
            smaller.preference_list(partition)[..from].iter().map(|node| known[node.index()]).collect();
        larger.preference_list(partition)[..from].iter().filter(|node| !before.contains(node)).count()
    };
    partitions().map(moved_in).sum()
}

/// What was moved, over the ideal.
#[derive(Default)]
struct Moves {
    primaries: Vec<f64>,
    threes: Vec<f64>,
}

impl Moves {
    fn note(&mut self, larger: &Placement, smaller: &Placement) {
        let nodes = larger.nodes().len();
        let (primary, three) = (moved(larger, smaller, 1), moved(larger, smaller, 3.min(nodes - 1)));
        self.primaries.push(primary as f64 / ideal(nodes));
        self.threes.push(three as f64 / ideal(nodes) / 3.min(nodes - 1) as f64);
    }
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

fn worst(all: &[f64]) -> f64 {
    all.iter().copied().fold(0.0, f64::max)
}

#[test]
fn load_is_even_for_1_to_128_nodes() {
    for nodes in 1..=NODES_MAX {
        let placement = placement(equal(NAMINGS[nodes % 3], nodes));
        let (least, most, most_of_three) = match nodes {
            0..=5 => (0.95, 1.05, 1.03),
            6..=16 => (0.87, 1.05, 1.06),
            17..=50 => (0.80, 1.10, 1.12),
            _ => (0.60, 1.10, 1.20),
        };
        for load in loads(&placement, 1) {
            let share = load as f64 / ideal(nodes);
            assert!((least..=most).contains(&share), "{nodes} nodes: one is the primary of {share}");
        }
        let from = nodes.min(3);
        let three = *loads(&placement, from).iter().max().unwrap() as f64 / ideal(nodes) / from as f64;
        assert!(three <= most_of_three, "{nodes} nodes: one has {three} of its share in three copies");
    }
}

/// For clusters of these sizes, each node that comes or goes; beyond 14 of them, a sample.
fn moves_little(
    sizes: impl Iterator<Item = usize>,
    (mean_max, worst_max): (f64, f64),
    (mean_of_three_max, worst_of_three_max): (f64, f64),
) {
    let mut moves = Moves::default();
    for nodes in sizes {
        let naming = NAMINGS[nodes % 3];
        let larger = placement(equal(naming, nodes));
        let step = if nodes <= 14 { 1 } else { nodes / 3 };
        for gone in (nodes % step..nodes).step_by(step) {
            let mut rest = equal(naming, nodes);
            rest.remove(gone);
            moves.note(&larger, &placement(rest));
        }
    }
    let found = [mean(&moves.primaries), worst(&moves.primaries), mean(&moves.threes), worst(&moves.threes)];
    for (found, bound) in found.into_iter().zip([mean_max, worst_max, mean_of_three_max, worst_of_three_max]) {
        assert!(found <= bound, "{found:.4} > {bound}");
    }
}

#[test]
fn a_node_that_comes_or_goes_moves_at_most_1_1_of_its_share_up_to_14_nodes() {
    moves_little(2..=14, (1.02, 1.10), (1.01, 1.05));
}

#[test]
fn a_node_that_comes_or_goes_moves_little_more_than_its_share_up_to_24_nodes() {
    moves_little(15..=24, (1.04, 1.15), (1.01, 1.07));
}

#[test]
fn a_node_that_comes_or_goes_moves_little_more_than_its_share_up_to_50_nodes() {
    moves_little((25..=50).step_by(2), (1.07, 1.25), (1.01, 1.10));
}

#[test]
fn a_node_that_comes_or_goes_moves_boundedly_much_up_to_100_nodes() {
    moves_little((52..=100).step_by(4), (1.30, 1.75), (1.03, 1.15));
}

#[test]
fn every_list_has_every_node_once() {
    for nodes in [1, 2, 3, 10, NODES_MAX] {
        let placement = placement(equal(NAMINGS[1], nodes));
        for partition in partitions() {
            let list = placement.preference_list(partition);
            assert_eq!(list.len(), nodes);
            assert_eq!(list.iter().collect::<BTreeSet<_>>().len(), nodes);
        }
    }
}

#[test]
fn the_order_of_the_list_moves_nothing() {
    let mut nodes = equal(NAMINGS[0], 12);
    let one = placement(nodes.clone());
    nodes.reverse();
    nodes.swap(2, 7);
    let other = Placement::new(nodes).unwrap();
    assert_eq!(one.nodes(), other.nodes());
    assert!(one.nodes().is_sorted_by_key(|node| &node.name));
    for partition in partitions() {
        assert_eq!(one.preference_list(partition), other.preference_list(partition));
    }
}

fn fingerprint(placement: &Placement) -> u64 {
    let bytes: Vec<u8> = partitions().flat_map(|p| placement.preference_list(p).iter().map(|node| node.0)).collect();
    xxh3_64(&bytes)
}

/// Every build must place alike, or a cluster that is upgraded node by node looks for keys where they
/// are not.
#[test]
fn placement_is_the_same_in_every_build() {
    let local = placement(equal(NAMINGS[0], 3));
    assert_eq!(fingerprint(&local), 10_068_245_123_080_417_401);
    let mut nodes = equal(NAMINGS[1], 20);
    for (i, node) in nodes.iter_mut().enumerate() {
        node.weight = 1 + i as u16 % 4;
        node.zone = Some(format!("zone-{}", i % 3));
    }
    let zoned = placement(nodes);
    assert_eq!(fingerprint(&zoned), 4_333_634_083_603_998_205);
    let mut nodes = zoned.nodes()[3..].to_vec();
    nodes[5].weight = 7;
    nodes.push(node(NAMINGS[0](0)));
    let next = zoned.succeed(nodes, COPIES).unwrap();
    assert_eq!(fingerprint(&next), 12_033_704_049_659_617_466);
}

#[test]
fn what_makes_no_placement_is_refused() {
    let refused = |nodes| Placement::new(nodes).unwrap_err();
    assert_eq!(refused(Vec::new()), PlacementError::Empty);
    assert_eq!(refused(equal(NAMINGS[0], NODES_MAX + 1)), PlacementError::TooMany(NODES_MAX + 1));
    let twice = [equal(NAMINGS[0], 3), equal(NAMINGS[0], 1)].concat();
    assert_eq!(refused(twice), PlacementError::Duplicate(NAMINGS[0](0)));
    let mut weightless = equal(NAMINGS[0], 3);
    weightless[1].weight = 0;
    assert_eq!(refused(weightless), PlacementError::Weightless(NAMINGS[0](1)));
    let three = placement(equal(NAMINGS[0], 3));
    assert_eq!(three.succeed(Vec::new(), COPIES).unwrap_err(), PlacementError::Empty);
}

#[test]
fn a_node_is_found_by_its_name() {
    let placement = placement(equal(NAMINGS[0], 30));
    for (i, node) in placement.nodes().iter().enumerate() {
        assert_eq!(placement.place_of(&node.name), Some(NodePlace(i as u8)));
    }
    assert_eq!(placement.place_of("http://127.0.0.1:1"), None);
}

#[test]
fn a_table_of_100_nodes_is_built_within_a_second() {
    let begin = Instant::now();
    placement(equal(NAMINGS[0], 100));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

/// A node's share of primaries is its share of the weight: at most 5 % more (10 % beyond 16 nodes), and
/// at most 15 % less (25 % for what comes to fewer than 150 partitions).
#[test]
fn primaries_follow_weights() {
    for (naming, weights) in [
        (NAMINGS[0], vec![1, 2]),
        (NAMINGS[1], vec![100, 200, 300]),
        (NAMINGS[2], vec![1, 1, 1, 5]),
        (NAMINGS[0], vec![1, 2, 3, 4, 1, 2, 3, 4, 1, 2]),
        (NAMINGS[1], (0..30).map(|i| 1 + i % 3).collect()),
    ] {
        let weigh = |(node, &weight): (PlacedNode, &u16)| PlacedNode { weight, ..node };
        let placement = placement(equal(naming, weights.len()).into_iter().zip(&weights).map(weigh).collect());
        let sum: u16 = weights.iter().sum();
        for (node, load) in placement.nodes().iter().zip(loads(&placement, 1)) {
            let share = PARTITIONS as f64 * f64::from(node.weight) / f64::from(sum);
            let most = if weights.len() <= 16 { 1.05 } else { 1.10 };
            let least = if share < 150.0 { 0.75 } else { 0.85 };
            let ratio = load as f64 / share;
            assert!((least..=most).contains(&ratio), "weights {weights:?}: {} has {ratio}", node.name);
        }
    }
}

#[test]
fn a_weight_that_changes_moves_only_what_it_must() {
    let before = placement(equal(NAMINGS[1], 10));
    let mut nodes = equal(NAMINGS[1], 10);
    nodes[3].weight = 2;
    let after = placement(nodes);
    // Its share goes from 1/10 to 2/11.
    let ideal = PARTITIONS as f64 * (2.0 / 11.0 - 1.0 / 10.0);
    assert!(moved(&after, &before, 1) as f64 <= 1.15 * ideal, "{} of {ideal}", moved(&after, &before, 1));
}

/// The bounds of one step of succession: what moves, over the ideal, and the evenness after it.
struct Bounds {
    primaries: f64,
    threes: f64,
    even_threes: f64,
}

/// A node has come or gone between these two.
fn check_step(before: &Placement, after: &Placement, bounds: &Bounds) {
    let (nodes_before, nodes) = (before.nodes().len(), after.nodes().len());
    let (larger, smaller) = if nodes > nodes_before { (after, before) } else { (before, after) };
    let step = format!("{nodes_before} to {nodes} nodes");
    let ideal_move = ideal(larger.nodes().len());
    let primaries = moved(larger, smaller, 1) as f64 / ideal_move;
    assert!(primaries <= bounds.primaries, "{step}: {primaries} primaries moved");
    if smaller.nodes().len() >= 3 {
        let threes = moved(larger, smaller, 3) as f64 / ideal_move / 3.0;
        assert!(threes <= bounds.threes, "{step}: {threes} copies moved");
    }
    let most = *loads(after, 1).iter().max().unwrap() as f64 / ideal(nodes);
    assert!(most <= if nodes <= 16 { 1.05 } else { 1.10 }, "{step}: one is the primary of {most}");
    let from = nodes.min(3);
    let most = *loads(after, from).iter().max().unwrap() as f64 / ideal(nodes) / from as f64;
    assert!(most <= bounds.even_threes, "{step}: one has {most} of its share in three copies");
}

/// After a first placement, for clusters of these sizes: each node that comes or goes; beyond 12, a sample.
fn first_successors(sizes: impl Iterator<Item = usize>, bounds: &Bounds) {
    for nodes in sizes {
        let all = equal(NAMINGS[nodes % 3], nodes);
        let larger = placement(all.clone());
        let step = if nodes <= 12 { 1 } else { nodes / 2 };
        for gone in (nodes % step..nodes).step_by(step) {
            let mut rest = all.clone();
            rest.remove(gone);
            check_step(&larger, &larger.succeed(rest.clone(), COPIES).unwrap(), bounds);
            let smaller = placement(rest);
            check_step(&smaller, &smaller.succeed(all.clone(), COPIES).unwrap(), bounds);
        }
    }
}

#[test]
fn the_first_change_of_up_to_16_nodes_moves_at_most_1_05_of_a_share() {
    first_successors(2..=16, &Bounds { primaries: 1.05, threes: 1.05, even_threes: 1.01 });
}

#[test]
fn the_first_change_of_up_to_100_nodes_moves_at_most_1_1_of_a_share() {
    first_successors((17..=100).step_by(4), &Bounds { primaries: 1.10, threes: 1.10, even_threes: 1.13 });
}

const IN_A_CHAIN: Bounds = Bounds { primaries: 1.05, threes: 1.01, even_threes: 1.01 };

#[test]
fn chains_from_1_to_100_nodes_and_back_move_little_and_stay_even() {
    let mut nodes = equal(NAMINGS[0], 1);
    let mut before = placement(nodes.clone());
    for count in 2..=100 {
        nodes.push(node(NAMINGS[0](count - 1)));
        let after = before.succeed(nodes.clone(), COPIES).unwrap();
        check_step(&before, &after, &Bounds { primaries: 1.0, threes: 1.0, ..IN_A_CHAIN });
        before = after;
    }
    for count in (2..=100).rev() {
        nodes.remove(7919 % count);
        let after = before.succeed(nodes.clone(), COPIES).unwrap();
        check_step(&before, &after, &IN_A_CHAIN);
        before = after;
    }
    assert_eq!(before.nodes().len(), 1);
}

#[test]
fn a_weight_that_rises_or_falls_moves_only_the_difference() {
    let light = equal(NAMINGS[1], 10);
    let mut heavy = light.clone();
    heavy[3].weight = 2;
    // Its share goes from 1/10 to 2/11, or back.
    let difference = PARTITIONS as f64 * (2.0 / 11.0 - 1.0 / 10.0);
    for (from, to) in [(&light, &heavy), (&heavy, &light)] {
        let before = placement(from.clone());
        let after = before.succeed(to.clone(), COPIES).unwrap();
        let (primaries, threes) = (moved(&after, &before, 1) as f64, moved(&after, &before, 3) as f64);
        assert!(primaries <= 1.1 * difference, "{primaries} of {difference}");
        assert!(threes <= 1.1 * 3.0 * difference, "{threes} of {}", 3.0 * difference);
        let sum: u16 = to.iter().map(|node| node.weight).sum();
        for (node, load) in after.nodes().iter().zip(loads(&after, 1)) {
            let share = PARTITIONS as f64 * f64::from(node.weight) / f64::from(sum);
            assert!((0.9..=1.05).contains(&(load as f64 / share)), "{} has {load} of {share}", node.name);
        }
    }
}

#[test]
fn the_same_nodes_again_move_nothing_even_if_all_weights_double() {
    let mut nodes = equal(NAMINGS[2], 40);
    let first = placement(nodes.clone());
    nodes.iter_mut().for_each(|node| node.weight = 2);
    nodes.reverse();
    let next = first.succeed(nodes, COPIES).unwrap();
    for partition in partitions() {
        assert_eq!(first.preference_list(partition), next.preference_list(partition));
    }
}

#[test]
fn a_node_replaced_by_another_gives_it_what_it_had() {
    let mut nodes = equal(NAMINGS[0], 10);
    let before = placement(nodes.clone());
    nodes[4] = node("http://127.0.0.1:1".into());
    let after = before.succeed(nodes.clone(), COPIES).unwrap();
    let kept = |partition: &PartitionId| {
        let url =
            |placement: &Placement| placement.nodes()[placement.preference_list(*partition)[0].index()].name.clone();
        url(&before) == url(&after)
    };
    let moved = partitions().filter(|partition| !kept(partition)).count() as f64;
    assert!(moved <= 1.05 * ideal(10), "{moved}");
}

#[test]
fn as_many_replicas_as_a_key_has_move_no_more_than_they_must() {
    for copies in [1, 2, 5] {
        let from = usize::from(copies);
        let mut nodes = equal(NAMINGS[2], 8);
        let before = placement(nodes.clone());
        nodes.push(node(NAMINGS[2](8)));
        let larger = before.succeed(nodes.clone(), copies).unwrap();
        assert!(moved(&larger, &before, from) as f64 <= 1.1 * ideal(9) * from as f64, "{copies} copies, one more");
        nodes.remove(2);
        let smaller = larger.succeed(nodes, copies).unwrap();
        assert!(moved(&larger, &smaller, from) as f64 <= 1.1 * ideal(9) * from as f64, "{copies} copies, one less");
    }
}

#[test]
fn a_node_that_joins_a_zone_shares_the_copies_of_that_zone() {
    let mut nodes = equal(NAMINGS[1], 10);
    for (i, node) in nodes.iter_mut().enumerate() {
        node.zone = Some(format!("zone-{}", i % 3));
    }
    let before = placement(nodes[..9].to_vec());
    let after = before.succeed(nodes, COPIES).unwrap();
    assert!(moved(&after, &before, 1) as f64 <= ideal(10));
    assert!(moved(&after, &before, 3) as f64 <= 1.1 * ideal(4));
    for (node, copies) in after.nodes().iter().zip(loads(&after, 3)) {
        let in_zone = if node.zone.as_deref() == Some("zone-0") { 4 } else { 3 };
        let share = copies as f64 / ideal(in_zone);
        assert!((0.9..=1.06).contains(&share), "{} has {share}", node.name);
    }
}

/// Nodes of any weights, some with zones of any sizes.
fn any_nodes() -> impl Strategy<Value = Vec<PlacedNode>> {
    let zone = prop_oneof![1 => Just(None), 5 => (0..5_u8).prop_map(|zone| Some(format!("zone-{zone}")))];
    proptest::collection::vec((1..=1000_u16, zone), 1..=20).prop_map(|nodes| {
        let name = |(i, (weight, zone))| PlacedNode { name: format!("http://node-{i}:80"), weight, zone };
        nodes.into_iter().enumerate().map(name).collect()
    })
}

fn check_zones(placement: &Placement) -> Result<(), TestCaseError> {
    let zone = |node: NodePlace| {
        let node = &placement.nodes()[node.index()];
        node.zone.clone().unwrap_or_else(|| node.name.clone())
    };
    let zones = (0..placement.nodes().len()).map(|i| zone(NodePlace(i as u8))).collect::<BTreeSet<_>>().len();
    for partition in partitions() {
        let list = placement.preference_list(partition);
        // The first `zones` of them being all different, so are those of every shorter prefix.
        let first: BTreeSet<_> = list[..zones].iter().map(|&node| zone(node)).collect();
        prop_assert_eq!(first.len(), zones);
        prop_assert_eq!(list.iter().collect::<BTreeSet<_>>().len(), placement.nodes().len());
    }
    Ok(())
}

fn check_headroom(placement: &Placement) -> Result<(), TestCaseError> {
    let sum: u32 = placement.nodes().iter().map(|node| u32::from(node.weight)).sum();
    let headroom = if placement.nodes().len() <= 16 { 1.05 } else { 1.10 };
    let loads = loads(placement, 1);
    for (node, &load) in placement.nodes().iter().zip(&loads) {
        let share = PARTITIONS as f64 * f64::from(node.weight) / f64::from(sum);
        prop_assert!(load as f64 <= headroom * share);
    }
    prop_assert_eq!(loads.iter().sum::<usize>(), PARTITIONS);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_first_replicas_are_in_different_zones_and_loads_within_their_headroom(nodes in any_nodes()) {
        let placement = placement(nodes);
        check_zones(&placement)?;
        check_headroom(&placement)?;
    }

    /// The nodes of one name may change their weights and zones at every step.
    #[test]
    fn successors_keep_zones_apart_and_loads_within_their_headroom(
        histories in proptest::collection::vec(any_nodes(), 2..4),
    ) {
        let mut steps = histories.into_iter();
        let mut placement = placement(steps.next().unwrap());
        for nodes in steps {
            placement = placement.succeed(nodes, COPIES).unwrap();
            check_zones(&placement)?;
            check_headroom(&placement)?;
        }
    }

    /// A cluster that grows and shrinks at random.
    #[test]
    fn random_changes_move_little_and_stay_even(changes in proptest::collection::vec((any::<bool>(), 0..40_usize), 10)) {
        let mut nodes = equal(NAMINGS[1], 12);
        let mut before = placement(nodes.clone());
        let bounds = Bounds { primaries: 1.05, threes: 1.05, even_threes: 1.02 };
        for (step, (comes, which)) in changes.into_iter().enumerate() {
            if comes || nodes.len() == 1 {
                nodes.push(node(NAMINGS[1](100 + step)));
            } else {
                nodes.remove(which % nodes.len());
            }
            let after = before.succeed(nodes.clone(), COPIES).unwrap();
            check_step(&before, &after, &bounds);
            before = after;
        }
    }
}

/// Sets lose the only node of their second zone before one of the first is given what it is due.
#[test]
fn a_zone_that_loses_weight_leaves_sets_that_others_can_enter() {
    let nodes = |weights: [u16; 4]| {
        let mut nodes = equal(NAMINGS[1], 4);
        for ((node, zone), weight) in nodes.iter_mut().zip(["a", "a", "a", "b"]).zip(weights) {
            (node.zone, node.weight) = (Some(zone.to_owned()), weight);
        }
        nodes
    };
    let after = placement(nodes([100, 100, 100, 100])).succeed(nodes([100, 100, 400, 10]), COPIES).unwrap();
    check_zones(&after).unwrap();
}

#[test]
fn zones_of_one_size_hold_one_copy_each() {
    let mut nodes = equal(NAMINGS[1], 9);
    for (i, node) in nodes.iter_mut().enumerate() {
        node.zone = Some(format!("zone-{}", i % 3));
    }
    let placement = placement(nodes);
    let mut copies = BTreeMap::<_, usize>::new();
    for partition in partitions() {
        for node in &placement.preference_list(partition)[..3] {
            *copies.entry(placement.nodes()[node.index()].zone.clone()).or_default() += 1;
        }
    }
    assert!(copies.values().all(|&copies| copies == PARTITIONS), "{copies:?}");
}
