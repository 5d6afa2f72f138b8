//! The pages that a scan has asked for: at most one under way for each node, and one that has come.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_core::key::least_behind;
use kvorum_core::node::NodeId;
use kvorum_core::quorum::Failure;
use kvorum_core::scan::merge::ScanMerge;
use kvorum_core::scan::page::{PageQuestion, ScanPage};
use kvorum_core::scan::plan::ScanPlan;
use kvorum_core::{Hlc, Key};
use tokio::task::JoinSet;

use super::scanner::{ScanSpec, Scanner, key_bytes};

/// How long a node may take for a page: it gives way to requests, and a long pause looks like a death.
const PAGE_MAX: Duration = Duration::from_secs(20);
/// What is asked of a node first; each page is twice as long as the one before, up to what pages may have. So a scan that
/// its client ends after ten records has not had every node read much more.
const FIRST_PAGE_BYTES: usize = 16 * 1024;
/// How often a node without room is asked again, and how long after.
const ATTEMPTS_MAX: u32 = 100;
const RETRY: Duration = Duration::from_millis(20);

type PageResult = (NodeId, Result<(ScanPage, Hlc), Failure>);

/// Pages of one plan.
#[derive(Default)]
pub(super) struct Pages {
    start: Bytes,
    /// From where each node goes on, where that is not `start`, and how many pages it has given.
    starts: BTreeMap<NodeId, (Bytes, u32)>,
    asked: JoinSet<PageResult>,
    under_way: BTreeSet<NodeId>,
    /// Those that have come before they are awaited.
    come: BTreeMap<NodeId, (ScanPage, Hlc)>,
}

impl Pages {
    /// Pages from this key on; none is asked for.
    pub(super) fn from(start: Bytes) -> Self {
        Self { start, ..Self::default() }
    }

    /// A node has looked at all up to this key.
    pub(super) fn go_on(&mut self, node: NodeId, frontier: &Key) {
        let given = self.starts.get(&node).map_or(0, |(_, given)| *given);
        self.starts.insert(node, (least_behind(&key_bytes(frontier)).into(), given + 1));
    }

    /// From where the node goes on that has come furthest: for a planted defect.
    pub(super) fn furthest(&self) -> Option<Bytes> {
        self.starts.values().map(|(start, _)| start).max().cloned()
    }

    /// Asks a node for its next page, unless one is under way or there.
    pub(super) fn ask(&mut self, scanner: &Rc<Scanner>, epoch: u64, spec: &ScanSpec, plan: &ScanPlan, node: NodeId) {
        if self.come.contains_key(&node) || !self.under_way.insert(node) {
            return;
        }
        let (start, given) = self.starts.get(&node).map_or((&self.start, 0), |(start, given)| (start, *given));
        let longest = FIRST_PAGE_BYTES << given.min(8);
        let question = PageQuestion {
            start: start.clone(),
            end: spec.end.clone(),
            values: spec.values.clone(),
            bytes_max: scanner.budget.page_bytes.min(longest),
            part: plan.part(node),
        };
        let scanner = Rc::clone(scanner);
        self.asked.spawn_local(async move {
            let answer = tokio::time::timeout(PAGE_MAX, ask(&scanner, epoch, node, question)).await;
            (node, answer.unwrap_or(Err(Failure::Timeout)))
        });
    }

    /// The next page that the merge awaits. Cancel safe.
    ///
    /// # Errors
    /// A node that gives none, and why.
    pub(super) async fn next(&mut self, merge: &ScanMerge) -> Result<(NodeId, ScanPage, Hlc), (NodeId, Failure)> {
        loop {
            let awaited = merge.awaited().map(|(node, _)| node).find(|node| self.come.contains_key(node));
            if let Some(node) = awaited
                && let Some((page, clock)) = self.come.remove(&node)
            {
                return Ok((node, page, clock));
            }
            let (node, answer) =
                self.asked.join_next().await.expect("a page is awaited").expect("asking does not panic");
            self.under_way.remove(&node);
            let answer = answer.map_err(|failure| (node, failure))?;
            self.come.insert(node, answer);
        }
    }
}

async fn ask(
    scanner: &Rc<Scanner>,
    epoch: u64,
    node: NodeId,
    question: PageQuestion,
) -> Result<(ScanPage, Hlc), Failure> {
    let mut attempts = 0;
    loop {
        let answer = if node == scanner.membership.own() {
            let page = scanner.reader.read(question.clone()).await;
            let page = if scanner.rpc.is_past(epoch) { Err(Failure::Epoch) } else { page };
            page.map(|page| (page, scanner.clock.durable_reading()))
        } else {
            scanner.rpc.page(node, epoch, &question).await
        };
        attempts += 1;
        if answer != Err(Failure::Overloaded) || attempts == ATTEMPTS_MAX {
            return answer;
        }
        tokio::time::sleep(RETRY).await;
    }
}
