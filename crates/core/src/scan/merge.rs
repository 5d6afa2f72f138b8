//! Pages of several nodes as one list of keys. Bounded by one page of each node, and the next.

use std::collections::VecDeque;

use super::page::{ScanEntry, ScanHolding, ScanPage};
use crate::key::Key;
use crate::node::NodeId;
use crate::version::{Hlc, Version};

/// What one node says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHolding {
    /// Which node.
    pub node: NodeId,
    /// What it holds; nothing if it does not.
    pub holding: Option<ScanHolding>,
    /// What its absence stands for.
    pub gc_watermark: Version,
    /// Its durable clock, with the page.
    pub clock: Hlc,
}

/// A key that every node of the plan has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedKey {
    /// The key.
    pub key: Key,
    /// What each node of the plan says of it, in their order.
    pub holdings: Vec<NodeHolding>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeStep {
    /// This key.
    Key(MergedKey),
    /// Pages of the nodes that [`ScanMerge::awaited`] names.
    Await,
    /// The range has ended.
    End,
}

/// A page that does not follow the one before it, or of a node that is not in the plan or at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a page out of place")]
pub struct OutOfPlace;

/// The lists of all nodes of a plan.
#[derive(Debug)]
pub struct ScanMerge {
    lists: Vec<NodeList>,
}

#[derive(Debug)]
struct NodeList {
    node: NodeId,
    entries: VecDeque<ScanEntry>,
    gc_watermark: Version,
    clock: Hlc,
    /// Up to where it has looked.
    frontier: Frontier,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Frontier {
    /// Nothing has come.
    Begin,
    /// To this key.
    At(Key),
    /// To the end of the range.
    End,
}

impl ScanMerge {
    /// The lists of these nodes, of which nothing has come.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let list = |node| NodeList {
            node,
            entries: VecDeque::new(),
            gc_watermark: Version::ZERO,
            clock: Hlc::ZERO,
            frontier: Frontier::Begin,
        };
        Self { lists: nodes.into_iter().map(list).collect() }
    }

    /// Takes the next page of a node, once it has none left, with the node's durable clock.
    ///
    /// # Errors
    /// [`OutOfPlace`]; nothing of the page is taken.
    pub fn push(&mut self, node: NodeId, page: ScanPage, clock: Hlc) -> Result<(), OutOfPlace> {
        let is_open = |list: &&mut NodeList| list.node == node && list.is_exhausted();
        let list = self.lists.iter_mut().find(is_open).ok_or(OutOfPlace)?;
        let frontier = page.frontier.map_or(Frontier::End, Frontier::At);
        let first = page.entries.first().map(|entry| Frontier::At(entry.key.clone()));
        // A page that has looked at nothing would be asked for again and again.
        if frontier <= list.frontier || first.is_some_and(|first| first <= list.frontier) {
            return Err(OutOfPlace);
        }
        list.entries = page.entries.into();
        list.gc_watermark = page.gc_watermark;
        list.clock = clock;
        list.frontier = frontier;
        Ok(())
    }

    /// The nodes whose next page is needed, each with the last key that it has looked at, if any.
    pub fn awaited(&self) -> impl Iterator<Item = (NodeId, Option<&Key>)> {
        self.lists.iter().filter(|list| list.is_exhausted()).map(|list| (list.node, list.frontier.key()))
    }

    /// The next key, or what is needed first.
    pub fn step(&mut self) -> MergeStep {
        let least = self.lists.iter().filter_map(|list| list.entries.front()).map(|entry| &entry.key).min().cloned();
        let Some(key) = least else {
            return if self.awaited().next().is_some() { MergeStep::Await } else { MergeStep::End };
        };
        // A node that has nothing left may hold the key, unless it has looked behind it.
        let reached = Frontier::At(key.clone());
        if self.lists.iter().any(|list| list.entries.is_empty() && list.frontier < reached) {
            return MergeStep::Await;
        }
        let holding = |list: &mut NodeList| {
            let entry = list.entries.pop_front_if(|entry| entry.key == key);
            let (gc_watermark, clock) = (list.gc_watermark, list.clock);
            NodeHolding { node: list.node, holding: entry.map(|entry| entry.holding), gc_watermark, clock }
        };
        MergeStep::Key(MergedKey { holdings: self.lists.iter_mut().map(holding).collect(), key })
    }

    /// The last key that all nodes have looked at and that was given, if it was there: from behind it a scan may go on.
    #[must_use]
    pub fn passed(&self) -> Option<&Key> {
        // Before a key that waits, only what is before it has been given.
        let is_waiting = self.lists.iter().any(|list| !list.entries.is_empty());
        let least = self.lists.iter().map(|list| &list.frontier).min()?;
        if is_waiting { None } else { least.key() }
    }
}

impl NodeList {
    fn is_exhausted(&self) -> bool {
        self.entries.is_empty() && self.frontier != Frontier::End
    }
}

impl Frontier {
    fn key(&self) -> Option<&Key> {
        if let Self::At(key) = self { Some(key) } else { None }
    }
}
