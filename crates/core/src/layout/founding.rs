//! How a cluster begins.

use super::{FoundedCluster, Layout, MemberNode, MemberState, PlanError, WantedNode, check, lists_of, misfit};
use crate::node::{DirectoryId, NodeId};
use crate::placement::Placement;

impl Layout {
    /// What comes before the first epoch: the nodes of the list that a cluster is first started with. All nodes that
    /// have the list make the same of it. Nodes get the numbers from 0 on, in the order of their URLs, and are placed as
    /// [`Placement::new`] says. Their directories are not known yet.
    ///
    /// # Errors
    /// [`PlanError::Placement`], [`PlanError::Misfit`]
    pub fn founding(mut wanted: Vec<WantedNode>) -> Result<Self, PlanError> {
        wanted.sort_by(|a, b| a.url.cmp(&b.url));
        let placement = Placement::new(wanted.iter().map(WantedNode::placed).collect())?;
        let node = |(wanted, id)| {
            let WantedNode { url, weight, zone, .. } = wanted;
            let (directory, state) = (DirectoryId::UNKNOWN, MemberState::Member);
            MemberNode { id: NodeId(id), url, directory, weight, zone, state }
        };
        let nodes: Vec<_> = wanted.into_iter().zip(0..).map(node).collect();
        let lists = lists_of(&placement, &nodes);
        check(&nodes, &lists)?;
        Ok(Self {
            epoch: 0,
            parent: 0,
            founding: 0,
            cluster: 0,
            hash_seed: 0,
            copies: u8::try_from(nodes.len()).expect("at most NODES_MAX"),
            next_id: u32::try_from(nodes.len()).expect("a small number"),
            nodes,
            lists,
            next: None,
            opened: 0,
            plan: None,
            pace: None,
        })
    }

    /// The first epoch, behind the nodes that [found](Self::founding) the cluster. It names the directories of a majority
    /// at least: with fewer no later epoch could be decided. The others are named when they have shown theirs.
    ///
    /// # Errors
    /// [`PlanError::Misfit`]
    pub fn found(&self, founded: &FoundedCluster) -> Result<Self, PlanError> {
        let FoundedCluster { cluster, hash_seed, copies, directories } = founded;
        misfit(self.epoch != 0, "the cluster is founded")?;
        misfit(*cluster == 0, "a cluster has a number")?;
        let is_fit = (1..=self.nodes.len()).contains(&usize::from(*copies));
        misfit(!is_fit, "a key has at least one copy, and at most one on each node")?;
        let directory = |id| directories.get(id).copied().unwrap_or(DirectoryId::UNKNOWN);
        let known = self.nodes.iter().filter(|node| directory(&node.id) != DirectoryId::UNKNOWN).count();
        misfit(known <= self.nodes.len() / 2, "the directories of a majority are not known")?;
        let mut value =
            Self { founding: self.digest(), cluster: *cluster, hash_seed: *hash_seed, copies: *copies, ..self.child() };
        for node in &mut value.nodes {
            node.directory = directory(&node.id);
        }
        check(&value.nodes, &value.lists)?;
        Ok(value)
    }

    /// What has made this the first epoch, if it is.
    pub(super) fn founded(&self) -> FoundedCluster {
        let directories = self.nodes.iter().map(|node| (node.id, node.directory)).collect();
        FoundedCluster { cluster: self.cluster, hash_seed: self.hash_seed, copies: self.copies, directories }
    }

    /// The layout of nodes that keep to their list, and decide none that follows: their directories are not known. For
    /// tests of what happens in one epoch.
    ///
    /// # Errors
    /// As [`founding`](Self::founding).
    pub fn fixed(nodes: Vec<WantedNode>, cluster: u64, copies: u8) -> Result<Self, PlanError> {
        misfit(copies == 0 || usize::from(copies) > nodes.len(), "a key has at most one copy on each node")?;
        let founding = Self::founding(nodes)?;
        let digest = founding.digest();
        Ok(Self { epoch: 1, parent: digest, founding: digest, cluster, copies, ..founding })
    }

    /// The same of nodes of equal weight, each with a copy of every key.
    ///
    /// # Errors
    /// As [`founding`](Self::founding).
    pub fn fixed_at<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Result<Self, PlanError> {
        let nodes: Vec<_> = urls.into_iter().map(WantedNode::at).collect();
        let copies = u8::try_from(nodes.len()).unwrap_or(u8::MAX);
        Self::fixed(nodes, 0, copies)
    }
}
