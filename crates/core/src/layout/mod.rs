//! The values of the chain: the nodes of an epoch, and where keys belong.
//!
//! A *plan* says what the nodes are to be. It is carried out in *steps*. A step is opened, and while it is open a key
//! belongs where it was and where it will be. It ends in a flip, or is aborted. A plan takes as many steps as it needs
//! for no set of replicas to lose more than a minority in one of them.
//!
//! Each change is a function of the value before it, and [`Layout::may_be_followed_by`] tries them: so what a value
//! may be followed by stands in one place, and every acceptor checks it.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64;

use crate::chain::{ChainValue, Voter};
use crate::key::{PARTITIONS, PartitionId};
use crate::node::{DirectoryId, NodeId};
use crate::placement::{NodePlace, PlacedNode, Placement, PlacementError};
use crate::quorum::{NODES_MAX, Rank};

mod founding;
mod lists;

pub use lists::{PreferenceLists, lost_in_a_step};

/// Longest layout as bytes, with what a message about it adds: its lists, those of its step and those of its plan, with
/// two bytes for each node of each partition, and the nodes twice.
pub const LAYOUT_BYTES_MAX: usize = 3 * PARTITIONS * (2 * NODES_MAX + 2) + 2 * NODES_MAX * 4096;

/// What a node is for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberState {
    /// It holds what is its own, and decides with the others.
    Member,
    /// It is given what will be its own. It decides nothing yet.
    Joining,
    /// It gives away what it has. It decides until it has gone.
    Leaving,
    /// It leaves and will not come back: no step waits for what it has.
    Lost,
}

/// A node in an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemberNode {
    /// Its number.
    pub id: NodeId,
    /// Where it listens.
    pub url: String,
    /// What it votes with: its data directory, or the number that it has drawn since it was rebuilt.
    pub directory: DirectoryId,
    /// Its share is this over the sum of all.
    pub weight: u16,
    /// What it may fail together with.
    pub zone: Option<String>,
    /// What it is.
    pub state: MemberState,
}

/// What the nodes are to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayoutPlan {
    /// Tells it from others; drawn.
    pub id: u64,
    /// Those that come or stay, with their new weights and zones. Those that come have numbers from
    /// [`Layout::next_id`] on.
    pub nodes: Vec<MemberNode>,
    /// Of those that go: which will not come back.
    pub lost: BTreeSet<NodeId>,
    /// Where keys belong in the end.
    pub lists: PreferenceLists,
}

/// A node as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedNode {
    /// Where it listens.
    pub url: String,
    /// Its data directory.
    pub directory: DirectoryId,
    /// Its share is this over the sum of all.
    pub weight: u16,
    /// What it may fail together with.
    pub zone: Option<String>,
    /// The node that it replaces: it takes that node's places in all lists.
    pub replaces: Option<NodeId>,
}

impl WantedNode {
    /// One that has shown nothing of itself yet, of the weight 1, in a zone of its own.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), directory: DirectoryId::UNKNOWN, weight: 1, zone: None, replaces: None }
    }

    fn placed(&self) -> PlacedNode {
        PlacedNode { name: self.url.clone(), weight: self.weight, zone: self.zone.clone() }
    }
}

/// What the first epoch of a cluster decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundedCluster {
    /// The cluster, among others; not 0.
    pub cluster: u64,
    /// Part of the hash of every key.
    pub hash_seed: u64,
    /// Replicas of a key where a request does not say how many.
    pub copies: u8,
    /// Those that are known.
    pub directories: BTreeMap<NodeId, DirectoryId>,
}

/// An epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
// What is derived are functions of its own, for the traits below.
#[serde(remote = "Self")]
pub struct Layout {
    epoch: u64,
    parent: u64,
    /// The digest of what the first epoch follows; of that itself, 0.
    founding: u64,
    cluster: u64,
    /// Part of the hash of every key.
    hash_seed: u64,
    /// Replicas of a key where a request does not say how many.
    copies: u8,
    /// In the order of their numbers.
    nodes: Vec<MemberNode>,
    /// No node has had it, or a greater one.
    next_id: u32,
    lists: PreferenceLists,
    /// In a step: where keys will belong.
    next: Option<PreferenceLists>,
    opened: u64,
    plan: Option<LayoutPlan>,
    /// Bytes a second that a node copies for a step. None is the node's own setting.
    pace: Option<u64>,
}

impl Serialize for Layout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Layout {
    /// Of bytes that may come from anywhere: what cannot be a layout is none.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let layout = Self::deserialize(deserializer)?;
        layout.check_sound().map_err(D::Error::custom)?;
        Ok(layout)
    }
}

/// Why a plan is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// One at a time.
    #[error("plan {0:x} runs: wait for its end, or abort it")]
    Runs(u64),
    /// Nodes, or places of keys, that do not fit together.
    #[error("the plan does not fit this layout: {0}")]
    Misfit(&'static str),
    /// Nodes that cannot be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// One node that comes takes the places of one that goes.
    #[error("{0} cannot be replaced: it must be here and go, and one new node must take its places")]
    Replacement(NodeId),
    /// What it asks for is there.
    #[error("the plan changes nothing")]
    Nothing,
}

impl Layout {
    /// Its number.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The digest of the layout that it follows.
    #[must_use]
    pub fn parent(&self) -> u64 {
        self.parent
    }

    /// The digest of the list of nodes that the cluster was founded with.
    #[must_use]
    pub fn founding_digest(&self) -> u64 {
        if self.epoch == 0 { self.digest() } else { self.founding }
    }

    /// Layouts that differ in anything have different digests. Reads all of it: for what asks seldom.
    #[must_use]
    pub fn digest(&self) -> u64 {
        xxh3_64(&postcard::to_allocvec(self).expect("plain values can be written"))
    }

    /// Replicas of a key where a request does not say how many.
    #[must_use]
    pub fn copies(&self) -> u8 {
        self.copies
    }

    /// The cluster, among others; 0 as long as it is not founded.
    #[must_use]
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// A node of this epoch.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&MemberNode> {
        let place = self.nodes.binary_search_by_key(&id, |node| node.id).ok()?;
        self.nodes.get(place)
    }

    /// The node with this URL, spelled as it was given.
    #[must_use]
    pub fn node_at(&self, url: &str) -> Option<NodeId> {
        self.nodes.iter().find(|node| node.url == url).map(|node| node.id)
    }

    /// The numbers of its nodes, from the least on.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().map(|node| node.id)
    }

    /// All nodes in the order in which they are replicas of the partition: the first is its primary.
    #[must_use]
    pub fn preference_list(&self, partition: PartitionId) -> &[NodeId] {
        self.lists.of(partition)
    }

    /// The node's place in the partition's list; `None` if the layout has no such node.
    #[must_use]
    pub fn rank_of(&self, partition: PartitionId, node: NodeId) -> Option<Rank> {
        let rank = self.preference_list(partition).iter().position(|&other| other == node)?;
        u8::try_from(rank).ok().map(Rank)
    }

    /// Its nodes, in the order of their numbers.
    #[must_use]
    pub fn nodes(&self) -> &[MemberNode] {
        &self.nodes
    }

    /// The number of the next node that comes.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Where keys belong.
    #[must_use]
    pub fn lists(&self) -> &PreferenceLists {
        &self.lists
    }

    /// In a step: where keys will belong as well.
    #[must_use]
    pub fn next_lists(&self) -> Option<&PreferenceLists> {
        self.next.as_ref()
    }

    /// The epoch in which the step was opened last: also again, for a joiner with another directory.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// The plan that is carried out.
    #[must_use]
    pub fn plan(&self) -> Option<&LayoutPlan> {
        self.plan.as_ref()
    }

    fn child(&self) -> Self {
        Self { epoch: self.epoch + 1, parent: self.digest(), ..self.clone() }
    }

    /// A plan for these nodes, whose lists follow from the lists that there are. A node that is here is known by its URL
    /// and directory together: another directory at its URL is another node.
    ///
    /// # Errors
    /// [`PlanError`]. [`open`](Self::open) checks what depends on both.
    pub fn plan_for(&self, id: u64, wanted: &[WantedNode], lost: BTreeSet<NodeId>) -> Result<LayoutPlan, PlanError> {
        if let Some(plan) = &self.plan {
            return Err(PlanError::Runs(plan.id));
        }
        let mut next_id = self.next_id;
        let mut nodes: Vec<MemberNode> = Vec::with_capacity(wanted.len());
        let mut heirs = BTreeMap::new();
        for WantedNode { url, directory, weight, zone, replaces } in wanted {
            let known = self.nodes.iter().find(|node| (&node.url, node.directory) == (url, *directory));
            let id = known.map_or(NodeId(next_id), |node| node.id);
            next_id += u32::from(known.is_none());
            if let Some(old) = replaces {
                let is_here = self.nodes.iter().any(|node| node.id == *old);
                if known.is_some() || !is_here || heirs.insert(*old, id).is_some() {
                    return Err(PlanError::Replacement(*old));
                }
            }
            let (url, zone, state) = (url.clone(), zone.clone(), MemberState::Member);
            nodes.push(MemberNode { id, url, directory: *directory, weight: *weight, zone, state });
        }
        nodes.sort_by_key(|node| node.id);
        check_nodes(&nodes)?;
        if let Some(old) = heirs.keys().find(|old| nodes.iter().any(|node| node.id == **old)) {
            return Err(PlanError::Replacement(*old));
        }
        let lists = self.lists_for(&nodes, &heirs)?;
        Ok(LayoutPlan { id, nodes, lost, lists })
    }

    /// The lists that follow when these take the places of those, and then nodes come and go.
    fn lists_for(&self, nodes: &[MemberNode], heirs: &BTreeMap<NodeId, NodeId>) -> Result<PreferenceLists, PlanError> {
        // A placement knows nodes by name. Here it is the number: a machine may come back at the URL of another.
        let name = |id: NodeId| format!("{:010}", id.0);
        let placed =
            |node: &MemberNode, id| PlacedNode { name: name(id), weight: node.weight, zone: node.zone.clone() };
        let heir = |id: NodeId| heirs.get(&id).copied().unwrap_or(id);
        let mut before: Vec<_> = self.nodes.iter().map(|node| placed(node, heir(node.id))).collect();
        before.sort_by(|a, b| a.name.cmp(&b.name));
        let place = |id: NodeId| {
            let index =
                before.binary_search_by(|node| node.name.cmp(&name(heir(id)))).expect("its lists are of its nodes");
            NodePlace(u8::try_from(index).expect("at most NODES_MAX"))
        };
        let lists = self.lists.iter().flatten().map(|id| place(*id)).collect();
        let before = Placement::with_lists(before.clone(), lists);
        let after = before.succeed(nodes.iter().map(|node| placed(node, node.id)).collect(), self.copies)?;
        Ok(lists_of(&after, nodes))
    }

    /// Whether a layout can be so. Not whether it was decided: acceptors look at that.
    fn check_sound(&self) -> Result<(), PlanError> {
        check_nodes(&self.nodes)?;
        misfit(self.copies == 0, "a key has at least one copy")?;
        misfit(self.nodes.iter().any(|node| node.id.0 >= self.next_id), "a node has a number that was not given yet")?;
        let holding = self.nodes.iter().filter(|node| node.state != MemberState::Joining);
        misfit(self.lists.nodes() != holding.map(|node| node.id).collect(), "its lists are of other nodes")?;
        let ids: BTreeSet<_> = self.ids().collect();
        let is_strange = |next: &PreferenceLists| !next.nodes().is_subset(&ids);
        misfit(self.next.as_ref().is_some_and(is_strange), "its next lists are of other nodes")?;
        self.plan.as_ref().map_or(Ok(()), |plan| check(&plan.nodes, &plan.lists))
    }

    /// Opens the first step of a plan.
    ///
    /// # Errors
    /// [`PlanError`]
    pub fn open(&self, plan: LayoutPlan) -> Result<Self, PlanError> {
        if let Some(plan) = &self.plan {
            return Err(PlanError::Runs(plan.id));
        }
        check(&plan.nodes, &plan.lists)?;
        let comes_unknown = |node: &MemberNode| node.id.0 >= self.next_id && node.directory == DirectoryId::UNKNOWN;
        misfit(plan.nodes.iter().any(comes_unknown), "a node that comes has not shown its directory")?;
        if plan.nodes.len() < usize::from(self.copies) {
            return Err(PlanError::Misfit("it leaves fewer nodes than a key has copies"));
        }
        let mut value = self.child();
        for node in &mut value.nodes {
            match plan.nodes.iter().find(|planned| planned.id == node.id) {
                Some(planned) if (&planned.url, planned.directory) != (&node.url, node.directory) => {
                    return Err(PlanError::Misfit("a node that stays has another URL or directory in it"));
                }
                Some(_) => {}
                None if plan.lost.contains(&node.id) => node.state = MemberState::Lost,
                None => node.state = MemberState::Leaving,
            }
        }
        let coming = plan.nodes.iter().filter(|node| !self.nodes.iter().any(|known| known.id == node.id));
        for node in coming {
            let is_known = self.nodes.iter().any(|known| known.url == node.url || known.directory == node.directory);
            if node.id.0 != value.next_id || is_known {
                return Err(PlanError::Misfit("a node that comes has the number, URL or directory of another"));
            }
            value.next_id += 1;
            value.nodes.push(MemberNode { state: MemberState::Joining, ..node.clone() });
        }
        if value.nodes.len() > NODES_MAX {
            return Err(PlanError::Misfit("old and new nodes together are too many"));
        }
        if plan.nodes == self.nodes && plan.lists == self.lists {
            return Err(PlanError::Nothing);
        }
        value.plan = Some(plan);
        value.open_step();
        Ok(value)
    }

    fn open_step(&mut self) {
        let Some(plan) = &self.plan else { return };
        self.next = Some(self.lists.step_towards(&plan.lists, self.copies));
        self.opened = self.epoch;
    }

    /// Opens the next step of the plan, if one has ended and another is needed.
    #[must_use]
    pub fn open_next(&self) -> Option<Self> {
        if self.next.is_some() || self.plan.is_none() {
            return None;
        }
        let mut value = self.child();
        value.open_step();
        Some(value)
    }

    /// Ends the step: keys belong where they will belong, and who comes has come. With the last step those that leave
    /// have left, weights and zones are the new ones, and the plan is carried out.
    #[must_use]
    pub fn flip(&self) -> Option<Self> {
        let mut value = self.child();
        value.lists = value.next.take()?;
        for node in value.nodes.iter_mut().filter(|node| node.state == MemberState::Joining) {
            node.state = MemberState::Member;
        }
        if let Some(plan) = value.plan.take_if(|plan| plan.lists == value.lists) {
            let members = plan.nodes.into_iter();
            value.nodes = members.map(|node| MemberNode { state: MemberState::Member, ..node }).collect();
        }
        Some(value)
    }

    /// Ends the step and its plan: keys belong where they belonged. Who has come in an earlier step stays, and so does
    /// who was to leave.
    #[must_use]
    pub fn abort(&self) -> Option<Self> {
        self.plan.as_ref()?;
        let mut value = self.child();
        (value.next, value.plan) = (None, None);
        value.nodes.retain(|node| node.state != MemberState::Joining);
        for node in &mut value.nodes {
            node.state = MemberState::Member;
        }
        Some(value)
    }

    /// A node has another directory: a member that was rebuilt, or a joiner that has lost its disk. For a joiner the
    /// step begins anew: what it was given is lost.
    #[must_use]
    pub fn with_directory(&self, id: NodeId, directory: DirectoryId) -> Option<Self> {
        let mut value = self.child();
        if directory == DirectoryId::UNKNOWN || value.nodes.iter().any(|node| node.directory == directory) {
            return None;
        }
        let node = value.nodes.iter_mut().find(|node| node.id == id && node.state != MemberState::Lost)?;
        node.directory = directory;
        if node.state == MemberState::Joining {
            value.opened = value.epoch;
        }
        let planned = value.plan.iter_mut().flat_map(|plan| &mut plan.nodes).filter(|node| node.id == id);
        planned.for_each(|node| node.directory = directory);
        Some(value)
    }

    /// Another pace.
    #[must_use]
    pub fn with_pace(&self, pace: Option<u64>) -> Self {
        Self { pace, ..self.child() }
    }

    /// The node whose directory alone differs.
    fn renewed_in(&self, next: &Self) -> Option<(NodeId, DirectoryId)> {
        let pairs = self.nodes.iter().zip(&next.nodes);
        let mut differing = pairs.filter(|(was, is)| was.id == is.id && was.directory != is.directory);
        differing.next().map(|(_, node)| (node.id, node.directory))
    }
}

impl ChainValue for Layout {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn digest(&self) -> u64 {
        self.digest()
    }

    fn parent(&self) -> u64 {
        self.parent()
    }

    fn voters(&self) -> impl Iterator<Item = Voter> {
        let deciding = self.nodes.iter().filter(|node| node.state != MemberState::Joining);
        // A node that founds a cluster is known by its place in the list, and by what its peers remember of it.
        deciding.map(|node| Voter { member: node.id, directory: (self.epoch > 0).then_some(node.directory) })
    }

    fn may_be_followed_by(&self, next: &Self) -> bool {
        let is = |change: Option<Self>| change.as_ref() == Some(next);
        if self.epoch == 0 {
            return is(self.found(&next.founded()).ok());
        }
        let renewed = || self.renewed_in(next).and_then(|(id, directory)| self.with_directory(id, directory));
        let opened = || next.plan.clone().and_then(|plan| self.open(plan).ok());
        is(self.flip())
            || is(self.abort())
            || is(self.open_next())
            || is(Some(self.with_pace(next.pace)))
            || is(renewed())
            || is(opened())
    }
}

/// The lists of these nodes, which are in the order of their names in the placement.
fn lists_of(placement: &Placement, nodes: &[MemberNode]) -> PreferenceLists {
    let id = |place: &NodePlace| nodes.get(place.index()).expect("as many nodes").id;
    let lists = PartitionId::all().map(|partition| placement.preference_list(partition).iter().map(id).collect());
    PreferenceLists::try_from(lists.collect::<Vec<Vec<_>>>()).expect("a placement has all nodes in each list")
}

fn misfit(is: bool, why: &'static str) -> Result<(), PlanError> {
    if is { Err(PlanError::Misfit(why)) } else { Ok(()) }
}

/// Whether nodes are apart, and in their order.
fn check_nodes(nodes: &[MemberNode]) -> Result<(), PlanError> {
    misfit(nodes.is_empty() || nodes.len() > NODES_MAX, "too few nodes, or too many")?;
    misfit(nodes.iter().any(|node| node.weight == 0), "a node has the weight 0")?;
    let urls: BTreeSet<_> = nodes.iter().map(|node| &node.url).collect();
    let known = || nodes.iter().map(|node| node.directory).filter(|directory| *directory != DirectoryId::UNKNOWN);
    let is_twice = urls.len() < nodes.len() || known().collect::<BTreeSet<_>>().len() < known().count();
    misfit(is_twice, "two nodes have one URL or directory")?;
    let mut pairs = nodes.iter().zip(nodes.iter().skip(1));
    misfit(pairs.any(|(a, b)| a.id >= b.id), "numbers of nodes are out of order")
}

/// Whether the lists are of these nodes, too.
fn check(nodes: &[MemberNode], lists: &PreferenceLists) -> Result<(), PlanError> {
    check_nodes(nodes)?;
    misfit(lists.nodes() != nodes.iter().map(|node| node.id).collect(), "its lists are of other nodes")
}
