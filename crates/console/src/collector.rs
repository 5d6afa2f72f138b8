//! Asks each node once a second, keeps what series were, and makes the frame that pages get.
//!
//! A node that does not answer holds nothing up but this second's frame, and that for at most [`DEADLINE`].

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant as Tick, MissedTickBehavior, interval};

use crate::formula::StatsInterval;
use crate::node_client::NodeClient;
use crate::node_state::{HasKey, Polled, WatchedCluster, WatchedState, judge, judge_older};
use crate::ring::write_number;
use crate::series::{SERIES, values};
use crate::settings::ConsoleMode;
use crate::state::ConsoleState;
use crate::stats::NodeStats;

const PERIOD: Duration = Duration::from_secs(1);
/// For how long a node's own console collects after the last page was closed.
const UNWATCHED_TIME: Duration = Duration::from_secs(60);
/// For a node's answer.
const DEADLINE: Duration = Duration::from_millis(600);
/// Of an answer: eight times what a node may say.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Whether nodes are asked now; `watched`: when a page was last open. The console of a node collects only while a page
/// is open, and for [`UNWATCHED_TIME`] after that.
fn is_wanted(mode: ConsoleMode, streams: usize, now: Tick, watched: &mut Option<Tick>) -> bool {
    if streams > 0 {
        *watched = Some(now);
    }
    mode != ConsoleMode::Admin || watched.is_some_and(|watched| now.duration_since(watched) < UNWATCHED_TIME)
}

/// What the collector remembers of a node.
struct CollectedNode {
    /// None while it is being asked.
    client: Option<NodeClient>,
    /// Its last figures, and when they came.
    before: Option<(Box<NodeStats>, Instant)>,
}

/// A node's part of a frame.
struct NodeFrame {
    state: WatchedState,
    why: Option<String>,
    stats: Option<Value>,
    series: Vec<f32>,
}

/// The task that collects, until its runtime ends.
pub(crate) struct Collector {
    state: Arc<ConsoleState>,
    nodes: Vec<CollectedNode>,
    watched: WatchedCluster,
    begin: Instant,
    /// What `dev` has said of its nodes.
    dev: Value,
    /// The question to it that is under way.
    dev_asked: Option<JoinHandle<String>>,
}

impl Collector {
    pub(crate) fn new(state: Arc<ConsoleState>) -> Self {
        let nodes = state.nodes.iter().map(|_| CollectedNode { client: None, before: None }).collect();
        Self {
            state,
            nodes,
            watched: WatchedCluster::default(),
            begin: Instant::now(),
            dev: Value::Null,
            dev_asked: None,
        }
    }

    /// Never ends.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let first = ticks.tick().await;
        let mut watched = None;
        loop {
            let tick = ticks.tick().await;
            let streams = self.state.streams.load(Ordering::Relaxed);
            if is_wanted(self.state.settings.mode, streams, tick, &mut watched) {
                self.collect(tick.duration_since(first).as_secs()).await;
            }
        }
    }

    /// One second: asks, judges, records, and shows.
    async fn collect(&mut self, second: u64) {
        self.ask_dev();
        let polled = self.poll_all().await;
        let cluster_ids = polled.iter().filter_map(|(polled, _)| match polled {
            Polled::Stats(stats) => Some(stats.cluster()),
            _ => None,
        });
        self.watched.note(cluster_ids, self.begin.elapsed());
        let frames: Vec<NodeFrame> =
            self.nodes.iter_mut().zip(polled).map(|(node, polled)| node_frame(node, polled, &self.watched)).collect();
        let at_ms = wall_ms();
        {
            let mut history = self.state.history();
            (history.end_s, history.end_ms) = (second, at_ms);
            for (node, frame) in history.nodes.iter_mut().zip(&frames) {
                node.push(second, &frame.series);
            }
        }
        let dev = self.dev_answer().await.clone();
        let canary = self.state.canary.as_ref().map(|canary| canary.show());
        let text = frame_text(&self.state, at_ms, &frames, &json!({ "dev": dev, "canary": canary }));
        self.state.frames.send_replace(Bytes::from(format!("data: {text}\n\n")));
    }

    async fn poll_all(&mut self) -> Vec<(Polled, Instant)> {
        let has_key = if self.state.authorization.is_some() { HasKey::Yes } else { HasKey::No };
        let mut asked = JoinSet::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let known = self.state.nodes.get(index).cloned();
            let client = node.client.take().or_else(|| Some(NodeClient::new(known?, self.state.authorization.clone())));
            let Some(mut client) = client else { continue };
            asked.spawn(async move {
                let polled = poll(&mut client, has_key).await;
                (index, client, polled, Instant::now())
            });
        }
        let why = "the console could not ask it; its log says why".to_owned();
        let lost = (Polled::Nothing(WatchedState::Silent, why), Instant::now());
        let mut polled = vec![lost; self.nodes.len()];
        while let Some(done) = asked.join_next().await {
            match done {
                Ok((index, client, answer, at)) => {
                    if let (Some(node), Some(place)) = (self.nodes.get_mut(index), polled.get_mut(index)) {
                        node.client = Some(client);
                        *place = (answer, at);
                    }
                }
                Err(error) => tracing::error!(%error, "a question to a node ended in a defect"),
            }
        }
        polled
    }

    /// Asks for the nodes of `dev`, unless the last question is not answered yet.
    fn ask_dev(&mut self) {
        if let (Some(lab), None) = (self.state.settings.lab.clone(), &self.dev_asked) {
            self.dev_asked = Some(tokio::task::spawn_blocking(move || lab.order("status")));
        }
    }

    /// What `dev` says of its nodes, or has said last.
    async fn dev_answer(&mut self) -> &Value {
        if self.dev_asked.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(asked) = self.dev_asked.take()
            && let Ok(text) = asked.await
            && let Ok(answer) = serde_json::from_str::<Value>(&text)
            && let Some(nodes) = answer.get("nodes")
        {
            self.dev = json!({ "nodes": nodes });
        }
        &self.dev
    }
}

async fn poll(client: &mut NodeClient, has_key: HasKey) -> Polled {
    let begin = Instant::now();
    let outcome = client.get("/v0/stats", ANSWER_BYTES_MAX, DEADLINE).await;
    match judge(&outcome, has_key, DEADLINE) {
        Polled::Unknown => {
            let left = DEADLINE.saturating_sub(begin.elapsed());
            let page = client.get("/v0/cluster", ANSWER_BYTES_MAX * 16, left).await;
            judge_older(&page, has_key)
        }
        polled => polled,
    }
}

fn node_frame(node: &mut CollectedNode, (polled, at): (Polled, Instant), watched: &WatchedCluster) -> NodeFrame {
    let nothing = || vec![f32::NAN; SERIES.len()];
    match polled {
        Polled::Stats(stats) => {
            let (state, why) = watched.state_of(stats.cluster());
            if state == WatchedState::Foreign {
                node.before = None;
                return NodeFrame { state, why, stats: None, series: nothing() };
            }
            let interval = node.before.as_ref().map(|(before, then)| StatsInterval {
                before,
                now: &stats,
                seconds: at.duration_since(*then).as_secs_f64(),
            });
            let series = values(&stats, interval.as_ref());
            let document = stats.document().clone();
            node.before = Some((stats, at));
            NodeFrame { state, why, stats: Some(document), series }
        }
        // What it counted before stays: it may have been paused.
        Polled::Nothing(state, why) => NodeFrame { state, why: Some(why), stats: None, series: nothing() },
        Polled::Unknown => NodeFrame { state: WatchedState::NotKvorum, why: None, stats: None, series: nothing() },
    }
}

/// The frame, as JSON in one line. `last` has `dev` and `canary`.
fn frame_text(state: &ConsoleState, at_ms: u64, frames: &[NodeFrame], last: &Value) -> String {
    let mut text = format!("{{\"at_ms\":{at_ms},\"nodes\":[");
    for (index, (node, frame)) in state.nodes.iter().zip(frames).enumerate() {
        if index > 0 {
            text.push(',');
        }
        let (why, stats) = (json!(frame.why), frame.stats.as_ref().unwrap_or(&Value::Null));
        let (url, name) = (json!(node.url), frame.state.name());
        write!(text, "{{\"url\":{url},\"state\":\"{name}\",\"why\":{why},\"stats\":{stats}")
            .expect("a string takes all text");
        text.push_str(",\"series\":{");
        push_series(&mut text, &frame.series);
        text.push_str("}}");
    }
    let (dev, canary) = (&last["dev"], &last["canary"]);
    write!(text, "],\"dev\":{dev},\"canary\":{canary}}}").expect("a string takes all text");
    text
}

/// Those that are known.
fn push_series(text: &mut String, series: &[f32]) {
    let mut is_first = true;
    for (row, value) in SERIES.iter().zip(series).filter(|(_, value)| value.is_finite()) {
        if !std::mem::take(&mut is_first) {
            text.push(',');
        }
        write!(text, "\"{}\":", row.id).expect("a string takes all text");
        write_number(text, *value);
    }
}

pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_asks_its_peers_only_while_a_page_is_open_and_a_minute_more() {
        let (begin, mut watched) = (Tick::now(), None);
        let mut is_wanted = |mode, streams, after: u64| {
            is_wanted(mode, streams, begin + PERIOD * u32::try_from(after).unwrap(), &mut watched)
        };
        assert!(!is_wanted(ConsoleMode::Admin, 0, 1), "a connection without the token opens no stream");
        assert!(is_wanted(ConsoleMode::Dev, 0, 1) && is_wanted(ConsoleMode::Console, 0, 1));
        assert!(is_wanted(ConsoleMode::Admin, 1, 2) && is_wanted(ConsoleMode::Admin, 0, 61));
        assert!(!is_wanted(ConsoleMode::Admin, 0, 62));
    }
}
