//! Sees to it that this node knows the newest layout, is named by it, and in a step refuses what is asked by older ones.
//! Before the first layout it founds the cluster, with the other nodes of the list.
//!
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_base::clock::Clock;
use kvorum_base::task::BoxedTask;
use kvorum_core::chain::{Ballot, ChainAnswer, ChainRequest};
use kvorum_core::layout::{FoundedCluster, Layout};
use kvorum_core::node::NodeId;
use kvorum_storage::commit::Promise;
use xxhash_rust::xxh3::xxh3_64;

use super::proposer::{NotDecided, Proposer};
use crate::replica::Replica;
use crate::replica::reply_to::ReplyTo;

/// How often a node looks whether there is something to do, beside each time that it learns something.
const LOOK: Duration = Duration::from_secs(1);
/// A node leaves it so long to the first of those that are there to found the cluster, and to the last ones to come.
const PATIENCE: Duration = Duration::from_secs(1);
/// After a step is opened a node still answers by older layouts for the deadline of requests and this. Requests that
/// began with one are over by then.
const GRACE: Duration = Duration::from_secs(3);
/// The first pause after an attempt that failed; doubled up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Drives the chain, on one shard of the node.
pub struct LayoutDriver {
    /// The node's clock.
    pub clock: Arc<Clock>,
    /// Has layouts decided.
    pub proposer: Rc<Proposer>,
    /// Makes bars durable.
    pub replica: Rc<Replica<ReplyTo>>,
    /// What this node proposes if it founds the cluster: replicas of a key where a request does not say how many.
    pub copies: u8,
}

/// What there is to do.
enum LayoutTask {
    Nothing,
    /// A peer knows a newer layout.
    Fetch(NodeId),
    /// There is no layout yet.
    Found(Box<Layout>),
    /// The newest layout names another directory of this node.
    Renew,
    /// The step of this epoch is open for long enough.
    Bar(u64),
}

/// Since when this node could do what it waits with.
#[derive(Default)]
struct Since {
    /// Found the cluster.
    founding: Option<Duration>,
    /// Know the step that was opened in this epoch.
    step: (u64, Duration),
}

impl LayoutDriver {
    /// Runs until it is dropped.
    pub fn run(self: Rc<Self>) -> BoxedTask {
        Box::pin(async move {
            let (mut seen, mut pause, mut attempts) = (Ballot::NONE, PAUSE_MIN, 0);
            let mut since = Since::default();
            loop {
                let changed = self.proposer.membership.changed();
                let missed = match self.task(&mut since, attempts) {
                    LayoutTask::Nothing => {
                        pause = PAUSE_MIN;
                        let _ = tokio::time::timeout(LOOK, changed).await;
                        continue;
                    }
                    LayoutTask::Fetch(node) => self.fetch(node).await,
                    LayoutTask::Found(wanted) => self.proposer.propose(*wanted, seen).await.map(|_| ()),
                    LayoutTask::Renew => self.renew(seen).await,
                    LayoutTask::Bar(epoch) => self.raise_bar(epoch).await,
                };
                match missed {
                    Ok(()) => pause = PAUSE_MIN,
                    Err(missed) => {
                        if let NotDecided::Outbid(ballot) = missed {
                            seen = seen.max(ballot);
                        }
                        attempts += 1;
                        tokio::time::sleep(self.part_of(pause, attempts)).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
            }
        })
    }

    /// Half of it and a random part of the rest, so that two proposers do not go on in step.
    fn part_of(&self, pause: Duration, attempts: usize) -> Duration {
        let drawn = xxh3_64(format!("{} {attempts}", self.proposer.membership.run().id.0).as_bytes());
        let random = u32::from(drawn.to_be_bytes()[0]);
        pause / 2 + pause * random / 512
    }

    /// `attempts` that failed: each asks another node. Where a newer layout cannot be fetched, what else there is to do has
    /// its turn in between.
    fn task(&self, since: &mut Since, attempts: usize) -> LayoutTask {
        let membership = &self.proposer.membership;
        if membership.is_draining() {
            return LayoutTask::Nothing;
        }
        let ahead = membership.ahead();
        let asked = ahead.iter().cycle().nth(attempts / 2 % ahead.len().max(1));
        let other = self.without_fetching(since);
        match (asked, &other) {
            (Some(node), LayoutTask::Nothing) => LayoutTask::Fetch(*node),
            (Some(node), LayoutTask::Found(_) | LayoutTask::Renew) if attempts.is_multiple_of(2) => {
                LayoutTask::Fetch(*node)
            }
            _ => other,
        }
    }

    fn without_fetching(&self, since: &mut Since) -> LayoutTask {
        let membership = &self.proposer.membership;
        let (layout, now) = (membership.layout(), self.clock.boot());
        if let Some(epoch) = self.bar_due(&layout, now, &mut since.step) {
            return LayoutTask::Bar(epoch);
        }
        if layout.epoch() > 0 {
            return if membership.unnamed_directory().is_some() { LayoutTask::Renew } else { LayoutTask::Nothing };
        }
        if !membership.may_found() {
            return LayoutTask::Nothing;
        }
        let is_patient = now < *since.founding.get_or_insert(now) + PATIENCE;
        let shown = |node: NodeId| Some((node, membership.shown_directory(node)?));
        let directories: BTreeMap<_, _> = layout.ids().filter_map(shown).collect();
        let is_up = |node: &NodeId| membership.peer(*node).links.load(Ordering::Relaxed) > 0;
        let is_first = !layout.ids().take_while(|node| *node < membership.own()).any(|node| is_up(&node));
        if is_patient && (!is_first || directories.len() < layout.nodes().len()) {
            return LayoutTask::Nothing;
        }
        // Drawn with the directory and the run: another founder draws another.
        let drawn = xxh3_64(format!("{} {}", membership.directory(), membership.run().id.0).as_bytes());
        let founded = FoundedCluster { cluster: drawn.max(1), hash_seed: 0, copies: self.copies, directories };
        layout.found(&founded).map_or(LayoutTask::Nothing, |wanted| LayoutTask::Found(Box::new(wanted)))
    }

    fn bar_due(&self, layout: &Layout, now: Duration, known: &mut (u64, Duration)) -> Option<u64> {
        let opened = layout.opened();
        if layout.next_lists().is_none() || self.replica.bar() >= opened {
            return None;
        }
        if known.0 != opened {
            *known = (opened, now);
        }
        (now >= known.1 + self.proposer.deadline + GRACE).then_some(opened)
    }

    async fn raise_bar(&self, epoch: u64) -> Result<(), NotDecided> {
        self.replica.promise(Promise::Bar(epoch)).await?;
        tracing::info!(epoch, "requests by older layouts are refused from now on");
        Ok(())
    }

    async fn fetch(&self, node: NodeId) -> Result<(), NotDecided> {
        let have = self.proposer.membership.layout().epoch();
        match self.proposer.ask(node, ChainRequest::Get { have }).await? {
            ChainAnswer::Chosen(value) => self.proposer.learn(value).await,
            _ => Err(NotDecided::NotNext),
        }
    }

    /// Has this node's directory named.
    async fn renew(&self, seen: Ballot) -> Result<(), NotDecided> {
        let (layout, directory) = (self.proposer.membership.layout(), self.proposer.membership.unnamed_directory());
        let renewed = directory.and_then(|directory| layout.with_directory(self.proposer.membership.own(), directory));
        let renewed = renewed.ok_or(NotDecided::NotNext)?;
        self.proposer.propose(renewed, seen).await.map(|_| ())
    }
}
