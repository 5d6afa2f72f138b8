//! The canary's workers: one for each node, at which it begins; it goes on to the next where that does not answer, as a
//! client would.
//!
//! The keys are its own, so it knows what a read at a quorum must return: the last value whose write was acknowledged. A
//! write that got no answer may take effect at any time: its key is given up. It works while a page is open, so that a
//! cluster which nobody watches holds nothing but its users' keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};

use crate::canary::Canary;
use crate::node_client::{NoAnswer, NodeClient};
use crate::state::ConsoleState;

/// Between two writes of a worker.
const PERIOD: Duration = Duration::from_millis(100);
/// Of one attempt at one node.
const DEADLINE: Duration = Duration::from_secs(1);
/// The values end by themselves.
const TTL_S: u32 = 3600;
/// Keys that are removed at once.
const REMOVED_MAX: u64 = 64;
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What came of a write at one node or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CanaryWrite {
    Acknowledged,
    /// No node has acknowledged it.
    Failed,
}

/// A worker, until its runtime ends.
pub(crate) struct CanaryWorker {
    state: Arc<ConsoleState>,
    clients: Vec<NodeClient>,
    /// The node at which it begins.
    first: usize,
    quorum: String,
    /// Of its keys: what begins them, and how many were given up.
    prefix: String,
    given_up: u64,
    /// How many of those are removed.
    removed: u64,
    last: u64,
    /// Whether its present key may be there.
    has_written: bool,
}

impl CanaryWorker {
    /// One for each node. `name` tells this console's keys from others'.
    pub(crate) fn all(state: &Arc<ConsoleState>, name: &str) -> Vec<Self> {
        let from = state.nodes.len().min(3);
        let quorum = format!("ack={}&from={from}&", from / 2 + 1);
        let one = |first: usize| Self {
            clients: state
                .nodes
                .iter()
                .map(|node| NodeClient::new(node.clone(), state.authorization.clone()))
                .collect(),
            first,
            quorum: quorum.clone(),
            prefix: format!("kvorum-canary%2F{name}%2F{first}%2F"),
            given_up: 0,
            removed: 0,
            last: 0,
            has_written: false,
            state: state.clone(),
        };
        (0..state.nodes.len()).map(one).collect()
    }

    /// Never ends.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let state = self.state.clone();
        let Some(canary) = &state.canary else { return };
        loop {
            ticks.tick().await;
            let is_watched = state.streams.load(Ordering::Relaxed) > 0;
            if is_watched && !canary.is_paused() {
                self.cycle(canary).await;
            } else if self.has_written {
                self.clear().await;
                canary.rest();
            }
        }
    }

    /// Removes its keys, as far as that can be done at once: they end by themselves otherwise.
    async fn clear(&mut self) {
        let oldest = self.removed.max(self.given_up.saturating_sub(REMOVED_MAX));
        for number in oldest..=self.given_up {
            let target = self.target(number);
            for client in &mut self.clients {
                let outcome = client.change("DELETE", &target, Bytes::new(), DEADLINE).await;
                if outcome.is_ok_and(|answer| answer.status == 202) {
                    break;
                }
            }
        }
        self.has_written = false;
        self.given_up += 1;
        self.removed = self.given_up;
    }

    /// A write, and a read that must return it.
    async fn cycle(&mut self, canary: &Canary) {
        self.last += 1;
        self.has_written = true;
        let (written, is_sure) = self.write().await;
        if written == CanaryWrite::Failed {
            canary.note_failure();
            self.given_up += 1;
            return;
        }
        canary.note_write();
        match self.read().await {
            None => canary.note_failure(),
            Some(value) => {
                canary.note_read();
                self.check(canary, value).await;
            }
        }
        if !is_sure {
            self.given_up += 1;
        }
    }

    /// Nobody else writes the key, so the value is the last one; a first read that misses it is stale, and if a second
    /// one does as well the write is lost.
    async fn check(&mut self, canary: &Canary, value: u64) {
        if value == self.last {
            return;
        }
        canary.note_stale();
        if self.read().await.is_some_and(|again| again != self.last) {
            canary.note_lost();
        }
        tracing::error!(expected = self.last, value, "the canary has read another value than was acknowledged");
        self.given_up += 1;
    }

    fn target(&self, number: u64) -> String {
        format!("/v0/entity?{}id={}{number}", self.quorum, self.prefix)
    }

    /// Writes at one node after the other until one acknowledges; and whether no attempt can take effect later.
    async fn write(&mut self) -> (CanaryWrite, bool) {
        let target = format!("{}&ttl={TTL_S}", self.target(self.given_up));
        let body = Bytes::from(self.last.to_string());
        let mut is_sure = true;
        for step in 0..self.clients.len() {
            let at = (self.first + step) % self.clients.len();
            let Some(client) = self.clients.get_mut(at) else { continue };
            match client.change("PUT", &target, body.clone(), DEADLINE).await {
                Ok(answer) if answer.status == 201 => return (CanaryWrite::Acknowledged, is_sure),
                // It was sent to no replica.
                Ok(answer) if answer.status == 503 => {}
                Err(NoAnswer::Unreachable(_)) => {}
                Ok(_) | Err(_) => is_sure = false,
            }
        }
        (CanaryWrite::Failed, false)
    }

    /// The value as one node after the other has it, from another one on than where it was written; zero for none.
    async fn read(&mut self) -> Option<u64> {
        let target = self.target(self.given_up);
        for step in 1..=self.clients.len() {
            let at = (self.first + step) % self.clients.len();
            let Some(client) = self.clients.get_mut(at) else { continue };
            match client.get(&target, ANSWER_BYTES_MAX, DEADLINE).await {
                Ok(answer) if answer.status == 200 => {
                    return std::str::from_utf8(&answer.body).ok().and_then(|text| text.parse().ok()).or(Some(0));
                }
                Ok(answer) if answer.status == 404 => return Some(0),
                Ok(_) | Err(_) => {}
            }
        }
        None
    }
}
