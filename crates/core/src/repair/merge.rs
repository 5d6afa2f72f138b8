//! Lists of several nodes, each in the order of keys and coming page by page, as one list of what each node
//! holds for a key. Bounded by one page of each node.

use std::collections::VecDeque;

use super::Holding;
use crate::key::Key;
use crate::node::NodeId;

/// Where a page is in its node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePlace {
    /// Others follow.
    Inner,
    /// At the end.
    Last,
}

/// The lists of all nodes.
#[derive(Debug, Default)]
pub struct Merge {
    lists: Vec<List>,
}

#[derive(Debug)]
struct List {
    node: NodeId,
    entries: VecDeque<(Key, Holding)>,
    /// More will come.
    is_open: bool,
}

/// A page that is not in the order of keys, or comes from a node whose list has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a list is out of order")]
pub struct OutOfOrder;

impl Merge {
    /// The lists of these nodes, of which nothing has come.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let list = |node| List { node, entries: VecDeque::new(), is_open: true };
        Self { lists: nodes.into_iter().map(list).collect() }
    }

    /// The nodes whose next page is needed.
    pub fn awaited(&self) -> impl Iterator<Item = NodeId> {
        self.lists.iter().filter(|list| list.is_open && list.entries.is_empty()).map(|list| list.node)
    }

    /// Takes the next page of a node. Keys ascend over all its pages; the last may be empty.
    ///
    /// # Errors
    /// [`OutOfOrder`]; nothing of the page is taken.
    pub fn push(&mut self, node: NodeId, page: Vec<(Key, Holding)>, place: PagePlace) -> Result<(), OutOfOrder> {
        let list = self.lists.iter_mut().find(|list| list.node == node && list.is_open).ok_or(OutOfOrder)?;
        let last = list.entries.back().map(|(key, _)| key);
        let keys = || page.iter().map(|(key, _)| key);
        if !last.into_iter().chain(keys()).is_sorted_by(|one, next| one < next) {
            return Err(OutOfOrder);
        }
        list.entries.extend(page);
        list.is_open = place == PagePlace::Inner;
        Ok(())
    }

    /// The node is gone, and with it what it listed.
    pub fn remove(&mut self, node: NodeId) {
        self.lists.retain(|list| list.node != node);
    }

    /// The next key, and what each node that lists it holds; nothing at the end, or while a page is awaited.
    pub fn next_key(&mut self) -> Option<(Key, Vec<(NodeId, Holding)>)> {
        if self.awaited().next().is_some() {
            return None;
        }
        let least = self.lists.iter().filter_map(|list| list.entries.front()).map(|(key, _)| key).min()?.clone();
        let take = |list: &mut List| {
            let (_, holding) = list.entries.pop_front_if(|(key, _)| *key == least)?;
            Some((list.node, holding))
        };
        let holdings = self.lists.iter_mut().filter_map(take).collect();
        Some((least, holdings))
    }
}
