//! The preference lists of a layout that follows another: see [`Placement::succeed`].
//!
//! Two things are placed with care, the primary and the *set* of the replicas that a key has by default:
//! 1. A node in them stays, unless it is gone, its zone is now there twice, or its weight fell.
//! 2. A node that is new or has gained weight is given what its share has risen by: first what is unassigned, then what
//!    the fullest have.
//! 3. What then is unassigned, or more than a node may have, goes to the least full of those that can take it without
//!    another copy.
//!
//! So what moves is what the nodes that came are due, or what those that went had, and never both for
//! one node. Fullness is load over weight; ties are broken by hash, or by the order of the old lists. In
//! the ranks beyond the set a new node is put in at random places, so that any rank has its share of it.

use std::collections::{BTreeMap, BinaryHeap};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{NodePlace, PlacedNode, Placement, PlacementError, by_zone, capacities, checked, shares};
use crate::key::PARTITIONS;

impl Placement {
    /// The next layout, of these nodes in whatever order: what follows when nodes come, go, or change their weights or
    /// zones. It keeps every primary, and every one of the first `copies`, that may stay. As many replicas as that has a
    /// key by default: they are placed with care.
    ///
    /// # Errors
    /// As [`Placement::new`].
    pub fn succeed(&self, nodes: Vec<PlacedNode>, copies: u8) -> Result<Self, PlacementError> {
        let nodes = checked(nodes)?;
        let lists = lists(self, &nodes, usize::from(copies));
        Ok(Self::with_lists(nodes, lists))
    }
}

/// A list in the making.
struct Draft {
    /// One of the set; `None` if it is gone.
    primary: Option<NodePlace>,
    /// The first replicas, of as many zones as can be.
    set: Vec<NodePlace>,
    rest: Vec<NodePlace>,
}

/// One number for each node.
struct PerNode(Vec<usize>);

impl PerNode {
    fn get(&self, node: NodePlace) -> usize {
        *self.0.get(node.index()).expect("one of the nodes")
    }

    fn at(&mut self, node: NodePlace) -> &mut usize {
        self.0.get_mut(node.index()).expect("one of the nodes")
    }
}

/// What a node has, and what it must have at least.
struct Loads {
    has: PerNode,
    due: PerNode,
}

impl Loads {
    fn can_spare(&self, node: NodePlace) -> bool {
        self.has.get(node) > self.due.get(node)
    }

    fn lacks(&self, node: NodePlace) -> bool {
        self.has.get(node) < self.due.get(node)
    }
}

struct Succession<'a> {
    nodes: &'a [PlacedNode],
    /// The zone of each node, and how many there are.
    zone: PerNode,
    zones: usize,
    set_size: usize,
    drafts: Vec<Draft>,
    primaries: Loads,
    copies: Loads,
    /// The primaries that a node may have.
    most: PerNode,
}

/// The lists of all partitions for these nodes, after `old`.
fn lists(old: &Placement, nodes: &[PlacedNode], copies: usize) -> Vec<NodePlace> {
    let mut succession = Succession::new(old, nodes, copies);
    succession.apply_weights(old);
    for node in succession.ids() {
        succession.give_what_is_due(node);
    }
    for partition in 0..PARTITIONS {
        succession.place_primary(partition);
    }
    for partition in 0..PARTITIONS {
        succession.fill_set(partition);
    }
    let mut lists = Vec::with_capacity(PARTITIONS * nodes.len());
    for Draft { primary, set, rest } in succession.drafts {
        let others = set.into_iter().chain(rest).filter(|&node| Some(node) != primary);
        let (apart, together) = by_zone(nodes, primary.into_iter().chain(others));
        lists.extend(apart);
        lists.extend(together);
    }
    lists
}

impl<'a> Succession<'a> {
    /// Keeps what can be kept of the old lists.
    fn new(old: &Placement, nodes: &'a [PlacedNode], copies: usize) -> Self {
        let names: Vec<_> =
            nodes.iter().map(|node| (node.zone.is_some(), node.zone.as_ref().unwrap_or(&node.name))).collect();
        let ordinals: BTreeMap<_, _> = names.iter().zip(0..).collect();
        let zone = PerNode(names.iter().map(|name| *ordinals.get(name).expect("one of them")).collect());
        let none = || Loads { has: PerNode(vec![0; nodes.len()]), due: PerNode(vec![0; nodes.len()]) };
        let mut succession = Self {
            nodes,
            zone,
            zones: ordinals.len(),
            set_size: copies.min(nodes.len()),
            drafts: Vec::with_capacity(PARTITIONS),
            primaries: none(),
            copies: none(),
            most: PerNode(capacities(nodes)),
        };
        let (mut kept, mut new) = (vec![None; old.nodes.len()], Vec::new());
        for (node, id) in nodes.iter().zip(succession.ids()) {
            match old.place_of(&node.name) {
                Some(was) => *kept.get_mut(was.index()).expect("one of the old nodes") = Some(id),
                None => new.push((id, xxh3_64(node.name.as_bytes()))),
            }
        }
        for (row, partition) in old.lists.chunks(old.nodes.len()).zip(0_u16..) {
            let row: Vec<_> = row.iter().map(|was| kept.get(was.index()).copied().flatten()).collect();
            succession.draft(&row, &new, partition);
        }
        succession
    }

    /// Makes a draft of an old list, in which `None` stands for those that are gone.
    fn draft(&mut self, row: &[Option<NodePlace>], new: &[(NodePlace, u64)], partition: u16) {
        let primary = row.first().copied().flatten();
        let (mut set, mut rest) = (Vec::new(), Vec::new());
        for (&node, rank) in row.iter().zip(0..) {
            let Some(node) = node else { continue };
            if rank < self.set_size && self.are_apart(&set, None, node) { set.push(node) } else { rest.push(node) }
        }
        for &(node, name) in new {
            let places = u64::try_from(rest.len() + 1).expect("a small number");
            let place = xxh3_64_with_seed(&partition.to_be_bytes(), name) % places;
            rest.insert(usize::try_from(place).expect("a small number"), node);
        }
        if let Some(primary) = primary {
            *self.primaries.has.at(primary) += 1;
        }
        for &node in &set {
            *self.copies.has.at(node) += 1;
        }
        self.drafts.push(Draft { primary, set, rest });
    }

    /// Notes what is due to nodes that are new or have gained weight, and takes copies from those that have lost some:
    /// as many as their share has changed by.
    fn apply_weights(&mut self, old: &Placement) {
        let (before, after) = (shares(&old.nodes, 1000), shares(self.nodes, 1000));
        for ((node, id), share) in self.nodes.iter().zip(self.ids()).zip(after) {
            let was = old.place_of(&node.name).map(NodePlace::index);
            let weight = was.and_then(|was| old.nodes.get(was)).map_or(0, |node| node.weight);
            let share_before = was.and_then(|was| before.get(was)).copied().unwrap_or(0);
            if node.weight > weight {
                let more = share.saturating_sub(share_before);
                *self.primaries.due.at(id) = share.min(self.primaries.has.get(id) + more);
                *self.copies.due.at(id) = self.set_size * share.min(self.copies.has.get(id) / self.set_size + more);
            } else if node.weight < weight {
                let less = self.set_size * share_before.saturating_sub(share);
                let keeps = self.copies.has.get(id).saturating_sub(less);
                for draft in self.drafts.iter_mut().filter(|draft| draft.primary != Some(id)) {
                    if self.copies.has.get(id) > keeps && draft.set.contains(&id) {
                        draft.set.retain(|&node| node != id);
                        draft.rest.insert(0, id);
                        *self.copies.has.at(id) -= 1;
                    }
                }
            }
        }
    }

    fn ids(&self) -> impl Iterator<Item = NodePlace> + use<> {
        (0..).take(self.nodes.len()).map(NodePlace)
    }

    /// How much it has for its weight.
    fn fullness(&self, loads: &Loads, node: NodePlace) -> u64 {
        let weight = self.nodes.get(node.index()).expect("one of the nodes").weight;
        (u64::try_from(loads.has.get(node)).expect("a small number") << 32) / u64::from(weight)
    }

    fn has_room(&self, node: NodePlace) -> bool {
        self.primaries.has.get(node) < self.most.get(node)
    }

    fn draft_of(&self, partition: usize) -> &Draft {
        self.drafts.get(partition).expect("one of the partitions")
    }

    /// Whether a set is in as many zones as it can be with one node in, and maybe one out.
    fn are_apart(&self, set: &[NodePlace], out: Option<NodePlace>, with: NodePlace) -> bool {
        let nodes = set.iter().filter(|&&node| Some(node) != out).count() + 1;
        self.zones_of(set, out, with) == nodes.min(self.zones)
    }

    /// How many zones a set is in with one node in, and maybe one out.
    fn zones_of(&self, set: &[NodePlace], out: Option<NodePlace>, with: NodePlace) -> usize {
        let nodes = set.iter().copied().filter(|&node| Some(node) != out).chain([with]);
        let mut zones: Vec<_> = nodes.map(|node| self.zone.get(node)).collect();
        zones.sort_unstable();
        zones.dedup();
        zones.len()
    }

    /// Which node leaves a set for another to enter it: none if there is a place, else the fullest of those whose
    /// leaving lets the set be in the most zones, and the primary only if it must. (A set that has lost the only node
    /// of its second zone is in one, whichever leaves, until it is filled.)
    fn leaver(&self, draft: &Draft, node: NodePlace) -> Option<NodePlace> {
        if draft.set.len() < self.set_size && self.are_apart(&draft.set, None, node) {
            return None;
        }
        let leaver = draft.set.iter().copied().max_by_key(|&out| {
            let zones = self.zones_of(&draft.set, Some(out), node);
            (zones, Some(out) != draft.primary, self.fullness(&self.copies, out))
        });
        Some(leaver.expect("a node is apart from nobody: the set is not empty"))
    }

    fn enter_set(&mut self, partition: usize, node: NodePlace) {
        let draft = self.draft_of(partition);
        if draft.set.contains(&node) {
            return;
        }
        let leaver = self.leaver(draft, node);
        let draft = self.drafts.get_mut(partition).expect("one of the partitions");
        draft.rest.retain(|&other| other != node);
        match draft.set.iter_mut().find(|place| Some(**place) == leaver) {
            Some(place) => {
                *self.copies.has.at(*place) -= 1;
                draft.rest.insert(0, *place);
                *place = node;
            }
            None => draft.set.push(node),
        }
        *self.copies.has.at(node) += 1;
    }

    fn make_primary(&mut self, partition: usize, node: NodePlace) {
        self.enter_set(partition, node);
        let draft = self.drafts.get_mut(partition).expect("one of the partitions");
        if let Some(before) = draft.primary.replace(node) {
            *self.primaries.has.at(before) -= 1;
        }
        *self.primaries.has.at(node) += 1;
    }

    fn give_what_is_due(&mut self, node: NodePlace) {
        let fullness_of_primary = |this: &Self, draft: &Draft| match draft.primary {
            None => Some(u64::MAX),
            Some(primary) if primary == node || !this.primaries.can_spare(primary) => None,
            Some(primary) => Some(this.fullness(&this.primaries, primary)),
        };
        self.give(node, |this| this.primaries.lacks(node), fullness_of_primary, Self::make_primary);
        let fullness_of_leaver = |this: &Self, draft: &Draft| match this.leaver(draft, node) {
            _ if draft.set.contains(&node) => None,
            None => Some(u64::MAX),
            Some(leaver) if Some(leaver) == draft.primary || !this.copies.can_spare(leaver) => None,
            // A zone of many nodes has fewer copies for each than is due by weight.
            Some(leaver) => Some(this.fullness(&this.copies, leaver))
                .filter(|&fullness| fullness > this.fullness(&this.copies, node)),
        };
        self.give(node, |this| this.copies.lacks(node), fullness_of_leaver, Self::enter_set);
    }

    /// Gives the node one partition after another, of the fullest first, while it lacks some.
    fn give(
        &mut self,
        node: NodePlace,
        lacks: impl Fn(&Self) -> bool,
        fullness: impl Fn(&Self, &Draft) -> Option<u64>,
        take: impl Fn(&mut Self, usize, NodePlace),
    ) {
        if !lacks(self) {
            return;
        }
        let name = xxh3_64(self.nodes.get(node.index()).expect("one of the nodes").name.as_bytes());
        let fullest = self.drafts.iter().zip(0_u16..).zip(0..).filter_map(|((draft, number), partition)| {
            Some((fullness(self, draft)?, xxh3_64_with_seed(&number.to_be_bytes(), name), partition))
        });
        let mut fullest: BinaryHeap<(u64, u64, usize)> = fullest.collect();
        while lacks(self)
            && let Some((known, hash, partition)) = fullest.pop()
        {
            // The others only lose, so what is known of them is too much, or right.
            match fullness(self, self.draft_of(partition)) {
                Some(now) if now == known => take(self, partition, node),
                Some(now) => fullest.push((now, hash, partition)),
                None => {}
            }
        }
    }

    /// Finds a primary if there is none, or if the one there is has too many.
    fn place_primary(&mut self, partition: usize) {
        let draft = self.draft_of(partition);
        if draft.primary.is_some_and(|node| self.primaries.has.get(node) <= self.most.get(node)) {
            return;
        }
        let in_set = draft.set.iter().filter(|&&node| self.has_room(node));
        let least = in_set.min_by_key(|&&node| self.fullness(&self.primaries, node));
        let least = least.or_else(|| draft.rest.iter().find(|&&node| self.has_room(node)));
        let &node = least.expect("the capacities add up to more than all partitions");
        self.make_primary(partition, node);
    }

    fn fill_set(&mut self, partition: usize) {
        while self.draft_of(partition).set.len() < self.set_size {
            let draft = self.draft_of(partition);
            let able = draft.rest.iter().filter(|&&node| self.are_apart(&draft.set, None, node));
            let least = able.min_by_key(|&&node| self.fullness(&self.copies, node));
            let &node = least.expect("a node of another zone, or else any");
            self.enter_set(partition, node);
        }
    }
}
