//! The values of the chain: the nodes of an epoch, and where keys belong.
//!
//! A *plan* says what the nodes are to be. It is carried out in *steps*. A step is opened, and while it is open a key
//! belongs where it was and where it will be. It ends in a flip, or is aborted. A plan takes as many steps as it needs
//! for no set of replicas to lose more than a minority in one of them.
//!
//! Each change is a function of the value before it, and [`LayoutValue::may_be_followed_by`] tries them: so what a value
//! may be followed by stands in one place, and every acceptor checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::{ChainValue, DirectoryId, MemberId, Voter};
use crate::key::{PARTITIONS, PartitionId};
use crate::placement::{Layout, LayoutError, LayoutNode, NodeId};
use crate::quorum::NODES_MAX;

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
    pub id: MemberId,
    /// Where it listens.
    pub url: String,
    /// Its data directory.
    pub directory: DirectoryId,
    /// Its share is this over the sum of all.
    pub weight: u16,
    /// What it may fail together with.
    pub zone: Option<String>,
    /// What it is.
    pub state: MemberState,
}

/// For each partition all nodes, in the order in which they are its replicas.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Vec<MemberId>>", into = "Vec<Vec<MemberId>>")]
pub struct PreferenceLists(Vec<Vec<MemberId>>);

impl TryFrom<Vec<Vec<MemberId>>> for PreferenceLists {
    type Error = PlanError;

    /// One list for each partition, each with the same nodes, none twice.
    fn try_from(lists: Vec<Vec<MemberId>>) -> Result<Self, PlanError> {
        let nodes = lists.first().map(|list| sorted(list)).unwrap_or_default();
        let is_whole = nodes.windows(2).all(|pair| pair.first() < pair.get(1));
        let are_same = lists.len() == PARTITIONS && lists.iter().all(|list| sorted(list) == nodes);
        if is_whole && are_same { Ok(Self(lists)) } else { Err(PlanError::Misfit("its lists are not whole")) }
    }
}

impl From<PreferenceLists> for Vec<Vec<MemberId>> {
    fn from(lists: PreferenceLists) -> Self {
        lists.0
    }
}

impl fmt::Debug for PreferenceLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All of it would be a line of 100 KB.
        write!(f, "lists of {:?}", self.nodes())
    }
}

impl PreferenceLists {
    /// By partition.
    #[must_use]
    pub fn lists(&self) -> &[Vec<MemberId>] {
        &self.0
    }

    fn nodes(&self) -> BTreeSet<MemberId> {
        self.0.first().into_iter().flatten().copied().collect()
    }
}

fn sorted(list: &[MemberId]) -> Vec<MemberId> {
    let mut nodes = list.to_vec();
    nodes.sort_unstable();
    nodes
}

/// What the nodes are to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayoutPlan {
    /// Tells it from others; drawn.
    pub id: u64,
    /// Those that come or stay, with their new weights and zones. Those that come have numbers from
    /// [`LayoutValue::next_id`] on.
    pub nodes: Vec<MemberNode>,
    /// Of those that go: which will not come back.
    pub lost: BTreeSet<MemberId>,
    /// Where keys belong in the end.
    pub lists: PreferenceLists,
}

/// A node as a plan asks for it.
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
    pub replaces: Option<MemberId>,
}

/// An epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayoutValue {
    epoch: u64,
    parent: u64,
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

/// Why a plan is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// One at a time.
    #[error("plan {0:x} runs: wait for its end, or abort it")]
    Runs(u64),
    /// Nodes, or places of keys, that do not fit together.
    #[error("the plan does not fit this layout: {0}")]
    Misfit(&'static str),
    /// A layout that cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// One node that comes takes the places of one that goes.
    #[error("node {} cannot be replaced: it must be here and go, and one new node must take its places", .0.0)]
    Replacement(MemberId),
    /// What it asks for is there.
    #[error("the plan changes nothing")]
    Nothing,
}

impl LayoutValue {
    /// The first epoch of a cluster, behind a value whose digest is `parent`. Nodes get the numbers from 0 on, in their
    /// order, and the lists name those.
    ///
    /// # Errors
    /// [`PlanError::Misfit`]
    pub fn first(
        parent: u64,
        (cluster, hash_seed, copies): (u64, u64, u8),
        mut nodes: Vec<MemberNode>,
        lists: PreferenceLists,
    ) -> Result<Self, PlanError> {
        for (node, id) in nodes.iter_mut().zip(0..) {
            (node.id, node.state) = (MemberId(id), MemberState::Member);
        }
        check(&nodes, &lists)?;
        if copies == 0 {
            return Err(PlanError::Misfit("a key has at least one copy"));
        }
        let next_id = u32::try_from(nodes.len()).expect("a small number");
        let (next, plan, pace) = (None, None, None);
        Ok(Self { epoch: 1, parent, cluster, hash_seed, copies, nodes, next_id, lists, next, opened: 0, plan, pace })
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
    pub fn plan_for(&self, id: u64, wanted: &[WantedNode], lost: BTreeSet<MemberId>) -> Result<LayoutPlan, PlanError> {
        if let Some(plan) = &self.plan {
            return Err(PlanError::Runs(plan.id));
        }
        let mut next_id = self.next_id;
        let mut nodes: Vec<MemberNode> = Vec::with_capacity(wanted.len());
        let mut heirs = BTreeMap::new();
        for WantedNode { url, directory, weight, zone, replaces } in wanted {
            let known = self.nodes.iter().find(|node| (&node.url, node.directory) == (url, *directory));
            let id = known.map_or(MemberId(next_id), |node| node.id);
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
    fn lists_for(
        &self,
        nodes: &[MemberNode],
        heirs: &BTreeMap<MemberId, MemberId>,
    ) -> Result<PreferenceLists, PlanError> {
        // A layout knows nodes by URL. Numbers take their place here: a machine may come back at the URL of another.
        let name = |id: MemberId| format!("{:010}", id.0);
        let placed = |node: &MemberNode, id| LayoutNode { url: name(id), weight: node.weight, zone: node.zone.clone() };
        let heir = |id: MemberId| heirs.get(&id).copied().unwrap_or(id);
        let mut before: Vec<_> = self.nodes.iter().map(|node| placed(node, heir(node.id))).collect();
        before.sort_by(|a, b| a.url.cmp(&b.url));
        let place = |id: MemberId| {
            let index =
                before.binary_search_by(|node| node.url.cmp(&name(heir(id)))).expect("its lists are of its nodes");
            NodeId(u8::try_from(index).expect("at most NODES_MAX"))
        };
        let lists = self.lists.0.iter().flatten().map(|id| place(*id)).collect();
        let before = Layout::with_lists(self.epoch, before.clone(), lists);
        let after = before.succeed(nodes.iter().map(|node| placed(node, node.id)).collect(), self.copies)?;
        // In the order of their names, which is that of their numbers.
        let of = |place: &NodeId| nodes.get(place.index()).expect("as many nodes").id;
        let partitions = (0..).map_while(PartitionId::new);
        Ok(PreferenceLists(partitions.map(|of_it| after.preference_list(of_it).iter().map(of).collect()).collect()))
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
        self.next = Some(step_towards(&self.lists, &plan.lists, self.copies));
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
    pub fn with_directory(&self, id: MemberId, directory: DirectoryId) -> Option<Self> {
        let mut value = self.child();
        if value.nodes.iter().any(|node| node.directory == directory) {
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
    fn renewed_in(&self, next: &Self) -> Option<(MemberId, DirectoryId)> {
        let pairs = self.nodes.iter().zip(&next.nodes);
        let mut differing = pairs.filter(|(was, is)| was.id == is.id && was.directory != is.directory);
        differing.next().map(|(_, node)| (node.id, node.directory))
    }
}

impl ChainValue for LayoutValue {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn digest(&self) -> u64 {
        xxh3_64(&postcard::to_allocvec(self).expect("plain values can be written"))
    }

    fn parent(&self) -> u64 {
        self.parent
    }

    fn voters(&self) -> impl Iterator<Item = Voter> {
        let deciding = self.nodes.iter().filter(|node| node.state != MemberState::Joining);
        deciding.map(|node| Voter { member: node.id, directory: Some(node.directory) })
    }

    fn may_be_followed_by(&self, next: &Self) -> bool {
        let is = |change: Option<Self>| change.as_ref() == Some(next);
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

fn misfit(is: bool, why: &'static str) -> Result<(), PlanError> {
    if is { Err(PlanError::Misfit(why)) } else { Ok(()) }
}

/// Whether nodes are apart, and in their order.
fn check_nodes(nodes: &[MemberNode]) -> Result<(), PlanError> {
    misfit(nodes.is_empty() || nodes.len() > NODES_MAX, "too few nodes, or too many")?;
    misfit(nodes.iter().any(|node| node.weight == 0), "a node has the weight 0")?;
    let urls: BTreeSet<_> = nodes.iter().map(|node| &node.url).collect();
    let directories: BTreeSet<_> = nodes.iter().map(|node| node.directory).collect();
    misfit(urls.len() < nodes.len() || directories.len() < nodes.len(), "two nodes have one URL or directory")?;
    let mut pairs = nodes.iter().zip(nodes.iter().skip(1));
    misfit(pairs.any(|(a, b)| a.id >= b.id), "numbers of nodes are out of order")
}

/// Whether the lists are of these nodes, too.
fn check(nodes: &[MemberNode], lists: &PreferenceLists) -> Result<(), PlanError> {
    check_nodes(nodes)?;
    misfit(lists.nodes() != nodes.iter().map(|node| node.id).collect(), "its lists are of other nodes")
}

/// Most replicas that a set of so many may lose in one step: a minority, or one where there is none.
#[must_use]
pub fn lost_in_a_step(copies: usize) -> usize {
    (copies.saturating_sub(1) / 2).max(1)
}

/// Where keys belong after one step from `now` towards `target`. Nodes that are in `now` alone come last, until the
/// target is reached.
fn step_towards(now: &PreferenceLists, target: &PreferenceLists, copies: u8) -> PreferenceLists {
    let leaving: Vec<_> = now.nodes().difference(&target.nodes()).copied().collect();
    let steps = now.0.iter().zip(&target.0).map(|(now, target)| list_towards(now, target, usize::from(copies)));
    let lists: Vec<_> = steps.collect();
    if lists.iter().zip(&target.0).all(|(list, target)| list == target) {
        return target.clone();
    }
    let whole = |mut list: Vec<MemberId>| {
        let missing: Vec<_> = leaving.iter().filter(|node| !list.contains(node)).copied().collect();
        list.extend(missing);
        list
    };
    PreferenceLists(lists.into_iter().map(whole).collect())
}

/// The list itself if its set loses no more than it may. Else as many of the old set are replaced, in their places.
fn list_towards(now: &[MemberId], target: &[MemberId], copies: usize) -> Vec<MemberId> {
    let set = |list: &[MemberId]| list.iter().take(copies).copied().collect::<Vec<_>>();
    let (mut replicas, wanted) = (set(now), set(target));
    let lost: Vec<_> = replicas.iter().filter(|node| !wanted.contains(node)).copied().collect();
    let gained: Vec<_> = wanted.iter().filter(|node| !replicas.contains(node)).copied().collect();
    let most = lost_in_a_step(replicas.len());
    if lost.len() <= most {
        return target.to_vec();
    }
    for (old, new) in lost.iter().zip(&gained).take(most) {
        let place = replicas.iter_mut().find(|node| *node == old).expect("one of the set");
        *place = *new;
    }
    let rest: Vec<_> = target.iter().filter(|node| !replicas.contains(node)).copied().collect();
    replicas.extend(rest);
    replicas
}
