//! Drives rounds: one at a time, on one shard of the node.
//!
//! Automatic rounds are driven by the lowest-numbered node that is up; others begin one when none has been seen for
//! several intervals. A round gives way to a greater one. Whatever ends a round early, what was copied until then
//! stays, and the next one begins anew.

use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_base::cpu_share::CpuShare;
use kvorum_base::task::BoxedTask;
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::Failure;
use kvorum_core::repair::RoundId;
use kvorum_core::repair::merge::{Merge, PagePlace};
use kvorum_core::repair::round::{MemberVote, Round};
use kvorum_core::repair::trees::Leaves;
use kvorum_core::repair::wire::{Cursor, RoundRequest, RoundResponse};
use kvorum_core::{Hlc, PartitionId};
use kvorum_peer::membership::VoteState;
use tokio::task::JoinSet;

use super::copies::{ANSWER_MAX, Copied, Copier};
use super::member::Member;
use super::{AntiEntropy, RoundProgress, Summary, add};
use crate::background_rpc::BackgroundRpc;
use crate::scan_pace::ScanPace;

/// How often it is looked whether a round is due.
const TICK: Duration = Duration::from_secs(1);
/// Between two questions whether a node has summed up.
const POLL: Duration = Duration::from_millis(50);
/// Records on their way at once.
const COPIES_MAX: usize = 256;
/// Copies have one of so many parts of the share that work in the background has (decision 0038).
const COPY_PARTS: u32 = 2;
/// Partitions whose trees are compared at once.
const PARTITIONS_AT_ONCE: usize = 64;
/// A node without a vote drives rounds at least so often, once it may get it back.
const RESTORE_AFTER: Duration = Duration::from_secs(10);
/// How often a round is announced to the nodes.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// A driver that sends nothing for so long is not at work any more.
const SILENCE_MAX: Duration = Duration::from_secs(6);
/// A node that is not the first of those up waits for so many intervals.
const PATIENCE: u32 = 3;

/// Why a round ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundAborted {
    /// A greater round is known to a node.
    Superseded {
        /// What that one compares.
        by: Hlc,
    },
    /// This node cannot take part itself.
    Unable,
    /// An operator has stopped it.
    Stopped,
}

/// Drives rounds, on one shard of the node.
pub struct Driver {
    /// This node's part in them.
    pub member: Rc<Member>,
    /// Asks the others.
    pub rpc: Rc<BackgroundRpc>,
    /// Has copies rest while requests come.
    pub cpu_share: CpuShare,
}

impl Driver {
    /// Drives rounds when they are due. Runs until it is dropped.
    pub fn run(self: Rc<Self>) -> BoxedTask {
        Box::pin(async move {
            let anti_entropy = self.member.anti_entropy.clone();
            loop {
                tokio::select! {
                    () = tokio::time::sleep(TICK) => {}
                    () = anti_entropy.wake.notified() => {}
                }
                if self.member.membership.is_draining() || !self.is_due() {
                    continue;
                }
                let began = self.member.clock.boot();
                // Listens before there is a round that could be asked to stop.
                let mut stop = pin!(anti_entropy.stop.notified());
                stop.as_mut().enable();
                // Dropped anywhere it is as if this node had died there: what was copied stays, and nothing is proven.
                let driven = tokio::select! {
                    biased;
                    driven = self.drive() => driven,
                    () = stop => Err(RoundAborted::Stopped),
                };
                match driven {
                    Err(RoundAborted::Stopped) => self.end_stopped(began),
                    Ok(summary) => self.end(summary),
                    Err(ended) => {
                        if let Some(left_out) = anti_entropy.given_up.due(self.member.clock.boot()) {
                            tracing::info!(?ended, left_out, "a round of anti-entropy was given up");
                        }
                        anti_entropy.state().driving = None;
                        if let RoundAborted::Superseded { by } = ended {
                            self.exceed(by);
                        }
                        // The driver that superseded it is at work.
                        tokio::time::sleep(TICK).await;
                        anti_entropy.wake.notify_one();
                    }
                }
            }
        })
    }

    fn is_due(&self) -> bool {
        let Member { clock, membership, anti_entropy, .. } = &*self.member;
        if membership.is_fenced() || membership.abstains() == Some(Failure::NotServing) {
            return false;
        }
        let is_up = |node: &NodeId| membership.peer(*node).links.load(Ordering::Relaxed) > 0;
        let is_first =
            !membership.others().into_iter().take_while(|node| *node < membership.own()).any(|node| is_up(&node));
        let now = clock.boot();
        // A node without its vote does not wait for others to begin.
        let may_be_restored =
            membership.vote_state() == VoteState::Rebuilding && now >= anti_entropy.note_rebuilding(clock);
        let state = anti_entropy.state();
        let quiet = now.saturating_sub(state.heard_at);
        let is_others = state.part.as_ref().is_some_and(|part| part.round.driver != membership.own());
        if is_others && quiet < SILENCE_MAX {
            // To begin now would end a round that is at work.
            return false;
        }
        let interval = anti_entropy.settings.interval * if is_first { 1 } else { PATIENCE };
        if may_be_restored && quiet >= interval.min(RESTORE_AFTER) {
            return true;
        }
        state.wanted > state.driven || quiet >= interval
    }

    fn end(&self, summary: Summary) {
        let anti_entropy = &self.member.anti_entropy;
        let metrics = &anti_entropy.metrics;
        add(&metrics.rounds, 1);
        add(&metrics.whole_rounds, usize::from(summary.missing.is_empty()));
        tracing::info!(
            round = summary.round.until.raw(),
            seconds = summary.took.as_secs_f64(),
            missing = summary.missing.join(","),
            differing = summary.differing,
            copied = summary.copied,
            unsettled = summary.unsettled,
            proven = summary.proven,
            "a round of anti-entropy ended"
        );
        let mut state = anti_entropy.state();
        state.heard_at = self.member.clock.boot();
        state.driven += 1;
        state.driving = None;
        state.keep_round(summary);
    }

    /// The next round is due as after one that ended.
    fn end_stopped(&self, began: Duration) {
        let now = self.member.clock.boot();
        let mut state = self.member.anti_entropy.state();
        state.heard_at = now;
        let Some(RoundProgress { round, copied, .. }) = state.driving.take() else { return };
        tracing::info!(round = round.until.raw(), copied, "a round of anti-entropy was stopped by an operator");
        state.driven += 1;
        state.keep_round(Summary {
            round,
            took: now.saturating_sub(began),
            missing: Vec::new(),
            differing: 0,
            copied,
            unsettled: 0,
            proven: 0,
            is_stopped: true,
        });
    }

    /// W: far enough behind the clock that only stragglers are below it. The clock itself is brought to the present
    /// first, and the others' with every frame from now on, also where nothing was written for long.
    fn propose(&self) -> RoundId {
        let clock = &self.member.clock;
        let lag_ms = u64::try_from(self.member.anti_entropy.settings.lag.as_millis()).unwrap_or(u64::MAX);
        let until = Hlc::from_millis(clock.present().millis().saturating_sub(lag_ms));
        RoundId { until, driver: self.member.membership.own() }
    }

    /// Has the next round be greater than one that was driven by a clock which is ahead of this one, where no write has
    /// brought that here.
    fn exceed(&self, until: Hlc) {
        let lag_ms = u64::try_from(self.member.anti_entropy.settings.lag.as_millis()).unwrap_or(u64::MAX);
        self.member.clock.observe(Hlc::from_millis(until.millis().saturating_add(lag_ms).saturating_add(1)));
    }

    async fn drive(self: &Rc<Self>) -> Result<Summary, RoundAborted> {
        let began = self.member.clock.boot();
        let id = self.propose();
        let progress = RoundProgress { round: id, phase: "begin", listed: 0, copied: 0 };
        self.member.anti_entropy.state().driving = Some(progress);
        let layout = self.member.membership.layout();
        let round = Round::new(id, &layout);
        let mut driver = Driving { driver: self, id, round, differing: 0, copied: 0 };
        driver.begin().await?;
        let _alive = driver.keep_alive();
        driver.phase("sum up");
        driver.take_sums().await?;
        driver.phase("compare");
        driver.compare().await?;
        driver.phase("copy");
        driver.list_and_copy().await?;
        driver.phase("end");
        // What was compared may be no longer all that there is: a node may have come that was not in this round.
        let is_of_now = self.member.membership.layout().epoch() == layout.epoch();
        let proven = if is_of_now { driver.round.proven() } else { PartitionSet::default() };
        let restored: BTreeMap<NodeId, PartitionSet> = if is_of_now { driver.restored() } else { BTreeMap::new() };
        let end = |node: NodeId| {
            let restored = restored.get(&node).cloned().unwrap_or_default();
            RoundRequest::End { round: id, proven: proven.clone(), restored }
        };
        driver.ask_all(end).await?;
        let missing =
            layout.nodes().iter().filter(|node| !driver.round.is_present(node.id)).map(|node| node.url.clone());
        Ok(Summary {
            round: id,
            took: self.member.clock.boot().saturating_sub(began),
            missing: missing.collect(),
            differing: driver.differing,
            copied: driver.copied,
            unsettled: driver.round.unsettled().len(),
            proven: proven.len(),
            is_stopped: false,
        })
    }

    /// Asks one node, this one too. No answer in time is none.
    async fn ask(&self, node: NodeId, request: RoundRequest) -> Option<RoundResponse> {
        if node == self.member.membership.own() {
            return Some(self.member.answer(node, request).await);
        }
        let asked = self.rpc.request(node, &request);
        tokio::time::timeout(ANSWER_MAX, asked).await.ok()?.ok()
    }
}

impl AntiEntropy {
    fn note(&self, change: impl FnOnce(&mut RoundProgress)) {
        if let Some(progress) = &mut self.state().driving {
            change(progress);
        }
    }
}

/// A round under way.
struct Driving<'a> {
    driver: &'a Rc<Driver>,
    id: RoundId,
    round: Round<'a>,
    /// Keys that some node lacked.
    differing: u64,
    copied: u64,
}

impl Driving<'_> {
    fn phase(&self, phase: &'static str) {
        self.driver.member.anti_entropy.note(|progress| progress.phase = phase);
    }

    async fn begin(&mut self) -> Result<(), RoundAborted> {
        let round = self.id;
        for (node, response) in self.ask_all(|_| RoundRequest::Begin { round }).await? {
            if let RoundResponse::Begun { votes } = response {
                self.round.on_begun(node, if votes { MemberVote::Counts } else { MemberVote::Abstains });
            }
        }
        if self.round.is_present(self.driver.member.membership.own()) { Ok(()) } else { Err(RoundAborted::Unable) }
    }

    /// Announces this round to the nodes for as long as the set lives, however long the driver has nothing to ask.
    fn keep_alive(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for node in self.round.present() {
            let (driver, round) = (self.driver.clone(), self.id);
            tasks.spawn_local(async move {
                loop {
                    tokio::time::sleep(KEEP_ALIVE).await;
                    let _ = driver.ask(node, RoundRequest::Marked { round }).await;
                }
            });
        }
        tasks
    }

    /// What those without a vote have got back.
    fn restored(&self) -> BTreeMap<NodeId, PartitionSet> {
        let rebuilding = self.round.present().filter(|node| !self.round.is_voting(*node));
        rebuilding.map(|node| (node, self.round.restored(node))).collect()
    }

    /// Asks all present nodes at once; one that fails is lost to the round.
    async fn ask_all(
        &mut self,
        request: impl Fn(NodeId) -> RoundRequest,
    ) -> Result<Vec<(NodeId, RoundResponse)>, RoundAborted> {
        let mut asked = JoinSet::new();
        for node in self.round.present() {
            let (driver, request) = (self.driver.clone(), request(node));
            asked.spawn_local(async move { (node, driver.ask(node, request).await) });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            let (node, response) = answer.expect("asking does not panic");
            match response {
                Some(RoundResponse::Superseded { by }) => return Err(RoundAborted::Superseded { by }),
                Some(RoundResponse::Failed) | None => self.round.lose(node),
                Some(response) => answers.push((node, response)),
            }
        }
        Ok(answers)
    }

    /// Waits for the trees of all nodes, and takes their roots.
    async fn take_sums(&mut self) -> Result<(), RoundAborted> {
        let mut awaited: BTreeMap<NodeId, u8> = self.round.present().map(|node| (node, 0)).collect();
        while !awaited.is_empty() {
            let id = self.id;
            let asking: Vec<NodeId> = awaited.keys().copied().collect();
            let mut is_waiting = false;
            for node in asking {
                let above = awaited.get(&node).copied().unwrap_or_default();
                match self.driver.ask(node, RoundRequest::Roots { round: id, above }).await {
                    Some(RoundResponse::Summing) => is_waiting = true,
                    Some(RoundResponse::Roots { class, roots }) if class > above => {
                        self.round.on_roots(node, class, roots);
                        awaited.insert(node, class);
                    }
                    Some(RoundResponse::NoMoreRoots) => _ = awaited.remove(&node),
                    Some(RoundResponse::Superseded { by }) => return Err(RoundAborted::Superseded { by }),
                    _ => {
                        awaited.remove(&node);
                        self.round.lose(node);
                    }
                }
            }
            if is_waiting {
                tokio::time::sleep(POLL).await;
            }
        }
        let id = self.id;
        for (_, response) in self.ask_all(|_| RoundRequest::Marked { round: id }).await? {
            if let RoundResponse::Marked(marked) = response {
                self.round.on_marked(marked);
            }
        }
        Ok(())
    }

    /// Finds the leaves that differ.
    async fn compare(&mut self) -> Result<(), RoundAborted> {
        let differing: Vec<PartitionId> = self.round.differing().iter().collect();
        for partitions in differing.chunks(PARTITIONS_AT_ONCE) {
            let mut trees: BTreeMap<PartitionId, BTreeMap<(u8, NodeId), Leaves>> =
                partitions.iter().map(|partition| (*partition, BTreeMap::new())).collect();
            let present: Vec<NodeId> = self.round.present().collect();
            for node in present {
                if !self.take_trees(node, partitions, &mut trees).await? {
                    self.round.lose(node);
                }
            }
            for (partition, trees) in trees {
                self.round.on_leaves(partition, &trees);
            }
        }
        Ok(())
    }

    /// Takes a node's trees of these partitions; whether it gave them.
    async fn take_trees(
        &self,
        node: NodeId,
        partitions: &[PartitionId],
        trees: &mut BTreeMap<PartitionId, BTreeMap<(u8, NodeId), Leaves>>,
    ) -> Result<bool, RoundAborted> {
        let mut rest = partitions;
        while !rest.is_empty() {
            let request = RoundRequest::Trees { round: self.id, partitions: rest.to_vec() };
            let (covered, found) = match self.driver.ask(node, request).await {
                Some(RoundResponse::Trees { covered, trees }) => (covered, trees),
                Some(RoundResponse::Superseded { by }) => return Err(RoundAborted::Superseded { by }),
                _ => return Ok(false),
            };
            for tree in found {
                let Some(leaves) = tree.leaves() else { return Ok(false) };
                if let Some(by_node) = trees.get_mut(&tree.partition) {
                    by_node.insert((tree.class, node), leaves);
                }
            }
            match rest.get(covered..) {
                Some(left) if covered > 0 => rest = left,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Has the selected leaves listed by all, and gives each what it lacks.
    async fn list_and_copy(&mut self) -> Result<(), RoundAborted> {
        let leaves = self.round.selection();
        if leaves.is_empty() {
            return Ok(());
        }
        let id = self.id;
        self.ask_all(|_| RoundRequest::Select { round: id, leaves: leaves.clone() }).await?;
        let mut merge = Merge::new(self.round.present());
        let mut cursors: BTreeMap<NodeId, Cursor> = BTreeMap::new();
        let copier = Rc::new(Copier { own: self.driver.member.membership.own(), rpc: self.driver.rpc.clone() });
        let pace = Rc::new(ScanPace::new(self.driver.member.anti_entropy.settings.rate));
        let mut copies = JoinSet::new();
        let mut work = self.driver.cpu_share.begin_part(COPY_PARTS);
        loop {
            self.fill(&mut merge, &mut cursors).await?;
            let Some((key, held)) = merge.next_key() else { break };
            // What the copies under way take meanwhile is for the next.
            work.pause_task().await;
            self.driver.member.anti_entropy.note(|progress| progress.listed += 1);
            let partition = key.hash().partition();
            let Some(plan) = self.round.plan(partition, &held) else { continue };
            self.differing += 1;
            while copies.len() >= COPIES_MAX {
                let copied = copies.join_next().await.expect("there are copies");
                self.take_copied(copied.expect("copying does not panic"));
            }
            copies.spawn_local(copier.clone().copy(pace.clone(), key, plan));
        }
        while let Some(copied) = copies.join_next().await {
            self.take_copied(copied.expect("copying does not panic"));
        }
        Ok(())
    }

    /// Fetches the pages that the merge waits for.
    async fn fill(&mut self, merge: &mut Merge, cursors: &mut BTreeMap<NodeId, Cursor>) -> Result<(), RoundAborted> {
        loop {
            let awaited: Vec<NodeId> = merge.awaited().collect();
            if awaited.is_empty() {
                return Ok(());
            }
            let mut asked = JoinSet::new();
            for node in awaited {
                let request = RoundRequest::List { round: self.id, after: cursors.get(&node).cloned() };
                let driver = self.driver.clone();
                asked.spawn_local(async move { (node, driver.ask(node, request).await) });
            }
            while let Some(answer) = asked.join_next().await {
                let (node, response) = answer.expect("asking does not panic");
                let is_taken = match response {
                    Some(RoundResponse::Superseded { by }) => return Err(RoundAborted::Superseded { by }),
                    Some(RoundResponse::List { entries, next }) => {
                        let taken =
                            merge.push(node, entries, if next.is_none() { PagePlace::Last } else { PagePlace::Inner });
                        if let Some(cursor) = next {
                            cursors.insert(node, cursor);
                        }
                        taken.is_ok()
                    }
                    _ => false,
                };
                if !is_taken {
                    merge.remove(node);
                    self.round.lose(node);
                }
            }
        }
    }

    fn take_copied(&mut self, copied: Copied) {
        if !copied.is_settled {
            self.round.unsettle(copied.partition);
        }
        let metrics = &self.driver.member.anti_entropy.metrics;
        add(&metrics.copied, copied.records);
        add(&metrics.copied_bytes, copied.bytes);
        let records = u64::try_from(copied.records).unwrap_or(u64::MAX);
        self.copied += records;
        self.driver.member.anti_entropy.note(|progress| progress.copied += records);
    }
}
